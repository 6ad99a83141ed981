//! The cell in which the outcome of a chain waits for its completion to be polled.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::completion::Outstanding;
use crate::verb::ChainResult;

/// Filled once, by the event that delivers the outcome.
#[derive(Default)]
pub(super) struct OutcomeCell(Mutex<(Option<ChainResult>, Option<Waker>)>);

impl OutcomeCell {
    pub(super) fn fill(&self, result: ChainResult) {
        let waker = {
            let mut cell = self.0.lock();
            cell.0 = Some(result);
            cell.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The completion of a chain.
pub(super) struct OutstandingChain(pub(super) Arc<OutcomeCell>);

impl Outstanding for OutstandingChain {
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
        let mut cell = self.0.0.lock();
        match cell.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                let replaced = cell.1.replace(context.waker().clone());
                drop(cell);
                drop(replaced);
                Poll::Pending
            }
        }
    }

    fn try_result(&mut self) -> Option<ChainResult> {
        self.0.0.lock().0.take()
    }
}
