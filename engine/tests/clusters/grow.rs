//! Memory nodes that join a coded pool under load: slabs spread over them, nothing is
//! lost, no caller gets an error.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{Engine, EngineConfig};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Fabric, PeerId};
use selkie_memnode::EmbeddedPool;
use selkie_pool::control::PoolState;
use selkie_pool::{ComputeIndex, FailureDomain, Migration, MigrationStage, Pool};

use crate::common::load::{AtStage, Load, check_all, is_whole, prepare, until};
use crate::common::pages::{check, cluster, coded, pages, write};
use crate::common::{Cluster, engine_config, id};

const LENT: u64 = 8 << 20;

async fn grow(cluster: &Cluster, bytes: u64) -> u16 {
    grow_in(cluster, bytes, FailureDomain::ALONE).await
}

async fn grow_in(cluster: &Cluster, bytes: u64, domain: FailureDomain) -> u16 {
    let env = cluster.runtime.env();
    cluster.memory.grow(&cluster.fabric, &env, bytes, domain).await.unwrap()
}

/// Slabs of the living memory nodes, none of which is on its way.
fn slabs(pool: &Pool) -> Option<Vec<usize>> {
    let state = pool.state();
    let nodes = 0..state.memory_nodes.len() as u16;
    let living = nodes.filter(|node| state.lives(*node));
    state.migration.is_none().then(|| living.map(|node| state.slabs_on(node)).collect())
}

fn is_even(pool: &Pool) -> bool {
    slabs(pool).is_some_and(|all| all.iter().max().unwrap() - all.iter().min().unwrap() <= 1)
}

fn grows(memory_nodes: usize, coding: &str, joining: usize, lost_after: &[u16]) {
    let (mem, cluster) = cluster(3, memory_nodes, coding);
    let env = cluster.runtime.env();
    cluster.run(async {
        let (pages, counter) = prepare(&cluster, 3_000).await;
        let load = Load::start(&cluster, &pages, counter);
        for number in 0..joining {
            let node = grow(&cluster, LENT).await;
            assert_eq!(usize::from(node), memory_nodes + number);
            until(&env, &cluster, "spreads", || is_even(&cluster.pool)).await;
            assert!(cluster.pool.state().slabs_on(node) > 0, "it has its share");
        }
        for victim in lost_after {
            mem.kill(PeerId::memory(*victim));
        }
        env.sleep(Duration::from_millis(100)).await;
        load.ends_well(&cluster, &pages).await;
        if lost_after.is_empty() {
            assert_eq!(cluster.latched_words().await, []);
        }
    });
}

#[test]
fn memory_nodes_join_one_after_the_other_while_all_work() {
    grows(3, "2+1", 3, &[]);
    grows(6, "4+2", 2, &[]);
}

#[test]
fn as_many_as_there_are_parity_splits_may_be_lost_right_after() {
    grows(3, "2+1", 2, &[3]);
    grows(6, "4+2", 2, &[6, 1]);
    grows(2, "replicate=2", 1, &[0]);
}

/// At each stage in turn of a slab's move to a memory node that has joined, the memory node dies
/// that is named by the state from before and the move. What is lost is regenerated; `then` comes
/// after that, under load still.
fn dies_at_each_stage(
    victim: fn(&PoolState, &Migration) -> u16,
    then: impl AsyncFn(&Cluster, u16, u16),
) {
    for stage in [
        MigrationStage::Clearing,
        MigrationStage::Copying,
        MigrationStage::Switching,
        MigrationStage::Switched,
    ] {
        let (mem, cluster) = cluster(3, 3, "2+1");
        let env = cluster.runtime.env();
        cluster.run(async {
            let (pages, counter) = prepare(&cluster, 2_000).await;
            let load = Load::start(&cluster, &pages, counter);
            let (killer, before) = (Arc::clone(&mem), cluster.pool.state());
            let dies = Arc::clone(&before);
            let watch = AtStage::watch(&cluster.pool, stage, move |task| {
                killer.kill(PeerId::memory(victim(&dies, task)));
            });
            let node = grow(&cluster, LENT).await;
            until(&env, &cluster, "moves", || watch.met.get().is_some()).await;
            let dead = victim(&before, watch.met.get().unwrap());
            let is_known = || !cluster.pool.state().lives(dead) && is_whole(&cluster.pool);
            until(&env, &cluster, "is regenerated", is_known).await;
            then(&cluster, node, dead).await;
            let outcomes = load.end().await;
            for engine in &cluster.engines {
                check_all(engine, &pages, &outcomes).await;
            }
        });
    }
}

