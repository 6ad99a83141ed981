//! Snapshot barriers: all compute nodes write a mark to their logs, for a snapshot that is
//! consistent across nodes. The pool knows which node asks for a barrier and when it ends; what a
//! mark means is up to the log.

use std::sync::Arc;

use super::view::Pool;
use crate::compute_index::ComputeIndex;
use crate::document::{PoolState, SnapshotBarrier};
use crate::error::PoolError;

impl PoolState {
    /// Ends the barrier of a compute node that has left, or died.
    pub(crate) fn end_barrier_of(&mut self, node: u16) {
        self.barrier = self.barrier.filter(|barrier| barrier.by != node);
    }
}

impl Pool {
    /// Announces a barrier that all compute nodes are to mark in their logs. Returns its number,
    /// and the state that announces it, whose nodes all mark it. `None` while another node wants a
    /// barrier; an earlier barrier of `by` is over. A change after a mark stays on its node until
    /// the barrier is over ([`Pool::end_barrier`], or `by` has left or died), or for
    /// [`Timing::barrier_bound`](crate::control::Timing::barrier_bound).
    ///
    /// # Errors
    /// [`PoolError::NotRegistered`], [`PoolError::Control`].
    pub async fn begin_barrier(
        &self,
        by: ComputeIndex,
    ) -> Result<Option<(u64, Arc<PoolState>)>, PoolError> {
        let begin = |state: &mut PoolState| {
            if !state.compute_nodes.contains_key(&by.get()) {
                return Err(PoolError::NotRegistered { node: by });
            }
            if state.barrier.is_some_and(|barrier| barrier.by != by.get()) {
                return Ok(None);
            }
            state.barriers_begun += 1;
            let number = state.barriers_begun;
            state.barrier = Some(SnapshotBarrier { number, by: by.get() });
            Ok(Some((number, Arc::new(state.clone()))))
        };
        Ok(self.membership().change(begin).await?.1)
    }

    /// Ends a barrier. Returns whether it was under way. Waits for no other node.
    ///
    /// # Errors
    /// [`PoolError::Control`]; it may be over then or not.
    pub async fn end_barrier(&self, number: u64) -> Result<bool, PoolError> {
        let end = |state: &mut PoolState| {
            let is_it = state.barrier.is_some_and(|barrier| barrier.number == number);
            if is_it {
                state.barrier = None;
            }
            Ok(is_it)
        };
        Ok(self.membership().change(end).await?.1)
    }
}
