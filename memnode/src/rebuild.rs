//! How the processes of a coded pool agree on new homes for headers that were lost with a memory node.
//!
//! ```text
//! declared dead --> [all compute nodes quiet] --> one moves the homes --> [all have entered what they have] --> over
//! ```
//! Each of them may die at any time: nobody waits for a node that is not in the pool any more, and its task is
//! another's.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use selkie_fabric::env::Env;

use crate::control::PoolState;
use crate::error::PoolError;
use crate::pool::Pool;
use crate::registry::ComputeIndex;

/// How far the loss of a memory node's headers has been made good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rebuild {
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

/// A header table that has a new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The range.
    pub range: usize,
    /// The position to which the headers belong.
    pub position: usize,
    /// How many positions on they lie from now on.
    pub on: usize,
}

impl PoolState {
    /// A memory node of a coded pool is dead: what its headers said is to be found out anew.
    pub(crate) fn begin_rebuild(&mut self, memory_node: u16) {
        let holds = |slab: &crate::control::Slab| slab.node == memory_node;
        if self.ranges.iter().flat_map(|range| &range.slabs).any(holds) {
            // The words that named those who are being recovered from are lost.
            let doubtful = self.lost.keys().copied().collect();
            self.rebuilds.push((memory_node, Rebuild { doubtful, ..Rebuild::default() }));
        }
    }

    /// A compute node died: what it had of lines whose words are being made anew is known if it has entered it.
    pub(crate) fn doubt(&mut self, node: u16) {
        for (_, rebuild) in self.rebuilds.iter_mut().filter(|(_, r)| !r.entered.contains(&node)) {
            rebuild.doubtful.insert(node);
        }
    }

    /// The header tables that lie on a memory node, and where else they can be: at the next of their positions whose
    /// memory node lives, if there is one.
    #[must_use]
    pub fn moves_from(&self, memory_node: u16) -> Vec<(Move, bool)> {
        let mut moves = Vec::new();
        for (range, place) in self.ranges.iter().enumerate() {
            let count = place.slabs.len();
            let node_at = |position: usize, on: usize| {
                let at = (position + on).checked_rem(count)?;
                place.slabs.get(at).map(|slab| slab.node)
            };
            for (position, on) in place.homes.iter().enumerate() {
                if node_at(position, usize::from(*on)) != Some(memory_node) {
                    continue;
                }
                let next = (0..=self.coding.parity())
                    .find(|on| node_at(position, *on).is_some_and(|node| self.lives(node)));
                let on = next.unwrap_or(usize::from(*on));
                moves.push((Move { range, position, on }, next.is_some()));
            }
        }
        moves
    }

    /// The rebuild under way, if it is of this memory node.
    fn rebuild_of(&mut self, memory_node: usize) -> Option<&mut Rebuild> {
        let first = self.rebuilds.first_mut();
        first.filter(|(node, _)| usize::from(*node) == memory_node).map(|(_, rebuild)| rebuild)
    }

    fn members(&self) -> BTreeSet<u16> {
        self.compute_nodes.keys().copied().collect()
    }
}

/// The moves that can be made.
fn possible(state: &PoolState, memory: usize) -> Vec<Move> {
    let all = u16::try_from(memory).map(|memory| state.moves_from(memory)).unwrap_or_default();
    all.into_iter().filter(|(_, possible)| *possible).map(|(to, _)| to).collect()
}

impl Pool {
    /// The memory nodes whose headers are to be made anew, as this process knows: the first of them is, and how far
    /// that is; the others wait.
    #[must_use]
    pub fn rebuilds(&self) -> Vec<(usize, Rebuild)> {
        let state = self.state();
        state.rebuilds.iter().map(|(node, rebuild)| (usize::from(*node), rebuild.clone())).collect()
    }

