//! The slabs that a memory node takes back, in the pool's state: which slabs no node may use any
//! more, and which are to move elsewhere before that.
//!
//! ```text
//!          Withdraw                        Offer
//! free  ------------>  withdrawn  -------------------->  free
//! used  --> evicting --(moved: see migration)--> withdrawn
//!  ^  Evict    |
//!  '-----------'  Cancel, unless its move has begun
//! ```
//! Only the memory node itself asks for these steps (see `monitor`), except for the move. Compute
//! nodes move the slab, and it is withdrawn in the step that ends the move, when no node uses it
//! any more nor will. So a withdrawn slab has no late writer, and its memory can be given back.

use std::collections::BTreeSet;

use crate::document::{PoolState, Reclaim, Slab};

/// A step by which a memory node takes a slab back, or offers it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimStep {
    /// A free slab is no longer available.
    Withdraw(u32),
    /// A slab in use moves elsewhere, and is then no longer available.
    Evict(u32),
    /// A slab that was to move stays.
    Cancel(u32),
    /// A withdrawn slab is available again.
    Offer(u32),
}

impl PoolState {
    fn reclaim_mut(&mut self, memory_node: u16) -> Option<&mut Reclaim> {
        let slot = self.memory_nodes.get_mut(usize::from(memory_node));
        slot.and_then(Option::as_mut).map(|member| &mut member.reclaim)
    }

    /// A migration has freed a slab: no node uses it any more. If its memory node wants it back,
    /// the slab is withdrawn from now on.
    pub(crate) fn give_back(&mut self, slab: Slab) {
        if let Some(reclaim) = self.reclaim_mut(slab.node)
            && reclaim.evicting.remove(slab.slab)
        {
            reclaim.withdrawn.insert(slab.slab);
        }
    }

    /// Takes the steps that a memory node asks for, as far as the state still allows them.
    pub fn reclaim(&mut self, memory_node: u16, acts: &[ReclaimStep]) {
        if !self.stays(memory_node) || self.coding.is_plain() {
            return;
        }
        let numbers = |slab: &&Slab| slab.node == memory_node;
        let in_use: BTreeSet<u32> =
            self.slabs_in_use().filter(numbers).map(|slab| slab.slab).collect();
        let placed = self.ranges.iter().flat_map(|range| &range.slabs);
        let placed: BTreeSet<u32> = placed.filter(numbers).map(|slab| slab.slab).collect();
        let moves = self.migration.map(|task| task.from).filter(|from| from.node == memory_node);
        let Some(reclaim) = self.reclaim_mut(memory_node) else { return };
        let Reclaim { evicting, withdrawn, .. } = reclaim;
        for act in acts {
            match *act {
                ReclaimStep::Withdraw(slab) if !in_use.contains(&slab) => withdrawn.insert(slab),
                ReclaimStep::Evict(slab) if placed.contains(&slab) => evicting.insert(slab),
                ReclaimStep::Cancel(slab) if moves.is_none_or(|from| from.slab != slab) => {
                    evicting.remove(slab)
                }
                ReclaimStep::Offer(slab) => withdrawn.remove(slab),
                _ => false,
            };
        }
    }

    /// Says that a memory node looks after its host's memory.
    pub fn set_watching(&mut self, memory_node: u16) {
        if let Some(reclaim) = self.reclaim_mut(memory_node) {
            reclaim.is_watching = true;
        }
    }
}
