//! A coded pool with its compute nodes on a simulated network, for what runs of the micro-benchmark
//! do not tell.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use selkie::engine::{ComputeId, Engine, EngineConfig, EngineError, GAddr};
use selkie::fabric::env::{Env, TaskHandle};
use selkie::fabric::sim::{CostModel, Faults, World, WorldConfig};
use selkie::fabric::{Fabric, PeerId};
use selkie::memnode::{Coding, Pool, PoolConfig};

use super::measure::Failure;

/// Virtual time in which even the slowest run is over.
pub(super) const BOUND: Duration = Duration::from_secs(600);
/// Memory nodes of all these pools: as many as the largest coding has splits.
pub(super) const MEMORY_NODES: usize = 12;
/// Bytes of a page, as in Hydra.
pub(super) const GCL_BYTES: usize = 4096;
const MIB: u64 = 1 << 20;
/// What the network costs.
pub(super) const NETWORK: CostModel = CostModel::MODERN;

/// How large a cluster is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) compute_nodes: usize,
    /// Pages in all.
    pub(super) pages: usize,
    /// Bytes of a range: what lies on one set of memory nodes.
    pub(super) range_bytes: u64,
    /// Cache of each compute node, bytes.
    pub(super) cache_bytes: u64,
}

/// A pool and its compute nodes, in a world of their own.
pub(super) struct Cluster {
    pub(super) world: World,
    pub(super) pool: Arc<Pool>,
    pub(super) engines: Vec<Engine>,
    pub(super) pages: Vec<GAddr>,
}

impl Cluster {
    /// Starts it, and allocates its pages, which are all home then.
    pub(super) fn start(
        shape: Shape,
        coding: Coding,
        faults: Faults,
        seed: u64,
    ) -> Result<Self, Failure> {
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
        let pool = Pool::start(&fabric, config)?;
        let mut engines = Vec::new();
        for index in 0..shape.compute_nodes {
            let id = ComputeId::new(index).ok_or("more compute nodes than there can be")?;
            let env = world.env_of(PeerId::compute(index as u16));
            let config = EngineConfig { cache_bytes: shape.cache_bytes, ..EngineConfig::default() };
            let start = Engine::start(&pool, &fabric, &env, id, config);
            engines.push(world.run(BOUND, start)??);
        }
        let pages = world.run(BOUND, allocate(&engines, shape.pages))??;
        Ok(Self { world, pool, engines, pages })
    }

    /// The environment of a compute node.
    pub(super) fn env_of(&self, engine: &Engine) -> Env {
        self.world.env_of(PeerId::compute(engine.node().index() as u16))
    }
}

/// Tasks side by side.
pub(super) struct Workers<T> {
    handles: Vec<TaskHandle>,
    outcomes: Outcomes<T>,
}

type Outcomes<T> = Arc<Mutex<Vec<(usize, Result<T, EngineError>)>>>;

impl<T: Send + 'static> Workers<T> {
    /// Starts tasks, each in its environment.
    pub(super) fn start<F>(tasks: impl IntoIterator<Item = (Env, F)>) -> Self
    where
        F: Future<Output = Result<T, EngineError>> + Send + 'static,
    {
        let outcomes: Outcomes<T> = Arc::default();
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
    pub(super) async fn join(self) -> Result<Vec<T>, Failure> {
        for handle in self.handles {
            handle.join().await?;
        }
        let mut outcomes = self.outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut outcomes = std::mem::take(&mut *outcomes);
        outcomes.sort_by_key(|(number, _)| *number);
        Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Result<_, _>>()?)
    }
}

/// Room for twice the pages, that something can be made again elsewhere, and for what each compute
/// node has leased.
fn bytes_per_node(shape: Shape, coding: Coding) -> u64 {
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

/// A quantile of durations, microseconds; they are sorted for it.
pub(super) fn micros(durations: &mut [Duration], quantile: f64) -> f64 {
    durations.sort_unstable();
    let last = durations.len().saturating_sub(1);
    let at = (last as f64 * quantile).round() as usize;
    durations.get(at).map_or(0.0, |duration| duration.as_secs_f64() * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_what_was_measured() {
        let mut all: Vec<_> = (1..=101).rev().map(Duration::from_micros).collect();
        let of = [0.0, 0.5, 0.99, 1.0].map(|quantile| micros(&mut all, quantile));
        assert_eq!(of, [1.0, 51.0, 100.0, 101.0]);
        assert_eq!(micros(&mut [], 0.5), 0.0);
    }
}
