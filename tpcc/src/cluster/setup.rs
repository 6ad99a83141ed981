//! What the configurations of all drivers have in common: nodes, workers, sizes, and what follows
//! from them.

use std::time::Duration;

use selkie_engine::{Coherence, EngineConfig, MAX_COMPUTE_NODES, MAX_MAIL_TASKS};
use selkie_pool::{Coding, PoolError, layout};
use selkie_txn::{Protocol, TableSchema};

use super::bounds::{refused, within};
use super::durability::Durability;
use super::network::Network;
use super::page_fit::misfit_of;
use crate::error::TpccError;

/// Most worker tasks of a compute node.
pub const MAX_WORKERS: usize = 1_024;
/// Most threads.
pub const MAX_THREADS: usize = 1_024;
/// Most memory nodes.
pub const MAX_MEMORY_NODES: usize = selkie_pool::MAX_MEMORY_NODES;
/// Longest run: a day.
pub const MAX_DURATION: Duration = Duration::from_secs(86_400);
/// Longest run in virtual time, which passes more slowly than real time: an hour.
pub const MAX_VIRTUAL_DURATION: Duration = Duration::from_secs(3_600);
/// How long an access may wait for a page, unless it is set: far above any stall of a machine that
/// does something else meanwhile.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Most transactions that may be asked for.
const MAX_TRANSACTIONS: u64 = 1_000_000_000_000;
/// Largest memory or cache, in MiB: a tebibyte.
const MAX_MEMORY_MIB: u64 = 1 << 20;

pub(super) const MIB: u64 = 1 << 20;
/// Range of the pool's address space: small, so that little of a node's memory is left over, unless
/// there is so much memory that it takes larger ones.
pub(super) const RANGE_BYTES: u64 = 4 * MIB;
/// Tasks of each compute node that load or check, for each thread: while one waits for a page or
/// for its turn, others go on.
const TASKS_PER_THREAD: usize = 4;

/// Nodes, workers and sizes of a run. [`Setup::validate`] says what is allowed for each field.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// How long to run after the load and the warm-up.
    pub duration: Duration,
    /// How long to run before anything counts.
    pub warmup: Duration,
    /// Compute nodes, each with its own cache.
    pub compute_nodes: usize,
    /// Memory nodes of the pool.
    pub memory_nodes: usize,
    /// Worker tasks of each compute node.
    pub workers: usize,
    /// Tasks of each compute node that take messages in; in virtual time each has a processor of
    /// its own.
    pub mail_tasks: usize,
    /// Where the network is, and which time is measured.
    pub network: Network,
    /// Cache of each compute node, MiB; `None`: half of the loaded database.
    pub cache_mib: Option<u64>,
    /// Most memory of each compute node beside the cache, MiB, for pages that large transactions
    /// have changed; `None`: as engines have it.
    pub overflow_mib: Option<u64>,
    /// Memory lent by each memory node, bytes; `None`: what data, growth and some headroom take.
    pub memory_bytes: Option<u64>,
    /// Bytes of a global cache line.
    pub gcl_bytes: usize,
    /// How nodes agree on who may use a page.
    pub coherence: Coherence,
    /// How the pool keeps pages.
    pub coding: Coding,
    /// How transactions are kept apart.
    pub protocol: Protocol,
    /// When a commit lasts.
    pub durability: Durability,
    /// How long an access may wait before it is an error.
    pub request_timeout: Duration,
    /// Seed of data and inputs.
    pub seed: u64,
    /// How many transactions all workers together run, if that ends the run before its time.
    pub transactions: Option<u64>,
}

impl Default for Setup {
    /// Three memory nodes, two compute nodes, ten seconds; two-phase locking, under which the
    /// figures of the papers were measured.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            warmup: Duration::ZERO,
            compute_nodes: 2,
            memory_nodes: 3,
            workers: 4,
            mail_tasks: EngineConfig::default().mail_tasks,
            network: Network::default(),
            cache_mib: None,
            overflow_mib: None,
            memory_bytes: None,
            gcl_bytes: 2048,
            coherence: Coherence::default(),
            coding: Coding::PLAIN,
            protocol: Protocol::TwoPhase,
            durability: Durability::default(),
            request_timeout: REQUEST_TIMEOUT,
            seed: 1,
            transactions: None,
        }
    }
}

