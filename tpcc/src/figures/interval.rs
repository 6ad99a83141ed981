//! What all reports say about a measured interval: rates, latencies, aborts, and traffic.

use comfy_table::Table;
use serde_json::{Map, Value, json};

use super::tables::{align, object, plain};
use super::units::{count, figure, precise, rounded};
use crate::run::{Interval, TransactionStats};
use crate::workload::Mix;

impl<K: Mix, C> Interval<K, C> {
    /// Its figures, by their keys.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let bytes = self.traffic.bytes_read + self.traffic.bytes_written;
        let aborts: Map<String, Value> =
            self.aborts().map(|(cause, count)| (cause.name().to_owned(), json!(count))).collect();
        let (seconds, partial) = self.seconds();
        let figures = json!({
            "tps": rounded(self.per_second(self.completed())),
            "transactions": self.completed(),
            "latency_us": self.by_type(|_, stats| latency(stats)),
            "aborts": aborts,
            "row_locks": {
                "waits": self.txns(|stats| stats.lock_waits),
                "wait_seconds": self.lock_wait_time().as_secs_f64(),
                "refusals": self.txns(|stats| stats.lock_refusals),
            },
            "turns": {
                "waits": self.txns(|stats| stats.turn_waits),
                "wait_seconds": self.turn_wait_time().as_secs_f64(),
                "lost": self.txns(|stats| stats.turns_lost),
                "circles": self.txns(|stats| stats.turn_circles),
            },
            "hit_ratio": self.hit_ratio(),
            "round_trips_per_txn": self.per_txn(self.traffic.chains),
            "atomics_per_txn": self.per_txn(self.traffic.atomics),
            "bytes_per_txn": self.per_txn(bytes),
            "messages_per_txn": self.per_txn(self.engines(|stats| stats.messages)),
            "invalidations_per_txn": self.per_txn(self.engines(|stats| stats.invalidations)),
            "downgrades_per_txn": self.per_txn(self.engines(|stats| stats.downgrades)),
            "engine": {
                "evictions": self.engines(|stats| stats.evictions),
                "write_backs": self.engines(|stats| stats.write_backs),
                "upgrades": self.engines(|stats| stats.upgrades),
                "busy": self.engines(|stats| stats.busy),
                "corruptions": self.engines(|stats| stats.corruptions),
                "repairs": self.engines(|stats| stats.repairs),
            },
            "final_database_bytes": self.database_bytes,
            "seconds": self.elapsed.as_secs_f64(),
            "per_second": seconds,
            "partial_second": partial.map(|(seconds, transactions)| json!({
                "seconds": seconds, "transactions": transactions,
            })),
            "interrupted": self.interrupted,
        });
        object(figures)
    }

    /// Something about each type, by their names.
    pub(crate) fn by_type(
        &self,
        value: impl Fn(K, &TransactionStats) -> Value,
    ) -> Map<String, Value> {
        let kinds = self.measurements.iter();
        kinds.map(|(kind, stats)| (kind.name().to_owned(), value(kind, stats))).collect()
    }

    /// What happened to each type.
    pub(crate) fn types_table(&self) -> Table {
        let mut table = plain();
        table.set_header(vec![
            "transaction",
            "completed",
            "per second",
            "failed",
            "retries",
            "lost",
            "p50 us",
            "p95 us",
            "p99 us",
            "max us",
        ]);
        let is_run = |(kind, stats): &(K, &TransactionStats)| {
            stats.completed + stats.lost > 0 || kind.percent() > 0
        };
        for (kind, stats) in self.measurements.iter().filter(is_run) {
            let latency = stats.latency();
            table.add_row(vec![
                kind.title().to_owned(),
                count(stats.completed),
                whole(self.per_second(stats.completed)),
                count(stats.failed),
                count(stats.retries),
                count(stats.lost),
                whole(latency.p50),
                whole(latency.p95),
                whole(latency.p99),
                whole(latency.max),
            ]);
        }
        align(&mut table);
        table
    }

    /// What all of them came to; `rate` is the driver's own, and `unit` what its seconds are
    /// called.
    pub(crate) fn totals_table(&self, rate: (&str, f64), unit: &str) -> Table {
        let traffic = &self.traffic;
        let mut table = plain();
        let mut line = |name: &str, value: String| {
            table.add_row(vec![name.to_owned(), value]);
        };
        let tps = self.per_second(self.completed());
        let seconds = self.elapsed.as_secs_f64();
        let interrupted = if self.interrupted { ", interrupted" } else { "" };
        line(
            "transactions a second",
            format!("{} in {} {unit}{interrupted}", whole(tps), exactly(seconds)),
        );
        line(rate.0, whole(rate.1));
        line("hit ratio", format!("{:.2} %", 100.0 * self.hit_ratio()));
        line("round trips a transaction", figure(self.per_txn(traffic.chains)));
        line("atomics a transaction", figure(self.per_txn(traffic.atomics)));
        let moved = traffic.bytes_read + traffic.bytes_written;
        line("bytes a transaction", whole(self.per_txn(moved)));
        let invalidations = self.engines(|stats| stats.invalidations);
        line("invalidations a transaction", figure(self.per_txn(invalidations)));
        let evictions = self.engines(|stats| stats.evictions);
        line("evictions a transaction", figure(self.per_txn(evictions)));
        let aborts: Vec<String> = self
            .aborts()
            .filter(|(_, aborts)| *aborts > 0)
            .map(|(cause, aborts)| format!("{} {}", cause.name(), count(aborts)))
            .collect();
        let aborts = if aborts.is_empty() { "none".to_owned() } else { aborts.join(", ") };
        line("aborted attempts", aborts);
        for (what, waits, waited) in [
            ("row locks", self.txns(|stats| stats.lock_waits), self.lock_wait_time()),
            ("turns", self.txns(|stats| stats.turn_waits), self.turn_wait_time()),
        ] {
            if waits > 0 {
                let waited = precise(waited.as_secs_f64());
                line(&format!("{what} waited for"), format!("{}, {waited} s", count(waits)));
            }
        }
        table
    }
}

/// What the columns of the table of types are; `failed` is as the driver has it.
pub(crate) fn columns(failed: &str) -> String {
    format!(
        "failed: {failed}; retries: attempts beyond the first; lost: given up, as a node that died took pages with it"
    )
}

/// Seconds to which counts and rates of the same report fit: in 60.03 s there are more than in a
/// minute.
fn exactly(seconds: f64) -> String {
    if seconds < 1.0 { precise(seconds) } else { format!("{seconds:.2}") }
}

fn whole(value: f64) -> String {
    count(value.round() as u64)
}

fn latency(stats: &TransactionStats) -> Value {
    let latency = stats.latency();
    json!({
        "p50": rounded(latency.p50),
        "p95": rounded(latency.p95),
        "p99": rounded(latency.p99),
        "max": rounded(latency.max),
    })
}
