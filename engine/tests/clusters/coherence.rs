//! Latches and pages across engines: exclusion, freshness, refusal, waiting, upgrade, hand-over.
#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::{Engine, EngineError, GAddr};
use selkie_fabric::env::yield_now;
use selkie_fabric::mem::MemFabric;

use crate::common::processes::in_virtual_time;
use crate::common::{Cluster, GCL, PAGE, engine_config, get, page, pool_config};

#[test]
fn a_write_is_seen_by_every_other_node_and_comes_back() {
    let cluster = Cluster::new(3);
    cluster.run(async {
        let addr = page(&cluster.engines[0]).await;
        for round in 1..50u64 {
            let writer = &cluster.engines[round as usize % 3];
            {
                let mut guard = writer.exclusive(addr).await.unwrap();
                assert_eq!(get(&guard), round - 1);
                guard.bytes_mut(0..8).copy_from_slice(&round.to_le_bytes());
                guard.bytes_mut(PAGE - 1..PAGE).fill(round as u8);
            }
            for reader in &cluster.engines {
                let guard = reader.shared(addr).await.unwrap();
                assert_eq!(get(&guard), round);
                assert_eq!(guard[PAGE - 1], round as u8);
            }
        }
    });
    cluster.close_and_check();
}

#[test]
fn try_is_busy_exactly_when_somebody_is_in_the_way() {
    let cluster = Cluster::new(2);
    let (a, b) = (&cluster.engines[0], &cluster.engines[1]);
    cluster.run(async {
        let addr = page(a).await;
        let busy =
            |r: EngineError| assert!(matches!(r, EngineError::Busy { addr: at } if at == addr));
        let held = a.exclusive(addr).await.unwrap();
        for engine in [a, b] {
            busy(engine.try_shared(addr).await.unwrap_err());
            busy(engine.try_exclusive(addr).await.unwrap_err());
        }
        let held = held.downgrade();
        for engine in [a, b] {
            drop(engine.try_shared(addr).await.expect("readers share"));
            busy(engine.try_exclusive(addr).await.unwrap_err());
        }
        drop(held);
        drop(b.try_exclusive(addr).await.expect("no other access is in the way"));
        drop(a.try_exclusive(addr).await.expect("no other access is in the way"));
    });
    cluster.close_and_check();
}

/// It was Busy while the page was only on its way from its home, fetched for another caller.
#[test]
fn try_joins_a_fetch_and_is_busy_once_that_waits_for_another_node() {
    in_virtual_time(1, Duration::from_millis(200), async |processes, env, _| {
        let [a, b] = processes.engines.clone();
        let addr = page(&b).await;
        b.evict(addr).await.unwrap();
        let fetched = env.spawn("fetch", {
            let a = a.clone();
            async move { drop(a.shared(addr).await.unwrap()) }
        });
        yield_now().await;
        drop(a.try_shared(addr).await.expect("no other node has the page"));
        fetched.join().await.unwrap();

        // A page that it has never had: that another node holds it is found at its home.
        let addr = page(&b).await;
        let held = b.exclusive(addr).await.unwrap();
        let waits = env.spawn("wait", {
            let a = a.clone();
            async move { drop(a.shared(addr).await.unwrap()) }
        });
        yield_now().await;
        let began = env.now();
        for _ in 0..2 {
            let error = a.try_shared(addr).await.unwrap_err();
            assert!(matches!(error, EngineError::Busy { .. }), "{error}");
        }
        assert!(env.now() - began < Duration::from_millis(1), "it waits for no other node");
        drop(held);
        waits.join().await.unwrap();
        processes.close().await;
    });
}

