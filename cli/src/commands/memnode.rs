//! `selkie memnode`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, getpid};
use selkie::fabric::{Env, RealRuntime};
use selkie::memnode::monitor::HostMemory;
use selkie::memnode::{Capacity, MemoryServer, ServerEnd};
use selkie::pool::control::lateness;
use selkie::pool::{FailureDomain, PoolError};
use selkie::report::{Report, cpu_time};
use selkie::shared::{FabricKind, Place, SharedPool, SharedPoolError};
use selkie_tpcc::units;

use crate::options::network::NetworkArguments;
use crate::options::values;
use crate::support::signals::Interrupt;
use crate::support::stderr::complain;
use crate::support::stdout::tell;
use crate::support::waiting::Waiting;
use crate::support::{exit, listener, metrics, population};

/// Lends memory to a pool until it is stopped (SIGINT, SIGTERM or SIGHUP), has left the pool
/// (`selkie pool drain`), or the pool is destroyed. All of the memory is taken before it joins. It
/// may join a coded pool at any time: part of the data of other memory nodes then moves to it. When
/// it is stopped, its data is gone; a coded pool rebuilds it from other memory nodes.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Pool to join, made by `selkie pool create`: `NAME` on this host, `tcp:HOST:PORT,...` by
    /// other memory nodes of it, or `etcd:HOST:PORT,.../NAME`
    #[arg(long, value_name = "POOL")]
    pool: Place,
    /// Memory to lend, as 512M or 2G
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: u64,
    /// Failure domain, as rack-7: no two splits of a page lie in one domain [default: a domain of
    /// its own]
    #[arg(long, value_name = "NAME")]
    domain: Option<FailureDomain>,
    /// Memory of the host to keep free, as 4G. When less is free, the node moves pages to other
    /// memory nodes and returns their memory to the host; later it lends that again. For coded
    /// pools [default: it returns nothing]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    headroom: Option<u64>,
    /// Fabric of the pool, `shm`, `tcp` or `verbs` [default: the one that the pool was made with]
    #[arg(long, value_name = "FABRIC")]
    fabric: Option<FabricKind>,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    metrics: metrics::Options,
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    arguments.network.check(arguments.metrics.are_given())
}

/// How often the process looks whether it is to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Heartbeats for which a memory node of a pool that was destroyed still answers others.
const LAST_ANSWERS: u32 = 4;

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(refusal) = check(arguments) {
        return exit::refuse(&refusal);
    }
    // From here on a signal stops the node in an orderly way.
    let interrupt = match Interrupt::mind() {
        Ok(interrupt) => interrupt,
        Err(error) => return exit::fail(&error),
    };
    if let Some(headroom) = arguments.headroom {
        compare_to_host(headroom);
    }
    let runtime = match RealRuntime::new(1) {
        Ok(runtime) => runtime,
        Err(error) => return exit::fail(&error),
    };
    let env = runtime.env();
    let joined: Arc<OnceLock<Weak<MemoryServer>>> = Arc::default();
    let waiting = Waiting::default();
    waiting.begin(&format!("memory to lend, and pool {} to take it", arguments.pool));
    let insecure = arguments.network.insecure();
    let _serving =
        match metrics::serve(&arguments.metrics, insecure, source(&joined, &env), &waiting) {
            Ok(serving) => serving,
            Err(code) => return code,
        };
    let (network, fabric) = (arguments.network.network(), arguments.fabric);
    let lending = async {
        let shared = SharedPool::at(&arguments.pool, arguments.network.tls().credentials()?)?;
        let domain = arguments.domain.clone().unwrap_or_default();
        let (bytes, headroom) = (arguments.memory, arguments.headroom);
        let watcher = population::watch(&interrupt);
        let offer = Capacity { bytes, domain, headroom, watcher };
        shared.lend(&env, offer, fabric, &network).await
    };
    let lent = match runtime.block_on(interrupt.or_end(&env, lending)) {
        Ok(Ok(lent)) => lent,
        Err(interrupted) => return interrupted.end(),
        Ok(Err(error)) => {
            if let Some(interrupted) = interrupt.signal() {
                return interrupted.end();
            }
            return refused(&error, &arguments.pool, network.listen);
        }
    };
    let _ = joined.set(Arc::downgrade(&lent));
    waiting.end();
    let (name, bytes) = (lent.node().descriptor().peer, lent.node().region().len() as u64);
    let (pool, process) = (&arguments.pool, Pid::as_raw_nonzero(getpid()));
    let card = lent.node().endpoint().access_card();
    let at = card.as_deref().and_then(|card| card.split(' ').next());
    let at = at.map_or_else(String::new, |at| format!(" at {at}"));
    tell!("{name} of pool {pool} lends {}{at}, process {process}", units::bytes(bytes));
    if let Err(code) = lend_until_end(&env, &lent, pool, &interrupt) {
        return code;
    }
    drop(lent);
    complain!("{name} stops after {} of processor time", units::seconds(cpu_time()));
    ExitCode::SUCCESS
}

