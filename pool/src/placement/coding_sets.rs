//! Which memory nodes the splits of a range lie on: CodingSets (Hydra §5.2).
//!
//! If the splits of every range lay on memory nodes chosen at random, the loss of any r + 1 nodes
//! would soon be the loss of some range. So the nodes are divided into *extended groups* of k + r +
//! l, and all splits of a range lie within one group, on its k + r least loaded nodes: few sets of
//! nodes whose loss matters, and still a choice of where to put the load. No two nodes of a group
//! are in one failure domain.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use crate::failure_domain::FailureDomain;

/// Nodes that an extended group has beyond those that a range lies on (Hydra §5.2: l).
pub(crate) const SPARE_NODES: usize = 2;

/// A memory node, as a place for slabs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNodeLoad {
    /// Its index.
    pub node: u16,
    /// Its failure domain.
    pub domain: FailureDomain,
    /// Slabs that are in use.
    pub used: u32,
    /// Slabs it has.
    pub slabs: u32,
}

impl MemoryNodeLoad {
    /// Slabs that are free.
    pub(crate) fn free(&self) -> u32 {
        self.slabs.saturating_sub(self.used)
    }

    fn shares_domain(&self, other: &Self) -> bool {
        self.domain.is_shared_with(&other.domain)
    }
}

/// The extended groups of these places, for `splits` splits and `spare` nodes more in each:
/// disjoint, each without two places of one failure domain, the same for every node that computes
/// them. Places that are left over join groups that have room for their domain; without one they
/// are in none.
#[must_use]
pub fn extended_groups(
    places: &[MemoryNodeLoad],
    splits: usize,
    spare: usize,
) -> Vec<Vec<&MemoryNodeLoad>> {
    let mut rest: Vec<&MemoryNodeLoad> = places.iter().collect();
    rest.sort_by_key(|place| place.node);
    let mut groups: Vec<Vec<&MemoryNodeLoad>> = Vec::new();
    for size in (splits..=splits + spare).rev() {
        while let Some(group) = take_group(&mut rest, size) {
            groups.push(group);
        }
    }
    for place in rest {
        let fits =
            |group: &&mut Vec<&MemoryNodeLoad>| !group.iter().any(|own| own.shares_domain(place));
        if let Some(group) = groups.iter_mut().filter(fits).min_by_key(|group| group.len()) {
            group.push(place);
        }
    }
    groups
}

/// Takes a group of `size` out of `rest`, first from the domains that have most nodes left, as
/// these are hardest to spread.
fn take_group<'p>(
    rest: &mut Vec<&'p MemoryNodeLoad>,
    size: usize,
) -> Option<Vec<&'p MemoryNodeLoad>> {
    let mut crowds: HashMap<&FailureDomain, usize> = HashMap::new();
    for place in rest.iter().filter(|place| !place.domain.is_alone()) {
        *crowds.entry(&place.domain).or_default() += 1;
    }
    let crowd = |place: &MemoryNodeLoad| crowds.get(&place.domain).copied().unwrap_or(0);
    let mut candidates = rest.clone();
    // If all nodes fail alone, they are sorted already, and this is one pass.
    candidates.sort_by_key(|place| (Reverse(crowd(place)), place.node));
    let mut group: Vec<&MemoryNodeLoad> = Vec::new();
    for place in candidates {
        if group.len() < size && !group.iter().any(|own| own.shares_domain(place)) {
            group.push(place);
        }
    }
    if group.len() < size {
        return None;
    }
    group.sort_by_key(|place| place.node);
    rest.retain(|place| !group.iter().any(|own| own.node == place.node));
    Some(group)
}

