//! A cluster in a simulated world: memory nodes, compute nodes, and an observer.

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::log::LogTo;
use selkie_engine::{
    Coherence, ComputeId, DirectoryConfig, DirectoryHost, Engine, EngineConfig, start_directories,
};
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::meter::Meter;
use selkie_fabric::sim::{RunError, TraceSink, World, WorldConfig};
use selkie_fabric::{Endpoint, Fabric, PeerId};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{FailureDomain, Pool, PoolConfig};

use super::shape::SimShape;
use crate::error::SimError;
use crate::plan::Plan;

/// The peer by which the observer looks into memory nodes; compute nodes have lower numbers.
const OBSERVER: PeerId = PeerId::compute(PeerId::MAX_INDEX);

/// Bytes of a range of the address space.
const RANGE_BYTES: u64 = 256 << 10;
/// Compute nodes that may come when the others have gone: see [`SimCluster::start_engine`].
const MAX_READERS: usize = 4;

/// Stream of the seed that draws the pool's name for itself.
const NAME_STREAM: u64 = 30;

/// Virtual time within which a whole run must be over: anything else is a hang.
pub const RUN_BOUND: Duration = Duration::from_secs(600);

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
    fabric: Arc<dyn Fabric>,
    bytes_per_node: u64,
    config: EngineConfig,
    pub(super) observer: Arc<dyn Endpoint>,
    /// Its memory nodes.
    pub(crate) memory: Arc<EmbeddedPool>,
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
        shape: &SimShape,
        log: Option<TraceSink>,
    ) -> Result<Self, SimError> {
        let Plan { cost, faults, schedule, .. } = plan.clone();
        let world = World::new(WorldConfig { seed, cost, faults, schedule, log });
        let meter = Meter::wrap(world.fabric());
        let fabric: Arc<dyn Fabric> = Arc::clone(&meter) as Arc<dyn Fabric>;
        let max_compute_nodes = shape.compute_nodes + MAX_READERS;
        let config = PoolConfig {
            memory_nodes: shape.memory_nodes,
            bytes_per_node: shape.bytes_per_node,
            gcl_bytes: shape.gcl_bytes,
            range_bytes: RANGE_BYTES,
            max_compute_nodes,
            coding: shape.coding,
            log_bytes: shape.log_bytes,
        };
        let name = SplitMix::of_stream(seed, NAME_STREAM).next_u64();
        let memory = EmbeddedPool::start_as(&fabric, config, name)?;
        let pool = Arc::clone(memory.pool());
        if shape.engine.coherence == Coherence::Rpc {
            let env_of = |index: usize| world.env_of(PeerId::memory(index as u16));
            let message = plan.cost.rpc;
            let config =
                DirectoryConfig { cores: 2.0, message, ring_bytes: shape.engine.ring_bytes };
            let nodes = memory.memory_nodes();
            let hosts = nodes.iter().map(|node| DirectoryHost {
                endpoint: Arc::clone(node.endpoint()),
                region: Arc::clone(node.region()),
            });
            world.run(RUN_BOUND, start_directories(&pool, hosts, env_of, config))??;
        }
        let observer = world.fabric().join(OBSERVER)?;
        let (mut config, bytes_per_node) = (shape.engine.clone(), shape.bytes_per_node);
        if let Some(disk) = &shape.disk {
            disk.attach(&world, max_compute_nodes);
            config.log = Some(LogTo::Store(Arc::new(disk.clone())));
        }
        let engines = Vec::new();
        let mut cluster =
            Self { world, pool, engines, meter, fabric, bytes_per_node, config, observer, memory };
        for _ in 0..shape.compute_nodes {
            cluster.start_engine()?;
        }
        Ok(cluster)
    }

    /// Has one more memory node join, as large as the first, after so long.
    pub(crate) fn join_memory_after(&self, wait: Duration) {
        let (memory, fabric, env) =
            (Arc::clone(&self.memory), Arc::clone(&self.fabric), self.world.env());
        let bytes = self.bytes_per_node;
        drop(env.clone().spawn("memory node", async move {
            env.sleep(wait).await;
            // The scenario counts the nodes, and so notices a refused one.
            let _ = memory.grow(&fabric, &env, bytes, FailureDomain::ALONE).await;
        }));
    }

    /// Starts one more compute node.
    ///
    /// # Errors
    /// What the engine reports.
    pub(crate) fn start_engine(&mut self) -> Result<Engine, SimError> {
        let index = self.engines.len();
        let id = ComputeId::new(index).ok_or(SimError::TooManyNodes(index + 1))?;
        let env = self.env_of(index);
        let start = Engine::start(&self.pool, &self.fabric, &env, id, self.config.clone());
        let engine = self.world.run(RUN_BOUND, start)??;
        self.engines.push(engine.clone());
        Ok(engine)
    }

    /// The engine of compute node `index`.
    pub(crate) fn engine(&self, index: usize) -> Result<&Engine, SimError> {
        self.engines.get(index).ok_or(SimError::NoSuchNode(index))
    }

    /// The environment of compute node `index`.
    pub fn env_of(&self, index: usize) -> Env {
        self.world.env_of(PeerId::compute(index as u16))
    }

    /// Bytes of a line.
    pub(crate) fn gcl_bytes(&self) -> usize {
        self.pool.descriptor().gcl_bytes
    }

    /// Runs `main` in the world.
    ///
    /// # Errors
    /// A hang, or a panic of a task.
    pub fn run<T>(&self, main: impl Future<Output = T>) -> Result<T, RunError> {
        self.world.run(RUN_BOUND, main)
    }

    /// Stops the compute nodes but those in `gone`, and checks that they keep no frame.
    pub(crate) async fn close(&self, gone: &[PeerId]) -> Result<(), SimError> {
        let peer = |engine: &Engine| PeerId::compute(engine.node().index() as u16);
        let living = || self.engines.iter().filter(|engine| !gone.contains(&peer(engine)));
        for engine in living() {
            engine.close().await?;
        }
        for engine in living() {
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
}
