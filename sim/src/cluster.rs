//! A cluster in a simulated world: memory nodes, compute nodes, and what an observer sees of them.

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{
    Coherence, ComputeId, DirectoryConfig, Engine, EngineConfig, EngineError, start_directories,
};
use selkie_fabric::env::Env;
use selkie_fabric::meter::Meter;
use selkie_fabric::sim::{RunError, TraceSink, World, WorldConfig};
use selkie_fabric::{Buf, Chain, Endpoint, Fabric, PeerId, RemoteAddr, Verb};
use selkie_memnode::{Coding, Pool, PoolConfig, layout};

use crate::error::SimError;
use crate::plan::Plan;

/// The peer by which the observer looks into memory nodes; compute nodes have lower numbers.
const OBSERVER: PeerId = PeerId::compute(PeerId::MAX_INDEX);

/// Virtual time within which a whole run must be over: anything else is a hang.
pub const RUN_BOUND: Duration = Duration::from_secs(600);

/// How many nodes of which size.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Memory lent by each memory node, bytes.
    pub bytes_per_node: u64,
    /// Bytes of a page.
    pub gcl_bytes: usize,
    /// Configuration of every engine.
    pub engine: EngineConfig,
}

impl Shape {
    /// Small pages, the smallest cache, short rings: most happens in little memory.
    pub fn small(memory_nodes: usize, compute_nodes: usize) -> Self {
        let gcl_bytes = 512;
        Shape {
            memory_nodes,
            compute_nodes,
            bytes_per_node: 4 << 20,
            gcl_bytes,
            engine: EngineConfig {
                cache_bytes: EngineConfig::min_cache_bytes(gcl_bytes),
                request_timeout: Duration::from_millis(500),
                ring_bytes: 32 << 10,
                tick: Duration::from_millis(1),
                gamma: 16,
                ..EngineConfig::default()
            },
        }
    }
}

/// A running cluster.
pub struct SimCluster {
    /// The world it lives in.
    pub world: World,
    /// Its pool.
    pub pool: Arc<Pool>,
    /// Its compute nodes.
    pub engines: Vec<Engine>,
    /// Counts what the compute nodes ask of the network.
    pub meter: Arc<Meter>,
    observer: Arc<dyn Endpoint>,
}

impl SimCluster {
    /// Starts the cluster of `shape` in the world of `seed` and `plan`. The plan's troubles are not
    /// arranged yet.
    ///
    /// # Errors
    /// What pool and engines report.
    pub fn start(
        seed: u64,
        plan: &Plan,
        shape: &Shape,
        log: Option<TraceSink>,
    ) -> Result<Self, SimError> {
        let Plan { cost, faults, schedule, .. } = plan.clone();
        let world = World::new(WorldConfig { seed, cost, faults, schedule, log });
        let meter = Meter::wrap(world.fabric());
        let fabric: Arc<dyn Fabric> = Arc::clone(&meter) as Arc<dyn Fabric>;
        let pool = Pool::start(
            &fabric,
            PoolConfig {
                memory_nodes: shape.memory_nodes,
                bytes_per_node: shape.bytes_per_node,
                gcl_bytes: shape.gcl_bytes,
                range_bytes: 256 << 10,
                max_compute_nodes: shape.compute_nodes,
                coding: Coding::PLAIN,
            },
        )?;
        if shape.engine.coherence == Coherence::Rpc {
            let env_of = |index: usize| world.env_of(PeerId::memory(index as u16));
            let message = plan.cost.rpc;
            let config =
                DirectoryConfig { cores: 2.0, message, ring_bytes: shape.engine.ring_bytes };
            world.run(RUN_BOUND, start_directories(&pool, env_of, config))??;
        }
        let observer = world.fabric().join(OBSERVER)?;
        let mut cluster = Self { world, pool, engines: Vec::new(), meter, observer };
        for index in 0..shape.compute_nodes {
            let id = ComputeId::new(index).ok_or(SimError::TooManyNodes(shape.compute_nodes))?;
            let env = cluster.env_of(index);
            let start = Engine::start(&cluster.pool, &fabric, &env, id, shape.engine.clone());
            let engine = cluster.world.run(RUN_BOUND, start)??;
            cluster.engines.push(engine);
        }
        Ok(cluster)
    }

