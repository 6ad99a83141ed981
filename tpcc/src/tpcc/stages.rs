//! The stages of a run on nodes that have been started: load, measure, check.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;

use super::affinity::Affinity;
use super::check;
use super::commit_record::{CommitFile, CommitRecords, committed_in};
use super::config::Config;
use super::interval::TpccInterval;
use super::load::load;
use super::nodes::TpccCluster;
use super::partitioned;
use super::report::{CheckResult, Report};
use super::worker::Worker;
use crate::error::TpccError;
use crate::figures::units;
use crate::run::{LoadReport, Progress, measure as measure_workers, tell_load, work};

/// Loads; `abandoned_bytes` of pages in use are of a database before.
pub(super) async fn load_and_tell(
    cluster: &TpccCluster,
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
    let mut load = load(cluster, config, progress).await?;
    load.database_bytes = load.database_bytes.saturating_sub(abandoned_bytes);
    tell_load(&load, cluster.shape(), progress);
    Ok(load)
}

pub(super) async fn check_and_report(
    cluster: &TpccCluster,
    config: &Config,
    load: LoadReport,
    interval: TpccInterval,
    progress: &Arc<dyn Progress>,
) -> Result<Report, TpccError> {
    let tasks = config.setup().tasks_per_node();
    let warehouses = config.warehouses.cast_signed();
    let started = cluster.env().now();
    let mut interval = interval;
    let facts = check::collect(&cluster.nodes, warehouses, tasks, progress).await?;
    let verify =
        |commits| check::verify_commits(&cluster.nodes, warehouses, commits, tasks, progress);
    let mut commits = verify(std::mem::take(&mut interval.commits)).await?;
    let mut of_files = Vec::new();
    for path in &config.verify_commits {
        let found = verify(committed_in(path)?).await?;
        commits.add(&found);
        of_files.push((path.clone(), found));
    }
    let checked = CheckResult {
        judgement: check::judge(&facts, &config.scale),
        lost_pages: facts.lost_pages(),
        unread: check::unread_rows(&facts, &config.scale),
        commits,
        of_files,
        duration: cluster.env().now() - started,
    };
    Ok(Report::new(config, load, interval, checked))
}

/// Runs the mix for the configured time.
///
/// # Errors
/// The first error of a worker that trying again does not mend.
pub fn measure<'a>(
    cluster: &'a TpccCluster,
    config: &'a Config,
    progress: &'a Arc<dyn Progress>,
) -> BoxFuture<'a, Result<TpccInterval, TpccError>> {
    Box::pin(async move {
        let (config, records) =
            (Arc::new(config.clone()), Arc::new(Mutex::new(CommitRecords::default())));
        let setup = config.setup();
        let partitions = match config.affinity {
            Affinity::Partitioned => partitioned::connect(&cluster.nodes, &setup.network)?,
            Affinity::Shared | Affinity::Warehouse => Vec::new(),
        };
        let commits = config.record_commits.as_deref().map(CommitFile::open).transpose()?;
        let interval = measure_workers(cluster, &setup, progress, |seat, control| {
            let (config, records) = (Arc::clone(&config), Arc::clone(&records));
            let commits = commits.clone();
            let partitions = partitions.clone();
            async move {
                let mut worker = Worker::new(&config, &seat, &partitions, commits)?;
                work(&mut worker, seat.node.engine.env(), &control).await?;
                records.lock().add(worker.into_records());
                Ok(())
            }
        });
        let interval = interval.await?;
        for partition in &partitions {
            partition.close().await?;
        }
        let records = std::mem::take(&mut *records.lock());
        Ok(interval.with_commits(records))
    })
}
