//! Compute nodes in the document: those that are in the pool, and those that died.

use std::collections::BTreeSet;

use selkie_channels::MailboxDescriptor;
use selkie_fabric::{PeerId, RegionKey};
use serde::{Deserialize, Serialize};

/// What the processes of a pool have to know of a node that runs in another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The process that runs it.
    pub host: u64,
    /// How it is reached and let in, which is no secret: see
    /// [`selkie_fabric::Endpoint::access_card`].
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
    /// Which node of this index it is, counted from 1.
    pub incarnation: u32,
    /// Where it receives messages.
    pub mailboxes: Vec<Mailbox>,
    /// How often it has made sure that it still is in the pool after it could not show that it
    /// lives.
    #[serde(default)]
    pub renewals: u64,
    /// It records its changes in a log.
    #[serde(default)]
    pub has_log: bool,
    /// Its log is not open yet: until then it acquires no line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begins: bool,
}

/// How far the recovery from the death of a compute node has got (docs/design.md, Membership and
/// recovery).
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
    /// It was never in the pool, had not opened its log yet, could only read, or only recovered: no
    /// page was its alone.
    pub held_nothing: bool,
    /// It had a log, or a node that died with it had one: pages that cannot be redone now may be
    /// later. Not once a person has given them up.
    #[serde(default)]
    pub has_log: bool,
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
