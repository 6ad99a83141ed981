//! Options of a compute node that a program opens in a pool.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use super::data_directory::DataDirectory;
use super::error::OpenError;
use crate::engine::log::{LogTo, open_store};
use crate::fabric::Role;
use crate::pool::{Coding, PoolConfig};
use crate::shared::{Network, PoolUrl};

const MIB: u64 = 1 << 20;
/// Memory for pages of an embedded pool.
const EMBEDDED_BYTES: u64 = 256 * MIB;
/// The same of one that is kept in a directory, at least.
const KEPT_BYTES: u64 = 1024 * MIB;
/// Compute nodes that an embedded pool has room for.
pub(super) const EMBEDDED_NODES: usize = 8;
/// Bytes of a page of an embedded pool.
const EMBEDDED_GCL_BYTES: usize = 2048;
/// Bytes of a range of an embedded pool.
const EMBEDDED_RANGE_BYTES: u64 = 4 * MIB;
/// Log of each compute node in the memory of an embedded pool.
const EMBEDDED_LOG_BYTES: u64 = 16 * MIB;
/// Capacity of the log of a compute node on disk.
pub(super) const DISK_LOG_BYTES: u64 = 4096 * MIB;

/// What outlives the compute node of a committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// Pages that were written home. There is no log.
    None,
    /// All that has committed, as long as the memory of the pool lives: the log is in memory of
    /// several memory nodes. A shared pool must have been made with room for logs.
    Memory,
    /// All that has committed: the log is in this directory, or in an object store if it is a URL.
    /// All compute nodes of a pool must reach it.
    Disk(PathBuf),
}

/// How to open a pool or a database, where the defaults of [`Pool::open`](crate::Pool::open) and
/// [`Database::open`](crate::Database::open) do not fit.
///
/// ```
/// use selkie::{Durability, PoolOptions};
///
/// # selkie::block_on(async {
/// let options = PoolOptions::new().cache_bytes(16 << 20).durability(Durability::Memory);
/// let pool = options.open("embedded:").await?;
/// pool.close().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    memory_bytes: Option<u64>,
    pub(super) cache_bytes: Option<u64>,
    pub(super) overflow_bytes: Option<u64>,
    pub(super) image_bytes: Option<u64>,
    pub(super) threads: Option<usize>,
    pub(super) node: Option<usize>,
    pub(super) durability: Option<Durability>,
    pub(super) reads_only: bool,
    pub(super) network: Network,
    pub(super) tls: Option<PathBuf>,
    pub(super) token: Option<PathBuf>,
}

