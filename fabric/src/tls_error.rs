//! `TlsError`: why two nodes do not trust each other. Its texts tell an operator what to do.

use std::fmt;

use crate::role::Role;

/// Why there is no TLS connection to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// Only this side secures its connections.
    #[error(
        "it does not speak TLS, and this node does: give --tls DIR to all nodes of the pool, or to none"
    )]
    PeerIsPlain,
    /// Only the other side secures its connections.
    #[error("it speaks TLS, and this node does not: give --tls DIR")]
    PeerSpeaksTls,
    /// A certificate is not trusted.
    #[error("{owner} certificate {fault}")]
    Certificate {
        /// The side that shows it.
        owner: CertificateOwner,
        /// What is wrong with it.
        fault: CertificateFault,
    },
    /// The bytes are no TLS that this side understands, or they were changed on the way.
    #[error("the TLS between it and this node is broken")]
    Broken,
}

/// Content type and major version of the TLS record with which a node refuses a plain connection.
const ALERT_PREFIX: [u8; 2] = [0x15, 0x03];

impl TlsError {
    /// The error in the first bytes of a reply to a side without TLS, if the other side has TLS.
    pub fn in_reply(received: &[u8]) -> Option<Self> {
        received.starts_with(&ALERT_PREFIX).then_some(Self::PeerSpeaksTls)
    }
}

/// The side that a certificate belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateOwner {
    /// This side; the other side refused the certificate.
    Ours,
    /// The other side.
    Theirs,
}

/// What is wrong with a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CertificateFault {
    /// None was shown.
    Missing,
    /// Another authority has signed it.
    Foreign,
    /// It has expired.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// It has expired or is not valid yet: the other side does not say which.
    OutOfDate,
    /// It is not a certificate of a node, or is unreadable.
    Unfit,
    /// It says no role, or several.
    NoRole,
    /// Its role is none of the node at that address.
    WrongRole(Role),
}

impl fmt::Display for CertificateOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "this node's",
            Self::Theirs => "its",
        })
    }
}

impl fmt::Display for CertificateFault {
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
            Self::NoRole => {
                "says no role: make another with `selkie cert node --role \
                 memory|compute|reader|operator`"
            }
            Self::WrongRole(role) => {
                return write!(
                    f,
                    "is of role {role}, which that node cannot have: make one of its role with \
                     `selkie cert node --role`"
                );
            }
        })
    }
}
