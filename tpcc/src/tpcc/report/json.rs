//! The report as one JSON object. Its keys are an interface: others read them.

use serde_json::{Map, Value, json};

use super::result::Report;
use crate::figures::object;
use crate::figures::units::rounded;
use crate::run::TransactionStats;
use crate::tpcc::config::Config;
use crate::tpcc::transaction_type::TransactionType;

impl Report {
    /// The report as a JSON object:
    /// ```text
    /// config                 what was run, with derived sizes in bytes
    /// tpmc, tps              rates
    /// transactions           completed, of all types
    /// by_type                for each type: completed, retries, lost (rolled_back for NewOrder,
    ///                        skipped_districts for Delivery)
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
    /// engine                 evictions, write_backs, upgrades, busy of all nodes; corruptions,
    ///                        splits of coded pages found not to be as they were written, and
    ///                        repairs, those written again; what was found at the very end is
    ///                        written again after it, and not counted here
    /// load                   seconds, rows
    /// database_bytes         after the load, and cache_to_database, what one node can cache of it
    /// final_database_bytes   after the run
    /// seconds, check_seconds durations of the measurement and of the check
    /// per_second             transactions completed in each whole second of the measurement
    /// partial_second         seconds, transactions: what is left behind the last whole second;
    ///                        null if nothing is
    /// interrupted            whether a signal ended the measurement early
    /// consistency            "ok"; "partial" if pages are lost, and what can be read is
    ///                        consistent; else the list of broken conditions
    /// lost                   transactions: given up because of lost pages; pages: lost ones that
    ///                        the check met; rows: how many of each table cannot be read, at least
    ///                        (null if nothing tells); unjudged: for how many warehouses,
    ///                        districts, ... each condition is not judged; judged: how many
    ///                        conditions are judged for something
    /// journal                this driver's committed NewOrder and Payment transactions: committed,
    ///                        looked_for, found, on_lost_pages, missing, and examples of the
    ///                        latter; those of files that were verified are among them, and
    ///                        of_files says for each how many it has, and what became of them
    /// ```
    /// `selkie tpcc --json` adds `began_unix_ms`, when the measurement began, by the host's clock.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let consistency = match (self.is_consistent(), self.lost_pages()) {
            (true, 0) => json!("ok"),
            (true, _) => json!("partial"),
            (false, _) => json!(self.broken()),
        };
        let cache = self.config.cache_bytes() as f64;
        let mut all = self.interval.to_json();
        all.extend(object(json!({
            "config": config(&self.config),
            "tpmc": rounded(self.tpmc()),
            "by_type": self.interval.by_type(counts),
            "load": { "seconds": self.load.duration.as_secs_f64(), "rows": self.load.rows },
            "database_bytes": self.load.database_bytes,
            "cache_to_database": cache / self.load.database_bytes.max(1) as f64,
            "check_seconds": self.checked.duration.as_secs_f64(),
            "consistency": consistency,
            "lost": self.lost_to_json(),
            "journal": self.commits_to_json(),
        })));
        Value::Object(all)
    }

    fn lost_to_json(&self) -> Value {
        let rows = self.checked.unread.iter();
        let rows: Map<_, _> =
            rows.map(|rows| (rows.table.to_owned(), json!(rows.at_least))).collect();
        let unjudged = self.checked.judgement.unjudged.iter();
        let unjudged: Map<_, _> =
            unjudged.map(|(condition, count)| (condition.to_string(), json!(count))).collect();
        json!({
            "transactions": self.lost(),
            "pages": self.lost_pages(),
            "rows": rows,
            "unjudged": unjudged,
            "judged": self.checked.judgement.judged,
        })
    }

    fn commits_to_json(&self) -> Value {
        let commits = self.commits();
        json!({
            "committed": commits.committed,
            "looked_for": commits.looked_for,
            "found": commits.found,
            "on_lost_pages": commits.on_lost_pages,
            "missing": commits.missing,
            "examples": commits.examples,
            "of_files": self.checked.of_files.iter().map(|(path, commits)| json!({
                "file": path.display().to_string(),
                "committed": commits.committed,
                "found": commits.found,
                "on_lost_pages": commits.on_lost_pages,
                "missing": commits.missing,
            })).collect::<Vec<_>>(),
        })
    }
}

