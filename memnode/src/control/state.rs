//! What the nodes of a pool agree on.

use std::collections::{BTreeMap, BTreeSet};

use selkie_channels::MailboxDescriptor;
use selkie_fabric::{PeerId, RegionKey};
use serde::{Deserialize, Serialize};

use crate::config::PoolConfig;
use crate::node::MemoryNodeDescriptor;

/// Of what is written by this software; others are refused.
pub(crate) const FORMAT: u32 = 1;

/// Lost pages that are remembered by address; more are only lost.
pub const MAX_LOST_PAGES: usize = 100_000;

/// A pool: its shape, its memory, who is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolState {
    /// Version of this format.
    pub format: u32,
    /// Random: tells pools of one name apart.
    pub id: u64,
    /// Bytes of a GCL.
    pub gcl_bytes: usize,
    /// Bytes of a range.
    pub range_bytes: u64,
    /// Compute nodes that may register; indexes are below it.
    pub max_compute_nodes: usize,
    /// The memory nodes, by index; `None` for one that has not joined yet.
    #[serde(with = "memory_nodes")]
    pub memory_nodes: Vec<Option<MemoryNodeDescriptor>>,
    /// The compute nodes in the pool, by index.
    pub compute_nodes: BTreeMap<u16, Member>,
    /// Compute indexes below this were given out to processes that asked for any; see [`crate::Pool::next_index`].
    pub next_index: u16,
    /// The mailboxes at which memory nodes' processors serve calls, by index.
    pub directories: BTreeMap<usize, Mailbox>,
    /// Global addresses of GCLs nobody leases. Bounded by the number of GCLs in the pool; a set, so that a
    /// GCL donated twice is not adopted twice.
    pub donated: BTreeSet<u64>,
    /// Compute nodes that died and whose recovery is under way, by index.
    pub lost: BTreeMap<u16, Lost>,
    /// Compute nodes that died and were recovered from; their indexes are not used again.
    pub dead: BTreeSet<u16>,
    /// Global addresses of GCLs that were lost with the node that held them, lowest first, at most
    /// [`MAX_LOST_PAGES`].
    pub lost_pages: BTreeSet<u64>,
    /// What users of the pool leave for each other, by name.
    pub labels: BTreeMap<String, String>,
}

impl PoolState {
    /// A pool of this shape, without memory and without nodes. How much memory each node lends is its own
    /// affair; the configuration says only how many there are to be.
    pub(crate) fn new(id: u64, config: &PoolConfig) -> Self {
        Self {
            format: FORMAT,
            id,
            gcl_bytes: config.gcl_bytes,
            range_bytes: config.range_bytes,
            max_compute_nodes: config.max_compute_nodes,
            memory_nodes: vec![None; config.memory_nodes],
            compute_nodes: BTreeMap::new(),
            next_index: 0,
            directories: BTreeMap::new(),
            donated: BTreeSet::new(),
            lost: BTreeMap::new(),
            dead: BTreeSet::new(),
            lost_pages: BTreeSet::new(),
            labels: BTreeMap::new(),
        }
    }
}

/// A compute node that is in the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Random: stands for the process that runs the node. Nodes of one process learn of changes together.
    pub host: u64,
    /// Where it receives messages.
    pub mailboxes: Vec<Mailbox>,
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

/// Memory nodes as numbers: (peer, region, ranges).
mod memory_nodes {
    use serde::{Deserializer, Serializer};

    use super::*;

    type Numbers = Option<(u16, u32, u32)>;

    pub(super) fn serialize<S: Serializer>(
        nodes: &[Option<MemoryNodeDescriptor>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let numbers =
            |node: &MemoryNodeDescriptor| (node.peer.to_raw(), node.region.to_raw(), node.ranges);
        let nodes: Vec<Numbers> = nodes.iter().map(|node| node.as_ref().map(numbers)).collect();
        nodes.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Option<MemoryNodeDescriptor>>, D::Error> {
        let node = |(peer, region, ranges)| {
            let (peer, region) = (PeerId::from_raw(peer), RegionKey::from_raw(region));
            MemoryNodeDescriptor { peer, region, ranges }
        };
        let nodes = Vec::<Numbers>::deserialize(deserializer)?;
        Ok(nodes.into_iter().map(|numbers| numbers.map(node)).collect())
    }
}
