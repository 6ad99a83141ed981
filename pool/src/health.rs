//! The health of a pool: what of its data can be read, how many more memory nodes it can lose, and
//! how large it is.
//!
//! All of it follows from the document and from which memory nodes show that they live. Where
//! memory is shared, a node whose process is gone is lost, also before the pool has declared it
//! dead. Over a network a silent node may come back.

use std::collections::BTreeSet;

use selkie_fabric::PeerId;

use crate::document::{MemoryMember, PoolState, RangePlace, Residency, Slab};

/// What the state of a pool's memory comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Memory nodes that are to join have not done so yet.
    Incomplete,
    /// All that the pool was made for is there.
    Healthy,
    /// All data is there, or will be once nodes come back; there is less redundancy than there is
    /// to be.
    Degraded,
    /// Data is lost.
    Lost,
}

/// The health of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Memory nodes that have not joined yet.
    pub missing: usize,
    /// Memory nodes that live and have not left.
    pub living: usize,
    /// Memory nodes whose memory is gone, and with it slabs in use; of a plain pool any of them.
    pub gone: Vec<u16>,
    /// Memory nodes that are silent and may come back.
    pub silent: Vec<u16>,
    /// How many more memory nodes may be lost without loss of data.
    pub spare: usize,
    /// How many could be lost if all were there.
    pub spare_when_whole: usize,
    /// Slabs that are gone and can be made anew from the others.
    pub slabs_to_rebuild: usize,
    /// Whether one of them finds a place.
    pub has_place: bool,
    /// Failure domains that are missing for new pages with all their splits.
    pub domains_short: usize,
    /// Memory nodes of a coded pool keep all back that they have: no page finds a place.
    pub is_withheld: bool,
    /// Latch words and versions of pages are being made anew.
    pub is_rebuilding_headers: bool,
    /// Ranges that cannot be read any more.
    pub lost_ranges: usize,
    /// Ranges that cannot be read until silent nodes are back.
    pub waiting_ranges: usize,
    /// Compute nodes that died and are being recovered from.
    pub recovering: Vec<u16>,
    /// Compute nodes of the pool that show no sign of life, and have not been declared dead.
    pub absent: Vec<u16>,
    /// Compute nodes that live.
    pub working: usize,
    /// Pages that are lost until a log brings them back.
    pub pages_waiting: usize,
    /// Pages that are lost for good.
    pub pages_lost: usize,
}

impl Health {
    /// The verdict. The loss of pages that one compute node alone had changed is a loss, too.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let is_lost = self.lost_ranges > 0 || self.pages_lost > 0 || self.is_memory_gone();
        let is_less = self.spare < self.spare_when_whole
            || self.slabs_to_rebuild > 0
            || self.waiting_ranges > 0
            || self.pages_waiting > 0
            || self.is_rebuilding_headers;
        let lacks_nodes = self.domains_short > 0 || self.is_withheld || !self.silent.is_empty();
        let has_lost_nodes = !self.recovering.is_empty() || !self.absent.is_empty();
        if is_lost {
            Verdict::Lost
        } else if self.missing > 0 {
            Verdict::Incomplete
        } else if is_less || lacks_nodes || has_lost_nodes {
            Verdict::Degraded
        } else {
            Verdict::Healthy
        }
    }

    /// Whether there were memory nodes, and none of them can come back.
    #[must_use]
    pub fn is_memory_gone(&self) -> bool {
        self.living == 0 && self.silent.is_empty() && !self.gone.is_empty()
    }

    /// Whether memory nodes may come back, and none shows that it lives.
    #[must_use]
    pub fn is_memory_silent(&self) -> bool {
        self.living == 0 && !self.silent.is_empty()
    }
}

/// Where a memory node is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Lives,
    Silent,
    Gone,
}

