//! What the nodes of a pool agree on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use selkie_channels::MailboxDescriptor;
use selkie_fabric::{Domain, PeerId, RegionKey};
use serde::{Deserialize, Serialize};

use super::room::MAX_RANGES;
use crate::coding::Coding;
use crate::coding_sets::{self, Place};
use crate::config::PoolConfig;
use crate::descriptor::MemoryNodeDescriptor;
use crate::domain::FailureDomain;
use crate::error::PoolError;
use crate::layout::SlabGeometry;
use crate::migration::{Migration, Moving, Stay};
use crate::rebuild::Rebuild;
use crate::reclaim::Reclaim;
use crate::regeneration::Regeneration;

/// Of what is written by this software; others are refused.
pub(crate) const FORMAT: u32 = 6;

/// Lost pages that are remembered by address; more are only lost.
pub const MAX_LOST_PAGES: usize = 20_000;

/// A pool: its shape, its memory, who is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState {
    /// Version of this format.
    pub format: u32,
    /// What people call it.
    pub name: String,
    /// Random: tells pools of one name apart.
    pub id: u64,
    /// The fabric its nodes meet on, by name; empty within one process.
    pub fabric: String,
    /// When silence means death.
    pub timing: Timing,
    /// Bytes of a GCL.
    pub gcl_bytes: usize,
    /// Bytes of a range.
    pub range_bytes: u64,
    /// Compute nodes that may register; indexes are below it.
    pub max_compute_nodes: usize,
    /// How pages are kept.
    pub coding: Coding,
    /// Bytes that each memory node keeps for the log of each compute node; 0: none.
    pub log_bytes: u64,
    /// The ranges of a coded pool, by address. Without redundancy ranges follow from the memory
    /// nodes, and this is empty.
    pub ranges: Vec<RangePlace>,
    /// Header tables of a coded pool that are to be made anew elsewhere, one rebuild after the
    /// other.
    pub rebuilds: Vec<Rebuild>,
    /// How many rebuilds there have been.
    pub rebuilds_begun: u64,
    /// The slab of a coded pool that is being made again.
    pub regeneration: Option<Regeneration>,
    /// The slab of a coded pool that is on its way to another memory node.
    pub migration: Option<Migration>,
    /// The memory nodes, by index; `None` for one that has not joined yet.
    pub memory_nodes: Vec<Option<MemoryMember>>,
    /// The compute nodes in the pool, by index.
    pub compute_nodes: BTreeMap<u16, Member>,
    /// How nodes are reached and let in, by [`PeerId::to_raw`], on a fabric where they have to be
    /// told of each other. A compute node has one from before it is in the pool until it is out of
    /// it.
    pub cards: BTreeMap<u16, Card>,
    /// Where the search for a free compute index begins; see [`crate::Pool::next_index`].
    pub next_index: u16,
    /// How many nodes have had each compute index.
    pub incarnations: BTreeMap<u16, u32>,
    /// The mailboxes at which memory nodes' processors serve calls, by index.
    pub directories: BTreeMap<usize, Mailbox>,
    /// Global addresses of GCLs nobody leases. Bounded by the number of GCLs in the pool; a set, so
    /// that a GCL donated twice is not adopted twice.
    pub donated: BTreeSet<u64>,
    /// Compute nodes that died and whose recovery is under way, by index.
    pub lost: BTreeMap<u16, Lost>,
    /// Compute nodes that died, were recovered from, and are still named in the latch words of
    /// pages that were lost with them; their indexes are not used again.
    pub dead: BTreeSet<u16>,
    /// Compute nodes that died while the recovery from one of them was under way, each with its
    /// incarnation, as long as pages of one of them may be made again: what one had granted another
    /// is in its log only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallen: Vec<BTreeMap<u16, u32>>,
    /// Global addresses of GCLs that were lost with the node that held them, lowest first, at most
    /// [`MAX_LOST_PAGES`].
    pub lost_pages: BTreeSet<u64>,
    /// The moment that logs mark now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moment: Option<Moment>,
    /// How many moments there have been.
    #[serde(default)]
    pub moments: u64,
    /// What users of the pool leave for each other, by name.
    pub labels: BTreeMap<String, String>,
}

