//! Which records requests go to.

use std::fmt;
use std::str::FromStr;

use super::acknowledged::Acknowledged;
use super::zipfian::{USUAL_THETA, Zipfian, scatter};
use crate::workload::Random;

/// Draws after which a record is taken that is not there yet, modulo those that are. YCSB draws
/// for ever, which lasts where far more inserts are expected than there are records.
const MAX_DRAWS: u32 = 64;

/// How requests are distributed over the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Each record as often as any other.
    Uniform,
    /// Few records most often, scattered over all.
    Zipfian,
    /// Most often those that were inserted last.
    Latest,
}

impl Distribution {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Zipfian, Self::Latest];
    /// The exponent of YCSB.
    pub const USUAL_ZIPF: f64 = USUAL_THETA;

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipfian => "zipfian",
            Self::Latest => "latest",
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such distribution; there are uniform, zipfian and latest")]
pub struct UnknownDistribution;

impl FromStr for Distribution {
    type Err = UnknownDistribution;
    fn from_str(text: &str) -> Result<Self, UnknownDistribution> {
        Self::ALL.into_iter().find(|own| own.name() == text).ok_or(UnknownDistribution)
    }
}

/// Draws the numbers of records.
#[derive(Clone, Debug)]
pub(super) enum RecordChooser {
    Uniform { records: u64 },
    Zipfian { ranks: Zipfian, records: u64 },
    Latest(Zipfian),
}

impl RecordChooser {
    /// Of so many records when the run begins; the run is expected to insert so many more. As YCSB
    /// has it, those count only for [`Distribution::Zipfian`], which cannot grow.
    pub(super) fn new(distribution: Distribution, zipf: f64, records: u64, inserts: u64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform { records },
            Distribution::Zipfian => {
                let records = records.saturating_add(inserts);
                Self::Zipfian { ranks: Zipfian::scattered(zipf), records }
            }
            Distribution::Latest => Self::Latest(Zipfian::new(records, zipf)),
        }
    }

    /// The number of a record that is there.
    pub(super) fn choose(&mut self, random: &mut Random, there: &Acknowledged) -> u64 {
        let limit = there.limit();
        if let Self::Latest(ranks) = self {
            ranks.grow(limit);
            // The limit never falls, and the ranks know no more than it.
            return limit.saturating_sub(1 + ranks.rank(random.unit()));
        }
        let mut number = 0;
        for _ in 0..MAX_DRAWS {
            number = self.draw(random);
            if number < limit {
                return number;
            }
        }
        number % limit.max(1)
    }

    fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Self::Uniform { records } => random.below(*records),
            Self::Zipfian { ranks, records } => scatter(ranks.rank(random.unit()), *records),
            Self::Latest(ranks) => ranks.rank(random.unit()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: u64 = 1_000;
    const DRAWS: usize = 200_000;

    fn counts(distribution: Distribution, there: &Acknowledged, inserts: u64) -> Vec<u32> {
        let (zipf, mut random) = (Distribution::USUAL_ZIPF, Random::stream(7, 7));
        let mut chooser = RecordChooser::new(distribution, zipf, RECORDS, inserts);
        let mut counts = vec![0; there.limit() as usize];
        (0..DRAWS).for_each(|_| counts[chooser.choose(&mut random, there) as usize] += 1);
        counts
    }

    fn moments(counts: &[u32]) -> (f64, f64) {
        let of = |value: &dyn Fn(f64) -> f64| {
            let sum = counts.iter().enumerate().map(|(at, n)| f64::from(*n) * value(at as f64));
            sum.sum::<f64>() / DRAWS as f64
        };
        let mean = of(&|at| at);
        (mean, of(&|at| (at - mean).powi(2)))
    }

    #[test]
    fn uniform_requests_have_the_moments_of_their_range() {
        let counts = counts(Distribution::Uniform, &Acknowledged::new(RECORDS), 0);
        let (mean, variance) = moments(&counts);
        assert!((mean - 499.5).abs() < 3.3, "{mean}");
        assert!((variance / ((1e6 - 1.0) / 12.0) - 1.0).abs() < 0.02, "{variance}");
        assert!(counts.iter().all(|count| (120..280).contains(count)));
    }

    #[test]
    fn zipfian_requests_go_to_the_records_of_ycsb() {
        let counts = counts(Distribution::Zipfian, &Acknowledged::new(RECORDS), 0);
        // The shares of ranks 0, 1 and 2 of 10^10, at the records on which they fall; the ranks
        // beyond are spread like a uniform floor under them.
        let shares = [1.0, 0.5_f64.powf(0.99), 3.0_f64.powf(-0.99)].map(|share| share / 26.469);
        for (record, share) in [211, 620, 393].into_iter().zip(shares) {
            let found = f64::from(counts[record]) / DRAWS as f64;
            assert!((share..share + 0.005).contains(&found), "{record}: {found}, {share}");
        }
        let mut order: Vec<usize> = (0..counts.len()).collect();
        order.sort_by_key(|record| std::cmp::Reverse(counts[*record]));
        assert_eq!(order[..3], [211, 620, 393]);
        assert!(counts.iter().all(|count| *count > 0), "the tail reaches all");
    }

    #[test]
    fn latest_requests_go_to_the_end_and_follow_it() {
        let there = Acknowledged::new(RECORDS);
        let before = counts(Distribution::Latest, &there, 0);
        (0..500).for_each(|_| there.acknowledge(there.take()));
        let after = counts(Distribution::Latest, &there, 0);
        for (counts, last) in [(&before, 999), (&after, 1_499)] {
            let zeta: f64 = (1..=counts.len()).map(|i| (i as f64).powf(-0.99)).sum();
            let share = f64::from(counts[last]) / DRAWS as f64;
            assert!((share * zeta - 1.0).abs() < 0.03, "{share} {zeta}");
            assert!(counts[last] > counts[last - 1] && counts[last - 1] > counts[last - 9]);
            assert!(counts[0] < 100);
        }
    }

    #[test]
    fn no_request_goes_to_a_record_that_is_not_there() {
        let there = Acknowledged::new(RECORDS);
        // Taken, and not acknowledged.
        there.take();
        for distribution in Distribution::ALL {
            for inserts in [0, 50, 1_000_000_000] {
                assert_eq!(counts(distribution, &there, inserts).len(), RECORDS as usize);
            }
        }
    }
}
