//! What a lost memory node had is regenerated on others, while engines read and write.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::time::Duration;

use selkie_engine::EngineError;
use selkie_fabric::PeerId;
use selkie_fabric::mem::MemFabric;
use selkie_pool::{ComputeIndex, FailureDomain};

use crate::common::load::{is_whole, until};
use crate::common::pages::{check, cluster, fill, pages, write};
use crate::common::{Cluster, PAGE};

#[test]
fn lost_slabs_are_regenerated_while_others_write_and_as_many_may_be_lost_again() {
    let (mem, cluster) = cluster(3, 6, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let pages = pages(&cluster.engines[0], 3_000).await;
        let counter = cluster.engines[0].allocate_counter().await.unwrap();
        assert_eq!(cluster.engines[0].fetch_add(counter, 5).await.unwrap(), 0);
        let mut round = 1;
        for victim in [1, 0, 3] {
            mem.kill(PeerId::memory(victim));
            let started = env.now();
            // The engines that use the memory node notice its death.
            loop {
                for (number, addr) in pages.iter().enumerate() {
                    let engine = &cluster.engines[(number + round as usize) % 3];
                    let mut page = engine.exclusive(*addr).await.unwrap();
                    assert_eq!(check(&page, *addr), round);
                    fill(page.bytes_mut(0..PAGE), *addr, round + 1);
                }
                round += 1;
                if is_whole(&cluster.pool) && cluster.pool.is_memory_dead(usize::from(victim)) {
                    break;
                }
                assert!(
                    env.now() - started < Duration::from_secs(30),
                    "{:?}",
                    cluster.pool.state()
                );
            }
            assert_eq!(
                cluster.engines[1].fetch_add(counter, 1).await.unwrap(),
                round_value(victim)
            );
        }
        for addr in &pages {
            assert_eq!(check(&cluster.engines[2].shared(*addr).await.unwrap(), *addr), round);
        }
    });
}

/// The value of the counter after the death of this memory node.
fn round_value(victim: u16) -> u64 {
    match victim {
        1 => 5,
        0 => 6,
        _ => 7,
    }
}

/// Each memory node with a copy of the clock dies, one after the other, also those with a
/// regenerated copy.
#[test]
fn the_clock_outlives_all_memory_nodes_that_had_it() {
    let (mem, cluster) = cluster(2, 6, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let mut expected = 0;
        for position in [0, 1, 0] {
            for turn in 0..20 {
                assert_eq!(
                    cluster.engines[turn % 2].advance_clock(2).await.unwrap(),
                    expected,
                    "beside position {position}"
                );
                expected += 2;
            }
            expected += 500;
            cluster.engines[1].raise_clock(expected).await.unwrap();
            let victim = cluster.pool.state().ranges[0].slabs[position].node;
            mem.kill(PeerId::memory(victim));
            let started = env.now();
            while !(cluster.pool.is_memory_dead(usize::from(victim)) && is_whole(&cluster.pool)) {
                // The engines that use the memory node notice its death.
                let page = cluster.engines[0].allocate().await.unwrap();
                cluster.engines[0].free(page);
                assert_eq!(cluster.engines[0].advance_clock(1).await.unwrap(), expected);
                expected += 1;
                assert!(env.now() - started < Duration::from_secs(30));
                env.sleep(Duration::from_millis(1)).await;
            }
        }
        assert_eq!(cluster.engines[1].advance_clock(1).await.unwrap(), expected);
    });
}

/// Kills a memory node, and waits until its slabs are regenerated.
async fn lose_and_regenerate(mem: &MemFabric, cluster: &Cluster, victim: u16) {
    mem.kill(PeerId::memory(victim));
    cluster.pool.declare_memory_dead(victim).await.unwrap();
    let env = cluster.runtime.env();
    until(&env, cluster, "is regenerated", || is_whole(&cluster.pool)).await;
}

#[test]
fn splits_that_were_never_written_are_regenerated_as_such() {
    let (mem, cluster) = cluster(2, 5, "2+1");
    cluster.run(async {
        let mut pages = Vec::new();
        for _ in 0..300 {
            let mut page = cluster.engines[0].allocate().await.unwrap();
            // The second data split stays as it is.
            page.bytes_mut(8..16).fill(7);
            pages.push(page.addr());
        }
        for victim in [0, 1] {
            // All of them go home, and come from there.
            for addr in &pages {
                let page = cluster.engines[usize::from(victim) % 2].exclusive(*addr).await.unwrap();
                assert_eq!((page[9], page[PAGE - 1]), (7, 0), "{addr}");
            }
            lose_and_regenerate(&mem, &cluster, victim).await;
        }
        cluster.engines[0].close().await.unwrap();
        for addr in &pages {
            let page = cluster.engines[1].shared(*addr).await.unwrap();
            assert_eq!((page[9], page[PAGE - 1]), (7, 0), "{addr}");
        }
        assert_eq!(cluster.engines[1].stats().corruptions, 0);
    });
}

/// Found in simulation, with a home that was lost together with another split: a node that held the
/// page unchanged used the versions from before, and wrote them into the header again.
#[test]
fn the_holder_of_a_page_learns_its_new_versions() {
    let (mem, cluster) = cluster(1, 4, "2+2");
    let (engine, env) = (&cluster.engines[0], cluster.runtime.env());
    cluster.run(async {
        let pages = pages(engine, 60).await;
        for addr in &pages {
            engine.evict(*addr).await.unwrap();
            drop(engine.exclusive(*addr).await.unwrap());
        }
        for victim in [0, 1] {
            mem.kill(PeerId::memory(victim));
            cluster.pool.declare_memory_dead(victim).await.unwrap();
        }
        until(&env, &cluster, "headers are moved", || cluster.pool.rebuilds().is_empty()).await;
        for _ in 0..2 {
            cluster
                .memory
                .grow(&cluster.fabric, &env, 8 << 20, FailureDomain::ALONE)
                .await
                .unwrap();
        }
        until(&env, &cluster, "is regenerated", || is_whole(&cluster.pool)).await;
        for addr in &pages {
            engine.exclusive(*addr).await.unwrap().bytes_mut(PAGE - 8..PAGE).fill(5);
            engine.evict(*addr).await.unwrap();
            assert_eq!(engine.shared(*addr).await.unwrap()[PAGE - 8..], [5; 8]);
        }
        assert_eq!(engine.stats().corruptions, 0);
    });
}

#[test]
fn a_slab_is_regenerated_around_pages_that_are_lost() {
    let (mem, cluster) = cluster(3, 5, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let pages = pages(&cluster.engines[0], 300).await;
        for addr in pages.iter().step_by(3) {
            write(&cluster.engines[2], *addr, 2).await;
        }
        cluster.pool.declare_dead(ComputeIndex::new(2)).await.unwrap();
        until(&env, &cluster, "recovers", || cluster.pool.lost().is_empty()).await;
        for victim in [0, 1] {
            lose_and_regenerate(&mem, &cluster, victim).await;
        }
        let mut lost = 0;
        for (number, addr) in pages.iter().enumerate() {
            match cluster.engines[number % 2].shared(*addr).await {
                Ok(page) => assert_eq!(check(&page, *addr), 1),
                Err(EngineError::PageLost { .. }) => lost += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(lost, 100);
    });
}
