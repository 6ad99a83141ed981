//! `selkie tpcc`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use selkie_tpcc::{Affinity, Config, Progress, Report, Scale, TpccError, units};

use selkie::engine::{EngineError, Roster};
use selkie::fabric::RealRuntime;
use selkie::pool::{Coding, Pool};
use selkie::report;
use selkie::shared::{Network, Place, PoolUrl, SharedPool, SharedPoolError};
use selkie::txn::Protocol;
use selkie_tpcc::{LoadPolicy, Purpose};

use super::via::ViaArgument;
use crate::options::durability::DurabilityArguments;
use crate::options::network::NetworkArguments;
use crate::options::values;
use crate::support::progress::{Stderr, fail_driver};
use crate::support::signals::{Interrupt, Interrupted};
use crate::support::stderr::complain;
use crate::support::stdout::tell;
use crate::support::waiting::Waiting;
use crate::support::{exit, listener, metrics};

/// As the help says.
const _: () = assert!(selkie_tpcc::MAX_COMMIT_RECORDS == 262_144);

/// With --pool embedded: the database is loaded afresh, in memory of this process. In a pool that
/// processes share the first driver loads it and the others wait; each runs the mix on its own
/// compute nodes and checks when none runs any more. Without --think the workers never pause.
///
/// In a shared pool each compute node keeps a log in the memory of the pool (--durability). When
/// one of another process dies, its pages are recovered from its log, or are lost if it has none. A
/// transaction that needs a lost page is rolled back and counted as lost, and the driver continues.
/// After the run the driver checks the consistency conditions on the pages that can be read. It
/// also verifies each NewOrder and Payment that it committed, or a random sample of 262144 of them:
/// each is found as it was committed, is on a lost page, or is missing.
///
/// SIGINT, SIGTERM or SIGHUP ends the mix early; the driver then checks what was done. At any other
/// time it ends the driver, which leaves the pool. A second signal ends the process at once. A load
/// that was broken off is done again with --reload.
///
/// Exit code 0: the run ended, every condition that can be judged holds, and no transaction is
/// missing, also if pages of a shared pool are lost; 1: the run failed, a condition is broken or a
/// transaction is missing; 2: the arguments are wrong, and nothing was started; 129, 130 or 143:
/// SIGHUP, SIGINT or SIGTERM ended it before there was a result.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The pool: `embedded:` is a pool of this process; `NAME` or `shm:NAME` is a shared pool of
    /// this host; `tcp:HOST:PORT,...` names memory nodes of a shared pool; or
    /// `etcd:HOST:PORT,.../NAME`
    #[arg(long, value_name = "URL", default_value = "embedded:")]
    pool: PoolUrl,
    /// Load the database into a shared pool, unless it is loaded already, and stop
    #[arg(long)]
    load_only: bool,
    /// Load a new database into a shared pool in place of the one that it holds, or of the part of
    /// one that a load has left that was broken off. Refused while other drivers work on that one.
    /// Its memory is not reclaimed before the pool is destroyed
    #[arg(long)]
    reload: bool,
    /// Warehouses, 1 to 100000; each takes 130 to 150 MiB of pages when it is loaded [default:
    /// those of the database in a shared pool that holds one, else 4]
    #[arg(long, value_name = "N")]
    warehouses: Option<u32>,
    /// Seconds to run the mix for, 1 to 86400
    #[arg(long, value_name = "SECONDS", default_value_t = Config::default().duration.as_secs(),
        value_parser = values::seconds)]
    duration: u64,
    /// Compute nodes of this process, each with its own cache, 1 to 58 [default: 2, in a shared
    /// pool 1]
    #[arg(long, value_name = "N")]
    compute_nodes: Option<usize>,
    /// Memory nodes of an embedded pool, 1 to 1024 [default: 3]
    #[arg(long, value_name = "N")]
    memory_nodes: Option<usize>,
    /// Worker tasks of each compute node, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = Config::default().workers)]
    workers: usize,
    /// Threads of the process, 1 to 1024; they run all nodes [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Cache of each compute node in MiB [default: half of the loaded database]
    #[arg(long, value_name = "N")]
    cache_mb: Option<u64>,
    /// Most memory of each compute node beside its cache in MiB, for pages that large transactions
    /// have changed; one that needs more is refused [default: 4096]
    #[arg(long, value_name = "N")]
    overflow_mb: Option<u64>,
    /// Memory of each memory node of an embedded pool in MiB [default: enough for data, growth and
    /// headroom]
    #[arg(long, value_name = "N")]
    memory_mb: Option<u64>,
    /// Bytes of a cache line of an embedded pool, the unit of caching: a power of two, 1024 to 8192
    /// [default: 2048]
    #[arg(long, value_name = "BYTES")]
    gcl: Option<usize>,
    /// Coding of pages of an embedded pool: `plain`, `replicate=N`, or K+R for K data and R parity
    /// splits, with `,delta=D`, `,mode=recover|detect|correct|ec-only` and `,journal=auto|always`
    /// [default: 2+1, or plain with fewer than 3 memory nodes]
    #[arg(long, value_name = "CODING")]
    coding: Option<Coding>,
    /// Concurrency control of this process: `2pl`, two-phase locking without waiting; `to`,
    /// timestamp ordering; `occ`, optimistic with validation at commit; or `snapshot`, optimistic
    /// for rows and ranges, with snapshots for transactions that only read. All drivers of a
    /// database that was loaded with `to` or `snapshot` use that, and no other drivers do [default:
    /// 2pl, or snapshot with --via sql and wire]
    #[arg(long, value_name = "NAME")]
    protocol: Option<Protocol>,
    /// How workers run transactions; SQL takes --protocol snapshot
    #[arg(long, value_enum, default_value = "native")]
    via: ViaArgument,
    #[command(flatten)]
    durability: DurabilityArguments,
    /// Which warehouses a compute node works on
    #[arg(long, value_enum, default_value = "shared")]
    affinity: AffinityArgument,
    /// First and last of the warehouses to which the terminals of this process belong [default: all
    /// of them]; remote accesses of the mix still go anywhere
    #[arg(long, value_name = "FIRST-LAST", value_parser = values::homes)]
    homes: Option<(u32, u32)>,
    /// Percentage of NewOrder and of Payment transactions that use a warehouse of another node, or
    /// with --affinity shared another warehouse than their own, 0 to 100 [default: as in the
    /// standard]
    #[arg(long, value_name = "N")]
    remote_percent: Option<u32>,
    /// Seed of the data and of the transactions' inputs
    #[arg(long, value_name = "N", default_value_t = Config::default().seed)]
    seed: u64,
    /// Add keying and think times, by clause 5.2.5.7
    #[arg(long)]
    think: bool,
    /// Record each NewOrder and Payment in this file as soon as it has committed, for
    /// --verify-commits of a later run
    #[arg(long, value_name = "FILE")]
    record_commits: Option<PathBuf>,
    /// Verify that the commits in this file, which another run wrote with --record-commits, are in
    /// the database; may be given more than once
    #[arg(long, value_name = "FILE")]
    verify_commits: Vec<PathBuf>,
    /// Divide the number of items, customers and initial orders by N, 1 to 100. Above 1 the run is
    /// short, and its figures are not comparable with TPC-C
    #[arg(long, value_name = "N", default_value_t = 1)]
    scale: u32,
    /// Print one JSON object on stdout instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    metrics: metrics::Options,
}

