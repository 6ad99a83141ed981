//! Peers of which it is not known whether they are dead, or unreachable from this node alone. What
//! follows from a doubt: `unreachable.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::PeerId;

/// Peers that this node does not reach, without the memory nodes of a coded pool: those are
/// suspects of a rebuild ([`crate::coding::quiesced`]).
#[derive(Default)]
pub(crate) struct Doubts(Mutex<DoubtedPeers>);

#[derive(Default)]
struct DoubtedPeers {
    /// By when they are missed by others, or this node ends; unset until the fabric was asked.
    in_doubt: BTreeMap<PeerId, Option<Duration>>,
    /// Memory nodes that are dead for all.
    dead: BTreeSet<PeerId>,
}

impl Doubts {
    /// A verb to this peer ended as if the peer were dead.
    pub(super) fn add(&self, peer: PeerId) {
        let mut peers = self.0.lock();
        if !peers.dead.contains(&peer) {
            peers.in_doubt.entry(peer).or_default();
        }
    }

    /// Whether a memory node is dead for all.
    pub(crate) fn has_dead_memory(&self) -> bool {
        !self.0.lock().dead.is_empty()
    }

    /// Whether this memory node is dead for all.
    pub(crate) fn is_memory_dead(&self, peer: PeerId) -> bool {
        self.0.lock().dead.contains(&peer)
    }

    /// A peer that is in doubt.
    pub(crate) fn first(&self) -> Option<PeerId> {
        self.0.lock().in_doubt.keys().next().copied()
    }

    /// Whether it is unknown of a memory node whether it lives: changes of its pages may be in this
    /// node's log alone.
    pub(crate) fn has_memory(&self) -> bool {
        self.0.lock().in_doubt.keys().any(|peer| peer.is_memory())
    }

    /// All peers in doubt.
    pub(super) fn all(&self) -> BTreeMap<PeerId, Option<Duration>> {
        self.0.lock().in_doubt.clone()
    }

    /// The peer stays in doubt, and is to be missed by others `until` then.
    pub(super) fn keep(&self, peer: PeerId, until: Option<Duration>) {
        self.0.lock().in_doubt.insert(peer, until);
    }

    /// The peer is dead for all, or has left.
    pub(super) fn end(&self, peer: PeerId) {
        let mut peers = self.0.lock();
        peers.in_doubt.remove(&peer);
        if peer.is_memory() {
            peers.dead.insert(peer);
        }
    }

    /// Forgets the peers in doubt.
    #[cfg(feature = "planted")]
    pub(super) fn clear(&self) {
        self.0.lock().in_doubt.clear();
    }
}
