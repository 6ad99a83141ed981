//! Whose log it is.

use selkie_pool::checksum;

use crate::record::Format;

/// Identifies the log of one compute node. Each incarnation of a node has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogOwner {
    /// The pool's name for itself.
    pub pool: u64,
    /// The compute node.
    pub node: u16,
    /// How many nodes have had its index, it included.
    pub incarnation: u32,
    /// Bytes of a line.
    pub line_bytes: u32,
}

impl LogOwner {
    /// What the records of the log have in common.
    #[must_use]
    pub fn format(&self) -> Format {
        let Self { pool, node, incarnation, line_bytes } = *self;
        let mut name = pool.to_le_bytes().to_vec();
        name.extend_from_slice(&node.to_le_bytes());
        name.extend_from_slice(&incarnation.to_le_bytes());
        Format { line_bytes: line_bytes as usize, salt: checksum(&name) }
    }
}
