//! Memory nodes that live, as the control plane hears of them, and that compute nodes do not reach.
//!
//! A compute node that does not reach a memory node of a coded pool cannot write pages back. If
//! others reach it, the compute node goes. If no compute node reaches it, all of them would, and
//! nothing would be gained by that: then the memory node goes, as long as the coding makes up for
//! it.
//!
//! ```text
//! link ended, memory node not missed --> note_unreached --> half a lease later:
//!     all compute nodes say so, and the coding can spare all that is not reached --> dead
//!     else                                                              --> this node gives up
//! ```
//! The half lease is for the others, whose links end at about the same time; and for the links of
//! one compute node that is cut off from several memory nodes, none of which is to go for that.
//!
//! A log in memory has as many copies as the coding spares memory nodes, and one more. Nothing says
//! where those of a dead compute node are, and no one makes good what they lose. As long as it is
//! recovered from, a memory node is not spared after another has died: the compute nodes that do
//! not reach it go, and one that comes recovers from all of them.

use std::collections::BTreeMap;

use selkie_fabric::PeerId;

use crate::compute_index::ComputeIndex;
use crate::document::PoolState;

impl PoolState {
    /// A compute node says that it does not reach a memory node that is not missed.
    pub(crate) fn note_unreached(&mut self, memory: u16, by: ComputeIndex) {
        let current: BTreeMap<u16, u32> =
            self.compute_nodes.iter().map(|(index, member)| (*index, member.incarnation)).collect();
        for who in self.unreached.values_mut() {
            who.retain(|index, incarnation| current.get(index) == Some(incarnation));
        }
        self.unreached.retain(|_, who| !who.is_empty());
        let lives = self.member(memory).is_some_and(|member| !member.dead);
        if let Some(incarnation) = current.get(&by.get()).filter(|_| lives) {
            self.unreached.entry(memory).or_default().insert(by.get(), *incarnation);
        }
    }

    /// Whether a compute node that is in the pool says that it does not reach the memory node.
    #[must_use]
    pub fn is_unreached(&self, memory: u16) -> bool {
        self.compute_nodes.keys().any(|index| self.does_not_reach(*index, memory))
    }

    /// Memory nodes that live, and that a compute node other than `own` says it does not reach. One
    /// that has given up says nothing any more.
    pub(crate) fn unreached_by_others(&self, own: ComputeIndex) -> Vec<usize> {
        let lives = |memory: u16| self.member(memory).is_some_and(|member| !member.dead);
        let by_others = self.unreached.iter().filter(|(memory, who)| {
            let mut others = who.keys().filter(|index| **index != own.get());
            lives(**memory) && others.any(|index| self.does_not_reach(*index, **memory))
        });
        by_others.map(|(memory, _)| usize::from(*memory)).collect()
    }

    /// Whether memory that is dead may have had a copy of the log that a recovery needs.
    fn may_miss_a_log(&self) -> bool {
        let is_needed = self.log_bytes > 0 && self.lost.values().any(|lost| lost.has_log);
        is_needed && self.memory_nodes.iter().flatten().any(|member| member.dead)
    }

    fn does_not_reach(&self, index: u16, memory: u16) -> bool {
        let said = self.unreached.get(&memory).and_then(|who| who.get(&index));
        let member = self.compute_nodes.get(&index);
        said.is_some() && said == member.map(|member| &member.incarnation)
    }

