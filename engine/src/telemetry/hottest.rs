//! Which lines this node misses most or has to give up most: a sketch in bounded memory.
//!
//! It is the *space-saving* algorithm (Metwally, Agrawal, El Abbadi 2005): [`COUNTERS`] lines are
//! counted; one that is not among them takes the place of the least counted, and its count on top
//! of its own, as its possible error. Whatever the stream, with n events noted in all:
//!
//! * a count is never below the truth, and above it by at most its error, which is at most n /
//!   `COUNTERS`;
//! * every line with more than n / `COUNTERS` events is counted.
//!
//! Old events fade, so that what was hot yesterday does not hide what is hot now: after each
//! [`FADE_EVERY`] events all counts and errors are halved, and so is what "events" means above. So
//! n is below 2 `FADE_EVERY`, and an error at most 2048. Halving rounds down: a count may be below
//! the faded truth by less than 1.
//!
//! Only misses and invalidations are noted, never hits. Where two threads would have to wait for
//! each other the later event is not noted but counted as skipped.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::GAddr;

/// Lines that are counted: few enough to look through all of them at a miss.
const COUNTERS: usize = 64;
/// Events between halvings.
const FADE_EVERY: u32 = 1 << 16;

const _: () = assert!(2 * FADE_EVERY as usize / COUNTERS == 2048, "as the documentation says");

/// A line that a node misses or has to give up often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotLine {
    /// The line.
    pub addr: GAddr,
    /// The memory node that is its home.
    pub home: usize,
    /// Misses and invalidations, faded: those before the last 65536 of the node count half, those
    /// before as many again a quarter, and so on. At most `error` too high.
    pub count: u64,
    /// How much of `count` may belong to other lines: at most a 64th of the node's events, faded as
    /// they are, and so at most 2048.
    pub error: u64,
}

/// The sketch of one engine.
#[derive(Default)]
pub(crate) struct Hottest {
    counted: Mutex<HotLines>,
    /// Events that were not noted because another thread was at it.
    skipped: AtomicU64,
}

/// Apart, so that a search reads little: the addresses are 8 cache lines.
struct HotLines {
    addrs: [u64; COUNTERS],
    counts: [u32; COUNTERS],
    errors: [u32; COUNTERS],
    until_fade: u32,
}

impl Default for HotLines {
    fn default() -> Self {
        Self {
            addrs: [0; COUNTERS],
            counts: [0; COUNTERS],
            errors: [0; COUNTERS],
            until_fade: FADE_EVERY,
        }
    }
}