impl PoolState {
    /// A pool of this shape, without memory and without nodes. How much memory each node lends is
    /// its own affair; the configuration says only how many there are to be.
    #[must_use]
    pub fn new(identity: Identity<'_>, timing: Timing, config: &PoolConfig) -> Self {
        Self {
            format: FORMAT,
            name: identity.name.to_owned(),
            id: identity.id,
            fabric: identity.fabric.to_owned(),
            timing,
            gcl_bytes: config.gcl_bytes,
            range_bytes: config.range_bytes,
            max_compute_nodes: config.max_compute_nodes,
            coding: config.coding,
            log_bytes: config.log_bytes,
            ranges: Vec::new(),
            rebuilds: Vec::new(),
            rebuilds_begun: 0,
            regeneration: None,
            migration: None,
            memory_nodes: vec![None; config.memory_nodes],
            compute_nodes: BTreeMap::new(),
            cards: BTreeMap::new(),
            next_index: 0,
            incarnations: BTreeMap::new(),
            directories: BTreeMap::new(),
            donated: BTreeSet::new(),
            lost: BTreeMap::new(),
            dead: BTreeSet::new(),
            fallen: Vec::new(),
            lost_pages: BTreeSet::new(),
            moment: None,
            moments: 0,
            labels: BTreeMap::new(),
        }
    }
}

impl PoolState {
    /// Pages were lost with a compute node, whose words name it for good.
    pub(crate) fn lose_pages(&mut self, node: u16, pages: &[u64]) {
        match self.lost.get_mut(&node) {
            _ if pages.is_empty() => {}
            // Until its recovery is over those who want the pages wait for that.
            Some(lost) => lost.has_lost_pages = true,
            None => {
                self.dead.insert(node);
            }
        }
        let room = MAX_LOST_PAGES.saturating_sub(self.lost_pages.len());
        self.lost_pages.extend(pages.iter().take(room));
    }
}

impl PoolState {
    /// A compute node has died, with those whose recovery is under way.
    pub(crate) fn fall(&mut self, node: u16) {
        let incarnation = self.incarnations.get(&node).copied().unwrap_or_default();
        let is_alone = !self.lost.keys().any(|other| *other != node);
        if is_alone || self.fallen.is_empty() {
            self.fallen.push(BTreeMap::new());
        }
        if let Some(last) = self.fallen.last_mut() {
            last.insert(node, incarnation);
        }
    }

    /// Those with whom a compute node has died, itself included, each with its incarnation.
    #[must_use]
    pub fn fallen_with(&self, node: u16) -> BTreeMap<u16, u32> {
        let own = self.fallen.iter().filter(|group| group.contains_key(&node));
        own.flatten().map(|(node, incarnation)| (*node, *incarnation)).collect()
    }

    /// Whether a node that died may have in its log what others that died with it had from it.
    pub(crate) fn has_fallen(&self, node: u16) -> bool {
        self.fallen.iter().any(|group| group.contains_key(&node))
    }

    /// Whether somebody may have to redo what a compute node of that incarnation has changed.
    #[must_use]
    pub fn may_be_redone(&self, node: u16, incarnation: u32) -> bool {
        let is_last = self.incarnations.get(&node) == Some(&incarnation);
        let is_dead = self.lost.contains_key(&node) || self.dead.contains(&node);
        let fell = self.fallen.iter().any(|group| group.get(&node) == Some(&incarnation));
        is_last && is_dead || fell
    }

    /// A recovery is over, or what is to be known of a rebuild's lines is known.
    pub(crate) fn forget_fallen(&mut self) {
        if self.lost.is_empty() {
            let mut fallen = std::mem::take(&mut self.fallen);
            let may_be_needed = |node: &u16| self.dead.contains(node) || self.is_doubtful(*node);
            fallen.retain(|group| group.keys().any(may_be_needed));
            self.fallen = fallen;
        }
    }
}

/// Nodes that an extended group has beyond those that a range lies on (Hydra §5.2: l).
pub(crate) const SPARE_NODES: usize = 2;

impl PoolState {
    /// Where things lie in the memory nodes' regions.
    #[must_use]
    pub fn geometry(&self) -> SlabGeometry {
        SlabGeometry::coded(self.gcl_bytes, self.range_bytes, self.coding)
            .with_logs(self.log_bytes, self.max_compute_nodes)
    }

    /// A memory node that has joined, dead or not.
    #[must_use]
    pub fn member(&self, memory_node: u16) -> Option<&MemoryMember> {
        self.memory_nodes.get(usize::from(memory_node))?.as_ref()
    }

    /// How a memory node is used, dead or not.
    #[must_use]
    pub fn memory_node(&self, node: u16) -> Option<&MemoryNodeDescriptor> {
        self.member(node).map(|member| &member.descriptor)
    }

    /// What a compute node that reads only may do at memory nodes: see [`SlabGeometry::reading`].
    #[must_use]
    pub fn reading(&self) -> Domain {
        let lent = self.memory_nodes.iter().flatten().map(|member| member.descriptor.ranges);
        self.geometry().reading(lent.max().unwrap_or(0))
    }