impl Setup {
    /// Checks every field for a driver of that title with these tables. Keys are named as the
    /// command line names them.
    ///
    /// # Errors
    /// [`TpccError::Config`] with the key, the value and what is allowed, for the first bad field.
    pub fn validate(&self, title: &str, schemas: &[TableSchema]) -> Result<(), TpccError> {
        self.validate_duration()?;
        within("compute-nodes", self.compute_nodes as u64, 1, MAX_COMPUTE_NODES as u64)?;
        within("memory-nodes", self.memory_nodes as u64, 1, MAX_MEMORY_NODES as u64)?;
        within("workers", self.workers as u64, 1, MAX_WORKERS as u64)?;
        within("mail-tasks", self.mail_tasks as u64, 1, MAX_MAIL_TASKS as u64)?;
        if let Network::Real { threads } = self.network {
            within("threads", threads as u64, 1, MAX_THREADS as u64)?;
        }
        if let Some(transactions) = self.transactions {
            within("operations", transactions, 1, MAX_TRANSACTIONS)?;
        }
        self.validate_coherence()?;
        self.validate_gcl(title, schemas)?;
        if let Err(PoolError::Config { key, value, allowed }) =
            self.coding.validate_for(self.gcl_bytes, self.memory_nodes)
        {
            return Err(refused(key, value, format!("must be {allowed}")));
        }
        self.durability.validate(&self.network)?;
        within("request-timeout", self.request_timeout.as_secs(), 1, MAX_DURATION.as_secs())?;
        if let Some(cache) = self.cache_mib {
            let least = EngineConfig::min_cache_bytes(self.gcl_bytes).div_ceil(MIB);
            within("cache-mb", cache, least, MAX_MEMORY_MIB)?;
        }
        if let Some(overflow) = self.overflow_mib {
            within("overflow-mb", overflow, 0, MAX_MEMORY_MIB)?;
        }
        if let Some(memory) = self.memory_bytes {
            within("memory-mb", memory.div_ceil(MIB), self.least_memory_mib(), MAX_MEMORY_MIB)?;
        }
        Ok(())
    }

    /// What the directories of the baseline cannot do.
    fn validate_coherence(&self) -> Result<(), TpccError> {
        if self.coherence != Coherence::Rpc {
            return Ok(());
        }
        let allowed = if !self.coding.is_plain() {
            format!("must be selcc or sel with --coding {}", self.coding)
        } else if self.durability != Durability::None {
            format!("must be selcc or sel with --durability {}", self.durability.name())
        } else {
            return Ok(());
        };
        Err(refused("coherence", "rpc", allowed))
    }

    fn validate_duration(&self) -> Result<(), TpccError> {
        let (longest, unit) = match self.network {
            Network::Real { .. } => (MAX_DURATION, "seconds"),
            Network::Simulated(_) => (MAX_VIRTUAL_DURATION, "seconds of virtual time"),
        };
        if self.duration.is_zero() || self.duration > longest {
            let allowed = format!("must be above 0 and at most {} {unit}", longest.as_secs());
            return Err(refused("duration", self.duration.as_secs_f64(), allowed));
        }
        if self.warmup > longest {
            let allowed = format!("must be at most {} {unit}", longest.as_secs());
            return Err(refused("warmup", self.warmup.as_secs_f64(), allowed));
        }
        Ok(())
    }

    fn validate_gcl(&self, title: &str, schemas: &[TableSchema]) -> Result<(), TpccError> {
        let (first, last) = (layout::MIN_GCL_BYTES, layout::MAX_GCL_BYTES);
        let sizes = std::iter::successors(Some(first), |bytes| Some(2 * bytes));
        let mut sizes = sizes.take_while(|&bytes| bytes <= last);
        let least = sizes.find(|&bytes| misfit_of(schemas, bytes).is_none()).unwrap_or(last);
        if !self.gcl_bytes.is_power_of_two() || !(first..=last).contains(&self.gcl_bytes) {
            let allowed = format!("must be a power of two in {least} to {last}");
            return Err(refused("gcl", self.gcl_bytes, allowed));
        }
        let Some(misfit) = misfit_of(schemas, self.gcl_bytes) else { return Ok(()) };
        let allowed = format!(
            "must be at least {least} for {title}: an entry of table {} takes up to {} bytes, a page of this \
             size allows {}",
            misfit.table, misfit.bytes, misfit.allowed,
        );
        Err(refused("gcl", self.gcl_bytes, allowed))
    }

    /// Threads, or in virtual time what there is in their place: every worker has a processor of
    /// its own.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.network.threads().unwrap_or(self.workers)
    }

    /// Tasks of each compute node that load or check.
    pub(crate) fn tasks_per_node(&self) -> usize {
        (TASKS_PER_THREAD * self.processors()).div_ceil(self.compute_nodes.max(1))
    }

    pub(super) fn geometry(&self) -> layout::SlabGeometry {
        layout::SlabGeometry::coded(self.gcl_bytes, RANGE_BYTES, self.coding)
            .with_logs(self.durability.log_bytes(), self.compute_nodes)
    }

    /// A memory node with less has no room for a single range.
    fn least_memory_mib(&self) -> u64 {
        self.geometry().region_bytes(1).unwrap_or(u64::MAX).div_ceil(MIB)
    }
}
