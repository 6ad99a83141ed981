//! A whole pool in one process: memory nodes, and compute nodes with the database opened on each.

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{ComputeId, Engine, EngineConfig, EngineError, Entered, Operations, Roster};
use selkie_fabric::env::Env;
use selkie_fabric::meter::{Meter, MeterSnapshot};
use selkie_fabric::{Fabric, MemFabric, PeerId};
use selkie_memnode::{ComputeIndex, Pool};
use selkie_txn::{Database, DatabaseSchema, TableSchema, TxnError};

use crate::config::Config;
use crate::error::TpccError;
use crate::schema::Tables;
use crate::setup::Shape;
use crate::shared::{Driver, Role};

/// How long an access may wait for a page before it is an error: far above any stall of a machine
/// that does something else meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Heartbeats after which a process knows whether the others have declared it dead; a lease has at
/// least as many.
const BEATS_TO_KNOW: u32 = 4;
/// How often it looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The tables of a driver's database.
pub trait TableSet: Copy + Send + Sync + 'static {
    /// What to create them from.
    fn schemas() -> Vec<TableSchema>;

    /// Looks every table up by its name. No round trip.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the database is not one created with [`TableSet::schemas`].
    fn resolve(db: &Database) -> Result<Self, TxnError>;

    /// The tables of a database in which each of so many compute nodes has tables of its own; only
    /// of drivers that know such.
    #[must_use]
    fn divided_schemas(_nodes: usize) -> Vec<TableSchema> {
        Self::schemas()
    }

    /// Looks the tables of a compute node up. No round trip.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the database is not one created with [`TableSet::divided_schemas`].
    fn resolve_divided(db: &Database, _node: usize) -> Result<Self, TxnError> {
        Self::resolve(db)
    }
}

/// A compute node.
pub struct Node<T = Tables> {
    /// Its engine.
    pub engine: Engine,
    /// The database, as opened there.
    pub db: Database,
    /// Its tables.
    pub tables: T,
}

/// Who makes the tables of the database that a node opens.
#[derive(Clone, Copy)]
enum TablesBy<'a> {
    Others,
    /// The node, in a pool of its process alone.
    Itself,
    Loader(&'a Driver),
    /// In place of those that are there.
    Reloader(&'a Driver),
}

impl TablesBy<'_> {
    /// The database, by that protocol.
    async fn database<T: TableSet>(
        self,
        engine: &Engine,
        shape: &Shape,
    ) -> Result<Database, TpccError> {
        let protocol = shape.setup.protocol;
        if let Self::Loader(driver) | Self::Reloader(driver) = self {
            driver.still_loads().await?;
        }
        let schema = || {
            let nodes = shape.setup.compute_nodes;
            let tables = if shape.divided { T::divided_schemas(nodes) } else { T::schemas() };
            DatabaseSchema::from(tables).protocol(protocol)
        };
        Ok(match self {
            Self::Others => Database::open(engine).await?.with_protocol(protocol)?,
            Self::Itself | Self::Loader(_) => Database::create(engine, schema()).await?,
            Self::Reloader(_) => Database::replace(engine, schema()).await?,
        })
    }
}

/// The pool and the compute nodes of this process.
pub struct Cluster<T = Tables> {
    /// The compute nodes; never empty.
    pub nodes: Vec<Arc<Node<T>>>,
    env: Env,
    meter: Arc<Meter>,
    pool: Arc<Pool>,
    shape: Shape,
}

impl Cluster {
    /// Starts the memory nodes, then the compute nodes, all in this process; creates the tables on
    /// the first and opens the database on the others.
    ///
    /// # Errors
    /// What the configuration is refused for, and what pool, engines and database report.
    pub async fn start(env: &Env, config: &Config) -> Result<Self, TpccError> {
        Self::start_on(MemFabric::new(), env, |_| env.clone(), config).await
    }

    /// As [`Cluster::start`], on any fabric, with each compute node in an environment of its own;
    /// `env` is that of the driver.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_on(
        fabric: Arc<dyn Fabric>,
        env: &Env,
        env_of: impl Fn(usize) -> Env,
        config: &Config,
    ) -> Result<Self, TpccError> {
        config.validate()?;
        Self::start_shaped(fabric, env, env_of, config.shape()).await
    }

    /// Starts compute nodes of this process in a pool that others use too, each under an index that
    /// no node of the pool has; by its role the first of them makes the tables, or all open the
    /// database that is there.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn join(
        fabric: Arc<dyn Fabric>,
        pool: Arc<Pool>,
        env: &Env,
        config: &Config,
        (driver, role): (&Driver, Role),
    ) -> Result<Self, TpccError> {
        let meter = Meter::wrap(fabric);
        let fabric: Arc<dyn Fabric> = Arc::clone(&meter) as Arc<dyn Fabric>;
        let mut cluster = Self::empty(meter, pool, env, config.shape());
        for number in 0..config.compute_nodes {
            let index = cluster.pool.next_index().await?.as_usize();
            let tables = match role {
                Role::Loads if number == 0 => TablesBy::Loader(driver),
                Role::Reloads if number == 0 => TablesBy::Reloader(driver),
                _ => TablesBy::Others,
            };
            let node = cluster.start_node(&fabric, env, index, tables).await;
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
    }
}

