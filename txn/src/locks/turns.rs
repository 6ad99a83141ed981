//! Turns of the transactions of one node at rows that many of them change.
//!
//! Where transactions are optimistic, of two that change one row at the same time one is in vain,
//! and finds out when it commits. So they take turns at such rows: one that is about to read a row
//! to change it waits until the one before it has ended. That is advice, and nothing depends on it:
//! rows are validated as before, other nodes know nothing of it, and a transaction that takes long
//! loses its turn to the one that has waited [`TURN_LASTS`].
//!
//! A row becomes *hot* when a transaction is refused because it has changed, and cools down as
//! turns at it pass for which none waits. At other rows there are no turns, and this costs a look
//! at a byte.
//!
//! A transaction that has locked a row waits for no turn, and none waits where the turns would wait
//! for each other in a circle: it goes on without. One that idles between operations has no turns.
//!
//! Other nodes are kept from the page of such a row for about as long as transactions with turns
//! last, so that what this node has read there is not changed elsewhere meanwhile. That, too, is
//! bounded, and nothing is latched.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, GAddr, SharedGuard};
use selkie_fabric::env::Env;

/// After so long a turn goes over to one that waits.
const TURN_LASTS: Duration = Duration::from_millis(50);

/// A page is held for a row no longer than this.
const LONGEST_HOLD: Duration = Duration::from_millis(2);

/// Rows share a temperature if their names are equal in so many bits.
const TEMPERATURE_BITS: u32 = 12;

/// Turns without a waiter after which a row is not hot any more.
const HOT: u8 = 64;

/// Most turns of one transaction: one that changes many rows is not one of many at each.
const MOST_TURNS: usize = 16;

/// Transactions looked at to find a circle.
const LONGEST_CIRCLE: usize = 16;

/// The turns of a node.
pub(crate) struct Turns {
    temperatures: Box<[AtomicU8]>,
    rows: Mutex<HotRows>,
    /// How long transactions with turns last, nanoseconds.
    typical: AtomicU64,
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
    /// Who waits for it, the first one longest.
    waiters: VecDeque<(u64, Waker)>,
}

impl HotRows {
    /// The turn at a row, which is of `owner` if it is of no other.
    fn turn(&mut self, name: RowName, owner: u64) -> &mut Turn {
        self.turns.entry(name).or_insert_with(|| Turn { owner, waiters: VecDeque::new() })
    }

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
    fn typical(&self) -> Duration {
        Duration::from_nanos(self.typical.load(Ordering::Relaxed))
    }

    fn note_length(&self, length: Duration) {
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

    /// Takes a turn if it is free. Else whether the transaction may wait for it.
    fn try_take(&self, name: RowName, owner: u64) -> Result<(), bool> {
        let mut rows = self.rows.lock();
        match rows.turn(name, owner).owner == owner {
            true => Ok(()),
            false => Err(!rows.is_circle(name, owner)),
        }
    }

    /// Takes a turn, when the transactions before have ended or theirs has lasted too long.
    async fn take(&self, env: &Env, name: RowName, owner: u64) {
        let mut waiter = Waiter { turns: self, name, owner, has_taken: false };
        let mut timer = env.sleep(TURN_LASTS);
        poll_fn(|cx| {
            let has_waited = timer.as_mut().poll(cx).is_ready();
            let mut rows = self.rows.lock();
            let turn = rows.turn(name, owner);
            if has_waited || turn.owner == owner {
                turn.owner = owner;
                return Poll::Ready(());
            }
            match turn.waiters.iter_mut().find(|(waiter, _)| *waiter == owner) {
                Some((_, waker)) => waker.clone_from(cx.waker()),
                None => turn.waiters.push_back((owner, cx.waker().clone())),
            }
            rows.waits.insert(owner, name);
            Poll::Pending
        })
        .await;
        waiter.has_taken = true;
    }

    /// Gives a turn to the next one that waits, if the owner has it still.
    fn pass_on(&self, name: RowName, owner: u64) {
        let mut rows = self.rows.lock();
        let Some(turn) = rows.turns.get_mut(&name).filter(|turn| turn.owner == owner) else {
            return;
        };
        match turn.waiters.pop_front() {
            Some((next, waker)) => {
                turn.owner = next;
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
            self.turns.pass_on(self.name, self.owner);
        }
    }
}

/// The turns of one transaction.
pub(crate) struct HeldTurns<'t> {
    turns: &'t Turns,
    engine: &'t Engine,
    /// When it took its first turn.
    since: Duration,
    /// It has taken a turn, and not read the row since.
    wants_page: bool,
    /// The pages that others are kept from.
    pages: Vec<GAddr>,
    /// Its number, of no other transaction; drawn when it is needed.
    owner: Option<u64>,
    names: Vec<RowName>,
}

impl<'t> HeldTurns<'t> {
    pub(crate) fn new(turns: &'t Turns, engine: &'t Engine) -> Self {
        let (since, wants_page) = (Duration::ZERO, false);
        let (pages, names) = (Vec::new(), Vec::new());
        Self { turns, engine, since, wants_page, pages, owner: None, names }
    }

