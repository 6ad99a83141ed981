//! `Doorbell`: tells the owner of a region that something was written to it.
//!
//! A counter that only grows, and tasks that wait for it to pass a value they have seen. Ringing
//! costs one atomic add when no task waits, so a sender does not pay for a receiver that is awake.
//!
//! State: `count:63 | waited:1` in one word. `waited` is set while the list of waiters may not be
//! empty. Why no wake-up is lost: ringing and the announcement of a waiter are both
//! read-modify-writes of that word, so they have an order. If the ring comes first, the
//! announcement sees the new count and the waiter does not sleep. If the announcement comes first,
//! the ring sees `waited` and takes the lock, behind the waiter, whose waker is by then in the
//! list.
//!
//! The pattern of use: `seen = count()`, look at the memory, and if there is nothing to do,
//! `wait_past(seen).await`. What was written before a ring is visible after a `count` or a wait
//! that returned the ring's count or a later one.
//!
//! The word may lie in memory that other processes ring in: they cannot wake tasks here, so the
//! thread that they tell of a ring calls [`Doorbell::wake_passed`].

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::sync::{AtomicU64, Mutex, Ordering, Word};

const WAITED: u64 = 1;
const ONE_RING: u64 = 2;

/// Where rings wait to be counted: a device says that it was rung, and a thread has to look.
pub(crate) trait RingSource: Send + Sync {
    /// Counts the rings that have come. Wakes the tasks that wait for them without locks.
    fn collect(&self);
}

/// A counter of rings that tasks can wait for. See the module for how not to miss one.
pub struct Doorbell {
    state: Word,
    waiters: Mutex<Waiters>,
    source: Option<Box<dyn RingSource>>,
}

#[derive(Default)]
struct Waiters {
    next_ticket: u64,
    sleeping: Vec<Sleeper>,
}

struct Sleeper {
    ticket: u64,
    /// The count it waits to see passed.
    seen: u64,
    waker: Waker,
}

/// Rings in a doorbell's word. Returns whether a task waits for it.
#[inline]
pub(crate) fn ring_word(state: &AtomicU64) -> bool {
    // Release: publishes the writes before the ring to a waiter that sees the new count. Acquire:
    // pairs with the announcement in `poll`, so that the waiter's list entry is seen.
    state.fetch_add(ONE_RING, Ordering::AcqRel) & WAITED != 0
}

impl Doorbell {
    /// A doorbell that was never rung.
    pub fn new() -> Self {
        Self::at(Word::own())
    }

    /// A doorbell that counts in `state`, which no task waits for yet.
    pub(crate) fn at(state: Word) -> Self {
        Self { state, waiters: Mutex::new(Waiters::default()), source: None }
    }

    /// A doorbell whose rings are collected before they are counted.
    #[allow(dead_code, reason = "of one fabric, which is not built in every case")]
    pub(crate) fn collecting(source: Box<dyn RingSource>) -> Self {
        Self { source: Some(source), ..Self::new() }
    }

    /// Rings once, and leaves the waiters to [`Doorbell::wake_passed`]. Returns whether there are
    /// any.
    #[allow(dead_code, reason = "as above")]
    pub(crate) fn ring_silently(&self) -> bool {
        ring_word(&self.state)
    }

    /// How many times it was rung.
    #[inline]
    pub fn count(&self) -> u64 {
        if let Some(source) = &self.source {
            source.collect();
        }
        self.counted()
    }

    /// How many rings have been counted.
    #[inline]
    fn counted(&self) -> u64 {
        // Acquire: pairs with the Release in `ring`.
        self.state.load(Ordering::Acquire) / ONE_RING
    }

    /// Rings once and wakes every waiter. Takes a lock only if there is one.
    #[inline]
    pub fn ring(&self) {
        if ring_word(&self.state) {
            self.wake_all();
        }
    }

    /// Wakes those whose count has been passed.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "no process rings from outside")
    )]
    pub(crate) fn wake_passed(&self) {
        let woken: Vec<Sleeper> = self.waiters.with(|waiters| {
            let count = self.counted();
            let sleeping = std::mem::take(&mut waiters.sleeping);
            let (passed, rest) = sleeping.into_iter().partition(|sleeper| sleeper.seen < count);
            waiters.sleeping = rest;
            if waiters.sleeping.is_empty() {
                // Relaxed: as in `wake_all`.
                self.state.fetch_and(!WAITED, Ordering::Relaxed);
            }
            passed
        });
        for sleeper in woken {
            sleeper.waker.wake();
        }
    }

    /// Waits until the count is above `seen` and returns it. Any number of tasks may wait.
    pub fn wait_past(&self, seen: u64) -> WaitPast<'_> {
        WaitPast { doorbell: self, seen, ticket: None }
    }

    #[cold]
    fn wake_all(&self) {
        let woken = self.waiters.with(|waiters| {
            // Relaxed: the bit and the list only change together under this lock.
            self.state.fetch_and(!WAITED, Ordering::Relaxed);
            std::mem::take(&mut waiters.sleeping)
        });
        for sleeper in woken {
            sleeper.waker.wake();
        }
    }
}

impl Default for Doorbell {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Doorbell(rung {} times)", self.count())
    }
}

/// Future of [`Doorbell::wait_past`]. Dropping it ends the wait.
#[must_use = "a wait does nothing unless polled"]
pub struct WaitPast<'a> {
    doorbell: &'a Doorbell,
    seen: u64,
    /// Names the entry in the waiter list; the entry may be gone, taken by a ring.
    ticket: Option<u64>,
}

impl Future for WaitPast<'_> {
    type Output = u64;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        let doorbell = self.doorbell;
        let count = doorbell.count();
        if count > self.seen {
            return Poll::Ready(count);
        }
        let (ticket, replaced, before) = doorbell.waiters.with(|waiters| {
            let (ticket, replaced) =
                waiters.enlist(self.ticket, self.seen, context.waker().clone());
            // Release: the list entry is there for the ring that sees the bit. Acquire: pairs with
            // a ring that came before.
            (ticket, replaced, doorbell.state.fetch_or(WAITED, Ordering::AcqRel))
        });
        // Not under the lock: a waker's drop may drop a task that waits for this very doorbell.
        drop(replaced);
        self.ticket = Some(ticket);
        let count = before / ONE_RING;
        if count > self.seen { Poll::Ready(count) } else { Poll::Pending }
    }
}

impl Waiters {
    /// Puts `waker` into the list, in place of the entry `ticket` if that is still there. Returns
    /// the entry's ticket and the waker it replaced.
    fn enlist(&mut self, ticket: Option<u64>, seen: u64, waker: Waker) -> (u64, Option<Waker>) {
        if let Some(ticket) = ticket
            && let Some(entry) = self.sleeping.iter_mut().find(|other| other.ticket == ticket)
        {
            return (ticket, Some(std::mem::replace(&mut entry.waker, waker)));
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.sleeping.push(Sleeper { ticket, seen, waker });
        (ticket, None)
    }

    fn strike(&mut self, ticket: u64) -> Option<Sleeper> {
        let index = self.sleeping.iter().position(|other| other.ticket == ticket)?;
        Some(self.sleeping.swap_remove(index))
    }
}

impl Drop for WaitPast<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            // The `waited` bit may stay set over an empty list: the next ring clears it.
            let entry = self.doorbell.waiters.with(|waiters| waiters.strike(ticket));
            // Not under the lock, as in `poll`.
            drop(entry);
        }
    }
}
