//! The death of a memory node without redundancy: accesses to its pages fail, all others
//! succeed.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{EngineError, GAddr};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{FabricError, PeerId};
use selkie_pool::{Coding, ComputeIndex, PoolConfig};

use crate::common::{Cluster, engine_config, pool_config};

const DEAD: PeerId = PeerId::memory(1);
/// Far below the bound of a wait, which is 20 s.
const PROMPT: Duration = Duration::from_secs(5);

fn plain() -> PoolConfig {
    PoolConfig { coding: Coding::PLAIN, ..pool_config(3, 8 << 20) }
}

fn is_loss(error: &EngineError) -> bool {
    matches!(error, EngineError::Fabric(FabricError::PeerDead { peer }) if *peer == DEAD)
}

/// Pages on each of the memory nodes: written and cached at node 0, or written back and gone from
/// it.
async fn pages(cluster: &Cluster, evicted: bool) -> Vec<GAddr> {
    let engine = &cluster.engines[0];
    let mut pages = Vec::new();
    let others = if evicted { 3_000 } else { 0 };
    for number in 0..200 + others {
        let mut page = engine.allocate().await.unwrap();
        page.bytes_mut(0..8).copy_from_slice(&7_u64.to_le_bytes());
        if number < 200 {
            pages.push(page.addr());
        }
    }
    pages
}

fn lost_pages(evicted: bool) {
    let mem = MemFabric::new();
    let fabric = Arc::clone(&mem);
    let cluster = Cluster::with(2, move |_| fabric, plain(), engine_config());
    let env = cluster.runtime.env();
    cluster.run(async {
        let pages = pages(&cluster, evicted).await;
        mem.kill(DEAD);
        let (mut lost, mut kept) = (0, 0);
        let started = env.now();
        for (number, addr) in pages.iter().enumerate() {
            // From the other node, so that none is a hit.
            let engine = &cluster.engines[1];
            let result = match number % 4 {
                0 => engine.shared(*addr).await.map(drop),
                1 => engine.exclusive(*addr).await.map(drop),
                2 => engine.try_shared(*addr).await.map(drop),
                _ => engine.try_exclusive(*addr).await.map(drop),
            };
            match result {
                Ok(()) => kept += 1,
                Err(error) => {
                    assert!(is_loss(&error), "{error}");
                    lost += 1;
                }
            }
        }
        assert!(env.now() - started < PROMPT, "the errors took {:?}", env.now() - started);
        assert!(lost >= 40 && kept >= 80, "{lost} lost, {kept} kept");
        let first = &cluster.engines[0];
        for _ in 0..500 {
            drop(first.allocate().await.unwrap());
        }
        for engine in &cluster.engines {
            let started = env.now();
            let closed = engine.close().await;
            assert!(env.now() - started < PROMPT, "leaving took {:?}", env.now() - started);
            assert!(closed.as_ref().err().is_none_or(is_loss), "{closed:?}");
            let index = ComputeIndex::new(engine.node().index() as u16);
            assert!(!cluster.pool.is_member(index), "it has left");
        }
    });
}

#[test]
fn pages_of_a_dead_memory_node_that_no_cache_has_are_lost_at_once() {
    lost_pages(true);
}

#[test]
fn pages_of_a_dead_memory_node_that_another_node_has_changed_are_lost_at_once() {
    lost_pages(false);
}

#[test]
fn a_node_leaves_though_the_first_memory_node_is_dead() {
    let mem = MemFabric::new();
    let fabric = Arc::clone(&mem);
    let cluster = Cluster::with(1, move |_| fabric, plain(), engine_config());
    cluster.run(async {
        pages(&cluster, false).await;
        mem.kill(PeerId::memory(0));
        let closed = cluster.engines[0].close().await;
        assert!(matches!(closed, Err(EngineError::Fabric(FabricError::PeerDead { .. }))));
        assert!(!cluster.pool.is_member(ComputeIndex::new(0)));
    });
}
