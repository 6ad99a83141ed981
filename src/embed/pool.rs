//! A pool that is open, with one compute node of this process in it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::block_on::block_on;
use super::data_directory::{DataDirectory, Kept};
use super::error::OpenError;
use super::options::{EMBEDDED_NODES, PoolOptions};
use super::runtime::Runtime;
use crate::engine::backup::{Backup, BackupError, BackupReport};
use crate::engine::log::{Labels, LogObjects};
use crate::engine::{
    ComputeId, Engine, EngineConfig, EngineError, Entered, EnteredUser, Roster, UserCounts,
};
use crate::fabric::tcp::Security;
use crate::fabric::{Env, Fabric, MemFabric, Role};
use crate::memnode::EmbeddedPool;
use crate::pool::{self, PoolError};
use crate::report;
use crate::shared::{Credentials, PoolUrl, SharedPool};

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
/// assert_eq!(&pool.engine().shared(addr).await?[..5], b"hello");
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
    entered: Entered,
    process: Arc<Process>,
}

/// What the compute nodes of this process share.
struct Process {
    url: PoolUrl,
    fabric: Arc<dyn Fabric>,
    pool: Arc<pool::Pool>,
    roster: Roster,
    runtime: Runtime,
    /// Worker threads of the runtime.
    threads: usize,
    /// The role in the certificate, if there is one.
    role: Option<Role>,
    /// The memory nodes of an embedded pool, which outlive all that uses them.
    _memory: Option<Arc<EmbeddedPool>>,
    /// What an embedded pool is kept in.
    directory: Option<DataDirectory>,
}

impl Process {
    /// Opens the pool, and starts no compute node yet. What was kept of it is to be put there by
    /// the first one; of a pool that has to be new there must be nothing.
    async fn open(
        url: &str,
        options: &PoolOptions,
        is_new: bool,
    ) -> Result<(Arc<Self>, Option<Kept>), OpenError> {
        let parsed: PoolUrl =
            url.parse().map_err(|source| OpenError::Url { url: url.to_owned(), source })?;
        options.check(&parsed)?;
        let runtime = Runtime::start(options.worker_threads()).map_err(OpenError::Threads)?;
        let (mut role, mut kept) = (None, None);
        let directory = match &parsed {
            PoolUrl::EmbeddedIn(place) => Some(DataDirectory::open(place, runtime.env()).await?),
            PoolUrl::Embedded | PoolUrl::Shared(_) => None,
        };
        if let Some(directory) = &directory {
            if is_new {
                directory.check_unused()?;
            }
            kept = directory.read().await?;
        }
        let (fabric, pool, memory) = match &parsed {
            PoolUrl::Embedded | PoolUrl::EmbeddedIn(_) => {
                let fabric: Arc<dyn Fabric> = MemFabric::new();
                let shape = kept.as_ref().map(|kept| (kept.line_bytes, kept.end()));
                let memory = EmbeddedPool::start(&fabric, options.embedded_config(&parsed, shape))?;
                (fabric, Arc::clone(memory.pool()), Some(memory))
            }
            PoolUrl::Shared(place) => {
                let security = options.tls.as_deref().map(Security::load).transpose()?;
                let token = Credentials::load(None, options.token.as_deref())?.token;
                let credentials = Credentials { security, token };
                role = credentials.role();
                let shared = SharedPool::at(place, credentials)?;
                let (fabric, pool) = shared.open(runtime.env(), &options.network).await?;
                (fabric, pool, None)
            }
        };
        let roster = Roster::default();
        report::publish(&pool, runtime.env(), &roster);
        let threads = options.worker_threads();
        let (url, _memory) = (parsed, memory);
        let process =
            Self { url, fabric, pool, roster, runtime, threads, role, _memory, directory };
        Ok((Arc::new(process), kept))
    }
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

    /// Starts another compute node of this process in the same pool, with a cache of its own. The
    /// nodes share threads and connections; each is closed by itself.
    ///
    /// # Errors
    /// As [`Pool::open`], and [`OpenError::Option`] for an option of what the nodes share.
    pub async fn join(&self, options: &PoolOptions) -> Result<Self, OpenError> {
        options.check_join(self.url())?;
        Self::start(Arc::clone(&self.0.process), options).await
    }

    async fn start(process: Arc<Process>, options: &PoolOptions) -> Result<Self, OpenError> {
        let Process { fabric, pool, roster, runtime, threads, role, url, directory, .. } =
            &*process;
        options.check_role(url, *role)?;
        let missed = pool.all_missed_within().unwrap_or_default();
        let default = EngineConfig::default();
        let config = EngineConfig {
            cache_bytes: options.cache_bytes.unwrap_or(default.cache_bytes),
            overflow_bytes: options.overflow_bytes.unwrap_or(default.overflow_bytes),
            image_bytes: options.image_bytes.unwrap_or(default.image_bytes),
            request_timeout: REQUEST_TIMEOUT.max(2 * missed),
            reads_only: options.reads_only,
            threads: u32::try_from(*threads).unwrap_or(u32::MAX),
            log: options.log(url, pool.descriptor().log_bytes, directory.as_ref())?,
            ..default
        };
        let node = match options.node {
            Some(index) => ComputeId::new(index).ok_or_else(|| OpenError::Option {
                option: "node",
                url: url.to_string(),
                allowed: format!("must be 0 to {}", pool.descriptor().max_compute_nodes - 1),
            })?,
            None => Engine::free_index(pool, fabric, runtime.env(), &config).await?,
        };
        let engine = Engine::start(pool, fabric, runtime.env(), node, config).await?;
        let entered = roster.enter(&engine, None, None);
        Ok(Self(Arc::new(Node { engine, entered, process })))
    }

