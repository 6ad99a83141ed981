//! For how long a process could not show that its nodes live: what people are told of it.

use std::time::Duration;

/// Leases for which the end of a silence that was too long may be the cause of what is found out:
/// a process learns with its first beats after it that others have taken its nodes for dead.
const CAUSE_LEASES: u32 = 2;

/// Whether others may have found a process silent for a lease.
pub(super) fn is_too_long(silent_for: Duration, lease: Duration) -> bool {
    silent_for > lease * 3 / 4
}

/// How long the silences of a process were that have ended.
#[derive(Debug, Default)]
pub(super) struct SilenceLengths {
    longest: Duration,
    /// The last one that was too long, and when it ended.
    last: Option<(Duration, Duration)>,
}

impl SilenceLengths {
    /// Notes a silence that ends now.
    pub(super) fn note(&mut self, silent_for: Duration, now: Duration, lease: Duration) {
        self.longest = self.longest.max(silent_for);
        if is_too_long(silent_for, lease) {
            self.last = Some((silent_for, now));
        }
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    /// The last silence that was too long, if it has ended a short time ago, else zero.
    pub(super) fn lately(&self, now: Duration, lease: Duration) -> Duration {
        let is_late = |ended: Duration| now.saturating_sub(ended) <= CAUSE_LEASES * lease;
        self.last.filter(|(_, ended)| is_late(*ended)).map_or(Duration::ZERO, |(long, _)| long)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node that was expelled was told of the longest silence of its whole life.
    #[test]
    fn the_last_silence_that_was_too_long_is_told_of_and_not_one_from_long_before() {
        let s = Duration::from_secs;
        let (lease, mut lengths) = (s(2), SilenceLengths::default());
        lengths.note(s(5), s(10), lease);
        assert_eq!(lengths.lately(s(11), lease), s(5));
        lengths.note(s(1), s(12), lease);
        assert_eq!((lengths.lately(s(12), lease), lengths.longest()), (s(5), s(5)));
        lengths.note(s(3), s(13), lease);
        assert_eq!((lengths.lately(s(13), lease), lengths.longest()), (s(3), s(5)), "the last");
        let later = s(13) + 3 * lease;
        assert_eq!((lengths.lately(later, lease), lengths.longest()), (s(0), s(5)));
    }
}
