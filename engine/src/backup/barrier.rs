//! Snapshot barriers that a backup announces.

use std::sync::Arc;

use selkie_pool::PoolError;
use selkie_pool::control::PoolState;

use crate::core::Core;
use crate::error::EngineError;

/// An announced snapshot barrier, which ends when this is dropped.
pub(super) struct Announced<'c> {
    core: &'c Core,
    pub(super) number: u64,
    is_over: bool,
}

impl<'c> Announced<'c> {
    /// Announces a barrier. Returns the state that announces it; `None` if that must be tried
    /// again.
    pub(super) async fn begin(
        core: &'c Core,
    ) -> Result<Option<(Self, Arc<PoolState>)>, EngineError> {
        let begun = core.pool.begin_barrier(core.index()).await;
        let begun = not_now(begun)?.flatten();
        Ok(begun.map(|(number, state)| (Self { core, number, is_over: false }, state)))
    }

    /// Ends the barrier. Returns whether it was the announced one until then.
    pub(super) async fn end(mut self) -> Result<bool, EngineError> {
        let ended = not_now(self.core.pool.end_barrier(self.number).await)?;
        // If the answer is lost, the drop ends it again.
        self.is_over = ended.is_some();
        Ok(ended == Some(true))
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let (pool, number) = (Arc::clone(&self.core.pool), self.number);
            // If the end is not announced, every node resumes after its own bound.
            let end = async move { drop(pool.end_barrier(number).await) };
            drop(self.core.spawn("moment", end));
        }
    }
}

/// The current state of the pool; `None` if that must be tried again.
pub(super) async fn latest(core: &Core) -> Result<Option<Arc<PoolState>>, EngineError> {
    not_now(core.pool.latest_state().await)
}

/// The answer of the control plane; `None` if it cannot be reached for now.
fn not_now<T>(answer: Result<T, PoolError>) -> Result<Option<T>, EngineError> {
    match answer {
        Err(error) if error.is_retryable() => {
            tracing::debug!(%error, "the control plane is asked again");
            Ok(None)
        }
        answer => Ok(Some(answer?)),
    }
}
