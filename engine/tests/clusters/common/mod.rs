//! A small pool with several engines for the tests of this folder.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: each binary uses a part, and what goes wrong here shall panic"
)]

pub mod drops;
pub mod load;
pub mod pages;
pub mod processes;
pub mod way;

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{ComputeId, Engine, EngineConfig, GAddr, PSN_BYTES};
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Buf, Chain, Endpoint, Fabric, PeerId, RemoteAddr, Verb};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, Pool, PoolConfig, layout};

pub const GCL: usize = 512;
pub const PAGE: usize = GCL - PSN_BYTES;
/// The peer by which a test looks into memory nodes from outside.
const OBSERVER: u16 = 57;

pub struct Cluster {
    pub runtime: RealRuntime,
    pub fabric: Arc<dyn Fabric>,
    pub pool: Arc<Pool>,
    pub engines: Vec<Engine>,
    observer: Arc<dyn Endpoint>,
    pub memory: Arc<EmbeddedPool>,
}

pub fn pool_config(memory_nodes: usize, bytes_per_node: u64) -> PoolConfig {
    PoolConfig {
        memory_nodes,
        bytes_per_node,
        gcl_bytes: GCL,
        range_bytes: 256 << 10,
        max_compute_nodes: 8,
        coding: coding(memory_nodes),
        log_bytes: 0,
    }
}

/// What the variable `SELKIE_TEST_CODING` says, where there are memory nodes enough: the tests of
/// this folder are to hold for every coding.
pub fn coding(memory_nodes: usize) -> Coding {
    let asked = std::env::var("SELKIE_TEST_CODING").map_or(Coding::PLAIN, |c| c.parse().unwrap());
    if memory_nodes < asked.splits() { Coding::PLAIN } else { asked }
}

/// Bound of each wait of an engine.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

pub fn engine_config() -> EngineConfig {
    EngineConfig {
        cache_bytes: EngineConfig::min_cache_bytes(GCL),
        request_timeout: REQUEST_TIMEOUT,
        tick: Duration::from_millis(1),
        ..EngineConfig::default()
    }
}

pub fn id(node: usize) -> ComputeId {
    ComputeId::new(node).unwrap()
}

impl Cluster {
    pub fn new(engines: usize) -> Cluster {
        Self::with(engines, |_| MemFabric::new(), pool_config(3, 8 << 20), engine_config())
    }

    pub fn with(
        engines: usize,
        fabric: impl FnOnce(&Env) -> Arc<dyn Fabric>,
        pool: PoolConfig,
        config: EngineConfig,
    ) -> Cluster {
        let runtime = RealRuntime::new(2).unwrap();
        let env = runtime.env();
        let fabric: Arc<dyn Fabric> = fabric(&env);
        let memory = EmbeddedPool::start(&fabric, pool).unwrap();
        let pool = Arc::clone(memory.pool());
        let engines = runtime.block_on(async {
            let mut all = Vec::new();
            for node in 0..engines {
                let config = config.clone();
                all.push(Engine::start(&pool, &fabric, &env, id(node), config).await.unwrap());
            }
            all
        });
        let observer = fabric.join(PeerId::compute(OBSERVER)).unwrap();
        Cluster { runtime, fabric, pool, engines, observer, memory }
    }

    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// All latch words of the pool that are not free, as (memory node, offset, word).
    pub async fn latched_words(&self) -> Vec<(usize, u64, u64)> {
        let state = self.pool.state();
        let mut latched = Vec::new();
        let words = self.latch_words();
        for of_node in words.chunk_by(|(one, _), (other, _)| one == other) {
            let node = &state.memory_nodes[of_node[0].0].as_ref().unwrap().descriptor;
            let queue_pair = self.observer.connect(node.peer).unwrap();
            for some in of_node.chunks(128) {
                let read =
                    |offset| Verb::read(RemoteAddr::new(node.region, offset), Buf::zeroed(8));
                let mut chain = Chain::new();
                some.iter().for_each(|(_, offset)| chain.push(read(*offset)));
                let done = queue_pair.post(chain).await.unwrap();
                let found = (0..).zip(some).map(|(verb, (index, offset))| {
                    (*index, *offset, done.buf(verb).unwrap().words()[0])
                });
                latched.extend(found.filter(|(.., word)| *word != 0));
            }
        }
        latched
    }