#[test]
fn a_memory_node_that_joins_may_die_while_slabs_come_to_it() {
    dies_at_each_stage(
        |_, task| task.to.node,
        async |cluster, node, dead| {
            assert_eq!(node, dead);
            // Another comes instead.
            assert_eq!(grow(cluster, LENT).await, node + 1);
            let env = cluster.runtime.env();
            until(&env, cluster, "spreads", || is_even(&cluster.pool)).await;
        },
    );
}

#[test]
fn another_may_die_while_slabs_come_to_one_that_joins_and_all_that_are_left_are_needed() {
    // Its headers can lie on it and on the next, which is to move.
    let another = |before: &PoolState, task: &Migration| {
        before.ranges[task.range].slabs[(task.position + 2) % 3].node
    };
    dies_at_each_stage(another, async |_, node, dead| assert_ne!(node, dead));
}

#[test]
fn what_a_pool_has_lost_is_made_again_on_one_that_joins() {
    let (mem, cluster) = cluster(2, 3, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let all = pages(&cluster.engines[0], 1_000).await;
        mem.kill(PeerId::memory(1));
        for addr in &all {
            write(&cluster.engines[1], *addr, 2).await;
        }
        assert!(!is_whole(&cluster.pool), "there is no room for what was lost");
        let node = grow(&cluster, LENT).await;
        until(&env, &cluster, "is regenerated", || is_whole(&cluster.pool)).await;
        assert!(cluster.pool.state().slabs_on(node) > 0);
        mem.kill(PeerId::memory(0));
        for addr in &all {
            assert_eq!(check(&cluster.engines[0].shared(*addr).await.unwrap(), *addr), 2);
        }
    });
}

/// The next growth was "pool full", and all writers ended, though the other memory nodes had
/// room.
#[test]
fn a_pool_that_has_lost_what_it_may_lose_gets_ranges_and_makes_them_whole_later() {
    for (coding, nodes, lost) in [("2+1", 3, &[1][..]), ("2+2", 4, &[0, 2]), ("2+2", 4, &[3])] {
        let (mem, cluster) = cluster(2, nodes, coding);
        let env = cluster.runtime.env();
        cluster.run(async {
            let mut all = pages(&cluster.engines[0], 500).await;
            let before = cluster.pool.state().ranges.len();
            lost.iter().for_each(|node| mem.kill(PeerId::memory(*node)));
            // Both nodes until the pool has two ranges more.
            while cluster.pool.state().ranges.len() < before + 2 {
                for engine in &cluster.engines {
                    all.extend(pages(engine, 50).await);
                }
            }
            for (number, addr) in all.iter().enumerate() {
                write(&cluster.engines[number % 2], *addr, 2).await;
            }
            for engine in &cluster.engines {
                for addr in &all {
                    assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 2);
                }
            }
            assert!(!is_whole(&cluster.pool), "there is no room for what was lost");
            for _ in lost {
                grow(&cluster, LENT).await;
            }
            until(&env, &cluster, "is regenerated", || is_whole(&cluster.pool)).await;
            // It may lose as many again.
            let others = (0..nodes as u16).filter(|node| !lost.contains(node)).take(lost.len());
            others.for_each(|node| mem.kill(PeerId::memory(node)));
            for addr in &all {
                assert_eq!(check(&cluster.engines[0].shared(*addr).await.unwrap(), *addr), 2);
            }
        });
    }
}

