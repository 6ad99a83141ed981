//! A coded pool with its compute nodes on a simulated network, for what runs of the micro-benchmark
//! do not tell.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use selkie::engine::{ComputeId, Engine, EngineConfig, EngineError, GAddr};
use selkie::fabric::env::{Env, TaskHandle};
use selkie::fabric::sim::{CostModel, Faults, World, WorldConfig};
use selkie::fabric::{Fabric, PeerId};
use selkie::memnode::EmbeddedPool;
use selkie::pool::{Coding, Pool, PoolConfig};

/// Why a point could not be measured.
pub(in crate::figures) type RunError = Box<dyn Error + Send + Sync>;

/// Virtual time in which even the slowest run is over.
pub(in crate::figures) const BOUND: Duration = Duration::from_secs(600);
/// Memory nodes of all these pools: as many as the largest coding has splits.
pub(in crate::figures) const MEMORY_NODES: usize = 12;
/// Bytes of a page, as in Hydra.
pub(in crate::figures) const GCL_BYTES: usize = 4096;
const MIB: u64 = 1 << 20;
/// What the network costs.
pub(in crate::figures) const NETWORK: CostModel = CostModel::MODERN;

/// How large a cluster is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::figures) struct ClusterShape {
    pub(in crate::figures) compute_nodes: usize,
    /// Pages in all.
    pub(in crate::figures) pages: usize,
    /// Bytes of a range: what lies on one set of memory nodes.
    pub(in crate::figures) range_bytes: u64,
    /// Cache of each compute node, bytes.
    pub(in crate::figures) cache_bytes: u64,
}

/// A pool and its compute nodes, in a world of their own.
pub(in crate::figures) struct Cluster {
    pub(in crate::figures) world: World,
    pub(in crate::figures) pool: Arc<Pool>,
    pub(in crate::figures) engines: Vec<Engine>,
    pub(in crate::figures) pages: Vec<GAddr>,
    /// Its memory nodes.
    _memory: Arc<EmbeddedPool>,
}

impl Cluster {
    /// Starts it, and allocates its pages, which are all home then.
    pub(in crate::figures) fn start(
        shape: ClusterShape,
        coding: Coding,
        faults: Faults,
        seed: u64,
    ) -> Result<Self, RunError> {
        let world = World::new(WorldConfig { cost: NETWORK, faults, ..WorldConfig::new(seed) });
        let fabric: Arc<dyn Fabric> = world.fabric();
        let config = PoolConfig {
            memory_nodes: MEMORY_NODES,
            bytes_per_node: bytes_per_node(shape, coding),
            gcl_bytes: GCL_BYTES,
            range_bytes: shape.range_bytes,
            max_compute_nodes: shape.compute_nodes,
            coding,
            log_bytes: 0,
        };
        let memory = EmbeddedPool::start(&fabric, config)?;
        let pool = Arc::clone(memory.pool());
        let mut engines = Vec::new();
        for index in 0..shape.compute_nodes {
            let id = ComputeId::new(index).ok_or("more compute nodes than there can be")?;
            let env = world.env_of(PeerId::compute(index as u16));
            let config = EngineConfig { cache_bytes: shape.cache_bytes, ..EngineConfig::default() };
            let start = Engine::start(&pool, &fabric, &env, id, config);
            engines.push(world.run(BOUND, start)??);
        }
        let pages = world.run(BOUND, allocate(&engines, shape.pages))??;
        Ok(Self { world, pool, engines, pages, _memory: memory })
    }

    /// The environment of a compute node.
    pub(in crate::figures) fn env_of(&self, engine: &Engine) -> Env {
        self.world.env_of(PeerId::compute(engine.node().index() as u16))
    }
}

/// Tasks side by side.
pub(in crate::figures) struct Workers<T> {
    handles: Vec<TaskHandle>,
    outcomes: TaskResults<T>,
}

type TaskResults<T> = Arc<Mutex<Vec<(usize, Result<T, EngineError>)>>>;

impl<T: Send + 'static> Workers<T> {
    /// Starts tasks, each in its environment.
    pub(in crate::figures) fn start<F>(tasks: impl IntoIterator<Item = (Env, F)>) -> Self
    where
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let outcomes: TaskResults<T> = Arc::default();
        let tasks = tasks.into_iter().enumerate();
        let handles = tasks.map(|(number, (env, task))| {
            let outcomes = Arc::clone(&outcomes);
            env.spawn("worker", async move {
                let outcome = task.await;
                let mut outcomes = outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                outcomes.push((number, outcome));
            })
        });
        Self { handles: handles.collect(), outcomes }
    }

    /// Waits for all of them; what came of them, in their order.
    pub(in crate::figures) async fn join(self) -> Result<Vec<T>, RunError> {
        for handle in self.handles {
            handle.join().await?;
        }
        let mut outcomes = self.outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut outcomes = std::mem::take(&mut *outcomes);
        outcomes.sort_by_key(|(number, _)| *number);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Result<_, _>>()?)
    }
}

/// Room for twice the pages, for regeneration on other nodes, and for what each compute
/// node has leased.
fn bytes_per_node(shape: ClusterShape, coding: Coding) -> u64 {
    let stored = (shape.pages * GCL_BYTES * coding.splits()).div_ceil(coding.data()) as u64;
    let slack = shape.range_bytes * (4 + 2 * shape.compute_nodes as u64);
    (2 * stored / MEMORY_NODES as u64 + slack).next_multiple_of(MIB)
}

async fn allocate(engines: &[Engine], count: usize) -> Result<Vec<GAddr>, EngineError> {
    let mut pages = Vec::with_capacity(count);
    for engine in engines.iter().cycle().take(count) {
        let mut page = engine.allocate().await?;
        let addr = page.addr();
        let bytes = page.len();
        page.bytes_mut(0..bytes).fill(1);
        drop(page);
        engine.evict(addr).await?;
        pages.push(addr);
    }
    Ok(pages)
}