impl PoolState {
    /// The health of the pool. `lives` says which of its nodes show that they live.
    #[must_use]
    pub fn health(&self, lives: impl Fn(PeerId) -> bool) -> Health {
        let presence = |node: u16| match self.member(node) {
            Some(member) if member.dead => Presence::Gone,
            _ if lives(PeerId::memory(node)) => Presence::Lives,
            _ if self.waits_for_silent() => Presence::Silent,
            _ => Presence::Gone,
        };
        let members: Vec<_> = self.memory_nodes.iter().flatten().filter(|m| stays(m)).collect();
        let with = |wanted: Presence| {
            let all = members.iter().map(|member| member.descriptor.peer.index());
            all.filter(move |node| presence(*node) == wanted)
        };
        let all_gone: BTreeSet<u16> = with(Presence::Gone).collect();
        let is_plain = self.coding.is_plain();
        let has_slabs = |node: &u16| is_plain || self.slabs_on(*node) > 0;
        let are_all_gone = with(Presence::Gone).count() == members.len();
        let (working, absent): (Vec<u16>, Vec<u16>) =
            self.compute_nodes.keys().copied().partition(|node| lives(PeerId::compute(*node)));
        let mut health = Health {
            missing: self.memory_nodes.iter().filter(|slot| slot.is_none()).count(),
            living: with(Presence::Lives).count(),
            gone: all_gone.iter().copied().filter(|node| are_all_gone || has_slabs(node)).collect(),
            silent: with(Presence::Silent).collect(),
            spare_when_whole: self.coding.parity(),
            is_rebuilding_headers: !self.rebuilds.is_empty(),
            recovering: self.lost.keys().copied().collect(),
            absent,
            working: working.len(),
            pages_waiting: self.lost_pages.len(),
            pages_lost: self.abandoned_pages.len(),
            ..Health::default()
        };
        if is_plain {
            (health.lost_ranges, health.waiting_ranges) = (health.gone.len(), health.silent.len());
            return health;
        }
        let staying = members.iter().copied().filter(|member| {
            let node = member.descriptor.peer.index();
            presence(node) == Presence::Lives && member.stay == Residency::Stays
        });
        health.domains_short = self.coding.splits().saturating_sub(Self::domains(staying));
        let withholds = |member: &&MemoryMember| !member.reclaim.withdrawn.is_empty();
        health.is_withheld = members.iter().any(withholds) && self.most_ranges() == 0;
        self.count_ranges(&mut health, presence);
        health.has_place = health.slabs_to_rebuild > 0 && self.has_place_without(&all_gone);
        health
    }

    /// Judges each range of a coded pool by the splits that are left of it.
    fn count_ranges(&self, health: &mut Health, presence: impl Fn(u16) -> Presence) {
        let data = self.coding.data();
        // New ranges lie on those that live.
        health.spare = self.coding.parity().min(health.living.saturating_sub(data));
        for RangePlace { slabs, .. } in &self.ranges {
            let count = |wanted| slabs.iter().filter(|slab| presence(slab.node) == wanted).count();
            let (living, silent) = (count(Presence::Lives), count(Presence::Silent));
            if living + silent < data {
                health.lost_ranges += 1;
                continue;
            }
            health.waiting_ranges += usize::from(living < data);
            health.slabs_to_rebuild += count(Presence::Gone);
            health.spare = health.spare.min(living.saturating_sub(data));
        }
        if health.lost_ranges > 0 {
            health.spare = 0;
        }
    }

    /// Whether there is a place for a slab of those that are gone.
    fn has_place_without(&self, gone: &BTreeSet<u16>) -> bool {
        let mut after = self.clone();
        for member in after.memory_nodes.iter_mut().flatten() {
            member.dead |= gone.contains(&member.descriptor.peer.index());
        }
        let is_lost = |_: &RangePlace, _, slab: &Slab| !after.lives(slab.node);
        after.regeneration.is_some() || after.first_to_place(is_lost).is_some()
    }

    /// Whether a memory node that shows nothing may come back with its memory.
    #[must_use]
    pub fn waits_for_silent(&self) -> bool {
        self.fabric == "tcp"
    }
}

/// Sizes.
impl PoolState {
    /// Bytes of a slab.
    #[must_use]
    pub fn slab_bytes(&self) -> u64 {
        self.geometry().slab_bytes()
    }

    /// Bytes that a memory node lends, all that is kept beside pages included.
    #[must_use]
    pub fn lent_bytes(&self, memory_node: u16) -> u64 {
        let slabs = self.memory_node(memory_node).map_or(0, |node| u64::from(node.ranges));
        self.geometry().region_bytes(slabs).unwrap_or(u64::MAX)
    }

