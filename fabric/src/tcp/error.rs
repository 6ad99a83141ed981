//! What can be wrong with the bytes of a connection.

use super::wire::MAX_CHAIN_VERBS;
use crate::distrust::Distrust;

/// Why what came over a connection was not understood. The connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// It does not begin like a connection of this protocol.
    #[error("begins with {found:#018x}, which is neither hello nor reply")]
    Magic {
        /// The first word.
        found: u64,
    },
    /// The hello did not come in time.
    #[error("no hello came in time")]
    NoHello,
    /// It is not secured as connections of the pool are.
    #[error("{why}")]
    Distrusted {
        /// What is wrong, and on which side.
        why: Distrust,
    },
    /// A number that has to be 0, or must not be.
    #[error("a reserved field or an incarnation has a value it cannot have")]
    Reserved,
    /// No verdict has this number.
    #[error("{found} is no verdict")]
    Verdict {
        /// The number.
        found: u32,
    },
    /// A frame is longer than any chain makes it.
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
    /// No verb has this number.
    #[error("{found} is no verb")]
    Opcode {
        /// The number.
        found: u8,
    },
    /// The length of a frame is not that of what it holds.
    #[error("the length of a frame is not that of what is in it")]
    Length,
    /// A response came though every chain has had its own.
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
    /// A response that no execution of the chain can have.
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
