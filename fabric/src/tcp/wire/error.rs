//! Errors in the bytes of a connection.

use super::limits::{MAX_CHAIN_VERBS, WINDOW_BYTES};
use crate::tls_error::TlsError;

/// Why the bytes of a connection were refused. The connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first bytes are not those of this protocol.
    #[error("begins with {found:#018x}, which is neither hello nor reply")]
    Magic {
        /// The first word.
        found: u64,
    },
    /// The hello did not come in time.
    #[error("no hello came in time")]
    NoHello,
    /// The connection is not secured like those of the pool.
    #[error("{why}")]
    Tls {
        /// What is wrong, and on which side.
        why: TlsError,
    },
    /// A field that has to be 0 is not, or the incarnation is 0.
    #[error("a reserved field or an incarnation has a value it cannot have")]
    Reserved,
    /// An unknown verdict in a reply.
    #[error("{found} is no verdict")]
    Verdict {
        /// The number.
        found: u32,
    },
    /// A frame is longer than the longest chain.
    #[error("a frame of {bytes} bytes, more than {limit}")]
    FrameBytes {
        /// The length it claims.
        bytes: u64,
        /// The bound.
        limit: u64,
    },
    /// A chain has too many verbs.
    #[error("a chain of {verbs} verbs, more than {MAX_CHAIN_VERBS}")]
    ChainVerbs {
        /// The number it claims.
        verbs: u16,
    },
    /// The payloads of a chain are too long, or not a multiple of 8 bytes.
    #[error("a payload of {bytes} bytes is too long, or not a multiple of 8")]
    PayloadBytes {
        /// The length it claims.
        bytes: u64,
    },
    /// An unknown verb.
    #[error("{found} is no verb")]
    Opcode {
        /// The number.
        found: u8,
    },
    /// The length of a frame does not match its content.
    #[error("the length of a frame is not that of what is in it")]
    Length,
    /// A response came though no chain waits for one.
    #[error("a response came that nothing was asked for")]
    Unasked,
    /// Frames are missing or were repeated.
    #[error("frame {found} came in place of frame {expected}")]
    Sequence {
        /// The number it has.
        found: u64,
        /// The number it should have.
        expected: u64,
    },
    /// More chains are said to be unanswered than there are, or than may be.
    #[error("{unanswered} chains are said to be unanswered before frame {sequence}")]
    Window {
        /// The number of unanswered chains.
        unanswered: u16,
        /// The number of the frame.
        sequence: u64,
    },
    /// A chain was sent though the unanswered ones move too many bytes already.
    #[error("{kept} bytes of responses are unanswered, more than {WINDOW_BYTES}")]
    WindowBytes {
        /// The bytes that are kept.
        kept: u64,
    },
    /// The peer says that it executed a number of chains that cannot be.
    #[error("{executed} chains are said to be executed, of which {sent} were sent")]
    Executed {
        /// The number.
        executed: u64,
        /// How many chains were sent.
        sent: u64,
    },
    /// A response that no execution of the chain gives.
    #[error("a response of status {status} after {executed} of {verbs} verbs")]
    Response {
        /// Its status.
        status: u16,
        /// How many verbs it says were executed.
        executed: u16,
        /// How many there are.
        verbs: u16,
    },
}