    /// Bytes of pages that the pool can have, those that it has included.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        if !self.coding.is_plain() {
            return self.range_bytes.saturating_mul(self.most_ranges() as u64);
        }
        let living = self.memory_nodes.iter().flatten().filter(|member| !member.dead);
        living.map(|member| self.page_bytes_in(member.descriptor.ranges)).sum()
    }

    /// The end of the addresses that pages can have in the pool.
    #[must_use]
    pub fn address_space(&self) -> u64 {
        let living = self.memory_nodes.iter().flatten().filter(|member| !member.dead);
        let plain = || living.map(|member| u64::from(member.descriptor.ranges)).sum();
        let ranges = if self.coding.is_plain() { plain() } else { self.most_ranges() as u64 };
        self.range_bytes.saturating_mul(ranges)
    }

    /// Bytes of pages in the ranges of a coded pool, in use or about to be. Those of a plain pool
    /// are known to its memory nodes only.
    #[must_use]
    pub fn used_bytes(&self) -> Option<u64> {
        let ranges = self.ranges.len() as u64;
        (!self.coding.is_plain()).then(|| self.range_bytes.saturating_mul(ranges))
    }
}

fn stays(member: &MemoryMember) -> bool {
    member.stay != Residency::Left
}

#[cfg(test)]
mod tests {
    use selkie_fabric::{PeerId, RegionKey};

    use super::*;
    use crate::config::PoolConfig;
    use crate::document::{Identity, Lost, Member, MemoryNodeDescriptor, Reclaim, Timing};

    /// A pool with so many memory nodes of four slabs each, and so many ranges.
    fn pool(fabric: &str, coding: &str, nodes: u16, ranges: usize) -> PoolState {
        let config = PoolConfig {
            memory_nodes: usize::from(nodes),
            bytes_per_node: 1 << 20,
            gcl_bytes: 512,
            range_bytes: 1 << 18,
            max_compute_nodes: 4,
            coding: coding.parse().unwrap(),
            log_bytes: 0,
        };
        let identity = Identity { name: "test", id: 1, fabric };
        let mut state = PoolState::new(identity, Timing::default(), &config);
        let member = |node| {
            let (peer, region) = (PeerId::memory(node), RegionKey::from_raw(0));
            let descriptor = MemoryNodeDescriptor { peer, region, ranges: 4 };
            let (domain, stay, reclaim) =
                (Default::default(), Residency::Stays, Reclaim::default());
            Some(MemoryMember { host: 0, descriptor, dead: false, domain, stay, reclaim })
        };
        state.memory_nodes = (0..nodes).map(member).collect();
        (0..ranges).for_each(|_| assert!(state.add_range()));
        state
    }

    #[test]
    fn a_whole_pool_is_healthy_and_says_what_it_can_spare() {
        let health = pool("shm", "2+1", 3, 2).health(|_| true);
        assert_eq!((health.verdict(), health.spare, health.living), (Verdict::Healthy, 1, 3));
        let plain = pool("shm", "plain", 2, 0).health(|_| true);
        assert_eq!((plain.verdict(), plain.spare), (Verdict::Healthy, 0));
        let mut state = pool("shm", "2+1", 3, 0);
        state.memory_nodes[1] = None;
        let health = state.health(|_| true);
        assert_eq!((health.verdict(), health.missing), (Verdict::Incomplete, 1));
    }

    #[test]
    fn a_process_that_is_gone_degrades_a_coded_pool_and_ends_a_plain_one() {
        let without = |node: u16| move |other: PeerId| other != PeerId::memory(node);
        let state = pool("shm", "2+1", 3, 2);
        let health = state.health(without(1));
        assert_eq!((health.verdict(), &health.gone[..]), (Verdict::Degraded, &[1][..]));
        assert_eq!((health.spare, health.slabs_to_rebuild, health.has_place), (0, 2, false));
        assert_eq!((health.domains_short, health.living), (1, 2));
        let roomy = pool("shm", "2+1", 4, 2).health(without(0));
        assert_eq!((roomy.slabs_to_rebuild, roomy.has_place), (2, true));
        let health = state.health(|node| node == PeerId::memory(0));
        assert_eq!((health.verdict(), health.lost_ranges), (Verdict::Lost, 2));
        let plain = pool("shm", "plain", 2, 0).health(without(1));
        assert_eq!((plain.verdict(), plain.lost_ranges), (Verdict::Lost, 1));
        assert!(state.health(|_| false).is_memory_gone() && !health.is_memory_gone());
    }

