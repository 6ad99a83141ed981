//! The free slabs of a coded pool, and the ranges that may have them.
//!
//! A search for slabs to be placed goes through all ranges, and is repeated while there is a slab
//! to be placed and no room for it. So one search computes the free slabs once. Where a slab has
//! found no place, the search does not look again beside the same memory nodes: ranges lie on few
//! sets of nodes (Hydra §5.2).

use std::collections::{BTreeMap, BTreeSet};

use super::coding_sets::{self, MemoryNodeLoad, SPARE_NODES};
use crate::document::{PoolState, RangePlace, Slab};

/// The free slabs of a pool, as they are taken.
pub(crate) struct FreeSlabs {
    places: Vec<MemoryNodeLoad>,
    /// The slabs of each memory node that are in use or withdrawn.
    taken: BTreeMap<u16, BTreeSet<u32>>,
    splits: usize,
    /// Sets of memory nodes beside which there is no place for a slab.
    full: BTreeSet<Vec<u16>>,
    #[cfg(test)]
    looks: usize,
}

impl PoolState {
    /// The slabs that are free; `None` if there is none.
    pub(crate) fn free_slabs(&self) -> Option<FreeSlabs> {
        let places = self.places();
        if places.iter().all(|place| place.free() == 0) {
            return None;
        }
        let splits = self.coding.splits();
        let mut taken = self.slabs_by_node();
        for place in &places {
            taken.entry(place.node).or_default().extend(self.withdrawn(place.node));
        }
        Some(FreeSlabs {
            places,
            taken,
            splits,
            full: BTreeSet::new(),
            #[cfg(test)]
            looks: 0,
        })
    }

    /// The first slab of a range, by range and position, that `is_to_go` and finds a place
    /// elsewhere, and that place.
    pub(crate) fn first_to_place(
        &self,
        is_to_go: impl Fn(&RangePlace, usize, &Slab) -> bool,
    ) -> Option<(usize, usize, Slab)> {
        // Usually there is nothing to be placed, and the free slabs are not needed.
        let concerns = |place: &RangePlace| {
            place.slabs.iter().enumerate().any(|(position, slab)| is_to_go(place, position, slab))
        };
        if !self.ranges.iter().any(concerns) {
            return None;
        }
        self.first_to_place_in(&mut self.free_slabs()?, is_to_go)
    }

    fn first_to_place_in(
        &self,
        free: &mut FreeSlabs,
        is_to_go: impl Fn(&RangePlace, usize, &Slab) -> bool,
    ) -> Option<(usize, usize, Slab)> {
        self.ranges.iter().enumerate().find_map(|(range, place)| {
            let slabs = place.slabs.iter().enumerate();
            let mut to_go = slabs.filter(|(position, slab)| is_to_go(place, *position, slab));
            to_go.find_map(|(position, _)| {
                Some((range, position, free.find(self.kept(range, position))?))
            })
        })
    }
}

impl FreeSlabs {
    /// A free slab for a range whose other slabs lie on these memory nodes.
    pub(crate) fn find(&mut self, kept: Vec<u16>) -> Option<Slab> {
        if self.full.contains(&kept) {
            return None;
        }
        #[cfg(test)]
        {
            self.looks += 1;
        }
        let node = coding_sets::place_slab(&self.places, &kept, self.splits, SPARE_NODES);
        let Some(node) = node else {
            self.full.insert(kept);
            return None;
        };
        let taken = self.taken.get(&node);
        let is_taken = |slab: &u32| taken.is_some_and(|taken| taken.contains(slab));
        #[expect(clippy::expect_used, reason = "`place_slab` chooses nodes with a free slab")]
        let slab = (0..=u32::MAX).find(|slab| !is_taken(slab)).expect("the node has a free slab");
        Some(Slab { node, slab })
    }