    /// Whether the page that is read next is that of a row at which the transaction has its turn.
    #[inline]
    pub(crate) fn wants_page(&self) -> bool {
        self.wants_page
    }

    /// Keeps other nodes from the page of a row, if it is the transaction's turn there.
    #[inline]
    pub(crate) fn hold(&mut self, page: &SharedGuard<'_>) {
        if std::mem::take(&mut self.wants_page) {
            page.hold_for((2 * self.turns.typical()).min(LONGEST_HOLD));
            self.pages.push(page.addr());
        }
    }

    /// Takes a turn at a row. Waits for it if the transaction `may_wait`; goes on without it
    /// otherwise.
    pub(crate) async fn take(
        &mut self,
        env: &Env,
        name: RowName,
        may_wait: bool,
        number: impl FnOnce() -> u64,
    ) {
        if self.names.len() >= MOST_TURNS || self.names.contains(&name) {
            return;
        }
        let owner = *self.owner.get_or_insert_with(number);
        match self.turns.try_take(name, owner) {
            Ok(()) => {}
            Err(is_free_to_wait) if is_free_to_wait && may_wait => {
                self.turns.take(env, name, owner).await;
            }
            Err(_) => return,
        }
        if self.names.is_empty() {
            self.since = env.now();
        }
        self.names.push(name);
        self.wants_page = true;
    }

    /// Lets others have their turns.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        let Some(owner) = self.owner else { return };
        if !self.names.is_empty() {
            self.turns.note_length(self.engine.env().now() - self.since);
        }
        self.wants_page = false;
        self.pages.drain(..).for_each(|page| self.engine.end_hold(page));
        self.names.drain(..).for_each(|name| self.turns.pass_on(name, owner));
    }
}

impl Drop for HeldTurns<'_> {
    fn drop(&mut self) {
        self.give_back();
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
    struct Held<'t>(&'t Turns, u64);

    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.0.pass_on(ROW, self.1);
        }
    }

    async fn take<'t>(turns: &'t Turns, env: &Env, owner: u64) -> Held<'t> {
        if turns.try_take(ROW, owner).is_err() {
            turns.take(env, ROW, owner).await;
        }
        Held(turns, owner)
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
            assert_eq!(held.1, 3);
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
            assert_eq!(turns.try_take(ROW, 3), Err(true));
            drop(next);
        });
        assert_empty(&turns);
    }

    #[test]
    fn none_waits_in_a_circle() {
        let turns = Turns::default();
        let names = [ROW, ROW + 1, ROW + 2];
        for (owner, name) in names.into_iter().enumerate() {
            assert_eq!(turns.try_take(name, owner as u64), Ok(()));
        }
        // 0 waits for 1, which waits for 2.
        turns.rows.lock().waits.extend([(0, names[1]), (1, names[2])]);
        assert_eq!(turns.try_take(names[0], 2), Err(false));
        assert_eq!(turns.try_take(names[1], 2), Err(false));
        assert_eq!(turns.try_take(names[0], 3), Err(true));
        assert_eq!(turns.try_take(names[2], 2), Ok(()));
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
