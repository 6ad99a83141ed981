//! Memory nodes that leave a coded pool under load: nothing is lost, no caller gets an
//! error, and redundancy is never less than before.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{Engine, EngineError};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Fabric, PeerId};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{ComputeIndex, MigrationStage, Pool};

use crate::common::load::{AtStage, Load, check_all, is_whole, prepare, until};
use crate::common::pages::{check, cluster, coded, pages, write};
use crate::common::{Cluster, engine_config, id};

fn has_left(pool: &Pool, node: u16) -> bool {
    pool.state().leaving_of(node).has_left
}

fn drains(memory_nodes: usize, coding: &str, victims: &[u16], lost_after: &[u16]) {
    let (mem, cluster) = cluster(3, memory_nodes, coding);
    let env = cluster.runtime.env();
    cluster.run(async {
        let (pages, counter) = prepare(&cluster, 1_500).await;
        let load = Load::start(&cluster, &pages, counter);
        for victim in victims {
            let leaving = cluster.pool.drain(*victim).await.unwrap();
            assert!(leaving.slabs > 0, "there is something to move");
            until(&env, &cluster, "leaves", || has_left(&cluster.pool, *victim)).await;
            // Its process ends.
            mem.kill(PeerId::memory(*victim));
            env.sleep(Duration::from_millis(20)).await;
        }
        for victim in lost_after {
            mem.kill(PeerId::memory(*victim));
        }
        env.sleep(Duration::from_millis(100)).await;
        load.ends_well(&cluster, &pages).await;
    });
}

#[test]
fn memory_nodes_leave_one_after_the_other_while_all_work() {
    drains(6, "2+1", &[0, 3, 5], &[]);
}

#[test]
fn as_many_as_there_are_parity_splits_may_be_lost_right_after() {
    drains(5, "2+1", &[1], &[0]);
    drains(8, "4+2", &[2, 0], &[1, 5]);
    drains(4, "replicate=2", &[0, 1], &[3]);
}

/// Kills memory nodes when the migration of a slab from another reaches a stage; without names, the
/// memory node that receives the slab.
fn loses(memory_nodes: usize, coding: &str, leaves: u16, lost: &[u16], stage: MigrationStage) {
    let (mem, cluster) = cluster(3, memory_nodes, coding);
    let env = cluster.runtime.env();
    cluster.run(async {
        let (pages, counter) = prepare(&cluster, 1_500).await;
        let load = Load::start(&cluster, &pages, counter);
        let (killer, named) = (Arc::clone(&mem), lost.to_vec());
        let watch = AtStage::watch(&cluster.pool, stage, move |task| {
            let target = [task.to.node];
            let lost = if named.is_empty() { &target[..] } else { &named };
            lost.iter().for_each(|victim| killer.kill(PeerId::memory(*victim)));
        });
        cluster.pool.drain(leaves).await.unwrap();
        until(&env, &cluster, "moves", || watch.met.get().is_some()).await;
        let target = [watch.met.get().unwrap().to.node];
        let lost = if lost.is_empty() { &target[..] } else { lost };
        if !lost.contains(&leaves) {
            until(&env, &cluster, "leaves", || has_left(&cluster.pool, leaves)).await;
        }
        let is_known = || {
            let state = cluster.pool.state();
            lost.iter().all(|victim| !state.lives(*victim)) && is_whole(&cluster.pool)
        };
        until(&env, &cluster, "is regenerated", is_known).await;
        let outcomes = load.end().await;
        check_all(&cluster.engines[1], &pages, &outcomes).await;
        check_all(&cluster.engines[2], &pages, &outcomes).await;
        // And the next.
        let state = cluster.pool.state();
        let next = state.ranges[0].slabs[0].node;
        mem.kill(PeerId::memory(next));
        check_all(&cluster.engines[0], &pages, &outcomes).await;
    });
}

const STAGES: [MigrationStage; 5] = [
    MigrationStage::Clearing,
    MigrationStage::Copying,
    MigrationStage::Switching,
    MigrationStage::Switched,
    MigrationStage::Settling,
];

#[test]
fn the_loss_of_a_memory_node_that_leaves_is_that_of_any() {
    for stage in STAGES {
        loses(5, "2+1", 2, &[2], stage);
    }
}

#[test]
fn other_memory_nodes_may_be_lost_while_one_leaves() {
    for (stage, lost) in STAGES.into_iter().zip([0, 1, 3, 4, 0]) {
        loses(5, "2+1", 2, &[lost], stage);
        loses(9, "4+2", 2, &[lost, 6], stage);
    }
}

#[test]
fn one_that_took_slabs_may_be_lost_before_the_other_has_left() {
    for stage in STAGES {
        loses(6, "2+2", 0, &[], stage);
    }
}

