//! Where the outcome of a chain waits for its completion to be polled.

use std::task::Waker;

use parking_lot::Mutex;

use crate::verb::ChainResult;

/// Filled once, by whoever received the response or found the peer dead.
#[derive(Default)]
pub(super) struct Slot(Mutex<(Option<ChainResult>, Option<Waker>)>);

impl Slot {
    /// Puts the outcome in; whom to wake then, without holding locks.
    #[must_use = "somebody may be waiting"]
    pub(super) fn fill(&self, result: ChainResult) -> Option<Waker> {
        let mut slot = self.0.lock();
        slot.0 = Some(result);
        slot.1.take()
    }

    pub(super) fn take(&self) -> Option<ChainResult> {
        self.0.lock().0.take()
    }

    /// The outcome, or a waker to be woken when it is there.
    pub(super) fn take_or_enlist(&self, waker: &Waker) -> Option<ChainResult> {
        let waker = waker.clone();
        let mut slot = self.0.lock();
        if let Some(result) = slot.0.take() {
            return Some(result);
        }
        let replaced = slot.1.replace(waker);
        drop(slot);
        // Not under the lock: its drop may drop a task.
        drop(replaced);
        None
    }

    /// Nobody is interested any more.
    pub(super) fn strike(&self) {
        let waker = self.0.lock().1.take();
        // Not under the lock, as above.
        drop(waker);
    }
}
