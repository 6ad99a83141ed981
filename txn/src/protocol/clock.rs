//! The source of timestamps: the pool's logical clock, which gives a batch of stamps at a time.
//!
//! ```text
//! transactions that begin --> the next batch --(one at a time)--> [FAA clock, one for each]
//!                                                                            |
//!                            each has a stamp of its own  <------------------+
//! ```
//! A transaction that needs a stamp joins the batch that has not been sent yet. When no batch is
//! under way, one of its members sends it: a single fetch-and-add brings a stamp for each. So a
//! node asks the clock once a round trip, however many transactions begin there, and no transaction
//! gets a stamp that was fetched before it asked: one that begins after another has committed, on
//! any node, is later in the order. Stamps kept for later would save more round trips, but make
//! their users too late for all changes meanwhile.
//!
//! *Cancellation.* A sender that is dropped abandons its batch: the members join the next one.
//! Their stamps are used by no transaction. A sender that is not polled leaves the others waiting;
//! each of them fetches a stamp for itself when the batch is overdue.
//!
//! *A clock that is behind.* Pages that are rebuilt from logs in a new pool have stamps. Its clock
//! begins behind those of changes, but not of reads. A transaction that observes a stamp beyond its
//! own is too late and runs again; the observed stamp is remembered here. A clock that was asked
//! after that must be at least at the stamp, as the stamp was fetched before; else the clock is
//! behind, and is moved there. Until then, transactions have earlier stamps than some that ended in
//! the old pool. That does no harm: they fail where those have left their stamps, and elsewhere no
//! order is visible.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_btree::Stamp;
use selkie_engine::{Engine, EngineError};
use selkie_fabric::Doorbell;

use crate::error::TxnError;

/// The last stamp that is ever given: far from wrapping, however many are asked for after it.
pub(crate) const LAST_STAMP: Stamp = Stamp::new(1 << 62);
/// How long a member waits for a batch that another sends: far longer than a round trip.
const BATCH_OVERDUE: Duration = Duration::from_millis(1);

/// The counter behind the clock.
pub(crate) trait StampSource: Sync {
    /// Adds to the counter, and returns what it was before.
    fn advance(&self, by: u64) -> impl Future<Output = Result<u64, EngineError>> + Send;
    /// Moves the counter to `least`, unless it is there already.
    fn raise(&self, least: u64) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Returns when a batch is overdue that is awaited from now on.
    fn overdue(&self) -> impl Future<Output = ()> + Send;
}

impl StampSource for Engine {
    async fn advance(&self, by: u64) -> Result<u64, EngineError> {
        self.advance_clock(by).await
    }
    async fn raise(&self, least: u64) -> Result<(), EngineError> {
        self.raise_clock(least).await
    }
    async fn overdue(&self) {
        self.env().sleep(BATCH_OVERDUE).await;
    }
}

/// A node's access to the clock.
pub(crate) struct Clock {
    batches: Mutex<BatchQueue>,
    /// Rung when a batch has ended.
    ended: Doorbell,
    /// The latest stamp that made a transaction too late.
    observed: AtomicU64,
}

struct BatchQueue {
    /// The batch that has not been sent yet, and how many have joined it.
    next: Arc<StampBatch>,
    members: u64,
    /// A batch is under way.
    is_fetching: bool,
}

/// A request for stamps; set when it has ended.
#[derive(Default)]
struct StampBatch(OnceLock<BatchOutcome>);

#[derive(Clone)]
enum BatchOutcome {
    /// The first stamp; the others follow it.
    Fetched(u64),
    Failed(StampError),
    /// The sender was dropped.
    Abandoned,
}

/// Why there is no stamp.
#[derive(Clone, Debug)]
enum StampError {
    Engine(EngineError),
    Exhausted,
}

impl From<StampError> for TxnError {
    fn from(error: StampError) -> Self {
        match error {
            StampError::Engine(error) => error.into(),
            StampError::Exhausted => Self::OutOfTimestamps { last: LAST_STAMP.get() },
        }
    }
}

/// Membership in a batch.
struct BatchTicket {
    batch: Arc<StampBatch>,
    /// Which of the batch's stamps is the member's.
    offset: u64,
}

