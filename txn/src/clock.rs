//! Where the timestamps of transactions come from: the pool's logical clock, asked for many at a
//! time.
//!
//! ```text
//! transactions that begin --> the next flight --(one at a time)--> [FAA clock, as many as are aboard]
//!                                                                                |
//!                            each has a number of its own  <---------------------+
//! ```
//! A transaction that begins boards the flight that has not left yet. When none is on its way, one
//! of those aboard sends it: a single fetch-and-add brings a number for each. So the clock is asked
//! once a round trip by a node, however many transactions begin there, and nobody is given a number
//! that was fetched before it asked: who begins when another has committed, on whatever node, is
//! later in the order than that one. Numbers that are kept for later would save more, and make
//! their users too late for whatever others did meanwhile.
//!
//! *Cancellation.* Whoever sends a flight and goes away gives it up: those aboard board the next.
//! Their numbers are nobody's. Whoever sends one and is not polled leaves the others waiting; these
//! fetch a number each for themselves when that is overdue.
//!
//! *A clock that is behind.* Pages that are put back from logs into a new pool have stamps, and its
//! clock begins at zero. A transaction that meets a stamp beyond its own is too late and runs
//! again; the stamp is remembered here. What the clock said when it was asked after that is at
//! least the stamp, as that was fetched before, or else the clock is behind, and is moved there.
//! Until that is found, transactions have earlier stamps than some that ended in the old pool. No
//! harm is done: they come to nothing where those have left theirs, and elsewhere no order is to be
//! seen.

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

/// The last stamp that is ever given. So many are far from wrapping, however many are asked for
/// after that.
pub(crate) const LAST: Stamp = Stamp::new(1 << 62);
/// For how long a number is awaited that another fetches: far longer than a round trip.
const OVERDUE: Duration = Duration::from_millis(1);

/// Who has the numbers.
pub(crate) trait Source: Sync {
    /// Moves on by so many, and says what was there before.
    fn advance(&self, by: u64) -> impl Future<Output = Result<u64, EngineError>> + Send;
    /// Moves on to `least`, unless it is there.
    fn raise(&self, least: u64) -> impl Future<Output = Result<(), EngineError>> + Send;
    /// Returns when what was awaited is overdue.
    fn overdue(&self) -> impl Future<Output = ()> + Send;
}

impl Source for Engine {
    async fn advance(&self, by: u64) -> Result<u64, EngineError> {
        self.advance_clock(by).await
    }
    async fn raise(&self, least: u64) -> Result<(), EngineError> {
        self.raise_clock(least).await
    }
    async fn overdue(&self) {
        self.env().sleep(OVERDUE).await;
    }
}

/// The clock, as a node asks it.
pub(crate) struct Clock {
    state: Mutex<State>,
    /// Rung when a flight has ended.
    ended: Doorbell,
    /// The latest stamp that made a transaction too late.
    met: AtomicU64,
}

struct State {
    /// The flight that has not left yet, and how many are aboard.
    next: Arc<Flight>,
    aboard: u64,
    /// One is on its way.
    is_away: bool,
}

/// A request for numbers.
#[derive(Default)]
struct Flight(OnceLock<Outcome>);

#[derive(Clone)]
enum Outcome {
    /// It has brought this number, and those after it.
    Brought(u64),
    Failed(NoStamp),
    /// Who had sent it has gone away.
    GivenUp,
}

/// Why there is no number.
#[derive(Clone, Debug)]
enum NoStamp {
    Engine(EngineError),
    Exhausted,
}

impl From<NoStamp> for TxnError {
    fn from(error: NoStamp) -> Self {
        match error {
            NoStamp::Engine(error) => error.into(),
            NoStamp::Exhausted => Self::OutOfTimestamps { last: LAST.get() },
        }
    }
}

/// A place on a flight.
struct Seat {
    flight: Arc<Flight>,
    place: u64,
}

/// What someone aboard is to do.
enum Turn<'c> {
    Ended(Outcome),
    Sends(Away<'c>),
    Waits,
}

/// A flight on its way.
struct Away<'c> {
    clock: &'c Clock,
    flight: Arc<Flight>,
    aboard: u64,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        // Has an effect only if it has not ended.
        let _ = self.flight.0.set(Outcome::GivenUp);
        self.clock.state.lock().is_away = false;
        self.clock.ended.ring();
    }
}

impl Clock {
    pub(crate) fn new() -> Self {
        let state = State { next: Arc::default(), aboard: 0, is_away: false };
        Self { state: Mutex::new(state), ended: Doorbell::new(), met: AtomicU64::new(0) }
    }

    /// A transaction was too late for this stamp: the clock has passed it, or will have before it
    /// is asked again.
    pub(crate) fn meet(&self, stamp: Stamp) {
        // Relaxed: the retry that is to know of it comes after, in the same task; others may learn
        // of it later.
        self.met.fetch_max(stamp.get(), Ordering::Relaxed);
    }

    /// A stamp that is later than all that were given before, anywhere. One round trip, and the
    /// rest of another's.
    ///
    /// # Errors
    /// [`TxnError::OutOfTimestamps`], and what the engine reports.
    pub(crate) async fn draw(&self, source: &impl Source) -> Result<Stamp, TxnError> {
        let mut seat = self.board();
        let mut is_overdue = false;
        loop {
            let seen = self.ended.count();
            match self.turn(&seat) {
                Turn::Ended(Outcome::Brought(first)) => return Ok(Stamp::new(first + seat.place)),
                Turn::Ended(Outcome::Failed(error)) => return Err(error.into()),
                Turn::Ended(Outcome::GivenUp) => seat = self.board(),
                Turn::Sends(away) => {
                    let fetched = self.fetch(source, away.aboard).await;
                    let outcome = fetched.map_or_else(Outcome::Failed, Outcome::Brought);
                    let _ = away.flight.0.set(outcome);
                }
                Turn::Waits if is_overdue => return Ok(Stamp::new(self.fetch(source, 1).await?)),
                Turn::Waits => is_overdue = !self.until_ended(source, seen).await,
            }
        }
    }

