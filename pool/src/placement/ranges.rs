//! New ranges of a coded pool, and the memory nodes that they could lie on.

use std::collections::BTreeSet;

use super::coding_sets::{self, MemoryNodeLoad, SPARE_NODES};
use crate::document::{MAX_RANGES, MemoryMember, PoolState, RangePlace, Slab};
use crate::error::PoolError;
use crate::layout::MAX_RANGE_BYTES;

impl PoolState {
    /// The living memory nodes as places for slabs. Those that are to leave, or that evict slabs,
    /// have no room.
    pub(crate) fn places(&self) -> Vec<MemoryNodeLoad> {
        let slabs = self.slabs_by_node();
        let used = |node: u16| {
            let own = slabs.get(&node).map_or(0, BTreeSet::len);
            u32::try_from(own).unwrap_or(u32::MAX)
        };
        let living = self.memory_nodes.iter().flatten().filter(|member| !member.dead);
        living
            .map(|member| {
                let node = member.descriptor.peer.index();
                let used = used(node);
                let has_room = self.stays(node) && member.reclaim.evicting.is_empty();
                let withdrawn = u32::try_from(member.reclaim.withdrawn.len()).unwrap_or(u32::MAX);
                let capacity = member.descriptor.ranges.saturating_sub(withdrawn);
                let slabs = if has_room { capacity } else { used };
                MemoryNodeLoad { node, domain: member.domain.clone(), used, slabs }
            })
            .collect()
    }

    /// The places of the memory nodes that are to stay.
    pub(crate) fn staying_places(&self) -> Vec<MemoryNodeLoad> {
        let mut places = self.places();
        places.retain(|place| self.stays(place.node));
        places
    }

    /// The lowest available slab of a node that is in no range.
    pub(crate) fn free_slab(&self, node: u16) -> Slab {
        let own = self.slabs_in_use().filter(|slab| slab.node == node);
        let mut taken: BTreeSet<u32> = own.map(|slab| slab.slab).collect();
        taken.extend(self.withdrawn(node));
        #[expect(clippy::expect_used, reason = "callers choose nodes with a free slab")]
        let slab =
            (0..=u32::MAX).find(|slab| !taken.contains(slab)).expect("the node has a free slab");
        Slab { node, slab }
    }

    /// Appends a range to a coded pool; `false` if there is no room for one, or there are
    /// [`MAX_RANGES`].
    pub(crate) fn add_range(&mut self) -> bool {
        if self.ranges.len() >= MAX_RANGES {
            return false;
        }
        let places = self.staying_places();
        let Some(nodes) = coding_sets::place_range(&places, self.coding.splits(), SPARE_NODES)
        else {
            return false;
        };
        let slabs: Vec<_> = nodes.into_iter().map(|node| self.free_slab(node)).collect();
        let homes = vec![0; slabs.len()];
        self.ranges.push(RangePlace { slabs, homes, moving: None });
        true
    }

    /// Failure domains of memory nodes of which each page can have one split in each.
    pub(crate) fn domains<'m>(members: impl Iterator<Item = &'m MemoryMember>) -> usize {
        let (mut alone, mut shared) = (0, BTreeSet::new());
        for member in members {
            if member.domain.is_alone() {
                alone += 1;
            } else {
                shared.insert(&member.domain);
            }
        }
        alone + shared.len()
    }

    /// Refuses a memory node that has just been entered if there could be no failure domain for
    /// each split, whichever nodes take the places that are left.
    pub(crate) fn check_domain_of(&self, node: u16) -> Result<(), PoolError> {
        let open = self.memory_nodes.iter().filter(|slot| slot.is_none()).count();
        let most = Self::domains(self.memory_nodes.iter().flatten()) + open;
        let splits = self.coding.splits();
        let own = self.member(node);
        let Some(own) = own.filter(|_| most < splits) else { return Ok(()) };
        let (coding, nodes) = (self.coding, self.memory_nodes.len());
        let why = format!(
            "failure domain {} has a memory node already, so the pool's {nodes} could be of no more than {most} domains; \
             coding {coding} needs {splits}",
            own.domain
        );
        Err(PoolError::MemoryNodeRefused { node: usize::from(node), why })
    }

    /// The error for a pool without room for a range. It says what a range would need.
    pub(crate) fn no_room(&self) -> PoolError {
        let (coding, needed) = (self.coding.to_string(), self.coding.splits());
        let places = self.staying_places();
        let with_room: BTreeSet<u16> =
            places.iter().filter(|p| p.free() > 0).map(|p| p.node).collect();
        let members = self.memory_nodes.iter().flatten();
        let members = members.filter(|m| with_room.contains(&m.descriptor.peer.index()));
        PoolError::NoPlaceForRange {
            coding,
            needed,
            domains: Self::domains(members),
            living: places.len(),
            with_room: with_room.len(),
        }
    }

    /// Refuses memory of which a part could never be used, as there can be no more than
    /// [`MAX_RANGES`] ranges of this size.
    ///
    /// # Errors
    /// [`PoolError::TooManyRanges`].
    pub fn check_ranges(&self) -> Result<(), PoolError> {
        let living = || self.memory_nodes.iter().flatten().filter(|member| !member.dead);
        let beyond = MAX_RANGES as u64 + 1;
        // No two slabs of a range are on one memory node.
        let are_too_many = |times: u64| {
            let slabs = living().map(|member| u64::from(member.descriptor.ranges) / times);
            let useful: u64 = slabs.map(|slabs| slabs.min(beyond)).sum();
            useful >= beyond * self.coding.splits() as u64
        };
        if self.coding.is_plain() || !are_too_many(1) {
            return Ok(());
        }
        let times = (0..u64::BITS).map(|shift| 1 << shift).find(|times| !are_too_many(*times));
        let enough =
            self.range_bytes.saturating_mul(times.unwrap_or(u64::MAX)).min(MAX_RANGE_BYTES);
        Err(PoolError::TooManyRanges { range_bytes: self.range_bytes, enough })
    }

    /// Ranges that a coded pool has and may still get.
    #[must_use]
    pub fn most_ranges(&self) -> usize {
        let (mut places, splits) = (self.staying_places(), self.coding.splits());
        let mut ranges = self.ranges.len();
        while ranges < MAX_RANGES
            && let Some(nodes) = coding_sets::place_range(&places, splits, SPARE_NODES)
        {
            let taken = places.iter_mut().filter(|place| nodes.contains(&place.node));
            taken.for_each(|place| place.used += 1);
            ranges += 1;
        }
        ranges
    }

    /// Bytes of page data that fit in so many slabs.
    #[must_use]
    pub fn page_bytes_in(&self, slabs: u32) -> u64 {
        let geometry = self.geometry();
        geometry.extents_in_slabs(u64::from(slabs)) * geometry.extent_bytes()
    }
}