/// What a member has to do next.
enum MemberAction<'c> {
    Finish(BatchOutcome),
    Send(BatchSender<'c>),
    Wait,
}

/// A batch under way, held by the member that sends it.
struct BatchSender<'c> {
    clock: &'c Clock,
    batch: Arc<StampBatch>,
    members: u64,
}

impl BatchSender<'_> {
    /// Ends the batch, if it has not ended.
    fn end(&self, outcome: BatchOutcome) {
        // The first outcome counts: a sender that is dropped after its answer abandons nothing.
        let _ = self.batch.0.set(outcome);
    }
}

impl Drop for BatchSender<'_> {
    fn drop(&mut self) {
        self.end(BatchOutcome::Abandoned);
        self.clock.batches.lock().is_fetching = false;
        self.clock.ended.ring();
    }
}

impl Clock {
    pub(crate) fn new() -> Self {
        let batches = BatchQueue { next: Arc::default(), members: 0, is_fetching: false };
        Self { batches: Mutex::new(batches), ended: Doorbell::new(), observed: AtomicU64::new(0) }
    }

    /// A transaction was too late for this stamp: the clock has passed it, or will have before it
    /// is asked again.
    pub(crate) fn observe(&self, stamp: Stamp) {
        // Relaxed: the retry that relies on it comes after, in the same task; others may learn of
        // it later.
        self.observed.fetch_max(stamp.get(), Ordering::Relaxed);
    }

    /// A stamp that is later than all that were given before, on any node. One round trip, after
    /// the rest of the batch that is under way.
    ///
    /// # Errors
    /// [`TxnError::OutOfTimestamps`], and what the engine reports.
    pub(crate) async fn draw(&self, source: &impl StampSource) -> Result<Stamp, TxnError> {
        let mut ticket = self.join_batch();
        let mut is_overdue = false;
        loop {
            let seen = self.ended.count();
            match self.next_action(&ticket) {
                MemberAction::Finish(BatchOutcome::Fetched(first)) => {
                    return Ok(Stamp::new(first + ticket.offset));
                }
                MemberAction::Finish(BatchOutcome::Failed(error)) => return Err(error.into()),
                MemberAction::Finish(BatchOutcome::Abandoned) => ticket = self.join_batch(),
                MemberAction::Send(sender) => {
                    let fetched = self.fetch(source, sender.members).await;
                    sender.end(fetched.map_or_else(BatchOutcome::Failed, BatchOutcome::Fetched));
                }
                MemberAction::Wait if is_overdue => {
                    return Ok(Stamp::new(self.fetch(source, 1).await?));
                }
                MemberAction::Wait => is_overdue = !self.wait_past(source, seen).await,
            }
        }
    }

    fn join_batch(&self) -> BatchTicket {
        let mut batches = self.batches.lock();
        batches.members += 1;
        BatchTicket { batch: Arc::clone(&batches.next), offset: batches.members - 1 }
    }

