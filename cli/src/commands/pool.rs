//! `selkie pool`.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use selkie::engine::MAX_COMPUTE_NODES;
use selkie::fabric::{Env, RealRuntime};
use selkie::pool::control::Timing;
use selkie::pool::{self, Coding, PoolConfig, PoolError};
use selkie::shared::{Credentials, FabricKind, Place, SharedPool, SharedPoolError};
use selkie_tpcc::units;

use super::compute_wait::ComputeWait;
use super::pool_repair::{ForgiveArguments, RepairArguments, forgive, repair};
use super::pool_status::{list, status};
use crate::options::network::TlsArguments;
use crate::options::values;
use crate::support::exit;
use crate::support::stderr::complain;
use crate::support::stdout::tell;

/// Pools that the processes of this host share.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Makes a pool; memory nodes then join it with `selkie memnode`
    Create {
        /// `NAME` on this host (1 to 64 letters, digits, `-` or `_`), or `etcd:HOST:PORT,.../NAME`
        #[arg(value_name = "POOL")]
        name: Place,
        /// Fabric: `shm`, memory shared by the processes of one host, `tcp`, or `verbs`, RDMA cards
        #[arg(long, value_name = "FABRIC", default_value = "shm")]
        fabric: FabricKind,
        /// Memory nodes that are to join, 1 to 1024
        #[arg(long, value_name = "N", default_value_t = 3)]
        memory_nodes: usize,
        /// Compute nodes that may use the pool at a time, 1 to 58; with 58 no place is left for one
        /// that recovers when all of them die at once [default: 16, with --log-size 0 57]
        #[arg(long, value_name = "N")]
        max_compute_nodes: Option<usize>,
        /// Bytes of a cache line, the unit of caching: a power of two, 512 to 8192
        #[arg(long, value_name = "BYTES", default_value_t = 2048)]
        gcl: usize,
        /// Bytes of a range, the unit of allocation on memory nodes: a power of two, as 4M. A coded
        /// pool has at most 4096 ranges, so more than 16G of pages take larger ones
        #[arg(long, value_name = "SIZE", default_value = "4M", value_parser = values::size)]
        range: u64,
        /// Coding of pages: `plain`, `replicate=N`, or K+R for K data and R parity splits, with
        /// `,delta=D`, `,mode=recover|detect|correct|ec-only` and `,journal=auto|always` [default:
        /// 2+1, or plain with fewer than 3 memory nodes]
        #[arg(long, value_name = "CODING")]
        coding: Option<Coding>,
        /// Memory that each memory node reserves for the log of each compute node, as 64M, or 0 for
        /// a pool without logs in memory. It takes this size times --max-compute-nodes of what the
        /// memory node lends. One transaction may change as much as takes three eighths of it
        /// [default: 128M divided by --max-compute-nodes, so 8M of each for 16 compute nodes; at
        /// most 64M, in whole MiB]
        #[arg(long, value_name = "SIZE", value_parser = values::size_or_none)]
        log_size: Option<u64>,
        /// A node without a heartbeat for this long is dead, as 2s or 500ms; at least 4 heartbeats
        #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
        lease: Duration,
        /// Let every process that reaches a memory node use the pool, without a token or a
        /// certificate; for pools over TCP on a network where all are trusted
        #[arg(long)]
        trust_network: bool,
        /// Time between heartbeats of a node, 10ms to 10min
        #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = humantime::parse_duration)]
        heartbeat: Duration,
    },
    /// Lists the pools that you have on this host
    List {
        /// Print one JSON array instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Shows how a pool is, its room, and its nodes
    ///
    /// The first line says whether the pool is healthy, degraded or lost, and the lines below it
    /// which command helps. While lost memory is being rebuilt, this takes a second to measure how
    /// fast.
    Status {
        /// `NAME` on this host, `tcp:HOST:PORT,...` by its memory nodes, or
        /// `etcd:HOST:PORT,.../NAME`
        #[arg(value_name = "POOL")]
        name: Place,
        /// Print one JSON object instead of a table
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        tls: TlsArguments,
    },
    /// Drains a memory node of a pool in use: its data moves to the others, then its process ends
    Drain {
        /// `NAME` on this host, `tcp:HOST:PORT,...` by its memory nodes, or
        /// `etcd:HOST:PORT,.../NAME`
        #[arg(value_name = "POOL")]
        name: Place,
        /// The memory node, as `pool status` shows it: mem2, or 2
        #[arg(value_name = "NODE", value_parser = memory_node)]
        node: u16,
        /// Do not wait until it has left
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        tls: TlsArguments,
    },
    /// Gives up nodes that do not come back, and what is lost with them
    ///
    /// A pool waits for what may come back: for a memory node that is silent while it can spare
    /// none, and for the log of a compute node that died with pages that only the log has. This
    /// says that it does not. What is lost then is lost for good.
    Forgive(ForgiveArguments),
    /// Finds memory that nothing leads to, and makes it free
    ///
    /// Compute nodes that die may leave some behind. The command joins the pool as its only
    /// compute node, reads every page of the database, and frees the lines that are neither in use
    /// nor free.
    Repair(RepairArguments),
    /// Removes a pool and all it holds
    Destroy {
        /// `NAME` on this host, `tcp:HOST:PORT,...` by its memory nodes, or
        /// `etcd:HOST:PORT,.../NAME`
        #[arg(value_name = "POOL")]
        name: Place,
        /// Remove it also if nodes of it live; they then fail
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        tls: TlsArguments,
    },
}