#[test]
fn the_node_that_moves_slabs_may_die() {
    for stage in STAGES {
        let (mem, cluster) = cluster(3, 5, "2+1");
        let env = cluster.runtime.env();
        cluster.run(async {
            let (pages, counter) = prepare(&cluster, 1_200).await;
            let load = Load::start(&cluster, &pages, counter);
            let killer = Arc::clone(&mem);
            let watch = AtStage::watch(&cluster.pool, stage, move |task| {
                killer.kill(PeerId::compute(task.by));
            });
            cluster.pool.drain(1).await.unwrap();
            until(&env, &cluster, "moves", || watch.met.get().is_some()).await;
            let dead = watch.met.get().unwrap().by;
            cluster.pool.declare_dead(ComputeIndex::new(dead)).await.unwrap();
            until(&env, &cluster, "leaves", || has_left(&cluster.pool, 1)).await;
            mem.kill(PeerId::memory(1));
            until(&env, &cluster, "recovers", || cluster.pool.lost().is_empty()).await;
            let outcomes = load.end().await;
            let lives = usize::from(dead + 1) % 3;
            let mut lost = 0;
            for (number, addr) in pages.iter().enumerate() {
                match cluster.engines[lives].shared(*addr).await {
                    // Pages that only the dead node changed, or that several nodes changed.
                    Err(EngineError::PageLost { .. }) => lost += 1,
                    page => {
                        let value = check(&page.unwrap(), *addr);
                        let others = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok());
                        let known: u64 = others.map(|(changed, _)| changed[number]).sum();
                        assert!(value > known, "{addr}: {value}, {known} known");
                    }
                }
            }
            assert!(lost < pages.len() / 2, "{lost} pages are lost");
            let survivors = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            assert_eq!(survivors, 4, "only writers of the dead node meet errors: {outcomes:?}");
        });
    }
}

#[test]
fn new_ranges_keep_away_from_a_memory_node_that_leaves() {
    let (_, cluster) = cluster(2, 4, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let first = pages(&cluster.engines[0], 200).await;
        cluster.pool.drain(3).await.unwrap();
        let mut all = first;
        while !has_left(&cluster.pool, 3) {
            all.extend(pages(&cluster.engines[1], 300).await);
            assert!(all.len() < 40_000, "{:?}", cluster.pool.state());
        }
        all.extend(pages(&cluster.engines[1], 2_000).await);
        env.sleep(Duration::from_millis(1)).await;
        assert_eq!(cluster.pool.state().slabs_on(3), 0);
        for addr in &all {
            assert_eq!(check(&cluster.engines[0].shared(*addr).await.unwrap(), *addr), 1);
        }
    });
}

#[test]
fn a_memory_node_that_is_needed_stays_and_is_told_why() {
    let (_, cluster) = cluster(1, 4, "2+1");
    let refused = |cluster: &Cluster, node: u16| {
        cluster.run(cluster.pool.drain(node)).unwrap_err().to_string()
    };
    assert_eq!(refused(&cluster, 4), "mem4 cannot leave: the pool has no such memory node");
    cluster.run(cluster.pool.drain(1)).unwrap();
    let env = cluster.runtime.env();
    cluster.run(until(&env, &cluster, "leaves", || has_left(&cluster.pool, 1)));
    assert_eq!(refused(&cluster, 1), "mem1 cannot leave: it has left already");
    assert_eq!(
        refused(&cluster, 0),
        "mem0 cannot leave: 2 memory nodes in 2 failure domains would stay; coding 2+1 needs 3"
    );
    assert!(cluster.pool.state().stays(0), "it is as before");

    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let pool = EmbeddedPool::start(&fabric, coded(4, "plain")).unwrap();
    let error = cluster.run(pool.pool().drain(0)).unwrap_err().to_string();
    assert!(
        error.ends_with("pages of coding plain lie where they are made, and cannot be moved"),
        "{error}"
    );
}

#[test]
fn a_memory_node_whose_slabs_have_no_room_elsewhere_stays() {
    let (_, cluster) = cluster(1, 4, "2+1");
    cluster.run(async {
        // All ranges that there is room for.
        let mut ranges = 0;
        while cluster.pool.add_range(&cluster.runtime.env(), ranges).await.unwrap().is_some() {
            ranges += 1;
        }
        let slabs = cluster.pool.state().slabs_on(0);
        let error = cluster.pool.drain(0).await.unwrap_err().to_string();
        let says = format!("{slabs} slabs are to be moved, and the others have room for ");
        assert!(error.contains(&says), "{error}");
    });
}

#[test]
fn compute_nodes_join_when_memory_nodes_have_left_and_died() {
    let (mem, cluster) = cluster(2, 5, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let all = pages(&cluster.engines[0], 1_000).await;
        cluster.pool.drain(0).await.unwrap();
        until(&env, &cluster, "leaves", || has_left(&cluster.pool, 0)).await;
        mem.kill(PeerId::memory(0));
        mem.kill(PeerId::memory(3));
        let (fabric, pool) = (&cluster.fabric, &cluster.pool);
        let third = Engine::start(pool, fabric, &env, id(2), engine_config()).await.unwrap();
        for (number, addr) in all.iter().enumerate() {
            assert_eq!(check(&third.shared(*addr).await.unwrap(), *addr), 1);
            write([&third, &cluster.engines[1]][number % 2], *addr, 2).await;
        }
        for addr in &all {
            assert_eq!(check(&cluster.engines[0].shared(*addr).await.unwrap(), *addr), 2);
        }
    });
}
