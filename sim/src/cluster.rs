//! A cluster in a simulated world: memory nodes, compute nodes, and what an observer sees of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use selkie_engine::log::LogTo;
use selkie_engine::{
    Coherence, ComputeId, DirectoryConfig, Engine, EngineConfig, EngineError, start_directories,
};
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::meter::Meter;
use selkie_fabric::sim::{RunError, TraceSink, World, WorldConfig};
use selkie_fabric::{Buf, Chain, Endpoint, Fabric, PeerId, RemoteAddr, Verb};
use selkie_memnode::{Coding, FailureDomain, Pool, PoolConfig, layout};

use crate::disk::SimDisk;
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
    /// How the pool keeps pages.
    pub coding: Coding,
    /// Bytes that each memory node keeps for the log of a compute node.
    pub log_bytes: u64,
    /// Where engines keep their logs, unless their configuration says it.
    pub disk: Option<SimDisk>,
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
            coding: Coding::PLAIN,
            log_bytes: 0,
            disk: None,
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
    fabric: Arc<dyn Fabric>,
    bytes_per_node: u64,
    config: EngineConfig,
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
        let pool =
            Pool::start_as(&fabric, config, SplitMix::of_stream(seed, NAME_STREAM).next_u64())?;
        if shape.engine.coherence == Coherence::Rpc {
            let env_of = |index: usize| world.env_of(PeerId::memory(index as u16));
            let message = plan.cost.rpc;
            let config =
                DirectoryConfig { cores: 2.0, message, ring_bytes: shape.engine.ring_bytes };
            world.run(RUN_BOUND, start_directories(&pool, env_of, config))??;
        }
        let observer = world.fabric().join(OBSERVER)?;
        let (mut config, bytes_per_node) = (shape.engine.clone(), shape.bytes_per_node);
        if let Some(disk) = &shape.disk {
            disk.attach(&world, max_compute_nodes);
            config.log = Some(LogTo::Store(Arc::new(disk.clone())));
        }
        let engines = Vec::new();
        let mut cluster =
            Self { world, pool, engines, meter, fabric, bytes_per_node, config, observer };
        for _ in 0..shape.compute_nodes {
            cluster.start_engine()?;
        }
        Ok(cluster)
    }

    /// Has one more memory node join, as large as the first, after so long.
    pub(crate) fn join_memory_after(&self, wait: Duration) {
        let (pool, fabric, env) =
            (Arc::clone(&self.pool), Arc::clone(&self.fabric), self.world.env());
        let bytes = self.bytes_per_node;
        drop(env.clone().spawn("memory node", async move {
            env.sleep(wait).await;
            // One that is refused is missed by whoever counts them.
            let _ = pool.grow(&fabric, &env, bytes, FailureDomain::ALONE).await;
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
        self.close(&[]).await?;
        self.check_words(&BTreeSet::new()).await
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

    /// Checks that every latch word is free, but those of the pages (global addresses) in `lost`.
    pub(crate) async fn check_words(&self, lost: &BTreeSet<u64>) -> Result<(), SimError> {
        let header_words = layout::HEADER_BYTES as usize / 8;
        for table in self.header_tables()? {
            let bytes = table.headers as usize * layout::HEADER_BYTES as usize;
            let headers = self.read(table.peer, table.at, bytes).await?;
            let words = headers.iter().step_by(header_words).enumerate();
            for (header, word) in words.filter(|(_, word)| **word != 0) {
                let addr = table.first + header as u64 * table.step;
                if !lost.contains(&addr) {
                    return Err(SimError::Broken(format!(
                        "at rest, the latch word of page {addr:#x} at {} is {word:#x}",
                        table.peer
                    )));
                }
            }
        }
        Ok(())
    }

    /// The header tables in use.
    fn header_tables(&self) -> Result<Vec<HeaderTable>, SimError> {
        let (descriptor, state) = (self.pool.descriptor(), self.pool.state());
        let geometry = descriptor.geometry();
        let gcl_bytes = geometry.gcl_bytes() as u64;
        let nodes = descriptor.memory_nodes.iter();
        if descriptor.coding.is_plain() {
            // The first range of each memory node, then the second, and so on.
            let mut tables: Vec<(u32, HeaderTable)> = nodes
                .flat_map(|node| (0..node.ranges).map(move |slab| (slab, node)))
                .map(|(slab, node)| {
                    let at = RemoteAddr::new(node.region, geometry.header_offset(slab, 0));
                    let headers = geometry.gcls_per_range();
                    (slab, HeaderTable { peer: node.peer, at, headers, first: 0, step: gcl_bytes })
                })
                .collect();
            tables.sort_by_key(|(slab, _)| *slab);
            let numbered = (0..).zip(tables);
            return Ok(numbered
                .map(|(range, (_, table))| HeaderTable {
                    first: range * geometry.range_bytes(),
                    ..table
                })
                .collect());
        }
        let mut tables = Vec::new();
        for (range, place) in (0..).zip(&state.ranges) {
            let count = place.slabs.len();
            for position in 0..place.homes.len() {
                let Some((slab, on)) = place.home_of(position) else { continue };
                let Some(node) = state.memory_node(slab.node) else { continue };
                if self.pool.is_memory_dead(usize::from(slab.node)) {
                    return Err(SimError::Broken(format!(
                        "the headers of position {position} of range {range} are on {}, which is dead",
                        node.peer
                    )));
                }
                tables.push(HeaderTable {
                    peer: node.peer,
                    at: RemoteAddr::new(node.region, geometry.table_offset(slab.slab, on)),
                    headers: geometry.headers_at(position),
                    first: range * geometry.range_bytes() + position as u64 * gcl_bytes,
                    step: count as u64 * gcl_bytes,
                });
            }
        }
        Ok(tables)
    }

    /// Every leased line is live or waits at some engine to be allocated. Lines that were being
    /// leased when a memory node was lost may be nobody's.
    pub(crate) async fn check_lines(&self, live: u64) -> Result<(), SimError> {
        let (leased, any_lost) = self.leased_lines().await?;
        let unused = |engine: &Engine| {
            let (fresh, free, hold) = engine.unused_lines();
            fresh + free + hold
        };
        let unused: u64 = self.engines.iter().map(unused).sum();
        // Two lines are the null address and the superblock.
        let expected = leased.saturating_sub(2);
        let known = unused + live;
        let nobodys = expected.checked_sub(known);
        if nobodys.is_none_or(|lines| lines > 0 && !any_lost || lines % layout::EXTENT_GCLS != 0) {
            return Err(SimError::Broken(format!(
                "of {expected} leased lines {unused} are unused and {live} live"
            )));
        }
        Ok(())
    }

    /// Lines that are leased to compute nodes, and whether any memory node is lost.
    async fn leased_lines(&self) -> Result<(u64, bool), SimError> {
        let (descriptor, state) = (self.pool.descriptor(), self.pool.state());
        let geometry = descriptor.geometry();
        let lost = |node: usize| self.pool.is_memory_dead(node);
        let mut leased = 0;
        if descriptor.coding.is_plain() {
            for node in &descriptor.memory_nodes {
                let at = RemoteAddr::new(node.region, layout::EXTENTS_LEASED_AT);
                let counter = self.read(node.peer, at, 8).await?.first().copied().unwrap_or(0);
                leased += counter.min(geometry.extents_per_node(node.ranges));
            }
        }
        for place in &state.ranges {
            let mut most = 0;
            for slab in place.slabs.iter().take(descriptor.coding.parity() + 1) {
                let node = state.memory_node(slab.node);
                let Some(node) = node.filter(|_| !lost(usize::from(slab.node))) else { continue };
                let at = RemoteAddr::new(node.region, geometry.leased_offset(slab.slab));
                let counter = self.read(node.peer, at, 8).await?.first().copied().unwrap_or(0);
                most = most.max(counter);
            }
            leased += most.min(geometry.extents_per_range());
        }
        let any_lost = (0..state.memory_nodes.len()).any(lost);
        Ok((leased * layout::EXTENT_GCLS, any_lost))
    }
}

/// A header table in use.
struct HeaderTable {
    peer: PeerId,
    at: RemoteAddr,
    headers: u64,
    /// Global address of the page of the first header, and from one to the next.
    first: u64,
    step: u64,
}

/// Whether an access may end so when no node was lost.
pub(crate) fn is_refusal(error: &EngineError) -> bool {
    matches!(error, EngineError::Busy { .. })
}
