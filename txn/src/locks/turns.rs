//! Turns of the transactions of one node at rows that many of them change.
//!
//! Where transactions are optimistic, of two that change one row at the same time one is in vain,
//! and finds out when it commits. So they take turns at such rows: one that is about to read a row
//! to change it waits until the one before it has ended. That is advice, and nothing depends on it:
//! rows are validated as before, other nodes know nothing of it, and a transaction that has had its
//! turn for [`TURN_LASTS`] loses it to the one that has waited longest.
//!
//! A row becomes *hot* when a transaction is refused because it has changed, and cools down as
//! turns at it pass for which none waits. At other rows there are no turns, and this costs a look
//! at a byte.
//!
//! These take no turns, and go on without:
//! - a transaction that has locked a row waits for none;
//! - one waits for none where the turns would wait for each other in a circle;
//! - one that has read the row already, or sees a snapshot, does not see what it would wait for;
//! - one of a [`Session`](crate::Session) would have it between its operations, when its client
//!   thinks.
//!
//! Other nodes are kept from the page of such a row for about as long as transactions with turns
//! last, so that what this node has read there is not changed elsewhere meanwhile. That, too, is
//! bounded, and nothing is latched. It is of the page, and turns are of rows: the first transaction
//! with a turn at a row of the page that ends lets others have it. So does one whose commit waits
//! for a latch, as the node that has that latch may wait for the page.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;

use crate::locks::wait_counts::WaitCounts;
use crate::stats::TxnStats;

/// After so long a turn goes over to the one that has waited longest.
const TURN_LASTS: Duration = Duration::from_millis(50);

/// Rows share a temperature if their names are equal in so many bits.
const TEMPERATURE_BITS: u32 = 12;

/// Turns without a waiter after which a row is not hot any more.
const HOT: u8 = 64;

/// Transactions looked at to find a circle.
const LONGEST_CIRCLE: usize = 16;

/// The turns of a node.
pub(crate) struct Turns {
    temperatures: Box<[AtomicU8]>,
    rows: Mutex<HotRows>,
    /// How long transactions with turns last, nanoseconds.
    typical: AtomicU64,
    /// Turns that were waited for.
    waits: WaitCounts,
    /// Turns that were lost as they lasted too long.
    lost: AtomicU64,
    /// Waits that were not begun, as they would have closed a circle.
    circles: AtomicU64,
}

/// A hash of a tree and a key. Rows with the same one take turns together.
pub(crate) type RowName = u64;

/// Who has turns, and who waits for them.
#[derive(Default)]
struct HotRows {
    turns: HashMap<RowName, Turn>,
    /// The row that a transaction waits at.
    waits: HashMap<u64, RowName>,
}

/// Whose turn it is at one row.
struct Turn {
    owner: u64,
    /// When the owner got it.
    since: Duration,
    /// Who waits for it, the first one longest.
    waiters: VecDeque<(u64, Waker)>,
}

/// What becomes of a transaction that asks for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Has,
    Waits,
    GoesOnWithout,
}

impl HotRows {
    /// Whether a transaction would wait for itself at a row.
    fn is_circle(&self, name: RowName, owner: u64) -> bool {
        let mut at = Some(name);
        for _ in 0..LONGEST_CIRCLE {
            let Some(turn) = at.and_then(|name| self.turns.get(&name)) else { return false };
            if turn.owner == owner {
                return true;
            }
            at = self.waits.get(&turn.owner).copied();
        }
        true
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            temperatures: (0..1 << TEMPERATURE_BITS).map(|_| AtomicU8::new(0)).collect(),
            rows: Mutex::default(),
            typical: AtomicU64::new(0),
            waits: WaitCounts::default(),
            lost: AtomicU64::new(0),
            circles: AtomicU64::new(0),
        }
    }
}