    #[test]
    fn a_silent_node_of_a_network_is_waited_for() {
        let state = pool("tcp", "2+1", 3, 2);
        let health = state.health(|node| node != PeerId::memory(1));
        assert_eq!((health.verdict(), &health.silent[..]), (Verdict::Degraded, &[1][..]));
        assert_eq!((health.slabs_to_rebuild, health.waiting_ranges), (0, 0));
        let health = state.health(|node| node == PeerId::memory(1));
        assert_eq!((health.verdict(), health.waiting_ranges), (Verdict::Degraded, 2));
        let none = state.health(|_| false);
        assert!(!none.is_memory_gone() && none.verdict() == Verdict::Degraded);
        assert!(none.is_memory_silent() && !health.is_memory_silent());
    }

    #[test]
    fn what_was_rebuilt_is_healthy_again_and_lost_pages_are_a_loss() {
        let mut state = pool("shm", "2+1", 4, 0);
        if let Some(member) = &mut state.memory_nodes[3] {
            member.dead = true;
        }
        assert!(state.add_range());
        let health = state.health(|node| node != PeerId::memory(3));
        assert_eq!((health.verdict(), &health.gone[..]), (Verdict::Healthy, &[][..]));
        state.lost.insert(2, Lost::default());
        let health = state.health(|node| node != PeerId::memory(3));
        assert_eq!((health.verdict(), &health.recovering[..]), (Verdict::Degraded, &[2][..]));
        state.abandoned_pages.insert(4096);
        assert_eq!(state.health(|node| node != PeerId::memory(3)).verdict(), Verdict::Lost);
    }

    #[test]
    fn a_pool_with_a_compute_node_that_shows_nothing_is_not_healthy() {
        let mut state = pool("shm", "2+1", 3, 2);
        let member = |node| Member {
            host: u64::from(node),
            incarnation: 1,
            mailboxes: Vec::new(),
            renewals: 0,
            has_log: false,
            begins: false,
        };
        state.compute_nodes = (0..2).map(|node| (node, member(node))).collect();
        let whole = state.health(|_| true);
        assert_eq!((whole.verdict(), whole.working), (Verdict::Healthy, 2));
        let health = state.health(|node| node != PeerId::compute(1));
        assert_eq!((health.verdict(), &health.absent[..]), (Verdict::Degraded, &[1][..]));
        assert_eq!((health.working, health.spare), (1, 1), "no memory is missing");
    }

    #[test]
    fn a_pool_whose_memory_nodes_keep_all_back_is_not_healthy() {
        let mut state = pool("shm", "2+1", 3, 0);
        let withhold = |state: &mut PoolState, node: usize, slabs: std::ops::Range<u32>| {
            if let Some(member) = &mut state.memory_nodes[node] {
                member.reclaim.withdrawn = slabs.collect();
            }
        };
        withhold(&mut state, 0, 0..3);
        let health = state.health(|_| true);
        assert_eq!((health.verdict(), health.is_withheld), (Verdict::Healthy, false));
        withhold(&mut state, 0, 0..4);
        let health = state.health(|_| true);
        assert_eq!((health.verdict(), health.is_withheld), (Verdict::Degraded, true));
        assert_eq!(state.usable_bytes(), 0);
    }

    #[test]
    fn sizes_are_of_the_whole_pool() {
        let state = pool("shm", "2+1", 3, 2);
        assert_eq!((state.used_bytes(), state.usable_bytes()), (Some(2 << 18), 4 << 18));
        assert_eq!(state.lent_bytes(0), state.geometry().region_bytes(4).unwrap());
        assert!(state.lent_bytes(0) > 4 * state.slab_bytes());
        // What the rows of a table say comes to what the line above it says.
        assert_eq!((0..3).map(|_| state.page_bytes_in(2)).sum::<u64>(), (2 << 18) - 2);
        assert_eq!(state.page_bytes_in(3), 1 << 18);
        let plain = pool("shm", "plain", 2, 0);
        assert_eq!((plain.used_bytes(), plain.usable_bytes()), (None, 8 << 18));
    }
}