    /// Changes a word of a memory node from outside; whether it was the expected one.
    pub async fn swap_word(&self, node: usize, offset: u64, expected: u64, new: u64) -> bool {
        let state = self.pool.state();
        let node = &state.memory_nodes[node].as_ref().unwrap().descriptor;
        let queue_pair = self.observer.connect(node.peer).unwrap();
        let at = RemoteAddr::new(node.region, offset);
        let done = queue_pair.post(Chain::from(Verb::compare_and_swap(at, expected, new))).await;
        done.unwrap().verbs[0].old_value() == expected
    }

    /// Where the latch words are, as (memory node, offset).
    fn latch_words(&self) -> Vec<(usize, u64)> {
        let (descriptor, state) = (self.pool.descriptor(), self.pool.state());
        let geometry = descriptor.geometry();
        let mut words = Vec::new();
        if descriptor.coding.is_plain() {
            for (index, node) in descriptor.memory_nodes.iter().enumerate() {
                let slabs = (0..node.ranges).flat_map(|slab| {
                    (0..geometry.gcls_per_range() as u32).map(move |gcl| (slab, gcl))
                });
                words.extend(slabs.map(|(slab, gcl)| (index, geometry.latch_offset(slab, gcl))));
            }
            return words;
        }
        for place in &state.ranges {
            for position in 0..place.homes.len() {
                let (slab, on) = place.home_of(position).unwrap();
                let table = geometry.table_offset(slab.slab, on);
                let headers = 0..geometry.headers_at(position);
                words.extend(headers.map(|header| {
                    let offset = table + header * layout::HEADER_BYTES + layout::LATCH_AT;
                    (usize::from(slab.node), offset)
                }));
            }
        }
        words
    }

    /// What every engine has under way.
    pub fn describe(&self) -> String {
        let of = |e: &Engine| format!("{}: {:#?}\n", e.node(), e.active_lines());
        self.engines.iter().map(of).collect()
    }

    /// Extents leased of each memory node.
    pub async fn leased_extents(&self) -> Vec<u64> {
        let mut leased = Vec::new();
        for node in &self.pool.descriptor().memory_nodes {
            let queue_pair = self.observer.connect(node.peer).unwrap();
            let at = RemoteAddr::new(node.region, layout::EXTENTS_LEASED_AT);
            let done =
                queue_pair.post(Chain::from([Verb::read(at, Buf::zeroed(8))])).await.unwrap();
            leased.push(done.buf(0).unwrap().words()[0]);
        }
        leased
    }

    /// Asserts that every leased line but the `live` ones waits at some engine to be allocated,
    /// within a bound: leases under way may still have to end.
    pub async fn check_lines(&self, live: u64) {
        let unused = |engine: &Engine| {
            let (fresh, free, hold) = engine.unused_lines();
            fresh + free + hold
        };
        let (mut unused_lines, mut leased) = (0, 0);
        for _ in 0..2000 {
            unused_lines = self.engines.iter().map(unused).sum::<u64>();
            // Two lines are the null address and the superblock.
            leased = self.memory.used_extents().extents_leased * layout::EXTENT_GCLS;
            leased = leased.saturating_sub(2);
            if unused_lines + live == leased {
                return;
            }
            self.runtime.env().sleep(Duration::from_millis(1)).await;
        }
        panic!("of {leased} leased lines {unused_lines} are unused and {live} live");
    }

    /// Closes all engines and asserts that nothing is left: words free, frames free.
    pub fn close_and_check(self) {
        self.run(async {
            for engine in &self.engines {
                engine.close().await.unwrap();
            }
            assert_eq!(self.latched_words().await, [], "latch words return to rest");
            for engine in &self.engines {
                let stats = engine.stats();
                assert_eq!(stats.frames, stats.frames_free, "frames return to rest");
            }
        });
    }
}

pub fn get(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[..8].try_into().unwrap())
}

/// Allocates a page and lets go of it.
pub async fn page(engine: &Engine) -> GAddr {
    engine.allocate().await.unwrap().addr()
}