    /// The living memory nodes as places for slabs; those that are to leave, or to be rid of slabs,
    /// have no room.
    pub(crate) fn places(&self) -> Vec<Place> {
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
                let lent = member.descriptor.ranges.saturating_sub(withdrawn);
                let slabs = if has_room { lent } else { used };
                Place { node, domain: member.domain.clone(), used, slabs }
            })
            .collect()
    }

    /// The places of those that are to stay.
    pub(crate) fn staying_places(&self) -> Vec<Place> {
        let mut places = self.places();
        places.retain(|place| self.stays(place.node));
        places
    }

    /// All slabs in use, or about to be, or that have been a moment ago.
    pub fn slabs_in_use(&self) -> impl Iterator<Item = &Slab> {
        let begun = self.regeneration.iter().map(|task| &task.to);
        let moving = self.migration.iter().flat_map(|task| [&task.from, &task.to]);
        self.ranges.iter().flat_map(|range| &range.slabs).chain(begun).chain(moving)
    }

    /// The lowest slab of a node that is lent, and in no range.
    pub(crate) fn free_slab(&self, node: u16) -> Slab {
        let own = self.slabs_in_use().filter(|slab| slab.node == node);
        let mut taken: BTreeSet<u32> = own.map(|slab| slab.slab).collect();
        taken.extend(self.withdrawn(node));
        let slab = (0..).find(|slab| !taken.contains(slab)).unwrap_or(u32::MAX);
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
}

impl PoolState {
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

    /// Refuses a memory node that has just been entered if, whoever takes the places that are left,
    /// there will not be a failure domain for each split.
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

    /// Says what a range would need, where there is no room for one.
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
}

/// Where a range of a coded pool lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangePlace {
    /// The slab at each position.
    pub slabs: Vec<Slab>,
    /// How many positions on the headers lie that belong to each position.
    pub homes: Vec<u8>,
    /// A slab that has a second place, as it is moved.
    pub moving: Option<Moving>,
}

impl RangePlace {
    /// The position that many positions on from another.
    fn position_on(&self, position: usize, on: usize) -> Option<usize> {
        (position + on).checked_rem(self.slabs.len())
    }

    /// The slab that many positions on from a position.
    #[must_use]
    pub fn slab_on(&self, position: usize, on: usize) -> Option<Slab> {
        self.slabs.get(self.position_on(position, on)?).copied()
    }

    /// The slab in which the headers lie that belong to a position, and how many positions on that
    /// is: which of its header tables they are in.
    #[must_use]
    pub fn home_of(&self, position: usize) -> Option<(Slab, usize)> {
        let on = usize::from(*self.homes.get(position)?);
        Some((self.slab_on(position, on)?, on))
    }

    /// Whether headers lie in the slab at a position.
    pub(crate) fn has_headers(&self, position: usize) -> bool {
        let lie_at = |(own, on): (usize, &u8)| self.position_on(own, usize::from(*on));
        self.homes.iter().enumerate().any(|home| lie_at(home) == Some(position))
    }
}

/// A piece of a memory node's memory. There are many in the state of a pool: written as a pair each
/// takes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u16, u32)", into = "(u16, u32)")]
pub struct Slab {
    /// The memory node, by index.
    pub node: u16,
    /// Its so-manieth slab.
    pub slab: u32,
}

impl From<(u16, u32)> for Slab {
    fn from((node, slab): (u16, u32)) -> Self {
        Self { node, slab }
    }
}

impl From<Slab> for (u16, u32) {
    fn from(Slab { node, slab }: Slab) -> Self {
        (node, slab)
    }
}

/// Which pool it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// What people call it.
    pub name: &'a str,
    /// Random: tells pools of one name apart.
    pub id: u64,
    /// The fabric its nodes meet on, by name; empty within one process.
    pub fabric: &'a str,
}

/// When a node's silence means its death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// A node that has not shown for so long that it lives is dead.
    pub lease: Duration,
    /// How often a node shows that it lives.
    pub heartbeat: Duration,
}

impl Timing {
    /// A memory node whose looks at the plane are further apart was away from it.
    #[must_use]
    pub fn away_after(self) -> Duration {
        self.heartbeat * 3 / 2
    }

    /// For how long a memory node that was away counts its looks before it says that it has acted
    /// upon what it has found. Whoever relies on its being away has to look oftener.
    #[must_use]
    pub fn acts_after(self) -> Duration {
        self.lease / 4
    }

    /// For how long at most what was changed after a moment stays where it is
    /// ([`crate::Pool::begin_moment`]).
    #[must_use]
    pub fn moment_bound(self) -> Duration {
        self.lease / 4
    }