#[derive(Clone, Copy, ValueEnum)]
enum AffinityArgument {
    /// Every node on every warehouse
    Shared,
    /// Each node on its own; remote accesses of the mix still go anywhere
    Warehouse,
    /// Each node on its own, with pages that no other node uses. Other nodes do their part of a
    /// transaction, and all commit by two-phase commit: a baseline, only with --pool embedded: and
    /// --protocol 2pl
    Partitioned,
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    config(arguments).map(drop).map_err(exit::refusal)?;
    check_network(arguments)
}

fn check_network(arguments: &Arguments) -> Result<(), exit::Refusal> {
    let Network { listen, advertise, insecure, rdma } = arguments.network.network();
    let insecure = insecure && !arguments.metrics.are_given();
    let needs_tcp = arguments.network.tls().need_tcp();
    let given = listen.is_some() || advertise.is_some() || insecure || needs_tcp || rdma.is_given();
    if given && arguments.pool.is_embedded() {
        let what = SharedPoolError::NoNetwork.to_string();
        return Err(exit::Refusal { key: "listen".to_owned(), what });
    }
    arguments.network.check(arguments.metrics.are_given())
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let progress = match Stderr::mind_signals() {
        // Other drivers of the pool may write to the same terminal.
        Ok(progress) if !arguments.pool.is_embedded() => progress.labelled(),
        Ok(progress) => progress,
        Err(error) => return exit::fail(&error),
    };
    let (roster, began) = (progress.nodes().clone(), progress.began());
    let (interrupt, waiting) = (progress.interrupt().clone(), progress.waiting().clone());
    let progress: Arc<dyn Progress> = Arc::new(progress);
    let config = match config(arguments) {
        Ok(config) => config,
        Err(error) => return exit::fail_driver(&error),
    };
    if let Err(refusal) = check_network(arguments) {
        return exit::refuse(&refusal);
    }
    arguments.durability.warn_of_room(config.compute_nodes);
    let insecure = arguments.network.insecure();
    let served =
        metrics::serve(&arguments.metrics, insecure, metrics::of_roster(&roster), &waiting);
    let _serving = match served {
        Ok(serving) => serving,
        Err(code) => return code,
    };
    match &arguments.pool {
        PoolUrl::Embedded | PoolUrl::EmbeddedIn(_) => match selkie_tpcc::run(&config, &progress) {
            Ok(report) => finish(&report, arguments.json, began.get()),
            Err(error) => fail_driver(&interrupt, &error),
        },
        PoolUrl::Shared(place) => {
            let driver = (&progress, roster, (&interrupt, &waiting));
            match run_shared(place, arguments, config, driver) {
                Ok(Some(report)) => {
                    if !arguments.json {
                        tell!("process {}", std::process::id());
                    }
                    finish(&report, arguments.json, began.get())
                }
                Ok(None) => ExitCode::SUCCESS,
                Err(SharedError::Tpcc(error @ TpccError::LoadCutShort)) => {
                    // As it would be typed.
                    exit::fail(&format_args!("{error}: `selkie tpcc --pool {place} --reload`"))
                }
                Err(SharedError::Tpcc(error)) => {
                    match held_by(&error, arguments.network.network().listen) {
                        held_by if held_by.is_empty() => fail_driver(&interrupt, &error),
                        held_by => exit::fail(&format_args!("{error}{held_by}")),
                    }
                }
                Err(SharedError::Pool(error)) => exit::fail(&error),
                Err(SharedError::Interrupted(interrupted)) => interrupted.end(),
            }
        }
    }
}

