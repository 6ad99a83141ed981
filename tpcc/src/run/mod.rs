//! A whole run: start, load, measure, check, stop.

mod interval;
mod measure;
mod terminal;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::sim::{CostModel, World, WorldConfig};
use selkie_fabric::{Fabric, PeerId};
use selkie_memnode::Pool;

pub use interval::Interval;
pub(crate) use interval::measure as measure_workers;
pub use measure::{KindStats, Latency, Measurements};
pub use terminal::{Outcome, Terminal};
pub(crate) use terminal::{WORKER_STREAMS, work};

use crate::check;
use crate::cluster::Cluster;
use crate::config::{Affinity, Config};
use crate::error::TpccError;
use crate::journal::{self, CommitFile, Journal};
use crate::load::{self, LoadReport};
use crate::network::Network;
use crate::partitioned;
use crate::progress::Progress;
use crate::report::{self, Checked, Report};
use crate::setup::{MAX_VIRTUAL_DURATION, Shape};
use crate::shared::{Driver, Loading, Role};
use crate::tasks::within;
use crate::units;
use worker::Worker;

/// Virtual time in which even the slowest run is over, with load and check.
const BOUND: Duration = Duration::from_secs(3 * 3600);
const _: () = assert!(BOUND.as_secs() >= 3 * MAX_VIRTUAL_DURATION.as_secs());

/// Loads a database into a pool of this process, runs the mix on it and checks it, in real time or,
/// where the network is simulated, in virtual time. Starts the threads it needs, and blocks until
/// all is over.
///
/// # Errors
/// [`TpccError::Config`] before anything is started; [`TpccError::PoolFull`]; else what broke.
/// Conditions that do not hold are no error but part of the report.
pub fn run(config: &Config, progress: &Arc<dyn Progress>) -> Result<Report, TpccError> {
    config.validate()?;
    match &config.network {
        Network::Real { threads } => {
            let runtime = RealRuntime::with_seed(*threads, config.seed)?;
            let env = runtime.env();
            // The calling thread is none of the runtime's, so it only waits.
            runtime.block_on(async {
                let cluster = Cluster::start(&env, config).await?;
                run_and_close(cluster, config, progress).await
            })
        }
        Network::Simulated(cost) => {
            let mail_threads = u32::try_from(config.mail_tasks).unwrap_or(u32::MAX);
            let cost = CostModel { mail_threads, ..cost.clone() };
            let world = World::new(WorldConfig { cost, ..WorldConfig::new(config.seed) });
            let node = |index: usize| PeerId::compute(u16::try_from(index).unwrap_or(u16::MAX));
            let report = world.run(BOUND, async {
                let env_of = |index| world.env_of(node(index));
                let cluster =
                    Cluster::start_on(world.fabric(), &world.env(), env_of, config).await?;
                run_and_close(cluster, config, progress).await
            });
            report.map_err(|error| TpccError::Stuck(error.to_string()))?
        }
    }
}

async fn run_and_close(
    cluster: Cluster,
    config: &Config,
    progress: &Arc<dyn Progress>,
) -> Result<Report, TpccError> {
    let _entered = progress.roster().map(|roster| cluster.enter(roster));
    let report = run_on(&cluster, config, progress).await;
    let closed = cluster.close().await;
    // What broke first says more than what broke because of it.
    let report = report?;
    closed.map(|()| report)
}

/// Loads, measures and checks on a cluster that was just started.
///
/// # Errors
/// As [`run`].
pub async fn run_on(
    cluster: &Cluster,
    config: &Config,
    progress: &Arc<dyn Progress>,
) -> Result<Report, TpccError> {
    let load = load_and_tell(cluster, config, 0, progress).await?;
    let interval = measure(cluster, config, progress).await?;
    Ok(check_and_report(cluster, config, load, interval, progress).await?.alone())
}

/// What a driver of a shared pool is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Load, if nobody has, run and check.
    Run,
    /// Load, if nobody has, and no more.
    LoadOnly,
}

