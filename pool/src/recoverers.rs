//! Compute nodes that only recover, in the document (decision 95).
//!
//! ```text
//! indexes:  0 .. limit                          limit .. 58
//!           nodes that serve callers            nodes that only recover
//! ```
//! A node that died keeps its index until others have recovered from it. If all indexes are kept by
//! dead nodes, none can come in to do that. Words, epochs and snapshots have room for 58 nodes
//! whatever the limit is, so a node may come in behind it. It has no log and no lines, so no other
//! node ever sends it a message.

use std::collections::BTreeSet;
use std::ops::Range;

use selkie_fabric::PeerId;

use crate::document::PoolState;
use crate::error::PoolError;
use crate::layout::MAX_COMPUTE_NODES;

impl PoolState {
    /// Compute nodes that died and are still to be recovered from.
    #[must_use]
    pub fn unrecovered(&self) -> BTreeSet<u16> {
        let doubtful = self.rebuilds.iter().flat_map(|rebuild| &rebuild.doubtful);
        self.lost.keys().chain(doubtful).copied().collect()
    }

    /// Whether a compute node only recovers: it has no log, and changes no page.
    #[must_use]
    pub fn only_recovers(&self, node: u16) -> bool {
        usize::from(node) >= self.max_compute_nodes
    }

    /// Whether a node that only recovers may come in: no index is left for another, and nodes that
    /// died keep some.
    #[must_use]
    pub fn takes_recoverer(&self) -> bool {
        let is_used = |node: u16| {
            self.compute_nodes.contains_key(&node)
                || self.cards.contains_key(&PeerId::compute(node).to_raw())
        };
        let mut indexes = 0..self.spare_indexes().start;
        let is_full = indexes.clone().all(|node| is_used(node) || self.is_kept_by_dead(node));
        is_full && indexes.any(|node| self.is_kept_by_dead(node))
    }

    /// The indexes of nodes that only recover.
    pub(crate) fn spare_indexes(&self) -> Range<u16> {
        let most = MAX_COMPUTE_NODES as u16;
        u16::try_from(self.max_compute_nodes).map_or(most, |limit| limit.min(most))..most
    }

    /// The error of a pool whose indexes are all in use.
    pub(crate) fn full(&self) -> PoolError {
        let unrecovered = self.unrecovered();
        let kept = (0..self.spare_indexes().start).filter(|node| self.is_kept_by_dead(*node));
        let (lost, dead): (Vec<u16>, Vec<u16>) = kept.partition(|node| unrecovered.contains(node));
        PoolError::Full { limit: self.max_compute_nodes, lost: lost.len(), dead: dead.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Identity, Timing};
    use crate::document::{Card, Lost, Member, Rebuild};
    use crate::{Coding, PoolConfig};

    fn state(max_compute_nodes: usize) -> PoolState {
        let identity = Identity { name: "test", id: 1, fabric: "" };
        let config = PoolConfig {
            memory_nodes: 1,
            bytes_per_node: 1 << 20,
            gcl_bytes: 512,
            range_bytes: 256 << 10,
            max_compute_nodes,
            coding: Coding::PLAIN,
            log_bytes: 0,
        };
        PoolState::new(identity, Timing::default(), &config)
    }

    #[test]
    fn a_recoverer_may_come_in_when_the_dead_keep_all_that_is_not_in_use() {
        let mut state = state(2);
        assert!(!state.takes_recoverer(), "indexes are free");
        state.lost.insert(0, Lost::default());
        assert!(!state.takes_recoverer(), "one is free");
        let card = Card { host: 1, card: String::new(), reads_only: false };
        let key = PeerId::compute(1).to_raw();
        state.cards.insert(key, card);
        assert!(state.takes_recoverer(), "the other is in use");
        state.cards.remove(&key);
        state.dead.insert(1);
        assert!(state.takes_recoverer());
        assert!(matches!(state.full(), PoolError::Full { limit: 2, lost: 1, dead: 1 }));
        state.lost.clear();
        assert!(!state.takes_recoverer(), "one is free");
        state.rebuilds.push(Rebuild { doubtful: [0].into(), ..Rebuild::default() });
        assert!(state.takes_recoverer(), "words may come to name it");
        assert_eq!(state.unrecovered(), [0].into());
        assert!(!state.only_recovers(1) && state.only_recovers(2));
        assert_eq!((state.spare_indexes(), self::state(58).spare_indexes()), (2..58, 58..58));
    }

    #[test]
    fn a_full_pool_says_who_has_its_places_and_what_helps() {
        let said = |lost, dead| PoolError::Full { limit: 3, lost, dead }.to_string();
        assert!(
            said(0, 0)
                .starts_with("the pool's 3 places for compute nodes are taken: end a process")
        );
        assert!(
            said(2, 0).contains("2 of them by nodes that died") && !said(2, 0).contains("forgive")
        );
        assert!(
            said(0, 1).contains("1 of them by dead nodes whose") && said(0, 1).contains("forgive")
        );
    }

    /// Words that a rebuild cannot tell are taken for those of nodes in doubt.
    #[test]
    fn nodes_without_lines_are_not_in_doubt_and_journals_are_kept_of_those_that_recover() {
        let mut state = state(2);
        state.rebuilds.push(Rebuild::default());
        for (node, begins) in [(0, true), (1, false), (5, false)] {
            let member = Member {
                host: 1,
                incarnation: 1,
                mailboxes: Vec::new(),
                renewals: 0,
                has_log: false,
                begins,
            };
            state.compute_nodes.insert(node, member);
            state.incarnations.insert(node, 1);
        }
        [0, 1, 5].into_iter().for_each(|node| state.declare_dead(PeerId::compute(node)));
        assert_eq!(state.rebuilds[0].doubtful, [1].into());
        let held_nothing = state.lost.iter().map(|(node, lost)| (*node, lost.held_nothing));
        assert_eq!(held_nothing.collect::<Vec<_>>(), [(0, true), (1, false), (5, true)]);
        assert_eq!(state.crashed_with(5), [(1, 1), (5, 1)].into());
    }
}