impl PoolOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Memory of an embedded pool in bytes: by default 256 MiB, and 1 GiB if it is kept in a
    /// directory, or twice as much as its pages take if that is more. A shared pool has what its
    /// memory nodes lend.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = Some(bytes);
        self
    }

    /// Cache of the compute node in bytes, 64 MiB by default.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Most memory beside the cache in bytes, 4 GiB by default, for pages that large transactions
    /// have changed: a transaction beyond it is refused by the operation that goes beyond.
    #[must_use]
    pub fn overflow_bytes(mut self, bytes: u64) -> Self {
        self.overflow_bytes = Some(bytes);
        self
    }

    /// Most memory in bytes, 64 MiB by default, for pages as they were before changes, which
    /// transactions at earlier snapshots read. One whose pages are gone ends in
    /// [`TxnError::SnapshotTooOld`](crate::txn::TxnError::SnapshotTooOld).
    #[must_use]
    pub fn image_bytes(mut self, bytes: u64) -> Self {
        self.image_bytes = Some(bytes);
        self
    }

    /// Worker threads, by default one for each core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Index of the compute node in the pool, by default the next one that is free.
    #[must_use]
    pub fn node(mut self, index: usize) -> Self {
        self.node = Some(index);
        self
    }

    /// What outlives the compute node. By default [`Durability::Memory`] in a shared pool, which is
    /// refused if the pool was made without room for logs; and [`Durability::None`] in an
    /// `embedded:` pool, which ends with the process in any case. All that has committed in an
    /// `embedded:DIR` pool is in that directory: there it cannot be chosen.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// Whether the node only reads: accesses that change a page are refused then.
    #[must_use]
    pub fn reads_only(mut self, reads_only: bool) -> Self {
        self.reads_only = reads_only;
        self
    }

    /// Where this process listens in a pool over TCP, on loopback by default.
    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Directory with the certificate of this node, for a pool over TCP whose nodes have some.
    #[must_use]
    pub fn tls(mut self, directory: impl Into<PathBuf>) -> Self {
        self.tls = Some(directory.into());
        self
    }

    /// File with the token of a pool over TCP whose connections are not secured, for a process on
    /// another host than the one that the pool was made on.
    #[must_use]
    pub fn token(mut self, file: impl Into<PathBuf>) -> Self {
        self.token = Some(file.into());
        self
    }

    /// Refuses a node that writes where the certificate of the process lets it read.
    pub(super) fn check_role(&self, url: &PoolUrl, role: Option<Role>) -> Result<(), OpenError> {
        if role != Some(Role::Reader) || self.reads_only {
            return Ok(());
        }
        let allowed = "must be set: the certificate in `tls` is of role reader".to_owned();
        Err(OpenError::Option { option: "reads_only", url: url.to_string(), allowed })
    }

    /// Refuses options of what the nodes of a process share.
    pub(super) fn check_join(&self, url: &PoolUrl) -> Result<(), OpenError> {
        self.check_durability(url)?;
        let given = [
            ("memory_bytes", self.memory_bytes.is_some()),
            ("threads", self.threads.is_some()),
            ("network", self.is_networked()),
            ("tls", self.tls.is_some()),
            ("token", self.token.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(OpenError::Option {
                option,
                url: url.to_string(),
                allowed: "is for the first node of a process in a pool".to_owned(),
            }),
            None => Ok(()),
        }
    }

    fn is_networked(&self) -> bool {
        let Network { listen, advertise, insecure, rdma } = &self.network;
        listen.is_some() || advertise.is_some() || *insecure || rdma.is_given()
    }

    /// Refuses options that have no meaning for the pool.
    pub(super) fn check(&self, url: &PoolUrl) -> Result<(), OpenError> {
        let refused = |option, allowed: &str| {
            Err(OpenError::Option { option, url: url.to_string(), allowed: allowed.to_owned() })
        };
        let is_embedded = url.is_embedded();
        match url {
            _ if is_embedded && self.is_networked() => refused("network", "is for pools over TCP"),
            _ if is_embedded && self.tls.is_some() => refused("tls", "is for pools over TCP"),
            _ if is_embedded && self.token.is_some() => refused("token", "is for pools over TCP"),
            PoolUrl::EmbeddedIn(_) if self.reads_only => {
                refused("reads_only", "is not for the first node, which puts the pages there")
            }
            PoolUrl::Shared(_) if self.memory_bytes.is_some() => refused(
                "memory_bytes",
                "is for `embedded:`; memory nodes lend that of a shared pool",
            ),
            _ if self.threads == Some(0) => refused("threads", "must be at least 1"),
            _ => self.check_durability(url),
        }
    }

    fn check_durability(&self, url: &PoolUrl) -> Result<(), OpenError> {
        match url {
            PoolUrl::EmbeddedIn(_) if self.durability.is_some() => Err(OpenError::Option {
                option: "durability",
                url: url.to_string(),
                allowed: "is not to be given: all that commits is in the directory".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Worker threads to start.
    pub(super) fn worker_threads(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
        self.threads.unwrap_or_else(cores)
    }

    /// The shape of an embedded pool: one memory node, as redundancy within one process is of no
    /// use. `kept` are the bytes of a page and the end of the last page that are to be put there.
    pub(super) fn embedded_config(&self, url: &PoolUrl, kept: Option<(usize, u64)>) -> PoolConfig {
        let log_bytes = match self.durability {
            Some(Durability::Memory) => EMBEDDED_LOG_BYTES,
            Some(Durability::None | Durability::Disk(_)) | None => 0,
        };
        let (gcl_bytes, end) = kept.unwrap_or((EMBEDDED_GCL_BYTES, 0));
        let default = match url {
            PoolUrl::EmbeddedIn(_) => KEPT_BYTES.max(end.saturating_mul(2)),
            PoolUrl::Embedded | PoolUrl::Shared(_) => EMBEDDED_BYTES,
        };
        let pages = self.memory_bytes.unwrap_or(default);
        PoolConfig {
            memory_nodes: 1,
            bytes_per_node: pages.saturating_add(log_bytes * EMBEDDED_NODES as u64),
            gcl_bytes,
            range_bytes: EMBEDDED_RANGE_BYTES,
            max_compute_nodes: EMBEDDED_NODES,
            coding: Coding::PLAIN,
            log_bytes,
        }
    }

    /// Where the node keeps its log in a pool with so many bytes for the log of each node, or with
    /// a directory for logs.
    ///
    /// # Errors
    /// [`OpenError::Option`] if it would be in memory and there is no room: to go on without one
    /// has to be asked for.
    pub(super) fn log(
        &self,
        url: &PoolUrl,
        log_bytes: u64,
        directory: Option<&DataDirectory>,
    ) -> Result<Option<LogTo>, OpenError> {
        if let Some(directory) = directory {
            // A node that only reads has nothing to log.
            let logs = || Ok(LogTo::Store(Arc::new(directory.logs()?)));
            return (!self.reads_only).then(logs).transpose();
        }
        let is_default = self.durability.is_none();
        Ok(match &self.durability {
            Some(Durability::None) => None,
            // A node that only reads has nothing to log.
            None if *url == PoolUrl::Embedded || self.reads_only => None,
            Some(Durability::Memory) | None if log_bytes == 0 => {
                let must = if is_default { "must be given" } else { "must be another" };
                return Err(OpenError::Option {
                    option: "durability",
                    url: url.to_string(),
                    allowed: format!("{must}: the pool was made without room for logs in memory"),
                });
            }
            Some(Durability::Memory) | None => Some(LogTo::Memory),
            Some(Durability::Disk(place)) => Some(LogTo::Store(open_store(place, DISK_LOG_BYTES)?)),
        })
    }
}
