//! The cell in which the outcome of a chain waits for its completion to be polled.

use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;

use crate::verb::ChainResult;

/// Filled once, by the thread that received the response or found the peer dead.
#[derive(Default)]
pub(crate) struct OutcomeCell(Mutex<(Option<ChainResult>, Option<Waker>)>);

impl OutcomeCell {
    /// Stores the outcome. The caller wakes the returned task when it holds no locks.
    #[must_use = "a task may wait for the outcome"]
    pub(crate) fn fill(&self, result: ChainResult) -> Option<Waker> {
        let mut cell = self.0.lock();
        cell.0 = Some(result);
        cell.1.take()
    }

    pub(crate) fn take(&self) -> Option<ChainResult> {
        self.0.lock().0.take()
    }

    /// Takes the outcome, or registers `waker` to be woken when it is there.
    pub(crate) fn take_or_register(&self, waker: &Waker) -> Option<ChainResult> {
        let waker = waker.clone();
        let mut cell = self.0.lock();
        if let Some(result) = cell.0.take() {
            return Some(result);
        }
        let replaced = cell.1.replace(waker);
        drop(cell);
        // Dropped without the lock: the drop of a waker may drop a task.
        drop(replaced);
        None
    }

    /// Removes the registered waker: no task waits any more.
    pub(crate) fn clear_waker(&self) {
        let waker = self.0.lock().1.take();
        // Dropped without the lock, as above.
        drop(waker);
    }
}

/// Cells that were filled. Their tasks are woken without locks.
pub(crate) type Completed = Vec<(Arc<OutcomeCell>, Option<Waker>)>;

/// Wakes the tasks that wait for these outcomes. The caller holds no locks.
pub(crate) fn wake(completed: Completed) {
    for (cell, waker) in completed {
        drop(cell);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
