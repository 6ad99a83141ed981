//! How a pool names its compute nodes.

use std::fmt;

/// Index of a compute node in its pool, below [`crate::PoolConfig::max_compute_nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeIndex(u16);

impl ComputeIndex {
    /// The compute node of this index. The pool checks it against its own limit.
    #[must_use]
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// The index as a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The index as a position in a table.
    #[must_use]
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ComputeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
