//! How the processes of a coded pool agree on new homes for headers that were lost with a memory node.
//!
//! ```text
//! declared dead --> [all compute nodes quiet] --> one moves the homes --> [all have entered what they have] --> over
//! ```
//! Each of them may die at any time: nobody waits for a node that is not in the pool any more, and its task is
//! another's.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

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
            self.rebuilds.insert(memory_node, Rebuild::default());
        }
    }

    /// The header tables that lie on a memory node, and where else they can be: at the next of their positions whose
    /// memory node lives, if there is one.
    #[must_use]
    pub fn moves_from(&self, memory_node: u16) -> Vec<(Move, bool)> {
        let lives = |node: u16| {
            let member = self.memory_nodes.get(usize::from(node)).and_then(Option::as_ref);
            member.is_some_and(|member| !member.dead)
        };
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
                let next =
                    (0..=self.coding.parity()).find(|on| node_at(position, *on).is_some_and(lives));
                let on = next.unwrap_or(usize::from(*on));
                moves.push((Move { range, position, on }, next.is_some()));
            }
        }
        moves
    }

    fn members(&self) -> BTreeSet<u16> {
        self.compute_nodes.keys().copied().collect()
    }
}

impl Pool {
    /// The memory nodes whose headers are being made anew, and how far that is, as this process knows.
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
            let Some(rebuild) = u16::try_from(memory).ok().and_then(|m| state.rebuilds.get_mut(&m))
            else {
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
            let Some(rebuild) = u16::try_from(memory).ok().and_then(|m| state.rebuilds.get_mut(&m))
            else {
                return Ok(());
            };
            if rebuild.by != Some(by.get()) || rebuild.moved {
                return Ok(());
            }
            rebuild.moved = true;
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

    /// Ends a rebuild if all have entered what they have.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn end_rebuild(&self, memory: usize) -> Result<(), PoolError> {
        let end = |state: &mut PoolState| {
            let members = state.members();
            let Ok(memory) = u16::try_from(memory) else { return Ok(()) };
            let over = |rebuild: &Rebuild| rebuild.moved && members.is_subset(&rebuild.entered);
            if state.rebuilds.get(&memory).is_some_and(over) {
                state.rebuilds.remove(&memory);
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
            let rebuild = u16::try_from(memory).ok().and_then(|m| state.rebuilds.get_mut(&m));
            if let Some(rebuild) = rebuild {
                change(rebuild);
            }
            Ok(())
        };
        self.membership().change(change).await.map(drop)
    }
}
