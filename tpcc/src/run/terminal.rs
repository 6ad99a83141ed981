//! A worker's loop: draws a transaction type, runs it until it completes, and does so again.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::{Env, yield_now};

use super::statistics::Measurements;
use super::tasks::GRACE;
use crate::error::TpccError;
use crate::workload::{Deck, Mix, Random};

/// First stream of the generators of workers' inputs; the loads' have other numbers.
pub(crate) const WORKER_STREAMS: u64 = 1 << 32;

/// Longest sleep before a thinking worker looks whether the run is over.
const NAP: Duration = Duration::from_millis(200);

/// Transactions that a worker takes on at once: few, so that all end at about the same time, and
/// not one by one, which all workers would count in one place.
const BATCH: u64 = 16;

/// Wakes a worker at the end of the run.
#[derive(Default)]
pub(super) struct WorkerWaker(Mutex<Option<Waker>>);

impl WorkerWaker {
    /// Notes whom to wake: mostly the one that is there.
    fn register(&self, own: &Waker) {
        self.0.lock().get_or_insert_with(|| own.clone()).clone_from(own);
    }
}

/// What the workers of a run share.
pub(crate) struct RunControl<K> {
    /// Set when the time is over, or a worker has failed.
    stop: AtomicBool,
    /// A transaction did not end soon after that.
    dropped: AtomicBool,
    workers: Mutex<Vec<Arc<WorkerWaker>>>,
    measurements: Mutex<Measurements<K>>,
    /// Transactions that no worker has taken on as yet, if their number is limited.
    left: Option<AtomicU64>,
    /// Workers that are at work.
    working: AtomicUsize,
    /// When the measurement began, in nanoseconds of the environment's clock. What completes
    /// before does not count.
    began: AtomicU64,
}

impl<K: Mix> RunControl<K> {
    /// Of a run that counts nothing until it is told to, of so many workers and, if that is
    /// limited, transactions.
    pub(super) fn new(workers: usize, transactions: Option<u64>) -> Result<Self, TpccError> {
        let (left, working) = (transactions.map(AtomicU64::new), AtomicUsize::new(workers));
        let (measurements, workers) = (Mutex::new(Measurements::new()?), Mutex::default());
        let (stop, dropped) = (AtomicBool::new(false), AtomicBool::new(false));
        let began = AtomicU64::new(u64::MAX);
        Ok(Self { stop, dropped, workers, measurements, left, working, began })
    }

    /// Counts what completes from then on, by the environment's clock.
    pub(super) fn begin(&self, now: Duration) {
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.began.store(nanos, Ordering::Relaxed);
    }

    /// How long the measurement has run by then; `None` before it begins.
    fn since_begin(&self, now: Duration) -> Option<Duration> {
        now.checked_sub(Duration::from_nanos(self.began.load(Ordering::Relaxed)))
    }

    /// What all workers that are over have measured.
    pub(super) fn take_measurements(&self) -> Result<Measurements<K>, TpccError> {
        Ok(std::mem::replace(&mut *self.measurements.lock(), Measurements::new()?))
    }

