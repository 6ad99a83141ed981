//! `selkie micro`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use selkie::engine::Coherence;
use selkie::fabric::sim::CostModel;
use selkie_tpcc::micro::{self, Config, ProtocolFeature};
use selkie_tpcc::{Network, Progress};

use crate::options::values;
use crate::support::exit;
use crate::support::metrics;
use crate::support::progress::Stderr;

/// Workers on every compute node read and write pages of one pool. Without --sim the pool is in
/// this process and time is real; with it the network is simulated and time is virtual. After the
/// run every write is verified in the pages.
///
/// Exit code 0: the run ended and no write was lost; 1: it failed; 2: wrong arguments, nothing was
/// started.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Protocol of the pool
    #[arg(long, value_enum, default_value = "selcc")]
    coherence: CoherenceArgument,
    /// Compute nodes, each with its own cache, 1 to 58
    #[arg(long, value_name = "N", default_value_t = Config::default().compute_nodes)]
    compute_nodes: usize,
    /// Memory nodes of the pool, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = Config::default().memory_nodes)]
    memory_nodes: usize,
    /// Workers of each compute node, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = Config::default().workers)]
    workers: usize,
    /// Pages in all
    #[arg(long, value_name = "N", default_value_t = Config::default().gcls)]
    gcls: u64,
    /// Bytes of a page, a power of two, 512 to 8192
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().gcl_bytes)]
    gcl: usize,
    /// Cache of each compute node in MiB
    #[arg(long, value_name = "N", default_value_t = Config::default().cache_mib)]
    cache_mb: u64,
    /// Share of accesses that read, 0 to 1
    #[arg(long, value_name = "F", default_value_t = Config::default().read_ratio, allow_negative_numbers = true)]
    read_ratio: f64,
    /// Share of pages that all nodes use, and of accesses to them, 0 to 1
    #[arg(long, value_name = "F", default_value_t = Config::default().sharing_ratio, allow_negative_numbers = true)]
    sharing_ratio: f64,
    /// Chance that an access goes to the page of the access before, 0 to 1
    #[arg(long, value_name = "F", default_value_t = Config::default().locality, allow_negative_numbers = true)]
    locality: f64,
    /// Exponent of the Zipf distribution that pages are drawn from; 0 is uniform
    #[arg(long, value_name = "F", default_value_t = Config::default().zipf, allow_negative_numbers = true)]
    zipf: f64,
    /// Let the first N compute nodes only write and the others only read
    #[arg(long, value_name = "N")]
    writer_nodes: Option<usize>,
    /// Tasks of each compute node that take messages in, 1 to 64 [default: 4 with --sim, each on a
    /// processor of its own; else 1]
    #[arg(long, value_name = "N")]
    mail_tasks: Option<usize>,
    /// Cores of each memory node for --coherence rpc; below 1 that share of a stranded core. In
    /// real time they are tasks on the process's threads
    #[arg(long, value_name = "N", default_value_t = Config::default().memnode_cores, allow_negative_numbers = true)]
    memnode_cores: f64,
    /// Switch parts of selcc off: gamma, ageing, batching, send-ring, dirty-bounds, sticky-bits,
    /// looks, hold
    #[arg(long, value_name = "PART,...", value_delimiter = ',', value_parser = part)]
    without: Vec<ProtocolFeature>,
    /// Simulate the network: paper, modern, cxl or tcp
    #[arg(long, value_name = "PRESET", value_parser = values::preset, conflicts_with = "metrics")]
    sim: Option<CostModel>,
    /// Milliseconds measured [default: 20 of virtual, 2000 of real time]
    #[arg(long, value_name = "N")]
    duration_ms: Option<u64>,
    /// Milliseconds run before [default: half of the measured ones]
    #[arg(long, value_name = "N")]
    warmup_ms: Option<u64>,
    /// Threads of the process in real time, 1 to 1024 [default: one for each core]
    #[arg(long, value_name = "N", conflicts_with = "sim")]
    threads: Option<usize>,
    /// Seed of all choices
    #[arg(long, value_name = "N", default_value_t = Config::default().seed)]
    seed: u64,
    /// Print one JSON object on stdout instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    metrics: metrics::Options,
    /// Let other hosts read --metrics, without authentication
    #[arg(long)]
    insecure: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum CoherenceArgument {
    /// Pages and latches are cached until another node asks for them
    Selcc,
    /// Baseline: the remote latch is taken for every access, nothing is cached
    Sel,
    /// Baseline: pages are cached, and a directory on each memory node's processor says by whom
    Rpc,
}

impl CoherenceArgument {
    pub(super) fn coherence(self) -> Coherence {
        match self {
            Self::Selcc => Coherence::Selcc,
            Self::Sel => Coherence::Sel,
            Self::Rpc => Coherence::Rpc,
        }
    }
}

fn part(name: &str) -> Result<ProtocolFeature, String> {
    ProtocolFeature::ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| {
        let known: Vec<_> = ProtocolFeature::ALL.iter().map(|part| part.name()).collect();
        format!("there is no such part; there are {}", known.join(", "))
    })
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    config(arguments).validate().map_err(exit::refusal)?;
    metrics::check_insecure(&arguments.metrics, arguments.insecure)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let started = Instant::now();
    let (config, progress) = (config(arguments), Stderr::new());
    let (roster, waiting) = (progress.nodes().clone(), progress.waiting().clone());
    let progress: Arc<dyn Progress> = Arc::new(progress);
    if let Err(error) = config.validate() {
        return exit::fail_driver(&error);
    }
    if let Err(refusal) = metrics::check_insecure(&arguments.metrics, arguments.insecure) {
        return exit::refuse(&refusal);
    }
    let nodes = metrics::of_roster(&roster);
    let _serving = match metrics::serve(&arguments.metrics, arguments.insecure, nodes, &waiting) {
        Ok(serving) => serving,
        Err(code) => return code,
    };
    let mut report = match micro::run(&config, &progress) {
        Ok(report) => report,
        Err(error) => return exit::fail_driver(&error),
    };
    report.real = Some(started.elapsed());
    let text = if arguments.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    exit::print(&text, true)
}

fn config(arguments: &Arguments) -> Config {
    let (network, duration_ms, mail_tasks) = match &arguments.sim {
        Some(cost) => (Network::Simulated(cost.clone()), 20, Config::default().mail_tasks),
        None => (Network::in_process(arguments.threads), 2000, 1),
    };
    let duration_ms = arguments.duration_ms.unwrap_or(duration_ms);
    Config {
        coherence: arguments.coherence.coherence(),
        compute_nodes: arguments.compute_nodes,
        memory_nodes: arguments.memory_nodes,
        workers: arguments.workers,
        gcls: arguments.gcls,
        gcl_bytes: arguments.gcl,
        cache_mib: arguments.cache_mb,
        read_ratio: arguments.read_ratio,
        sharing_ratio: arguments.sharing_ratio,
        locality: arguments.locality,
        zipf: arguments.zipf,
        writer_nodes: arguments.writer_nodes,
        mail_tasks: arguments.mail_tasks.unwrap_or(mail_tasks),
        memnode_cores: arguments.memnode_cores,
        network,
        duration: Duration::from_millis(duration_ms),
        warmup: Duration::from_millis(arguments.warmup_ms.unwrap_or(duration_ms / 2)),
        seed: arguments.seed,
        without: arguments.without.clone(),
    }
}
