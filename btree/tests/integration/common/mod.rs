//! A pool, a runtime and some compute nodes for the tests of this folder.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use selkie_btree::{Direction, Tree};
use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::Fabric;
use selkie_fabric::env::RealRuntime;
use selkie_fabric::mem::MemFabric;
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};

/// What a tree should hold.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;
/// Rows in the order a scan gave them.
pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>)>;
/// A range of keys.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// Everything.
pub(crate) const ALL: Range<'static> = (Bound::Unbounded, Bound::Unbounded);

/// Pages a node's cache holds in these tests: the fewest the engine accepts.
pub(crate) const FRAMES: usize = 1024;

pub(crate) struct Cluster {
    pub(crate) runtime: RealRuntime,
    pub(crate) engines: Vec<Engine>,
    _memory: Arc<EmbeddedPool>,
}

impl Cluster {
    /// Two memory nodes and `nodes` compute nodes with a cache of `frames` pages each, on two
    /// threads.
    pub(crate) fn start(nodes: usize, gcl_bytes: usize, frames: usize) -> Self {
        let runtime = RealRuntime::new(2).unwrap();
        let env = runtime.env();
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let config = PoolConfig {
            memory_nodes: 2,
            bytes_per_node: 64 << 20,
            gcl_bytes,
            range_bytes: 8 << 20,
            max_compute_nodes: nodes,
            coding: Coding::PLAIN,
            log_bytes: 0,
        };
        let memory = EmbeddedPool::start(&fabric, config).unwrap();
        let engines = (0..nodes)
            .map(|node| {
                let cache_bytes = (frames * gcl_bytes) as u64;
                let config = EngineConfig { cache_bytes, ..EngineConfig::default() };
                let node = ComputeId::new(node).unwrap();
                runtime.block_on(Engine::start(memory.pool(), &fabric, &env, node, config)).unwrap()
            })
            .collect();
        Self { runtime, engines, _memory: memory }
    }

    /// Closes every node: a latch that was not released shows here.
    pub(crate) fn stop(self) {
        for engine in &self.engines {
            self.runtime.block_on(engine.close()).unwrap();
        }
    }
}

/// The rows of a range.
pub(crate) async fn rows(
    tree: Tree,
    engine: &Engine,
    range: Range<'_>,
    direction: Direction,
) -> Rows {
    let mut rows = Vec::new();
    let collect = |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    tree.scan(engine, range, direction, collect).await.unwrap();
    rows
}

/// Compares the whole tree with the model: both scan directions, every invariant, the row count.
pub(crate) async fn assert_same(
    tree: Tree,
    engine: &Engine,
    model: &Model,
) -> selkie_btree::TreeStats {
    let stats = tree.verify(engine).await.unwrap();
    assert_eq!(stats.entries, model.len());
    let expected: Rows = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    assert!(rows(tree, engine, ALL, Direction::Forward).await == expected, "forward scan");
    let mut backward = rows(tree, engine, ALL, Direction::Reverse).await;
    backward.reverse();
    assert!(backward == expected, "reverse scan");
    stats
}

/// A small generator, so that tests need no seed from outside.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// Runs `task(engine, task number)` `per_node` times on every node, and passes a panic on.
pub(crate) fn on_every_node<F>(
    cluster: &Cluster,
    per_node: usize,
    task: impl Fn(Engine, usize) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let env = cluster.runtime.env();
    let mut running = Vec::new();
    for (node, engine) in cluster.engines.iter().enumerate() {
        for number in 0..per_node {
            let work = task(engine.clone(), node * per_node + number);
            running.push(env.spawn("stress", work));
        }
    }
    cluster.runtime.block_on(async {
        for handle in running {
            handle.join().await.unwrap();
        }
    });
}

/// Repeats an operation that was refused only because others were in the way.
macro_rules! insist {
    ($operation:expr) => {{
        let mut tries = 0;
        loop {
            match $operation.await {
                Err(error) if error.is_retryable() && tries < 100 => tries += 1,
                result => break result.unwrap(),
            }
        }
    }};
}
pub(crate) use insist;
