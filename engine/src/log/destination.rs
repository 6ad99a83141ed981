//! Where a node keeps its log.

use std::sync::Arc;

use selkie_wal::LogStore;

/// Where a node keeps its log, as configured.
#[derive(Clone, Debug)]
pub enum LogTo {
    /// In r + 1 memory nodes, beside the pages: surviving nodes read it there.
    Memory,
    /// In a store outside of the pool.
    Store(Arc<dyn LogStore>),
}
