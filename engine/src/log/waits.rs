//! What is said of waits for a log: after a second what is waited for and what helps, and then less
//! often. A log that is full for moments, again and again, is told of as such, if that takes much
//! of the time.
//!
//! Callers that wait for room are counted (`room_waits.rs`). Those that wait for records to become
//! durable are not, as each commit does: while the log does not grow durable, they wait. The task
//! of the lease looks, as it waits for no log. Of a log that cannot be written its writer tells.

use std::time::Duration;

use selkie_pool::units;
use selkie_wal::Lsn;

use super::state::Log;

/// A wait that is shorter than this is not worth a line.
const FIRST: Duration = Duration::from_secs(1);
/// The next line comes when the wait is so many times as long as at the last one,
const FACTOR: u32 = 4;
/// but not later than so long after it. That is for all waits together, so that many short ones
/// in a row are not many lines.
const LONGEST: Duration = Duration::from_secs(15);
/// How often it is said that a log is full for moments, and when first.
const MOMENTS_EVERY: Duration = Duration::from_secs(60);
const MOMENTS_FIRST: Duration = Duration::from_secs(5);
/// So much of the time, in percent, is worth a line. A log in memory that is full many times a
/// second, as in a load, is mostly cut short within a millisecond: a longer one saves nothing.
const MUCH_PERCENT: u128 = 25;

/// What helps.
const LONGER: &str =
    "a longer log helps (--log-mb, in a shared pool `selkie pool create --log-size`)";

/// Decides what is said of waits for a log.
#[derive(Default)]
pub(crate) struct LogWatch {
    /// Up to where the log was durable, and since when no further.
    durable: Option<(Lsn, Duration)>,
    /// When there may be a line of a wait again.
    next: Duration,
    /// Up to when moments were counted, how often the log had been full by then, and for how long
    /// callers had waited.
    counted: Option<(Duration, (u64, Duration))>,
    /// They were told of once.
    has_told: bool,
}

impl LogWatch {
    /// What is to be said now of a log that callers wait for, for no longer than `bound`.
    pub(crate) fn look(&mut self, log: &Log, now: Duration, bound: Duration) -> Option<String> {
        let durable = log.durable();
        let since = match self.durable {
            Some((before, since)) if before == durable && durable < log.end() => since,
            _ => now,
        };
        self.durable = Some((durable, since));
        if !log.failing_for(now).is_zero() {
            return None;
        }
        let bound = bound.as_secs();
        if let Some(waited) = self.due(since, now) {
            return Some(format!(
                "commits have waited for {waited} s, and for {bound} s each at most, for their log to be written: the disk, \
                 the object store or the memory nodes that keep it do not answer"
            ));
        }
        let (kept, capacity) = log.kept();
        let oldest = log.room_waits.oldest();
        if let Some(waited) = oldest.and_then(|since| self.due(since, now)) {
            return Some(format!(
                "changes have waited for {waited} s, and for {bound} s each at most, for room in the log: {} of {} are \
                 kept for pages that are not home yet, and half of it may be; {LONGER}, or smaller transactions, unless a memory \
                 node does not answer",
                units::bytes(kept),
                units::bytes(capacity)
            ));
        }
        if oldest.is_some_and(|since| now.saturating_sub(since) >= FIRST) {
            // No moment: that is told of in turn.
            return None;
        }
        let so_far = (log.fillings.times(), log.room_waits.total(now));
        let ((times, waited), passed) = self.moments(so_far, now)?;
        let (capacity, passed) = (units::bytes(capacity), passed.as_secs());
        let times = units::plural(times, "time");
        Some(format!(
            "the log of {capacity} was full {times} in the last {passed} s, and changes waited for {:.1} s of it: {LONGER}",
            waited.as_secs_f64()
        ))
    }

