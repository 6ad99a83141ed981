//! The result of a benchmark: as JSON, and as tables for people.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use super::definition::Benchmark;
use super::findings::Findings;
use crate::cluster::Network;
use crate::figures::units::{count, precise, rounded};
use crate::figures::{columns, object, plain};
use crate::run::{Interval, LoadReport};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report<B: Benchmark> {
    /// What was run.
    pub config: B,
    /// What was loaded.
    pub load: LoadReport,
    /// What was measured.
    pub interval: Interval<B::TransactionType, ()>,
    /// What the check found.
    pub findings: Findings,
    /// How long it took.
    pub check: Duration,
}

impl<B: Benchmark> Report<B> {
    /// Whether every rule holds, and no page was taken for lost: in a pool of one process no node
    /// dies.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.findings.hold() && self.interval.measurements.lost() == 0
    }

    fn network(&self) -> Network {
        self.config.shape().setup.network
    }

    /// Transactions that did not fail, a second.
    #[must_use]
    pub fn successful_per_second(&self) -> f64 {
        let failed = self.interval.measurements.failed();
        self.interval.per_second(self.interval.completed().saturating_sub(failed))
    }

    /// The report as a JSON object:
    /// ```text
    /// config                 what was run, with derived sizes in bytes; network: the simulated
    ///                        one's name, with all times virtual and no threads, or "embedded"
    /// tps, successful_tps    transactions completed a second, and those of them that did not fail
    /// transactions, failed   completed, of all types, and those of them that failed as the
    ///                        benchmark has it
    /// by_type                for each type: completed, failed, retries, lost
    /// latency_us             for each type: p50, p95, p99, max, in microseconds
    /// aborts                 attempts rolled back, by cause
    /// row_locks              waits, wait_seconds of all of them together, and refusals, of those
    ///                        who were not to wait
    /// turns                  at rows that many transactions change: waits, wait_seconds of all of
    ///                        them together, lost, those that lasted too long, and circles, waits
    ///                        not begun as transactions would have waited for each other
    /// hit_ratio              share of page accesses that found the page cached
    /// round_trips_per_txn, atomics_per_txn, bytes_per_txn, messages_per_txn
    /// invalidations_per_txn, downgrades_per_txn
    /// engine                 counters of all nodes
    /// load                   seconds, rows
    /// database_bytes         after the load; final_database_bytes: after the run
    /// seconds, check_seconds durations of the measurement and of the check
    /// per_second             transactions completed in each whole second of the measurement
    /// partial_second         seconds, transactions: what is left behind the last whole second;
    ///                        null if nothing is
    /// interrupted            whether a signal ended the measurement early
    /// consistency            "ok", or the list of rules that do not hold
    /// totals                 what the check counted
    /// ```
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut config = self.config.shape().to_json();
        config.extend(object(self.config.settings_to_json()));
        config.insert("network".to_owned(), json!(self.network().name()));
        let consistency = if self.findings.hold() {
            json!("ok")
        } else {
            json!(self.findings.violations().collect::<Vec<_>>())
        };
        let mut all = self.interval.to_json();
        all.extend(object(json!({
            "config": config,
            "successful_tps": rounded(self.successful_per_second()),
            "failed": self.interval.measurements.failed(),
            "by_type": self.interval.by_type(|_, stats| json!({
                "completed": stats.completed,
                "failed": stats.failed,
                "retries": stats.retries,
                "lost": stats.lost,
            })),
            "load": { "seconds": self.load.duration.as_secs_f64(), "rows": self.load.rows },
            "database_bytes": self.load.database_bytes,
            "check_seconds": self.check.as_secs_f64(),
            "consistency": consistency,
            "totals": self.findings.totals(),
        })));
        all.extend(object(self.config.figures_to_json(&self.load, &self.interval)));
        Value::Object(all)
    }
}

impl<B: Benchmark> fmt::Display for Report<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = plain();
        for (name, value) in self.config.settings() {
            settings.add_row(vec![name.to_owned(), value]);
        }
        let network = self.network();
        settings.add_row(vec!["network".to_owned(), network.to_string()]);
        let after = self.interval.database_bytes;
        let nodes = ", all on the same data";
        self.config.shape().say(nodes, &self.load, after, &mut settings);
        writeln!(f, "{settings}")?;
        writeln!(f, "{}", self.interval.types_table())?;
        writeln!(f, "{}", columns(B::FAILED))?;
        let (rate, unit) = ((B::RATE, self.successful_per_second()), network.seconds());
        let mut totals = self.interval.totals_table(rate, unit);
        let check = format!("{} {unit}", precise(self.check.as_secs_f64()));
        totals.add_row(vec!["check".to_owned(), check]);
        writeln!(f, "{totals}")?;
        let counted = self.findings.totals().iter();
        let counted: Vec<_> = counted
            .map(|(name, total)| {
                let sign = if *total < 0 { "-" } else { "" };
                format!("{} {sign}{}", name.replace('_', " "), count(total.unsigned_abs()))
            })
            .collect();
        writeln!(f, "checked: {}", counted.join(", "))?;
        if self.findings.hold() {
            return writeln!(f, "consistency: ok, every rule of {} holds", B::TITLE);
        }
        writeln!(f, "consistency: BROKEN")?;
        self.findings.violations().try_for_each(|violation| writeln!(f, "  {violation}"))
    }
}
