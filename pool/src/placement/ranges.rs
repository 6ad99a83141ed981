//! New ranges of a coded pool, and the memory nodes that they could lie on.

use std::collections::BTreeSet;

use super::coding_sets::{self, MemoryNodeLoad, SPARE_NODES};
use crate::document::{MAX_RANGES, MemoryMember, PoolState, RangePlace, Residency, Slab};
use crate::error::PoolError;
use crate::layout::MAX_RANGE_BYTES;

/// A memory node with `used` slabs in use as a place for slabs.
fn load_of(member: &MemoryMember, used: u32, has_room: bool) -> MemoryNodeLoad {
    let withdrawn = u32::try_from(member.reclaim.withdrawn.len()).unwrap_or(u32::MAX);
    let capacity = member.descriptor.ranges.saturating_sub(withdrawn);
    MemoryNodeLoad {
        node: member.descriptor.peer.index(),
        domain: member.domain.clone(),
        used,
        slabs: if has_room { capacity } else { used },
    }
}

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
                let has_room = self.stays(node) && member.reclaim.evicting.is_empty();
                load_of(member, used(node), has_room)
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

    /// The memory nodes for the slabs of a new range. A pool that has lost memory nodes, no more
    /// than its coding allows for, and in which too few failure domains are left, gets a range that
    /// has lost slabs already: they are regenerated once there is room for them, as those of other
    /// ranges are. Where enough are left and are full, that room is for what was lost before.
    fn place_range(&self, places: &[MemoryNodeLoad]) -> Option<Vec<u16>> {
        let coding = (self.coding.splits(), self.coding.parity());
        let whole: Vec<_> = places.iter().filter(|place| self.lives(place.node)).cloned().collect();
        coding_sets::place_range(&whole, coding.0, SPARE_NODES).or_else(|| {
            let stays = |member: &&MemoryMember| self.stays(member.descriptor.peer.index());
            if Self::domains(self.memory_nodes.iter().flatten().filter(stays)) >= coding.0 {
                return None;
            }
            let nodes = places.iter().map(|place| place.node);
            let dead = nodes.filter(|node| !self.lives(*node)).collect();
            coding_sets::place_degraded_range(places, &dead, coding)
        })
    }

    /// The places for slabs of new ranges: memory nodes that are to stay, and those that died. Room
    /// in which lost slabs are to be regenerated is taken.
    fn places_for_ranges(&self) -> Vec<MemoryNodeLoad> {
        let mut places = self.staying_places();
        let slabs = self.slabs_by_node();
        let has_died = |member: &&MemoryMember| member.dead && member.stay == Residency::Stays;
        let dead = self.memory_nodes.iter().flatten().filter(has_died);
        places.extend(dead.map(|member| {
            let node = member.descriptor.peer.index();
            let used = slabs.get(&node).map_or(0, BTreeSet::len);
            load_of(member, u32::try_from(used).unwrap_or(u32::MAX), true)
        }));
        self.take_room_for_lost_slabs(&mut places);
        places
    }

    fn take_room_for_lost_slabs(&self, places: &mut [MemoryNodeLoad]) {
        let lost: Vec<_> = (0..)
            .zip(&self.ranges)
            .flat_map(|(range, place)| {
                let slabs = (0..).zip(&place.slabs).filter(|(_, slab)| !self.lives(slab.node));
                slabs.map(move |(position, _)| (range, position))
            })
            .collect();
        if lost.is_empty() {
            return;
        }
        let Some(mut free) = self.free_slabs() else { return };
        for (range, position) in lost {
            let Some(slab) = free.take(self.kept(range, position)) else { continue };
            if let Some(place) = places.iter_mut().find(|place| place.node == slab.node) {
                place.used += 1;
            }
        }
    }

    /// Appends a range to a coded pool; `false` if there is no room for one, or there are
    /// [`MAX_RANGES`].
    pub(crate) fn add_range(&mut self) -> bool {
        if self.ranges.len() >= MAX_RANGES {
            return false;
        }
        let Some(nodes) = self.place_range(&self.places_for_ranges()) else { return false };
        // Headers lie where they would have been moved to had the memory node died later.
        let next_living = |position: usize| {
            let on = (0..=self.coding.parity()).find(|on| {
                nodes.get((position + on) % nodes.len()).is_some_and(|n| self.lives(*n))
            });
            on.and_then(|on| u8::try_from(on).ok())
        };
        let Some(homes) = (0..nodes.len()).map(next_living).collect() else { return false };
        let slabs = nodes.iter().map(|node| self.free_slab(*node)).collect();
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
        let mut places = self.places_for_ranges();
        let mut ranges = self.ranges.len();
        while ranges < MAX_RANGES
            && let Some(nodes) = self.place_range(&places)
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
        self.geometry().page_bytes_in_slabs(u64::from(slabs))
    }
}
