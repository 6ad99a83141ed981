//! When a wait is to be spoken of.

use std::time::Duration;

/// The target of events that are no warnings, and yet tell people what they wait for: who shows
/// warnings shows these as well.
pub const NOTICE: &str = "selkie_notice";

/// A wait that is shorter than this is not worth a line.
const FIRST: Duration = Duration::from_secs(1);
/// The next line comes when the wait is so many times as long as at the last one,
const FACTOR: u32 = 4;
/// but not later than so long after it.
const LONGEST: Duration = Duration::from_secs(60);

/// Decides when a wait is told of: after a second, and then less and less often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitNotice {
    since: Duration,
    next: Duration,
}

impl WaitNotice {
    /// Of a wait that begins now, by the environment's clock.
    #[must_use]
    pub fn new(now: Duration) -> Self {
        Self { since: now, next: FIRST }
    }

    /// For how long the wait has lasted.
    #[must_use]
    pub fn waited(&self, now: Duration) -> Duration {
        now.saturating_sub(self.since)
    }

    /// For how long the wait has lasted, if that is to be told now.
    pub fn due(&mut self, now: Duration) -> Option<Duration> {
        let waited = self.waited(now);
        if waited < self.next {
            return None;
        }
        self.next = (waited * FACTOR).min(waited + LONGEST);
        Some(waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_of_after_a_second_and_then_less_often() {
        let seconds = Duration::from_secs;
        let mut notice = WaitNotice::new(seconds(10));
        let told: Vec<u64> = (100..5_000)
            .filter_map(|tenth| notice.due(Duration::from_millis(100 * tenth)))
            .map(|waited| waited.as_secs())
            .collect();
        assert_eq!(told, [1, 4, 16, 64, 124, 184, 244, 304, 364, 424, 484]);
    }
}