impl Arguments {
    /// Whether it has something to leave when a signal ends it.
    pub(crate) fn minds_signals(&self) -> bool {
        matches!(self.command, Command::Repair(_))
    }
}

/// A memory node's index, with or without `mem` before it.
fn memory_node(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("mem").unwrap_or(text);
    digits
        .parse()
        .map_err(|_| "a memory node is its number, or that behind `mem`, as mem2".to_owned())
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    let Command::Create {
        fabric,
        trust_network,
        memory_nodes,
        max_compute_nodes,
        gcl,
        range,
        coding,
        log_size,
        lease,
        heartbeat,
        ..
    } = &arguments.command
    else {
        return Ok(());
    };
    check_trust(*fabric, *trust_network)?;
    let timing = Timing { lease: *lease, heartbeat: *heartbeat };
    let logs = (*log_size, *max_compute_nodes);
    let config = config(*memory_nodes, logs, (*gcl, *range), *coding);
    validate(&config, timing).map_err(|(key, value, allowed)| {
        let Some(key) = key else { return exit::Refusal { key: String::new(), what: allowed } };
        exit::Refusal::new(&key, &value, &allowed)
    })
}

/// Looks for values out of range: the option, its value and what is allowed, or what is wrong.
fn validate(config: &PoolConfig, timing: Timing) -> Result<(), (Option<String>, String, String)> {
    config.validate().and_then(|()| timing.validate()).map_err(|error| match error {
        PoolError::Config { key, value, allowed } => {
            let key = match key {
                "gcl_bytes" => "gcl",
                "range_bytes" => "range",
                "log_bytes" => "log-size",
                key => key,
            };
            (Some(key.replace('_', "-")), value, allowed)
        }
        error => (None, String::new(), error.to_string()),
    })
}

fn check_trust(fabric: FabricKind, trusts_network: bool) -> Result<(), exit::Refusal> {
    if trusts_network && !fabric.is_network() {
        let what = "trust-network: is for pools over TCP: give --fabric tcp".to_owned();
        return Err(exit::Refusal { key: "trust-network".to_owned(), what });
    }
    Ok(())
}

/// Compute nodes of a pool with logs, if nothing else is asked for: each takes room for a log.
pub(crate) const COMPUTE_NODES: usize = 16;
/// What each memory node keeps for all logs together.
const ROOM_FOR_LOGS: u64 = 128 << 20;
/// Longest log that is made without being asked for.
const USUAL_LOG_BYTES: u64 = 64 << 20;

fn config(
    memory_nodes: usize,
    (log_size, max_compute_nodes): (Option<u64>, Option<usize>),
    (gcl_bytes, range_bytes): (usize, u64),
    coding: Option<Coding>,
) -> PoolConfig {
    // One index is left for a node that only recovers.
    let most = if log_size == Some(0) { MAX_COMPUTE_NODES - 1 } else { COMPUTE_NODES };
    let max_compute_nodes = max_compute_nodes.unwrap_or(most);
    let log_bytes = log_size.unwrap_or_else(|| usual_log_bytes(max_compute_nodes));
    let coding = coding.unwrap_or(Coding::usual_for(memory_nodes));
    // How much memory there will be is not known yet: enough for a range.
    let logs = log_bytes.saturating_mul(max_compute_nodes as u64);
    let bytes_per_node =
        u64::from(u32::MAX).max(range_bytes.saturating_mul(4)).saturating_add(logs);
    PoolConfig {
        memory_nodes,
        bytes_per_node,
        gcl_bytes,
        range_bytes,
        max_compute_nodes,
        coding,
        log_bytes,
    }
}

