//! A pool that is open, with one compute node of this process in it.

use std::sync::Arc;
use std::time::Duration;

use super::block_on::block_on;
use super::database::Database;
use super::error::OpenError;
use super::options::PoolOptions;
use super::runtime::Runtime;
use crate::engine::{ComputeId, Engine, EngineConfig, EngineError, Entered, Roster};
use crate::fabric::tcp::Security;
use crate::fabric::{Env, Fabric, MemFabric};
use crate::memnode::EmbeddedPool;
use crate::pool;
use crate::report;
use crate::shared::{PoolUrl, SharedPool};
use crate::txn::{self, CatalogueError, DatabaseSchema, TxnError};

/// Bound of a wait for a page, an answer or a frame, if the pool asks for no longer one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A pool with one compute node of this process in it. A cheap handle: clones share everything.
///
/// ```
/// # selkie::block_on(async {
/// let pool = selkie::Pool::open("embedded:").await?;
/// let mut page = pool.engine().allocate().await?;
/// let addr = page.addr();
/// page.bytes_mut(0..5).copy_from_slice(b"hello");
/// drop(page);
/// assert_eq!(&pool.engine().shared(addr).await?.bytes()[..5], b"hello");
/// pool.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pool(Arc<Node>);

/// A compute node. It ends before the process's part of the pool does.
struct Node {
    engine: Engine,
    _entered: Entered,
    process: Arc<Process>,
}

/// What the compute nodes of this process share.
struct Process {
    url: PoolUrl,
    fabric: Arc<dyn Fabric>,
    pool: Arc<pool::Pool>,
    roster: Roster,
    runtime: Runtime,
    /// The memory nodes of an embedded pool, which outlive all that uses them.
    _memory: Option<Arc<EmbeddedPool>>,
}

impl Pool {
    /// Opens a pool as one more compute node of it, with the default options. `embedded:` makes a
    /// new pool each time; see [`Pool::join`] for a second node in it.
    ///
    /// # Errors
    /// [`OpenError::Url`] naming the part of the URL that is wrong; else why the pool cannot be
    /// used.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        PoolOptions::new().open(url).await
    }

    pub(super) async fn open_with(url: &str, options: &PoolOptions) -> Result<Self, OpenError> {
        let parsed: PoolUrl =
            url.parse().map_err(|source| OpenError::Url { url: url.to_owned(), source })?;
        options.check(&parsed)?;
        let runtime = Runtime::start(options.worker_threads()).map_err(OpenError::Threads)?;
        let (fabric, pool, memory) = match &parsed {
            PoolUrl::Embedded => {
                let fabric: Arc<dyn Fabric> = MemFabric::new();
                let memory = EmbeddedPool::start(&fabric, options.embedded_config())?;
                (fabric, Arc::clone(memory.pool()), Some(memory))
            }
            PoolUrl::Shared(place) => {
                let security = options.tls.as_deref().map(Security::load).transpose()?;
                let shared = SharedPool::at(place, security)?;
                let (fabric, pool) = shared.open(runtime.env(), &options.network).await?;
                (fabric, pool, None)
            }
        };
        let roster = Roster::default();
        report::publish(&pool, runtime.env(), &roster);
        let process = Process { url: parsed, fabric, pool, roster, runtime, _memory: memory };
        Self::start(Arc::new(process), options).await
    }

    /// Starts another compute node of this process in the same pool, with a cache of its own. The
    /// nodes share threads and connections; each is closed by itself.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub async fn join(&self, options: &PoolOptions) -> Result<Self, OpenError> {
        Self::start(Arc::clone(&self.0.process), options).await
    }

    async fn start(process: Arc<Process>, options: &PoolOptions) -> Result<Self, OpenError> {
        let Process { fabric, pool, roster, runtime, url, .. } = &*process;
        let index = match options.node {
            Some(index) => index,
            None => pool.next_index().await?.as_usize(),
        };
        let node = ComputeId::new(index).ok_or_else(|| OpenError::Option {
            option: "node",
            url: url.to_string(),
            allowed: format!("must be 0 to {}", pool.descriptor().max_compute_nodes - 1),
        })?;
        let missed = pool.all_missed_within().unwrap_or_default();
        let default = EngineConfig::default();
        let config = EngineConfig {
            cache_bytes: options.cache_bytes.unwrap_or(default.cache_bytes),
            request_timeout: REQUEST_TIMEOUT.max(2 * missed),
            reads_only: options.reads_only,
            threads: u32::try_from(options.worker_threads()).unwrap_or(u32::MAX),
            log: options.log()?,
            ..default
        };
        let engine = Engine::start(pool, fabric, runtime.env(), node, config).await?;
        let entered = roster.enter(&engine, None, None);
        Ok(Self(Arc::new(Node { engine, _entered: entered, process })))
    }

    /// Opens the database of the pool.
    ///
    /// # Errors
    /// [`CatalogueError::Missing`] if the pool has none, and what the engine reports.
    pub async fn open_database(&self) -> Result<Database, TxnError> {
        Ok(Database::new(self.clone(), txn::Database::open(self.engine()).await?))
    }

    /// Creates a database with these tables in the pool, for all nodes.
    ///
    /// # Errors
    /// [`CatalogueError::Exists`] if the pool has one, [`TxnError::Schema`] if a table cannot work,
    /// and what the engine reports.
    pub async fn create_database(
        &self,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Database, TxnError> {
        Ok(Database::new(self.clone(), txn::Database::create(self.engine(), schema).await?))
    }

    /// Opens the database of the pool, whatever its tables are, or creates it with these tables if
    /// the pool has none.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if a table cannot work, and what the engine reports.
    pub async fn open_or_create_database(
        &self,
        schema: impl Into<DatabaseSchema>,
    ) -> Result<Database, TxnError> {
        match self.open_database().await {
            Err(TxnError::Catalogue(CatalogueError::Missing)) => {}
            opened => return opened,
        }
        match self.create_database(schema).await {
            // Another node was faster.
            Err(TxnError::Catalogue(CatalogueError::Exists)) => self.open_database().await,
            created => created,
        }
    }

    /// Writes the node's pages home and leaves the pool. What the node is asked for afterwards is
    /// refused. A second call does nothing, or tries again what failed.
    ///
    /// # Errors
    /// What could not be written or given up: see [`Engine::close`].
    pub async fn close(&self) -> Result<(), EngineError> {
        self.0.engine.close().await
    }

    /// Runs a future on the calling thread: see [`block_on`].
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        block_on(future)
    }

    /// The pool's URL.
    #[must_use]
    pub fn url(&self) -> &PoolUrl {
        &self.0.process.url
    }

    /// Clock, randomness and tasks of the node. Use it no longer than a handle of the pool.
    #[must_use]
    pub fn env(&self) -> &Env {
        self.0.process.runtime.env()
    }

    /// The fabric that reaches the memory nodes.
    #[must_use]
    pub fn fabric(&self) -> &Arc<dyn Fabric> {
        &self.0.process.fabric
    }

    /// The pool below: its memory nodes, its state, its labels.
    #[must_use]
    pub fn pool(&self) -> &Arc<pool::Pool> {
        &self.0.process.pool
    }

    /// The compute node's engine: pages. Use it no longer than a handle of the pool.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("url", &self.url().to_string())
            .field("node", &self.engine().node().index())
            .finish()
    }
}
