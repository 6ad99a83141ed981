//! Memory nodes that die: every page stays readable and writable.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::{Coherence, Engine, EngineConfig, EngineError};
use selkie_fabric::PeerId;
use selkie_pool::ComputeIndex;

use crate::common::load::until;
use crate::common::pages::{check, cluster, fill, pages, write};
use crate::common::{PAGE, engine_config, id};

/// Memory nodes are lost one after the other, and each time all engines read and change all pages.
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

#[test]
fn pages_of_a_dead_compute_node_are_lost_also_if_their_words_are() {
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
            let pool = &cluster.pool;
            let is_over = || pool.lost().is_empty() && pool.rebuilds().is_empty();
            until(&env, &cluster, "recovers", is_over).await;
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
            assert!(read > 60, "pages in the caches of others are not lost: {read}");
        });
    }
}

/// A node that had granted a page could not write it home, as more memory was lost than the coding
/// makes up for. The word named that node for ever, and it ended when it found itself there.
#[test]
fn a_page_that_memory_cannot_keep_is_passed_on_all_the_same() {
    let (mem, cluster) = cluster(2, 3, "2+1");
    cluster.run(async {
        let [one, two] = [0, 1].map(|number: usize| &cluster.engines[number]);
        let mut pages = pages(one, 30).await;
        // Their latch words are not lost.
        pages.retain(|addr| addr.to_u64() / PAGE as u64 % 3 == 2);
        assert!(!pages.is_empty());
        mem.kill(PeerId::memory(0));
        mem.kill(PeerId::memory(1));
        for addr in &pages {
            for value in (1..7).step_by(2) {
                assert_eq!(check(&two.shared(*addr).await.unwrap(), *addr), value);
                write(two, *addr, value + 1).await;
                assert_eq!(check(&one.shared(*addr).await.unwrap(), *addr), value + 1);
                write(one, *addr, value + 2).await;
            }
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
