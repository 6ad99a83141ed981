//! Coded pages: what is written is read, whichever memory nodes are lost.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::{Coherence, Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::PeerId;
use selkie_fabric::mem::MemFabric;
use selkie_memnode::{ComputeIndex, FailureDomain};

use crate::common::load::until;
use crate::common::pages::{check, cluster, coded, fill, pages, write};
use crate::common::{Cluster, GCL, PAGE, engine_config, id};

/// So many memory nodes are lost one after the other, and each time all pages are read, and
/// changed, by all.
fn loses(memory_nodes: usize, coding: &str, victims: &[u16]) {
    let (mem, cluster) = cluster(3, memory_nodes, coding);
    cluster.run(async {
        // More than a cache holds.
        let pages = pages(&cluster.engines[0], 2_000).await;
        for (round, victim) in (1..).zip(victims) {
            mem.kill(PeerId::memory(*victim));
            for (number, addr) in pages.iter().enumerate() {
                let engine = &cluster.engines[number % 3];
                let page = engine.shared(*addr).await.unwrap();
                assert_eq!(check(&page, *addr), round, "{addr}");
                drop(page);
                write(&cluster.engines[(number + 1) % 3], *addr, round + 1).await;
            }
        }
        for engine in &cluster.engines {
            engine.close().await.unwrap();
        }
    });
}

#[test]
fn any_memory_node_may_be_lost() {
    for victim in 0..3 {
        loses(3, "2+1", &[victim]);
    }
}

#[test]
fn any_r_memory_nodes_may_be_lost() {
    for (first, second) in [(0, 1), (1, 0), (5, 2), (3, 4)] {
        loses(6, "4+2", &[first, second]);
    }
    loses(4, "replicate=3", &[1, 2]);
    loses(11, "8+2", &[9, 0]);
}

