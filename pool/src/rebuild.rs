//! How the processes of a coded pool agree on new homes for headers that were lost with a memory
//! node, or that are to leave one that lives.
//!
//! ```text
//! declared dead, or to be left --> [all compute nodes quiet] --> one moves the homes
//!     --> [all have entered what they have] --> over
//! ```
//! Each of them may die at any time: nobody waits for a node that is not in the pool any more, and
//! its task is another's.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::control::{MAX_LOST_PAGES, PoolState, Slab};
use crate::error::PoolError;
use crate::pool::Pool;
use crate::registry::ComputeIndex;

/// How far the headers of a memory node have got to new homes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebuild {
    /// Tells it from others.
    pub number: u64,
    /// The memory node that has the headers, or had them.
    pub memory: u16,
    /// It lives, and only those of this range leave it; `None` if all are lost with it.
    pub leaving: Option<usize>,
    /// Where they were before they moved, as long as they can be read there.
    pub before: Vec<Move>,
    /// Compute nodes that have come to a stop with the lines concerned.
    pub quiet: BTreeSet<u16>,
    /// The compute node that moves the homes.
    pub by: Option<u16>,
    /// They have moved, and the headers are there, but for the latch words.
    pub moved: bool,
    /// Compute nodes that have entered in the latch words what they have.
    pub entered: BTreeSet<u16>,
    /// Compute nodes that died before they could: nobody knows what they had.
    pub doubtful: BTreeSet<u16>,
}

/// A header table and a place of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The range.
    pub range: usize,
    /// The position to which the headers belong.
    pub position: usize,
    /// How many positions on they lie there.
    pub on: usize,
    /// The slab that is.
    pub slab: Slab,
}

impl PoolState {
    /// A memory node of a coded pool is dead: what its headers said is to be found out anew.
    pub(crate) fn begin_rebuild(&mut self, memory: u16) {
        let holds = |slab: &Slab| slab.node == memory;
        if !self.ranges.iter().flat_map(|range| &range.slabs).any(holds) {
            return;
        }
        // What has not left it before is lost with the rest.
        let cut_short = self.rebuilds.iter().position(|r| r.memory == memory && !r.moved);
        let cut_short = cut_short.map(|at| (at, self.rebuilds.remove(at)));
        for rebuild in self.rebuilds.iter_mut().filter(|rebuild| rebuild.memory == memory) {
            rebuild.before.clear();
        }
        let at = cut_short.as_ref().map_or(self.rebuilds.len(), |(at, _)| *at);
        // The words that named those who are being recovered from are lost.
        let doubtful = cut_short.map(|(_, rebuild)| rebuild.doubtful).unwrap_or_default();
        let doubted = self.rebuilds.iter().flat_map(|rebuild| rebuild.doubtful.clone());
        // Beyond what is remembered nobody knows what was lost with whom.
        let forgotten = self.lost_pages.len() >= MAX_LOST_PAGES;
        let dead = self.dead.iter().copied().filter(|_| forgotten);
        let lost = self.lost.iter().filter(|(_, lost)| !lost.held_nothing).map(|(node, _)| *node);
        let doubtful = doubtful.into_iter().chain(doubted).chain(lost).chain(dead).collect();
        let number = self.next_rebuild();
        let rebuild = Rebuild { number, memory, doubtful, ..Rebuild::default() };
        self.rebuilds.insert(at, rebuild);
    }

    /// Has the headers leave that lie in a memory node's slab of a range, if there are any; whether
    /// there are.
    pub(crate) fn leave_headers(&mut self, memory: u16, range: usize) -> bool {
        let number = self.next_rebuild();
        let rebuild = Rebuild { number, memory, leaving: Some(range), ..Rebuild::default() };
        let moves = self.moves_of(&rebuild);
        let can_leave = moves.iter().all(|(_, is_possible)| *is_possible);
        if !moves.is_empty() && can_leave && self.rebuilds.is_empty() && self.lost.is_empty() {
            self.rebuilds.push(rebuild);
        }
        !moves.is_empty()
    }

    /// A compute node has left: another may get its index.
    pub(crate) fn forget_in_rebuilds(&mut self, node: u16) {
        for rebuild in &mut self.rebuilds {
            rebuild.quiet.remove(&node);
            rebuild.entered.remove(&node);
        }
    }

