//! What a worker measures, and the sum over all workers.

use std::marker::PhantomData;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::cluster::MAX_DURATION;
use crate::error::TpccError;
use crate::workload::Mix;

/// Longest latency told apart, in nanoseconds: ten minutes. Longer ones count as this.
const MAX_LATENCY_NS: u64 = 600_000_000_000;
/// Decimal digits to which latencies are kept.
const DIGITS: u8 = 3;

/// Shares of which [`TransactionStats::latency_over_nines`] tells between one and the next nine.
const STEPS_A_NINE: f64 = 8.0;

/// Percentiles of one type, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Half of the transactions took no longer.
    pub p50: f64,
    /// 95 % of them.
    pub p95: f64,
    /// 99 % of them.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

/// What happened to the transactions of one type.
#[derive(Clone, Debug)]
pub struct TransactionStats {
    /// Completed, those that failed included.
    pub completed: u64,
    /// Of these, those that failed as the benchmark has some of them fail: because of an unused
    /// item (TPC-C), of insufficient funds (SmallBank), of a row that is not there or is there
    /// already (TATP).
    pub failed: u64,
    /// Attempts beyond the first.
    pub retries: u64,
    /// Districts that had nothing to deliver.
    pub skipped: u64,
    /// Given up, because a node that died took a page with it that they need. A Delivery is one if
    /// that is so in at least one of its districts; it has delivered in the others.
    pub lost: u64,
    /// From the first attempt to the end of the last, nanoseconds.
    latency: Histogram<u64>,
}

impl TransactionStats {
    fn new() -> Result<Self, TpccError> {
        // It grows with what is recorded: the memory of hundreds of workers' would take a second to
        // make.
        let latency = Histogram::new(DIGITS);
        let mut latency = latency.map_err(|error| TpccError::Histogram(error.to_string()))?;
        latency.auto(true);
        Ok(Self { completed: 0, failed: 0, retries: 0, skipped: 0, lost: 0, latency })
    }

    /// Notes one that completed.
    pub(crate) fn complete(&mut self, latency: Duration, attempts: u64) {
        self.completed += 1;
        self.retries += attempts.saturating_sub(1);
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).min(MAX_LATENCY_NS);
        // With its bounds it cannot fail.
        if self.latency.record(nanos).is_err() {
            self.latency.saturating_record(nanos);
        }
    }

    /// The percentiles.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let at = |quantile: f64| self.latency.value_at_quantile(quantile) as f64 / 1000.0;
        let max = self.latency.max() as f64 / 1000.0;
        Latency { p50: at(0.50), p95: at(0.95), p99: at(0.99), max }
    }

    /// Latencies in microseconds over the share of the transactions that took no longer, up to the
    /// slowest. A share is told by its nines: 0 for none, 1 for 90 %, 2 for 99 %. Empty if there
    /// were no transactions.
    #[must_use]
    pub fn latency_over_nines(&self) -> Vec<(f64, f64)> {
        let count = self.latency.len() as f64;
        if count < 1.0 {
            return Vec::new();
        }
        let most = count.log10();
        let nines =
            (0_u32..).map(|step| f64::from(step) / STEPS_A_NINE).take_while(|at| *at < most);
        let us = |nanos: u64| nanos as f64 / 1000.0;
        let below =
            nines.map(|at| (at, us(self.latency.value_at_quantile(1.0 - 10_f64.powf(-at)))));
        below.chain([(most, us(self.latency.max()))]).collect()
    }

    fn add(&mut self, other: &Self) -> Result<(), TpccError> {
        self.completed += other.completed;
        self.failed += other.failed;
        self.retries += other.retries;
        self.skipped += other.skipped;
        self.lost += other.lost;
        let added = self.latency.add(&other.latency);
        added.map_err(|error| TpccError::Histogram(error.to_string()))
    }
}

/// The measurements of a worker, or of all.
#[derive(Clone, Debug)]
pub struct Measurements<K> {
    /// In the order of [`Mix::ALL`].
    stats: Vec<TransactionStats>,
    /// Completed in each second since the beginning.
    seconds: Vec<u64>,
    kinds: PhantomData<K>,
}

impl<K: Mix> Measurements<K> {
    /// Nothing yet.
    ///
    /// # Errors
    /// [`TpccError::Histogram`]; never with the bounds chosen here.
    pub fn new() -> Result<Self, TpccError> {
        let stats = K::ALL.iter().map(|_| TransactionStats::new()).collect::<Result<_, _>>()?;
        Ok(Self { stats, seconds: Vec::new(), kinds: PhantomData })
    }

