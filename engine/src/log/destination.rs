//! Where a node keeps its log.

use std::sync::Arc;

use selkie_wal::LogStore;

/// Where a node keeps its log, as configured.
#[derive(Clone, Debug)]
pub enum LogTo {
    /// In memory of r + 1 memory nodes, beside the pages: whoever survives the node reads it there.
    Memory,

    /// Elsewhere.
    Store(Arc<dyn LogStore>),
}
