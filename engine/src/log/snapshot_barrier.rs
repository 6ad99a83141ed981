//! Snapshot barriers: marks in all logs of a pool, so that the logs up to their marks are one
//! consistent state of it.
//!
//! ```text
//! barrier 7 in the    --> each node marks it --> all marks are --> barrier 7
//! state of the pool       in its log             durable           is over
//!                         |                                        |
//!                         +- changes from here on stay in the node +
//! ```
//! A change recorded behind a mark is not visible to another node before all nodes have marked. So
//! a change that depends on it is behind a mark, too, in every log. The changes before the marks
//! are closed: they are the changes of a set of transactions in their order, with all changes that
//! these transactions read and overwrote.
//!
//! Nodes continue meanwhile, and commits take no longer. A barrier lasts as long as the control
//! plane needs to publish two changes of the state, and only pages that changed in that time wait
//! before they go to other nodes.
//!
//! A node that marked withholds changes for a bounded part of a lease, by its own clock
//! ([`Timing::barrier_bound`]). So no node can hold up the others for long. The node that
//! announced the barrier knows that no node released its changes before all had marked, if all
//! marked soon after the announcement and the barrier was the announced one until then.
//!
//! A node that joins meanwhile marks before it changes a page, and the barrier does not wait for
//! it. If a node marks and dies, its pages may be redone and granted to others before all nodes
//! have marked: then the barrier is not used.
//!
//! [`Timing::barrier_bound`]: selkie_pool::control::Timing::barrier_bound

use selkie_pool::control::{PoolState, SnapshotBarrier};

use super::state::Marked;
use crate::core::Core;

impl Core {
    /// Marks the barrier that the pool's state announces, if any. The announcing node changes no
    /// page, and a node that has left need not mark.
    pub(crate) fn mark_snapshot_barrier(&self, state: &PoolState) {
        let (Some(log), Some(SnapshotBarrier { number, by })) = (&self.log, state.barrier) else {
            return;
        };
        let has_ended = self.lifecycle.is_leaving() || self.lifecycle.has_failed();
        if by != self.index().get() && !has_ended {
            log.mark(number, self.env.now());
        }
    }

    /// Releases withheld changes if the barrier is over or exceeds its bound.
    pub(crate) fn end_snapshot_barrier(&self) {
        let Some(log) = &self.log else { return };
        let is_over = |marked: &Marked| {
            // The state is read after the mark: it is the state that announced it, or a later one.
            let (now, state) = (self.env.now(), self.pool.state());
            state.barrier.is_none_or(|barrier| barrier.number != marked.number)
                || marked.since.is_some_and(|since| now > since + state.timing.barrier_bound())
        };
        log.release(is_over).into_iter().for_each(|addr| self.notify(addr));
    }
}