#[test]
fn a_full_pool_gets_room_from_one_that_joins() {
    let (_, cluster) = cluster(1, 3, "2+1");
    cluster.run(async {
        let engine = &cluster.engines[0];
        let mut all = Vec::new();
        let full = loop {
            match engine.allocate().await {
                Ok(page) => all.push(page.addr()),
                Err(error) => break error,
            }
            write(engine, all[all.len() - 1], 1).await;
        };
        assert!(full.to_string().contains("full"), "{full}");
        let before = cluster.pool.extents();
        grow(&cluster, 4 * LENT).await;
        let env = cluster.runtime.env();
        until(&env, &cluster, "spreads", || is_even(&cluster.pool)).await;
        assert!(cluster.pool.extents() > before);
        for _ in 0..2_000 {
            all.extend(pages(engine, 1).await);
        }
        for addr in &all {
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1);
        }
    });
}

#[test]
fn compute_nodes_that_join_later_and_those_that_only_read_find_what_is_on_new_memory() {
    let (mem, cluster) = cluster(2, 3, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let (fabric, pool) = (&cluster.fabric, &cluster.pool);
        let reads_only = EngineConfig { reads_only: true, ..engine_config() };
        let reader = Engine::start(pool, fabric, &env, id(2), reads_only).await.unwrap();
        let all = pages(&cluster.engines[0], 2_000).await;
        // More slabs than any other lends.
        grow(&cluster, 3 * LENT).await;
        until(&env, &cluster, "spreads", || is_even(pool)).await;
        mem.kill(PeerId::memory(0));
        let late = Engine::start(pool, fabric, &env, id(3), engine_config()).await.unwrap();
        for addr in &all {
            assert_eq!(check(&reader.shared(*addr).await.unwrap(), *addr), 1);
            write(&late, *addr, 2).await;
        }
        for addr in &all {
            assert_eq!(check(&reader.shared(*addr).await.unwrap(), *addr), 2);
        }
    });
}

#[test]
fn a_compute_node_may_die_that_moves_slabs_to_one_that_joins() {
    let (mem, cluster) = cluster(3, 3, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let all = pages(&cluster.engines[0], 2_000).await;
        cluster.engines[0].close().await.unwrap();
        let killer = Arc::clone(&mem);
        let watch = AtStage::watch(&cluster.pool, MigrationStage::Copying, move |task| {
            killer.kill(PeerId::compute(task.by));
        });
        grow(&cluster, LENT).await;
        until(&env, &cluster, "moves", || watch.met.get().is_some()).await;
        let dead = watch.met.get().unwrap().by;
        cluster.pool.declare_dead(ComputeIndex::new(dead)).await.unwrap();
        until(&env, &cluster, "spreads", || is_even(&cluster.pool)).await;
        until(&env, &cluster, "recovers", || cluster.pool.lost().is_empty()).await;
        for addr in &all {
            let lives = &cluster.engines[usize::from(3 - dead)];
            assert_eq!(check(&lives.shared(*addr).await.unwrap(), *addr), 1);
        }
    });
}

#[test]
fn failure_domains_hold_for_those_that_join_and_plain_pools_do_not_grow() {
    let (_, cluster) = cluster(1, 3, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        pages(&cluster.engines[0], 3_000).await;
        let rack: FailureDomain = "rack".parse().unwrap();
        for _ in 0..2 {
            grow_in(&cluster, LENT, rack.clone()).await;
        }
        // Not even: no range has two slabs in the rack.
        let is_spread = || slabs(&cluster.pool).is_some_and(|all| all[3] > 0 && all[4] > 0);
        until(&env, &cluster, "spreads", is_spread).await;
        for range in &cluster.pool.state().ranges {
            let in_rack = range.slabs.iter().filter(|slab| slab.node >= 3);
            assert!(in_rack.count() <= 1, "{range:?}");
        }
        let error = cluster.memory.grow(&cluster.fabric, &env, 4096, rack).await.unwrap_err();
        assert!(error.to_string().starts_with("bytes_per_node = 4096 is not allowed"), "{error}");

        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let plain = EmbeddedPool::start(&fabric, coded(3, "plain")).unwrap();
        let error = plain.grow(&fabric, &env, LENT, FailureDomain::ALONE).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "memory node 3 is not wanted: all 3 memory nodes of the pool have joined, and one of coding plain gets no more"
        );
    });
}