    /// Takes transactions for a worker to run; none if all are taken.
    fn take(&self) -> u64 {
        let Some(left) = &self.left else { return u64::MAX };
        let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (left > 0).then_some(left.saturating_sub(BATCH))
        });
        taken.map_or(0, |left| left.min(BATCH))
    }

    /// Transactions that workers have not taken on; `None` if their number is not limited.
    pub(super) fn left(&self) -> Option<u64> {
        self.left.as_ref().map(|left| left.load(Ordering::Relaxed))
    }

    /// A worker has ended. The run ends with the last: there is nothing left to do.
    pub(super) fn worker_ended(&self) {
        if self.working.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop();
        }
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        for worker in &*self.workers.lock() {
            // A caller that registers after this lock sees the end.
            if let Some(waker) = worker.0.lock().take() {
                waker.wake();
            }
        }
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Enters a task that is woken at the end of the run.
    pub(super) fn waker(&self) -> Arc<WorkerWaker> {
        let waker = Arc::new(WorkerWaker::default());
        self.workers.lock().push(Arc::clone(&waker));
        waker
    }

    /// Sleeps for so long, or until the workers are told to stop.
    pub(super) async fn sleep(&self, env: &Env, worker: &WorkerWaker, duration: Duration) {
        let mut sleep = env.sleep(duration);
        poll_fn(|context| {
            worker.register(context.waker());
            if self.stopped() { Poll::Ready(()) } else { sleep.as_mut().poll(context) }
        })
        .await;
    }

    /// Whether a transaction was dropped, as it did not end soon after the run.
    pub(super) fn has_dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionOutcome {
    /// As the benchmark has some of them fail.
    pub failed: bool,
    /// Districts that had nothing to deliver.
    pub skipped: u64,
    /// A page that it needs is lost.
    pub lost: bool,
}

/// What a worker does with the types that it draws.
pub trait Terminal: Send {
    /// The types.
    type TransactionType: Mix;

    /// Transactions after which the worker lets other tasks run. More than one where they are
    /// shorter than a turn of the scheduler.
    const TURN: u64 = 1;

    /// What they are drawn from.
    fn deck(&self) -> Deck<Self::TransactionType> {
        Deck::new()
    }

    /// What it draws them with.
    fn random(&mut self) -> &mut Random;

    /// Runs a transaction to its end, which began then by the environment's clock, and counts the
    /// attempts.
    ///
    /// # Errors
    /// What trying again does not mend. That a page is lost with a node that died is counted, any
    /// other ends the run.
    fn transact(
        &mut self,
        kind: Self::TransactionType,
        started: Duration,
        attempts: &AtomicU64,
    ) -> impl Future<Output = Result<TransactionOutcome, TpccError>> + Send;

    /// How long it waits before a transaction.
    fn keying(&self, _kind: Self::TransactionType) -> Duration {
        Duration::ZERO
    }

    /// How long it waits after one.
    fn thinking(&mut self, _kind: Self::TransactionType) -> Duration {
        Duration::ZERO
    }
}

/// Runs transactions until the control says stop. What commits after that is in no figure; what
/// does not end soon after that is dropped, which rolls it back.
pub(crate) async fn work<T: Terminal>(
    terminal: &mut T,
    env: &Env,
    control: &RunControl<T::TransactionType>,
) -> Result<(), TpccError> {
    let mut measured = Measurements::new()?;
    let mut deck = terminal.deck();
    let waker = control.waker();
    let (mut taken, mut turn) = (0, T::TURN);
    while !control.stopped() {
        if taken == 0 {
            taken = control.take();
        }
        if taken == 0 {
            break;
        }
        taken -= 1;
        let kind = deck.draw(terminal.random());
        pause(env, terminal.keying(kind), control).await;
        if control.stopped() {
            break;
        }
        let attempts = AtomicU64::new(0);
        let started = env.now();
        let ended = {
            // It has the size of some pages, and stays where it is made.
            let transaction = pin!(terminal.transact(kind, started, &attempts));
            until_end(env, control, &waker, transaction).await
        };
        let Some(outcome) = ended else {
            control.dropped.store(true, Ordering::Relaxed);
            break;
        };
        let outcome = match outcome {
            // All that it had changed is as it was, and its latches are free.
            Err(error) if error.lost_page().is_some() => {
                TransactionOutcome { lost: true, ..TransactionOutcome::default() }
            }
            outcome => outcome?,
        };
        let latency = env.now().saturating_sub(started);
        if control.stopped() {
            break;
        }
        if let Some(since_begin) = control.since_begin(env.now()) {
            note(&mut measured, kind, (latency, attempts.into_inner()), since_begin, outcome);
        }
        if outcome.lost {
            yield_now().await;
            continue;
        }
        let thinking = terminal.thinking(kind);
        turn -= 1;
        if !thinking.is_zero() {
            pause(env, thinking, control).await;
        } else if turn == 0 {
            yield_now().await;
        }
        if turn == 0 {
            turn = T::TURN;
        }
    }
    control.measurements.lock().add(&measured)
}

