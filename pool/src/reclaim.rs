//! What a memory node takes back of what it lends, as the pool's state has it: which slabs nobody
//! is to use any more, and which are to move elsewhere before that.
//!
//! ```text
//!          Withdraw                        Offer
//! free  ------------>  withdrawn  -------------------->  free
//! used  --> evicting --(moved: see migration)--> withdrawn
//!  ^  Evict    |
//!  '-----------'  Cancel, unless its move has begun
//! ```
//! Only the memory node itself asks for these steps (see `monitor`), but for the move: compute
//! nodes make that, and the slab is withdrawn in the step in which the move ends, when nobody uses
//! it any more nor will. So what is withdrawn has no late writer, and its memory can be given back.

use std::collections::BTreeSet;

use crate::document::{PoolState, Reclaim, Slab};

/// A step by which a memory node takes a slab back, or lends it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimStep {
    /// A free one is lent no more.
    Withdraw(u32),
    /// One in use is moved elsewhere, and then lent no more.
    Evict(u32),
    /// One that was to be moved stays.
    Cancel(u32),
    /// One that was lent no more is lent again.
    Offer(u32),
}

impl PoolState {
    fn reclaim_mut(&mut self, memory_node: u16) -> Option<&mut Reclaim> {
        let slot = self.memory_nodes.get_mut(usize::from(memory_node));
        slot.and_then(Option::as_mut).map(|member| &mut member.reclaim)
    }

    /// Nobody uses a slab any more that a migration had. If its memory node wants it back, it has
    /// it from now on.
    pub(crate) fn give_back(&mut self, slab: Slab) {
        if let Some(reclaim) = self.reclaim_mut(slab.node)
            && reclaim.evicting.remove(slab.slab)
        {
            reclaim.withdrawn.insert(slab.slab);
        }
    }

    /// Takes the steps that a memory node asks for, as far as they suit what has happened since it
    /// looked.
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
