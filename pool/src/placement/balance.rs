//! Which slab of a coded pool is to move so that memory nodes have equally many: usually after a
//! memory node has joined, or after the slabs of a lost one were regenerated on the others.
//!
//! A slab moves only from a node that has at least two slabs more than the other. So the sum of the
//! squares of the slab counts decreases with each move, and the moves end. Moves within the
//! extended group of a range come first (Hydra §5.2). Where groups differ, whole ranges move, one
//! after the other: the slabs of a range follow the first one, so that few ranges lie in two
//! groups.

use std::collections::{BTreeMap, BTreeSet};

use super::coding_sets::{MemoryNodeLoad, SPARE_NODES, extended_groups};
use crate::document::{PoolState, RangePlace, Slab};

/// A move from one memory node to another, ordered by its benefit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Choice {
    /// Apart from this slab, the range has most slabs in the group that the slab goes to.
    is_near: bool,
    /// Slabs of the range that are in that group already.
    company: usize,
    /// How many slabs `from` has more than `to`.
    difference: u32,
    from: u16,
    to: u16,
}

/// Least difference that a move makes smaller.
const LEAST_DIFFERENCE: u32 = 2;

impl PoolState {
    /// A slab, by range and position, whose move balances the nodes, and the memory node that it is
    /// to move to.
    pub(crate) fn next_to_balance(&self) -> Option<(usize, usize, u16)> {
        let places = self.staying_places();
        let most = places.iter().map(|place| place.used).max()?;
        let least = places.iter().filter(|place| place.free() > 0).map(|place| place.used).min()?;
        if most < least + LEAST_DIFFERENCE {
            return None;
        }
        let groups = Groups::of(&places, self.coding.splits());
        // Ranges lie on few sets of nodes: the best move for one is the best for all of its set.
        let mut best: BTreeMap<Vec<u16>, Option<Choice>> = BTreeMap::new();
        let mut chosen: Option<(Choice, usize)> = None;
        for (range, place) in self.ranges.iter().enumerate() {
            let Some(nodes) = self.nodes_of(place) else { continue };
            let choice = best.entry(nodes);
            let nodes = choice.key().clone();
            let choice = choice.or_insert_with(|| groups.best_for(&nodes));
            if let Some(choice) = choice.filter(|own| chosen.is_none_or(|(best, _)| best < *own)) {
                chosen = Some((choice, range));
            }
        }
        let (choice, range) = chosen?;
        let slabs = &self.ranges.get(range)?.slabs;
        let position = slabs.iter().position(|slab| slab.node == choice.from)?;
        Some((range, position, choice.to))
    }

    /// The memory nodes of a range, if all live and are to stay, and none of its slabs is moving.
    fn nodes_of(&self, place: &RangePlace) -> Option<Vec<u16>> {
        let stays = |slab: &Slab| self.stays(slab.node);
        let is_settled = place.moving.is_none() && place.slabs.iter().all(stays);
        let nodes: BTreeSet<u16> = place.slabs.iter().map(|slab| slab.node).collect();
        is_settled.then(|| nodes.into_iter().collect())
    }
}

/// The memory nodes, and the group of each.
struct Groups<'p> {
    places: BTreeMap<u16, &'p MemoryNodeLoad>,
    group_of: BTreeMap<u16, usize>,
}

impl<'p> Groups<'p> {
    fn of(places: &'p [MemoryNodeLoad], splits: usize) -> Self {
        let groups = extended_groups(places, splits, SPARE_NODES);
        let members = groups.iter().enumerate();
        let group_of =
            members.flat_map(|(number, group)| group.iter().map(move |p| (p.node, number)));
        Self {
            group_of: group_of.collect(),
            places: places.iter().map(|place| (place.node, place)).collect(),
        }
    }

    /// The best move of a slab of a range that lies on these nodes.
    fn best_for(&self, nodes: &[u16]) -> Option<Choice> {
        let own = nodes.iter().filter_map(|node| self.places.get(node).copied());
        own.flat_map(|from| self.choices(nodes, from)).max()
    }

