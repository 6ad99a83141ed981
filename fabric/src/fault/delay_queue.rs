//! The delay queue of one queue pair: delayed chains in order, and the delivery of their outcomes.
//!
//! ```text
//! post --(fate)--> queue --driver: sleep until `execute_at`, execute--> cell --completion: sleep
//!                                                                    until `deliver_at`--> caller
//! ```
//! Both times never decrease along the queue, so chains execute and complete in posting order. The
//! driver is a task that lives while the queue is not empty. It executes chains also if no task
//! polls their completions. If the environment drops the driver, all queued chains fail with
//! `Stopped`. The queue has no bound of its own: callers bound their outstanding chains.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::plan::Fate;
use crate::completion::Outstanding;
use crate::env::{BoxFuture, Env};
use crate::error::FabricError;
use crate::id::PeerId;
use crate::verb::{Chain, ChainError, ChainResult};

/// A chain that waits to execute.
pub(crate) struct DelayedChain {
    pub(crate) chain: Chain,
    pub(crate) fate: Fate,
    pub(crate) execute_at: Duration,
    pub(crate) promise: Promise,
}

/// The delayed chains of one queue pair.
#[derive(Default)]
pub(crate) struct DelayQueue {
    queue: VecDeque<DelayedChain>,
    /// A driver task exists, or is about to be spawned.
    driven: bool,
    last_execute_at: Duration,
    last_deliver_at: Duration,
}

impl DelayQueue {
    /// Whether a chain that is posted now has no earlier chain to wait for.
    pub(crate) fn is_idle(&self, now: Duration) -> bool {
        !self.driven && self.last_deliver_at <= now
    }

    /// Appends a chain. Returns the cell of its outcome, the time from which the outcome may be
    /// delivered, and whether the caller must spawn a driver.
    pub(crate) fn enqueue(
        &mut self,
        chain: Chain,
        fate: Fate,
        now: Duration,
    ) -> (Arc<OutcomeCell>, Duration, bool) {
        self.last_execute_at = self.last_execute_at.max(now + fate.outbound);
        self.last_deliver_at = self.last_deliver_at.max(self.last_execute_at + fate.inbound);
        let cell = Arc::new(OutcomeCell::default());
        let promise = Promise { cell: Arc::clone(&cell) };
        self.queue.push_back(DelayedChain {
            chain,
            fate,
            execute_at: self.last_execute_at,
            promise,
        });
        let needs_driver = !std::mem::replace(&mut self.driven, true);
        (cell, self.last_deliver_at, needs_driver)
    }

    /// The next chain to execute. If there is none, the driver must end.
    pub(crate) fn next(&mut self) -> Option<DelayedChain> {
        let next = self.queue.pop_front();
        self.driven = next.is_some();
        next
    }

    /// Takes all queued chains, because the driver ends early.
    pub(crate) fn abandon(&mut self) -> VecDeque<DelayedChain> {
        self.driven = false;
        std::mem::take(&mut self.queue)
    }
}

/// The cell in which an outcome waits for its completion to be polled.
#[derive(Default)]
pub(crate) struct OutcomeCell(Mutex<Outcome>);

#[derive(Default)]
struct Outcome {
    result: Option<ChainResult>,
    /// The driver was dropped, so there will be no result.
    broken: bool,
    waiter: Option<Waker>,
}

/// The duty to fill a cell.
pub(crate) struct Promise {
    cell: Arc<OutcomeCell>,
}

