//! Observers of changes of a pool.

use crate::compute_index::ComputeIndex;
use crate::document::PoolState;

/// Is told of changes of a pool before other processes rely on them.
pub trait Observer: Send + Sync {
    /// A compute node is in the pool, as this incarnation of its index. Called repeatedly, also for
    /// known nodes, until it returns true. The node waits until then.
    fn joined(&self, node: ComputeIndex, incarnation: u32) -> bool;

    /// A compute node is no longer in the pool. If it died, the recovery from its death is over.
    fn gone(&self, node: ComputeIndex);

    /// The state of the pool has changed. Called repeatedly, until it returns true, before the
    /// others learn that this process has acted upon the change. It returns false while an
    /// operation is under way that began by an older state and could not begin by this one.
    fn changed(&self, state: &PoolState) -> bool;
}
