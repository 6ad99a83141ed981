//! A leaf page that a transaction has latched, or a copy of one that it has read.

use std::ops::Deref;

use selkie_engine::{ExclusiveGuard, GAddr, SharedGuard};

/// How a leaf is to be latched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatchMode {
    Shared,
    Exclusive,
}

/// A held latch.
pub(crate) enum LeafLatch<'db> {
    Shared(SharedGuard<'db>),
    Exclusive(ExclusiveGuard<'db>),
}

impl LeafLatch<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(guard) => guard,
            Self::Exclusive(guard) => guard,
        }
    }

    pub(crate) fn addr(&self) -> GAddr {
        match self {
            Self::Shared(guard) => guard.addr(),
            Self::Exclusive(guard) => guard.addr(),
        }
    }

    /// The page sequence number; under an exclusive latch, that from before the holder's changes.
    pub(crate) fn psn(&self) -> u64 {
        match self {
            Self::Shared(guard) => guard.psn(),
            Self::Exclusive(guard) => guard.psn(),
        }
    }
}

/// A leaf that was read and is not held to the end of the transaction.
pub(crate) enum LeafImage<'db> {
    /// Latched until the next leaf is read.
    Latched(SharedGuard<'db>),
    /// A copy, for transactions that hold no leaf while they wait for another.
    Copied(Box<[u8]>),
}

impl LeafImage<'_> {
    pub(crate) fn copy_of(leaf: &[u8]) -> Self {
        Self::Copied(leaf.into())
    }
}

impl Deref for LeafImage<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Latched(guard) => guard,
            Self::Copied(leaf) => leaf,
        }
    }
}