#[test]
fn others_wait_for_a_page_that_is_held_until_the_hold_ends_or_is_over() {
    let hold = Duration::from_millis(20);
    in_virtual_time(1, Duration::from_millis(200), async |processes, env, _| {
        let [a, b] = processes.engines.clone();
        let addr = page(&a).await;
        for ends_early in [true, false] {
            let page = a.exclusive(addr).await.unwrap().downgrade();
            page.hold_for(hold);
            drop(page);
            let began = env.now();
            let waits = env.spawn("wait", {
                let b = b.clone();
                async move { drop(b.exclusive(addr).await.unwrap()) }
            });
            env.sleep(hold / 2).await;
            if ends_early {
                a.end_hold(addr);
            }
            waits.join().await.unwrap();
            let waited = env.now() - began;
            let least = if ends_early { hold / 2 } else { hold };
            assert!(waited >= least && waited < least + hold / 4, "{ends_early}: {waited:?}");
            // One that does not wait gets it at once.
            let page = a.exclusive(addr).await.unwrap().downgrade();
            page.hold_for(hold);
            drop(page);
            drop(b.try_exclusive(addr).await.expect("no caller of the other node uses it"));
        }
        processes.close().await;
    });
}

#[test]
fn a_cancelled_intent_leaves_readers_and_later_writers_unharmed() {
    let cluster = Cluster::new(3);
    cluster.run(async {
        let addr = page(&cluster.engines[0]).await;
        let reader = cluster.engines[1].shared(addr).await.unwrap();
        drop(cluster.engines[2].shared(addr).await.unwrap());
        for _ in 0..3 {
            let error = cluster.engines[0].try_exclusive(addr).await.unwrap_err();
            assert!(matches!(error, EngineError::Busy { .. }));
        }
        assert_eq!(get(&reader), 0, "the reader's latch still holds");
        drop(reader);
        // The idle reader's answer to the cancelled intent may still be owed, which is Busy too.
        let mut refused = 0;
        while let Err(error) = cluster.engines[0].try_exclusive(addr).await {
            assert!(matches!(error, EngineError::Busy { .. }));
            refused += 1;
            assert!(refused < 10_000, "no access uses the page any more");
            yield_now().await;
        }
    });
    cluster.close_and_check();
}

#[test]
fn upgrades_succeed_alone_and_are_refused_beside_other_readers() {
    let cluster = Cluster::new(2);
    let (a, b) = (&cluster.engines[0], &cluster.engines[1]);
    cluster.run(async {
        let addr = page(a).await;
        // Cached shared on both, latched on one: an upgrade takes the other's copy away.
        drop(b.shared(addr).await.unwrap());
        let guard = a.shared(addr).await.unwrap();
        let mut guard = guard.try_upgrade().await.expect("the other node does not use its copy");
        guard.bytes_mut(0..8).copy_from_slice(&7u64.to_le_bytes());
        drop(guard);
        // Latched on both: refused, and the shared latch stays.
        let ours = a.shared(addr).await.unwrap();
        let theirs = b.shared(addr).await.unwrap();
        let (ours, error) = ours.try_upgrade().await.unwrap_err();
        assert!(matches!(error, EngineError::Busy { .. }));
        assert_eq!((get(&ours), get(&theirs)), (7, 7));
        drop(theirs);
        let second = a.shared(addr).await.unwrap();
        let (ours, error) = ours.try_upgrade().await.unwrap_err();
        assert!(matches!(error, EngineError::Busy { .. }), "a local reader counts too");
        drop(second);
        drop(ours.try_upgrade().await.unwrap());
    });
    cluster.close_and_check();
}

