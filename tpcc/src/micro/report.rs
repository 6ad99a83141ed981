//! What came out of a run.

use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use selkie_engine::{Coherence, EngineStats};
use selkie_fabric::PeerId;
use selkie_fabric::meter::MeterSnapshot;
use selkie_fabric::sim::AdapterBusy;
use serde_json::{Value, json};

use super::config::Config;
use crate::error::TpccError;
use crate::figures::units::{count, figure};

/// Latencies up to ten minutes, to three digits, in nanoseconds.
#[derive(Clone)]
pub(super) struct Histogram(hdrhistogram::Histogram<u64>);

const LONGEST_NS: u64 = 600_000_000_000;

impl Histogram {
    pub(super) fn new() -> Result<Self, TpccError> {
        let histogram = hdrhistogram::Histogram::new_with_bounds(1, LONGEST_NS, 3);
        histogram.map(Self).map_err(|error| TpccError::Histogram(error.to_string()))
    }

    pub(super) fn record(&mut self, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanoseconds.clamp(1, LONGEST_NS));
    }

    pub(super) fn add(&mut self, other: &Self) -> Result<(), TpccError> {
        self.0.add(&other.0).map_err(|error| TpccError::Histogram(error.to_string()))
    }

    fn micros(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1000.0
    }
}

/// Accesses of each node in one stretch of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThroughputSample {
    /// Its end, from the start of the measurement.
    pub at: Duration,
    /// Accesses of each compute node in it.
    pub accesses: Vec<u64>,
}

/// Share of the time that the busiest adapter's queue of each kind was busy: near 1, that queue is
/// what bounds the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterLoad {
    /// Sending.
    pub sends: f64,
    /// Receiving.
    pub receives: f64,
    /// Executing atomics.
    pub atomics: f64,
    /// Taking messages in.
    pub mail: f64,
}

impl AdapterLoad {
    /// The load between two looks at the same nodes; nothing where there are no simulated ones.
    pub(super) fn between(
        before: &[(PeerId, AdapterBusy)],
        after: &[(PeerId, AdapterBusy)],
        elapsed: Duration,
    ) -> Option<Self> {
        let busiest = |of: fn(&AdapterBusy) -> Duration| {
            let pairs = before.iter().zip(after);
            let most = pairs.map(|((_, before), (_, after))| of(after) - of(before)).max();
            Some(most?.as_secs_f64() / elapsed.as_secs_f64())
        };
        Some(Self {
            sends: busiest(|busy| busy.sends)?,
            receives: busiest(|busy| busy.receives)?,
            atomics: busiest(|busy| busy.atomics)?,
            mail: busiest(|busy| busy.mail)?,
        })
    }
}

/// Outcome of a run. All counts are of the measurement, without the warm-up.
pub struct Report {
    /// What was run.
    pub config: Config,
    /// Time measured.
    pub elapsed: Duration,
    /// Accesses of each compute node.
    pub accesses: Vec<u64>,
    /// Counters of each compute node.
    pub engines: Vec<EngineStats>,
    /// What the compute nodes asked of the network.
    pub traffic: MeterSnapshot,
    /// How busy the simulated adapters were.
    pub load: Option<AdapterLoad>,
    /// Accesses over time.
    pub samples: Vec<ThroughputSample>,
    /// Writes of the whole run, all of them found in the pages afterwards.
    pub writes: u64,
    /// Real time the whole run took, if its caller has looked.
    pub real: Option<Duration>,
    pub(super) latency: Histogram,
}

impl Report {
    /// Accesses of all nodes a second.
    #[must_use]
    pub fn ops_per_second(&self) -> f64 {
        self.accesses.iter().sum::<u64>() as f64 / self.elapsed.as_secs_f64()
    }

    /// Accesses of one node a second.
    #[must_use]
    pub fn ops_per_second_of(&self, node: usize) -> f64 {
        let accesses = self.accesses.get(node).copied().unwrap_or(0);
        accesses as f64 / self.elapsed.as_secs_f64()
    }

