//! The traits every backend and every decorator implements.
//!
//! ```text
//! Fabric --join(id)--> Endpoint --register(bytes)--> LocalRegion   memory this node lends
//!                               --connect(peer)----> QueuePair     ordered way to a peer's memory
//! ```
//! The contract they share is on the crate's front page; `conformance` tests it.

use std::ops::Range;
use std::sync::Arc;

use crate::access::{Confined, Domain};
use crate::completion::Completion;
use crate::doorbell::Doorbell;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey};
use crate::verb::Chain;

/// A network: where nodes meet.
pub trait Fabric: Send + Sync {
    /// Makes the caller the node `id`. Does not block.
    ///
    /// # Errors
    /// `AlreadyJoined` if a living node of that name exists; a dead one may be replaced. `Segment`
    /// if the files of a backend that has some are in the way.
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError>;

    /// Declares `peer`, as it is now, dead, and returns once none of its verbs executes any more at
    /// the nodes within [`Reach`], whatever becomes of the peer. Its memory is not touched. The
    /// nodes of this process find it dead from then on: outstanding and later operations to it end
    /// with `PeerDead`. May block for some milliseconds. Fencing again changes nothing.
    ///
    /// A peer that this process does not know yet is no error. Where a backend cannot tell that it
    /// will never come, the first that comes by that name is the one that was meant.
    ///
    /// # Errors
    /// What keeps the fabric from being sure of it.
    fn fence(&self, peer: PeerId) -> Result<Reach, FabricError>;

    /// Lets the nodes of this process and `peer`, which another process runs, talk to each other.
    /// `card` is the peer's own [`Endpoint::card`]; what it may do here ends `within` a domain, if
    /// there is one. Nothing to do on fabrics without cards.
    ///
    /// # Errors
    /// `Network` if it is no card of this fabric.
    fn meet(
        &self,
        _peer: PeerId,
        _card: &str,
        _within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        Ok(())
    }

    /// Takes back [`Fabric::meet`], of a peer that has left, and removes what it has left behind.
    /// `false` if its process has still to end for that, or others are in the way: then it is to be
    /// tried again. Does not wait.
    fn forget(&self, _peer: PeerId) -> bool {
        true
    }
}

/// Where a fence holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a fence of this process alone leaves the others to be fenced"]
pub enum Reach {
    /// At all nodes of the fabric.
    Everywhere,
    /// At the nodes of this process; the others have to fence for themselves.
    ThisProcess,
}

/// One node's place on the fabric. The node is there for as long as its endpoint is kept; some
/// backends keep it longer.
pub trait Endpoint: Send + Sync {
    /// The node's name.
    fn id(&self) -> PeerId;

    /// What another process has to know to reach this node and to let it in: see [`Fabric::meet`].
    /// `None` on fabrics where nodes find each other. Whoever has it can pass for the node.
    fn card(&self) -> Option<String> {
        None
    }

    /// Lends `bytes` bytes, rounded up to a multiple of 4096, to every peer that learns the key.
    /// The memory is zero. Where it belongs to this process alone it is not committed before it is
    /// touched; memory that others map is there from the start, or refused.
    ///
    /// # Errors
    /// `RegionBytes`, `TooManyRegions`, `OutOfMemory`, and `PeerDead` once this node is dead.
    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError>;

    /// A new ordered queue pair to `peer`, which may be this node itself. Does not block.
    ///
    /// # Errors
    /// `UnknownPeer`, and `PeerDead` if the peer or this node is dead.
    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError>;

    /// As [`Endpoint::connect`], for verbs within a domain only: a chain that holds another ends
    /// with `Forbidden`, and nothing of it executes. This holds the poster to it; a peer that does
    /// not trust the poster has to check for itself, on backends where it executes what others
    /// post.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    fn connect_within(
        &self,
        peer: PeerId,
        domain: &Arc<Domain>,
    ) -> Result<Arc<dyn QueuePair>, FabricError> {
        Ok(Arc::new(Confined::new(self.connect(peer)?, Arc::clone(domain))))
    }
}

/// An ordered way to one peer's memory.
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

/// Memory this node lends, as the node itself uses it: without the network.
///
/// Local accesses race with remote verbs. Single words never tear; longer copies may.
///
/// # Panics
/// Every access panics if it is not inside the region, not aligned to 8 bytes, or not a multiple of
/// 8 bytes long: unlike a remote address, a local offset is the caller's own arithmetic.
pub trait LocalRegion: Send + Sync {
    /// What peers name the region by.
    fn key(&self) -> RegionKey;

    /// Length in bytes, a multiple of 4096.
    fn len(&self) -> usize;

    /// Whether the length is 0; it never is.
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

    /// Rung by every `WriteWithDoorbell` to this region, after its payload landed.
    fn doorbell(&self) -> &Doorbell;

    /// Whether the region takes the host's memory from the start, also what nobody has touched.
    fn is_committed(&self) -> bool {
        false
    }

    /// Makes bytes zero that nobody uses, and gives the memory of whole 4096-byte pages among them
    /// back to the host, where the backend can: `true` if it did, `false` if they are only zero.
    /// They stay in the region, and take memory again when they are touched; where a region [is
    /// committed](LocalRegion::is_committed) they are to be [restored](LocalRegion::restore) before
    /// that.
    fn discard(&self, bytes: Range<usize>) -> bool {
        zero(self, bytes);
        false
    }

    /// Takes memory for bytes that were discarded, in a region that is committed; they stay as they
    /// are.
    ///
    /// # Errors
    /// `OutOfMemory` if the host has none; nobody must touch the bytes then. `Segment`.
    fn restore(&self, _bytes: Range<usize>) -> Result<(), FabricError> {
        Ok(())
    }
}

/// Bytes that are made zero at once.
const ZEROED_AT_ONCE: usize = 4096;

/// Writes zeros.
pub(crate) fn zero<R: LocalRegion + ?Sized>(region: &R, bytes: Range<usize>) {
    let zeros = [0; ZEROED_AT_ONCE];
    for at in bytes.clone().step_by(ZEROED_AT_ONCE) {
        let bytes = ZEROED_AT_ONCE.min(bytes.end - at);
        region.write(at, zeros.get(..bytes).unwrap_or_default());
    }
}
