//! The result of a run.

use std::path::PathBuf;
use std::time::Duration;

use selkie_txn::AbortCause;

use crate::run::LoadReport;
use crate::tpcc::check::{BrokenCondition, CommitVerification, Judgement, UnreadRows};
use crate::tpcc::config::Config;
use crate::tpcc::interval::TpccInterval;
use crate::tpcc::transaction_type::TransactionType;

/// What was found in the database after the run.
#[derive(Clone, Debug)]
pub(crate) struct CheckResult {
    pub(crate) judgement: Judgement,
    /// Lost pages that were met.
    pub(crate) lost_pages: usize,
    /// How much of each table is on them.
    pub(crate) unread: Vec<UnreadRows>,
    pub(crate) commits: CommitVerification,
    /// Of these, those of the files that were to be verified.
    pub(crate) of_files: Vec<(PathBuf, CommitVerification)>,
    pub(crate) duration: Duration,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) config: Config,
    pub(super) load: LoadReport,
    pub(super) interval: TpccInterval,
    pub(super) checked: CheckResult,
    alone: bool,
}

impl Report {
    pub(crate) fn new(
        config: &Config,
        load: LoadReport,
        interval: TpccInterval,
        checked: CheckResult,
    ) -> Self {
        Self { config: config.clone(), load, interval, checked, alone: false }
    }

    /// The same of a run in a pool of its process alone, where no node dies and nothing may be
    /// lost.
    #[must_use]
    pub(crate) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// The conditions that do not hold.
    #[must_use]
    pub fn broken(&self) -> &[BrokenCondition] {
        &self.checked.judgement.broken
    }

    /// Whether every condition holds, as far as it can be judged: see [`Report::lost_pages`].
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.broken().is_empty()
    }

    /// Pages that the check met and that are lost with the nodes that held them. Where there are
    /// some, conditions are judged on what can be read.
    #[must_use]
    pub fn lost_pages(&self) -> usize {
        self.checked.lost_pages
    }

    /// What became of the NewOrder and Payment transactions that this driver committed.
    #[must_use]
    pub fn commits(&self) -> &CommitVerification {
        &self.checked.commits
    }

    /// Whether pages were taken for lost though no node can have died.
    #[must_use]
    pub fn lost_without_a_death(&self) -> bool {
        self.alone && (self.lost_pages() > 0 || self.lost() > 0 || self.commits().on_lost_pages > 0)
    }

    /// Whether nothing is wrong: every condition holds on what can be read, no committed
    /// transaction is missing but those on lost pages, and there are such pages only if nodes may
    /// have died.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.is_consistent() && self.commits().missing == 0 && !self.lost_without_a_death()
    }

    /// Transactions that were given up because of pages that dead nodes took with them.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.interval.measurements.lost()
    }

    /// NewOrder transactions completed a minute.
    #[must_use]
    pub fn tpmc(&self) -> f64 {
        let new_orders = self.interval.measurements.of(TransactionType::NewOrder);
        60.0 * self.interval.per_second(new_orders.map_or(0, |stats| stats.completed))
    }

    /// Transactions completed a second.
    #[must_use]
    pub fn tps(&self) -> f64 {
        self.interval.per_second(self.completed())
    }

    /// Transactions completed.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.interval.completed()
    }

    /// Share of the accesses to pages that found them cached.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        self.interval.hit_ratio()
    }

    /// What was measured.
    #[must_use]
    pub fn interval(&self) -> &TpccInterval {
        &self.interval
    }

    /// Attempts rolled back, by cause. Those asked for are the orders with an unused item.
    pub fn aborts(&self) -> impl Iterator<Item = (AbortCause, u64)> + '_ {
        self.interval.aborts()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use selkie_engine::EngineStats;
    use selkie_fabric::meter::MeterSnapshot;
    use selkie_txn::TxnStats;

    use super::*;
    use crate::run::Measurements;
    use crate::tpcc::check;
    use crate::tpcc::commit_record::CommitRecords;

    /// A report of one transaction a type in two seconds, with one condition broken.
    pub(crate) fn sample() -> Report {
        let mut measurements = Measurements::new().unwrap();
        for (kind, micros) in TransactionType::ALL.into_iter().zip([100, 200, 300, 400, 500]) {
            measurements.stats_mut(kind).unwrap().complete(Duration::from_micros(micros), 2);
        }
        let engine =
            EngineStats { hits: 90, misses: 10, invalidations: 5, ..EngineStats::default() };
        let traffic = MeterSnapshot {
            chains: 20,
            atomics: 10,
            bytes_read: 4000,
            bytes_written: 1000,
            ..MeterSnapshot::default()
        };
        let interval = TpccInterval {
            elapsed: Duration::from_secs(2),
            interrupted: false,
            measurements,
            commits: CommitRecords::default(),
            engine: vec![engine],
            txn: vec![TxnStats::default()],
            traffic,
            database_bytes: 12 << 20,
        };
        let load =
            LoadReport { duration: Duration::from_secs(1), rows: 1234, database_bytes: 8 << 20 };
        let config = Config { cache_mib: Some(4), ..Config::default() };
        let broken = check::BrokenCondition {
            condition: 3,
            rule: "a rule",
            offences: 1,
            examples: vec!["district (1, 2)".to_owned()],
        };
        let checked = CheckResult {
            judgement: Judgement { broken: vec![broken], unjudged: Vec::new(), judged: 12 },
            lost_pages: 0,
            unread: Vec::new(),
            commits: CommitVerification {
                committed: 5,
                looked_for: 2,
                found: 2,
                ..CommitVerification::default()
            },
            of_files: Vec::new(),
            duration: Duration::from_secs(1),
        };
        Report::new(&config, load, interval, checked)
    }

    /// The same after a node died.
    pub(crate) fn sample_after_a_death() -> Report {
        let mut report = sample();
        report.interval.measurements.stats_mut(TransactionType::Payment).unwrap().lost = 7;
        report.checked = CheckResult {
            judgement: Judgement {
                broken: Vec::new(),
                unjudged: vec![(1, 4), (10, 30)],
                judged: 11,
            },
            lost_pages: 3,
            unread: vec![
                UnreadRows { table: "customer", at_least: Some(12) },
                UnreadRows { table: "history", at_least: None },
            ],
            commits: CommitVerification {
                committed: 50,
                looked_for: 20,
                found: 18,
                on_lost_pages: 2,
                ..CommitVerification::default()
            },
            of_files: Vec::new(),
            duration: Duration::from_secs(1),
        };
        report
    }

    #[test]
    fn quotients() {
        let report = sample();
        assert!((report.tps() - 2.5).abs() < 1e-9);
        assert!((report.tpmc() - 30.0).abs() < 1e-9);
        assert!((report.hit_ratio() - 0.9).abs() < 1e-9);
        assert!((report.interval.per_txn(report.interval.traffic.chains) - 4.0).abs() < 1e-9);
        assert!(!report.is_consistent() && !report.holds());
        let mut report = sample_after_a_death();
        assert!(report.is_consistent() && report.holds());
        assert_eq!((report.lost(), report.lost_pages()), (7, 3));
        report.checked.commits.missing = 1;
        assert!(report.is_consistent() && !report.holds(), "nothing may be lost silently");
        // A page that is taken for lost in a pool of one process is a mistake.
        assert!(sample_after_a_death().holds() && !sample_after_a_death().alone().holds());
        let mut report = sample().alone();
        report.checked.judgement.broken.clear();
        assert!(report.holds());
        report.interval.measurements.stats_mut(TransactionType::Payment).unwrap().lost = 1;
        assert!(!report.holds() && report.lost_without_a_death());
    }
}