/// Room for the log of each of so many compute nodes: together not much of a memory node.
pub(crate) fn usual_log_bytes(max_compute_nodes: usize) -> u64 {
    const MIB: u64 = 1 << 20;
    let share = ROOM_FOR_LOGS / (max_compute_nodes.max(1) as u64);
    (share / MIB * MIB).min(USUAL_LOG_BYTES)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let runtime = match RealRuntime::new(1) {
        Ok(runtime) => runtime,
        Err(error) => return exit::fail(&error),
    };
    let env = runtime.env();
    let done = match &arguments.command {
        Command::Create {
            name,
            fabric,
            memory_nodes,
            max_compute_nodes,
            gcl,
            range,
            coding,
            log_size,
            lease,
            heartbeat,
            trust_network,
        } => {
            if let Err(refusal) = check_trust(*fabric, *trust_network) {
                return exit::refuse(&refusal);
            }
            let logs = (*log_size, *max_compute_nodes);
            let config = config(*memory_nodes, logs, (*gcl, *range), *coding);
            let timing = Timing { lease: *lease, heartbeat: *heartbeat };
            match validate(&config, timing) {
                Ok(()) => {}
                Err((Some(key), value, allowed)) => {
                    return exit::refuse_option(&key, &value, &allowed);
                }
                Err((None, _, what)) => return exit::fail(&what),
            }
            let made = (*fabric, timing, *trust_network);
            runtime.block_on(create(&env, name, &config, made))
        }
        Command::Drain { name, node, no_wait, tls } => {
            runtime.block_on(drain(&env, name, *node, *no_wait, tls))
        }
        Command::Forgive(arguments) => {
            if let Err(refusal) = arguments.check() {
                return exit::refuse(&refusal);
            }
            runtime.block_on(forgive(&env, arguments))
        }
        Command::Repair(arguments) => {
            return match repair(arguments) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => error.fail(),
            };
        }
        Command::List { json } => runtime.block_on(list(*json)),
        Command::Status { name, json, tls } => {
            runtime.block_on(async { status(&env, name, tls.credentials()?, *json).await })
        }
        Command::Destroy { name, force, tls } => runtime
            .block_on(async { SharedPool::at(name, tls.credentials()?)?.destroy(*force).await }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::fail(&error),
    }
}

async fn create(
    env: &Env,
    name: &Place,
    config: &PoolConfig,
    (fabric, timing, trusts_network): (FabricKind, Timing, bool),
) -> Result<(), SharedPoolError> {
    let shared = SharedPool::at(name, Credentials::default())?;
    let token = shared.create(env, fabric, config, timing, trusts_network).await?;
    let nodes = config.memory_nodes;
    let plural = if nodes == 1 { "" } else { "s" };
    tell!(
        "pool {name} waits for {nodes} memory node{plural}: selkie memnode --pool {name} --memory SIZE"
    );
    if let Some(token) = token {
        tell!(
            "without --tls, processes of other hosts or users take its token: --token {}",
            token.display()
        );
    }
    Ok(())
}

/// How often the progress of a drain is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Waits for as long as the compute nodes in the pool get on: the time depends on how much data
/// there is.
async fn drain(
    env: &Env,
    name: &Place,
    node: u16,
    no_wait: bool,
    tls: &TlsArguments,
) -> Result<(), SharedPoolError> {
    let shared = SharedPool::at(name, tls.credentials()?)?;
    let id = shared.load().await?.id;
    let draining = pool::drain(shared.plane(), node).await;
    let mut leaving = draining.map_err(|error| shared.explain(error))?;
    let (mut told, mut wait) = (None, ComputeWait::new(name));
    loop {
        if leaving.has_left {
            tell!("mem{node} of pool {name} has left: nothing is on it any more");
            return Ok(());
        }
        if told != Some(leaving.slabs) {
            told = Some(leaving.slabs);
            let slabs = units::plural(leaving.slabs as u64, "slab");
            complain!("mem{node} of pool {name} is to leave: {slabs} to be moved");
        }
        if no_wait {
            return Ok(());
        }
        env.sleep(LOOK_EVERY).await;
        let state = shared.load_again(id).await?;
        leaving = state.leaving_of(node);
        let slabs = units::plural(leaving.slabs as u64, "slab");
        wait.look(&state, env.now(), leaving.slabs, || {
            format!("mem{node} is to leave all the same: {slabs} to be moved as soon as one can")
        })?;
        if !leaving.has_left && !state.lives(node) {
            let why = "it died before it was empty".to_owned();
            return Err(PoolError::CannotLeave { node: usize::from(node), why }.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        pool: Arguments,
    }

    /// Help has them as text, so they are written twice.
    #[test]
    fn lease_and_heartbeat_of_a_pool_are_those_of_the_library_unless_given() {
        let CommandLine { pool } = CommandLine::parse_from(["selkie", "create", "name"]);
        let Command::Create { lease, heartbeat, .. } = pool.command else { panic!("it creates") };
        assert_eq!(Timing { lease, heartbeat }, Timing::default());
    }

    #[test]
    fn a_pool_has_room_for_logs_that_leaves_most_of_a_memory_node_to_pages() {
        let made = |log_size, nodes| {
            let config = config(3, (log_size, nodes), (2048, 4 << 20), None);
            config.validate().unwrap();
            (config.log_bytes >> 20, config.max_compute_nodes)
        };
        assert_eq!(made(None, None), (8, 16));
        assert_eq!(made(None, Some(1)), (64, 1));
        assert_eq!(made(None, Some(4)), (32, 4));
        assert_eq!(made(None, Some(58)), (2, 58));
        assert_eq!(made(Some(1 << 20), Some(58)), (1, 58));
        assert_eq!(made(Some(0), None), (0, 57));
        for nodes in 1..=MAX_COMPUTE_NODES {
            let (log, nodes) = made(None, Some(nodes));
            assert!(log > 0 && log * nodes as u64 <= ROOM_FOR_LOGS >> 20, "{nodes}");
        }
    }
}