/// The nodes for the slabs of a new range, one for each of `splits` positions: the least loaded of
/// the group that has most room. `None` if no group has room.
#[must_use]
pub fn place_range(places: &[MemoryNodeLoad], splits: usize, spare: usize) -> Option<Vec<u16>> {
    let groups = extended_groups(places, splits, spare);
    let choices = groups.into_iter().filter_map(|mut group| {
        group.retain(|place| place.free() > 0);
        group.sort_by_key(|place| (place.used, Reverse(place.free()), place.node));
        group.truncate(splits);
        (group.len() == splits).then_some(group)
    });
    let load = |group: &Vec<&MemoryNodeLoad>| group.iter().map(|place| place.used).sum::<u32>();
    let best = choices.min_by_key(load)?;
    Some(best.iter().map(|place| place.node).collect())
}

/// The nodes for the slabs of a new range where fewer failure domains live than a range has
/// splits: one of each, the least loaded with room, and of domains that have none up to `parity` of
/// the nodes in `dead`. Their slabs are lost from the beginning, as if the nodes had died after it.
/// Groups mean nothing among so few nodes.
pub(crate) fn place_degraded_range(
    places: &[MemoryNodeLoad],
    dead: &BTreeSet<u16>,
    (splits, parity): (usize, usize),
) -> Option<Vec<u16>> {
    let mut candidates: Vec<_> = places.iter().filter(|place| place.free() > 0).collect();
    candidates.sort_by_key(|place| (dead.contains(&place.node), place.used, place.node));
    let mut range: Vec<&MemoryNodeLoad> = Vec::new();
    for place in candidates {
        if range.len() < splits && !range.iter().any(|own| own.shares_domain(place)) {
            range.push(place);
        }
    }
    let lost = range.iter().filter(|place| dead.contains(&place.node)).count();
    (range.len() == splits && lost <= parity)
        .then(|| range.iter().map(|place| place.node).collect())
}

