//! Moments that all logs of a pool mark, so that the logs up to their marks are one state of it.
//!
//! ```text
//! pool's state: moment 7 ----> each node marks it in its log ----> all marks are durable ----> moment 7 is over
//!                              |                                                               |
//!                              +--- what it changes from here on does not leave the node ------+
//! ```
//! A change that is recorded behind a mark is seen by no other node before all have marked: so
//! whatever builds upon it, or was made by who had read it, is behind a mark as well, in whichever
//! log. What comes before the marks is closed: changes of a set of transactions in their order, all
//! that they have read and overwritten included.
//!
//! Nodes go on meanwhile, and commits last as ever: it takes what the control plane takes to tell
//! all of two changes of the state, and only pages that were changed in that time wait to go to
//! others.
//!
//! Whoever marks waits for no more than a part of a lease, by its own clock
//! ([`Timing::barrier_bound`]). So nobody can hold up others for long, and who wants the moment
//! knows that nobody has gone on before all had marked, if all did so soon after it was announced,
//! and it was the announced one until then.
//!
//! A node that comes in meanwhile marks before it changes anything, and is not waited for. One that
//! marks and then dies may have its pages made again, and given to others, before all have marked:
//! the moment is of no use then.
//!
//! [`Timing::barrier_bound`]: selkie_pool::control::Timing::barrier_bound

use selkie_pool::control::{PoolState, SnapshotBarrier};

use super::state::Marked;
use crate::core::Core;

impl Core {
    /// Marks the moment that the pool's state names, if it does. Who wants it changes nothing, and
    /// who has left is not asked.
    pub(crate) fn mark_snapshot_barrier(&self, state: &PoolState) {
        let (Some(log), Some(SnapshotBarrier { number, by })) = (&self.log, state.barrier) else {
            return;
        };
        let has_ended = self.lifecycle.is_leaving() || self.lifecycle.has_failed();
        if by != self.index().get() && !has_ended {
            log.mark(number, self.env.now());
        }
    }

    /// Lets go what stayed if the moment is over, or takes longer than it may.
    pub(crate) fn end_snapshot_barrier(&self) {
        let Some(log) = &self.log else { return };
        let is_over = |marked: &Marked| {
            // When it is known what was marked: the state that named that was known before.
            let (now, state) = (self.env.now(), self.pool.state());
            state.barrier.is_none_or(|moment| moment.number != marked.number)
                || marked.since.is_some_and(|since| now > since + state.timing.barrier_bound())
        };
        log.release(is_over).into_iter().for_each(|addr| self.notify(addr));
    }
}
