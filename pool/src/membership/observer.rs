//! What is told of changes of a pool, before other processes rely on them.

use crate::compute_index::ComputeIndex;
use crate::document::PoolState;

/// Hears of changes of a pool before the others rely on them.
pub trait Observer: Send + Sync {
    /// A compute node is in the pool, as this incarnation of its index. Called again and again,
    /// also for those that are known, until it returns true: until then the node waits.
    fn joined(&self, node: ComputeIndex, incarnation: u32) -> bool;

    /// A compute node that was in the pool is in it no more, and recovered from if it died.
    fn gone(&self, node: ComputeIndex);

    /// The state of the pool is another. Called again and again before the others learn that this
    /// process has acted upon it, until it returns true: until then something is under way that was
    /// begun by an older state, and would not have been by this one.
    fn changed(&self, state: &PoolState) -> bool;
}
