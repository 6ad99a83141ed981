//! `Access`: the kinds of access that protection domains tell apart.

use std::fmt;

/// A kind of access; [`Verb::access`](crate::Verb::access) gives that of a verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// A read.
    Read,
    /// A write, with or without doorbell.
    Write,
    /// A compare-and-swap or a fetch-and-add.
    Atomic,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
        })
    }
}
