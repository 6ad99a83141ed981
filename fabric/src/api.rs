//! The traits every backend and every decorator implements.
//!
//! ```text
//! Fabric --join(id)--> Endpoint --register(bytes)--> LocalRegion  memory of this node
//!                               --connect(peer)----> QueuePair    ordered channel to its memory
//! ```
//! The front page of the crate has their contract; `conformance` tests it.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;

use crate::completion::Completion;
use crate::domain::Domain;
use crate::doorbell::Doorbell;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey};
use crate::verb::Chain;

/// A network of nodes.
pub trait Fabric: Send + Sync {
    /// Makes the caller the node `id`. Does not block.
    ///
    /// # Errors
    /// `AlreadyJoined` if a living node of that name exists; a dead one may be replaced. `Segment`
    /// if the files of a backend that has some are in the way.
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError>;

    /// Declares the present incarnation of `peer` dead. Returns once no verb of it executes any
    /// more at the nodes within the [`FenceScope`]. The memory of the peer is not touched. For the
    /// nodes of this process the peer is dead from then on: outstanding and later operations to it
    /// end with `PeerDead`. May block for some milliseconds. A second fence changes nothing.
    ///
    /// A peer that this process does not know yet is no error. Where a backend cannot tell that the
    /// peer will never join, the fence holds for the first incarnation that joins by that name.
    ///
    /// # Errors
    /// The reason why the fabric cannot be sure that the peer executes nothing more.
    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError>;

    /// Lets the nodes of this process and `peer`, a node of another process, access each other.
    /// `access_card` is the peer's own [`Endpoint::access_card`]. The peer may do here what the
    /// domain `within` allows, or everything without one. Does nothing on fabrics without cards.
    ///
    /// # Errors
    /// `Network` if the card is not one of this fabric.
    fn add_peer(
        &self,
        _peer: PeerId,
        _access_card: &str,
        _within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        Ok(())
    }

    /// Undoes [`Fabric::add_peer`] for a peer that has left, and removes its files. `false` if its
    /// process still runs or another process holds a lock: then call it again later. Does not wait.
    fn remove_peer(&self, _peer: PeerId) -> bool {
        true
    }
}

/// The nodes at which a fence holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a fence of this process alone leaves the others to be fenced"]
pub enum FenceScope {
    /// All nodes of the fabric.
    Everywhere,
    /// The nodes of this process. Other processes have to fence for themselves.
    ThisProcess,
}

/// One node on the fabric. The node lives as long as its endpoint is kept; some backends keep it
/// longer.
pub trait Endpoint: Send + Sync {
    /// The node's name.
    fn id(&self) -> PeerId;

    /// By what another process reaches this node and admits it; see [`Fabric::add_peer`]. `None` on
    /// fabrics where nodes find each other. It is no secret: a process that has it cannot pass for
    /// the node.
    fn access_card(&self) -> Option<String> {
        None
    }

    /// For how long a peer had given no sign of life when the latest queue pair to it ended, if it
    /// ended for that alone. Zero if it ended otherwise, or none has ended; on fabrics that know of
    /// deaths always. A queue pair that is made later changes nothing: the caller that finds
    /// the end first may make it, before others ask.
    fn silence_of(&self, _peer: PeerId) -> Duration {
        Duration::ZERO
    }

    /// Registers `bytes` bytes, rounded up to a multiple of 4096, for every peer that learns the
    /// key. The memory is zero. Memory of this process alone is committed when it is touched;
    /// memory that other processes map is committed here, or refused.
    ///
    /// # Errors
    /// `RegionBytes`, `TooManyRegions`, `OutOfMemory`, and `PeerDead` once this node is dead.
    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError>;

    /// As [`Endpoint::register`], for memory that is lent to others: all of it is populated, in
    /// huge pages where the system gives them, so that no first access pays for it. `told` is
    /// called before each piece, and at the end, with the bytes that are populated, and may break
    /// it off. Backends without memory of their own populate nothing and call nothing.
    ///
    /// # Errors
    /// As [`Endpoint::register`], `NoRoom`, and `Interrupted`.
    fn register_populated(
        &self,
        bytes: usize,
        _told: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.register(bytes)
    }

    /// A new ordered queue pair to `peer`, which may be this node itself. Does not block.
    ///
    /// # Errors
    /// `UnknownPeer`, and `PeerDead` if the peer or this node is dead.
    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError>;