    /// How often the log was full since that was last told, and for how long callers waited, and in
    /// which time, if that is to be told now.
    fn moments(
        &mut self,
        (times, waited): (u64, Duration),
        now: Duration,
    ) -> Option<((u64, Duration), Duration)> {
        let (since, before) = *self.counted.get_or_insert((now, (times, waited)));
        let more = (times.saturating_sub(before.0), waited.saturating_sub(before.1));
        let passed = now.saturating_sub(since);
        let is_much =
            !passed.is_zero() && more.1.as_nanos() * 100 >= passed.as_nanos() * MUCH_PERCENT;
        let is_first = !self.has_told && is_much && passed >= MOMENTS_FIRST;
        if passed < MOMENTS_EVERY && !is_first {
            return None;
        }
        self.counted = Some((now, (times, waited)));
        self.has_told |= is_much;
        is_much.then_some((more, passed))
    }

    /// For how many seconds a wait has lasted, if that is to be told now.
    fn due(&mut self, since: Duration, now: Duration) -> Option<u64> {
        let waited = now.saturating_sub(since);
        if waited < FIRST || now < self.next {
            return None;
        }
        self.next = now + (waited * (FACTOR - 1)).min(LONGEST);
        Some(waited.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    /// The seconds at which something is said of a log, and what, from a time to another.
    fn said(watch: &mut LogWatch, log: &Log, (from, to): (u64, u64)) -> Vec<(u64, String)> {
        let looks = (10 * from..10 * to).filter_map(|tenth| {
            let now = Duration::from_millis(100 * tenth);
            Some((now.as_secs(), watch.look(log, now, BOUND)?))
        });
        looks.collect()
    }

    fn times(said: &[(u64, String)]) -> Vec<u64> {
        said.iter().map(|(at, _)| *at).collect()
    }

    #[test]
    fn waits_for_room_are_told_of_after_a_second_and_then_less_often() {
        let (log, mut watch) = (Log::new(), LogWatch::default());
        assert_eq!(said(&mut watch, &log, (0, 10)), []);
        let first = log.room_waits.enter(Duration::from_secs(10));
        let second = log.room_waits.enter(Duration::from_secs(12));
        let told = said(&mut watch, &log, (10, 50));
        assert_eq!(times(&told), [11, 14, 26, 41], "all callers together");
        let expected =
            "changes have waited for 4 s, and for 30 s each at most, for room in the log: ";
        assert!(told[1].1.starts_with(expected), "{told:?}");
        assert!(told[1].1.contains("--log-mb"), "{told:?}");
        drop(first);
        let told = said(&mut watch, &log, (50, 60));
        assert_eq!(times(&told), [56]);
        assert!(told[0].1.contains("waited for 44 s"), "the second has waited: {told:?}");
        drop(second);
        assert_eq!(said(&mut watch, &log, (60, 200)), []);
        // One short wait after the other.
        let mut lines = 0;
        for at in 100..130 {
            let _wait = log.room_waits.enter(Duration::from_secs(2 * at));
            lines += said(&mut watch, &log, (2 * at, 2 * at + 2)).len();
        }
        assert!((10..=20).contains(&lines), "{lines}");
    }

    /// Each time was a line: dozens a second with a log of a mebibyte.
    #[test]
    fn a_log_that_is_full_for_moments_is_told_of_once_a_minute() {
        let (log, mut watch) = (Log::new(), LogWatch::default());
        let mut told = Vec::new();
        // Twenty times a second, for so many milliseconds in all.
        let mut full_for = |(from, to): (u64, u64), ms: u64| {
            for second in from..to {
                (0..20).for_each(|_| log.fillings.note(true));
                let began = Duration::from_secs(second);
                log.room_waits.enter(began).end(began + Duration::from_millis(ms));
                told.extend(said(&mut watch, &log, (second, second + 1)));
            }
            told.clone()
        };
        let told = full_for((100, 300), 300);
        assert_eq!(times(&told), [105, 165, 225, 285]);
        let expected = "was full 1,200 times in the last 60 s, and changes waited for 18.0 s of it";
        assert!(told[1].1.contains(expected), "{told:?}");
        assert!(told[1].1.contains("--log-size"), "{told:?}");
        // That it costs little is as it should be, however often it is.
        assert_eq!(full_for((300, 600), 20).len(), 4);
    }
}