/// Drives TPC-C on a pool that other processes drive too: one of them loads, the others wait for
/// it; the mix runs on all of them, and each checks when none runs any more. The report is that of
/// this process; there is none if all it was to do was to load.
///
/// # Errors
/// As [`run_on`], and [`TpccError::Config`] if the pool holds another database than asked for.
pub async fn run_shared(
    fabric: Arc<dyn Fabric>,
    pool: &Arc<Pool>,
    env: &Env,
    config: &Config,
    (purpose, loading): (Purpose, Loading),
    progress: &Arc<dyn Progress>,
) -> Result<Option<Report>, TpccError> {
    let (mut driver, role) = Driver::meet(pool, env, config, loading, progress).await?;
    let loads = role != Role::Joins;
    if !loads && purpose == Purpose::LoadOnly {
        progress.note("the database is loaded already");
        return Ok(None);
    }
    let cluster = Cluster::join(fabric, Arc::clone(pool), env, config, (&driver, role)).await;
    let cluster = match cluster {
        Ok(cluster) => cluster,
        Err(error) => {
            // Why it did not join says more than why the label is as it was not.
            let _ = driver.give_back().await;
            return Err(error);
        }
    };
    let _entered = progress.roster().map(|roster| cluster.enter(roster));
    let done = async {
        driver.come_in().await?;
        let load = if loads {
            let before = if role == Role::Reloads { cluster.used_bytes().await? } else { 0 };
            let load = load_and_tell(&cluster, config, before, progress).await?;
            driver.loaded(config, before).await?;
            load
        } else {
            let database_bytes =
                cluster.used_bytes().await?.saturating_sub(driver.abandoned_bytes());
            LoadReport { duration: Duration::ZERO, rows: 0, database_bytes }
        };
        if purpose == Purpose::LoadOnly {
            return Ok(None);
        }
        driver.begin_run().await?;
        let mut interval = measure(&cluster, config, progress).await?;
        let abandoned = driver.abandoned_bytes();
        interval.database_bytes = interval.database_bytes.saturating_sub(abandoned);
        driver.begin_check().await?;
        check_and_report(&cluster, config, load, interval, progress).await.map(Some)
    }
    .await;
    let done = match done {
        Err(error) => Err(cluster.or_expelled(error).await),
        done => done,
    };
    let leave = async {
        let left = driver.leave().await;
        (left, cluster.close().await)
    };
    if done.as_ref().is_err_and(TpccError::ends_service) {
        // What it holds of memory that is gone, or nobody takes from it any more, it would hold for
        // long.
        let _ = within(env, pool.state().timing.lease, leave).await;
        return done;
    }
    let (left, closed) = leave.await;
    // What broke first says more than what broke because of it.
    let report = done?;
    left?;
    closed?;
    Ok(report)
}

/// Loads; `abandoned_bytes` of pages in use are of a database before.
async fn load_and_tell(
    cluster: &Cluster,
    config: &Config,
    abandoned_bytes: u64,
    progress: &Arc<dyn Progress>,
) -> Result<LoadReport, TpccError> {
    if abandoned_bytes > 0 {
        progress.note(&format!(
            "a new database takes the place of the one that is there, whose {} stay in use until the pool is destroyed",
            units::bytes(abandoned_bytes)
        ));
    }
    let mut load = load::load(cluster, config, progress).await?;
    load.database_bytes = load.database_bytes.saturating_sub(abandoned_bytes);
    tell_load(&load, cluster.shape(), progress);
    Ok(load)
}

/// Says what was loaded, and how much of it a compute node can cache.
pub(crate) fn tell_load(load: &LoadReport, shape: &Shape, progress: &Arc<dyn Progress>) {
    let cache_bytes = shape.cache_bytes();
    progress.note(&format!(
        "loaded {} rows in {} {}: database {}, cache {} a compute node ({:.0} %)",
        units::count(load.rows),
        report::precise(load.duration.as_secs_f64()),
        shape.setup.network.seconds(),
        units::bytes(load.database_bytes),
        units::bytes(cache_bytes),
        100.0 * cache_bytes as f64 / load.database_bytes.max(1) as f64,
    ));
}

async fn check_and_report(
    cluster: &Cluster,
    config: &Config,
    load: LoadReport,
    interval: Interval,
    progress: &Arc<dyn Progress>,
) -> Result<Report, TpccError> {
    let tasks = config.setup().tasks_per_node();
    let warehouses = config.warehouses.cast_signed();
    let started = cluster.env().now();
    let mut interval = interval;
    let facts = check::collect(&cluster.nodes, warehouses, tasks, progress).await?;
    let mut journal = std::mem::take(&mut interval.journal);
    for path in &config.look_for {
        journal.add(journal::committed_in(path)?);
    }
    let journal = check::look_up(&cluster.nodes, warehouses, journal, tasks, progress).await?;
    let checked = Checked {
        judgement: check::judge(&facts, &config.scale),
        lost_pages: facts.lost_pages(),
        unread: check::unread_rows(&facts, &config.scale),
        journal,
        duration: cluster.env().now() - started,
    };
    Ok(Report::new(config, load, interval, checked))
}

/// Runs the mix for the configured time.
///
/// # Errors
/// The first error of a worker that trying again does not mend.
pub async fn measure(
    cluster: &Cluster,
    config: &Config,
    progress: &Arc<dyn Progress>,
) -> Result<Interval, TpccError> {
    let (config, journal) = (Arc::new(config.clone()), Arc::new(Mutex::new(Journal::default())));
    let setup = config.setup();
    let partitions = match config.affinity {
        Affinity::Partitioned => partitioned::connect(&cluster.nodes, &setup.network)?,
        Affinity::Shared | Affinity::Warehouse => Vec::new(),
    };
    let commits = config.note_commits.as_deref().map(CommitFile::open).transpose()?;
    let interval = interval::measure(cluster, &setup, progress, |seat, control| {
        let (config, journal) = (Arc::clone(&config), Arc::clone(&journal));
        let commits = commits.clone();
        let partitions = partitions.clone();
        async move {
            let mut worker = Worker::new(&config, &seat, &partitions, commits);
            work(&mut worker, seat.node.engine.env(), &control).await?;
            journal.lock().add(worker.into_journal());
            Ok(())
        }
    });
    let interval = interval.await?;
    for partition in &partitions {
        partition.close().await?;
    }
    let journal = std::mem::take(&mut *journal.lock());
    Ok(interval.noting(journal))
}
