//! Where the outcome of a chain waits for its completion to be polled.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::completion::Outstanding;
use crate::verb::ChainResult;

/// Filled once, by the event that delivers the outcome.
#[derive(Default)]
pub(super) struct Slot(Mutex<(Option<ChainResult>, Option<Waker>)>);

impl Slot {
    pub(super) fn fill(&self, result: ChainResult) {
        let waker = {
            let mut slot = self.0.lock();
            slot.0 = Some(result);
            slot.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The completion's side of a slot.
pub(super) struct Waiting(pub(super) Arc<Slot>);

impl Outstanding for Waiting {
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
        let mut slot = self.0.0.lock();
        match slot.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                let replaced = slot.1.replace(context.waker().clone());
                drop(slot);
                drop(replaced);
                Poll::Pending
            }
        }
    }

    fn try_result(&mut self) -> Option<ChainResult> {
        self.0.0.lock().0.take()
    }
}