    /// Connects for verbs within a domain only: a chain with a forbidden verb ends with
    /// `Forbidden`, and no verb of it executes. The poster checks itself here. A peer that does not
    /// trust the poster has to check, too, on backends where the peer executes the verbs.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    fn connect_within(
        &self,
        peer: PeerId,
        domain: &Arc<Domain>,
    ) -> Result<Arc<dyn QueuePair>, FabricError> {
        let inner = self.connect(peer)?;
        Ok(Arc::new(ConfinedQueuePair { inner, domain: Arc::clone(domain) }))
    }
}

/// An ordered channel to the memory of one peer.
pub trait QueuePair: Send + Sync {
    /// The node at the other end.
    fn peer(&self) -> PeerId;

    /// Posts a chain: one round trip. Never blocks. The chain executes whether or not the
    /// completion is kept.
    ///
    /// Chains are ordered by their posts: of two posts where one returned before the other was
    /// called, the first executes first. Posts that overlap in time have no order, and their verbs
    /// may interleave.
    ///
    /// # Errors
    /// Through the completion: `PeerDead`, `UnknownRegion`, `OutOfBounds`, `Misaligned`,
    /// `Forbidden`, `Stopped`. Later chains of the queue pair are not affected by an earlier
    /// chain's error.
    fn post(&self, chain: Chain) -> Completion;
}

/// A queue pair that posts no verb that a domain forbids, for backends whose verbs execute where
/// they are posted.
struct ConfinedQueuePair {
    inner: Arc<dyn QueuePair>,
    domain: Arc<Domain>,
}

impl QueuePair for ConfinedQueuePair {
    fn peer(&self) -> PeerId {
        self.inner.peer()
    }

    /// No verb of a chain with a forbidden verb executes.
    fn post(&self, chain: Chain) -> Completion {
        let peer = self.peer();
        let refused = chain.verbs.iter().find_map(|verb| self.domain.check(peer, verb).err());
        match refused {
            None => self.inner.post(chain),
            Some(error) => Completion::failed(chain, 0, error),
        }
    }
}

/// Registered memory of this node, as the node itself accesses it, without the network.
///
/// Local accesses race with remote verbs. Single words never tear; longer copies may.
///
/// # Panics
/// Every access panics if it is not inside the region, not aligned to 8 bytes, or not a multiple of
/// 8 bytes long: unlike a remote address, a local offset is the caller's own arithmetic.
pub trait LocalRegion: Send + Sync {
    /// The key by which peers name the region.
    fn key(&self) -> RegionKey;

    /// Length in bytes, a multiple of 4096.
    fn len(&self) -> usize;

    /// Whether the length is 0, which it never is.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at byte `offset`, with Acquire: it pairs with remote 8-byte writes and atomics.
    fn load(&self, offset: usize) -> u64;

    /// Sets the word at byte `offset`, with Release: it pairs with remote 8-byte reads and atomics.
    fn store(&self, offset: usize, value: u64);

    /// Copies from byte `offset` on.
    fn read(&self, offset: usize, into: &mut [u8]);

    /// Copies to byte `offset` on.
    fn write(&self, offset: usize, from: &[u8]);

    /// The doorbell that every `WriteWithDoorbell` to this region rings, after its payload is in
    /// place.
    fn doorbell(&self) -> &Doorbell;

    /// Whether all memory of the region is committed from the start.
    fn is_committed(&self) -> bool {
        false
    }

    /// Makes unused bytes zero, and gives the memory of the whole 4096-byte pages among them back
    /// to the host, where the backend can: `true` if it did, `false` if the bytes are only zero.
    /// The bytes stay in the region, and take memory again when they are touched. In a region that
    /// [is committed](LocalRegion::is_committed) the caller has to [restore](LocalRegion::restore)
    /// them first.
    fn discard(&self, bytes: Range<usize>) -> bool {
        zero(self, bytes);
        false
    }

    /// Commits memory for discarded bytes again, in a region that is committed. The bytes stay
    /// zero.
    ///
    /// # Errors
    /// `OutOfMemory` if the host has none; no caller may touch the bytes then. `Segment`.
    fn restore(&self, _bytes: Range<usize>) -> Result<(), FabricError> {
        Ok(())
    }
}

/// Bytes that one write makes zero.
const ZERO_BYTES: usize = 4096;

/// Writes zeros.
pub(crate) fn zero<R: LocalRegion + ?Sized>(region: &R, bytes: Range<usize>) {
    let zeros = [0; ZERO_BYTES];
    for at in bytes.clone().step_by(ZERO_BYTES) {
        let count = ZERO_BYTES.min(bytes.end - at);
        let (zeros, _) = zeros.split_at(count);
        region.write(at, zeros);
    }
}
