//! A pool within one process, with its memory nodes in the process: for tests, simulations,
//! benchmarks and single-process use.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use parking_lot::RwLock;
use selkie_fabric::Fabric;
use selkie_fabric::env::Env;
use selkie_pool::control::{
    ControlPlane, Identity, LocalPlane, MemoryMember, PoolState, RangePlace, Timing, Versioned,
};
use selkie_pool::{FailureDomain, Pool, PoolConfig, PoolError, PoolUsage, Reclaim, Residency};

use crate::capacity::PopulationWatcher;
use crate::monitor::{MonitorConfig, ResourceMonitor};
use crate::node::MemoryNode;

/// Name of a pool within one process.
const EMBEDDED: &str = "embedded";

/// A pool within one process, with the memory nodes that run there.
///
/// The memory lives only as long as this: a caller that starts compute nodes on
/// [`EmbeddedPool::pool`] keeps it until they have stopped.
///
/// ```
/// use selkie_fabric::{Fabric, mem::MemFabric};
/// use selkie_memnode::EmbeddedPool;
/// use selkie_pool::{Coding, PoolConfig};
/// use std::sync::Arc;
///
/// let fabric: Arc<dyn Fabric> = MemFabric::new();
/// let config = PoolConfig {
///     memory_nodes: 3,
///     bytes_per_node: 16 << 20,
///     gcl_bytes: 2048,
///     range_bytes: 1 << 20,
///     max_compute_nodes: 2,
///     coding: Coding::PLAIN,
///     log_bytes: 0,
/// };
/// let embedded = EmbeddedPool::start(&fabric, config)?;
/// assert_eq!(embedded.pool().descriptor().memory_nodes.len(), 3);
/// assert_eq!(embedded.used_extents().bytes_leased, 0);
/// # Ok::<(), selkie_pool::PoolError>(())
/// ```
pub struct EmbeddedPool {
    pool: Arc<Pool>,
    /// By index, as far as there are no gaps.
    nodes: RwLock<Vec<Arc<MemoryNode>>>,
}

impl EmbeddedPool {
    /// Validates the configuration and starts the memory nodes on `fabric`, all in this process and
    /// for it alone. Their memory is taken when it is touched. Blocks only for memory registration;
    /// no round trips.
    ///
    /// # Errors
    /// [`PoolError::Config`] for a bad field, [`PoolError::TooManyRanges`],
    /// [`PoolError::MemoryNode`] if the fabric refuses a node.
    pub fn start(fabric: &Arc<dyn Fabric>, config: PoolConfig) -> Result<Arc<Self>, PoolError> {
        // Its logs outlive it.
        Self::start_as(fabric, config, RandomState::new().build_hasher().finish())
    }

    /// As [`EmbeddedPool::start`], but all memory is populated before this returns, one node after
    /// the other, so that no access pays for it. Blocks about half a second for each GiB.
    ///
    /// # Errors
    /// As [`EmbeddedPool::start`], [`PoolError::HostMemory`] if less is free on the host, and
    /// [`PoolError::MemoryNode`] if `watcher` breaks it off.
    pub fn start_populated(
        fabric: &Arc<dyn Fabric>,
        config: PoolConfig,
        watcher: &PopulationWatcher,
    ) -> Result<Arc<Self>, PoolError> {
        Self::start_nodes(fabric, config, RandomState::new().build_hasher().finish(), Some(watcher))
    }

    /// As [`EmbeddedPool::start`], with a name that tells the pool's logs from those of others.
    ///
    /// # Errors
    /// As [`EmbeddedPool::start`].
    pub fn start_as(
        fabric: &Arc<dyn Fabric>,
        config: PoolConfig,
        id: u64,
    ) -> Result<Arc<Self>, PoolError> {
        Self::start_nodes(fabric, config, id, None)
    }

