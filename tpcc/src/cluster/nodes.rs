//! A whole pool in one process: memory nodes, and compute nodes with the database opened on each.

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{
    Coherence, ComputeId, DirectoryConfig, DirectoryHost, Engine, EngineConfig, EngineError,
    Entered, Roster, UserCounts, start_directories,
};
use selkie_fabric::env::Env;
use selkie_fabric::meter::{Meter, MeterSnapshot};
use selkie_fabric::{Fabric, PeerId};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{ComputeIndex, Pool};
use selkie_txn::{Database, DatabaseSchema};

use super::durability::Durability;
use super::shape::ClusterShape;
use super::table_set::TableSet;
use crate::error::TpccError;
use crate::run::Progress;

/// Heartbeats after which a process knows whether the others have declared it dead; a lease has at
/// least as many.
const BEATS_TO_KNOW: u32 = 4;
/// Cores of each memory node that serve a directory, where the protocol has directories.
const DIRECTORY_CORES: f64 = 1.0;
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A compute node.
pub struct Node<T> {
    /// Its engine.
    pub engine: Engine,
    /// The database, as opened there.
    pub db: Database,
    /// Its tables.
    pub tables: T,
}

/// The pool and the compute nodes of this process.
pub struct Cluster<T> {
    /// The compute nodes; never empty.
    pub nodes: Vec<Arc<Node<T>>>,
    env: Env,
    meter: Arc<Meter>,
    pool: Arc<Pool>,
    shape: ClusterShape,
    /// The memory nodes, if they are in this process.
    memory: Option<Arc<EmbeddedPool>>,
}

impl<T: TableSet> Cluster<T> {
    /// Starts memory nodes and compute nodes, each of these in an environment of its own; `env` is
    /// that of the benchmark, whose configuration was found to be valid. Creates the tables on the
    /// first compute node and opens the database on the others. With a progress, which is `told`,
    /// memory is populated first.
    pub(crate) async fn start_shaped(
        fabric: Arc<dyn Fabric>,
        env: &Env,
        env_of: impl Fn(usize) -> Env,
        shape: ClusterShape,
        told: Option<&Arc<dyn Progress>>,
    ) -> Result<Self, TpccError> {
        shape.check_log_room(true)?;
        let meter = Meter::wrap(fabric);
        let fabric: Arc<dyn Fabric> = Arc::clone(&meter) as Arc<dyn Fabric>;
        let memory = shape.start_pool(&fabric, told)?;
        let (nodes, needed) = (shape.setup.compute_nodes, shape.needed_bytes());
        let mut cluster = Self::empty(meter, Arc::clone(memory.pool()), env, shape);
        cluster.start_directories(&memory).await?;
        cluster.memory = Some(memory);
        for index in 0..nodes {
            let node = cluster.start_node(&fabric, &env_of(index), index).await;
            cluster.nodes.push(Arc::new(node.map_err(|error| error.or_pool_full(needed))?));
        }
        Ok(cluster)
    }

    /// Starts the directories at the memory nodes, if the protocol has such.
    async fn start_directories(&self, memory: &EmbeddedPool) -> Result<(), TpccError> {
        let setup = &self.shape.setup;
        if setup.coherence != Coherence::Rpc {
            return Ok(());
        }
        let message = setup.network.message_time();
        let ring_bytes = EngineConfig::default().ring_bytes;
        let config = DirectoryConfig { cores: DIRECTORY_CORES, message, ring_bytes };
        // A list: as a closure over references it would not be known to be `Send`.
        let mut hosts = Vec::new();
        for node in memory.memory_nodes() {
            let (endpoint, region) = (Arc::clone(node.endpoint()), Arc::clone(node.region()));
            hosts.push(DirectoryHost { endpoint, region });
        }
        Ok(start_directories(memory.pool(), hosts, |_| self.env.clone(), config).await?)
    }

    /// A cluster of no compute nodes yet.
    pub(crate) fn empty(
        meter: Arc<Meter>,
        pool: Arc<Pool>,
        env: &Env,
        shape: ClusterShape,
    ) -> Self {
        Self { nodes: Vec::new(), env: env.clone(), meter, pool, shape, memory: None }
    }

    /// Starts a compute node of a pool that no other process uses.
    async fn start_node(
        &self,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        index: usize,
    ) -> Result<Node<T>, TpccError> {
        let engine = self.start_engine(fabric, env, index).await?;
        let database = async {
            if index == 0 {
                self.create_database(&engine).await
            } else {
                self.open_database(&engine).await
            }
        };
        let database = database.await;
        self.node_or_close(engine, index, database).await
    }

