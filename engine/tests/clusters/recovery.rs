//! The death of a compute node: the survivors take it out of the latch words and
//! continue.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use selkie_engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::env::{Env, yield_now};
use selkie_fabric::fault::{Delay, FaultFabric, FaultPlan};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{FabricError, PeerId};
use selkie_pool::ComputeIndex;

use crate::common::{Cluster, GCL, PAGE, engine_config, pool_config};

const DEAD: usize = 2;
/// Tasks that want a lost page, and how often each of them tries.
const TASKS: usize = 4;
const REFUSALS: usize = 50_000;

fn cluster() -> Cluster {
    let config = EngineConfig { cache_bytes: 4096 * GCL as u64, ..engine_config() };
    Cluster::with(3, |_| MemFabric::new(), pool_config(3, 8 << 20), config)
}

async fn pages(cluster: &Cluster, count: usize) -> Vec<GAddr> {
    let mut pages = Vec::new();
    for _ in 0..count {
        let page = cluster.engines[0].allocate().await.unwrap();
        pages.push(page.addr());
    }
    pages
}

async fn write(cluster: &Cluster, node: usize, addr: GAddr, value: u64) {
    let mut page = cluster.engines[node].exclusive(addr).await.unwrap();
    page.bytes_mut(0..8).copy_from_slice(&value.to_le_bytes());
    page.bytes_mut(PAGE - 8..PAGE).copy_from_slice(&value.to_le_bytes());
}

/// The two copies of the value in a page, which agree.
fn value(page: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), word(PAGE - 8), "a torn page");
    word(0)
}

