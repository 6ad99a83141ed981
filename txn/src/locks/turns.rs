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
//! Only a transaction that has no turn, and has locked no row, waits for one. So one that others
//! wait for waits for no turn, and there are no deadlocks. A transaction that idles between
//! operations has no turns.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;

/// After so long a turn goes over to one that waits.
const TURN_LASTS: Duration = Duration::from_millis(50);

/// Rows share a temperature if their names are equal in so many bits.
const TEMPERATURE_BITS: u32 = 12;

/// Turns without a waiter after which a row is not hot any more.
const HOT: u8 = 64;

/// Most turns of one transaction: one that changes many rows is not one of many at each.
const MOST_TURNS: usize = 16;

/// Parts of the table that are locked apart.
const SHARDS: usize = 16;

/// The turns of a node.
pub(crate) struct Turns {
    temperatures: Box<[AtomicU8]>,
    shards: [Mutex<HashMap<RowName, Turn>>; SHARDS],
}

/// A hash of a tree and a key. Rows with the same one take turns together.
pub(crate) type RowName = u64;

/// Whose turn it is at one row.
struct Turn {
    owner: u64,
    /// Who waits for it, the first one longest.
    waiters: VecDeque<(u64, Waker)>,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            temperatures: (0..1 << TEMPERATURE_BITS).map(|_| AtomicU8::new(0)).collect(),
            shards: Default::default(),
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

    fn cool(&self, name: RowName) {
        let cooler = |temperature: u8| temperature.checked_sub(1);
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.temperature(name).fetch_update(set, read, cooler);
    }

    #[expect(clippy::indexing_slicing, reason = "there is one for each value of so many bits")]
    fn temperature(&self, name: RowName) -> &AtomicU8 {
        &self.temperatures[(name >> (u64::BITS - TEMPERATURE_BITS)) as usize]
    }

    #[expect(clippy::indexing_slicing, reason = "a remainder")]
    fn shard(&self, name: RowName) -> &Mutex<HashMap<RowName, Turn>> {
        &self.shards[name as usize % SHARDS]
    }

    /// Takes a turn, unless another transaction has it.
    fn try_take(&self, name: RowName, owner: u64) -> bool {
        let mut turns = self.shard(name).lock();
        let turn = turns.entry(name).or_insert_with(|| Turn { owner, waiters: VecDeque::new() });
        turn.owner == owner
    }

    /// Takes a turn, when the transactions before have ended or theirs has lasted too long.
    async fn take(&self, env: &Env, name: RowName, owner: u64) {
        let mut waiter = Waiter { turns: self, name, owner, has_taken: false };
        let mut timer = env.sleep(TURN_LASTS);
        poll_fn(|cx| {
            let has_waited = timer.as_mut().poll(cx).is_ready();
            let mut turns = self.shard(name).lock();
            let turn =
                turns.entry(name).or_insert_with(|| Turn { owner, waiters: VecDeque::new() });
            if has_waited || turn.owner == owner {
                turn.owner = owner;
                turn.waiters.retain(|(waiter, _)| *waiter != owner);
                return Poll::Ready(());
            }
            match turn.waiters.iter_mut().find(|(waiter, _)| *waiter == owner) {
                Some((_, waker)) => waker.clone_from(cx.waker()),
                None => turn.waiters.push_back((owner, cx.waker().clone())),
            }
            Poll::Pending
        })
        .await;
        waiter.has_taken = true;
    }

    /// Gives a turn to the next one that waits, if the owner has it still.
    fn pass_on(&self, name: RowName, owner: u64) {
        let mut turns = self.shard(name).lock();
        let Some(turn) = turns.get_mut(&name).filter(|turn| turn.owner == owner) else { return };
        match turn.waiters.pop_front() {
            Some((next, waker)) => {
                turn.owner = next;
                drop(turns);
                self.heat(name);
                waker.wake();
            }
            None => {
                turns.remove(&name);
                drop(turns);
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
        if self.has_taken {
            return;
        }
        if let Some(turn) = self.turns.shard(self.name).lock().get_mut(&self.name) {
            turn.waiters.retain(|(waiter, _)| *waiter != self.owner);
        }
        // It may have come to it unseen.
        self.turns.pass_on(self.name, self.owner);
    }
}

/// The turns of one transaction.
pub(crate) struct HeldTurns<'t> {
    turns: &'t Turns,
    /// Its number, of no other transaction; drawn when it is needed.
    owner: Option<u64>,
    names: Vec<RowName>,
}

impl<'t> HeldTurns<'t> {
    pub(crate) fn new(turns: &'t Turns) -> Self {
        Self { turns, owner: None, names: Vec::new() }
    }

    /// Takes a turn at a row. Waits for it if the transaction `may_wait`, and has no turn yet; goes
    /// on without it otherwise.
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
        if !self.turns.try_take(name, owner) {
            if !may_wait || !self.names.is_empty() {
                return;
            }
            self.turns.take(env, name, owner).await;
        }
        self.names.push(name);
    }

    /// Lets others have their turns.
    #[inline]
    pub(crate) fn give_back(&mut self) {
        if let Some(owner) = self.owner {
            self.names.drain(..).for_each(|name| self.turns.pass_on(name, owner));
        }
    }
}

impl Drop for HeldTurns<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use selkie_fabric::RealRuntime;

    use super::*;

    const ROW: RowName = 7 << 60 | 3;

    async fn take<'t>(turns: &'t Turns, env: &Env, number: u64) -> HeldTurns<'t> {
        let mut held = HeldTurns::new(turns);
        held.take(env, ROW, true, || number).await;
        held
    }

    /// What is there once all turns are given back.
    fn assert_empty(turns: &Turns) {
        assert!(turns.shards.iter().all(|shard| shard.lock().is_empty()));
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
                    let waits = take(&turns, &own, number);
                    if number == 2 {
                        // Dropped while it waits.
                        let _ = poll_once(waits).await;
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

    /// Polls a future once, and drops it.
    async fn poll_once<F: Future>(future: F) -> bool {
        let mut future = Box::pin(future);
        poll_fn(move |cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
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
            assert!(!turns.try_take(ROW, 3));
            drop(next);
            assert_empty(&turns);
        });
    }

    #[test]
    fn one_that_has_a_turn_or_may_not_wait_goes_on_without() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, turns) = (runtime.env(), Turns::default());
        runtime.block_on(async {
            let first = take(&turns, &env, 1).await;
            let mut second = HeldTurns::new(&turns);
            second.take(&env, ROW, false, || 2).await;
            assert!(second.names.is_empty());
            second.take(&env, ROW + 1, true, || 2).await;
            second.take(&env, ROW, true, || 2).await;
            assert_eq!(second.names, [ROW + 1]);
            for name in 0..100 {
                second.take(&env, name << 8, true, || 2).await;
            }
            assert_eq!(second.names.len(), MOST_TURNS);
            drop((first, second));
            assert_empty(&turns);
        });
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