    /// Starts the engine of a compute node.
    pub(crate) async fn start_engine(
        &self,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        index: usize,
    ) -> Result<Engine, TpccError> {
        let id = ComputeId::new(index).ok_or_else(|| TpccError::Config {
            key: "compute-nodes",
            value: (index + 1).to_string(),
            allowed: format!("must be 1 to {}", selkie_engine::MAX_COMPUTE_NODES),
        })?;
        let config = self.engine_config()?;
        Ok(Engine::start(&self.pool, fabric, env, id, config).await?)
    }

    /// An index that no compute node of the pool has.
    pub(crate) async fn free_index(
        &self,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
    ) -> Result<usize, TpccError> {
        let config = self.engine_config()?;
        Ok(Engine::free_index(&self.pool, fabric, env, &config).await?.index())
    }

    fn engine_config(&self) -> Result<EngineConfig, TpccError> {
        let default = EngineConfig::default();
        let overflow = self.shape.setup.overflow_mib.map(|mib| mib << 20);
        Ok(EngineConfig {
            overflow_bytes: overflow.unwrap_or(default.overflow_bytes),
            coherence: self.shape.setup.coherence,
            cache_bytes: self.shape.cache_bytes(),
            threads: u32::try_from(self.shape.setup.processors()).unwrap_or(u32::MAX),
            // No access times out before a memory node that died is noticed.
            request_timeout: (self.shape.setup.request_timeout)
                .max(2 * self.pool.all_missed_within().unwrap_or_default()),
            mail_tasks: self.shape.setup.mail_tasks,
            log: self.shape.setup.durability.log()?,
            ..default
        })
    }

    /// Creates the tables of the shape.
    pub(crate) async fn create_database(&self, engine: &Engine) -> Result<Database, TpccError> {
        Ok(Database::create(engine, self.schema()).await?)
    }

    /// Creates the tables of the shape in place of those that are there.
    pub(crate) async fn replace_database(&self, engine: &Engine) -> Result<Database, TpccError> {
        Ok(Database::replace(engine, self.schema()).await?)
    }

    /// Opens the database that another node created.
    pub(crate) async fn open_database(&self, engine: &Engine) -> Result<Database, TpccError> {
        Ok(Database::open(engine).await?.with_protocol(self.shape.setup.protocol)?)
    }

    fn schema(&self) -> DatabaseSchema {
        let nodes = self.shape.setup.compute_nodes;
        let tables = match &self.shape.tables {
            Some(tables) => tables.clone(),
            None if self.shape.divided => T::divided_schemas(nodes),
            None => T::schemas(),
        };
        DatabaseSchema::from(tables).protocol(self.shape.setup.protocol)
    }

    /// The compute node of this index with its database; if that failed, the node leaves the pool
    /// again.
    pub(crate) async fn node_or_close(
        &self,
        engine: Engine,
        index: usize,
        database: Result<Database, TpccError>,
    ) -> Result<Node<T>, TpccError> {
        let opened = database.and_then(|db| {
            let tables =
                if self.shape.divided { T::resolve_divided(&db, index) } else { T::resolve(&db) };
            Ok((tables?, db))
        });
        match opened {
            Ok((tables, db)) => Ok(Node { engine, db, tables }),
            Err(error) => {
                // Why the database did not open says more than why the node does not stop.
                let _ = engine.close().await;
                Err(error)
            }
        }
    }

    /// Refuses a load for which the pool has no room beside what is there, before any of that is
    /// changed.
    pub(crate) async fn check_room(&self, engine: &Engine) -> Result<(), TpccError> {
        let descriptor = self.pool.descriptor();
        let capacity = self.pool.extents() * descriptor.geometry().extent_bytes();
        let (used, needed) = (used_bytes(&self.pool, [engine]).await?, self.shape.load_bytes());
        if needed <= capacity.saturating_sub(used) {
            return Ok(());
        }
        Err(TpccError::NoRoomToReload { used, capacity, needed })
    }

