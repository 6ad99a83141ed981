//! Compute nodes rebuild headers elsewhere: see `crate::rebuild`.

use std::collections::BTreeSet;

use super::view::Pool;
use crate::compute_index::ComputeIndex;
use crate::document::{HeaderMove, PoolState, Rebuild};
use crate::error::PoolError;

impl Pool {
    /// The rebuilds that this process knows. The first is under way, the others wait.
    #[must_use]
    pub fn rebuilds(&self) -> Vec<Rebuild> {
        self.state().rebuilds.clone()
    }

    /// Says that a compute node posts and sends nothing more for the lines whose headers were lost,
    /// and that all it has sent has arrived.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn note_quiet(&self, number: u64, by: ComputeIndex) -> Result<(), PoolError> {
        self.change_rebuild(number, |rebuild| {
            rebuild.quiet.insert(by.get());
        })
        .await
    }

    /// Whether the compute node `by` is to move the homes: all nodes have quiesced, and no other
    /// living node has claimed the task.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_rebuild(&self, number: u64, by: ComputeIndex) -> Result<bool, PoolError> {
        self.claim(number, by, |rebuild, members| {
            members.is_subset(&rebuild.quiet) && !rebuild.moved
        })
        .await
    }

    /// Whether the compute node `by` is to take the step of a rebuild for which it has to be
    /// `ready`. No other living node takes it, and every dead node is fenced, so that none of them
    /// can continue the step or write pages.
    async fn claim(
        &self,
        number: u64,
        by: ComputeIndex,
        ready: impl Fn(&Rebuild, &BTreeSet<u16>) -> bool,
    ) -> Result<bool, PoolError> {
        let claim = |state: &mut PoolState| {
            let members = state.members();
            let all_fenced = state.unfenced().next().is_none();
            let Some(rebuild) = state.rebuild_of(number) else { return Ok(false) };
            let taken = rebuild.by.is_some_and(|other| members.contains(&other));
            let own = rebuild.by == Some(by.get());
            let claims = all_fenced && ready(rebuild, &members) && (own || !taken);
            if claims {
                rebuild.by = Some(by.get());
            }
            Ok(claims)
        };
        Ok(self.membership().change(claim).await?.1)
    }

    /// Moves header tables, whose headers are at their new places, for the compute node `by` that
    /// claimed it.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn move_homes(
        &self,
        number: u64,
        by: ComputeIndex,
        moves: &[HeaderMove],
    ) -> Result<(), PoolError> {
        let change = |state: &mut PoolState| {
            let (members, all_fenced) = (state.members(), state.unfenced().next().is_none());
            let Some(rebuild) = state.rebuild_of(number) else {
                return Ok(());
            };
            // A node that joined meanwhile has to be quiet as well.
            let are_quiet = members.is_subset(&rebuild.quiet) && all_fenced;
            if rebuild.by != Some(by.get()) || rebuild.moved || !are_quiet {
                return Ok(());
            }
            // Where one was to go may be lost meanwhile.
            let rebuild = rebuild.clone();
            if state.moves_to_make(&rebuild) != moves {
                return Ok(());
            }
            let mut before = state.places_before(moves);
            let can_be_read =
                |before: &HeaderMove| rebuild.leaving.is_some() && !moves.contains(before);
            if !before.iter().all(can_be_read) {
                before.clear();
            }
            let tables = state.tables_of(&rebuild);
            // Headers that were copied say themselves which pages are lost.
            let is_concerned = |range: &usize| tables.iter().any(|(own, _)| own == range);
            let is_made_anew = rebuild.leaving.is_none();
            let abandoned = state.abandoned_ranges.iter().copied();
            let abandoned = abandoned.filter(|range| is_made_anew && is_concerned(range)).collect();
            if let Some(rebuild) = state.rebuild_of(number) {
                (rebuild.moved, rebuild.before) = (true, before);
                (rebuild.tables, rebuild.abandoned) = (Some(tables), abandoned);
            }
            // Splits that were not there yet do not tell what there is.
            if let Some(task) = &mut state.regeneration {
                (task.attempt, task.ends) = (task.attempt + 1, false);
            }
            for HeaderMove { range, position, on, .. } in moves {
                let place = state.ranges.get_mut(*range);
                let home = place.and_then(|place| place.homes.get_mut(*position));
                #[expect(clippy::expect_used, reason = "`moves` are those of this very state")]
                let (home, on) = (
                    home.expect("a move is of a position of a range"),
                    u8::try_from(*on).expect("a header lies at most parity positions on"),
                );
                *home = on;
            }
            Ok(())
        };
        self.membership().change(change).await.map(drop)
    }

    /// Says that a compute node has entered its copies in the new words. When all nodes have, the
    /// lines resume.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn note_entered(&self, number: u64, by: ComputeIndex) -> Result<(), PoolError> {
        self.change_rebuild(number, |rebuild| {
            if rebuild.moved {
                rebuild.entered.insert(by.get());
            }
        })
        .await
    }

    /// Whether the compute node `by` is to resolve the doubtful nodes, whose copies are unknown:
    /// all other nodes have entered their copies, and no other living node has claimed the task.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_doubts(&self, number: u64, by: ComputeIndex) -> Result<bool, PoolError> {
        self.claim(number, by, |rebuild, members| {
            rebuild.moved && members.is_subset(&rebuild.entered)
        })
        .await
    }

    /// These doubtful nodes are resolved. The words of these lines now name them, as no other node
    /// has a copy of the lines.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn clear_doubts(
        &self,
        number: u64,
        nodes: &BTreeSet<u16>,
        lines: &[(u16, u64)],
    ) -> Result<(), PoolError> {
        let clear = |state: &mut PoolState| {
            let Some(rebuild) = state.rebuild_of(number) else { return Ok(()) };
            rebuild.doubtful.retain(|node| !nodes.contains(node));
            for (node, line) in lines {
                state.lose_pages(*node, &[*line]);
            }
            state.forget_crash_groups();
            Ok(())
        };
        self.membership().change(clear).await.map(drop)
    }

    /// The words of lines in ranges with pages that are lost for good say so again.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn note_abandoned(&self, number: u64) -> Result<(), PoolError> {
        self.change_rebuild(number, |rebuild| rebuild.abandoned.clear()).await
    }

    /// Ends a rebuild if all nodes have entered their copies, and no node is doubtful.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn end_rebuild(&self, number: u64) -> Result<(), PoolError> {
        let end = |state: &mut PoolState| {
            let members = state.members();
            let over = |rebuild: &mut Rebuild| {
                let entered = members.is_subset(&rebuild.entered);
                let is_clear = rebuild.doubtful.is_empty() && rebuild.abandoned.is_empty();
                rebuild.moved && entered && is_clear
            };
            if state.rebuild_of(number).is_some_and(over) {
                state.rebuilds.remove(0);
            }
            Ok(())
        };
        self.membership().change(end).await.map(drop)
    }

    async fn change_rebuild(
        &self,
        number: u64,
        change: impl Fn(&mut Rebuild),
    ) -> Result<(), PoolError> {
        let change = |state: &mut PoolState| {
            if let Some(rebuild) = state.rebuild_of(number) {
                change(rebuild);
            }
            Ok(())
        };
        self.membership().change(change).await.map(drop)
    }
}