#[test]
fn nothing_is_lost_while_all_write() {
    for victim in [0, 1, 2, 3] {
        let (mem, cluster) = cluster(3, 4, "2+1");
        let env = cluster.runtime.env();
        let total = Arc::new(AtomicU64::new(0));
        let pages = cluster.run(async { pages(&cluster.engines[0], 64).await });
        let tasks: Vec<_> = (0..6_u64)
            .map(|task| {
                let engine = cluster.engines[task as usize % 3].clone();
                let (pages, total, env) = (pages.clone(), Arc::clone(&total), env.clone());
                let mut seed = task * 7919 + 1;
                env.clone().spawn("writer", async move {
                    let until = env.now() + Duration::from_millis(600);
                    while env.now() < until {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let addr = pages[(seed >> 33) as usize % pages.len()];
                        if seed >> 20 & 3 == 0 {
                            check(&engine.shared(addr).await.unwrap(), addr);
                            continue;
                        }
                        let mut page = engine.exclusive(addr).await.unwrap();
                        let value = check(&page, addr);
                        fill(page.bytes_mut(0..PAGE), addr, value + 1);
                        total.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        cluster.run(async {
            env.sleep(Duration::from_millis(200)).await;
            mem.kill(PeerId::memory(victim));
            for task in tasks {
                task.join().await.unwrap();
            }
            let mut sum = 0;
            for addr in &pages {
                sum += check(&cluster.engines[1].shared(*addr).await.unwrap(), *addr) - 1;
            }
            assert_eq!(sum, total.load(Ordering::Relaxed), "of what was written");
            assert!(sum > 100, "{sum}");
        });
    }
}

#[test]
fn counters_outlive_the_memory_nodes_that_had_them() {
    let (mem, cluster) = cluster(2, 5, "2+2");
    cluster.run(async {
        let counter = cluster.engines[0].allocate_counter().await.unwrap();
        let mut expected = 0;
        for victim in [None, Some(0), Some(2)] {
            if let Some(victim) = victim {
                mem.kill(PeerId::memory(victim));
            }
            for turn in 0..100_usize {
                let before = cluster.engines[turn % 2].fetch_add(counter, 3).await.unwrap();
                assert_eq!(before, expected);
                expected += 3;
            }
        }
    });
}

/// Whether all slabs lie on living memory nodes, and have all their splits.
fn is_whole(cluster: &Cluster) -> bool {
    let state = cluster.pool.state();
    let mut slabs = state.ranges.iter().flat_map(|range| &range.slabs);
    state.regeneration.is_none()
        && slabs.all(|slab| !cluster.pool.is_memory_dead(usize::from(slab.node)))
}

#[test]
fn what_is_lost_is_made_again_while_others_write_and_as_much_may_be_lost_again() {
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
            // It is noticed by those who need it.
            loop {
                for (number, addr) in pages.iter().enumerate() {
                    let engine = &cluster.engines[(number + round as usize) % 3];
                    let mut page = engine.exclusive(*addr).await.unwrap();
                    assert_eq!(check(&page, *addr), round);
                    fill(page.bytes_mut(0..PAGE), *addr, round + 1);
                }
                round += 1;
                if is_whole(&cluster) && cluster.pool.is_memory_dead(usize::from(victim)) {
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

/// One memory node after the other that has a copy of the clock, also those that it was made again
/// at.
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
            while !(cluster.pool.is_memory_dead(usize::from(victim)) && is_whole(&cluster)) {
                // It is noticed by those who need it.
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

/// What the counter is when this victim is dead.
fn round_value(victim: u16) -> u64 {
    match victim {
        1 => 5,
        0 => 6,
        _ => 7,
    }
}

#[test]
fn what_a_compute_node_had_is_lost_with_it_also_if_the_words_that_said_so_are() {
    for victim in [0, 1, 2] {
        let (mem, cluster) = cluster(3, 4, "2+1");
        let env = cluster.runtime.env();
        cluster.run(async {
            let pages = pages(&cluster.engines[0], 300).await;
            for addr in pages.iter().step_by(3) {
                write(&cluster.engines[2], *addr, 2).await;
            }
            let dead = ComputeIndex::new(2);
            mem.kill(PeerId::memory(victim));
            cluster.pool.declare_memory_dead(victim).await.unwrap();
            cluster.pool.declare_dead(dead).await.unwrap();
            let started = env.now();
            while !cluster.pool.lost().is_empty() || !cluster.pool.rebuilds().is_empty() {
                assert!(
                    env.now() - started < Duration::from_secs(20),
                    "{:?}",
                    cluster.pool.state()
                );
                env.sleep(Duration::from_millis(1)).await;
            }
            let mut read = 0;
            for (number, addr) in pages.iter().enumerate() {
                match cluster.engines[number % 2].shared(*addr).await {
                    Ok(page) => {
                        assert_eq!((check(&page, *addr), number % 3 == 0), (1, false), "{addr}");
                        read += 1;
                    }
                    Err(EngineError::PageLost { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            assert!(read > 60, "what others have in their caches is not in doubt: {read}");
        });
    }
}

/// Flips a bit in a split of each of the pages, in another of them each time; again to flip it
/// back.
fn flip(cluster: &Cluster, pages: &[GAddr], splits: usize) {
    for (number, addr) in pages.iter().enumerate() {
        flip_split(cluster, *addr, number, |_, split| split == number % splits);
    }
}

/// Flips a bit of the page, chosen by the number, in the split for which that is asked: by its node
/// and number.
fn flip_split(cluster: &Cluster, addr: GAddr, number: usize, chosen: impl Fn(u16, usize) -> bool) {
    let (geometry, state) = (cluster.pool.descriptor().geometry(), cluster.pool.state());
    let (range, within) =
        (addr.to_u64() / geometry.range_bytes(), addr.to_u64() % geometry.range_bytes());
    let gcl = (within / GCL as u64) as u32;
    let slabs = &state.ranges[range as usize].slabs;
    for split in 0..slabs.len() {
        let slab = slabs[geometry.split_position(gcl, split)];
        if chosen(slab.node, split) {
            let nodes = cluster.pool.memory_nodes();
            let region = nodes[usize::from(slab.node)].region();
            let at = geometry.data_offset(slab.slab, gcl) as usize + 8 * (number % 7);
            region.store(at, region.load(at) ^ 1 << (number % 64));
        }
    }
}

/// Pages that are in no cache.
async fn cold_pages(cluster: &Cluster) -> Vec<GAddr> {
    let pages = pages(&cluster.engines[0], 200).await;
    for engine in &cluster.engines {
        for _ in 0..2_000 {
            drop(engine.allocate().await.unwrap());
        }
    }
    pages
}

#[test]
fn flipped_bits_are_noticed_and_mended() {
    for coding in ["2+1", "4+2", "2+3,mode=correct", "4+2,mode=ec-only"] {
        let splits = coding[..1].parse::<usize>().unwrap() + coding[2..3].parse::<usize>().unwrap();
        let (_, cluster) = cluster(2, splits, coding);
        let env = cluster.runtime.env();
        cluster.run(async {
            let pages = cold_pages(&cluster).await;
            flip(&cluster, &pages, splits);
            let engine = &cluster.engines[1];
            for addr in &pages {
                assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1, "{coding}");
            }
            let found = engine.stats().corruptions;
            assert!(found >= 200 / splits as u64, "{coding}: {found}");
            let started = env.now();
            while engine.stats().repairs < found {
                assert!(env.now() - started < Duration::from_secs(10), "{:?}", engine.stats());
                env.sleep(Duration::from_millis(1)).await;
            }
            if coding.contains("correct") {
                assert!(found >= 190, "{found}: after the first few all splits are compared");
            }
        });
    }
}

#[test]
fn what_a_node_has_found_damaged_is_written_again_before_it_leaves() {
    let (_, cluster) = cluster(3, 5, "2+3,mode=correct");
    cluster.run(async {
        let pages = cold_pages(&cluster).await;
        flip(&cluster, &pages, 5);
        let [_, first, second] = &cluster.engines[..] else { panic!("three nodes") };
        for addr in &pages {
            assert_eq!(check(&first.shared(*addr).await.unwrap(), *addr), 1);
        }
        // At once, before it looks for what is to be done.
        first.close().await.unwrap();
        let found = first.stats().corruptions;
        assert!(found >= 190, "{found}");
        assert_eq!(first.stats().repairs, found);
        let most = pages.len() as u64 - found;
        for addr in &pages {
            assert_eq!(check(&second.shared(*addr).await.unwrap(), *addr), 1);
        }
        assert!(second.stats().corruptions <= most, "{} of {most}", second.stats().corruptions);
    });
}

#[test]
fn where_damage_is_only_to_be_noticed_it_is_an_error() {
    let (_, cluster) = cluster(2, 3, "2+1,mode=detect");
    cluster.run(async {
        let pages = cold_pages(&cluster).await;
        flip(&cluster, &pages, 3);
        let engine = &cluster.engines[1];
        for (number, addr) in pages.iter().enumerate() {
            let got = match number % 2 {
                0 => engine.shared(*addr).await.map(drop),
                _ => engine.exclusive(*addr).await.map(drop),
            };
            assert!(matches!(got, Err(EngineError::PageDamaged { .. })), "{got:?}");
        }
        flip(&cluster, &pages, 3);
        for addr in &pages {
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1);
        }
    });
}

#[test]
fn the_rpc_baseline_refuses_a_coded_pool() {
    let (_, cluster) = cluster(0, 3, "2+1");
    let env = cluster.runtime.env();
    let config = EngineConfig { coherence: Coherence::Rpc, ..engine_config() };
    let started = Engine::start(&cluster.pool, &cluster.fabric, &env, id(0), config);
    let refused = cluster.run(started).map(drop).unwrap_err().to_string();
    assert!(refused.contains("coding 2+1 is not for rpc"), "{refused}");
}

#[test]
fn a_memory_node_that_errs_too_often_is_done_without() {
    let config =
        EngineConfig { error_correction_limit: 2, slab_regeneration_limit: 20, ..engine_config() };
    let cluster = Cluster::with(2, |_| MemFabric::new(), coded(4, "2+1"), config);
    let env = cluster.runtime.env();
    cluster.run(async {
        let pages = cold_pages(&cluster).await;
        let others = crate::common::pages::pages(&cluster.engines[0], 1_500).await;
        let erring = cluster.pool.state().ranges[0].slabs[1].node;
        let started = env.now();
        while cluster.pool.state().lives(erring) {
            for (number, addr) in pages.iter().enumerate() {
                flip_split(&cluster, *addr, number, |node, _| node == erring);
            }
            for addr in &pages {
                assert_eq!(check(&cluster.engines[1].shared(*addr).await.unwrap(), *addr), 1);
            }
            for addr in &others {
                drop(cluster.engines[1].shared(*addr).await.unwrap());
            }
            assert!(env.now() - started < Duration::from_secs(30), "{:?}", cluster.pool.state());
        }
        assert_eq!(cluster.pool.state().slabs_on(erring), 0);
        for addr in &pages {
            assert_eq!(check(&cluster.engines[0].shared(*addr).await.unwrap(), *addr), 1);
        }
    });
}

#[test]
fn a_node_joins_a_pool_that_has_lost_a_memory_node() {
    for victim in [0, 2] {
        let (mem, cluster) = cluster(1, 3, "2+1");
        cluster.run(async {
            let pages = pages(&cluster.engines[0], 100).await;
            mem.kill(PeerId::memory(victim));
            for addr in &pages {
                write(&cluster.engines[0], *addr, 2).await;
            }
            let (env, config) = (cluster.runtime.env(), engine_config());
            let joined = Engine::start(&cluster.pool, &cluster.fabric, &env, id(1), config);
            let joined = joined.await.unwrap();
            for addr in &pages {
                assert_eq!(check(&joined.shared(*addr).await.unwrap(), *addr), 2);
            }
            joined.close().await.unwrap();
        });
    }
}

/// Kills a memory node, and waits until what it had is made again.
async fn lose_and_make_again(mem: &MemFabric, cluster: &Cluster, victim: u16) {
    let env = cluster.runtime.env();
    mem.kill(PeerId::memory(victim));
    cluster.pool.declare_memory_dead(victim).await.unwrap();
    let started = env.now();
    while !is_whole(cluster) || !cluster.pool.rebuilds().is_empty() {
        assert!(env.now() - started < Duration::from_secs(20), "{:?}", cluster.pool.state());
        env.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn splits_that_were_never_written_are_made_again_as_such() {
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
            lose_and_make_again(&mem, &cluster, victim).await;
        }
        cluster.engines[0].close().await.unwrap();
        for addr in &pages {
            let page = cluster.engines[1].shared(*addr).await.unwrap();
            assert_eq!((page[9], page[PAGE - 1]), (7, 0), "{addr}");
        }
        assert_eq!(cluster.engines[1].stats().corruptions, 0);
    });
}

/// Found in simulation, with a home that was lost together with another split: who had the right to
/// change the page, and had changed nothing, went by the versions of before, and wrote them into
/// the header again.
#[test]
fn who_holds_a_page_hears_of_versions_that_are_new() {
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
            cluster.pool.grow(&cluster.fabric, &env, 8 << 20, FailureDomain::ALONE).await.unwrap();
        }
        until(&env, &cluster, "is made good", || crate::common::load::is_whole(&cluster.pool))
            .await;
        for addr in &pages {
            engine.exclusive(*addr).await.unwrap().bytes_mut(PAGE - 8..PAGE).fill(5);
            engine.evict(*addr).await.unwrap();
            assert_eq!(engine.shared(*addr).await.unwrap()[PAGE - 8..], [5; 8]);
        }
        assert_eq!(engine.stats().corruptions, 0);
    });
}

#[test]
fn a_slab_is_made_again_around_pages_that_are_lost() {
    let (mem, cluster) = cluster(3, 5, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let pages = pages(&cluster.engines[0], 300).await;
        for addr in pages.iter().step_by(3) {
            write(&cluster.engines[2], *addr, 2).await;
        }
        cluster.pool.declare_dead(ComputeIndex::new(2)).await.unwrap();
        let started = env.now();
        while !cluster.pool.lost().is_empty() {
            assert!(env.now() - started < Duration::from_secs(20), "{:?}", cluster.pool.state());
            env.sleep(Duration::from_millis(1)).await;
        }
        for victim in [0, 1] {
            lose_and_make_again(&mem, &cluster, victim).await;
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