/// The process that listens where a node of this one was to, if that is what is wrong.
fn held_by(error: &TpccError, listen: Option<SocketAddr>) -> String {
    match error {
        TpccError::Fabric(error) | TpccError::Engine(EngineError::Fabric(error)) => {
            listener::held_by_in(error, listen)
        }
        _ => String::new(),
    }
}

enum SharedError {
    Tpcc(TpccError),
    Pool(SharedPoolError),
    /// Before it was in the pool.
    Interrupted(Interrupted),
}

impl<E: Into<TpccError>> From<E> for SharedError {
    fn from(error: E) -> Self {
        Self::Tpcc(error.into())
    }
}

fn run_shared(
    place: &Place,
    arguments: &Arguments,
    config: Config,
    (progress, roster, (interrupt, waiting)): (&Arc<dyn Progress>, Roster, (&Interrupt, &Waiting)),
) -> Result<Option<Report>, SharedError> {
    let runtime = RealRuntime::new(config.setup().processors())?;
    let env = runtime.env();
    let credentials = arguments.network.tls().credentials().map_err(SharedError::Pool)?;
    let shared = SharedPool::at(place, credentials).map_err(SharedError::Pool)?;
    let (network, progress) = (arguments.network.network(), Arc::clone(progress));
    let purpose = if arguments.load_only { Purpose::LoadOnly } else { Purpose::Run };
    let loading = if arguments.reload { LoadPolicy::Anew } else { LoadPolicy::IfMissing };
    runtime.block_on(async move {
        waiting.begin(&format!("pool {place} and its memory nodes"));
        let opened = interrupt.or_end(&env, shared.open(&env, &network)).await;
        waiting.end();
        let opened = opened.map_err(SharedError::Interrupted)?;
        let (fabric, pool) = opened.map_err(SharedError::Pool)?;
        let found = selkie_tpcc::warehouses_in(&pool)?;
        // Those that are loaded are meant if none are said.
        let warehouses = match (arguments.warehouses, found) {
            (None, Some(found)) => found,
            (None, None) => Config::default().warehouses,
            (Some(asked), _) => asked,
        };
        let config = Config { warehouses, ..config };
        let config = of_pool(config, &arguments.durability, &pool)?;
        config.validate()?;
        report::publish(&pool, &env, &roster);
        Ok(selkie_tpcc::run_shared(fabric, &pool, &env, &config, (purpose, loading), &progress)
            .await?)
    })
}