impl Hottest {
    /// Notes an event, unless another thread notes one at the same time.
    pub(crate) fn note(&self, addr: GAddr) {
        match self.counted.try_lock() {
            Some(mut counted) => counted.note(addr.to_u64()),
            None => {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Events that were not noted.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// At most `most` lines with their counts and errors; first those with the most events that are
    /// certainly theirs: a line that has just taken another's place has the other's count.
    pub(crate) fn top(&self, most: usize) -> Vec<(GAddr, u64, u64)> {
        let mut lines: Vec<_> = {
            let counted = self.counted.lock();
            let counts = counted.counts.iter().zip(&counted.errors);
            let lines = counted.addrs.iter().zip(counts);
            let known = lines.filter(|(_, (count, _))| **count > 0);
            known
                .map(|(addr, (count, error))| {
                    (GAddr::from_u64(*addr), u64::from(*count), u64::from(*error))
                })
                .collect()
        };
        // The address last, so that equal ones have an order.
        lines.sort_unstable_by_key(|(addr, count, error)| {
            (std::cmp::Reverse(count.saturating_sub(*error)), *error, *addr)
        });
        lines.truncate(most);
        lines
    }
}

impl HotLines {
    fn note(&mut self, addr: u64) {
        let known = self.addrs.iter().position(|known| *known == addr);
        let slot = known.unwrap_or_else(|| self.replace_least(addr));
        if let Some(count) = self.counts.get_mut(slot) {
            *count += 1;
        }
        self.until_fade -= 1;
        if self.until_fade == 0 {
            self.until_fade = FADE_EVERY;
            self.counts.iter_mut().chain(&mut self.errors).for_each(|count| *count /= 2);
        }
    }

    /// The place of the least counted line, taken by another.
    fn replace_least(&mut self, addr: u64) -> usize {
        let least = self.counts.iter().enumerate().min_by_key(|(_, count)| **count);
        let (slot, count) = least.map_or((0, 0), |(slot, count)| (slot, *count));
        if let (Some(own), Some(error)) = (self.addrs.get_mut(slot), self.errors.get_mut(slot)) {
            (*own, *error) = (addr, count);
        }
        slot
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use selkie_fabric::env::SplitMix;

    use super::*;

    const LINES: u64 = 2000;

    /// Line i of 1 to `LINES`, with a chance proportional to 1 / i.
    fn skewed(events: usize, seed: u64) -> impl Iterator<Item = GAddr> {
        let harmonic: f64 = (1..=LINES).map(|i| 1.0 / i as f64).sum();
        let random = SplitMix::new(seed);
        (0..events).map(move |_| {
            let mut left = harmonic * (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
            let line = (1..LINES).find(|i| {
                left -= 1.0 / *i as f64;
                left < 0.0
            });
            GAddr::from_u64(2048 * line.unwrap_or(LINES))
        })
    }

    /// Notes a stream; the sketch, and the true counts with their halvings.
    fn counted(stream: impl Iterator<Item = GAddr>) -> (Hottest, HashMap<GAddr, f64>) {
        let hottest = Hottest::default();
        let mut truth: HashMap<GAddr, f64> = HashMap::new();
        for (number, addr) in (1..).zip(stream) {
            hottest.note(addr);
            *truth.entry(addr).or_default() += 1.0;
            if number % u64::from(FADE_EVERY) == 0 {
                truth.values_mut().for_each(|count| *count /= 2.0);
            }
        }
        (hottest, truth)
    }

    #[track_caller]
    fn bounds_hold(hottest: &Hottest, truth: &HashMap<GAddr, f64>) {
        let events: f64 = truth.values().sum();
        let bound = events / COUNTERS as f64;
        let top = hottest.top(usize::MAX);
        for (addr, count, error) in &top {
            let true_count = truth.get(addr).copied().unwrap_or_default();
            let (count, error) = (*count as f64, *error as f64);
            assert!(error <= bound && error <= 2048.0, "{addr}: error {error}, bound {bound}");
            assert!(count > true_count - 1.0, "{addr}: {count} for {true_count}");
            // Rounding of the error may take away as much.
            assert!(count - error < true_count + 1.0, "{addr}: {count} for {true_count}");
        }
        for (addr, count) in truth.iter().filter(|(_, count)| **count > bound + 1.0) {
            assert!(top.iter().any(|(known, ..)| known == addr), "{addr} with {count} is missing");
        }
        assert!(top.is_sorted_by_key(|(_, count, error)| std::cmp::Reverse(count - error)));
    }

    #[test]
    fn the_hottest_of_a_skewed_stream_are_found_within_the_bound() {
        // Before the first fading, at it, and long after.
        for events in [1_000, FADE_EVERY as usize, 3 * FADE_EVERY as usize + 17] {
            let (hottest, truth) = counted(skewed(events, 7));
            bounds_hold(&hottest, &truth);
            let top: Vec<u64> = hottest.top(3).iter().map(|(a, ..)| a.to_u64() / 2048).collect();
            if events > 1_000 {
                assert_eq!(top, [1, 2, 3], "of {events}");
            }
        }
    }

    #[test]
    fn bounds_hold_where_no_line_is_hot_and_where_the_order_is_unkind() {
        let round_robin = (0..200_000).map(|i| GAddr::from_u64(2048 * (1 + i % 100)));
        let (hottest, truth) = counted(round_robin);
        bounds_hold(&hottest, &truth);
        // One hot line that comes early, then others that push it out if they can.
        let early = std::iter::repeat_n(GAddr::from_u64(2048), 5_000);
        let others = (0..60_000).map(|i| GAddr::from_u64(4096 + 2048 * i));
        let (hottest, truth) = counted(early.chain(others));
        bounds_hold(&hottest, &truth);
        assert_eq!(hottest.top(1)[0].0, GAddr::from_u64(2048));
    }

    #[test]
    fn what_was_hot_gives_way_to_what_is() {
        let (old, new) = (GAddr::from_u64(2048), GAddr::from_u64(4096));
        let old_events = std::iter::repeat_n(old, 4 * FADE_EVERY as usize);
        let (hottest, truth) =
            counted(old_events.chain(std::iter::repeat_n(new, 2 * FADE_EVERY as usize)));
        bounds_hold(&hottest, &truth);
        assert_eq!(hottest.top(1)[0].0, new, "{:?}", hottest.top(2));
        assert_eq!(hottest.top(9).len(), 2, "no more than there are");
    }

    #[test]
    fn who_would_have_to_wait_skips() {
        let hottest = Hottest::default();
        let held = hottest.counted.lock();
        hottest.note(GAddr::from_u64(2048));
        drop(held);
        assert_eq!((hottest.skipped(), hottest.top(9)), (1, Vec::new()));
        hottest.note(GAddr::from_u64(2048));
        assert_eq!((hottest.skipped(), hottest.top(9).len()), (1, 1));
    }
}