    /// The engine of compute node `index`.
    pub(crate) fn engine(&self, index: usize) -> Result<&Engine, SimError> {
        self.engines.get(index).ok_or(SimError::NoSuchNode(index))
    }

    /// The environment of compute node `index`.
    pub fn env_of(&self, index: usize) -> Env {
        self.world.env_of(PeerId::compute(index as u16))
    }

    /// Runs `main` in the world.
    ///
    /// # Errors
    /// A hang, or a panic of a task.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> Result<T, RunError> {
        self.world.run(RUN_BOUND, main)
    }

    async fn read(&self, peer: PeerId, at: RemoteAddr, bytes: usize) -> Result<Vec<u64>, SimError> {
        let queue_pair = self.observer.connect(peer)?;
        let done = queue_pair.post(Chain::from([Verb::read(at, Buf::zeroed(bytes))])).await;
        let done = done.map_err(|error| error.error)?;
        Ok(done.buf(0).map(|buf| buf.words().to_vec()).unwrap_or_default())
    }

    /// Stops the compute nodes and checks that nothing is left: every latch word free, every frame
    /// free, every leased line accounted for (`live` pages are in use).
    ///
    /// # Errors
    /// What was left, or what stopping reports.
    pub async fn close_and_check(&self, live: u64) -> Result<(), SimError> {
        self.check_lines(live).await?;
        for engine in &self.engines {
            engine.close().await?;
        }
        let descriptor = self.pool.descriptor();
        let geometry = descriptor.geometry();
        let header_words = layout::HEADER_BYTES as usize / 8;
        for (index, node) in descriptor.memory_nodes.iter().enumerate() {
            for range in 0..node.ranges {
                let at = RemoteAddr::new(node.region, geometry.latch_offset(range, 0));
                let bytes = geometry.gcls_per_range() as usize * layout::HEADER_BYTES as usize;
                let headers = self.read(node.peer, at, bytes).await?;
                let latches = headers.iter().step_by(header_words);
                if let Some((gcl, word)) = latches.enumerate().find(|(_, word)| **word != 0) {
                    return Err(SimError::Broken(format!(
                        "at rest, the latch word of page {gcl} in range {range} of memory node \
                         {index} is {word:#x}"
                    )));
                }
            }
        }
        for engine in &self.engines {
            let stats = engine.stats();
            if stats.frames != stats.frames_free {
                return Err(SimError::Broken(format!(
                    "{} keeps {} of {} frames after closing",
                    engine.node(),
                    stats.frames - stats.frames_free,
                    stats.frames
                )));
            }
        }
        Ok(())
    }

    /// Every leased line is live or waits at some engine to be allocated.
    async fn check_lines(&self, live: u64) -> Result<(), SimError> {
        let mut leased = 0;
        let geometry = self.pool.descriptor().geometry();
        for node in &self.pool.descriptor().memory_nodes {
            let at = RemoteAddr::new(node.region, layout::EXTENTS_LEASED_AT);
            let counter = self.read(node.peer, at, 8).await?.first().copied().unwrap_or(0);
            leased += counter.min(geometry.extents_per_node(node.ranges)) * layout::EXTENT_GCLS;
        }
        let unused = |engine: &Engine| {
            let (fresh, free, hold) = engine.unused_lines();
            fresh + free + hold
        };
        let unused: u64 = self.engines.iter().map(unused).sum();
        // Two lines are the null address and the superblock.
        let expected = leased.saturating_sub(2);
        if unused + live != expected {
            return Err(SimError::Broken(format!(
                "of {expected} leased lines {unused} are unused and {live} live"
            )));
        }
        Ok(())
    }
}

/// Whether an access may end so when no node was lost.
pub(crate) fn is_refusal(error: &EngineError) -> bool {
    matches!(error, EngineError::Busy { .. })
}