    /// What pool and caches take.
    pub(crate) fn shape(&self) -> &ClusterShape {
        &self.shape
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The memory nodes, if they are in this process.
    #[must_use]
    pub fn memory(&self) -> Option<&Arc<EmbeddedPool>> {
        self.memory.as_ref()
    }

    /// Enters the compute nodes in a roster, until what is returned is dropped.
    #[must_use]
    pub fn enter(&self, roster: &Roster) -> Vec<Entered> {
        let enter = |node: &Arc<Node<T>>| {
            let db = node.db.clone();
            let counts: UserCounts = Arc::new(move || db.stats().into());
            roster.enter(&node.engine, Some(Arc::clone(&self.meter)), Some(counts))
        };
        self.nodes.iter().map(enter).collect()
    }

    /// The environment everything runs in.
    #[must_use]
    pub fn env(&self) -> Env {
        self.env.clone()
    }

    /// What the compute nodes have asked of the fabric so far.
    #[must_use]
    pub fn traffic(&self) -> MeterSnapshot {
        let of = |node: &Arc<Node<T>>| {
            self.meter.snapshot(PeerId::compute(compute_index(node.engine.node())))
        };
        self.nodes.iter().map(of).fold(MeterSnapshot::default(), |sum, one| sum + one)
    }

    /// Bytes of pages in use in the whole pool. One round trip a memory node.
    ///
    /// # Errors
    /// A failure of the fabric.
    pub async fn used_bytes(&self) -> Result<u64, TpccError> {
        used_bytes(&self.pool, self.nodes.iter().map(|node| &node.engine)).await
    }

    /// The error as it is; but that a node of this process is dead is the others' judgement of it,
    /// or the end of the whole pool. So may it be if memory seems to be dead: a node that stood
    /// still did not hear from it either. The pool knows in a few heartbeats.
    pub(crate) async fn or_expelled(&self, error: TpccError) -> TpccError {
        if self.pool.is_destroyed().await {
            return EngineError::PoolDestroyed.into();
        }
        let Some(peer) = error.dead_peer() else { return error };
        let index = |node: &Arc<Node<T>>| ComputeIndex::new(compute_index(node.engine.node()));
        let own: Vec<_> = self.nodes.iter().map(index).collect();
        let is_own = own.iter().any(|node| node.get() == peer.index());
        if !peer.is_memory() && !is_own {
            return error;
        }
        let started = self.env.now();
        let timing = self.pool.state().timing;
        while self.env.now() - started < timing.heartbeat * BEATS_TO_KNOW {
            // A pool that is destroyed has its nodes fenced first.
            if self.pool.is_gone() {
                return EngineError::PoolDestroyed.into();
            }
            if own.iter().any(|node| !self.pool.is_member(*node)) {
                return self.expelled().into();
            }
            self.env.sleep(LOOK_EVERY).await;
        }
        if peer.is_memory() { error } else { self.expelled().into() }
    }

    fn expelled(&self) -> EngineError {
        let (silent_for, lease) = self.pool.lateness(self.env.now());
        EngineError::Expelled { silent_for, lease }
    }

    /// Stops the compute nodes of a pool that ends with its run, in whose logs nothing is kept
    /// either: pages that went home now would be thrown away in a moment. In real time the nodes
    /// are returned as they are, to be dropped when the threads have ended: before, each would
    /// recover from the others. In virtual time they are closed, as tasks end with their nodes.
    ///
    /// # Errors
    /// As [`Cluster::close`].
    pub(crate) async fn leave(
        self,
        progress: &Arc<dyn Progress>,
    ) -> Result<Option<Self>, TpccError> {
        let is_kept = matches!(self.shape.setup.durability, Durability::Disk { .. });
        if !is_kept && self.shape.setup.network.threads().is_some() {
            return Ok(Some(self));
        }
        if is_kept {
            progress.note("writes changed pages home, and closes the logs");
        }
        self.close().await.map(|()| None)
    }

    /// Stops the compute nodes: writes everything back and gives unused memory back.
    ///
    /// # Errors
    /// The first failure; all nodes are stopped all the same.
    pub async fn close(self) -> Result<(), TpccError> {
        let mut first: Result<(), EngineError> = Ok(());
        for node in &self.nodes {
            first = first.and(node.engine.close().await);
        }
        Ok(first?)
    }
}

/// The index of a compute node, as the pool and the fabric count it.
#[expect(clippy::expect_used, reason = "MAX_COMPUTE_NODES is far below 2^16")]
pub(crate) fn compute_index(node: ComputeId) -> u16 {
    u16::try_from(node.index()).expect("an index of a compute node has 16 bits")
}

/// Bytes of pages in use in a pool, as far as these engines know which are not.
async fn used_bytes(
    pool: &Pool,
    engines: impl IntoIterator<Item = &Engine>,
) -> Result<u64, TpccError> {
    let engines: Vec<_> = engines.into_iter().collect();
    let Some(engine) = engines.first() else { return Ok(0) };
    let leased = engine.leased_bytes().await?;
    let unused = engines.iter().map(|engine| {
        let (fresh, reusable, on_hold) = engine.unused_lines();
        fresh + reusable + on_hold
    });
    // What no node has for itself counts as leased until one takes it.
    let unused = unused.sum::<u64>() + engine.lines_for_all().await?.len() as u64;
    Ok(leased.saturating_sub(unused * pool.descriptor().gcl_bytes as u64))
}
