//! The tasks of all compute nodes that load.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::BoxFuture;

use super::insert::Loader;
use super::jobs::LoadQueue;
use super::rows::RowGenerator;
use crate::error::TpccError;
use crate::run::tasks::join_unless_interrupted;
use crate::run::{LoadReport, Progress};
use crate::tpcc::config::Config;
use crate::tpcc::nodes::TpccCluster;
use crate::tpcc::nurand::NuConstants;

/// Loads the warehouses of the configuration into an empty database.
///
/// # Errors
/// [`TpccError::PoolFull`] if they do not fit; else what the database reports.
pub fn load<'a>(
    cluster: &'a TpccCluster,
    config: &'a Config,
    progress: &'a Arc<dyn Progress>,
) -> BoxFuture<'a, Result<LoadReport, TpccError>> {
    Box::pin(async move {
        let Some(first) = cluster.nodes.first() else {
            return Ok(LoadReport { duration: Duration::ZERO, rows: 0, database_bytes: 0 });
        };
        let env = first.engine.env().clone();
        let started = env.now();
        progress.begin("load", config.scale.rows(config.warehouses));
        let queue = Arc::new(LoadQueue::new(config));
        let constants = NuConstants::of_load(config.seed, &config.scale);
        let plan = Arc::new(RowGenerator { seed: config.seed, scale: config.scale, constants });
        let mut tasks = Vec::new();
        for (index, node) in cluster.nodes.iter().enumerate() {
            for _ in 0..config.setup().tasks_per_node() {
                let loader = Loader {
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
        let loaded = join_unless_interrupted(&env, progress, "load", tasks).await;
        progress.end();
        loaded.map_err(|error| error.or_pool_full(config.needed_bytes()))?;
        Ok(LoadReport {
            duration: env.now() - started,
            rows: config.scale.rows(config.warehouses),
            database_bytes: cluster.used_bytes().await?,
        })
    })
}
