//! A run in a pool that other processes drive too.

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::EngineError;
use selkie_fabric::env::Env;
use selkie_fabric::{BoxFuture, Fabric};
use selkie_pool::Pool;

use super::config::Config;
use super::nodes::TpccCluster;
use super::report::Report;
use super::shared_pool::{Driver, DriverRole, LoadPolicy};
use super::stages::{check_and_report, load_and_tell, measure};
use crate::error::TpccError;
use crate::run::tasks::within;
use crate::run::{LoadReport, Progress};

/// What a driver of a shared pool is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Load unless the database is loaded, run and check.
    Run,
    /// Load unless the database is loaded, and stop.
    LoadOnly,
}

/// Drives TPC-C on a pool that other processes drive too: one of them loads, the others wait for
/// it; the mix runs on all of them, and each checks when none runs any more. The report is that of
/// this process; there is none if all it was to do was to load.
///
/// # Errors
/// As [`run_on`](crate::run_on), and [`TpccError::Config`] if the pool holds another database than
/// asked for.
pub fn run_shared<'a>(
    fabric: Arc<dyn Fabric>,
    pool: &'a Arc<Pool>,
    env: &'a Env,
    config: &'a Config,
    (purpose, loading): (Purpose, LoadPolicy),
    progress: &'a Arc<dyn Progress>,
) -> BoxFuture<'a, Result<Option<Report>, TpccError>> {
    Box::pin(async move {
        let met = Driver::meet(pool, env, config, loading, progress).await;
        let (mut driver, role) = match met {
            Ok(met) => met,
            Err(error) => return Err(or_destroyed(pool, error).await),
        };
        let loads = role != DriverRole::Joins;
        if !loads && purpose == Purpose::LoadOnly {
            progress.note("the database is loaded already");
            return Ok(None);
        }
        let cluster =
            TpccCluster::join(fabric, Arc::clone(pool), env, config, (&driver, role)).await;
        let cluster = match cluster {
            Ok(cluster) => cluster,
            Err(error) => {
                // Why it did not join says more than why the label is as it was not.
                if loads {
                    let _ = driver.give_up().await;
                }
                return Err(or_destroyed(pool, error).await);
            }
        };
        let _entered = progress.roster().map(|roster| cluster.enter(roster));
        let done = drive(&mut driver, role, &cluster, config, purpose, progress).await;
        let done = match done {
            Err(error) => Err(cluster.or_expelled(error).await),
            done => done,
        };
        leave(&driver, loads, cluster, env, done).await
    })
}

/// The error of a driver without nodes; that the pool was destroyed says more than what it met
/// because of that.
async fn or_destroyed(pool: &Pool, error: TpccError) -> TpccError {
    match pool.is_destroyed().await {
        true => EngineError::PoolDestroyed.into(),
        false => error,
    }
}

/// Loads or finds the database loaded, then runs the mix and checks, as the purpose says.
async fn drive(
    driver: &mut Driver,
    role: DriverRole,
    cluster: &TpccCluster,
    config: &Config,
    purpose: Purpose,
    progress: &Arc<dyn Progress>,
) -> Result<Option<Report>, TpccError> {
    driver.come_in().await?;
    let load = if role == DriverRole::Joins {
        let database_bytes = cluster.used_bytes().await?.saturating_sub(driver.abandoned_bytes());
        LoadReport { duration: Duration::ZERO, rows: 0, database_bytes }
    } else {
        let before = if role == DriverRole::Reloads { cluster.used_bytes().await? } else { 0 };
        let load = load_and_tell(cluster, config, before, progress).await?;
        driver.loaded(before).await?;
        load
    };
    if purpose == Purpose::LoadOnly {
        return Ok(None);
    }
    driver.begin_run().await?;
    let mut interval = measure(cluster, config, progress).await?;
    let abandoned = driver.abandoned_bytes();
    interval.database_bytes = interval.database_bytes.saturating_sub(abandoned);
    driver.begin_check().await?;
    check_and_report(cluster, config, load, interval, progress).await.map(Some)
}

/// Leaves the pool. What broke first says more than what broke because of it.
async fn leave(
    driver: &Driver,
    loads: bool,
    cluster: TpccCluster,
    env: &Env,
    done: Result<Option<Report>, TpccError>,
) -> Result<Option<Report>, TpccError> {
    if done.as_ref().is_err_and(TpccError::is_pool_destroyed) {
        // There is nothing to leave.
        return done;
    }
    let (is_cut_short, ends) = (done.is_err(), done.as_ref().is_err_and(TpccError::ends_service));
    let lease = cluster.pool().state().timing.lease;
    let leave = async {
        if loads && is_cut_short {
            // Unless the load was over before: then nothing happens.
            let _ = driver.give_up().await;
        }
        let left = driver.leave().await;
        (left, cluster.close().await)
    };
    if ends {
        // What it holds of memory that is gone, or no node takes from it any more, it would hold
        // for long.
        let _ = within(env, lease, leave).await;
        return done;
    }
    let (left, closed) = leave.await;
    let report = done?;
    left?;
    closed?;
    Ok(report)
}
