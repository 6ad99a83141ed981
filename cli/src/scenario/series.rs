//! Throughput over time, from the seconds that drivers count, and whether it came back after a
//! fault.
//!
//! Drivers begin to count at different times. Within one of its seconds a driver is taken to have
//! committed evenly, so that the throughput of several is known for any interval.

/// What a driver has counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ThroughputTrack {
    /// When it began, in seconds of the scenario.
    pub(crate) began: f64,
    /// Committed transactions of each second.
    pub(crate) counts: Vec<u64>,
    /// When it stopped counting.
    pub(crate) ended: f64,
}

impl ThroughputTrack {
    /// Transactions committed in an interval.
    pub(crate) fn committed(&self, from: f64, to: f64) -> f64 {
        let (from, to) = (from.max(self.began), to.min(self.ended));
        let mut sum = 0.0;
        for (second, count) in self.counts.iter().enumerate() {
            let start = self.began + second as f64;
            // The last one may be cut short.
            let end = (start + 1.0).min(self.ended.max(start));
            let overlap = to.min(end) - from.max(start);
            if overlap > 0.0 && end > start {
                sum += *count as f64 * overlap / (end - start);
            }
        }
        sum
    }

    /// The longest time without a commit since then, in whole seconds of the driver but for the
    /// first and the last.
    pub(crate) fn longest_silence(&self, since: f64) -> f64 {
        let (mut longest, mut last) = (0.0_f64, since);
        for (second, count) in self.counts.iter().enumerate() {
            let start = self.began + second as f64;
            let end = (start + 1.0).min(self.ended);
            if *count > 0 && end > since {
                longest = longest.max(start - last);
                last = last.max(end);
            }
        }
        longest.max(self.ended - last)
    }
}

/// Transactions committed a second by all in an interval.
pub(crate) fn rate(tracks: &[&ThroughputTrack], from: f64, to: f64) -> f64 {
    if to <= from {
        return 0.0;
    }
    tracks.iter().map(|track| track.committed(from, to)).sum::<f64>() / (to - from)
}

/// How the throughput went around a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ThroughputRecovery {
    /// Transactions a second before it.
    pub(crate) before: f64,
    /// In the second that was worst.
    pub(crate) lowest: f64,
    /// How long after the fault it was back, if it was.
    pub(crate) back_after: Option<f64>,
}

/// Longest look back.
const LOOK_BACK: f64 = 10.0;
/// What counts as coming back: so long a time must be as good as asked for.
const STEADY: f64 = 3.0;
/// Shortest time that says how it was before.
const LEAST: f64 = 1.0;
/// Beginning of a run that says nothing: caches are cold.
const WARM_UP: f64 = 1.0;

