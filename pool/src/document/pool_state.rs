//! The document itself, and what can be asked of it.

use std::collections::{BTreeMap, BTreeSet};

use selkie_fabric::Domain;
use serde::{Deserialize, Serialize};

use super::compute_nodes::{Card, Lost, Mailbox, Member};
use super::limits::FORMAT;
use super::memory_nodes::{MemoryMember, MemoryNodeDescriptor, Reclaim, Residency};
use super::ranges::{RangePlace, Slab};
use super::tasks::{Migration, Rebuild, Regeneration, SnapshotBarrier};
use super::timing::Timing;
use crate::coding::Coding;
use crate::config::PoolConfig;
use crate::layout::SlabGeometry;
use crate::token::TokenVerifier;

/// A pool: its shape, its memory, who is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState {
    /// Version of this format.
    pub format: u32,
    /// Its name.
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
    /// Header tables of a coded pool that are to be rebuilt elsewhere, one rebuild after the other.
    pub rebuilds: Vec<Rebuild>,
    /// How many rebuilds there have been.
    pub rebuilds_begun: u64,
    /// The slab of a coded pool that is being regenerated.
    pub regeneration: Option<Regeneration>,
    /// The slab of a coded pool that is on its way to another memory node.
    pub migration: Option<Migration>,
    /// Tells who has the token of the pool, which relays ask for on connections that are not
    /// secured; `None` lets all in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenVerifier>,
    /// The memory nodes, by index; `None` for one that has not joined yet.
    pub memory_nodes: Vec<Option<MemoryMember>>,
    /// The compute nodes in the pool, by index.
    pub compute_nodes: BTreeMap<u16, Member>,
    /// How nodes are reached and let in, by `PeerId::to_raw`, on a fabric where they have to be
    /// told of each other. A compute node has one from before it is in the pool until it is out of
    /// it.
    pub cards: BTreeMap<u16, Card>,
    /// Where the search for a free compute index begins; see [`crate::Pool::next_index`].
    pub next_index: u16,
    /// How many nodes have had each compute index.
    pub incarnations: BTreeMap<u16, u32>,
    /// The mailboxes at which memory nodes' processors serve calls, by index.
    pub directories: BTreeMap<usize, Mailbox>,
    /// Compute nodes that died and whose recovery is under way, by index.
    pub lost: BTreeMap<u16, Lost>,
    /// Compute nodes that died, were recovered from, and are still named in the latch words of
    /// pages that were lost with them; their indexes are not used again.
    pub dead: BTreeSet<u16>,
    /// Compute nodes that died while the recovery from one of them was under way, each with its
    /// incarnation, as long as pages of one of them may be redone: the log of the grantor alone has
    /// what one of them had granted another.
    #[serde(rename = "fallen", default, skip_serializing_if = "Vec::is_empty")]
    pub crash_groups: Vec<BTreeMap<u16, u32>>,
    /// Global addresses of GCLs that were lost with the node that held them, and that its log may
    /// bring back, lowest first, at most `MAX_LOST_PAGES`.
    pub lost_pages: BTreeSet<u64>,
    /// Global addresses of GCLs that are lost for good, and whose words name no node, at most
    /// `MAX_LOST_PAGES`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub abandoned_pages: BTreeSet<u64>,
    /// Ranges of a coded pool with pages that are lost for good and are not among
    /// `abandoned_pages`, as there were too many: only their words say so.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub abandoned_ranges: BTreeSet<usize>,
    /// Memory nodes that live, and that compute nodes do not reach: those, by index, with their
    /// incarnations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unreached: BTreeMap<u16, BTreeMap<u16, u32>>,
    /// The compute node that looks for lines that nothing leads to, alone in the pool: no other
    /// comes in while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repairer: Option<u16>,
    /// The snapshot barrier that logs mark now.
    #[serde(rename = "moment", default, skip_serializing_if = "Option::is_none")]
    pub barrier: Option<SnapshotBarrier>,
    /// How many snapshot barriers there have been.
    #[serde(rename = "moments", default)]
    pub barriers_begun: u64,
    /// What users of the pool leave for each other, by name.
    pub labels: BTreeMap<String, String>,
}

/// Which pool it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// Its name.
    pub name: &'a str,
    /// Random: tells pools of one name apart.
    pub id: u64,
    /// The fabric its nodes meet on, by name; empty within one process.
    pub fabric: &'a str,
}

impl PoolState {
    /// A pool of this shape, without memory and without nodes. Each memory node chooses its own
    /// capacity; the configuration says only how many there are to be.
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
            token: None,
            memory_nodes: vec![None; config.memory_nodes],
            compute_nodes: BTreeMap::new(),
            cards: BTreeMap::new(),
            next_index: 0,
            incarnations: BTreeMap::new(),
            directories: BTreeMap::new(),
            lost: BTreeMap::new(),
            dead: BTreeSet::new(),
            crash_groups: Vec::new(),
            lost_pages: BTreeSet::new(),
            abandoned_pages: BTreeSet::new(),
            abandoned_ranges: BTreeSet::new(),
            unreached: BTreeMap::new(),
            repairer: None,
            barrier: None,
            barriers_begun: 0,
            labels: BTreeMap::new(),
        }
    }

    /// Where things lie in the memory nodes' regions.
    #[must_use]
    pub fn geometry(&self) -> SlabGeometry {
        SlabGeometry::coded(self.gcl_bytes, self.range_bytes, self.coding)
            .with_logs(self.log_bytes, self.max_compute_nodes)
    }

    /// What a compute node that reads only may do at memory nodes: see [`SlabGeometry::reading`].
    #[must_use]
    pub fn reading(&self) -> Domain {
        let ranges = self.memory_nodes.iter().flatten().map(|member| member.descriptor.ranges);
        self.geometry().reading(ranges.max().unwrap_or(0))
    }
}

