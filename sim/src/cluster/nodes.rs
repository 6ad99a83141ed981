//! A cluster in a simulated world: memory nodes, compute nodes, and an observer.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use selkie_engine::log::LogTo;
use selkie_engine::{
    Coherence, ComputeId, DirectoryConfig, DirectoryHost, Engine, EngineConfig, start_directories,
};
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::meter::Meter;
use selkie_fabric::sim::{RunError, TraceSink, World, WorldConfig};
use selkie_fabric::{Endpoint, Fabric, PeerId};
use selkie_memnode::{EmbeddedPool, MemoryServer};
use selkie_pool::control::{Identity, PoolState, Timing};
use selkie_pool::{Pool, PoolConfig, PoolError};

use super::memory::SimMemory;
use super::plane::SimPlane;
use super::shape::{HEARTBEAT, LEASE, SimShape};
use crate::error::SimError;
use crate::plan::Plan;

/// The peer by which the observer looks into memory nodes; compute nodes have lower numbers.
const OBSERVER: PeerId = PeerId::compute(PeerId::MAX_INDEX);

/// Bytes of a range of the address space.
const RANGE_BYTES: u64 = 256 << 10;
/// Compute nodes that may come when the others have gone: see [`SimCluster::start_engine`].
const MAX_READERS: usize = 4;

/// The interval of looks whether a node has joined.
const JOIN_LOOK: Duration = Duration::from_micros(10);

/// Stream of the seed that draws the pool's name for itself.
const NAME_STREAM: u64 = 30;

/// Virtual time within which a whole run must be over: anything else is a hang.
pub const RUN_BOUND: Duration = Duration::from_secs(600);

/// The same of a part of a run whose nodes have leases.
const HANG_AFTER: Duration = Duration::from_secs(5);

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
    pub(crate) memory: Arc<SimMemory>,
}

/// Numbers of processes: of the observer, and those of memory nodes begin after it.
const OBSERVER_HOST: u64 = 1_000;

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
        if shape.processes {
            return Self::start_processes(world, meter, shape, &config, name);
        }
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
        Self::with_memory(world, memory.into(), meter, shape)
    }

    /// As [`SimCluster::start`], where each node is a process of its own.
    fn start_processes(
        world: World,
        meter: Arc<Meter>,
        shape: &SimShape,
        config: &PoolConfig,
        name: u64,
    ) -> Result<Self, SimError> {
        let plane = SimPlane::new(world.env());
        let observer = plane.way_of(None);
        let identity = Identity { name: "simulated", id: name, fabric: "sim" };
        let timing = Timing { lease: LEASE, heartbeat: HEARTBEAT };
        let state = PoolState::new(identity, timing, config);
        world.run(RUN_BOUND, observer.create(state))?.map_err(PoolError::from)?;
        let mut servers = Vec::new();
        for node in 0..shape.memory_nodes {
            let peer = PeerId::memory(node as u16);
            let (way, fabric, env) =
                (plane.way_of(Some(peer)), world.process_fabric(), world.env_of(peer));
            let host = OBSERVER_HOST + 1 + node as u64;
            let join = MemoryServer::join(&fabric, way, &env, host, shape.bytes_per_node);
            let server = world.run(RUN_BOUND, join)??;
            server.follow(&env);
            servers.push(server);
        }
        let open = Pool::open(world.process_fabric(), observer, OBSERVER_HOST);
        let pool = world.run(RUN_BOUND, open)??;
        pool.follow(&world.env());
        let memory = SimMemory::Processes { pool, servers: RwLock::new(servers), plane };
        Self::with_memory(world, memory, meter, shape)
    }

    /// The cluster with these memory nodes; starts its compute nodes.
    fn with_memory(
        world: World,
        memory: SimMemory,
        meter: Arc<Meter>,
        shape: &SimShape,
    ) -> Result<Self, SimError> {
        let (memory, observer) = (Arc::new(memory), world.fabric().join(OBSERVER)?);
        let pool = Arc::clone(memory.pool());
        let fabric: Arc<dyn Fabric> = Arc::clone(&meter) as Arc<dyn Fabric>;
        let (mut config, bytes_per_node) = (shape.engine.clone(), shape.bytes_per_node);
        if let Some(disk) = &shape.disk {
            disk.attach(&world, pool.descriptor().max_compute_nodes);
            config.log = Some(LogTo::Store(Arc::new(disk.clone())));
        }
        if !shape.after.is_empty() {
            world.run(RUN_BOUND, pool.count_on(&shape.after))??;
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
        let next = self.memory.regions().len();
        let peer = PeerId::memory(next as u16);
        let way = self.memory.plane().map(|plane| plane.way_of(Some(peer)));
        let (fabric, env) = match &way {
            Some(_) => (self.world.process_fabric(), self.world.env_of(peer)),
            None => (Arc::clone(&self.fabric), self.world.env()),
        };
        let host = OBSERVER_HOST + 1 + next as u64;
        let (memory, bytes, own) = (Arc::clone(&self.memory), self.bytes_per_node, env.clone());
        drop(self.world.env().spawn("memory node", async move {
            own.sleep(wait).await;
            // The scenario counts the nodes, and so notices a refused one.
            let _ = memory.grow(&fabric, &env, bytes, (host, way)).await;
        }));
    }

    /// Starts one more compute node.
    ///
    /// # Errors
    /// What the engine reports.
    pub(crate) fn start_engine(&mut self) -> Result<Engine, SimError> {
        let index = self.engines.len();
        let id = ComputeId::new(index).ok_or(SimError::TooManyNodes(index + 1))?;
        let (env, config) = (self.env_of(index), self.config.clone());
        let engine = match self.memory.plane() {
            None => {
                let start = Engine::start(&self.pool, &self.fabric, &env, id, config);
                self.world.run(RUN_BOUND, start)??
            }
            Some(plane) => {
                let way = plane.way_of(Some(PeerId::compute(index as u16)));
                let (fabric, outside) = (self.world.process_fabric(), self.world.env());
                let (controls, peer) = (self.world.controls(), PeerId::compute(index as u16));
                self.world.run(RUN_BOUND, async {
                    let pool = Pool::open(Arc::clone(&fabric), way, 1 + index as u64).await?;
                    let (own, watch) = (Arc::clone(&pool), env.clone());
                    let following = outside.clone().spawn("joiner", async move {
                        // Not before the node has joined, as its tasks stop with it; but before it
                        // has started, which may take longer than a lease.
                        while !controls.lives(peer) {
                            outside.sleep(JOIN_LOOK).await;
                        }
                        own.follow(&watch);
                    });
                    let engine = Engine::start(&pool, &fabric, &env, id, config).await?;
                    following.join().await.map_err(|error| SimError::Broken(error.to_string()))?;
                    Ok::<_, SimError>(engine)
                })??
            }
        };
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
        // With a lease there always is something to do: a hang is to be found soon.
        let bound = match self.memory.plane() {
            Some(_) => self.world.now() + HANG_AFTER,
            None => RUN_BOUND,
        };
        self.world.run(bound, main)
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