    fn choices(&self, nodes: &[u16], from: &MemoryNodeLoad) -> impl Iterator<Item = Choice> {
        let kept: Vec<&MemoryNodeLoad> = nodes
            .iter()
            .filter(|node| **node != from.node)
            .filter_map(|node| self.places.get(node).copied())
            .collect();
        let mut company: BTreeMap<usize, usize> = BTreeMap::new();
        for group in kept.iter().filter_map(|place| self.group_of.get(&place.node)) {
            *company.entry(*group).or_default() += 1;
        }
        let largest = company.values().copied().max().unwrap_or(0);
        let (from, used) = (from.node, from.used);
        self.places.values().filter_map(move |to| {
            let difference = used.checked_sub(to.used)?;
            let is_beside = |other: &&MemoryNodeLoad| {
                other.node == to.node || other.domain.is_shared_with(&to.domain)
            };
            let can_have = to.free() > 0 && to.node != from && !kept.iter().any(is_beside);
            // A node whose domain all groups have is in no group.
            let group = self.group_of.get(&to.node);
            let company = group.and_then(|group| company.get(group)).copied().unwrap_or(0);
            let is_near = company == largest;
            (can_have && difference >= LEAST_DIFFERENCE).then_some(Choice {
                is_near,
                company,
                difference,
                from,
                to: to.node,
            })
        })
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
    use crate::document::{Identity, MemoryMember, Timing};

    const CAPACITY: u32 = 100;

    /// A pool of this coding without ranges, whose memory nodes are of these failure domains.
    fn pool(coding: &str, domains: &[&str]) -> PoolState {
        let config = PoolConfig {
            memory_nodes: 0,
            bytes_per_node: 1 << 20,
            gcl_bytes: 512,
            range_bytes: 1 << 18,
            max_compute_nodes: 4,
            coding: coding.parse().unwrap(),
            log_bytes: 0,
        };
        let identity = Identity { name: "test", id: 1, fabric: "mem" };
        let mut state = PoolState::new(identity, Timing::default(), &config);
        domains.iter().for_each(|domain| join(&mut state, domain, CAPACITY));
        state
    }

    fn join(state: &mut PoolState, domain: &str, ranges: u32) {
        let peer = PeerId::memory(state.memory_nodes.len() as u16);
        let descriptor = MemoryNodeDescriptor { peer, region: RegionKey::from_raw(0), ranges };
        let domain = domain.parse().unwrap_or_default();
        let (stay, reclaim) = (Residency::Stays, Reclaim::default());
        let member = MemoryMember { host: 0, descriptor, dead: false, domain, stay, reclaim };
        state.memory_nodes.push(Some(member));
    }

    /// Makes a move, if there is one to be made; whether there was.
    fn step(state: &mut PoolState) -> bool {
        let Some((range, position, to)) = state.next_to_balance() else { return false };
        let kept = state.kept(range, position);
        assert!(!kept.contains(&to), "two slabs of range {range} on node {to}");
        let slab = state.free_slab(to);
        state.ranges[range].slabs[position] = slab;
        true
    }

    /// Makes all moves; how many, and what each node has then.
    fn balance(state: &mut PoolState) -> (usize, Vec<usize>) {
        let moves = (0..10_000).take_while(|_| step(state)).count();
        assert!(moves < 10_000, "they do not come to an end");
        let nodes = 0..state.memory_nodes.len() as u16;
        (moves, nodes.map(|node| state.slabs_on(node)).collect())
    }

    fn fill(state: &mut PoolState, ranges: usize) {
        (0..ranges).for_each(|_| assert!(state.add_range()));
    }

    #[test]
    fn a_node_that_joins_gets_its_share_by_as_few_moves() {
        let mut state = pool("2+1", &[""; 4]);
        fill(&mut state, 40);
        assert_eq!(balance(&mut state), (0, vec![30; 4]), "ranges are spread evenly");
        join(&mut state, "", CAPACITY);
        assert_eq!(balance(&mut state), (24, vec![24; 5]));
        join(&mut state, "", 7);
        let (moves, slabs) = balance(&mut state);
        assert_eq!((moves, slabs[5]), (7, 7), "as many as its capacity");
    }

    #[test]
    fn nodes_that_make_a_group_of_their_own_get_ranges_whole() {
        let mut state = pool("2+1", &[""; 5]);
        fill(&mut state, 40);
        for _ in 0..5 {
            join(&mut state, "", CAPACITY);
        }
        let is_mixed = |range: &&RangePlace| {
            let new = range.slabs.iter().filter(|slab| slab.node >= 5).count();
            new != 0 && new != 3
        };
        let mut most = 0;
        while step(&mut state) {
            most = most.max(state.ranges.iter().filter(is_mixed).count());
        }
        assert_eq!(most, 1, "ranges that lie in two groups at any time");
        assert_eq!(balance(&mut state), (0, vec![12; 10]));
    }

    #[test]
    fn no_move_puts_two_slabs_into_one_failure_domain() {
        let mut state = pool("2+1", &["a", "b", "c"]);
        fill(&mut state, 30);
        join(&mut state, "a", CAPACITY);
        join(&mut state, "a", CAPACITY);
        let (_, slabs) = balance(&mut state);
        assert_eq!(slabs, [10, 30, 30, 10, 10], "what rack a has is spread in it");
        for range in &state.ranges {
            let of_rack_a = range.slabs.iter().filter(|slab| [0, 3, 4].contains(&slab.node));
            assert_eq!(of_rack_a.count(), 1, "{range:?}");
        }
    }

    #[test]
    fn of_two_that_join_at_the_same_index_one_does_and_leaves_no_gap() {
        let mut state = pool("2+1", &[""; 3]);
        let member = |node| {
            let (peer, region) = (PeerId::memory(node), RegionKey::from_raw(0));
            let descriptor = MemoryNodeDescriptor { peer, region, ranges: CAPACITY };
            let (domain, stay, reclaim) = Default::default();
            MemoryMember { host: 0, descriptor, dead: false, domain, stay, reclaim }
        };
        assert!(state.enter_memory_node(member(3)).unwrap());
        assert!(!state.enter_memory_node(member(3)).unwrap(), "it is too late");
        assert_eq!(state.memory_nodes.iter().filter(|slot| slot.is_some()).count(), 4);
        assert_eq!((state.memory_nodes.len(), state.next_memory_node().unwrap()), (4, 4));
        assert!(!state.enter_memory_node(member(5)).unwrap(), "none is left out");
        assert_eq!(state.memory_nodes.len(), 4);
    }

    #[test]
    fn nothing_goes_to_the_dead_or_those_that_leave_and_ranges_with_losses_stay() {
        let mut state = pool("2+1", &[""; 3]);
        fill(&mut state, 30);
        join(&mut state, "", CAPACITY);
        let mut leaving = state.clone();
        leaving.memory_nodes[3].as_mut().unwrap().stay = Residency::Leaving;
        assert_eq!(leaving.next_to_balance(), None);
        let mut dead = state.clone();
        dead.memory_nodes[3].as_mut().unwrap().dead = true;
        assert_eq!(dead.next_to_balance(), None);
        assert!(state.next_to_balance().is_some());
        state.memory_nodes[0].as_mut().unwrap().dead = true;
        assert_eq!(state.next_to_balance(), None, "the loss is regenerated first");
    }
}