impl Promise {
    pub(crate) fn fill(self, result: ChainResult) {
        self.cell.0.lock().result = Some(result);
        // Dropping `self` wakes the waiter.
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let waiter = {
            let mut state = self.cell.0.lock();
            state.broken = state.result.is_none();
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// The completion of a delayed chain.
pub(crate) struct DelayedCompletion<Verdict> {
    pub(crate) cell: Arc<OutcomeCell>,
    pub(crate) deliver_at: Duration,
    pub(crate) env: Env,
    pub(crate) peer: PeerId,
    /// Gets every outcome when it is delivered, and may turn it into an error.
    pub(crate) verdict: Verdict,
    pub(crate) sleep: Option<BoxFuture<'static, ()>>,
}

/// What a completion finds in its cell.
enum CellContent {
    Empty,
    NotYetDue,
    Due(ChainResult),
}

impl<Verdict: Fn(ChainResult) -> ChainResult> DelayedCompletion<Verdict> {
    /// Takes the outcome if it is there and due. Registers `waker` if it is not there.
    fn take_due(&self, waker: Option<&Waker>) -> CellContent {
        let due = self.env.now() >= self.deliver_at;
        let mut state = self.cell.0.lock();
        if state.broken {
            // The driver was dropped while it executed this chain, and the chain with it.
            let error = FabricError::Stopped { peer: self.peer };
            return CellContent::Due(Err(Box::new(ChainError {
                chain: Chain::new(),
                executed: 0,
                error,
            })));
        }
        match state.result.take() {
            // The clock of a stopped environment never gets to the due time.
            Some(result) if due || has_stopped(&result) => {
                drop(state);
                CellContent::Due((self.verdict)(result))
            }
            Some(result) => {
                state.result = Some(result);
                CellContent::NotYetDue
            }
            None => {
                let replaced = waker.and_then(|waker| state.waiter.replace(waker.clone()));
                drop(state);
                drop(replaced);
                CellContent::Empty
            }
        }
    }
}

fn has_stopped(result: &ChainResult) -> bool {
    matches!(result, Err(error) if matches!(error.error, FabricError::Stopped { .. }))
}

impl<Verdict> Outstanding for DelayedCompletion<Verdict>
where
    Verdict: Fn(ChainResult) -> ChainResult + Send,
{
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
        loop {
            match self.take_due(Some(context.waker())) {
                CellContent::Due(result) => return Poll::Ready(result),
                CellContent::Empty => return Poll::Pending,
                CellContent::NotYetDue => {}
            }
            let rest = self.deliver_at.saturating_sub(self.env.now());
            let sleep = self.sleep.get_or_insert_with(|| self.env.sleep(rest));
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
    }

    fn try_result(&mut self) -> Option<ChainResult> {
        match self.take_due(None) {
            CellContent::Due(result) => Some(result),
            CellContent::NotYetDue | CellContent::Empty => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Enqueues a chain posted at `now` and returns when it executes and is delivered.
    fn enqueue(
        queue: &mut DelayQueue,
        now: u64,
        outbound: u64,
        inbound: u64,
    ) -> (Duration, Duration) {
        let fate = Fate { outbound: at(outbound), inbound: at(inbound), ..Fate::default() };
        let (_, deliver_at, _) = queue.enqueue(Chain::new(), fate, at(now));
        (queue.queue.back().unwrap().execute_at, deliver_at)
    }

    #[test]
    fn chains_neither_execute_nor_complete_before_earlier_ones() {
        let mut queue = DelayQueue::default();
        assert_eq!(enqueue(&mut queue, 0, 10, 50), (at(10), at(60)));
        assert_eq!(enqueue(&mut queue, 1, 2, 3), (at(10), at(60)));
        assert_eq!(enqueue(&mut queue, 5, 20, 0), (at(25), at(60)));
        assert_eq!(enqueue(&mut queue, 70, 1, 1), (at(71), at(72)));
    }

    #[test]
    fn a_queue_is_idle_when_everything_is_executed_and_delivered() {
        let mut queue = DelayQueue::default();
        assert!(queue.is_idle(at(0)));
        enqueue(&mut queue, 0, 10, 50);
        assert!(!queue.is_idle(at(100)), "not yet executed");
        assert!(queue.next().is_some());
        assert!(!queue.is_idle(at(100)), "perhaps being executed");
        assert!(queue.next().is_none());
        assert!(!queue.is_idle(at(59)), "not yet delivered");
        assert!(queue.is_idle(at(60)));
    }

    #[test]
    fn a_queue_asks_for_one_driver_at_a_time() {
        let mut queue = DelayQueue::default();
        let mut needs_driver = || queue.enqueue(Chain::new(), Fate::default(), at(0)).2;
        assert_eq!([needs_driver(), needs_driver()], [true, false]);
        while queue.next().is_some() {}
        assert!(queue.enqueue(Chain::new(), Fate::default(), at(0)).2);
        assert_eq!(queue.abandon().len(), 1);
        assert!(queue.enqueue(Chain::new(), Fate::default(), at(0)).2);
    }
}