    fn next_action(&self, ticket: &BatchTicket) -> MemberAction<'_> {
        let mut batches = self.batches.lock();
        if let Some(outcome) = ticket.batch.0.get() {
            return MemberAction::Finish(outcome.clone());
        }
        if batches.is_fetching {
            return MemberAction::Wait;
        }
        // Every batch that was sent has ended: the ticket is for the next one.
        batches.is_fetching = true;
        let batch = std::mem::take(&mut batches.next);
        let members = std::mem::take(&mut batches.members);
        MemberAction::Send(BatchSender { clock: self, batch, members })
    }

    /// Waits until a batch has ended since `seen`; `false` if that is overdue.
    async fn wait_past(&self, source: &impl StampSource, seen: u64) -> bool {
        let (mut ended, mut overdue) = (pin!(self.ended.wait_past(seen)), pin!(source.overdue()));
        poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => overdue.as_mut().poll(cx).map(|()| false),
        })
        .await
    }

    /// Fetches so many stamps; the first of them.
    async fn fetch(&self, source: &impl StampSource, count: u64) -> Result<u64, StampError> {
        // Before the clock is asked: every observed stamp was fetched earlier than that.
        let observed = self.observed.load(Ordering::Relaxed);
        let mut passed = source.advance(count).await.map_err(StampError::Engine)?;
        if passed < observed {
            tracing::warn!(
                clock = passed,
                stamp = observed,
                "the clock is behind the pages, and moved on"
            );
            source.raise(observed).await.map_err(StampError::Engine)?;
            passed = source.advance(count).await.map_err(StampError::Engine)?;
        }
        let last = passed.checked_add(count).filter(|last| *last <= LAST_STAMP.get());
        last.map(|_| passed + 1).ok_or(StampError::Exhausted)
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    /// A clock whose answers come when the test says so.
    #[derive(Default)]
    struct Slow {
        clock: AtomicU64,
        asked: Mutex<Vec<u64>>,
        answers: AtomicU64,
        is_overdue: AtomicU64,
        fails: AtomicU64,
    }

    impl StampSource for Slow {
        async fn advance(&self, by: u64) -> Result<u64, EngineError> {
            self.asked.lock().push(by);
            let number = self.asked.lock().len() as u64;
            // It takes place on the way.
            let before = self.clock.fetch_add(by, Ordering::Relaxed);
            poll_fn(|_| match self.answers.load(Ordering::Relaxed) >= number {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            match self.fails.load(Ordering::Relaxed) {
                0 => Ok(before),
                _ => Err(EngineError::Closed),
            }
        }
        async fn raise(&self, least: u64) -> Result<(), EngineError> {
            self.clock.fetch_max(least, Ordering::Relaxed);
            Ok(())
        }
        async fn overdue(&self) {
            poll_fn(|_| match self.is_overdue.load(Ordering::Relaxed) {
                0 => Poll::Pending,
                _ => Poll::Ready(()),
            })
            .await;
        }
    }

    type Draw<'c> = std::pin::Pin<Box<dyn Future<Output = Result<Stamp, TxnError>> + 'c>>;

    fn poll(draw: &mut Draw<'_>) -> Poll<Result<u64, TxnError>> {
        let polled = draw.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        polled.map(|drawn| drawn.map(Stamp::get))
    }

    fn drawn(draw: &mut Draw<'_>) -> u64 {
        let Poll::Ready(Ok(stamp)) = poll(draw) else { panic!("no stamp") };
        stamp
    }

    fn begin<'c>(clock: &'c Clock, slow: &'c Slow, count: usize) -> Vec<Draw<'c>> {
        let mut draws: Vec<Draw<'_>> = Vec::new();
        for _ in 0..count {
            draws.push(Box::pin(clock.draw(slow)));
        }
        draws.iter_mut().for_each(|draw| assert!(poll(draw).is_pending()));
        draws
    }

    #[test]
    fn one_request_serves_exactly_the_members_that_joined_before_it() {
        let (clock, slow) = (Clock::new(), Slow::default());
        let mut first = begin(&clock, &slow, 1);
        let mut others = begin(&clock, &slow, 5);
        // A transaction of another node begins and ends meanwhile.
        let elsewhere = slow.clock.fetch_add(1, Ordering::Relaxed) + 1;
        slow.answers.store(1, Ordering::Relaxed);
        assert_eq!(drawn(&mut first[0]), 1);
        // One of them sends the next batch; a later one joins the batch after that.
        assert!(poll(&mut others[2]).is_pending());
        let mut late = begin(&clock, &slow, 1);
        slow.answers.store(3, Ordering::Relaxed);
        assert!(poll(&mut others[0]).is_pending(), "another member sends it");
        let mut stamps = vec![drawn(&mut others[2])];
        for number in [0, 1, 3, 4] {
            stamps.push(drawn(&mut others[number]));
        }
        stamps.sort_unstable();
        assert_eq!(stamps, [3, 4, 5, 6, 7]);
        assert!(elsewhere < stamps[0], "which came after it");
        assert_eq!(drawn(&mut late[0]), 8);
        assert_eq!(*slow.asked.lock(), [1, 5, 1]);
    }

    #[test]
    fn an_abandoned_batch_is_joined_anew() {
        let (clock, slow) = (Clock::new(), Slow::default());
        let sends = begin(&clock, &slow, 1);
        let mut others = begin(&clock, &slow, 3);
        let member = others.remove(1);
        drop(sends);
        drop(member);
        // The members of the next batch send it, with one stamp unused.
        slow.answers.store(9, Ordering::Relaxed);
        assert_eq!([drawn(&mut others[1]), drawn(&mut others[0])], [4, 2]);
        assert_eq!(*slow.asked.lock(), [1, 3]);
        // The same for members of a batch that was sent.
        slow.answers.store(2, Ordering::Relaxed);
        let mut waits = begin(&clock, &slow, 1);
        let mut two = begin(&clock, &slow, 2);
        slow.answers.store(3, Ordering::Relaxed);
        assert_eq!(drawn(&mut waits[0]), 5);
        assert!(poll(&mut two[0]).is_pending(), "on its way");
        drop(two.remove(0));
        slow.answers.store(9, Ordering::Relaxed);
        assert_eq!(drawn(&mut two[0]), 8);
        assert_eq!(*slow.asked.lock(), [1, 3, 1, 2, 1]);
    }

    #[test]
    fn members_of_an_overdue_batch_fetch_their_own_stamps() {
        let (clock, slow) = (Clock::new(), Slow::default());
        let sends = begin(&clock, &slow, 1);
        let mut waits = begin(&clock, &slow, 1);
        slow.is_overdue.store(1, Ordering::Relaxed);
        slow.answers.store(9, Ordering::Relaxed);
        assert_eq!(drawn(&mut waits[0]), 2);
        drop(sends);
        slow.is_overdue.store(0, Ordering::Relaxed);
        let mut next: Vec<Draw<'_>> = vec![Box::pin(clock.draw(&slow))];
        assert!(drawn(&mut next[0]) > 2);
    }

    #[test]
    fn a_failure_reaches_all_members_and_is_not_remembered() {
        let (clock, slow) = (Clock::new(), Slow::default());
        let mut first = begin(&clock, &slow, 1);
        let mut others = begin(&clock, &slow, 2);
        slow.answers.store(1, Ordering::Relaxed);
        assert_eq!(drawn(&mut first[0]), 1);
        slow.fails.store(1, Ordering::Relaxed);
        slow.answers.store(9, Ordering::Relaxed);
        for draw in &mut others {
            let Poll::Ready(Err(error)) = poll(draw) else { panic!("no error") };
            assert!(matches!(error, TxnError::Engine(EngineError::Closed)), "{error}");
        }
        slow.fails.store(0, Ordering::Relaxed);
        let mut next: Vec<Draw<'_>> = vec![Box::pin(clock.draw(&slow))];
        assert_eq!(drawn(&mut next[0]), 4);
    }

    #[test]
    fn a_clock_that_is_behind_is_moved_and_another_is_not() {
        let (clock, slow) = (Clock::new(), Slow::default());
        slow.answers.store(99, Ordering::Relaxed);
        let draw = || {
            let mut draw: Draw<'_> = Box::pin(clock.draw(&slow));
            drawn(&mut draw)
        };
        assert_eq!(draw(), 1);
        clock.observe(Stamp::new(1));
        assert_eq!(draw(), 2);
        clock.observe(Stamp::new(700));
        assert_eq!([draw(), draw()], [701, 702]);
        assert_eq!(*slow.asked.lock(), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn the_last_stamp_is_the_last_and_far_from_the_end() {
        let (clock, slow) = (Clock::new(), Slow::default());
        slow.answers.store(99, Ordering::Relaxed);
        slow.clock.store(LAST_STAMP.get() - 1, Ordering::Relaxed);
        let draw = || {
            let mut draw: Draw<'_> = Box::pin(clock.draw(&slow));
            poll(&mut draw)
        };
        assert!(matches!(draw(), Poll::Ready(Ok(last)) if last == LAST_STAMP.get()));
        for _ in 0..3 {
            let Poll::Ready(Err(error)) = draw() else { panic!("a stamp beyond the last") };
            assert!(matches!(error, TxnError::OutOfTimestamps { .. }) && !error.is_retryable());
        }
        // Also where a stamp is what says so.
        slow.clock.store(0, Ordering::Relaxed);
        clock.observe(LAST_STAMP);
        assert!(matches!(draw(), Poll::Ready(Err(TxnError::OutOfTimestamps { .. }))));
    }
}