/// Memory nodes.
impl PoolState {
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

    /// Whether a memory node is in the pool and lives.
    #[must_use]
    pub fn lives(&self, memory_node: u16) -> bool {
        self.member(memory_node).is_some_and(|member| !member.dead)
    }

    /// Whether a memory node lives and is to stay.
    #[must_use]
    pub fn stays(&self, memory_node: u16) -> bool {
        self.stay_of(memory_node) == Some(Residency::Stays) && self.lives(memory_node)
    }

    pub(crate) fn stay_of(&self, memory_node: u16) -> Option<Residency> {
        self.member(memory_node).map(|member| member.stay)
    }

    /// Whether a memory node lives and is to leave.
    pub(crate) fn is_leaving(&self, memory_node: u16) -> bool {
        self.lives(memory_node) && !self.stays(memory_node)
    }

    /// The living memory nodes that are to leave.
    pub fn leaving(&self) -> impl Iterator<Item = u16> {
        let members = self.memory_nodes.iter().flatten();
        let leaving = members.filter(|member| member.stay == Residency::Leaving && !member.dead);
        leaving.map(|member| member.descriptor.peer.index())
    }

    /// The slabs that a memory node takes back.
    #[must_use]
    pub fn reclaim_of(&self, memory_node: u16) -> Option<&Reclaim> {
        self.member(memory_node).map(|member| &member.reclaim)
    }

    /// The withdrawn slabs of a memory node.
    pub fn withdrawn(&self, memory_node: u16) -> impl Iterator<Item = u32> {
        let reclaim = self.reclaim_of(memory_node).into_iter();
        reclaim.flat_map(|reclaim| reclaim.withdrawn.iter())
    }

    /// Whether a slab is to move elsewhere as its memory node wants it back.
    #[must_use]
    pub fn is_evicted(&self, slab: &Slab) -> bool {
        let member = self.member(slab.node).filter(|member| !member.dead);
        member.is_some_and(|member| member.reclaim.evicting.contains(slab.slab))
    }
}

/// Slabs.
impl PoolState {
    /// Slabs of ranges that lie on a memory node.
    #[must_use]
    pub fn slabs_on(&self, memory_node: u16) -> usize {
        let all = self.ranges.iter().flat_map(|range| &range.slabs);
        all.filter(|slab| slab.node == memory_node).count()
    }

    /// All slabs in use, or about to be, or in use until the migration under way switched.
    pub fn slabs_in_use(&self) -> impl Iterator<Item = &Slab> {
        let begun = self.regeneration.iter().map(|task| &task.to);
        let moving = self.migration.iter().flat_map(|task| [&task.from, &task.to]);
        self.ranges.iter().flat_map(|range| &range.slabs).chain(begun).chain(moving)
    }

    /// The slabs in use of each memory node that has any.
    pub(crate) fn slabs_by_node(&self) -> BTreeMap<u16, BTreeSet<u32>> {
        let mut slabs: BTreeMap<u16, BTreeSet<u32>> = BTreeMap::new();
        for slab in self.slabs_in_use() {
            slabs.entry(slab.node).or_default().insert(slab.slab);
        }
        slabs
    }

    /// Whether headers lie in the slab at a position of a range.
    pub(crate) fn has_headers(&self, range: usize, position: usize) -> bool {
        self.ranges.get(range).is_some_and(|place| place.has_headers(position))
    }
}

/// Compute nodes.
impl PoolState {
    /// Whether a compute node is in the pool no more, for good: it has left, or died and was
    /// recovered from. One that this state does not know yet is not.
    #[must_use]
    pub fn is_gone(&self, node: u16, incarnation: u32) -> bool {
        let last = self.incarnations.get(&node).copied().unwrap_or(0);
        let is_present = self.compute_nodes.contains_key(&node) || self.lost.contains_key(&node);
        incarnation < last || incarnation == last && !is_present
    }

    /// Whether a compute node of this incarnation is in the pool and keeps a log, or is about to
    /// open one.
    #[must_use]
    pub fn keeps_log(&self, node: u16, incarnation: u32) -> bool {
        let member = self.compute_nodes.get(&node);
        let is_it = |member: &&Member| member.incarnation == incarnation;
        member.filter(is_it).is_some_and(|member| member.has_log || member.begins)
    }

    /// The compute node that repairs the pool, if one does.
    #[must_use]
    pub fn repaired_by(&self) -> Option<u16> {
        self.repairer.filter(|node| self.compute_nodes.contains_key(node))
    }

    pub(crate) fn members(&self) -> BTreeSet<u16> {
        self.compute_nodes.keys().copied().collect()
    }

    /// Compute nodes that died and whose verbs may still execute.
    pub(crate) fn unfenced(&self) -> impl Iterator<Item = u16> {
        self.lost.iter().filter(|(_, lost)| !lost.fenced).map(|(node, _)| *node)
    }
}
