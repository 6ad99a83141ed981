//! The lane of one queue pair: delayed chains in order, and the way of an outcome to its
//! completion.
//!
//! ```text
//! post --(fate)--> queue --driver: sleep until `execute_at`, execute--> slot --completion: sleep
//!                                                                    until `deliver_at`--> caller
//! ```
//! Both times never decrease along the lane, so chains execute and complete in posting order. The
//! driver is a task that lives while the queue is not empty; it executes whether or not somebody
//! still polls. If the environment drops the driver, everything queued fails with `Stopped`.
//! The queue holds what callers have outstanding, and they bound that.

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

/// A chain that waits to be executed.
pub(crate) struct Job {
    pub(crate) chain: Chain,
    pub(crate) fate: Fate,
    pub(crate) execute_at: Duration,
    pub(crate) promise: Promise,
}

/// What is under way on one queue pair.
#[derive(Default)]
pub(crate) struct Lane {
    queue: VecDeque<Job>,
    /// A driver task exists, or is about to be spawned.
    driven: bool,
    last_execute_at: Duration,
    last_deliver_at: Duration,
}

impl Lane {
    /// Whether a chain posted now has nothing before it to wait for.
    pub(crate) fn is_idle(&self, now: Duration) -> bool {
        !self.driven && self.last_deliver_at <= now
    }

    /// Puts a chain at the end. Returns the other end of its promise, when its outcome may be
    /// delivered, and whether the caller must spawn a driver.
    pub(crate) fn enqueue(
        &mut self,
        chain: Chain,
        fate: Fate,
        now: Duration,
    ) -> (Arc<Slot>, Duration, bool) {
        self.last_execute_at = self.last_execute_at.max(now + fate.outbound);
        self.last_deliver_at = self.last_deliver_at.max(self.last_execute_at + fate.inbound);
        let slot = Arc::new(Slot::default());
        let promise = Promise { slot: Arc::clone(&slot) };
        self.queue.push_back(Job { chain, fate, execute_at: self.last_execute_at, promise });
        let needs_driver = !std::mem::replace(&mut self.driven, true);
        (slot, self.last_deliver_at, needs_driver)
    }

    /// The next chain to execute; without one the driver must end.
    pub(crate) fn next_job(&mut self) -> Option<Job> {
        let job = self.queue.pop_front();
        self.driven = job.is_some();
        job
    }

    /// Everything queued, because the driver ends early.
    pub(crate) fn abandon(&mut self) -> VecDeque<Job> {
        self.driven = false;
        std::mem::take(&mut self.queue)
    }
}

/// Where an outcome waits for its completion to be polled.
#[derive(Default)]
pub(crate) struct Slot(Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    result: Option<ChainResult>,
    /// No result will come any more.
    broken: bool,
    waiter: Option<Waker>,
}

/// The duty to fill a slot.
pub(crate) struct Promise {
    slot: Arc<Slot>,
}

impl Promise {
    pub(crate) fn fill(self, result: ChainResult) {
        self.slot.0.lock().result = Some(result);
        // Dropping `self` wakes the waiter.
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        let waiter = {
            let mut state = self.slot.0.lock();
            state.broken = state.result.is_none();
            state.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// The completion of a chain in a lane.
pub(crate) struct Held<Verdict> {
    pub(crate) slot: Arc<Slot>,
    pub(crate) deliver_at: Duration,
    pub(crate) env: Env,
    pub(crate) peer: PeerId,
    /// Sees every outcome when it is delivered, and may turn it into an error.
    pub(crate) verdict: Verdict,
    pub(crate) sleep: Option<BoxFuture<'static, ()>>,
}

/// What a completion finds in its slot.
enum Found {
    Nothing,
    NotYetDue,
    Due(ChainResult),
}

impl<Verdict: Fn(ChainResult) -> ChainResult> Held<Verdict> {
    /// Takes the outcome if it is there and due. Registers `waker` if it is not there.
    fn look(&self, waker: Option<&Waker>) -> Found {
        let due = self.env.now() >= self.deliver_at;
        let mut state = self.slot.0.lock();
        if state.broken {
            // The driver was dropped in the middle of this chain, and the chain with it.
            let error = FabricError::Stopped { peer: self.peer };
            return Found::Due(Err(Box::new(ChainError {
                chain: Chain::new(),
                executed: 0,
                error,
            })));
        }
        match state.result.take() {
            // In an environment that stopped, nothing is ever due.
            Some(result) if due || has_stopped(&result) => {
                drop(state);
                Found::Due((self.verdict)(result))
            }
            Some(result) => {
                state.result = Some(result);
                Found::NotYetDue
            }
            None => {
                let replaced = waker.and_then(|waker| state.waiter.replace(waker.clone()));
                drop(state);
                drop(replaced);
                Found::Nothing
            }
        }
    }
}

fn has_stopped(result: &ChainResult) -> bool {
    matches!(result, Err(error) if matches!(error.error, FabricError::Stopped { .. }))
}

impl<Verdict> Outstanding for Held<Verdict>
where
    Verdict: Fn(ChainResult) -> ChainResult + Send,
{
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
        loop {
            match self.look(Some(context.waker())) {
                Found::Due(result) => return Poll::Ready(result),
                Found::Nothing => return Poll::Pending,
                Found::NotYetDue => {}
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
        match self.look(None) {
            Found::Due(result) => Some(result),
            Found::NotYetDue | Found::Nothing => None,
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
    fn enqueue(lane: &mut Lane, now: u64, outbound: u64, inbound: u64) -> (Duration, Duration) {
        let fate = Fate { outbound: at(outbound), inbound: at(inbound), ..Fate::default() };
        let (_, deliver_at, _) = lane.enqueue(Chain::new(), fate, at(now));
        (lane.queue.back().unwrap().execute_at, deliver_at)
    }

    #[test]
    fn chains_neither_execute_nor_complete_before_earlier_ones() {
        let mut lane = Lane::default();
        assert_eq!(enqueue(&mut lane, 0, 10, 50), (at(10), at(60)));
        assert_eq!(enqueue(&mut lane, 1, 2, 3), (at(10), at(60)));
        assert_eq!(enqueue(&mut lane, 5, 20, 0), (at(25), at(60)));
        assert_eq!(enqueue(&mut lane, 70, 1, 1), (at(71), at(72)));
    }

    #[test]
    fn a_lane_is_idle_when_everything_is_executed_and_delivered() {
        let mut lane = Lane::default();
        assert!(lane.is_idle(at(0)));
        enqueue(&mut lane, 0, 10, 50);
        assert!(!lane.is_idle(at(100)), "not yet executed");
        assert!(lane.next_job().is_some());
        assert!(!lane.is_idle(at(100)), "perhaps being executed");
        assert!(lane.next_job().is_none());
        assert!(!lane.is_idle(at(59)), "not yet delivered");
        assert!(lane.is_idle(at(60)));
    }

    #[test]
    fn a_lane_asks_for_one_driver_at_a_time() {
        let mut lane = Lane::default();
        let mut needs_driver = || lane.enqueue(Chain::new(), Fate::default(), at(0)).2;
        assert_eq!([needs_driver(), needs_driver()], [true, false]);
        while lane.next_job().is_some() {}
        assert!(lane.enqueue(Chain::new(), Fate::default(), at(0)).2);
        assert_eq!(lane.abandon().len(), 1);
        assert!(lane.enqueue(Chain::new(), Fate::default(), at(0)).2);
    }
}