    /// Declares a memory node dead that no compute node reaches, if the coding can spare it and all
    /// others that one does not reach. Whether it is dead.
    pub(crate) fn condemn_unreached(&mut self, memory: u16) -> bool {
        let Some(member) = self.member(memory) else { return false };
        if member.dead {
            return true;
        }
        let nodes = 0..self.memory_nodes.len() as u16;
        let lives = |node: &u16| self.member(*node).is_some_and(|member| !member.dead);
        let unreached = nodes.filter(|node| lives(node) && self.is_unreached(*node)).count();
        // A process that only reads cannot say it, and does not hold the others up.
        let writes = |index: &u16| {
            let card = self.cards.get(&PeerId::compute(*index).to_raw());
            card.is_none_or(|card| !card.reads_only)
        };
        let mut writers = self.compute_nodes.keys().filter(|index| writes(index)).peekable();
        let condemned = writers.peek().is_some()
            && writers.all(|index| self.does_not_reach(*index, memory))
            && self.may_spare(unreached)
            && !self.may_miss_a_log();
        if condemned {
            self.declare_dead(PeerId::memory(memory));
        }
        condemned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::Coding;
    use crate::config::PoolConfig;
    use crate::document::{
        Card, Identity, Lost, Member, MemoryMember, MemoryNodeDescriptor, Reclaim, Residency,
        Timing,
    };
    use crate::failure_domain::FailureDomain;

    fn member(incarnation: u32) -> Member {
        let mailboxes = Vec::new();
        Member { host: 1, incarnation, mailboxes, renewals: 0, has_log: false, begins: false }
    }

    fn state(coding: &str) -> PoolState {
        let config = PoolConfig {
            memory_nodes: 5,
            bytes_per_node: 1 << 20,
            gcl_bytes: 512,
            range_bytes: 256 << 10,
            max_compute_nodes: 4,
            coding: coding.parse::<Coding>().unwrap(),
            log_bytes: 0,
        };
        let identity = Identity { name: "pool", id: 1, fabric: "" };
        let mut state = PoolState::new(identity, Timing::default(), &config);
        let memory = |index: u16| MemoryMember {
            host: 100 + u64::from(index),
            descriptor: MemoryNodeDescriptor {
                peer: PeerId::memory(index),
                region: selkie_fabric::RegionKey::from_raw(1),
                ranges: 1,
            },
            dead: false,
            domain: FailureDomain::default(),
            stay: Residency::Stays,
            reclaim: Reclaim::default(),
        };
        state.memory_nodes = (0..5).map(|index| Some(memory(index))).collect();
        state.compute_nodes = BTreeMap::from([(0, member(1)), (1, member(4))]);
        state
    }

    fn index(index: u16) -> ComputeIndex {
        ComputeIndex::new(index)
    }

    #[test]
    fn a_memory_node_goes_when_all_that_are_in_the_pool_say_that_they_do_not_reach_it() {
        let mut state = state("2+1");
        state.note_unreached(1, index(0));
        assert!(state.is_unreached(1) && !state.is_unreached(2));
        assert!(!state.condemn_unreached(1), "the other one reaches it");
        state.note_unreached(1, index(1));
        // Another process of that index has said nothing.
        state.compute_nodes.insert(1, member(5));
        assert!(!state.condemn_unreached(1));
        state.note_unreached(1, index(1));
        assert!(state.condemn_unreached(1) && state.member(1).unwrap().dead);
        assert!(state.condemn_unreached(1), "it is dead");
        assert_eq!(state.unreached, BTreeMap::new());
        state.note_unreached(1, index(0));
        assert_eq!(state.unreached, BTreeMap::new(), "nothing is noted of the dead");
    }

    #[test]
    fn a_compute_node_that_has_given_up_says_nothing_any_more() {
        let mut state = state("2+1");
        state.note_unreached(1, index(0));
        assert_eq!(state.unreached_by_others(index(1)), [1]);
        assert!(state.unreached_by_others(index(0)).is_empty());
        state.declare_dead(PeerId::memory(1));
        assert!(state.unreached_by_others(index(1)).is_empty());
        state.note_unreached(2, index(0));
        state.compute_nodes.remove(&0);
        assert!(state.unreached_by_others(index(1)).is_empty(), "the others ask no more");
    }

    #[test]
    fn no_more_go_than_the_coding_spares_and_none_of_a_plain_pool() {
        let mut two = state("2+1");
        for memory in [1, 2] {
            two.note_unreached(memory, index(0));
            two.note_unreached(memory, index(1));
        }
        assert!(!two.condemn_unreached(1) && !two.condemn_unreached(2));
        let mut plain = state("plain");
        plain.note_unreached(1, index(0));
        plain.note_unreached(1, index(1));
        assert!(!plain.condemn_unreached(1));
    }

    #[test]
    fn none_goes_that_may_have_the_only_copy_of_a_log_that_a_recovery_needs() {
        let mut state = state("2+1");
        state.log_bytes = 1 << 20;
        state.declare_dead(PeerId::memory(3));
        state.lost.insert(1, Lost { has_log: true, ..Lost::default() });
        state.compute_nodes.remove(&1);
        assert!(state.may_spare(1), "memory node 3 had no pages");
        state.note_unreached(1, index(0));
        assert!(!state.condemn_unreached(1));
        state.lost.clear();
        assert!(state.condemn_unreached(1));
    }

    #[test]
    fn readers_neither_say_it_nor_are_they_waited_for() {
        let mut state = state("2+1");
        let card = Card { host: 1, card: String::new(), reads_only: true };
        state.cards.insert(PeerId::compute(1).to_raw(), card);
        assert!(!state.condemn_unreached(1));
        state.note_unreached(1, index(0));
        assert!(state.condemn_unreached(1));
    }
}
