//! Shared by `selkie smallbank`, `selkie tatp` and `selkie ycsb`: options of nodes and workers, the
//! run, the report.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use selkie::fabric::sim::CostModel;
use selkie::pool::Coding;
use selkie::txn::Protocol;
use selkie_tpcc::benchmark::{Benchmark, Report, Valid};
use selkie_tpcc::{MAX_DURATION, Network, Progress, Setup, TpccError, units};

use crate::options::durability::DurabilityArguments;
use crate::options::values;
use crate::support::exit;
use crate::support::exit::Refusal;
use crate::support::metrics;
use crate::support::progress::{Stderr, fail_driver};
use crate::support::stderr::complain;

/// Default of the time that is measured: real and virtual.
const REAL: Duration = Duration::from_secs(10);
const VIRTUAL: Duration = Duration::from_millis(20);
/// Shortest time that may be asked for.
const SHORTEST: Duration = Duration::from_millis(1);

/// Options of these commands.
#[derive(Args)]
pub(crate) struct BenchmarkOptions {
    /// Seconds to run the mix for, 0.001 to 86400, with --sim of virtual time and up to 3600
    /// [default: 10, with --sim 0.02]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,
    /// Compute nodes, each with its own cache, 1 to 58
    #[arg(long, value_name = "N", default_value_t = Setup::default().compute_nodes)]
    compute_nodes: usize,
    /// Memory nodes of the pool, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = Setup::default().memory_nodes)]
    memory_nodes: usize,
    /// Worker tasks of each compute node, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = Setup::default().workers)]
    workers: usize,
    /// Threads of the process in real time, 1 to 1024; they run all nodes [default: one for each
    /// core]
    #[arg(long, value_name = "N", conflicts_with = "sim")]
    threads: Option<usize>,
    /// Cache of each compute node in MiB [default: half of the loaded database]
    #[arg(long, value_name = "N")]
    cache_mb: Option<u64>,
    /// Most memory of each compute node beside its cache in MiB, for pages that large transactions
    /// have changed; one that needs more is refused [default: 4096]
    #[arg(long, value_name = "N")]
    overflow_mb: Option<u64>,
    /// Memory of each memory node in MiB [default: enough for data, growth and headroom]
    #[arg(long, value_name = "N")]
    memory_mb: Option<u64>,
    /// Bytes of a cache line, the unit of caching and of locking: a power of two, 512 to 8192
    #[arg(long, value_name = "BYTES", default_value_t = Setup::default().gcl_bytes)]
    gcl: usize,
    /// Coding of pages: `plain`, `replicate=N`, or K+R for K data and R parity splits,
    /// with `,delta=D`, `,mode=recover|detect|correct|ec-only` and `,journal=auto|always` [default:
    /// 2+1, or plain with fewer than 3 memory nodes]
    #[arg(long, value_name = "CODING")]
    pub(super) coding: Option<Coding>,
    /// Concurrency control: `2pl`, two-phase locking without waiting; `to`, timestamp ordering;
    /// `occ`, optimistic with validation at commit; or `snapshot`, optimistic for rows and ranges,
    /// with snapshots for transactions that only read [default: 2pl, or snapshot with `ycsb --via
    /// sql`]
    #[arg(long, value_name = "NAME")]
    pub(super) protocol: Option<Protocol>,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Simulate the network, in virtual time: paper, modern, cxl or tcp
    #[arg(long, value_name = "PRESET", value_parser = values::preset, conflicts_with = "metrics")]
    sim: Option<CostModel>,
    /// Seed of the data and of the transactions' inputs
    #[arg(long, value_name = "N", default_value_t = Setup::default().seed)]
    seed: u64,
    /// Print one JSON object on stdout instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    metrics: metrics::Options,
    /// Let other hosts read --metrics, without authentication
    #[arg(long)]
    insecure: bool,
}

impl BenchmarkOptions {
    /// Nodes, workers and sizes.
    pub(super) fn setup(&self) -> Result<Setup, TpccError> {
        let (network, duration) = match &self.sim {
            Some(cost) => (Network::Simulated(cost.clone()), VIRTUAL),
            None => (Network::in_process(self.threads), REAL),
        };
        Ok(Setup {
            duration: self.duration.unwrap_or(duration),
            compute_nodes: self.compute_nodes,
            memory_nodes: self.memory_nodes,
            workers: self.workers,
            network,
            cache_mib: self.cache_mb,
            overflow_mib: self.overflow_mb,
            memory_bytes: self.memory_mb.map(|mib| mib.saturating_mul(1 << 20)),
            gcl_bytes: self.gcl,
            protocol: self.protocol.unwrap_or(Setup::default().protocol),
            coding: self.coding.unwrap_or(Coding::usual_for(self.memory_nodes)),
            durability: self.durability.in_own_pool()?,
            seed: self.seed,
            ..Setup::default()
        })
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let allowed = || format!("must be 0.001 to {} seconds", MAX_DURATION.as_secs());
    let seconds: f64 = text.parse().map_err(|_| allowed())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| allowed())?;
    let possible = SHORTEST..=MAX_DURATION;
    if possible.contains(&duration) { Ok(duration) } else { Err(allowed()) }
}

/// Looks for values out of range.
pub(super) fn check(
    config: Result<impl Benchmark, TpccError>,
    options: &BenchmarkOptions,
) -> Result<(), Refusal> {
    config.and_then(Valid::new).map_err(exit::refusal)?;
    metrics::check_insecure(&options.metrics, options.insecure)
}

/// Runs a benchmark by its crate's `start`.
pub(super) fn run<B: Benchmark>(
    config: Result<B, TpccError>,
    options: &BenchmarkOptions,
    start: impl FnOnce(&Valid<B>, &Arc<dyn Progress>) -> Result<Report<B>, TpccError>,
) -> ExitCode {
    run_and(config, options, start, |_| Ok(()))
}

/// As [`run`], and does something more with the report before it is printed.
pub(super) fn run_and<B: Benchmark>(
    config: Result<B, TpccError>,
    options: &BenchmarkOptions,
    start: impl FnOnce(&Valid<B>, &Arc<dyn Progress>) -> Result<Report<B>, TpccError>,
    more: impl FnOnce(&Report<B>) -> Result<(), String>,
) -> ExitCode {
    let progress = match Stderr::mind_signals() {
        Ok(progress) => progress,
        Err(error) => return exit::fail(&error),
    };
    let interrupt = progress.interrupt().clone();
    let config = match config.and_then(Valid::new) {
        Ok(config) => config,
        Err(error) => return exit::fail_driver(&error),
    };
    if let Err(refusal) = metrics::check_insecure(&options.metrics, options.insecure) {
        return exit::refuse(&refusal);
    }
    options.durability.warn_of_room(options.compute_nodes);
    let nodes = metrics::of_roster(progress.nodes());
    let _serving =
        match metrics::serve(&options.metrics, options.insecure, nodes, progress.waiting()) {
            Ok(serving) => serving,
            Err(code) => return code,
        };
    let progress: Arc<dyn Progress> = Arc::new(progress);
    let report = match start(&config, &progress) {
        Ok(report) => report,
        Err(error) => return fail_driver(&interrupt, &error),
    };
    let text = if options.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    let done = more(&report);
    let code = exit::print(&text, report.holds() && done.is_ok());
    if let Err(error) = done {
        complain!("error: {error}");
    }
    for violation in report.findings.violations() {
        complain!("error: {violation}");
    }
    let lost = report.interval.measurements.lost();
    if lost > 0 {
        let lost = units::plural(lost, "transaction");
        complain!("error: {lost} given up, though no node died");
    }
    code
}
