//! The part of a report that all drivers have: rates, latencies, aborts, what the pool was asked
//! for.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use selkie_txn::Protocol;
use serde_json::{Map, Value, json};

use crate::load::LoadReport;
use crate::mix::Mix;
use crate::run::{Interval, KindStats};
use crate::setup::Shape;
use crate::units::{bytes, count};

impl<K: Mix, J> Interval<K, J> {
    /// Its figures, by their keys.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let bytes = self.traffic.bytes_read + self.traffic.bytes_written;
        let aborts: Map<String, Value> =
            self.aborts().map(|(cause, count)| (cause.name().to_owned(), json!(count))).collect();
        let figures = json!({
            "tps": rounded(self.per_second(self.completed())),
            "transactions": self.completed(),
            "latency_us": self.by_kind(|_, stats| latency(stats)),
            "aborts": aborts,
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
            "per_second": self.measurements.seconds(),
        });
        object(figures)
    }

    /// Something about each type, by their names.
    pub(crate) fn by_kind(&self, value: impl Fn(K, &KindStats) -> Value) -> Map<String, Value> {
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
        for (kind, stats) in self.measurements.iter() {
            let latency = stats.latency();
            table.add_row(vec![
                kind.title().to_owned(),
                count(stats.completed),
                format!("{:.0}", self.per_second(stats.completed)),
                count(stats.failed),
                count(stats.retries),
                count(stats.lost),
                format!("{:.0}", latency.p50),
                format!("{:.0}", latency.p95),
                format!("{:.0}", latency.p99),
                format!("{:.0}", latency.max),
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
        line(
            "transactions a second",
            format!("{} in {} {unit}", count(tps.round() as u64), precise(seconds)),
        );
        line(rate.0, count(rate.1.round() as u64));
        line("hit ratio", format!("{:.2} %", 100.0 * self.hit_ratio()));
        line("round trips a transaction", format!("{:.2}", self.per_txn(traffic.chains)));
        line("atomics a transaction", format!("{:.2}", self.per_txn(traffic.atomics)));
        let moved = traffic.bytes_read + traffic.bytes_written;
        line("bytes a transaction", format!("{:.0}", self.per_txn(moved)));
        let invalidations = self.engines(|stats| stats.invalidations);
        line("invalidations a transaction", format!("{:.3}", self.per_txn(invalidations)));
        let evictions = self.engines(|stats| stats.evictions);
        line("evictions a transaction", format!("{:.3}", self.per_txn(evictions)));
        let aborts: Vec<String> = self
            .aborts()
            .filter(|(_, aborts)| *aborts > 0)
            .map(|(cause, aborts)| format!("{} {}", cause.name(), count(aborts)))
            .collect();
        let aborts = if aborts.is_empty() { "none".to_owned() } else { aborts.join(", ") };
        line("aborted attempts", aborts);
        table
    }
}

impl Shape {
    /// The keys of the configuration that all drivers have.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let setup = &self.setup;
        object(json!({
            "duration_s": setup.duration.as_secs_f64(),
            "compute_nodes": setup.compute_nodes,
            "memory_nodes": setup.memory_nodes,
            "coding": setup.coding.to_string(),
            "protocol": setup.protocol.name(),
            "workers": setup.workers,
            "threads": setup.network.threads(),
            "cache_bytes": self.cache_bytes(),
            "memory_bytes_per_node": self.pool().bytes_per_node,
            "gcl": setup.gcl_bytes,
            "seed": setup.seed,
        }))
    }

    /// Adds what all drivers say about their nodes and their data; `nodes` is what more there is to
    /// the nodes.
    pub(crate) fn say(&self, nodes: &str, load: &LoadReport, after: u64, table: &mut Table) {
        let setup = &self.setup;
        let mut row = |name: &str, value: String| {
            table.add_row(vec![name.to_owned(), value]);
        };
        row("compute nodes", format!("{}{nodes}", setup.compute_nodes));
        let processors = match setup.network.threads() {
            Some(threads) => format!("on {threads} threads"),
            None => "each on a processor of its own".to_owned(),
        };
        row("workers", format!("{} a node, {processors}", setup.workers));
        let protocol = match setup.protocol {
            Protocol::TwoPhase => "2pl: two-phase locking without waiting",
            Protocol::Timestamp => "to: in the order of timestamps",
            Protocol::Optimistic => "occ: optimistic, with validation at commit",
        };
        row("transactions", protocol.to_owned());
        let lent = bytes(self.pool().bytes_per_node);
        row("memory nodes", format!("{}, {lent} each", setup.memory_nodes));
        row("coding", setup.coding.to_string());
        let database = load.database_bytes;
        let sizes = format!(
            "{} loaded ({} rows in {} {}), {} after the run",
            bytes(database),
            count(load.rows),
            precise(load.duration.as_secs_f64()),
            setup.network.seconds(),
            bytes(after),
        );
        row("database", sizes);
        let cache = self.cache_bytes();
        let share = 100.0 * cache as f64 / database.max(1) as f64;
        let cache = format!("{} a compute node, {share:.0} % of the loaded database", bytes(cache));
        row("cache", cache);
        row("cache line", format!("{} bytes, seed {}", setup.gcl_bytes, setup.seed));
    }
}

/// The entries of a JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn latency(stats: &KindStats) -> Value {
    let latency = stats.latency();
    json!({
        "p50": rounded(latency.p50),
        "p95": rounded(latency.p95),
        "p99": rounded(latency.p99),
        "max": rounded(latency.max),
    })
}

/// To a tenth: more digits would not be true.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Seconds to a tenth, or to a tenth of a millisecond if there is less than one.
pub(crate) fn precise(seconds: f64) -> String {
    if seconds < 1.0 { format!("{seconds:.4}") } else { format!("{seconds:.1}") }
}

pub(crate) fn plain() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table
}

/// Numbers to the right.
fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