    fn start_nodes(
        fabric: &Arc<dyn Fabric>,
        config: PoolConfig,
        id: u64,
        watcher: Option<&PopulationWatcher>,
    ) -> Result<Arc<Self>, PoolError> {
        let plan = config.plan()?;
        let nodes = (0..config.memory_nodes)
            .map(|node| MemoryNode::start(fabric, node, &plan, watcher).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let identity = Identity { name: EMBEDDED, id, fabric: "" };
        let mut state = PoolState::new(identity, Timing::default(), &config);
        let member = |node: &Arc<MemoryNode>| {
            let (descriptor, domain) = (node.descriptor().clone(), FailureDomain::ALONE);
            let (stay, reclaim) = (Residency::Stays, Reclaim::default());
            Some(MemoryMember { host: 0, descriptor, dead: false, domain, stay, reclaim })
        };
        state.memory_nodes = nodes.iter().map(member).collect();
        state.check_ranges()?;
        let plane: Arc<dyn ControlPlane> = Arc::new(LocalPlane::of(state.clone()));
        let first = Versioned { version: 1, state: Arc::new(state) };
        let pool = Arc::new(Pool::with_view(0, Arc::clone(fabric), plane, first)?);
        Ok(Arc::new(Self { pool, nodes: RwLock::new(nodes) }))
    }

    /// The pool, as compute nodes use it.
    #[must_use]
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The memory nodes, by index.
    #[must_use]
    pub fn memory_nodes(&self) -> Vec<Arc<MemoryNode>> {
        self.nodes.read().clone()
    }

    /// Gives a coded pool one more memory node, to which slabs are moved from then on; its index.
    /// Returns once all know of it. [`EmbeddedPool::start_monitor`] has it keep a headroom.
    ///
    /// # Errors
    /// As [`crate::MemoryServer::join`], which is for pools that processes share.
    pub async fn grow(
        &self,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        bytes: u64,
        domain: FailureDomain,
    ) -> Result<u16, PoolError> {
        let state = self.pool.state();
        let node = state.next_memory_node()?;
        let started = MemoryNode::start(fabric, node, &state.plan_of(bytes)?, None)?;
        let enter = |state: &mut PoolState| {
            let (descriptor, domain) = (started.descriptor().clone(), domain.clone());
            let (host, dead, stay) = (self.pool.host(), false, Residency::Stays);
            let reclaim = Reclaim::default();
            state.enter_memory_node(MemoryMember { host, descriptor, dead, domain, stay, reclaim })
        };
        let (version, entered) = self.pool.membership().change(enter).await?;
        let index = started.descriptor().peer.index();
        if !entered {
            let why = "another joins at the same time".to_owned();
            return Err(PoolError::MemoryNodeRefused { node, why });
        }
        {
            let mut nodes = self.nodes.write();
            nodes.push(Arc::new(started));
            // Another may have joined meanwhile.
            nodes.sort_by_key(|node| node.descriptor().peer);
        }
        self.pool.membership().until_noticed(env, version).await?;
        Ok(index)
    }

    /// Has a memory node look after memory as [`crate::MemoryServer::start_monitor`] does. Of coded
    /// pools.
    pub fn start_monitor(self: &Arc<Self>, memory_node: usize, env: &Env, config: MonitorConfig) {
        let Some(node) = self.memory_nodes().get(memory_node).cloned() else { return };
        let mut monitor = ResourceMonitor::new(config, &node);
        let (embedded, env) = (Arc::downgrade(self), env.clone());
        drop(env.clone().spawn("resource monitor", async move {
            loop {
                env.sleep(monitor.every()).await;
                let Some(embedded) = embedded.upgrade() else { return };
                if let Err(error) = monitor.look(embedded.pool.membership(), &node, &env).await {
                    tracing::debug!(%error, "the resource monitor cannot change the pool");
                }
            }
        }));
    }

    /// Reads the memory nodes' counters for a report: extents leased, and how many there are.
    #[must_use]
    pub fn used_extents(&self) -> PoolUsage {
        let (state, geometry) = (self.pool.state(), self.pool.descriptor().geometry());
        let usages: Vec<_> = self.memory_nodes().iter().map(|node| node.usage(&state)).collect();
        let leased = if state.coding.is_plain() {
            usages.iter().map(|usage| usage.extents_leased).sum()
        } else {
            state.ranges.iter().map(|range| self.leased_of(&state, range)).sum()
        };
        let slabs_used = usages.iter().map(|usage| usage.slabs_used).sum();
        let slabs = usages.iter().map(|usage| usage.slabs).sum();
        PoolUsage { slabs_used, slabs, ..PoolUsage::of(&geometry, leased, self.pool.extents()) }
    }

    /// Extents of a coded range that are leased, by the copy of its counter that has most: no copy
    /// is ahead.
    fn leased_of(&self, state: &PoolState, range: &RangePlace) -> u64 {
        let geometry = self.pool.descriptor().geometry();
        let copies = range.slabs.iter().take(state.coding.parity() + 1);
        let living = copies.filter(|slab| state.lives(slab.node));
        let counts = living.filter_map(|slab| {
            let nodes = self.nodes.read();
            let node = nodes.get(usize::from(slab.node))?;
            Some(node.region().load(geometry.leased_offset(slab.slab) as usize))
        });
        // It runs past the end as well.
        counts.max().unwrap_or(0).min(geometry.extents_per_range())
    }
}
