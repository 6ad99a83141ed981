//! `Role`: what a node of a pool with certificates may be, and the certificate that says so.
//!
//! Without certificates a node has no role: see
//! [`Stream::certificate`](crate::Stream::certificate).

use std::fmt;
use std::str::FromStr;

use crate::id::PeerId;

/// What the holder of a certificate may do in its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Lends memory, and passes requests on to the control plane.
    Memory,
    /// Reads and writes pages.
    Compute,
    /// Reads pages, and writes none.
    Reader,
    /// Looks at the pool and manages it, without being one of its nodes.
    Operator,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Compute, Self::Reader, Self::Operator];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Compute => "compute",
            Self::Reader => "reader",
            Self::Operator => "operator",
        }
    }

    /// Whether a node of this role may have this name in the pool.
    #[must_use]
    pub const fn may_be(self, peer: PeerId) -> bool {
        match self {
            Self::Memory => peer.is_memory(),
            Self::Compute | Self::Reader => !peer.is_memory(),
            Self::Operator => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let role = Self::ALL.into_iter().find(|role| role.name() == name);
        role.ok_or_else(|| "a role is `memory`, `compute`, `reader` or `operator`".to_owned())
    }
}

/// What a certificate that the pool's authority has signed says of its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeCertificate {
    /// What the holder may do.
    pub role: Role,
    /// SHA-256 of the certificate: tells holders apart.
    pub fingerprint: [u8; 32],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_read_as_they_are_written_and_are_nodes_of_one_kind() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
        let may_be = |peer| Role::ALL.map(|role| role.may_be(peer));
        assert_eq!(may_be(PeerId::memory(3)), [true, false, false, false]);
        assert_eq!(may_be(PeerId::compute(3)), [false, true, true, false]);
    }
}
