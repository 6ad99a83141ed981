//! Allocation: balance, reuse through epochs, exhaustion, no leak.

use std::collections::HashSet;
use std::time::Duration;

use selkie_engine::{Engine, EngineError};
use selkie_fabric::mem::MemFabric;
use selkie_pool::layout::EXTENT_GCLS;

use crate::common::{Cluster, GCL, PAGE, engine_config, page, pool_config};

#[test]
fn every_line_is_handed_out_once_and_nodes_are_loaded_evenly() {
    let cluster = Cluster::new(3);
    cluster.run(async {
        let mut seen = HashSet::new();
        for turn in 0..30 * EXTENT_GCLS as usize {
            let guard = cluster.engines[turn % 3].allocate().await.unwrap();
            assert!(seen.insert(guard.addr()), "{} was handed out twice", guard.addr());
            assert!(guard.iter().all(|b| *b == 0));
            assert_ne!(guard.addr(), cluster.engines[0].superblock());
        }
        let used = cluster.leased_extents().await;
        let (least, most) = (used.iter().min().unwrap(), used.iter().max().unwrap());
        assert!(most - least <= 3, "extents leased per memory node: {used:?}");
    });
    cluster.close_and_check();
}

#[test]
fn churn_neither_leaks_nor_reuses_under_a_pin() {
    // Two memory nodes of one range each: 1,024 lines in all, most of them live at any time.
    let cluster =
        Cluster::with(2, |_| MemFabric::new(), pool_config(2, 320 << 10), engine_config());
    cluster.run(async {
        let capacity = 2 * (256 << 10) / GCL;
        let live_target = capacity / 2;
        let mut live = Vec::new();
        for round in 0..6 * capacity {
            let engine = &cluster.engines[round % 2];
            if live.len() < live_target {
                let mut guard = engine.allocate().await.unwrap();
                assert!(guard.iter().all(|b| *b == 0), "reused lines are zero");
                guard.bytes_mut(0..PAGE).fill(0xAA);
                live.push(guard.addr());
            } else {
                for _ in 0..live_target / 2 {
                    let addr = live.swap_remove(round % live.len());
                    engine.free(engine.exclusive(addr).await.unwrap());
                }
            }
        }
        // Under a pin a freed line stays what it was. None ripens, so enough have to be ripe
        // before, at the node that has more.
        let env = cluster.runtime.env();
        for _ in 0..10_000 {
            if cluster.engines.iter().all(|engine| engine.unused_lines().2 == 0) {
                break;
            }
            env.sleep(Duration::from_millis(1)).await;
        }
        let ripe = |engine: &Engine| {
            let (fresh, free, hold) = engine.unused_lines();
            assert_eq!(hold, 0, "lines stay on hold that no node holds back");
            fresh + free
        };
        let (mut a, mut b) = (&cluster.engines[0], &cluster.engines[1]);
        if ripe(a) < ripe(b) {
            (a, b) = (b, a);
        }
        assert!(ripe(a) > 100, "half of the lines are live");
        let pin = b.pin();
        let addr = live.pop().unwrap();
        a.free(a.exclusive(addr).await.unwrap());
        for _ in 0..100 {
            let guard = a.allocate().await.unwrap();
            assert_ne!(guard.addr(), addr, "reused under a pin");
            let again = guard.addr();
            drop(guard);
            a.free(a.exclusive(again).await.unwrap());
        }
        assert_eq!(b.shared(addr).await.unwrap()[0], 0xAA);
        drop(pin);
        // Everything that is not live is accounted for.
        for addr in live.drain(..) {
            a.free(a.exclusive(addr).await.unwrap());
        }
        cluster.check_lines(0).await;
    });
    cluster.close_and_check();
}

#[test]
fn a_full_pool_says_so_and_goes_on_once_lines_are_freed() {
    let cluster =
        Cluster::with(1, |_| MemFabric::new(), pool_config(1, 320 << 10), engine_config());
    cluster.run(async {
        let engine = &cluster.engines[0];
        let mut live = Vec::new();
        let error = loop {
            match engine.allocate().await {
                Ok(guard) => live.push(guard.addr()),
                Err(error) => break error,
            }
        };
        let capacity = 256 << 10;
        assert!(
            matches!(error, EngineError::PoolFull { used, capacity: c } if used == capacity && c == capacity),
            "{error}"
        );
        assert_eq!(live.len(), capacity as usize / GCL - 2, "every line could be used");
        engine.free(engine.exclusive(live[5]).await.unwrap());
        assert_eq!(page(engine).await, live[5]);
    });
    cluster.close_and_check();
}

#[test]
fn counters_count_across_nodes() {
    let cluster = Cluster::new(2);
    cluster.run(async {
        let counter = cluster.engines[0].allocate_counter().await.unwrap();
        for turn in 0..100u64 {
            let before = cluster.engines[turn as usize % 2].fetch_add(counter, 3).await.unwrap();
            assert_eq!(before, 3 * turn);
        }
    });
    cluster.close_and_check();
}

#[test]
fn the_clock_goes_on_across_nodes_and_is_raised_but_not_set_back() {
    let cluster = Cluster::new(2);
    cluster.run(async {
        let [one, two] = [&cluster.engines[0], &cluster.engines[1]];
        assert_eq!(one.advance_clock(1).await.unwrap(), 0);
        assert_eq!(two.advance_clock(3).await.unwrap(), 1);
        one.raise_clock(3).await.unwrap();
        assert_eq!(one.advance_clock(1).await.unwrap(), 4, "it was there already");
        one.raise_clock(1000).await.unwrap();
        two.raise_clock(10).await.unwrap();
        assert_eq!(two.advance_clock(1).await.unwrap(), 1000);
        // Memory is leased as before.
        assert_eq!(one.leased_bytes().await.unwrap(), 0);
    });
    cluster.close_and_check();
}

/// Found in a load that filled its pool: others waited for the latches of one that waited for its
/// own pin, for as long as a request may take.
#[test]
fn a_full_pool_says_so_soon_though_the_caller_holds_freed_lines_back() {
    let cluster =
        Cluster::with(1, |_| MemFabric::new(), pool_config(1, 320 << 10), engine_config());
    let env = cluster.runtime.env();
    cluster.run(async {
        let engine = &cluster.engines[0];
        let mut last = None;
        let full = loop {
            match engine.allocate().await {
                Ok(guard) => last = Some(guard.addr()),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, EngineError::PoolFull { .. }), "{full}");
        let pin = engine.pin();
        engine.free(engine.exclusive(last.unwrap()).await.unwrap());
        let started = env.now();
        let full = engine.allocate().await.map(drop).unwrap_err();
        assert!(matches!(full, EngineError::FreedInUse), "{full}");
        let took = env.now() - started;
        assert!(took < engine_config().request_timeout / 4, "it took {took:?}");
        drop(pin);
        // Without the pin it can be had again.
        drop(engine.allocate().await.unwrap());
    });
}