/// Warns of a headroom that the host does not have: the node would lend next to nothing.
fn compare_to_host(headroom: u64) {
    // A host that does not say is not judged; the monitor warns of it.
    if let Ok(total) = HostMemory::default().total_bytes()
        && headroom >= total
    {
        tracing::warn!(
            "--headroom {}: this host has {} in all, so that much is never free, and the node gives back all that it lends",
            units::bytes(headroom),
            units::bytes(total)
        );
    }
}

/// Lends until a signal, or the pool, ends it; a node that was declared dead has failed.
fn lend_until_end(
    env: &Env,
    lent: &MemoryServer,
    pool: &Place,
    interrupt: &Interrupt,
) -> Result<(), ExitCode> {
    let (name, card) = (lent.node().descriptor().peer, lent.node().endpoint().access_card());
    while interrupt.signal().is_none() {
        match lent.end() {
            None => {}
            Some(ServerEnd::PoolGone) => {
                complain!("pool {pool} was destroyed");
                tell_others(lent, card.is_some());
                return Ok(());
            }
            Some(ServerEnd::Left) => {
                complain!("{name} of pool {pool} has left: nothing is on it any more");
                return Ok(());
            }
            Some(ServerEnd::Dead) => {
                let cause = lateness(lent.latest_silence(env.now()), lent.timing().lease);
                return Err(exit::fail(&format_args!("the pool has declared {name} dead{cause}")));
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Reports why the node does not lend; if its port is in use, by which process. A node whose pool
/// is destroyed ends as one that was asked to.
fn refused(error: &SharedPoolError, pool: &Place, listen: Option<SocketAddr>) -> ExitCode {
    if matches!(error, SharedPoolError::Destroyed) {
        complain!("pool {pool} was destroyed");
        return ExitCode::SUCCESS;
    }
    let own = match error {
        SharedPoolError::Pool(PoolError::Config { key: "bytes_per_node", value, allowed }) => {
            Some(("memory", value, allowed))
        }
        SharedPoolError::Pool(PoolError::Config { key: key @ "headroom", value, allowed }) => {
            Some((*key, value, allowed))
        }
        _ => None,
    };
    if let Some((key, value, allowed)) = own {
        let value = value.parse().map_or_else(|_| value.clone(), units::bytes);
        return exit::refuse_option(key, &value, allowed);
    }
    let held_by = match error {
        SharedPoolError::Pool(PoolError::MemoryNode { source, .. }) => {
            listener::held_by_in(source, listen)
        }
        _ => String::new(),
    };
    exit::fail(&format_args!("{error}{held_by}"))
}

/// Lets nodes of other hosts, which ask for the pool here, learn that it was destroyed.
fn tell_others(lent: &MemoryServer, is_asked: bool) {
    if is_asked {
        std::thread::sleep(LAST_ANSWERS * lent.timing().heartbeat);
    }
}

/// The node, from when it has joined until it stops.
fn source(joined: &Arc<OnceLock<Weak<MemoryServer>>>, env: &Env) -> metrics::ReportSource {
    let (joined, env) = (Arc::clone(joined), env.clone());
    Arc::new(move || {
        let lent = joined.get().and_then(Weak::upgrade);
        let report =
            lent.map(|lent| (lent.node().descriptor().peer, Report::of_memory(&env, &lent)));
        report.into_iter().collect()
    })
}
