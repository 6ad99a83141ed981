//! What can go wrong with a region, a connection or a verb.

use crate::access::Access;
use crate::distrust::Distrust;
use crate::id::{PeerId, RegionKey, RemoteAddr};

/// Why a fabric operation failed. Nothing of a failed verb has been executed, except with
/// [`FabricError::PeerDead`] and [`FabricError::Stopped`], which may hide a verb that did execute.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The peer died, or this node itself was declared dead and may execute nothing more.
    #[error("peer {peer} is dead")]
    PeerDead {
        /// The dead node.
        peer: PeerId,
    },
    /// No node of that name has joined the fabric.
    #[error("peer {peer} is not part of this fabric")]
    UnknownPeer {
        /// The name asked for.
        peer: PeerId,
    },
    /// A living node of that name is already part of the fabric.
    #[error("peer {peer} has already joined this fabric")]
    AlreadyJoined {
        /// The name taken.
        peer: PeerId,
    },
    /// The peer never registered such a region.
    #[error("peer {peer} has no {region}")]
    UnknownRegion {
        /// The peer that was asked.
        peer: PeerId,
        /// The key it does not know.
        region: RegionKey,
    },
    /// The access ends behind the region's last byte.
    #[error("access of {bytes} bytes at {at} is outside the region's {region_bytes} bytes")]
    OutOfBounds {
        /// First byte of the access.
        at: RemoteAddr,
        /// Length of the access.
        bytes: u64,
        /// Length of the region.
        region_bytes: u64,
    },
    /// The offset is not a multiple of 8.
    #[error("access at {at} is not aligned to 8 bytes")]
    Misaligned {
        /// The address.
        at: RemoteAddr,
    },
    /// The peer does not allow this node to access these bytes so.
    #[error("peer {peer} allows no {what} at {region}+{offset:#x}")]
    Forbidden {
        /// The peer.
        peer: PeerId,
        /// The region of the access.
        region: RegionKey,
        /// The first byte of the access that is not allowed.
        offset: u64,
        /// What kind of access.
        what: Access,
    },
    /// A region cannot have that length.
    #[error("a region of {bytes} bytes was asked for; allowed are 1 to {limit}")]
    RegionBytes {
        /// The length asked for.
        bytes: u64,
        /// The greatest length allowed.
        limit: u64,
    },
    /// The node has registered as many regions as it may.
    #[error("peer {peer} already has {limit} regions, the most allowed")]
    TooManyRegions {
        /// The node.
        peer: PeerId,
        /// The bound.
        limit: u32,
    },
    /// The operating system gave no memory for a region.
    #[error("no memory for a region of {bytes} bytes")]
    OutOfMemory {
        /// The length asked for.
        bytes: u64,
    },
    /// Files of shared memory cannot be made, opened or understood.
    #[error("shared memory {path}: {what}")]
    Segment {
        /// The file or directory.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// A node that was declared dead is in the middle of a verb, as its process was stopped there.
    #[error("peer {peer} is dead, but process {process} may still finish a verb it was stopped in")]
    StillExecuting {
        /// The node.
        peer: PeerId,
        /// Its process id.
        process: u64,
    },
    /// A chain is longer than the backend sends. Nothing of it was executed.
    #[error(
        "a chain of {verbs} verbs and {bytes} bytes of payload; allowed are {most_verbs} verbs and \
         {most_bytes} bytes"
    )]
    ChainTooLong {
        /// Verbs of the chain.
        verbs: u64,
        /// Bytes that its reads and writes move together.
        bytes: u64,
        /// The most verbs allowed.
        most_verbs: u64,
        /// The most bytes allowed.
        most_bytes: u64,
    },
    /// The peer is there but does not accept the connection.
    #[error("peer {peer} refused the connection: {why}")]
    Refused {
        /// The peer.
        peer: PeerId,
        /// What it says.
        why: Refusal,
    },
    /// There is no secured connection to the peer.
    #[error("no secured connection to peer {peer}: {why}")]
    Distrusted {
        /// The peer.
        peer: PeerId,
        /// What is wrong, and on which side.
        why: Distrust,
    },
    /// The operating system refused what a node needs to be on the network.
    #[error("network of {peer}: {what}")]
    Network {
        /// The node.
        peer: PeerId,
        /// What could not be done, and why.
        what: String,
    },
    /// The environment stopped before the operation was done. If it stopped while the chain was
    /// executing, the chain was dropped with it, and the one that comes back is empty.
    #[error("the environment stopped while an operation to {peer} was outstanding")]
    Stopped {
        /// The peer the operation went to.
        peer: PeerId,
    },
}

/// Why a peer does not accept a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The two sides do not speak the same version of the protocol.
    #[error("version {theirs} of the protocol meets version {ours}")]
    Version {
        /// The version of this side.
        ours: u32,
        /// The version of the other side.
        theirs: u32,
    },
    /// The other side belongs to another pool.
    #[error("it belongs to another pool")]
    Pool,
    /// Another node answers at the address.
    #[error("another node answers at its address")]
    Name,
    /// This incarnation of the node was revoked there.
    #[error("this incarnation of the node was revoked")]
    Revoked,
    /// It admits invited guests only, and this one showed no key or another.
    #[error("it asks for a key, which this node did not have")]
    Key,
    /// It has as many connections as it takes.
    #[error("it has as many connections as it takes")]
    Full,
}

impl FabricError {
    /// Whether the same call may succeed later without anything else being changed.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::Refused { why: Refusal::Full, .. })
    }
}
