//! Compute nodes with TPC-C's tables: in a pool of this process, or in one that others use too.

use std::sync::Arc;

use selkie_fabric::env::Env;
use selkie_fabric::meter::Meter;
use selkie_fabric::{BoxFuture, Fabric, MemFabric};
use selkie_pool::Pool;

use super::config::Config;
use super::schema::Tables;
use super::shared_pool::{Driver, DriverRole};
use crate::Progress;
use crate::cluster::{Cluster, Node};
use crate::error::TpccError;

/// A pool and compute nodes with TPC-C's tables.
pub type TpccCluster = Cluster<Tables>;
/// A compute node with TPC-C's tables.
pub type TpccNode = Node<Tables>;

impl Cluster<Tables> {
    /// Starts the memory nodes, then the compute nodes, all in this process; creates the tables on
    /// the first and opens the database on the others.
    ///
    /// # Errors
    /// What the configuration is refused for, and what pool, engines and database report.
    pub async fn start(env: &Env, config: &Config) -> Result<Self, TpccError> {
        Self::start_on(MemFabric::new(), env, &|_| env.clone(), config).await
    }

    /// As [`Cluster::start`], with the memory populated before anything else, in a stage of the
    /// progress.
    pub(super) fn start_told<'a>(
        env: &'a Env,
        config: &'a Config,
        progress: &'a Arc<dyn Progress>,
    ) -> BoxFuture<'a, Result<Self, TpccError>> {
        Box::pin(async move {
            config.validate()?;
            let (fabric, shape) = (MemFabric::new(), config.shape());
            Self::start_shaped(fabric, env, |_| env.clone(), shape, Some(progress)).await
        })
    }

    /// As [`Cluster::start`], on any fabric, with each compute node in an environment of its own;
    /// `env` is that of the driver.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_on<'a>(
        fabric: Arc<dyn Fabric>,
        env: &'a Env,
        env_of: &'a (dyn Fn(usize) -> Env + Sync),
        config: &'a Config,
    ) -> BoxFuture<'a, Result<Self, TpccError>> {
        Box::pin(async move {
            config.validate()?;
            Self::start_shaped(fabric, env, env_of, config.shape(), None).await
        })
    }

    /// Starts compute nodes of this process in a pool that others use too, each under an index that
    /// no node of the pool has; by its role the first of them makes the tables, or all open the
    /// database that is there.
    ///
    /// # Errors
    /// As [`Cluster::start`], and [`TpccError::Interrupted`].
    pub fn join<'a>(
        fabric: Arc<dyn Fabric>,
        pool: Arc<Pool>,
        env: &'a Env,
        config: &'a Config,
        (driver, role): (&'a Driver, DriverRole),
    ) -> BoxFuture<'a, Result<Self, TpccError>> {
        Box::pin(async move {
            config.shape().check_log_room(role != DriverRole::Joins)?;
            let meter = Meter::wrap(fabric);
            let fabric: Arc<dyn Fabric> = Arc::clone(&meter) as Arc<dyn Fabric>;
            let mut cluster = Self::empty(meter, pool, env, config.shape());
            for number in 0..config.compute_nodes {
                let role = if number == 0 { role } else { DriverRole::Joins };
                let node = cluster.join_node(&fabric, env, (driver, role)).await;
                match node.map_err(|error| error.or_pool_full(config.needed_bytes())) {
                    Ok(node) => cluster.nodes.push(Arc::new(node)),
                    Err(error) => {
                        // Why a node did not start says more than why another does not stop.
                        let _ = cluster.close().await;
                        return Err(error);
                    }
                }
            }
            Ok(cluster)
        })
    }

    async fn join_node(
        &self,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        (driver, role): (&Driver, DriverRole),
    ) -> Result<TpccNode, TpccError> {
        // Each of these may wait for other nodes, or for a recovery.
        let index = driver.unless_interrupted(self.free_index(fabric, env)).await?;
        let engine = driver.unless_interrupted(self.start_engine(fabric, env, index)).await?;
        let database = async {
            match role {
                DriverRole::Joins => self.open_database(&engine).await,
                DriverRole::Loads => {
                    driver.still_loads().await?;
                    self.create_database(&engine).await
                }
                DriverRole::Reloads => {
                    self.check_room(&engine).await?;
                    driver.still_loads().await?;
                    self.replace_database(&engine).await
                }
            }
        };
        let database = driver.unless_interrupted(database).await;
        self.node_or_close(engine, index, database).await
    }
}