fn config(arguments: &Arguments) -> Result<Config, TpccError> {
    if !(1..=Scale::MAX_DIVISOR).contains(&arguments.scale) {
        return Err(TpccError::Config {
            key: "scale",
            value: arguments.scale.to_string(),
            allowed: format!("must be 1 to {}", Scale::MAX_DIVISOR),
        });
    }
    if let PoolUrl::EmbeddedIn(_) = &arguments.pool {
        let allowed = "must be embedded: or a shared pool; --durability disk with --log-dir writes a log of either";
        let (key, value) = ("pool", arguments.pool.to_string());
        return Err(TpccError::Config { key, value, allowed: allowed.to_owned() });
    }
    let shared = !arguments.pool.is_embedded();
    check_pool(arguments, shared)?;
    let default = Config::default();
    let memory_nodes = arguments.memory_nodes.unwrap_or(default.memory_nodes);
    let config = Config {
        warehouses: warehouses(arguments, shared),
        duration: Duration::from_secs(arguments.duration),
        compute_nodes: arguments.compute_nodes.unwrap_or(if shared {
            1
        } else {
            default.compute_nodes
        }),
        memory_nodes,
        workers: arguments.workers,
        network: selkie_tpcc::Network::in_process(arguments.threads),
        cache_mib: arguments.cache_mb,
        overflow_mib: arguments.overflow_mb,
        memory_bytes: arguments.memory_mb.map(|mib| mib.saturating_mul(1 << 20)),
        gcl_bytes: arguments.gcl.unwrap_or(default.gcl_bytes),
        coding: arguments.coding.unwrap_or(Coding::usual_for(memory_nodes)),
        protocol: arguments.protocol.unwrap_or(arguments.via.protocol()),
        via: arguments.via.connector()?,
        durability: arguments.durability.in_own_pool()?,
        affinity: match arguments.affinity {
            AffinityArgument::Shared => Affinity::Shared,
            AffinityArgument::Warehouse => Affinity::Warehouse,
            AffinityArgument::Partitioned => Affinity::Partitioned,
        },
        homes: arguments.homes,
        remote_percent: arguments.remote_percent,
        seed: arguments.seed,
        think: arguments.think,
        record_commits: arguments.record_commits.clone(),
        verify_commits: arguments.verify_commits.clone(),
        scale: Scale::divided_by(arguments.scale),
        ..default
    };
    config.validate()?;
    Ok(config)
}

/// Warehouses, before it is known what a shared pool holds: if none are said, enough for the
/// terminals.
fn warehouses(arguments: &Arguments, shared: bool) -> u32 {
    let usual = Config::default().warehouses;
    let last_home = arguments.homes.filter(|_| shared).map_or(0, |(_, last)| last);
    arguments.warehouses.unwrap_or(usual.max(last_home))
}