    /// The memory node whose words are being entered again by those who had lines there: whoever
    /// came in now would find them free.
    pub(crate) fn is_being_entered(&self) -> Option<u16> {
        self.rebuilds.iter().find(|rebuild| rebuild.moved).map(|rebuild| rebuild.memory)
    }

    /// Whether words may come to name a compute node that died.
    pub(crate) fn is_doubtful(&self, node: u16) -> bool {
        self.rebuilds.iter().any(|rebuild| rebuild.doubtful.contains(&node))
    }

    fn next_rebuild(&mut self) -> u64 {
        self.rebuilds_begun += 1;
        self.rebuilds_begun
    }

    /// A compute node died: what it had of lines whose words are being made anew is known if it has
    /// entered it.
    pub(crate) fn doubt(&mut self, node: u16) {
        for rebuild in self.rebuilds.iter_mut().filter(|r| !r.entered.contains(&node)) {
            rebuild.doubtful.insert(node);
        }
    }

    /// The header tables that a rebuild is of, and where else they can be, if they can: at the next
    /// of their positions whose memory node lives, and best at one that will keep them.
    #[must_use]
    pub fn moves_of(&self, rebuild: &Rebuild) -> Vec<(Move, bool)> {
        let mut moves = Vec::new();
        let ranges = self.ranges.iter().enumerate();
        let is_concerned = |range| rebuild.leaving.is_none_or(|own| own == range);
        for (range, place) in ranges.filter(|(range, _)| is_concerned(*range)) {
            let can_have = |slab: &Slab| {
                self.lives(slab.node) && (rebuild.leaving.is_none() || slab.node != rebuild.memory)
            };
            let keeps = |slab: &Slab| can_have(slab) && self.stays(slab.node);
            for position in 0..place.homes.len() {
                let now = place.home_of(position);
                let Some((now, on)) = now.filter(|(slab, _)| slab.node == rebuild.memory) else {
                    continue;
                };
                let next_of = |fits: &dyn Fn(&Slab) -> bool| {
                    let mut places = (0..=self.coding.parity())
                        .filter_map(|on| Some((on, place.slab_on(position, on)?)));
                    places.find(|(_, slab)| fits(slab))
                };
                let next = next_of(&keeps).or_else(|| next_of(&can_have));
                let (on, slab) = next.unwrap_or((on, now));
                moves.push((Move { range, position, on, slab }, next.is_some()));
            }
        }
        moves
    }

    /// The moves to be made. What cannot leave a memory node that lives is made anew where it is:
    /// all will enter what they have.
    #[must_use]
    pub fn moves_to_make(&self, rebuild: &Rebuild) -> Vec<Move> {
        let all = self.moves_of(rebuild).into_iter();
        let is_made = |is_possible| is_possible || rebuild.leaving.is_some();
        all.filter(|(_, is_possible)| is_made(*is_possible)).map(|(to, _)| to).collect()
    }

    /// Where the tables of a rebuild are now.
    fn places_before(&self, moves: &[Move]) -> Vec<Move> {
        let place = |to: &Move| {
            let (slab, on) = self.ranges.get(to.range)?.home_of(to.position)?;
            Some(Move { on, slab, ..*to })
        };
        moves.iter().filter_map(place).collect()
    }

    /// The rebuild under way, if it is this one.
    fn rebuild_of(&mut self, number: u64) -> Option<&mut Rebuild> {
        self.rebuilds.first_mut().filter(|rebuild| rebuild.number == number)
    }

    /// Compute nodes that died and whose verbs may still execute.
    pub(crate) fn unfenced(&self) -> impl Iterator<Item = u16> {
        self.lost.iter().filter(|(_, lost)| !lost.fenced).map(|(node, _)| *node)
    }

    pub(crate) fn members(&self) -> BTreeSet<u16> {
        self.compute_nodes.keys().copied().collect()
    }
}

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
        moves: &[Move],
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
            let can_be_read = |before: &Move| rebuild.leaving.is_some() && !moves.contains(before);
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
            for Move { range, position, on, .. } in moves {
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
            state.forget_fallen();
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
