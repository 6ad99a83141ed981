//! Moments that all compute nodes mark in their logs: who wants one, and when it is over. What a
//! mark means is theirs to know.

use std::sync::Arc;

use crate::control::{Moment, PoolState};
use crate::error::PoolError;

use crate::pool::Pool;
use crate::registry::ComputeIndex;

impl PoolState {
    /// Who wanted a moment has left, or died.
    pub(crate) fn forget_moment(&mut self, node: u16) {
        self.moment = self.moment.filter(|moment| moment.by != node);
    }
}

impl Pool {
    /// Announces a moment that all compute nodes are to mark in their logs; its number, and the
    /// state that announces it, of whose nodes each does. `None` while another node wants one; one
    /// that `by` wants already is over. What is changed after a mark stays on its node until the
    /// moment is over ([`Pool::end_moment`], or `by` has left or died), or for
    /// [`Timing::moment_bound`](crate::control::Timing::moment_bound).
    ///
    /// # Errors
    /// [`PoolError::NotRegistered`], [`PoolError::Control`].
    pub async fn begin_moment(
        &self,
        by: ComputeIndex,
    ) -> Result<Option<(u64, Arc<PoolState>)>, PoolError> {
        let begin = |state: &mut PoolState| {
            if !state.compute_nodes.contains_key(&by.get()) {
                return Err(PoolError::NotRegistered { node: by });
            }
            if state.moment.is_some_and(|moment| moment.by != by.get()) {
                return Ok(None);
            }
            state.moments += 1;
            let number = state.moments;
            state.moment = Some(Moment { number, by: by.get() });
            Ok(Some((number, Arc::new(state.clone()))))
        };
        Ok(self.membership().change(begin).await?.1)
    }

    /// Ends a moment; whether it was not over. Nobody is waited for.
    ///
    /// # Errors
    /// [`PoolError::Control`]; it may be over then or not.
    pub async fn end_moment(&self, number: u64) -> Result<bool, PoolError> {
        let end = |state: &mut PoolState| {
            let is_it = state.moment.is_some_and(|moment| moment.number == number);
            if is_it {
                state.moment = None;
            }
            Ok(is_it)
        };
        Ok(self.membership().change(end).await?.1)
    }
}