impl Turns {
    /// Whether transactions take turns at a row.
    #[inline]
    pub(crate) fn is_hot(&self, name: RowName) -> bool {
        self.temperature(name).load(Ordering::Relaxed) > 0
    }

    /// Notes that a transaction was refused because of a row.
    pub(crate) fn heat(&self, name: RowName) {
        self.temperature(name).store(HOT, Ordering::Relaxed);
    }

    /// How long transactions with turns last.
    pub(super) fn typical(&self) -> Duration {
        Duration::from_nanos(self.typical.load(Ordering::Relaxed))
    }

    pub(super) fn note_length(&self, length: Duration) {
        let typical = self.typical.load(Ordering::Relaxed);
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX / 8);
        self.typical.store(typical - typical / 8 + length / 8, Ordering::Relaxed);
    }

    fn cool(&self, name: RowName) {
        let cooler = |temperature: u8| temperature.checked_sub(1);
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.temperature(name).fetch_update(set, read, cooler);
    }

    #[expect(clippy::indexing_slicing, reason = "there is one for each value of so many bits")]
    fn temperature(&self, name: RowName) -> &AtomicU8 {
        &self.temperatures[(name >> (u64::BITS - TEMPERATURE_BITS)) as usize]
    }

    /// Takes a turn if it is free, or begins to wait for it if the transaction `may_wait`.
    fn ask(&self, now: Duration, name: RowName, owner: u64, may_wait: bool) -> Asked {
        let mut rows = self.rows.lock();
        let free = || Turn { owner, since: now, waiters: VecDeque::new() };
        if rows.turns.entry(name).or_insert_with(free).owner == owner {
            return Asked::Has;
        }
        if !may_wait {
            return Asked::GoesOnWithout;
        }
        if rows.is_circle(name, owner) {
            // Relaxed, as for those below: counters.
            self.circles.fetch_add(1, Ordering::Relaxed);
            return Asked::GoesOnWithout;
        }
        if let Some(turn) = rows.turns.get_mut(&name) {
            turn.waiters.push_back((owner, Waker::noop().clone()));
        }
        rows.waits.insert(owner, name);
        Asked::Waits
    }

    /// How long one that waits has to, still: nothing if it has the turn, or takes it, because the
    /// owner has had it for too long and none has waited longer.
    fn left(&self, now: Duration, name: RowName, owner: u64, waker: &Waker) -> Duration {
        let mut rows = self.rows.lock();
        let Some(turn) = rows.turns.get_mut(&name).filter(|turn| turn.owner != owner) else {
            return Duration::ZERO;
        };
        let left = (turn.since + TURN_LASTS).saturating_sub(now);
        if left.is_zero() && turn.waiters.front().is_some_and(|(first, _)| *first == owner) {
            (turn.owner, turn.since) = (owner, now);
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Duration::ZERO;
        }
        if let Some((_, waiting)) = turn.waiters.iter_mut().find(|(waiter, _)| *waiter == owner) {
            waiting.clone_from(waker);
        }
        // Those before it take it one after the other.
        if left.is_zero() { TURN_LASTS } else { left }
    }

    /// Takes a turn, when the transactions before have ended or theirs has lasted too long. Whether
    /// the transaction has it: it goes on without if it may not wait, or the turns would wait for
    /// each other.
    pub(super) async fn take(&self, env: &Env, name: RowName, owner: u64, may_wait: bool) -> bool {
        match self.ask(env.now(), name, owner, may_wait) {
            Asked::Has => return true,
            Asked::GoesOnWithout => return false,
            Asked::Waits => {}
        }
        let _counted = self.waits.begin(env);
        let mut waiter = Waiter { turns: self, env, name, owner, has_taken: false };
        let mut timer = None;
        poll_fn(|cx| {
            loop {
                let left = self.left(env.now(), name, owner, cx.waker());
                if left.is_zero() {
                    return Poll::Ready(());
                }
                ready!(timer.get_or_insert_with(|| env.sleep(left)).as_mut().poll(cx));
                timer = None;
            }
        })
        .await;
        waiter.has_taken = true;
        true
    }

    /// What became of those who asked for turns.
    pub(crate) fn add_to(&self, stats: &mut TxnStats) {
        stats.turn_waits += self.waits.waits();
        stats.turn_wait_time += self.waits.waited();
        stats.turns_lost += self.lost.load(Ordering::Relaxed);
        stats.turn_circles += self.circles.load(Ordering::Relaxed);
    }

    /// Gives a turn to the next one that waits, if the owner has it still.
    pub(super) fn pass_on(&self, now: Duration, name: RowName, owner: u64) {
        let mut rows = self.rows.lock();
        let Some(turn) = rows.turns.get_mut(&name).filter(|turn| turn.owner == owner) else {
            return;
        };
        match turn.waiters.pop_front() {
            Some((next, waker)) => {
                (turn.owner, turn.since) = (next, now);
                // It waits no more, though it was not polled yet.
                rows.waits.remove(&next);
                drop(rows);
                self.heat(name);
                waker.wake();
            }
            None => {
                rows.turns.remove(&name);
                drop(rows);
                self.cool(name);
            }
        }
    }
}