/// Waits for a transaction, but not for long once the run has ended.
async fn until_end<K: Mix, F: Future>(
    env: &Env,
    control: &RunControl<K>,
    worker: &WorkerWaker,
    mut transaction: Pin<&mut F>,
) -> Option<F::Output> {
    let mut grace = None;
    poll_fn(|context| {
        if let Poll::Ready(output) = transaction.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        worker.register(context.waker());
        if !control.stopped() {
            return Poll::Pending;
        }
        grace.get_or_insert_with(|| env.sleep(GRACE)).as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Notes a transaction that ended so long after the beginning.
fn note<K: Mix>(
    measured: &mut Measurements<K>,
    kind: K,
    (latency, attempts): (Duration, u64),
    since_begin: Duration,
    outcome: TransactionOutcome,
) {
    if !outcome.lost {
        measured.count_at(since_begin);
    }
    let Some(stats) = measured.stats_mut(kind) else { return };
    if outcome.lost {
        stats.lost += 1;
        return;
    }
    stats.complete(latency, attempts);
    stats.failed += u64::from(outcome.failed);
    stats.skipped += outcome.skipped;
}

/// Sleeps, but not beyond the end of the run.
async fn pause<K: Mix>(env: &Env, duration: Duration, control: &RunControl<K>) {
    if duration.is_zero() {
        return;
    }
    let end = env.now() + duration;
    loop {
        let left = end.saturating_sub(env.now());
        if left.is_zero() || control.stopped() {
            return;
        }
        env.sleep(left.min(NAP)).await;
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::sim::{World, WorldConfig};

    use super::*;
    use crate::tpcc::TransactionType;

    #[test]
    fn no_more_transactions_are_taken_than_there_are() {
        let control = RunControl::<TransactionType>::new(2, Some(2 * BATCH + 3)).unwrap();
        assert_eq!([(); 5].map(|()| control.take()), [BATCH, BATCH, 3, 0, 0]);
        assert_eq!(control.left(), Some(0));
        control.worker_ended();
        assert!(!control.stopped());
        control.worker_ended();
        assert!(control.stopped(), "no worker is left");
        let control = RunControl::<TransactionType>::new(1, None).unwrap();
        assert_eq!((control.take(), control.left()), (u64::MAX, None));
    }

    /// A transaction that waits for what does not come ends soon after the run; one that ends by
    /// itself is awaited.
    #[test]
    fn a_transaction_that_hangs_does_not_outlast_the_run() {
        let world = World::new(WorldConfig::new(1));
        let env = world.env();
        let main = async {
            let control = RunControl::<TransactionType>::new(1, None).unwrap();
            let control = Arc::new(control);
            let (stops, own) = (Arc::clone(&control), env.clone());
            let stopper = env.spawn("stops", async move {
                own.sleep(Duration::from_secs(5)).await;
                stops.stop();
            });
            let (waker, started) = (Arc::new(WorkerWaker::default()), env.now());
            control.workers.lock().push(Arc::clone(&waker));
            let sleeps = pin!(env.sleep(Duration::from_secs(6)));
            let ended = until_end(&env, &control, &waker, sleeps).await;
            assert_eq!((ended, env.now() - started), (Some(()), Duration::from_secs(6)));
            stopper.join().await.unwrap();
            control.sleep(&env, &waker, Duration::from_secs(6)).await;
            assert_eq!(env.now() - started, Duration::from_secs(6), "the run is over");
            let hangs = pin!(std::future::pending::<()>());
            assert_eq!(until_end(&env, &control, &waker, hangs).await, None);
            assert_eq!(env.now() - started, Duration::from_secs(6) + GRACE);
        };
        world.run(Duration::from_secs(60), main).unwrap();
    }
}
