//! Reclamation epochs: when a freed line may be used again.
//!
//! A task that follows an address read from a page holds a pin; a line freed now may be reused once
//! every pin that was held anywhere at that time is gone. The pool has one global epoch and one
//! published epoch per compute node, all in the control page of memory node 0, or in a coded pool
//! of the first that lives and is to stay:
//!
//! - a node pins its tasks in its *current* epoch, which follows the global one by at most one step
//!   and only moves once nothing is pinned in the epoch before;
//! - it publishes the oldest epoch in which it may still have pins;
//! - a node that waits for reclamation advances the global epoch when all nodes have published it.
//!
//! So a pin held while the global epoch is G was taken in G or G - 1, and a node's current epoch
//! is never behind G - 1. A line freed in a node's current epoch e may have been met by pins up to
//! e + 1; it is reusable when every node has published at least e + 2.
//!
//! Publishing and moving are one-sided verbs by a housekeeping task, off the data path.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::telemetry::stats::stripe;

/// Pin counters; threads beyond share them.
const STRIPES: usize = 16;
/// Epochs that may have pins at the same time are two; four make the index a mask.
const SLOTS: u64 = 4;

/// Pins per epoch of the threads of one stripe.
#[repr(align(64))]
#[derive(Default)]
struct Pins([AtomicU64; SLOTS as usize]);

/// The pins of one node.
pub(crate) struct Epochs {
    current: AtomicU64,
    pins: [Pins; STRIPES],
}

/// While it lives, no line that was reachable when it was made is reused.
///
/// Cheap (two atomics on a line of the thread's own); take one per operation and drop it soon:
/// reclamation waits for it on all nodes.
#[must_use]
pub struct EpochPin<'e>(&'e AtomicU64);

impl Drop for EpochPin<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the SeqCst load of `is_quiet`: reads under the pin are over.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Epochs {
    pub(crate) fn new(global: u64) -> Epochs {
        Epochs { current: AtomicU64::new(global), pins: Default::default() }
    }

    pub(crate) fn current(&self) -> u64 {
        self.current.load(Ordering::SeqCst)
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "stripe and slot are masked")]
    fn slot(&self, stripe: usize, epoch: u64) -> &AtomicU64 {
        &self.pins[stripe % STRIPES].0[(epoch % SLOTS) as usize]
    }

    #[inline]
    pub(crate) fn pin(&self) -> EpochPin<'_> {
        let stripe = stripe();
        loop {
            let epoch = self.current();
            let slot = self.slot(stripe, epoch);
            // SeqCst with follow(): either that sees this pin, or the load here sees its epoch.
            slot.fetch_add(1, Ordering::SeqCst);
            if self.current() == epoch {
                return EpochPin(slot);
            }
            slot.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Nothing is pinned in `epoch`.
    fn is_quiet(&self, epoch: u64) -> bool {
        (0..STRIPES).all(|s| self.slot(s, epoch).load(Ordering::SeqCst) == 0)
    }

    /// Follows the global epoch by one step if nothing is pinned in the epoch before the current
    /// one; returns the epoch to publish. Called by one task only.
    pub(crate) fn follow(&self, global: u64) -> u64 {
        let current = self.current();
        let before = current.wrapping_sub(1);
        if !self.is_quiet(before) {
            return before;
        }
        if current < global {
            self.current.store(current + 1, Ordering::SeqCst);
            return if self.is_quiet(current) { current + 1 } else { current };
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_pin_holds_its_epoch_back_and_later_ones_do_not() {
        let epochs = Epochs::new(5);
        let old = epochs.pin();
        assert_eq!(epochs.follow(5), 5);
        assert_eq!(epochs.follow(6), 5, "moves on, but 5 is still pinned");
        let young = epochs.pin();
        assert_eq!(epochs.follow(7), 5, "cannot move past a pinned predecessor");
        assert_eq!(epochs.current(), 6);
        drop(old);
        assert_eq!(epochs.follow(7), 6, "moves to 7, 6 is still pinned by the younger");
        drop(young);
        assert_eq!(epochs.follow(7), 7);
    }

    /// Pins come and go on two threads until enough epochs have passed, however the threads are
    /// scheduled.
    #[test]
    fn what_is_published_never_passes_a_live_pin_under_concurrency() {
        const EPOCHS: u64 = 50;
        const PINS: u64 = 20_000;
        /// Enough on a machine that is busy with other things.
        const PATIENCE: Duration = Duration::from_secs(300);
        let epochs = Epochs::new(1);
        let (published, pins) = (AtomicU64::new(0), AtomicU64::new(0));
        let until = Instant::now() + PATIENCE;
        let is_over =
            || published.load(Ordering::SeqCst) >= EPOCHS && pins.load(Ordering::SeqCst) >= PINS;
        let goes_on = || !is_over() && Instant::now() < until;
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while goes_on() {
                        let pin = epochs.pin();
                        // The pin is of the current epoch or, if that has moved on, of the one
                        // before.
                        let current = epochs.current();
                        let is_of_current = ptr::eq(pin.0, epochs.slot(stripe(), current));
                        let pinned = if is_of_current { current } else { current - 1 };
                        std::hint::spin_loop();
                        let published = published.load(Ordering::SeqCst);
                        assert!(published <= pinned, "{published} passes a pin of {pinned}");
                        drop(pin);
                        if pins.fetch_add(1, Ordering::SeqCst) % 100 == 0 {
                            thread::yield_now();
                        }
                    }
                });
            }
            let mut global = 1;
            while goes_on() {
                let now = epochs.follow(global);
                published.store(now, Ordering::SeqCst);
                if now == global {
                    global += 1;
                } else {
                    thread::yield_now();
                }
            }
        });
        assert!(is_over(), "{published:?} epochs and {pins:?} pins in {PATIENCE:?}");
    }
}