    /// Share of accesses that fetched neither page nor right.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        let all: u64 = self.accesses.iter().sum();
        let missed = self.sum(|stats| stats.misses + stats.upgrades);
        1.0 - (missed as f64 / all.max(1) as f64).min(1.0)
    }

    /// Something counted, divided by the accesses.
    #[must_use]
    pub fn per_op(&self, counted: u64) -> f64 {
        counted as f64 / self.accesses.iter().sum::<u64>().max(1) as f64
    }

    /// A counter of all engines.
    #[must_use]
    pub fn sum(&self, of: impl Fn(&EngineStats) -> u64) -> u64 {
        self.engines.iter().map(of).sum()
    }

    /// The report as a JSON object; its keys are an interface.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let bytes = self.traffic.bytes_read + self.traffic.bytes_written;
        let nodes = 0..self.accesses.len();
        json!({
            "config": config(&self.config),
            "ops_per_second": self.ops_per_second(),
            "ops_per_second_by_node": nodes.map(|n| self.ops_per_second_of(n)).collect::<Vec<_>>(),
            "latency_us": {
                "p50": self.latency.micros(0.5),
                "p95": self.latency.micros(0.95),
                "p99": self.latency.micros(0.99),
                "max": self.latency.micros(1.0),
            },
            "hit_ratio": self.hit_ratio(),
            "round_trips_per_op": self.per_op(self.traffic.chains),
            "atomics_per_op": self.per_op(self.traffic.atomics),
            "bytes_per_op": self.per_op(bytes),
            "messages_per_op": self.per_op(self.sum(|stats| stats.messages)),
            "invalidations_per_op": self.per_op(self.sum(|stats| stats.invalidations)),
            "downgrades_per_op": self.per_op(self.sum(|stats| stats.downgrades)),
            "evictions_per_op": self.per_op(self.sum(|stats| stats.evictions)),
            "load": self.load.map(|load| json!({
                "sends": load.sends,
                "receives": load.receives,
                "atomics": load.atomics,
                "mail": load.mail,
            })),
            "seconds": self.elapsed.as_secs_f64(),
            "real_seconds": self.real.map(|real| real.as_secs_f64()),
            "writes_checked": self.writes,
        })
    }
}

/// The name of a protocol on the command line.
pub(crate) fn name(coherence: Coherence) -> &'static str {
    match coherence {
        Coherence::Selcc => "selcc",
        Coherence::Sel => "sel",
        Coherence::Rpc => "rpc",
    }
}

fn config(config: &Config) -> Value {
    json!({
        "coherence": name(config.coherence),
        "compute_nodes": config.compute_nodes,
        "memory_nodes": config.memory_nodes,
        "workers": config.workers,
        "gcls": config.gcls,
        "gcl_bytes": config.gcl_bytes,
        "cache_mib": config.cache_mib,
        "read_ratio": config.read_ratio,
        "sharing_ratio": config.sharing_ratio,
        "locality": config.locality,
        "zipf": config.zipf,
        "writer_nodes": config.writer_nodes,
        "mail_tasks": config.mail_tasks,
        "memnode_cores": config.memnode_cores,
        "network": config.network.name(),
        "threads": config.network.threads(),
        "duration_ms": config.duration.as_secs_f64() * 1e3,
        "warmup_ms": config.warmup.as_secs_f64() * 1e3,
        "seed": config.seed,
        "without": config.without.iter().map(|part| part.name()).collect::<Vec<_>>(),
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        let mut table = Table::new();
        table.load_preset(UTF8_BORDERS_ONLY);
        let mut row = |name: &str, value: String| {
            table.add_row(vec![name.to_owned(), value]);
        };
        row("protocol", name(config.coherence).to_owned());
        let nodes = (config.compute_nodes, config.workers, config.memory_nodes);
        row("nodes", format!("{} compute x {} workers, {} memory", nodes.0, nodes.1, nodes.2));
        row(
            "pages",
            format!(
                "{} of {} B, cache {} MiB a node",
                count(config.gcls),
                config.gcl_bytes,
                config.cache_mib
            ),
        );
        row(
            "accesses",
            format!(
                "{:.0} % reads, sharing {:.0} %, locality {}, zipf {}",
                100.0 * config.read_ratio,
                100.0 * config.sharing_ratio,
                config.locality,
                config.zipf
            ),
        );
        row("network", config.network.to_string());
        if !config.without.is_empty() {
            let parts: Vec<_> = config.without.iter().map(|part| part.name()).collect();
            row("switched off", parts.join(", "));
        }
        row("seed", config.seed.to_string());
        row("accesses a second", count(self.ops_per_second() as u64));
        let quantiles = [0.5, 0.95, 0.99].map(|q| figure(self.latency.micros(q)));
        row("latency p50, p95, p99", format!("{} us", quantiles.join(", ")));
        row("hit ratio", format!("{:.2} %", 100.0 * self.hit_ratio()));
        row("round trips an access", figure(self.per_op(self.traffic.chains)));
        row("atomics an access", figure(self.per_op(self.traffic.atomics)));
        let bytes = self.traffic.bytes_read + self.traffic.bytes_written;
        row("bytes an access", figure(self.per_op(bytes)));
        row("messages an access", figure(self.per_op(self.sum(|s| s.messages))));
        row("invalidations an access", figure(self.per_op(self.sum(|s| s.invalidations))));
        let real =
            self.real.map(|real| format!("; the whole run took {} s", figure(real.as_secs_f64())));
        if let Some(AdapterLoad { sends, receives, atomics, mail }) = self.load {
            row(
                "busiest adapters",
                format!(
                    "atomics {:.0} %, mail {:.0} %, sending {:.0} %, receiving {:.0} %",
                    100.0 * atomics,
                    100.0 * mail,
                    100.0 * sends,
                    100.0 * receives
                ),
            );
        }
        let measured = figure(self.elapsed.as_secs_f64());
        row("measured", format!("{measured} s{}", real.unwrap_or_default()));
        row("writes", format!("{}, all of them found in the pages", count(self.writes)));
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        writeln!(f, "{table}")
    }
}