fn config(config: &Config) -> Value {
    let mut all = config.shape().to_json();
    all.extend(object(json!({
        "warehouses": config.warehouses,
        "duration_s": config.duration.as_secs(),
        "affinity": config.affinity,
        "via": config.via.name(),
        "homes": config.homes.map(|(first, last)| [first, last]),
        "remote_percent": config.remote_percent,
        "think": config.think,
        "standard_scale": config.scale.is_standard(),
        "scale": config.scale,
    })));
    Value::Object(all)
}

fn counts(kind: TransactionType, stats: &TransactionStats) -> Value {
    let (completed, retries, lost) = (stats.completed, stats.retries, stats.lost);
    match kind {
        TransactionType::NewOrder => json!({
            "completed": completed,
            "retries": retries,
            "lost": lost,
            "rolled_back": stats.failed,
        }),
        TransactionType::Delivery => json!({
            "completed": completed,
            "retries": retries,
            "lost": lost,
            "skipped_districts": stats.skipped,
        }),
        _ => json!({ "completed": completed, "retries": retries, "lost": lost }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use selkie_txn::TxnStats;
    use serde_json::json;

    use super::super::result::tests::{sample, sample_after_a_death};

    #[test]
    fn the_keys_others_read_are_there() {
        let json = sample().to_json();
        for key in [
            "config",
            "tpmc",
            "tps",
            "latency_us",
            "aborts",
            "hit_ratio",
            "round_trips_per_txn",
            "atomics_per_txn",
            "bytes_per_txn",
            "invalidations_per_txn",
            "consistency",
            "seconds",
            "per_second",
            "lost",
            "journal",
        ] {
            assert!(!json[key].is_null(), "{key}");
        }
        let p99 = json["latency_us"]["stock_level"]["p99"].as_f64().unwrap();
        assert!((p99 - 500.0).abs() < 1.0, "{p99}");
        assert_eq!(json["by_type"]["payment"]["retries"], 1);
        assert_eq!(json["bytes_per_txn"], 1000.0);
        assert_eq!(json["invalidations_per_txn"], 1.0);
        assert_eq!(json["config"]["cache_bytes"], 4 << 20);
        assert_eq!(json["cache_to_database"], 0.5);
        assert_eq!(json["aborts"]["conflict"], 0);
        assert_eq!(json["seconds"], 2.0);
        assert!(json["per_second"].is_array());
    }

    /// Each has its own number: none stands for another.
    #[test]
    fn what_was_counted_of_row_locks_and_turns_is_said() {
        let mut report = sample();
        let counted = |factor: u32| TxnStats {
            lock_waits: factor.into(),
            lock_wait_time: Duration::from_secs(2) * factor,
            lock_refusals: (3 * factor).into(),
            turn_waits: (4 * factor).into(),
            turn_wait_time: Duration::from_secs(5) * factor,
            turns_lost: (6 * factor).into(),
            turn_circles: (7 * factor).into(),
            ..TxnStats::default()
        };
        report.interval.txn = vec![counted(1), counted(10)];
        let said = report.to_json();
        let locks = json!({ "waits": 11, "wait_seconds": 22.0, "refusals": 33 });
        let turns = json!({ "waits": 44, "wait_seconds": 55.0, "lost": 66, "circles": 77 });
        assert_eq!((&said["row_locks"], &said["turns"]), (&locks, &turns));
        let text = report.to_string();
        let lines = [("row locks waited for", "11, 22.0 s"), ("turns waited for", "44, 55.0 s")];
        for (what, figures) in lines {
            let found = text.lines().find(|line| line.contains(what)).unwrap();
            assert!(found.contains(figures), "{found}");
        }
    }

    #[test]
    fn consistency_is_ok_or_a_list() {
        let mut report = sample();
        assert_eq!(report.to_json()["consistency"][0]["condition"], 3);
        report.checked.judgement.broken.clear();
        assert_eq!(report.to_json()["consistency"], "ok");
        assert_eq!(report.to_json()["journal"]["found"], 2);
    }

    #[test]
    fn what_was_lost_is_said() {
        let json = sample_after_a_death().to_json();
        assert_eq!(json["consistency"], "partial");
        assert_eq!(json["by_type"]["payment"]["lost"], 7);
        let expected = json!({
            "transactions": 7,
            "pages": 3,
            "rows": { "customer": 12, "history": null },
            "unjudged": { "1": 4, "10": 30 },
            "judged": 11,
        });
        assert_eq!(json["lost"], expected);
        assert_eq!(json["journal"]["on_lost_pages"], 2);
    }
}