    /// As [`FreeSlabs::find`]. The slab is not free any more.
    pub(crate) fn take(&mut self, kept: Vec<u16>) -> Option<Slab> {
        let slab = self.find(kept)?;
        self.taken.entry(slab.node).or_default().insert(slab.slab);
        let place = self.places.iter_mut().find(|place| place.node == slab.node);
        if let Some(place) = place {
            place.used += 1;
        }
        Some(slab)
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::{PeerId, RegionKey};

    use super::*;
    use crate::config::PoolConfig;
    use crate::document::MemoryNodeDescriptor;
    use crate::document::Reclaim;
    use crate::document::Residency;
    use crate::document::{Card, Identity, MAX_LOST_PAGES, MAX_RANGES, MemoryMember, Timing};
    use crate::failure_domain::FailureDomain;
    use crate::layout::MAX_RANGE_BYTES;

    const RANGES: u32 = 2_000;

    /// A pool of coding 2+1 whose first three memory nodes have slabs of all ranges; each node
    /// has so many.
    fn pool(capacities: &[u32]) -> PoolState {
        let config = PoolConfig {
            memory_nodes: capacities.len(),
            bytes_per_node: 1 << 20,
            gcl_bytes: 512,
            range_bytes: 1 << 18,
            max_compute_nodes: 4,
            coding: "2+1".parse().unwrap(),
            log_bytes: 0,
        };
        let identity = Identity { name: "test", id: 1, fabric: "mem" };
        let mut state = PoolState::new(identity, Timing::default(), &config);
        let member = |(node, ranges): (u16, &u32)| {
            let (peer, region) = (PeerId::memory(node), RegionKey::from_raw(0));
            let descriptor = MemoryNodeDescriptor { peer, region, ranges: *ranges };
            let (domain, stay) = (FailureDomain::ALONE, Residency::Stays);
            let reclaim = Reclaim::default();
            Some(MemoryMember { host: 0, descriptor, dead: false, domain, stay, reclaim })
        };
        state.memory_nodes = (0..).zip(capacities).map(member).collect();
        let range = |slab| {
            let slabs = (0..3).map(|node| Slab { node, slab }).collect();
            RangePlace { slabs, homes: vec![0; 3], moving: None }
        };
        state.ranges = (0..RANGES).map(range).collect();
        state
    }

    fn declare_dead(state: &mut PoolState, node: usize) {
        state.memory_nodes[node].as_mut().unwrap().dead = true;
    }

    #[test]
    fn nothing_is_looked_for_where_nothing_is_free() {
        let mut state = pool(&[RANGES, RANGES, RANGES, 0]);
        declare_dead(&mut state, 1);
        assert!(state.free_slabs().is_none());
        let mut roomy = pool(&[RANGES, RANGES, RANGES, 1]);
        declare_dead(&mut roomy, 1);
        assert!(roomy.free_slabs().is_some());
        declare_dead(&mut roomy, 3);
        assert!(roomy.free_slabs().is_none(), "what is dead has nothing");
    }

    #[test]
    fn a_search_in_vain_looks_once_for_all_ranges_of_the_same_nodes() {
        // There are free slabs, but on nodes that each range lies on already.
        let mut state = pool(&[RANGES + 9, RANGES, RANGES + 9]);
        declare_dead(&mut state, 1);
        let mut free = state.free_slabs().unwrap();
        let lost = |_: &RangePlace, _, slab: &Slab| !state.lives(slab.node);
        assert_eq!(state.first_to_place_in(&mut free, lost), None);
        assert_eq!(free.looks, 1, "{RANGES} slabs are lost, all beside the same nodes");
    }

    #[test]
    fn what_is_taken_is_taken_once_and_up_to_the_last() {
        let state = pool(&[RANGES, RANGES, RANGES, 5]);
        let mut free = state.free_slabs().unwrap();
        for slab in 0..5 {
            assert_eq!(free.find(vec![0, 2]), Some(Slab { node: 3, slab }));
            assert_eq!(free.take(vec![0, 2]), Some(Slab { node: 3, slab }));
        }
        assert_eq!(free.take(vec![0, 2]), None);
    }

    /// A pool of coding 8+4, with all that there can be at most.
    fn largest() -> PoolState {
        let mut state = pool(&[0; 1024]);
        state.coding = "8+4".parse().unwrap();
        let (nodes, slabs) = (1024, MAX_RANGES as u32 * 12 / 1024);
        let mut next = 0;
        let mut slab = || {
            next += 1;
            Slab { node: (1024 - next % nodes) as u16 - 1, slab: slabs + next / nodes }
        };
        let mut range = || RangePlace {
            slabs: (0..12).map(|_| slab()).collect(),
            homes: vec![4; 12],
            moving: None,
        };
        state.ranges = (0..MAX_RANGES).map(|_| range()).collect();
        let last = MAX_RANGES as u64 * MAX_RANGE_BYTES;
        state.lost_pages = (1..=MAX_LOST_PAGES as u64).map(|page| last - 512 * page).collect();
        let nodes = state.memory_nodes.iter_mut().flatten();
        for (node, member) in (0..).zip(nodes) {
            member.host = u64::MAX;
            member.descriptor.region = RegionKey::from_raw(u32::MAX);
            member.descriptor.ranges = slabs;
            // No more runs than that.
            member.reclaim.evicting = (0..slabs).step_by(4).collect();
            member.reclaim.withdrawn = (2..slabs).step_by(4).collect();
            member.reclaim.is_watching = true;
            // As those of TCP.
            let card = "[fe80::1234:5678:9abc:def0]:65535/0123456789abcdef".to_owned();
            let card = Card { host: u64::MAX, card, reads_only: false };
            state.cards.insert(PeerId::memory(node).to_raw(), card);
        }
        state
    }

    #[test]
    fn the_largest_state_is_within_what_planes_take() {
        let json = serde_json::to_string(&largest()).unwrap();
        // Of a request to etcd, with as much as 58 compute nodes take beside it.
        assert!(json.len() < (3 << 19) - (64 << 10), "{} bytes", json.len());
        assert_eq!(serde_json::from_str::<PoolState>(&json).unwrap(), largest());
    }

    #[test]
    fn a_pool_gets_no_more_ranges_than_there_can_be_and_no_memory_for_them() {
        let capacity = MAX_RANGES as u32 + 1;
        let mut state = pool(&[capacity; 3]);
        let error = state.check_ranges().unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is memory for more than 4,096 ranges of 256.0 KiB, the most a pool can have: \
             make it with larger ranges, --range 512K or more"
        );
        assert_eq!(state.most_ranges(), MAX_RANGES);
        let range = state.ranges[0].clone();
        state.ranges.resize(MAX_RANGES, range);
        assert!(!state.add_range(), "though there is room");
        // One range less, or one memory node that can have no more of them than the others.
        assert!(pool(&[capacity - 1; 3]).check_ranges().is_ok());
        assert!(pool(&[capacity - 1, capacity - 1, u32::MAX]).check_ranges().is_ok());
        assert!(pool(&[capacity; 4]).check_ranges().is_err());
        let mut plain = pool(&[capacity; 3]);
        plain.coding = crate::coding::Coding::PLAIN;
        assert!(plain.check_ranges().is_ok(), "its ranges are not told of");
    }