/// Node 2 dies; returns when the survivors have recovered.
async fn dies(cluster: &Cluster) {
    let node = ComputeIndex::new(DEAD as u16);
    cluster.pool.declare_dead(node).await.unwrap();
    let env = cluster.runtime.env();
    let started = env.now();
    assert!(!cluster.pool.is_member(node));
    while !cluster.pool.lost().is_empty() {
        assert!(env.now() - started < Duration::from_secs(10), "{}", cluster.describe());
        env.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn what_the_dead_only_read_goes_on_and_what_it_held_alone_is_lost() {
    let cluster = cluster();
    cluster.run(async {
        let pages = pages(&cluster, 300).await;
        for (number, addr) in pages.iter().enumerate() {
            write(&cluster, number % 2, *addr, number as u64).await;
            match number % 3 {
                0 => drop(cluster.engines[DEAD].shared(*addr).await.unwrap()),
                1 => write(&cluster, DEAD, *addr, 1_000).await,
                _ => {}
            }
        }
        dies(&cluster).await;
        let mut lost = BTreeSet::new();
        for (number, addr) in pages.iter().enumerate() {
            for node in [0, 1] {
                match cluster.engines[node].shared(*addr).await {
                    Ok(page) => assert_eq!(value(&page), number as u64),
                    Err(EngineError::PageLost { addr: of, node }) => {
                        assert_eq!((of, node), (*addr, None), "nothing can bring it back");
                        lost.insert(addr.to_u64());
                    }
                    Err(error) => panic!("{error}"),
                }
                let exclusive = cluster.engines[node].try_exclusive(*addr).await.map(drop);
                let is_lost = matches!(exclusive, Err(EngineError::PageLost { .. }));
                assert_eq!(is_lost, lost.contains(&addr.to_u64()), "{exclusive:?}");
            }
        }
        let expected = pages.iter().enumerate().filter(|(number, _)| number % 3 == 1);
        let expected: BTreeSet<u64> = expected.map(|(_, addr)| addr.to_u64()).collect();
        assert_eq!(lost, expected);
        assert_eq!(cluster.pool.lost_pages(), expected.iter().copied().collect::<Vec<_>>());

        for page in [0, 1, 299] {
            let gone = cluster.engines[DEAD].shared(pages[page]).await.map(drop);
            assert!(matches!(gone, Err(EngineError::Expelled { .. })), "{page}: {gone:?}");
            let gone = cluster.engines[DEAD].try_exclusive(pages[page]).await.map(drop);
            assert!(matches!(gone, Err(EngineError::Expelled { .. })), "{page}: {gone:?}");
        }
        for node in [0, 1] {
            cluster.engines[node].close().await.unwrap();
        }
        // Only the lost pages' words say anything, and that is whose they were.
        assert_eq!(cluster.latched_words().await.len(), expected.len());
    });
}

/// A caller that was refused again removed the ticket of another caller, which then waited in no
/// queue, for ever.
#[test]
fn no_caller_of_many_waits_for_ever_for_a_lost_page() {
    // Operations are delayed, so that callers wait.
    let (at_least, at_most) = (Duration::ZERO, Duration::from_nanos(1));
    let plan = FaultPlan { delay: Delay { one_in: 5, at_least, at_most }, ..FaultPlan::none(7) };
    let fabric = |env: &Env| FaultFabric::wrap(MemFabric::new(), plan, env.clone()) as _;
    let cluster = Cluster::with(3, fabric, pool_config(3, 8 << 20), engine_config());
    cluster.run(async {
        let addr = pages(&cluster, 1).await[0];
        write(&cluster, DEAD, addr, 5).await;
        dies(&cluster).await;
        let env = cluster.runtime.env();
        let refused = Arc::new(AtomicUsize::new(0));
        for task in 0..TASKS {
            let (engine, refused) = (cluster.engines[0].clone(), Arc::clone(&refused));
            drop(env.spawn("caller", async move {
                for turn in 0..REFUSALS {
                    let got = if (task + turn) % 2 == 0 {
                        engine.shared(addr).await.map(drop)
                    } else {
                        engine.exclusive(addr).await.map(drop)
                    };
                    assert!(matches!(got, Err(EngineError::PageLost { .. })), "{got:?}");
                    refused.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            }));
        }
        let until = env.now() + Duration::from_secs(30);
        while refused.load(Ordering::Relaxed) < TASKS * REFUSALS {
            let so_far = refused.load(Ordering::Relaxed);
            assert!(env.now() < until, "{so_far} of {} were told", TASKS * REFUSALS);
            env.sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn a_new_node_knows_what_is_lost_and_may_have_the_name_of_the_dead_one() {
    let cluster = cluster();
    cluster.run(async {
        let pages = pages(&cluster, 2).await;
        write(&cluster, DEAD, pages[1], 5).await;
        dies(&cluster).await;
        let env = cluster.runtime.env();
        let start = |node| {
            let (pool, fabric) = (&cluster.pool, &cluster.fabric);
            Engine::start(pool, fabric, &env, crate::common::id(node), engine_config())
        };
        let late = start(3).await.unwrap();
        assert!(late.shared(pages[0]).await.is_ok());
        let lost = late.exclusive(pages[1]).await.map(drop);
        assert!(matches!(lost, Err(EngineError::PageLost { node: None, .. })), "{lost:?}");
        let again = start(DEAD).await.unwrap();
        let lost = again.exclusive(pages[1]).await.map(drop);
        assert!(matches!(lost, Err(EngineError::PageLost { node: None, .. })), "{lost:?}");
        assert!(again.shared(pages[0]).await.is_ok());
    });
}

/// Nodes join under one index; some leave and some die. Their successors find no trace of them.
#[test]
fn a_name_that_no_word_contains_is_used_again() {
    let mut cluster = cluster();
    let mut latest = cluster.engines.pop().unwrap();
    cluster.run(async {
        let pages = pages(&cluster, 40).await;
        let env = cluster.runtime.env();
        let mut expected = vec![0; pages.len()];
        for round in 0..12 {
            for turn in 0..200 {
                let (node, page) = (turn % 3, turn * 7 % pages.len());
                let engine = if node == DEAD { &latest } else { &cluster.engines[node] };
                if turn % 5 == 0 {
                    assert_eq!(value(&engine.shared(pages[page]).await.unwrap()), expected[page]);
                    continue;
                }
                let mut guard = engine.exclusive(pages[page]).await.unwrap();
                expected[page] += 1;
                assert_eq!(value(&guard) + 1, expected[page], "cn{node}, round {round}");
                guard.bytes_mut(0..8).copy_from_slice(&u64::to_le_bytes(expected[page]));
                guard.bytes_mut(PAGE - 8..PAGE).copy_from_slice(&u64::to_le_bytes(expected[page]));
            }
            if round % 2 == 0 {
                latest.close().await.unwrap();
            } else {
                // What it holds alone would be lost, and its name with that.
                for page in &pages {
                    drop(cluster.engines[round % 4 / 2].exclusive(*page).await.unwrap());
                    drop(latest.shared(*page).await.unwrap());
                }
                dies(&cluster).await;
                assert!(cluster.pool.lost_pages().is_empty());
                assert!(cluster.fabric.fence(PeerId::compute(DEAD as u16)).is_ok());
            }
            let before = std::mem::replace(&mut latest, cluster.engines[0].clone());
            // The last handle of one that died may go before or after the name is used again.
            let kept = (round % 4 == 1).then(|| before.clone());
            drop(before);
            latest = loop {
                let (pool, fabric, id) = (&cluster.pool, &cluster.fabric, crate::common::id(DEAD));
                match Engine::start(pool, fabric, &env, id, engine_config()).await {
                    // Its tasks have not all seen yet that they are to end.
                    Err(EngineError::Fabric(FabricError::AlreadyJoined { .. })) => {
                        env.sleep(Duration::from_millis(1)).await;
                    }
                    started => break started.unwrap(),
                }
            };
            if let Some(dead) = kept {
                let gone = dead.shared(pages[0]).await.map(drop);
                assert!(matches!(gone, Err(EngineError::Expelled { .. })), "{gone:?}");
            }
        }
    });
}

/// What a worker may meet: the dying node anything, survivors only what is lost.
fn expected(node: usize, error: &EngineError) {
    assert!(node == DEAD || matches!(error, EngineError::PageLost { .. }), "cn{node}: {error}");
}

/// Survivors count in pages that the dying node works on too; nothing that they wrote after its
/// death is lost.
#[test]
fn survivors_go_on_while_a_node_dies_in_the_middle_of_everything() {
    for round in 0..20 {
        let cluster = cluster();
        let env = cluster.runtime.env();
        cluster.run(async {
            let pages = Arc::new(pages(&cluster, 12).await);
            let stop = Arc::new(AtomicBool::new(false));
            let written = Arc::new((0..12).map(|_| AtomicU64::new(0)).collect::<Vec<_>>());
            let mut workers = Vec::new();
            for (node, engine) in cluster.engines.iter().enumerate() {
                for worker in 0..3 {
                    let (engine, pages) = (engine.clone(), Arc::clone(&pages));
                    let (stop, written) = (Arc::clone(&stop), Arc::clone(&written));
                    workers.push(env.spawn("worker", async move {
                        let mut turn = worker * 5 + node;
                        while !stop.load(Ordering::Relaxed) {
                            turn = (turn * 7 + 3) % 12;
                            if turn.is_multiple_of(3) {
                                match engine.shared(pages[turn]).await {
                                    Ok(page) => assert!(value(&page) < u64::MAX),
                                    Err(error) => expected(node, &error),
                                }
                            } else {
                                match engine.exclusive(pages[turn]).await {
                                    Ok(mut page) => {
                                        let next = (value(&page) + 1).to_le_bytes();
                                        page.bytes_mut(0..8).copy_from_slice(&next);
                                        page.bytes_mut(PAGE - 8..PAGE).copy_from_slice(&next);
                                        if node != DEAD {
                                            written[turn].fetch_add(1, Ordering::Relaxed);
                                        }
                                    }
                                    Err(error) => expected(node, &error),
                                }
                            }
                            selkie_fabric::env::yield_now().await;
                        }
                    }));
                }
            }
            env.sleep(Duration::from_millis(3 + round % 5)).await;
            let _reach = cluster.fabric.fence(PeerId::compute(DEAD as u16)).unwrap();
            dies(&cluster).await;
            let before: Vec<u64> = written.iter().map(|w| w.load(Ordering::Relaxed)).collect();
            env.sleep(Duration::from_millis(5)).await;
            stop.store(true, Ordering::Relaxed);
            for worker in workers {
                worker.join().await.unwrap();
            }
            let after: Vec<u64> = written.iter().map(|w| w.load(Ordering::Relaxed)).collect();
            let lost = cluster.pool.lost_pages();
            for (number, addr) in pages.iter().enumerate() {
                let grown = after[number] - before[number];
                let is_lost = lost.contains(&addr.to_u64());
                assert!(!is_lost || grown == 0, "page {number} is lost and was written");
                match cluster.engines[0].shared(*addr).await {
                    Ok(page) => {
                        assert!(!is_lost);
                        assert!(value(&page) >= after[number], "a write was lost");
                    }
                    Err(error) => assert!(is_lost, "{error}"),
                }
            }
            assert!(lost.len() < 12, "something went on");
            for node in [0, 1] {
                cluster.engines[node].close().await.unwrap();
            }
            assert_eq!(cluster.latched_words().await.len(), lost.len(), "{}", cluster.describe());
        });
    }
}