    fn board(&self) -> Seat {
        let mut state = self.state.lock();
        state.aboard += 1;
        Seat { flight: Arc::clone(&state.next), place: state.aboard - 1 }
    }

    fn turn(&self, seat: &Seat) -> Turn<'_> {
        let mut state = self.state.lock();
        if let Some(outcome) = seat.flight.0.get() {
            return Turn::Ended(outcome.clone());
        }
        if state.is_away {
            return Turn::Waits;
        }
        // What has left has ended: the seat is on the next.
        state.is_away = true;
        let (flight, aboard) = (std::mem::take(&mut state.next), std::mem::take(&mut state.aboard));
        Turn::Sends(Away { clock: self, flight, aboard })
    }

    /// Waits until a flight has ended since `seen`; `false` if that is overdue.
    async fn until_ended(&self, source: &impl Source, seen: u64) -> bool {
        let (mut ended, mut overdue) = (pin!(self.ended.wait_past(seen)), pin!(source.overdue()));
        poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => overdue.as_mut().poll(cx).map(|()| false),
        })
        .await
    }

    /// Fetches so many numbers; the first of them.
    async fn fetch(&self, source: &impl Source, count: u64) -> Result<u64, NoStamp> {
        // Before the clock is asked: whatever was met was fetched earlier than that.
        let met = self.met.load(Ordering::Relaxed);
        let mut passed = source.advance(count).await.map_err(NoStamp::Engine)?;
        if passed < met {
            tracing::warn!(
                clock = passed,
                stamp = met,
                "the clock is behind the pages, and moved on"
            );
            source.raise(met).await.map_err(NoStamp::Engine)?;
            passed = source.advance(count).await.map_err(NoStamp::Engine)?;
        }
        let last = passed.checked_add(count).filter(|last| *last <= LAST.get());
        last.map(|_| passed + 1).ok_or(NoStamp::Exhausted)
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

    impl Source for Slow {
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
    fn one_request_serves_all_who_wait_when_it_is_sent_and_nobody_else() {
        let (clock, slow) = (Clock::new(), Slow::default());
        let mut first = begin(&clock, &slow, 1);
        let mut others = begin(&clock, &slow, 5);
        // Somebody else, elsewhere, begins and ends meanwhile.
        let elsewhere = slow.clock.fetch_add(1, Ordering::Relaxed) + 1;
        slow.answers.store(1, Ordering::Relaxed);
        assert_eq!(drawn(&mut first[0]), 1);
        // One of them sends the next; who comes now waits for the one after.
        assert!(poll(&mut others[2]).is_pending());
        let mut late = begin(&clock, &slow, 1);
        slow.answers.store(3, Ordering::Relaxed);
        assert!(poll(&mut others[0]).is_pending(), "it is not theirs to end it");
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
    fn nobody_waits_for_one_who_went_away() {
        let (clock, slow) = (Clock::new(), Slow::default());
        let sends = begin(&clock, &slow, 1);
        let mut others = begin(&clock, &slow, 3);
        let aboard = others.remove(1);
        drop(sends);
        drop(aboard);
        // Those who were to come with the next one send it, with a number for nobody.
        slow.answers.store(9, Ordering::Relaxed);
        assert_eq!([drawn(&mut others[1]), drawn(&mut others[0])], [4, 2]);
        assert_eq!(*slow.asked.lock(), [1, 3]);
        // The same for those who are aboard of what was sent.
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
    fn nobody_waits_long_for_one_who_does_not_go_on() {
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
    fn a_failure_is_told_to_all_aboard_and_not_remembered() {
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
    fn a_clock_that_is_behind_is_moved_and_one_that_is_not_is_left_alone() {
        let (clock, slow) = (Clock::new(), Slow::default());
        slow.answers.store(99, Ordering::Relaxed);
        let draw = || {
            let mut draw: Draw<'_> = Box::pin(clock.draw(&slow));
            drawn(&mut draw)
        };
        assert_eq!(draw(), 1);
        clock.meet(Stamp::new(1));
        assert_eq!(draw(), 2);
        clock.meet(Stamp::new(700));
        assert_eq!([draw(), draw()], [701, 702]);
        assert_eq!(*slow.asked.lock(), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn the_last_stamp_is_the_last_and_far_from_the_end() {
        let (clock, slow) = (Clock::new(), Slow::default());
        slow.answers.store(99, Ordering::Relaxed);
        slow.clock.store(LAST.get() - 1, Ordering::Relaxed);
        let draw = || {
            let mut draw: Draw<'_> = Box::pin(clock.draw(&slow));
            poll(&mut draw)
        };
        assert!(matches!(draw(), Poll::Ready(Ok(last)) if last == LAST.get()));
        for _ in 0..3 {
            let Poll::Ready(Err(error)) = draw() else { panic!("a stamp beyond the last") };
            assert!(matches!(error, TxnError::OutOfTimestamps { .. }) && !error.is_retryable());
        }
        // Also where a stamp is what says so.
        slow.clock.store(0, Ordering::Relaxed);
        clock.meet(LAST);
        assert!(matches!(draw(), Poll::Ready(Err(TxnError::OutOfTimestamps { .. }))));
    }
}