    /// Says that a compute node posts and sends nothing more for the lines whose headers were lost, and that all it
    /// has sent has arrived.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn note_quiet(&self, memory: usize, by: ComputeIndex) -> Result<(), PoolError> {
        self.change_rebuild(memory, |rebuild| {
            rebuild.quiet.insert(by.get());
        })
        .await
    }

    /// Whether the compute node `by` is to move the homes: all are quiet, and nobody else who lives does.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_rebuild(&self, memory: usize, by: ComputeIndex) -> Result<bool, PoolError> {
        let claim = |state: &mut PoolState| {
            let members = state.members();
            let Some(rebuild) = state.rebuild_of(memory) else {
                return Ok(false);
            };
            let ready = members.is_subset(&rebuild.quiet) && !rebuild.moved;
            let taken = rebuild.by.is_some_and(|other| members.contains(&other));
            let own = rebuild.by == Some(by.get());
            if ready && !taken {
                rebuild.by = Some(by.get());
            }
            Ok(ready && (own || !taken))
        };
        Ok(self.membership().change(claim).await?.1)
    }

    /// Moves header tables, whose headers are at their new places, for the compute node `by` that claimed it.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn move_homes(
        &self,
        memory: usize,
        by: ComputeIndex,
        moves: &[Move],
    ) -> Result<(), PoolError> {
        let change = |state: &mut PoolState| {
            let Some(rebuild) = state.rebuild_of(memory) else {
                return Ok(());
            };
            if rebuild.by != Some(by.get()) || rebuild.moved {
                return Ok(());
            }
            // Where one was to go may be lost meanwhile.
            let now: Vec<Move> = possible(state, memory);
            if now != moves {
                return Ok(());
            }
            if let Some(rebuild) = state.rebuild_of(memory) {
                rebuild.moved = true;
            }
            for Move { range, position, on } in moves {
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

    /// Says that a compute node has entered in the new words what it has. When all have, the lines go on.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn note_entered(&self, memory: usize, by: ComputeIndex) -> Result<(), PoolError> {
        self.change_rebuild(memory, |rebuild| {
            if rebuild.moved {
                rebuild.entered.insert(by.get());
            }
        })
        .await
    }

    /// Whether the compute node `by` is to deal with those of whom nobody knows what they had: all others have entered
    /// what they have, and nobody else who lives does.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_doubts(&self, memory: usize, by: ComputeIndex) -> Result<bool, PoolError> {
        let claim = |state: &mut PoolState| {
            let members = state.members();
            let Some(rebuild) = state.rebuild_of(memory) else { return Ok(false) };
            let ready = rebuild.moved && members.is_subset(&rebuild.entered);
            let taken = rebuild.by.is_some_and(|other| members.contains(&other));
            let own = rebuild.by == Some(by.get());
            if ready && !taken {
                rebuild.by = Some(by.get());
            }
            Ok(ready && (own || !taken))
        };
        Ok(self.membership().change(claim).await?.1)
    }

    /// These nodes have been dealt with.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn clear_doubts(
        &self,
        memory: usize,
        nodes: &BTreeSet<u16>,
    ) -> Result<(), PoolError> {
        self.change_rebuild(memory, |rebuild| rebuild.doubtful.retain(|node| !nodes.contains(node)))
            .await
    }

    /// Ends a rebuild if all have entered what they have, and nothing is in doubt.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn end_rebuild(&self, memory: usize) -> Result<(), PoolError> {
        let end = |state: &mut PoolState| {
            let members = state.members();
            let over = |rebuild: &mut Rebuild| {
                let entered = members.is_subset(&rebuild.entered);
                rebuild.moved && entered && rebuild.doubtful.is_empty()
            };
            if state.rebuild_of(memory).is_some_and(over) {
                state.rebuilds.remove(0);
            }
            Ok(())
        };
        self.membership().change(end).await.map(drop)
    }

    async fn change_rebuild(
        &self,
        memory: usize,
        change: impl Fn(&mut Rebuild),
    ) -> Result<(), PoolError> {
        let change = |state: &mut PoolState| {
            if let Some(rebuild) = state.rebuild_of(memory) {
                change(rebuild);
            }
            Ok(())
        };
        self.membership().change(change).await.map(drop)
    }
}