impl<T: TableSet> Cluster<T> {
    /// As [`Cluster::start_on`], for any driver, whose configuration was found to be valid.
    pub(crate) async fn start_shaped(
        fabric: Arc<dyn Fabric>,
        env: &Env,
        env_of: impl Fn(usize) -> Env,
        shape: Shape,
    ) -> Result<Self, TpccError> {
        let meter = Meter::wrap(fabric);
        let fabric: Arc<dyn Fabric> = Arc::clone(&meter) as Arc<dyn Fabric>;
        let pool = Pool::start(&fabric, shape.pool())?;
        let (nodes, needed) = (shape.setup.compute_nodes, shape.needed_bytes());
        let mut cluster = Self::empty(meter, pool, env, shape);
        for index in 0..nodes {
            let tables = if index == 0 { TablesBy::Itself } else { TablesBy::Others };
            let node = cluster.start_node(&fabric, &env_of(index), index, tables).await;
            cluster.nodes.push(Arc::new(node.map_err(|error| error.or_pool_full(needed))?));
        }
        Ok(cluster)
    }

    fn empty(meter: Arc<Meter>, pool: Arc<Pool>, env: &Env, shape: Shape) -> Self {
        Self { nodes: Vec::new(), env: env.clone(), meter, pool, shape }
    }

    async fn start_node(
        &self,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        index: usize,
        by: TablesBy<'_>,
    ) -> Result<Node<T>, TpccError> {
        let id = ComputeId::new(index).ok_or_else(|| TpccError::Config {
            key: "compute-nodes",
            value: (index + 1).to_string(),
            allowed: format!("must be 1 to {}", selkie_engine::MAX_COMPUTE_NODES),
        })?;
        let config = EngineConfig {
            coherence: self.shape.setup.coherence,
            cache_bytes: self.shape.cache_bytes(),
            threads: u32::try_from(self.shape.setup.processors()).unwrap_or(u32::MAX),
            // Not over while a memory node that died is not missed yet.
            request_timeout: REQUEST_TIMEOUT
                .max(2 * self.pool.all_missed_within().unwrap_or_default()),
            mail_tasks: self.shape.setup.mail_tasks,
            log: self.shape.setup.durability.log()?,
            ..EngineConfig::default()
        };
        let engine = Engine::start(&self.pool, fabric, env, id, config).await?;
        let opened = async {
            if matches!(by, TablesBy::Reloader(_)) {
                self.check_room(&engine).await?;
            }
            let db = by.database::<T>(&engine, &self.shape).await?;
            let tables =
                if self.shape.divided { T::resolve_divided(&db, index) } else { T::resolve(&db) };
            Ok((tables?, db))
        };
        let opened = opened.await;
        match opened {
            Ok((tables, db)) => Ok(Node { engine, db, tables }),
            Err(error) => {
                // As above: the node leaves again, the pool is as it was.
                let _ = engine.close().await;
                Err(error)
            }
        }
    }

    /// Refuses a load for which the pool has no room beside what is there, before any of that is
    /// changed.
    async fn check_room(&self, engine: &Engine) -> Result<(), TpccError> {
        let descriptor = self.pool.descriptor();
        let capacity = self.pool.extents() * descriptor.geometry().extent_bytes();
        let (used, needed) = (used_bytes(&self.pool, [engine]).await?, self.shape.load_bytes());
        if needed <= capacity.saturating_sub(used) {
            return Ok(());
        }
        Err(TpccError::PoolFull { used, capacity, needed: used.saturating_add(needed) })
    }

    /// What pool and caches take.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Enters the compute nodes in a roster, until what is returned is dropped.
    #[must_use]
    pub fn enter(&self, roster: &Roster) -> Vec<Entered> {
        let enter = |node: &Arc<Node<T>>| {
            let db = node.db.clone();
            let commits: Operations = Arc::new(move || db.stats().commits);
            roster.enter(&node.engine, Some(Arc::clone(&self.meter)), Some(commits))
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
            let index = u16::try_from(node.engine.node().index()).unwrap_or(u16::MAX);
            self.meter.snapshot(PeerId::compute(index))
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

    /// The error as it is; but that a node of this process is dead is the others' judgement of it.
    /// So may it be if memory seems to be dead: who stood still did not hear from it either. The
    /// pool knows in a few heartbeats.
    pub(crate) async fn or_expelled(&self, error: TpccError) -> TpccError {
        let Some(peer) = error.dead_peer() else { return error };
        let index = |node: &Arc<Node<T>>| {
            ComputeIndex::new(u16::try_from(node.engine.node().index()).unwrap_or(u16::MAX))
        };
        let own: Vec<_> = self.nodes.iter().map(index).collect();
        if !peer.is_memory() {
            let is_own = own.iter().any(|node| node.get() == peer.index());
            return if is_own { EngineError::Expelled.into() } else { error };
        }
        let started = self.env.now();
        let timing = self.pool.state().timing;
        while self.env.now() - started < timing.heartbeat * BEATS_TO_KNOW {
            if own.iter().any(|node| !self.pool.is_member(*node)) {
                return EngineError::Expelled.into();
            }
            self.env.sleep(LOOK_EVERY).await;
        }
        error
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
    // What nodes that left have handed back counts as leased until another takes it.
    let unused = unused.sum::<u64>() + pool.state().donated.len() as u64;
    Ok(leased.saturating_sub(unused * pool.descriptor().gcl_bytes as u64))
}
