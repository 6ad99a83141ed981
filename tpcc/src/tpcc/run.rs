//! A whole run in a pool of its own: start, load, measure, check, stop.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::RealRuntime;
use selkie_fabric::sim::{CostModel, World, WorldConfig};
use selkie_fabric::{BoxFuture, PeerId};

use super::config::Config;
use super::nodes::TpccCluster;
use super::report::Report;
use super::shared_pool::Driver;
use super::stages::{check_and_report, load_and_tell, measure};
use crate::cluster::{Durability, MAX_VIRTUAL_DURATION, Network};
use crate::error::TpccError;
use crate::run::{LoadReport, Progress};

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
            let (report, left) = runtime.block_on(async {
                match TpccCluster::start_told(&env, config, progress).await {
                    Ok(cluster) => run_and_leave(cluster, config, progress).await,
                    Err(error) => (Err(error), None),
                }
            });
            // First the tasks of the nodes end, then their memory goes.
            drop(runtime);
            drop(left);
            report
        }
        Network::Simulated(cost) => {
            let mail_threads = u32::try_from(config.mail_tasks).unwrap_or(u32::MAX);
            let cost = CostModel { mail_threads, ..cost.clone() };
            let world = World::new(WorldConfig { cost, ..WorldConfig::new(config.seed) });
            let node = |index: usize| PeerId::compute(u16::try_from(index).unwrap_or(u16::MAX));
            let report = world.run(BOUND, async {
                let env_of = |index| world.env_of(node(index));
                let cluster =
                    TpccCluster::start_on(world.fabric(), &world.env(), &env_of, config).await?;
                run_and_leave(cluster, config, progress).await.0
            });
            report.map_err(|error| TpccError::Stuck(error.to_string()))?
        }
    }
}

/// The report, and the nodes if they were not closed.
async fn run_and_leave(
    cluster: TpccCluster,
    config: &Config,
    progress: &Arc<dyn Progress>,
) -> (Result<Report, TpccError>, Option<TpccCluster>) {
    let _entered = progress.roster().map(|roster| cluster.enter(roster));
    let report = run_labelled(&cluster, config, progress).await;
    match (report, cluster.leave(progress).await) {
        (report, Ok(left)) => (report, left),
        // What broke first says more than what broke because of it.
        (report, Err(error)) => (report.and(Err(error)), None),
    }
}

/// As [`run_on`]. Where the logs outlive the pool, they say what is loaded: drivers of a pool that
/// is made from them go by that.
async fn run_labelled(
    cluster: &TpccCluster,
    config: &Config,
    progress: &Arc<dyn Progress>,
) -> Result<Report, TpccError> {
    if !matches!(config.durability, Durability::Disk { .. }) {
        return run_on(cluster, config, progress).await;
    }
    let mut driver = Driver::alone(cluster.pool(), &cluster.env(), config, progress).await?;
    let load = match load_and_tell(cluster, config, 0, progress).await {
        Ok(load) => load,
        Err(error) => {
            // Why there is no database says more than why that is not said.
            let _ = driver.give_up().await;
            return Err(error);
        }
    };
    driver.loaded(0).await?;
    measure_and_check(cluster, config, load, progress).await
}

/// Loads, measures and checks on a cluster that was just started.
///
/// # Errors
/// As [`run`].
pub fn run_on<'a>(
    cluster: &'a TpccCluster,
    config: &'a Config,
    progress: &'a Arc<dyn Progress>,
) -> BoxFuture<'a, Result<Report, TpccError>> {
    Box::pin(async move {
        let load = load_and_tell(cluster, config, 0, progress).await?;
        measure_and_check(cluster, config, load, progress).await
    })
}

async fn measure_and_check(
    cluster: &TpccCluster,
    config: &Config,
    load: LoadReport,
    progress: &Arc<dyn Progress>,
) -> Result<Report, TpccError> {
    let interval = measure(cluster, config, progress).await?;
    Ok(check_and_report(cluster, config, load, interval, progress).await?.alone())
}
