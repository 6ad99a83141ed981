//! Quantiles of durations.

use std::time::Duration;

/// How long operations took, in microseconds: half of them, and 99 % of them, no longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::figures) struct Quantiles {
    pub(in crate::figures) median: f64,
    pub(in crate::figures) p99: f64,
}

impl Quantiles {
    pub(in crate::figures) fn of(durations: &mut [Duration]) -> Self {
        Self { median: micros(durations, 0.5), p99: micros(durations, 0.99) }
    }
}

/// A quantile of durations, microseconds; they are sorted for it.
fn micros(durations: &mut [Duration], quantile: f64) -> f64 {
    durations.sort_unstable();
    let last = durations.len().saturating_sub(1);
    let at = (last as f64 * quantile).round() as usize;
    durations.get(at).map_or(0.0, |duration| duration.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_measured() {
        let mut all: Vec<_> = (1..=101).rev().map(Duration::from_micros).collect();
        let of = [0.0, 0.5, 0.99, 1.0].map(|quantile| micros(&mut all, quantile));
        assert_eq!(of, [1.0, 51.0, 100.0, 101.0]);
        assert_eq!(micros(&mut [], 0.5), 0.0);
    }
}
