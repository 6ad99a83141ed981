//! `selkie tpcc`.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use selkie::tpcc::{self, Affinity, Config, Progress, Report, Scale, TpccError};

use super::USAGE;
use super::progress::Stderr;

/// The database is loaded afresh, in memory. Without --think the workers never pause.
///
/// Exit code 0: the run ended and the database is consistent; 1: the run failed or a consistency condition
/// is broken; 2: wrong arguments, nothing was started.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Warehouses to load, 1 to 100000; each takes about 100 MiB
    #[arg(long, value_name = "N", default_value_t = Config::default().warehouses)]
    warehouses: u32,
    /// Seconds to run the mix for, 1 to 86400
    #[arg(long, value_name = "SECONDS", default_value_t = Config::default().duration.as_secs())]
    duration: u64,
    /// Compute nodes, each with its own cache, 1 to 58
    #[arg(long, value_name = "N", default_value_t = Config::default().compute_nodes)]
    compute_nodes: usize,
    /// Memory nodes of the pool, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = Config::default().memory_nodes)]
    memory_nodes: usize,
    /// Worker tasks of each compute node, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = Config::default().workers)]
    workers: usize,
    /// Threads of the process, 1 to 1024; they run all nodes [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Cache of each compute node in MiB [default: half of the loaded database]
    #[arg(long, value_name = "N")]
    cache_mb: Option<u64>,
    /// Memory lent by each memory node in MiB [default: what data, growth and headroom take]
    #[arg(long, value_name = "N")]
    memory_mb: Option<u64>,
    /// Bytes of a cache line, the unit of caching: a power of two, 2048 to 8192
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().gcl_bytes)]
    gcl: usize,
    /// Which warehouses a compute node works on
    #[arg(long, value_enum, default_value = "shared")]
    affinity: AffinityArgument,
    /// Seed of the data and of the transactions' inputs
    #[arg(long, value_name = "N", default_value_t = Config::default().seed)]
    seed: u64,
    /// Let workers wait as people at terminals do, by clause 5.2.5.7
    #[arg(long)]
    think: bool,
    /// Divide the number of items, customers and initial orders by N, 1 to 100; above 1 the figures are
    /// no TPC-C figures, but the run is short
    #[arg(long, value_name = "N", default_value_t = 1)]
    scale: u32,
    /// Print one JSON object on stdout instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum AffinityArgument {
    /// Every node on every warehouse
    Shared,
    /// Each node on its own; remote accesses of the mix still go anywhere
    Warehouse,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let progress: Arc<dyn Progress> = Arc::new(Stderr::new());
    let result = config(arguments).and_then(|config| tpcc::run(&config, &progress));
    match result {
        Ok(report) => finish(&report, arguments.json),
        Err(error) => fail(&error),
    }
}

fn config(arguments: &Arguments) -> Result<Config, TpccError> {
    if !(1..=Scale::MAX_DIVISOR).contains(&arguments.scale) {
        return Err(TpccError::Config {
            key: "scale",
            value: arguments.scale.to_string(),
            allowed: format!("must be 1 to {}", Scale::MAX_DIVISOR),
        });
    }
    let config = Config {
        warehouses: arguments.warehouses,
        duration: Duration::from_secs(arguments.duration),
        compute_nodes: arguments.compute_nodes,
        memory_nodes: arguments.memory_nodes,
        workers: arguments.workers,
        threads: arguments.threads.unwrap_or(Config::default().threads),
        cache_mib: arguments.cache_mb,
        memory_mib: arguments.memory_mb,
        gcl_bytes: arguments.gcl,
        affinity: match arguments.affinity {
            AffinityArgument::Shared => Affinity::Shared,
            AffinityArgument::Warehouse => Affinity::Warehouse,
        },
        seed: arguments.seed,
        think: arguments.think,
        scale: Scale::divided_by(arguments.scale),
    };
    config.validate()?;
    Ok(config)
}

fn finish(report: &Report, json: bool) -> ExitCode {
    let text = if json { format!("{}\n", report.to_json()) } else { report.to_string() };
    let written = std::io::stdout().write_all(text.as_bytes());
    for broken in report.broken() {
        eprintln!("error: {broken}");
    }
    if let Err(error) = written {
        eprintln!("error: stdout: {error}");
        return ExitCode::FAILURE;
    }
    if report.is_consistent() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn fail(error: &TpccError) -> ExitCode {
    match error {
        TpccError::Config { key, value, allowed } => {
            eprintln!("error: --{key} {value}: {allowed}");
            ExitCode::from(USAGE)
        }
        error => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
