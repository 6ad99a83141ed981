//! Why two nodes do not trust each other, in words for who has to mend it.

use std::fmt;

/// Why a connection is not secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Distrust {
    /// Only this side secures its connections.
    #[error(
        "it does not speak TLS, and this node does: give --tls DIR to all nodes of the pool, or to none"
    )]
    PeerIsPlain,
    /// Only the other side secures its connections.
    #[error("it speaks TLS, and this node does not: give --tls DIR")]
    PeerSpeaksTls,
    /// A certificate is not one to be trusted.
    #[error("{whose} certificate {fault}")]
    Certificate {
        /// Who shows it.
        whose: Whose,
        /// What is wrong with it.
        fault: Fault,
    },
    /// What came is not what this side understands as TLS, or somebody changed it on its way.
    #[error("the TLS between it and this node is broken")]
    Broken,
}

/// Content type and major version of the record in which a node that speaks TLS says that it was
/// not understood.
const ALERT_BEGINS: [u8; 2] = [0x15, 0x03];

impl Distrust {
    /// What the first bytes of the answer to a side without TLS say, if the other side has it.
    pub fn in_answer(heard: &[u8]) -> Option<Self> {
        heard.starts_with(&ALERT_BEGINS).then_some(Self::PeerSpeaksTls)
    }
}

/// Whose certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This side's; the other one has said so.
    Ours,
    /// The other side's.
    Theirs,
}

/// What is wrong with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// None was shown.
    Missing,
    /// Another authority has signed it.
    Foreign,
    /// It was valid once.
    Expired,
    /// It will be valid later.
    NotYetValid,
    /// One of the two above: the other side does not say which.
    OutOfDate,
    /// It is none for a node, or cannot be read.
    Unfit,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "this node's",
            Self::Theirs => "its",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "was asked for, and there is none: make one with `selkie cert node`",
            Self::Foreign => {
                "is not of this pool's authority: make one with the pool's ca.key and `selkie cert node`"
            }
            Self::Expired => "has expired: make another with `selkie cert node`",
            Self::NotYetValid => "is not valid yet: compare the clocks of the two hosts",
            Self::OutOfDate => {
                "has expired, or is not valid yet by the other's clock: make another with \
                 `selkie cert node`"
            }
            Self::Unfit => "is none of a node: make one with `selkie cert node`",
        })
    }
}
