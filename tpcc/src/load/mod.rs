//! Loading the initial database (clause 4.3.3).
//!
//! The work is cut into jobs (`jobs`), each a run of rows that are neighbours in their tables.
//! Every compute node runs several tasks; a task takes the jobs of its node's warehouses first and
//! helps the other nodes then. A job inserts its rows in transactions of some dozens (`insert`).
//! Every row is made from the seed and its own key (`rows`), so the database is the same however
//! the work is shared.

mod insert;
mod jobs;
mod rows;

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::config::Config;
use crate::error::TpccError;
use crate::progress::Progress;
use crate::tasks::join_all;

/// What a load did.
#[derive(Clone, Copy, Debug)]
pub struct LoadReport {
    /// How long it took.
    pub duration: Duration,
    /// Rows inserted, order lines by their average.
    pub rows: u64,
    /// Bytes of pages in use after it.
    pub database_bytes: u64,
}

/// Loads the warehouses of the configuration into an empty database.
///
/// # Errors
/// [`TpccError::PoolFull`] if they do not fit; else what the database reports.
pub async fn load(
    cluster: &Cluster,
    config: &Config,
    progress: &Arc<dyn Progress>,
) -> Result<LoadReport, TpccError> {
    let Some(first) = cluster.nodes.first() else {
        return Ok(LoadReport { duration: Duration::ZERO, rows: 0, database_bytes: 0 });
    };
    let env = first.engine.env().clone();
    let started = env.now();
    progress.begin("load", config.scale.rows(config.warehouses));
    let queue = Arc::new(jobs::Queue::new(config));
    let constants = crate::random::NuConstants::of_load(config.seed, &config.scale);
    let plan = Arc::new(rows::Plan { seed: config.seed, scale: config.scale, constants });
    let mut tasks = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate() {
        for _ in 0..config.setup().tasks_per_node() {
            let loader = insert::Loader {
                node: Arc::clone(node),
                plan: Arc::clone(&plan),
                progress: Arc::clone(progress),
            };
            let queue = Arc::clone(&queue);
            tasks.push(async move {
                while let Some(job) = queue.take(index) {
                    if let Err(error) = loader.run(job).await {
                        queue.abandon();
                        return Err(error);
                    }
                }
                Ok(())
            });
        }
    }
    let loaded = join_all(&env, "load", tasks).await;
    progress.end();
    loaded.map_err(|error| error.or_pool_full(config.needed_bytes()))?;
    Ok(LoadReport {
        duration: env.now() - started,
        rows: config.scale.rows(config.warehouses),
        database_bytes: cluster.used_bytes().await?,
    })
}