    /// Checks that a node which lives is not taken for dead because one or two of its beats are
    /// late.
    ///
    /// # Errors
    /// [`PoolError::Config`].
    pub fn validate(self) -> Result<(), PoolError> {
        let refused = |key, value: Duration, allowed| {
            Err(PoolError::Config { key, value: format!("{value:?}"), allowed })
        };
        let Self { lease, heartbeat } = self;
        if !(MIN_HEARTBEAT..=MAX_LEASE).contains(&heartbeat) {
            return refused("heartbeat", heartbeat, format!("{MIN_HEARTBEAT:?} to {MAX_LEASE:?}"));
        }
        let least = heartbeat * BEATS_A_LEASE;
        if !(least..=MAX_LEASE).contains(&lease) {
            let allowed = format!("{least:?} ({BEATS_A_LEASE} heartbeats) to {MAX_LEASE:?}");
            return refused("lease", lease, allowed);
        }
        Ok(())
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(2), heartbeat: Duration::from_millis(250) }
    }
}

const MIN_HEARTBEAT: Duration = Duration::from_millis(10);
const MAX_LEASE: Duration = Duration::from_secs(600);
/// The least a lease is longer than a heartbeat.
const BEATS_A_LEASE: u32 = 4;

/// A memory node of the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryMember {
    /// Random: stands for the process that runs it.
    pub host: u64,
    /// How it is used.
    #[serde(with = "memory_node")]
    pub descriptor: MemoryNodeDescriptor,
    /// Its memory is lost.
    pub dead: bool,
    /// What fails as one with it.
    pub domain: FailureDomain,
    /// Whether it is to stay.
    pub stay: Stay,
    /// What it takes back of what it lends.
    #[serde(default, skip_serializing_if = "Reclaim::is_nothing")]
    pub reclaim: Reclaim,
}

/// What the processes of a pool have to know of a node that runs in another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The process that runs it.
    pub host: u64,
    /// How it is reached and let in: see [`selkie_fabric::Endpoint::card`].
    pub card: String,
    /// What is in memory it may read, and no more.
    pub reads_only: bool,
}

/// A compute node that is in the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Random: stands for the process that runs the node. Nodes of one process learn of changes
    /// together.
    pub host: u64,
    /// The node is the one that had the index as the so-manieth, from 1.
    pub incarnation: u32,
    /// Where it receives messages.
    pub mailboxes: Vec<Mailbox>,
    /// How often it has made sure that it still is in the pool after it could not show that it
    /// lives.
    #[serde(default)]
    pub renewals: u64,
}

/// A moment that all compute nodes mark in their logs: see [`crate::Pool::begin_moment`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// From 1 on.
    pub number: u64,
    /// The compute node that wants it.
    pub by: u16,
}

/// How far the recovery from the death of a compute node has got (DESIGN §8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// None of its verbs executes any more (F1).
    pub fenced: bool,
    /// Compute nodes that have taken note of its death in all their lines (F4).
    pub acknowledged: BTreeSet<u16>,
    /// The compute node that takes it out of the latch words (F5).
    pub sweeper: Option<u16>,
    /// Pages are known to be lost with it.
    pub has_lost_pages: bool,
    /// It was never in, or could only read: no page was its alone.
    pub held_nothing: bool,
}

/// A [`MailboxDescriptor`] as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mailbox {
    peer: u16,
    region: u32,
    ring_bytes: u64,
    peers: u32,
}

impl From<&MailboxDescriptor> for Mailbox {
    fn from(mailbox: &MailboxDescriptor) -> Self {
        let MailboxDescriptor { peer, region, ring_bytes, peers } = mailbox;
        let (ring_bytes, peers) = (*ring_bytes, *peers);
        Self { peer: peer.to_raw(), region: region.to_raw(), ring_bytes, peers }
    }
}

impl From<&Mailbox> for MailboxDescriptor {
    fn from(mailbox: &Mailbox) -> Self {
        let Mailbox { peer, region, ring_bytes, peers } = *mailbox;
        let (peer, region) = (PeerId::from_raw(peer), RegionKey::from_raw(region));
        Self { peer, region, ring_bytes, peers }
    }
}

/// A memory node as numbers: (peer, region, ranges).
mod memory_node {
    use serde::{Deserializer, Serializer};

    use super::*;

    pub(super) fn serialize<S: Serializer>(
        node: &MemoryNodeDescriptor,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (node.peer.to_raw(), node.region.to_raw(), node.ranges).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<MemoryNodeDescriptor, D::Error> {
        let (peer, region, ranges) = <(u16, u32, u32)>::deserialize(deserializer)?;
        let (peer, region) = (PeerId::from_raw(peer), RegionKey::from_raw(region));
        Ok(MemoryNodeDescriptor { peer, region, ranges })
    }
}

/// Peers as numbers.
pub(super) mod peer {
    use serde::{Deserializer, Serializer};

    use super::*;

    pub(in super::super) fn serialize<S: Serializer>(
        peer: &PeerId,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        peer.to_raw().serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PeerId, D::Error> {
        u16::deserialize(deserializer).map(PeerId::from_raw)
    }
}