/// A wait that may be dropped.
struct Waiter<'t> {
    turns: &'t Turns,
    env: &'t Env,
    name: RowName,
    owner: u64,
    has_taken: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut rows = self.turns.rows.lock();
        rows.waits.remove(&self.owner);
        if let Some(turn) = rows.turns.get_mut(&self.name) {
            turn.waiters.retain(|(waiter, _)| *waiter != self.owner);
        }
        drop(rows);
        if !self.has_taken {
            // It may have come to it unseen.
            self.turns.pass_on(self.env.now(), self.name, self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;

    use selkie_fabric::RealRuntime;

    use super::*;

    const ROW: RowName = 7 << 60 | 3;

    /// Gives a turn back when it is dropped.
    struct Held<'t>(&'t Turns, &'t Env, u64);

    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.pass_on(self.1.now(), ROW, self.2);
        }
    }

    async fn take<'t>(turns: &'t Turns, env: &'t Env, owner: u64) -> Held<'t> {
        assert!(turns.take(env, ROW, owner, true).await);
        Held(turns, env, owner)
    }

    /// What is there once all turns are given back.
    fn assert_empty(turns: &Turns) {
        let rows = turns.rows.lock();
        assert!(rows.turns.is_empty() && rows.waits.is_empty());
    }

    #[test]
    fn turns_are_had_in_the_order_of_asking_also_past_one_that_gives_up() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, turns) = (runtime.env(), Arc::new(Turns::default()));
        let order = Arc::new(Mutex::new(Vec::new()));
        runtime.block_on(async {
            let first = take(&turns, &env, 0).await;
            let mut tasks = Vec::new();
            for number in 1..=4_u64 {
                let (turns, order, own) = (Arc::clone(&turns), Arc::clone(&order), env.clone());
                tasks.push(env.spawn("waiter", async move {
                    let mut waits = Box::pin(take(&turns, &own, number));
                    if number == 2 {
                        // Dropped while it waits.
                        assert!(!is_ready(&mut waits).await);
                        return;
                    }
                    let held = waits.await;
                    order.lock().push(number);
                    own.sleep(Duration::from_millis(1)).await;
                    drop(held);
                }));
                env.sleep(Duration::from_millis(1)).await;
            }
            drop(first);
            for task in tasks {
                task.join().await.unwrap();
            }
        });
        assert_eq!(*order.lock(), [1, 3, 4]);
        assert_empty(&turns);
    }

    #[test]
    fn a_waiter_that_is_dropped_when_its_turn_has_come_passes_it_on() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, turns) = (runtime.env(), Turns::default());
        runtime.block_on(async {
            let first = take(&turns, &env, 1).await;
            let mut second = Box::pin(take(&turns, &env, 2));
            let mut third = Box::pin(take(&turns, &env, 3));
            assert!(!is_ready(&mut second).await && !is_ready(&mut third).await);
            drop(first);
            // It was woken, and is not polled any more.
            drop(second);
            let held = third.await;
            assert_eq!(held.2, 3);
        });
        assert_empty(&turns);
    }

    /// Polls once.
    async fn is_ready<F: Future>(future: &mut Pin<Box<F>>) -> bool {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
    }

    #[test]
    fn a_turn_that_lasts_too_long_goes_over_and_is_not_given_back_twice() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, turns) = (runtime.env(), Turns::default());
        runtime.block_on(async {
            let idle = take(&turns, &env, 1).await;
            let since = env.now();
            let next = take(&turns, &env, 2).await;
            assert!(env.now() - since >= TURN_LASTS);
            drop(idle);
            // It is the turn of the second still.
            assert_eq!(turns.ask(env.now(), ROW, 3, false), Asked::GoesOnWithout);
            drop(next);
        });
        assert_empty(&turns);
    }

    #[test]
    fn a_turn_that_has_just_come_is_not_taken_by_those_that_have_waited_long() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, turns) = (runtime.env(), Turns::default());
        runtime.block_on(async {
            for is_given_on in [true, false] {
                let first = take(&turns, &env, 1).await;
                let mut second = Box::pin(take(&turns, &env, 2));
                let mut third = Box::pin(take(&turns, &env, 3));
                assert!(!is_ready(&mut second).await && !is_ready(&mut third).await);
                env.sleep(TURN_LASTS / 4 * 3).await;
                let since = env.now();
                let first = Some(first).filter(|_| !is_given_on);
                let second = second.await;
                drop(third.await);
                assert!(env.now() - since >= TURN_LASTS, "given on: {is_given_on}");
                drop((first, second));
            }
        });
        assert_empty(&turns);
    }

    #[test]
    fn none_waits_in_a_circle() {
        let (turns, now) = (Turns::default(), Duration::ZERO);
        let names = [ROW, ROW + 1, ROW + 2];
        for (owner, name) in names.into_iter().enumerate() {
            assert_eq!(turns.ask(now, name, owner as u64, true), Asked::Has);
        }
        // 0 waits for 1, which waits for 2.
        assert_eq!(turns.ask(now, names[1], 0, true), Asked::Waits);
        assert_eq!(turns.ask(now, names[2], 1, true), Asked::Waits);
        assert_eq!(turns.ask(now, names[0], 2, true), Asked::GoesOnWithout);
        assert_eq!(turns.ask(now, names[1], 2, true), Asked::GoesOnWithout);
        assert_eq!(turns.ask(now, names[0], 3, true), Asked::Waits);
        assert_eq!(turns.ask(now, names[2], 2, true), Asked::Has);
    }

    /// Before it is polled again a newcomer took its wait, which is over, for a circle.
    #[test]
    fn one_whose_turn_has_come_is_waited_for() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, turns) = (runtime.env(), Turns::default());
        runtime.block_on(async {
            let first = take(&turns, &env, 1).await;
            let mut second = Box::pin(take(&turns, &env, 2));
            assert!(!is_ready(&mut second).await);
            drop(first);
            let mut third = Box::pin(take(&turns, &env, 3));
            assert!(!is_ready(&mut third).await);
            drop(second.await);
            drop(third.await);
        });
        assert_empty(&turns);
    }

    #[test]
    fn rows_cool_down_while_none_waits() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, turns) = (runtime.env(), Turns::default());
        runtime.block_on(async {
            assert!(!turns.is_hot(ROW));
            turns.heat(ROW);
            for number in 0..u64::from(HOT) {
                assert!(turns.is_hot(ROW) && !turns.is_hot(!ROW));
                drop(take(&turns, &env, number).await);
            }
            assert!(!turns.is_hot(ROW));
        });
    }
}
