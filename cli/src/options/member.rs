//! Commands that join a shared pool as a compute node for as long as they run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use selkie::engine::backup::BackupError;
use selkie::engine::log::{Labels, LogError, LogTo, first_bytes, free_bytes, open_store};
use selkie::engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie::fabric::{Env, RealRuntime};
use selkie::pool::{Pool, PoolError};
use selkie::shared::{Place, SharedPool, SharedPoolError};
use selkie_tpcc::{Durability, units};

use super::network::NetworkArguments;
use crate::support::signals::{Interrupt, Interrupted};
use crate::support::{exit, listener};

/// Capacity of the log of a node that changes nothing, MiB: the least that files take, as the log
/// stays there.
const IDLE_LOG_MIB: u64 = 16;
/// As for drivers: longer than it takes to notice the death of a memory node.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Why such a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemberError {
    #[error(transparent)]
    Shared(#[from] SharedPoolError),
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// With the process that has the address at which this one was to listen.
    #[error("{error}{held_by}")]
    Listen { error: EngineError, held_by: String },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Backup(#[from] BackupError),
    #[error("label {name} of the pool is set already: the pool is in use")]
    Label { name: String },
    #[error(
        "compute nodes have used pool {place}: pages are put into one that no compute node has used, as made by `{create}` \
         and {memory_nodes} of `selkie memnode --pool OTHER --memory SIZE`"
    )]
    Used { place: String, create: String, memory_nodes: usize },
    #[error(
        "the pool has lines of {pool} bytes, the logs are of {logs}: make one with --gcl {logs}"
    )]
    LineBytes { pool: usize, logs: usize },
    #[error("{place} has no room: {} of pages need {}, and {} are free; {helps}", units::bytes(*pages), units::bytes(*needed),
        units::bytes(*free))]
    NoRoom { place: String, pages: u64, needed: u64, free: u64, helps: &'static str },
    #[error(transparent)]
    Database(#[from] selkie::txn::TxnError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl MemberError {
    /// With the commands that make another pool like this one, if pages cannot be put into it as it
    /// has been used.
    fn or_used(self, place: &Place, pool: &Pool) -> Self {
        let is_leased = |error: &EngineError| {
            matches!(error, EngineError::Config { key: "extents in use", .. })
        };
        let is_used = match &self {
            Self::Pool(PoolError::Used) | Self::Label { .. } => true,
            Self::Engine(error) | Self::Backup(BackupError::Engine(error)) => is_leased(error),
            _ => false,
        };
        if !is_used {
            return self;
        }
        let state = pool.state();
        let memory_nodes = state.memory_nodes.len();
        let create = format!(
            "selkie pool create OTHER --fabric {} --memory-nodes {memory_nodes} --coding {} --gcl {}",
            state.fabric, state.coding, state.gcl_bytes
        );
        Self::Used { place: place.to_string(), create, memory_nodes }
    }

    /// Says on stderr why a command failed, or that a signal has ended it.
    pub(crate) fn fail(&self) -> ExitCode {
        match self {
            Self::Interrupted(interrupted) => interrupted.end(),
            error => exit::fail(error),
        }
    }
}

/// How to take part.
#[derive(Args)]
pub(crate) struct MemberArguments {
    #[command(flatten)]
    network: NetworkArguments,
}

/// Where the logs are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logs<'a> {
    /// As the pool's other nodes: in a directory or object store, or in memory if the pool has room
    /// for them.
    AsOthers(Option<&'a PathBuf>),
    /// Only where it is said.
    In(Option<&'a PathBuf>),
}

impl MemberArguments {
    /// Looks for values out of range.
    pub(crate) fn check(&self) -> Result<(), exit::Refusal> {
        self.network.check(false)
    }

    /// Joins a pool as one more compute node, runs `work`, and leaves. `before` runs before it
    /// joins. A signal ends the work; the node then leaves.
    pub(crate) fn take_part<T>(
        &self,
        interrupt: &Interrupt,
        place: &Place,
        logs: Logs<'_>,
        before: impl AsyncFnOnce(&Pool) -> Result<(), MemberError>,
        work: impl AsyncFnOnce(&Env, &Arc<Pool>, &Engine) -> Result<T, MemberError>,
    ) -> Result<T, MemberError> {
        let runtime = RealRuntime::new(2)?;
        let env = runtime.env();
        let shared = SharedPool::at(place, self.network.tls().credentials()?)?;
        runtime.block_on(async {
            let network = self.network.network();
            let (fabric, pool) = interrupt.or_end(&env, shared.open(&env, &network)).await??;
            let done = async {
                let used = |error: MemberError| error.or_used(place, &pool);
                interrupt.or_end(&env, before(&pool)).await?.map_err(used)?;
                let log = log_to(&pool, logs)?;
                let missed = pool.all_missed_within().unwrap_or_default();
                let request_timeout = REQUEST_TIMEOUT.max(2 * missed);
                let config = EngineConfig { log, request_timeout, ..EngineConfig::default() };
                let id = Engine::free_index(&pool, &fabric, &env, &config);
                let listens = |error| at_listener(error, network.listen);
                let id = interrupt.or_end_soon(&env, id).await?.map_err(listens)?;
                let engine = Engine::start(&pool, &fabric, &env, id, config);
                let engine = interrupt.or_end_soon(&env, engine).await?.map_err(listens)?;
                let done = interrupt.or_end(&env, work(&env, &pool, &engine)).await;
                let closed = engine.close().await;
                // The error of the work says more than that of the close.
                let done = done?.map_err(used)?;
                closed?;
                Ok(done)
            };
            match done.await {
                Err(error) if !matches!(error, MemberError::Interrupted(_)) => {
                    // Says more than what was met because of that.
                    let is_destroyed = pool.is_destroyed().await;
                    Err(if is_destroyed { EngineError::PoolDestroyed.into() } else { error })
                }
                done => done,
            }
        })
    }
}

/// The error with the process that listens where this one was to, if that is what is wrong.
fn at_listener(error: EngineError, listen: Option<SocketAddr>) -> MemberError {
    let held_by = match &error {
        EngineError::Fabric(error) => listener::held_by_in(error, listen),
        _ => String::new(),
    };
    match held_by.is_empty() {
        true => error.into(),
        false => MemberError::Listen { error, held_by },
    }
}

/// Looks whether pages find room in a pool, where they keep their addresses, and in the directory
/// of its logs, where each of them is logged as well.
pub(crate) fn check_room(
    place: &Place,
    pool: &Pool,
    logs: Logs<'_>,
    lines: &BTreeMap<GAddr, Box<[u8]>>,
) -> Result<(), MemberError> {
    let (state, place) = (pool.state(), format!("pool {place}"));
    let pages = lines.values().map(|line| line.len() as u64).sum();
    let end = lines.last_key_value().map_or(0, |(last, line)| last.to_u64() + line.len() as u64);
    let space = state.address_space();
    if space < end {
        let helps =
            "pages keep their addresses: make a pool with more memory (`selkie memnode --memory`)";
        return Err(MemberError::NoRoom { place, pages, needed: end, free: space, helps });
    }
    let (Logs::AsOthers(directory) | Logs::In(directory)) = logs;
    let Some(directory) = directory else { return Ok(()) };
    let Some(free) = free_bytes(directory)? else { return Ok(()) };
    let needed = pages.saturating_add(first_bytes(Durability::DISK_LOG_MIB << 20));
    if free < needed {
        let helps = "nothing was changed";
        let place = directory.display().to_string();
        return Err(MemberError::NoRoom { place, pages, needed, free, helps });
    }
    Ok(())
}

/// Sets the labels of a new pool.
pub(crate) async fn set_labels(pool: &Pool, labels: &Labels) -> Result<(), MemberError> {
    for (name, label) in labels {
        if !pool.set_label(name, None, Some(label)).await? {
            return Err(MemberError::Label { name: name.clone() });
        }
    }
    Ok(())
}

fn log_to(pool: &Pool, logs: Logs<'_>) -> Result<Option<LogTo>, LogError> {
    let (place, log_mib) = match logs {
        Logs::AsOthers(None) if pool.descriptor().log_bytes > 0 => return Ok(Some(LogTo::Memory)),
        Logs::AsOthers(place) => (place, IDLE_LOG_MIB),
        Logs::In(place) => (place, Durability::DISK_LOG_MIB),
    };
    place.map(|place| Ok(LogTo::Store(open_store(place, log_mib << 20)?))).transpose()
}