/// How the survivors' throughput came back after a fault at `at`, for which it has `bound` seconds.
/// It can be seen between the event `since` before and the event `until` after it. A driver that
/// began too late before the fault counts for nothing.
///
/// # Errors
/// Why nothing can be said about it.
pub(crate) fn recovery(
    tracks: &[&ThroughputTrack],
    (since, at, until): (f64, f64, f64),
    (share, bound): (f64, f64),
) -> Result<ThroughputRecovery, String> {
    let in_time = |track: &&&ThroughputTrack| track.began + WARM_UP + LEAST <= at;
    let tracks: Vec<&ThroughputTrack> = tracks.iter().filter(in_time).copied().collect();
    if tracks.is_empty() {
        let least = WARM_UP + LEAST;
        return Err(format!("no driver that goes on has a record of what it did {least} s before"));
    }
    let began = tracks.iter().map(|track| track.began).fold(f64::NEG_INFINITY, f64::max);
    let ended = tracks.iter().map(|track| track.ended).fold(f64::INFINITY, f64::min);
    let from = since.max(began + WARM_UP).max(at - LOOK_BACK);
    let until = until.min(ended);
    if at - from < LEAST {
        return Err(format!("something else happened less than {LEAST} s before"));
    }
    let tracks = &tracks[..];
    let before = rate(tracks, from, at);
    if before <= 0.0 {
        return Err("nothing was committed before".to_owned());
    }
    let steps = (0..).map(|step| at + f64::from(step) * 0.25);
    let lowest = steps
        .clone()
        .take_while(|start| start + 1.0 <= until)
        .map(|start| rate(tracks, start, start + 1.0))
        .fold(f64::INFINITY, f64::min);
    let mut back = steps.take_while(|start| start + STEADY <= until);
    let is_back = |start: &f64| {
        let first = rate(tracks, *start, start + 1.0);
        first >= share * before && rate(tracks, *start, start + STEADY) >= share * before
    };
    let back_after = back.find(is_back).map(|start| start - at);
    let (seen, needed) = (until - at, bound + STEADY);
    if back_after.is_none() && seen < needed {
        return Err(format!("it was seen for {seen:.1} s, and takes {needed:.1} s to judge"));
    }
    Ok(ThroughputRecovery { before, lowest, back_after })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(began: f64, counts: &[u64]) -> ThroughputTrack {
        ThroughputTrack { began, counts: counts.to_vec(), ended: began + counts.len() as f64 }
    }

    #[test]
    fn rates_of_drivers_that_began_apart_are_added() {
        let (first, second) = (track(0.0, &[10, 20, 30]), track(0.5, &[100, 200]));
        let both = [&first, &second];
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        near(rate(&both, 0.0, 1.0), 10.0 + 50.0);
        near(rate(&both, 1.0, 2.0), 20.0 + 50.0 + 100.0);
        near(rate(&both, 0.0, 3.0), (60.0 + 300.0) / 3.0);
        near(rate(&both, 5.0, 6.0), 0.0);
        near(rate(&both, 2.0, 2.0), 0.0);
        // A last second of half its length is twice as fast.
        let short = ThroughputTrack { ended: 1.5, ..track(0.0, &[10, 10]) };
        near(rate(&[&short], 1.0, 1.5), 20.0);
    }

    #[test]
    fn a_recovery_is_the_first_steady_time() {
        let mut counts = vec![100; 30];
        for (second, count) in [(10, 40), (11, 0), (12, 0), (13, 90), (14, 10), (15, 85)] {
            counts[second] = count;
        }
        let one = track(0.0, &counts);
        let recovery = |until| recovery(&[&one], (0.0, 10.0, until), (0.8, 2.0));
        let found = recovery(30.0).unwrap();
        assert_eq!((found.before, found.lowest), (100.0, 0.0));
        // The second 13 is good, but what follows it is not.
        let back = found.back_after.unwrap();
        assert!((4.5..=5.0).contains(&back), "{back}");
        assert_eq!(recovery(15.0).unwrap().back_after, None);
        // As long as it could have been back within the bound is seen, and no longer.
        assert_eq!(recovery(14.9).unwrap_err(), "it was seen for 4.9 s, and takes 5.0 s to judge");
    }

    #[test]
    fn who_is_gone_counts_for_nothing_and_nobody_cannot_be_judged() {
        let steady = track(-0.25, &[50; 20]);
        let recovery = |tracks: &[&ThroughputTrack], span| recovery(tracks, span, (0.8, 5.0));
        let found = recovery(&[&steady], (0.0, 8.0, 19.0)).unwrap();
        assert_eq!(found.back_after, Some(0.0));
        let none = "no driver that goes on has a record of what it did 2 s before";
        assert_eq!(recovery(&[], (0.0, 8.0, 19.0)).unwrap_err(), none);
        let late = track(6.5, &[50; 20]);
        assert_eq!(recovery(&[&late], (0.0, 8.0, 19.0)).unwrap_err(), none);
        // Neither does a driver that comes later make up for others.
        let falls = track(-0.25, &[vec![50; 9], vec![5; 11]].concat());
        let found = recovery(&[&falls, &late], (0.0, 8.0, 19.0)).unwrap();
        assert_eq!((found.before.round(), found.back_after), (50.0, None));
        let since = recovery(&[&steady], (7.5, 8.0, 19.0)).unwrap_err();
        assert_eq!(since, "something else happened less than 1 s before");
        let idle = track(0.0, &[0; 20]);
        assert_eq!(
            recovery(&[&idle], (0.0, 8.0, 19.0)).unwrap_err(),
            "nothing was committed before"
        );
    }
}
