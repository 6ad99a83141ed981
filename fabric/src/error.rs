//! Errors of regions, connections and verbs.
//!
//! Errors are copied to every chain of a queue pair that ends, and compared by tests. Errors of the
//! system can be neither copied nor compared, so their texts are kept.

use crate::access::Access;
use crate::id::{PeerId, RegionKey, RemoteAddr};
use crate::tls_error::TlsError;

/// Why a fabric operation failed. A failed verb has no effect, except with
/// [`FabricError::PeerDead`] and [`FabricError::Stopped`]: then the verb may have executed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The peer died, or this node itself was declared dead.
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
    /// The access ends behind the last byte of the region.
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
    /// The peer does not allow this kind of access to these bytes.
    #[error("peer {peer} allows no {what} at {region}+{offset:#x}")]
    Forbidden {
        /// The peer.
        peer: PeerId,
        /// The region of the access.
        region: RegionKey,
        /// The first byte of the access that is not allowed.
        offset: u64,
        /// The kind of access.
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
    /// A file system has no room for a region.
    #[error("{path}: {} MiB are needed, and {} MiB are free", bytes.div_ceil(1 << 20), free >> 20)]
    NoRoom {
        /// The file.
        path: String,
        /// The length asked for.
        bytes: u64,
        /// What is free there.
        free: u64,
    },
    /// The caller broke off what it had begun.
    #[error("broken off")]
    Interrupted,
    /// Files of shared memory cannot be made, opened or understood.
    #[error("shared memory {path}: {what}")]
    Segment {
        /// The file or directory.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// A node that was declared dead is in the middle of a verb, because its process was stopped
    /// there.
    #[error("peer {peer} is dead, but process {process} may still finish a verb it was stopped in")]
    StillExecuting {
        /// The node.
        peer: PeerId,
        /// Its process id.
        process: u64,
    },
    /// A chain is longer than the backend sends. No verb of it was executed.
    #[error(
        "a chain of {verbs} verbs and {bytes} bytes of payload; allowed are {max_verbs} verbs and \
         {max_bytes} bytes"
    )]
    ChainTooLong {
        /// Verbs of the chain.
        verbs: u64,
        /// Bytes that its reads and writes move together.
        bytes: u64,
        /// The most verbs allowed.
        max_verbs: u64,
        /// The most bytes allowed.
        max_bytes: u64,
    },
    /// The peer does not accept the connection.
    #[error("peer {peer} refused the connection: {why}")]
    Refused {
        /// The peer.
        peer: PeerId,
        /// Its reason.
        why: Refusal,
    },
    /// There is no TLS connection to the peer.
    #[error("no secured connection to peer {peer}: {why}")]
    Tls {
        /// The peer.
        peer: PeerId,
        /// What is wrong, and on which side.
        why: TlsError,
    },
    /// The operating system refused a resource of the network.
    #[error("network of {peer}: {what}")]
    Network {
        /// The node.
        peer: PeerId,
        /// What could not be done, and why.
        what: String,
    },
    /// The RDMA device ended the queue pair.
    #[error("queue pair to {peer}: {why}")]
    Rdma {
        /// The peer.
        peer: PeerId,
        /// What the device says.
        why: RdmaFault,
    },
    /// The environment stopped before the operation was done. If it stopped while the chain was
    /// executing, the chain was dropped, and an empty one comes back.
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
    /// It admits invited guests only, and this node showed no key or a wrong one.
    #[error("it asks for a key, which this node did not have")]
    Key,
    /// The role in this node's certificate does not allow what the connection is for.
    #[error(
        "the role in this node's certificate does not allow it: `selkie cert show` says which role \
         that is, and `selkie cert node --role` makes another certificate"
    )]
    Role,
    /// It does not know the session of the connection any more.
    #[error("it does not know the session: its process is another, or it has closed the session")]
    Session,
    /// It has the maximum of connections.
    #[error("it has as many connections as it takes")]
    Full,
}

/// Why an RDMA device ends a queue pair: its error completion, or its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaFault {
    /// The target does not allow the access: the key was revoked, or is of other bytes.
    #[error("the target's device refuses the access: its key was revoked, or is of other memory")]
    RemoteAccess,
    /// The target's device does not understand the request.
    #[error("the target's device calls the request invalid")]
    RemoteRequest,
    /// The target's device could not carry the request out.
    #[error("the target's device failed to carry the request out")]
    RemoteOperation,
    /// This node's device refuses memory of this node.
    #[error("the device refuses the memory of a request")]
    Local,
    /// The response did not fit the request.
    #[error("the device received a response that does not fit")]
    Response,
    /// The queue pair failed without a request.
    #[error("the device reports that the queue pair failed")]
    QueuePair,
    /// The device failed.
    #[error("the device failed")]
    Device,
    /// The peer told of memory that is not where it said.
    #[error("the peer does not tell where the memory is")]
    Window,
    /// Another status of a completion.
    #[error("completion with status {0} of libibverbs")]
    Other(u32),
}

impl RdmaFault {
    /// The fault of a completion with this status of libibverbs. `None` if it says no more than
    /// that the peer does not answer, or that the queue pair has ended already.
    pub fn of_status(status: u32) -> Option<Self> {
        Some(match status {
            // Flushed; retries exceeded, also for want of a receive; the response timed out.
            5 | 12 | 13 | 20 => return None,
            1 | 2 | 3 | 4 | 6 | 8 => Self::Local,
            7 => Self::Response,
            9 | 15 => Self::RemoteRequest,
            10 => Self::RemoteAccess,
            11 | 16 => Self::RemoteOperation,
            19 => Self::Device,
            other => Self::Other(other),
        })
    }
}

impl FabricError {
    /// Whether the same call may succeed later without any change by the caller.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::OutOfMemory { .. }
                | Self::NoRoom { .. }
                | Self::Refused { why: Refusal::Full, .. }
        )
    }
}