    /// What happened to one type; its histogram is behind the types' own.
    pub fn of(&self, kind: K) -> Option<&TransactionStats> {
        self.stats.get(kind.index())
    }

    /// Every type with what happened to it.
    pub fn iter(&self) -> impl Iterator<Item = (K, &TransactionStats)> {
        K::ALL.iter().copied().zip(&self.stats)
    }

    /// Transactions of all types that completed.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.stats.iter().map(|stats| stats.completed).sum()
    }

    /// Transactions of all types that failed as the benchmark has some of them fail.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.stats.iter().map(|stats| stats.failed).sum()
    }

    /// Transactions of all types that were given up because of pages that dead nodes took with
    /// them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.stats.iter().map(|stats| stats.lost).sum()
    }

    /// Transactions of all types that completed in each second of the run, up to the last that saw
    /// one.
    #[must_use]
    pub fn seconds(&self) -> &[u64] {
        &self.seconds
    }

    /// Notes that one completed so long after the beginning.
    pub(crate) fn count_at(&mut self, since_begin: Duration) {
        let second = since_begin.min(MAX_DURATION).as_secs() as usize;
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, 0);
        }
        if let Some(count) = self.seconds.get_mut(second) {
            *count += 1;
        }
    }

    pub(crate) fn stats_mut(&mut self, kind: K) -> Option<&mut TransactionStats> {
        self.stats.get_mut(kind.index())
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<(), TpccError> {
        let seconds = self.seconds.len().max(other.seconds.len());
        self.seconds.resize(seconds, 0);
        for (sum, one) in self.seconds.iter_mut().zip(&other.seconds) {
            *sum += one;
        }
        self.stats.iter_mut().zip(&other.stats).try_for_each(|(sum, one)| sum.add(one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smallbank::TransactionType;

    #[test]
    fn sums_hold_every_workers_transactions() {
        let mut all = Measurements::new().unwrap();
        for micros in [100, 300] {
            let mut one = Measurements::new().unwrap();
            for _ in 0..50 {
                one.stats_mut(TransactionType::SendPayment)
                    .unwrap()
                    .complete(Duration::from_micros(micros), 3);
            }
            one.stats_mut(TransactionType::Amalgamate)
                .unwrap()
                .complete(Duration::from_secs(3600), 1);
            all.add(&one).unwrap();
        }
        assert_eq!(all.completed(), 102);
        let payment = all.of(TransactionType::SendPayment).unwrap();
        assert_eq!((payment.completed, payment.retries), (100, 200));
        let latency = payment.latency();
        assert!((latency.p50 - 100.0).abs() < 1.0 && (latency.p95 - 300.0).abs() < 1.0);
        assert!((all.of(TransactionType::Amalgamate).unwrap().latency().max - 600e6).abs() < 1e6);
    }

    #[test]
    fn latencies_are_told_over_nines() {
        let mut stats = TransactionStats::new().unwrap();
        assert_eq!(stats.latency_over_nines(), []);
        for micros in 1..=1_000 {
            stats.complete(Duration::from_micros(micros), 1);
        }
        let over = stats.latency_over_nines();
        assert_eq!(over.len(), 3 * 8 + 1);
        for (at, nines, micros) in
            [(0, 0.0, 1.0), (8, 1.0, 900.0), (16, 2.0, 990.0), (24, 3.0, 1e3)]
        {
            assert!((over[at].0 - nines).abs() < 1e-9, "{:?}", over[at]);
            assert!((over[at].1 / micros - 1.0).abs() < 0.002, "{:?}", over[at]);
        }
        assert!(over.is_sorted_by(|a, b| a.1 <= b.1));
    }

    #[test]
    fn seconds_are_added_up_one_by_one() {
        let mut all = Measurements::new().unwrap();
        for (worker, millis) in [(0, &[0, 999, 1000][..]), (1, &[3500, 3999])] {
            let mut one = Measurements::new().unwrap();
            for at in millis {
                one.count_at(Duration::from_millis(*at));
            }
            one.stats_mut(TransactionType::SendPayment).unwrap().lost += worker;
            all.add(&one).unwrap();
        }
        assert_eq!(all.seconds(), [2, 1, 0, 2]);
        assert_eq!(all.lost(), 1);
    }
}
