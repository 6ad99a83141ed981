//! Compute nodes make headers anew elsewhere: see `crate::rebuild`.

use std::collections::BTreeSet;

use super::view::Pool;
use crate::compute_index::ComputeIndex;
use crate::document::{HeaderMove, PoolState, Rebuild};
use crate::error::PoolError;

impl Pool {
    /// What is to be made anew, as this process knows: the first of them is, the others wait.
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

    /// Whether the compute node `by` is to move the homes: all are quiet, and nobody else who lives
    /// does.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_rebuild(&self, number: u64, by: ComputeIndex) -> Result<bool, PoolError> {
        self.claim(number, by, |rebuild, members| {
            members.is_subset(&rebuild.quiet) && !rebuild.moved
        })
        .await
    }

    /// Whether the compute node `by` is to take the step of a rebuild for which that has to be
    /// `ready`: nobody else who lives does, and nobody who died may go on with it, or with writing
    /// pages.
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
            // Who came in meanwhile has to be quiet as well.
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
            if let Some(rebuild) = state.rebuild_of(number) {
                (rebuild.moved, rebuild.before) = (true, before);
            }
            // Splits that were not there yet do not tell what there is.
            if let Some(task) = &mut state.regeneration {
                (task.attempt, task.ends) = (task.attempt + 1, false);
            }
            for HeaderMove { range, position, on, .. } in moves {
                let homes = state.ranges.get_mut(*range).map(|place| &mut place.homes);
                if let (Some(home), Ok(on)) =
                    (homes.and_then(|homes| homes.get_mut(*position)), u8::try_from(*on))
                {
                    *home = on;
                }
            }
            Ok(())
        };
        self.membership().change(change).await.map(drop)
    }

    /// Says that a compute node has entered in the new words what it has. When all have, the lines
    /// go on.
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

    /// Whether the compute node `by` is to deal with those of whom nobody knows what they had: all
    /// others have entered what they have, and nobody else who lives does.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_doubts(&self, number: u64, by: ComputeIndex) -> Result<bool, PoolError> {
        self.claim(number, by, |rebuild, members| {
            rebuild.moved && members.is_subset(&rebuild.entered)
        })
        .await
    }

    /// These nodes have been dealt with: the words of these lines name these of them, as nobody
    /// else has the lines.
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

    /// Ends a rebuild if all have entered what they have, and nothing is in doubt.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn end_rebuild(&self, number: u64) -> Result<(), PoolError> {
        let end = |state: &mut PoolState| {
            let members = state.members();
            let over = |rebuild: &mut Rebuild| {
                let entered = members.is_subset(&rebuild.entered);
                rebuild.moved && entered && rebuild.doubtful.is_empty()
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
