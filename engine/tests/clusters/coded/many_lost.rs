//! A node without a log dies with more pages than the pool can remember one by one: they are lost
//! for good, nothing keeps the name of the node, and no later loss brings an old page back.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::PeerId;
use selkie_fabric::mem::MemFabric;
use selkie_pool::control::MAX_LOST_PAGES;
use selkie_pool::{ComputeIndex, PoolConfig};

use crate::common::pages::{check, coded, fill, pages, write};
use crate::common::{Cluster, GCL, PAGE, engine_config};

const LOST: usize = MAX_LOST_PAGES + 1_000;
const KEPT: usize = 200;

/// Pages that are lost with a node, and those of the other.
struct Lost {
    mem: Arc<MemFabric>,
    cluster: Cluster,
    lost: Vec<GAddr>,
    kept: Vec<GAddr>,
}

fn lost() -> Lost {
    let mem = MemFabric::new();
    let fabric = Arc::clone(&mem);
    let pool = PoolConfig { bytes_per_node: 16 << 20, ..coded(4, "2+1") };
    let frames = LOST as u64 + 4_096;
    let config = EngineConfig { cache_bytes: frames * GCL as u64, ..engine_config() };
    let cluster = Cluster::with(2, move |_| fabric, pool, config);
    let (kept, lost) = cluster.run(async {
        let kept = pages(&cluster.engines[0], KEPT).await;
        let lost = pages(&cluster.engines[1], LOST).await;
        mem.kill(PeerId::compute(1));
        cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
        recovered(&cluster).await;
        (kept, lost)
    });
    Lost { mem, cluster, lost, kept }
}

async fn recovered(cluster: &Cluster) {
    let env = cluster.runtime.env();
    let until = env.now() + Duration::from_secs(120);
    while !cluster.pool.lost().is_empty() || !cluster.pool.rebuilds().is_empty() {
        assert!(env.now() < until, "{:?} {:?}", cluster.pool.lost(), cluster.pool.rebuilds());
        env.sleep(Duration::from_millis(1)).await;
    }
}

async fn is_lost_for_good(engine: &Engine, addr: GAddr) {
    match engine.shared(addr).await {
        Err(EngineError::PageLost { node: None, .. }) => {}
        Err(error) => panic!("{addr}: {error}"),
        Ok(page) => panic!("{addr} is back, with {}", check(&page, addr)),
    }
}

impl Lost {
    /// A memory node dies that has headers of the last pages, which are not remembered.
    async fn loses_memory(&self) {
        let state = self.cluster.pool.state();
        let last = self.lost[LOST - 1].to_u64() / state.range_bytes;
        let (victim, _) = state.ranges[last as usize].home_of(0).unwrap();
        self.mem.kill(PeerId::memory(victim.node));
        self.cluster.pool.declare_memory_dead(victim.node).await.unwrap();
        recovered(&self.cluster).await;
    }
}

/// The words kept the name of the node for good: a load anew was refused, and its index was gone.
#[test]
fn more_pages_than_can_be_remembered_are_lost_for_good() {
    let test = lost();
    let (pool, engine) = (&test.cluster.pool, &test.cluster.engines[0]);
    test.cluster.run(async {
        assert!(pool.dead().is_empty(), "no word names the node");
        assert_eq!(pool.state().abandoned_pages.len(), MAX_LOST_PAGES);
        for addr in &test.lost {
            is_lost_for_good(engine, *addr).await;
        }
        // One that is remembered, and the last, that is not.
        let renewed = [test.lost[0], test.lost[LOST - 1]];
        for addr in renewed {
            let mut page = engine.exclusive_anew(addr).await.unwrap();
            fill(page.bytes_mut(0..PAGE), addr, 7);
        }
        test.loses_memory().await;
        for addr in &test.lost {
            if renewed.contains(addr) {
                assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 7);
            } else {
                is_lost_for_good(engine, *addr).await;
            }
        }
        // They are in the cache, so it is known that they were not lost.
        for addr in &test.kept {
            write(engine, *addr, 2).await;
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 2);
        }
        engine.close().await.unwrap();
    });
}

/// A repair finds out which pages are lost, and the next loss takes no other.
#[test]
fn a_repair_remembers_again_which_pages_are_lost() {
    let test = lost();
    let (pool, engine) = (&test.cluster.pool, &test.cluster.engines[0]);
    test.cluster.run(async {
        assert!(!pool.state().abandoned_ranges.is_empty());
        let stay = &test.lost[LOST - 10..];
        let used: HashSet<GAddr> = test.kept.iter().chain(stay).copied().collect();
        let census = engine.repair_lines(&used, false).await.unwrap();
        assert_eq!(census.lost, LOST as u64 - 10, "{census:?}");
        let state = pool.state();
        assert!(state.abandoned_ranges.is_empty());
        assert_eq!(state.abandoned_pages.len(), 10);
        // Not in any cache any more.
        for addr in &test.kept {
            engine.evict(*addr).await.unwrap();
        }
        test.loses_memory().await;
        for addr in &test.kept {
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1);
        }
        for addr in stay {
            is_lost_for_good(engine, *addr).await;
        }
        engine.close().await.unwrap();
    });
}