    /// The compute nodes of this process in the pool, with their counters.
    #[must_use]
    pub fn roster(&self) -> &Roster {
        &self.0.process.roster
    }

    /// Adds one whose counters are in the reports of the node.
    pub(super) fn add_user(&self, user: UserCounts) -> EnteredUser {
        self.0.entered.add_user(user)
    }

    /// Writes what the pool holds to a directory or an object store, while its nodes go on. Nothing
    /// may be there yet.
    ///
    /// # Errors
    /// [`BackupError`]: without a manifest, what was written until then is no backup.
    pub async fn backup(&self, to: &str) -> Result<BackupReport, BackupError> {
        self.engine().backup(&LogObjects::at(to, 0)?, &|_, _| {}).await
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

impl PoolOptions {
    /// Opens a pool as one more compute node of it.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub async fn open(&self, url: &str) -> Result<Pool, OpenError> {
        let (process, kept) = Process::open(url, self, false).await?;
        if let Some(kept) = &kept {
            check_room(&process, kept)?;
            process.pool.count_on(&of_all_nodes(kept.incarnation)).await?;
        }
        let pool = Pool::start(process, self).await?;
        let put = async |pool: &Pool| match kept {
            Some(Kept { lines, labels, .. }) => {
                pool.engine().restore(&lines, selkie_txn::written_at).await?;
                pool.set_labels(&labels).await
            }
            None => Ok(()),
        };
        pool.put_there(put).await
    }

    /// Opens a pool that no compute node has used yet, and puts a backup into it that
    /// [`Pool::backup`] wrote. The pool has pages of the same size; all else of it may differ.
    ///
    /// # Errors
    /// As [`Pool::open`], and [`OpenError::Backup`]; the pool is of no use then.
    pub async fn restore(&self, url: &str, from: &str) -> Result<Pool, OpenError> {
        let mut backup = Backup::open(&LogObjects::at(from, 0)?).await?;
        backup.retain(|page| !selkie_txn::is_unlinked(page));
        let (process, _) = Process::open(url, self, true).await?;
        backup.check(process.pool.descriptor().gcl_bytes)?;
        let latest = backup.incarnations().values().max().copied().unwrap_or_default();
        match &process.directory {
            Some(_) => process.pool.count_on(&of_all_nodes(latest)).await?,
            None => process.pool.count_on(backup.incarnations()).await?,
        }
        let pool = Pool::start(process, self).await?;
        let put = async |pool: &Pool| {
            backup.restore(pool.engine(), selkie_txn::written_at).await?;
            pool.set_labels(backup.labels()).await
        };
        pool.put_there(put).await
    }
}

impl Pool {
    /// Puts into a new pool what belongs there, after which a directory that it is kept in is that
    /// of the pool. The node leaves if that fails.
    async fn put_there(
        self,
        put: impl AsyncFnOnce(&Self) -> Result<(), OpenError>,
    ) -> Result<Self, OpenError> {
        let directory = self.0.process.directory.as_ref();
        let done = async {
            put(&self).await?;
            let state = self.pool().state();
            match directory {
                Some(directory) => Ok(directory.commit(state.id, state.labels.clone()).await?),
                None => Ok(()),
            }
        };
        if let Err(error) = done.await {
            // Why it failed says more than why the node cannot leave.
            let _ = self.close().await;
            if let Some(directory) = directory {
                directory.give_up();
            }
            return Err(error);
        }
        Ok(self)
    }

    async fn set_labels(&self, labels: &Labels) -> Result<(), OpenError> {
        for (name, label) in labels {
            if !self.pool().set_label(name, None, Some(label)).await? {
                return Err(PoolError::Used.into());
            }
        }
        Ok(())
    }
}

/// As many earlier nodes of each index of an embedded pool. Logs of a directory tell of those that
/// had one since it was opened.
fn of_all_nodes(incarnation: u32) -> BTreeMap<u16, u32> {
    (0..EMBEDDED_NODES as u16).map(|node| (node, incarnation)).collect()
}

/// Refuses a pool that is smaller than the pages that are to be put there.
fn check_room(process: &Process, kept: &Kept) -> Result<(), OpenError> {
    let (end, space) = (kept.end(), process.pool.state().address_space());
    if end <= space {
        return Ok(());
    }
    let allowed = format!("must be at least {end}: the pages in the directory go as far as that");
    Err(OpenError::Option { option: "memory_bytes", url: process.url.to_string(), allowed })
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("url", &self.url().to_string())
            .field("node", &self.engine().node().index())
            .finish()
    }
}