/// The node that takes over a slab of a range whose other slabs lie on `kept`: of the nodes that
/// share no failure domain with those the least loaded, in their extended group if that has one.
#[must_use]
pub fn place_slab(
    places: &[MemoryNodeLoad],
    kept: &[u16],
    splits: usize,
    spare: usize,
) -> Option<u16> {
    let own: Vec<&MemoryNodeLoad> =
        places.iter().filter(|place| kept.contains(&place.node)).collect();
    let fits = |place: &&&MemoryNodeLoad| {
        place.free() > 0
            && !kept.contains(&place.node)
            && !own.iter().any(|other| other.shares_domain(place))
    };
    let least = |group: &[&MemoryNodeLoad]| -> Option<u16> {
        let order = |place: &&&MemoryNodeLoad| (place.used, Reverse(place.free()), place.node);
        group.iter().filter(fits).min_by_key(order).map(|place| place.node)
    };
    let groups = extended_groups(places, splits, spare);
    let near = groups
        .iter()
        .max_by_key(|group| group.iter().filter(|place| kept.contains(&place.node)).count());
    near.and_then(|group| least(group)).or_else(|| least(&places.iter().collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(node: u16, domain: &str, used: u32) -> MemoryNodeLoad {
        MemoryNodeLoad { node, domain: domain.parse().unwrap_or_default(), used, slabs: 10 }
    }

    fn nodes(group: &[&MemoryNodeLoad]) -> Vec<u16> {
        group.iter().map(|place| place.node).collect()
    }

    #[test]
    fn nodes_are_divided_into_groups_and_what_is_left_makes_or_joins_one() {
        let places: Vec<_> = (0..11).map(|node| place(node, "", 0)).collect();
        let groups = extended_groups(&places, 3, 1);
        let groups: Vec<_> = groups.iter().map(|group| nodes(group)).collect();
        assert_eq!(groups, [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9, 10]]);
        let ten = extended_groups(&places[..10], 3, 1);
        assert_eq!([nodes(&ten[0]), nodes(&ten[1])], [vec![0, 1, 2, 3, 8], vec![4, 5, 6, 7, 9]]);
        assert!(extended_groups(&places[..2], 3, 0).is_empty());
    }

    #[test]
    fn no_group_has_two_nodes_of_one_domain() {
        // Racks of different size: 4, 3, 2, 1, and two nodes that fail alone.
        let racks = ["a", "b", "a", "c", "a", "b", "d", "a", "b", "c", "", ""];
        let places: Vec<_> = (0..).zip(racks).map(|(node, rack)| place(node, rack, 0)).collect();
        let groups = extended_groups(&places, 3, 1);
        assert!(groups.len() >= 2, "{groups:?}");
        for group in &groups {
            for (number, one) in group.iter().enumerate() {
                assert!(!group[..number].iter().any(|other| other.shares_domain(one)), "{group:?}");
            }
        }
        let two: Vec<_> = (0..6).map(|n| place(n, ["x", "y"][usize::from(n % 2)], 0)).collect();
        assert!(extended_groups(&two, 3, 0).is_empty(), "three splits, two racks");
    }

    /// Dead nodes took the places of living ones in groups, and too many were lost then.
    #[test]
    fn a_degraded_range_has_all_domains_that_live() {
        let degraded = |racks: &[&str], dead: &[u16], coding| {
            let places: Vec<_> = (0..).zip(racks).map(|(n, rack)| place(n, rack, 0)).collect();
            place_degraded_range(&places, &dead.iter().copied().collect(), coding)
        };
        assert_eq!(degraded(&["a", "a", "b", "c"], &[0, 3], (3, 1)), Some(vec![1, 2, 3]));
        let six_died = degraded(&[""; 8], &[0, 1, 2, 3, 5, 6], (3, 1));
        assert_eq!(six_died, Some(vec![4, 7, 0]));
        assert_eq!(degraded(&["a", "b", "c"], &[1, 2], (3, 1)), None, "too many are lost");
        assert_eq!(degraded(&["a", "a", "b"], &[1], (3, 1)), None, "two domains");
        let mut full = [place(0, "", 10), place(1, "", 0), place(2, "", 0)];
        assert_eq!(place_degraded_range(&full, &[2].into(), (3, 1)), None, "one has no room");
        full[0].used = 9;
        assert_eq!(place_degraded_range(&full, &[2].into(), (3, 1)), Some(vec![1, 0, 2]));
    }

    #[test]
    fn ranges_go_to_the_least_loaded_of_the_emptiest_group() {
        let mut places: Vec<_> = (0..8).map(|node| place(node, "", 0)).collect();
        let mut used = [0; 8];
        for _ in 0..26 {
            let Some(range) = place_range(&places, 3, 1) else { break };
            for node in range {
                used[usize::from(node)] += 1;
                places[usize::from(node)].used += 1;
            }
        }
        assert_eq!(used.iter().sum::<u32>(), 78, "two slabs are left in each group: {used:?}");
        assert!(used.iter().all(|used| *used >= 9), "{used:?}");
        assert_eq!(place_range(&places, 3, 1), None, "no group has three nodes with room");
    }

    #[test]
    fn a_lost_slab_goes_to_its_own_group_first_and_never_to_a_domain_that_has_one() {
        let places: Vec<_> = (0..8).map(|node| place(node, "", u32::from(node < 4) * 5)).collect();
        assert_eq!(place_slab(&places, &[0, 2], 3, 1), Some(1), "of its group, though more loaded");
        let mut full = places.clone();
        full[1].used = 10;
        full[3].used = 10;
        assert_eq!(place_slab(&full, &[0, 2], 3, 1), Some(4));
        let racks: Vec<_> =
            (0..4).map(|n| place(n, ["a", "b", "c", "a"][usize::from(n)], 0)).collect();
        assert_eq!(place_slab(&racks, &[0, 1], 3, 0), Some(2));
        assert_eq!(place_slab(&racks, &[1, 2], 3, 0), Some(0));
        assert_eq!(place_slab(&racks[..3], &[0, 1, 2], 3, 0), None);
    }
}
