//! The owner of a log: one incarnation of a compute node.

use selkie_pool::checksum;

use crate::record::Format;

/// Identifies the log of one compute node. Each incarnation of a node has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogOwner {
    /// Identifier of the pool.
    pub pool: u64,
    /// The compute node.
    pub node: u16,
    /// The incarnation: how many nodes have had this index so far, this one included.
    pub incarnation: u32,
    /// Bytes of a line.
    pub line_bytes: u32,
}

impl LogOwner {
    /// The format of the records of this log. Its salt differs from log to log, so that a record
    /// of an earlier log in the same place has a wrong checksum.
    #[must_use]
    pub fn format(&self) -> Format {
        let Self { pool, node, incarnation, line_bytes } = *self;
        let mut name = pool.to_le_bytes().to_vec();
        name.extend_from_slice(&node.to_le_bytes());
        name.extend_from_slice(&incarnation.to_le_bytes());
        Format { line_bytes: line_bytes as usize, salt: checksum(&name) }
    }
}