    #[test]
    fn ranges_that_there_is_room_for_are_those_that_can_be_added() {
        for capacities in [[4, 4, 4, 4], [9, 2, 2, 1], [7, 0, 3, 3]] {
            let mut state = pool(&capacities);
            state.ranges.clear();
            let most = state.most_ranges();
            let added = (0..100).take_while(|_| state.add_range()).count();
            assert_eq!(added, most, "{capacities:?}");
            assert_eq!(state.most_ranges(), most, "those it has are among them");
        }
    }

    /// A pool grew into the room of a node that had joined to make it whole.
    #[test]
    fn growth_leaves_the_room_in_which_lost_slabs_are_regenerated() {
        let mut state = pool(&[10, 10, 10, 0]);
        state.ranges.clear();
        assert!((0..6).all(|_| state.add_range()));
        state.memory_nodes[2].as_mut().unwrap().dead = true;
        state.memory_nodes[3].as_mut().unwrap().descriptor.ranges = 8;
        let most = state.most_ranges();
        assert_eq!(most, 8, "of eight slabs six are for those that were lost");
        assert_eq!((0..100).take_while(|_| state.add_range()).count(), most - 6);
        let mut free = state.free_slabs().unwrap();
        for range in 0..state.ranges.len() {
            let slabs = state.ranges[range].slabs.clone();
            for (position, _) in slabs.iter().enumerate().filter(|(_, slab)| slab.node == 2) {
                assert!(free.take(state.kept(range, position)).is_some(), "range {range}");
            }
        }
    }

    #[test]
    fn all_slabs_of_a_node_that_is_to_leave_are_counted_in_one_pass() {
        let mut state = pool(&[RANGES, RANGES, RANGES, RANGES - 1]);
        let error = state.clone().begin_to_leave(0).unwrap_err().to_string();
        let why = "2000 slabs are to be moved, and the others have room for 1999 of them";
        assert!(error.contains(why), "{error}");
        state.memory_nodes[3].as_mut().unwrap().descriptor.ranges += 1;
        state.begin_to_leave(0).unwrap();
    }
}