/// Adds one to the counter in a page, in one of several ways; whether it did.
async fn increment(engine: &Engine, addr: GAddr, way: u64) -> bool {
    let guard = match way {
        0..8 => engine.exclusive(addr).await,
        8..12 => engine.try_exclusive(addr).await,
        12..14 => {
            let shared = engine.shared(addr).await.unwrap();
            shared.try_upgrade().await.map_err(|(_, error)| error)
        }
        _ => {
            let before = get(&engine.shared(addr).await.unwrap());
            let after = get(&engine.shared(addr).await.unwrap());
            assert!(before <= after, "counters never go back");
            return false;
        }
    };
    match guard {
        Ok(mut guard) => {
            let value = get(&guard) + 1;
            guard.bytes_mut(0..8).copy_from_slice(&value.to_le_bytes());
            true
        }
        Err(EngineError::Busy { .. }) if way >= 8 => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn increments_from_all_nodes_and_tasks_add_up_with_tiny_caches() {
    const PAGES: usize = 8000;
    const TASKS: usize = 4;
    const STEPS: u64 = 4000;
    let cluster = Cluster::new(3);
    let pages: Arc<Vec<GAddr>> = Arc::new(cluster.run(async {
        let mut all = Vec::new();
        for _ in 0..PAGES {
            all.push(page(&cluster.engines[0]).await);
        }
        all
    }));
    let total = Arc::new(AtomicU64::new(0));
    let env = cluster.runtime.env();
    let mut tasks = Vec::new();
    for (node, engine) in cluster.engines.iter().enumerate() {
        for task in 0..TASKS {
            let (engine, pages, total) = (engine.clone(), pages.clone(), total.clone());
            let seed = (node * TASKS + task) as u64 + 1;
            tasks.push(env.spawn("increments", async move {
                let mut random = seed;
                for step in 0..STEPS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    // Half of the accesses go to a few hot pages.
                    let span = if step % 2 == 0 { 8 } else { PAGES };
                    let addr = pages[random as usize % span];
                    if increment(&engine, addr, random >> 60).await {
                        total.fetch_add(1, Ordering::Relaxed);
                    }
                    if step % 16 == 0 {
                        yield_now().await;
                    }
                }
            }));
        }
    }
    cluster.run(async {
        for task in tasks {
            task.join().await.unwrap_or_else(|e| panic!("{e}\n{}", cluster.describe()));
        }
        let mut sum = 0;
        for addr in pages.iter() {
            sum += get(&cluster.engines[1].shared(*addr).await.unwrap());
        }
        assert_eq!(sum, total.load(Ordering::Relaxed), "no increment was lost");
        for engine in &cluster.engines {
            let stats = engine.stats();
            assert!(stats.evictions > 0 && stats.invalidations > 0, "{stats:?}");
        }
    });
    cluster.close_and_check();
}

#[test]
fn a_writer_gets_in_although_readers_never_let_the_page_go() {
    let mut config = engine_config();
    config.gamma = 8;
    let cluster = Cluster::with(2, |_| MemFabric::new(), pool_config(1, 4 << 20), config);
    let addr = cluster.run(page(&cluster.engines[0]));
    let env = cluster.runtime.env();
    let done = Arc::new(AtomicU64::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (engine, done) = (cluster.engines[0].clone(), done.clone());
            env.spawn("readers", async move {
                // Overlapping shared latches: each is let go only when the next is held.
                let mut held = engine.shared(addr).await.unwrap();
                while done.load(Ordering::Relaxed) == 0 {
                    yield_now().await;
                    match engine.try_shared(addr).await {
                        Ok(next) => held = next,
                        Err(EngineError::Busy { .. }) => {
                            drop(held);
                            held = engine.shared(addr).await.unwrap();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                drop(held);
            })
        })
        .collect();
    cluster.run(async {
        for value in 1..=20u64 {
            let mut guard = cluster.engines[1].exclusive(addr).await.unwrap();
            guard.bytes_mut(0..8).copy_from_slice(&value.to_le_bytes());
            drop(guard);
            yield_now().await;
        }
        done.store(1, Ordering::Relaxed);
        for reader in readers {
            reader.join().await.unwrap();
        }
        assert_eq!(get(&cluster.engines[0].shared(addr).await.unwrap()), 20);
        assert!(cluster.engines[0].stats().gamma_hand_overs > 0, "γ was what let the writer in");
    });
    cluster.close_and_check();
}

#[test]
fn addresses_outside_the_pool_are_refused() {
    let cluster = Cluster::new(1);
    cluster.run(async {
        for raw in [0, 1, GCL as u64 + 8, u64::MAX, !(GCL as u64 - 1)] {
            let error = cluster.engines[0].shared(GAddr::from_u64(raw)).await.unwrap_err();
            assert!(matches!(error, EngineError::BadAddress { .. }), "{raw}: {error}");
        }
    });
    cluster.close_and_check();
}

#[test]
fn waits_end_with_an_error_that_names_the_page() {
    let mut config = engine_config();
    config.request_timeout = Duration::from_millis(50);
    let cluster = Cluster::with(2, |_| MemFabric::new(), pool_config(1, 4 << 20), config);
    cluster.run(async {
        let addr = page(&cluster.engines[0]).await;
        let held = cluster.engines[0].exclusive(addr).await.unwrap();
        for engine in &cluster.engines {
            let error = engine.shared(addr).await.unwrap_err();
            assert!(
                matches!(error, EngineError::Timeout { addr: at, .. } if at == addr),
                "{error}"
            );
        }
        drop(held);
        drop(cluster.engines[1].exclusive(addr).await.unwrap());
    });
    cluster.close_and_check();
}

/// Waits, bounded, until something under way at the engine matches.
async fn until(engine: &Engine, what: &str) {
    for _ in 0..10_000 {
        if engine.active_lines().iter().any(|line| line.contains(what)) {
            return;
        }
        engine.env().sleep(std::time::Duration::from_micros(100)).await;
    }
    panic!("no line with {what}: {:#?}", engine.active_lines());
}

/// Found by the increments above: a reader that queued behind a local writer, whose upgrade had
/// lost, counted as a reason to keep the winner's release request waiting, for ever.
#[test]
fn a_reader_behind_a_lost_upgrade_does_not_hold_up_the_winner() {
    let cluster = Cluster::new(2);
    let env = cluster.runtime.env();
    let (a, b) = (cluster.engines[0].clone(), cluster.engines[1].clone());
    cluster.run(async {
        let addr = page(&a).await;
        let held = b.shared(addr).await.unwrap();
        drop(a.shared(addr).await.unwrap());
        let spawn = |engine: &Engine, exclusive: bool| {
            let engine = engine.clone();
            env.spawn("access", async move {
                if exclusive {
                    drop(engine.exclusive(addr).await.unwrap());
                } else {
                    drop(engine.shared(addr).await.unwrap());
                }
            })
        };
        let winner = spawn(&a, true);
        until(&b, "kind: Release").await;
        let loser = spawn(&b, true);
        until(&b, "ticket: 0").await;
        let behind = spawn(&b, false);
        until(&b, "ticket: 1").await;
        drop(held);
        for task in [winner, loser, behind] {
            task.join().await.unwrap();
        }
    });
    cluster.close_and_check();
}

#[test]
fn a_page_given_up_to_a_node_that_has_left_can_be_had_again() {
    let mut cluster = Cluster::new(3);
    let leaver = cluster.engines.pop().unwrap();
    let addr = cluster.run(async {
        let addr = page(&cluster.engines[0]).await;
        // Both are readers, so that the writer asks both to let go.
        drop(cluster.engines[1].shared(addr).await.unwrap());
        let mut guard = leaver.exclusive(addr).await.unwrap();
        guard.bytes_mut(0..8).copy_from_slice(&7u64.to_le_bytes());
        drop(guard);
        leaver.close().await.unwrap();
        addr
    });
    drop(leaver);
    cluster.run(async {
        assert_eq!(get(&cluster.engines[0].shared(addr).await.unwrap()), 7);
        assert_eq!(get(&cluster.engines[1].exclusive(addr).await.unwrap()), 7);
    });
    cluster.close_and_check();
}