/// A slab that is being made again on another memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Regeneration {
    /// Its range.
    pub range: usize,
    /// Its position in the range.
    pub position: usize,
    /// Where it is to lie.
    pub to: crate::control::Slab,
    /// The compute node that makes it, by index.
    pub by: u16,
    /// The slab is in its range, and in use.
    pub begun: bool,
}

impl PoolState {
    /// A slab of a living range whose memory node is dead, and where it could lie.
    fn next_regeneration(&self, by: u16) -> Option<Regeneration> {
        for (range, place) in self.ranges.iter().enumerate() {
            for (position, slab) in place.slabs.iter().enumerate() {
                if self.lives(slab.node) {
                    continue;
                }
                let others = place.slabs.iter().map(|slab| slab.node);
                let kept: Vec<u16> = others.filter(|node| self.lives(*node)).collect();
                if let Some(to) = self.place_slab(&kept) {
                    return Some(Regeneration { range, position, to, by, begun: false });
                }
            }
        }
        None
    }

    fn lives(&self, memory_node: u16) -> bool {
        let member = self.memory_nodes.get(usize::from(memory_node)).and_then(Option::as_ref);
        member.is_some_and(|member| !member.dead)
    }
}

impl Pool {
    /// Gives the compute node `by` a slab to make again, which nobody else does: first what others have left, or what
    /// it has begun itself. `None` if there is none, or no room for one.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_regeneration(
        &self,
        by: ComputeIndex,
    ) -> Result<Option<Regeneration>, PoolError> {
        let state = self.state();
        if state.regeneration.is_none() && state.next_regeneration(by.get()).is_none() {
            return Ok(None);
        }
        let claim = |state: &mut PoolState| {
            let members = state.members();
            if !state.rebuilds.is_empty() {
                return Ok(None);
            }
            let task = match state.regeneration {
                Some(task) => {
                    let ended = !state.lost.get(&task.by).is_some_and(|lost| !lost.fenced);
                    let is_free = !members.contains(&task.by) && ended;
                    let task = (task.by == by.get() || is_free).then_some(task);
                    // The node that was to have it may be lost as well.
                    match task {
                        Some(task) if !state.lives(task.to.node) => {
                            state.regeneration = None;
                            state.next_regeneration(by.get())
                        }
                        task => task.map(|task| Regeneration { by: by.get(), ..task }),
                    }
                }
                None => state.next_regeneration(by.get()),
            };
            if task.is_some() {
                state.regeneration = task;
            }
            Ok(task)
        };
        Ok(self.membership().change(claim).await?.1)
    }

    /// Puts the slab into the range. Returns once all write there; `false` if it is another's by now.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn begin_regeneration(
        &self,
        env: &Env,
        by: ComputeIndex,
        task: Regeneration,
    ) -> Result<bool, PoolError> {
        let begun = Regeneration { begun: true, ..task };
        let begin = |state: &mut PoolState| {
            let is_own = state.regeneration == Some(task) && task.by == by.get();
            let slabs = state.ranges.get_mut(task.range).map(|place| &mut place.slabs);
            if let Some(slab) = slabs.and_then(|slabs| slabs.get_mut(task.position))
                && is_own
            {
                *slab = task.to;
                state.regeneration = Some(begun);
            }
            Ok(is_own)
        };
        let (version, is_own) = self.membership().change(begin).await?;
        if is_own {
            self.membership().until_noticed(env, version).await?;
        }
        Ok(is_own)
    }

    /// The slab has all its splits.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn end_regeneration(
        &self,
        by: ComputeIndex,
        task: Regeneration,
    ) -> Result<(), PoolError> {
        let end = |state: &mut PoolState| {
            let begun = Regeneration { begun: true, ..task };
            if state.regeneration == Some(begun) && task.by == by.get() {
                state.regeneration = None;
            }
            Ok(())
        };
        self.membership().change(end).await.map(drop)
    }
}