/// The configuration with the pool's own numbers, of the memory nodes that live; those that differ
/// count with their mean.
fn of_pool(
    config: Config,
    durability: &DurabilityArguments,
    pool: &Pool,
) -> Result<Config, TpccError> {
    let state = pool.state();
    let living = state.memory_nodes.iter().flatten().filter(|node| !node.dead);
    let slabs: Vec<u64> = living.map(|node| u64::from(node.descriptor.ranges)).collect();
    let pool = pool.descriptor();
    let mean = slabs.iter().sum::<u64>() / slabs.len().max(1) as u64;
    let memory_bytes = pool.geometry().region_bytes(mean);
    // A degraded pool works with fewer than a new one would have to have.
    let nodes = slabs.len().max(pool.coding.splits());
    let (gcl_bytes, coding) = (pool.gcl_bytes, pool.coding);
    let durability = durability.in_shared_pool(pool.log_bytes)?;
    Ok(Config { gcl_bytes, coding, memory_nodes: nodes, memory_bytes, durability, ..config })
}

/// Refuses options that have no meaning for the pool.
fn check_pool(arguments: &Arguments, shared: bool) -> Result<(), TpccError> {
    let refused = |key, value: String, allowed: &str| {
        Err(TpccError::Config { key, value, allowed: allowed.to_owned() })
    };
    if !shared {
        let allowed = "needs a --pool that outlives the process";
        return match arguments {
            Arguments { load_only: true, .. } => refused("load-only", String::new(), allowed),
            Arguments { reload: true, .. } => refused("reload", String::new(), allowed),
            _ => Ok(()),
        };
    }
    let own = "is that of the pool, and not to be given with a shared --pool";
    if let Some(nodes) = arguments.memory_nodes {
        return refused("memory-nodes", nodes.to_string(), own);
    }
    if let Some(bytes) = arguments.gcl {
        return refused("gcl", bytes.to_string(), own);
    }
    if let Some(coding) = arguments.coding {
        return refused("coding", coding.to_string(), own);
    }
    if let Some(memory) = arguments.memory_mb {
        return refused("memory-mb", memory.to_string(), own);
    }
    if arguments.durability.is_in_memory() && arguments.durability.says_length() {
        return refused("log-mb", String::new(), own);
    }
    let affinity = match arguments.affinity {
        AffinityArgument::Shared => return Ok(()),
        AffinityArgument::Warehouse => "warehouse",
        AffinityArgument::Partitioned => "partitioned",
    };
    let allowed = "with a shared --pool must be shared: processes divide the warehouses by --homes";
    refused("affinity", affinity.to_owned(), allowed)
}

fn finish(report: &Report, json: bool, began: Option<&SystemTime>) -> ExitCode {
    let text = if json {
        let mut object = report.to_json();
        // By the host's clock, so that the seconds of several processes can be put side by side.
        let began = began.and_then(|began| began.duration_since(UNIX_EPOCH).ok());
        if let (Some(began), Some(object)) = (began, object.as_object_mut()) {
            object.insert("began_unix_ms".to_owned(), (began.as_millis() as u64).into());
        }
        format!("{object}\n")
    } else {
        report.to_string()
    };
    let code = exit::print(&text, report.holds());
    for broken in report.broken() {
        complain!("error: {broken}");
    }
    if report.commits().missing > 0 {
        let commits = report.commits();
        let first = commits.examples.join("; ");
        let missing = units::plural(commits.missing, "committed transaction");
        let are = if commits.missing == 1 { "is" } else { "are" };
        complain!("error: {missing} {are} missing, first {first}");
    }
    if report.lost_without_a_death() {
        let pages = units::count(report.lost_pages() as u64);
        let given_up = units::count(report.lost());
        complain!(
            "error: {pages} pages are taken for lost, and {given_up} transactions were given up, though no node died"
        );
    }
    code
}
