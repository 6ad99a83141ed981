//! One node is cut off from the plane, briefly or for longer than a lease.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use selkie_engine::{Engine, EngineError, GAddr};

use super::reader::{LEASE, is_recovered_from, ms, read, renewals, silent_for, until};
use crate::common::processes::{in_virtual_time, value, write};

#[test]
fn a_node_that_is_cut_off_briefly_lets_hits_wait_and_resumes() {
    in_virtual_time(1, LEASE, async |processes, env, _| {
        let [one, two] = &processes.engines;
        let (addr, reader) = read(&processes, &env).await;
        processes.ways[0].cut(true);
        let (reads, hits, misses) = (reader.reads(), one.stats().hits, one.stats().misses);
        reader.stops(&env).await;
        let stopped_for = env.now() - reader.latest();
        assert!(silent_for(&processes, &env) > LEASE * 3 / 4);
        assert!(silent_for(&processes, &env) - stopped_for <= LEASE * 3 / 4 + ms(1), "in time");
        assert!(reader.reads() - reads > 1_000, "not before");
        assert_eq!(one.stats().hits - hits, reader.reads() - reads, "all of them were hits");
        assert_eq!(one.stats().misses, misses);
        // It is still in, and answers.
        write(two, addr, 2).await;
        reader.written(2);
        assert!(env.now() - reader.latest() > ms(50), "before it resumes");
        assert_eq!(renewals(&processes), 0);
        processes.ways[0].cut(false);
        let reads = reader.reads();
        until(&env, "it resumes", || reader.reads() > reads + 100).await;
        assert!(reader.end().await.is_none());
        assert_eq!(renewals(&processes), 1);
        processes.close().await;
    });
}

/// The node reaches the plane again, or never.
#[test]
fn a_node_that_is_cut_off_for_longer_than_a_lease_is_expelled_and_serves_nothing_stale() {
    for is_healed in [true, false] {
        in_virtual_time(1, LEASE, async |processes, env, _| {
            let two = &processes.engines[1];
            let (addr, reader) = read(&processes, &env).await;
            processes.ways[0].cut(true);
            let reads = reader.reads();
            is_recovered_from(&env, &processes.pools[1]).await;
            assert!(reader.reads() - reads > 1_000, "it served before");
            // The writer does not ask a node that was recovered from.
            write(two, addr, 2).await;
            reader.written(2);
            env.sleep(ms(10)).await;
            processes.ways[0].cut(!is_healed);
            reader.ends_expelled(&env).await;
            assert_eq!(value(two, addr).await.unwrap(), 2);
            two.close().await.unwrap();
        });
    }
}

/// A node without a log, or one that only reads, acknowledged what it had read from its cache
/// whatever had become of its lease.
#[test]
fn nothing_is_acknowledged_beyond_the_lease() {
    for is_healed in [true, false] {
        in_virtual_time(1, LEASE, async |processes, env, _| {
            let [one, two] = processes.engines.clone();
            let before = env.now();
            one.until_durable(0).await.unwrap();
            assert_eq!(env.now(), before, "no wait while the lease lasts");
            processes.ways[0].cut(true);
            // When it acknowledged last, and the error that ended it.
            let seen = Arc::new(Mutex::new((env.now(), None)));
            drop(env.spawn("acknowledges", {
                let (one, env, seen) = (one.clone(), env.clone(), Arc::clone(&seen));
                async move {
                    while seen.lock().1.is_none() {
                        match one.until_durable(0).await {
                            Ok(()) => seen.lock().0 = env.now(),
                            Err(error) => seen.lock().1 = Some(error),
                        }
                        env.sleep(ms(1)).await;
                    }
                }
            }));
            let latest = || seen.lock().0;
            let shown = env.now() - silent_for(&processes, &env);
            if is_healed {
                let is_late = || silent_for(&processes, &env) > LEASE * 4 / 5;
                until(&env, "it is suspended", is_late).await;
                assert!(latest() <= shown + LEASE * 3 / 4, "{:?}", latest());
                let healed = env.now();
                processes.ways[0].cut(false);
                until(&env, "it resumes", || latest() > healed).await;
                until(&env, "it has made sure", || renewals(&processes) == 1).await;
                seen.lock().1 = Some(EngineError::Closed);
                one.close().await.unwrap();
            } else {
                is_recovered_from(&env, &processes.pools[1]).await;
                until(&env, "it ends", || seen.lock().1.is_some()).await;
                let (ended, error) = (latest(), seen.lock().1.clone().unwrap());
                assert!(matches!(error, EngineError::Expelled { .. }), "{error}");
                assert!(ended > shown + LEASE / 2 && ended <= shown + LEASE * 3 / 4, "{ended:?}");
            }
            two.close().await.unwrap();
        });
    }
}

#[test]
fn the_answer_to_a_renewal_is_worth_nothing_when_the_lease_is_over() {
    in_virtual_time(1, LEASE, async |processes, env, _| {
        let two = &processes.engines[1];
        let (addr, reader) = read(&processes, &env).await;
        let way = &processes.ways[0];
        way.cut(true);
        reader.stops(&env).await;
        way.hold(true);
        way.cut(false);
        until(&env, "it renews", || renewals(&processes) == 1).await;
        way.cut(true);
        is_recovered_from(&env, &processes.pools[1]).await;
        write(two, addr, 2).await;
        reader.written(2);
        env.sleep(ms(10)).await;
        way.hold(false);
        reader.ends_expelled(&env).await;
        two.close().await.unwrap();
    });
}

/// Adds one to a page's value.
async fn add(engine: Engine, addr: GAddr) {
    let mut page = engine.exclusive(addr).await.unwrap();
    let bytes = page.bytes_mut(0..8);
    let now = u64::from_le_bytes(bytes.try_into().unwrap());
    bytes.copy_from_slice(&(now + 1).to_le_bytes());
}

/// The guard that both wait for is dropped before the node is suspended, or after.
#[test]
fn callers_that_wait_at_a_suspended_node_let_other_nodes_go_first() {
    for is_told_before in [false, true] {
        in_virtual_time(1, LEASE, async |processes, env, _| {
            let [one, two] = processes.engines.clone();
            let addr = one.allocate().await.unwrap().addr();
            write(&one, addr, 1).await;
            let mut guard = Some(one.exclusive(addr).await.unwrap());
            let mut local = pin!(add(one.clone(), addr));
            let mut look_once =
                async || poll_fn(|cx| Poll::Ready(local.as_mut().poll(cx).is_ready())).await;
            assert!(!look_once().await, "it waits for the guard");
            processes.ways[0].cut(true);
            let remote = env.spawn("remote", add(two.clone(), addr));
            env.sleep(ms(5)).await;
            if is_told_before {
                // The local caller has its turn, and is not polled.
                guard = None;
            }
            let is_suspended = || silent_for(&processes, &env) > LEASE * 3 / 4;
            until(&env, "it is suspended", is_suspended).await;
            env.sleep(ms(5)).await;
            assert!(!look_once().await);
            drop(guard.take());
            let started = env.now();
            remote.join().await.unwrap();
            assert!(env.now() - started < ms(5), "it does not wait for the plane");
            assert_eq!(value(&two, addr).await.unwrap(), 2, "only one of them");
            processes.ways[0].cut(false);
            local.await;
            for engine in [&one, &two] {
                assert_eq!(value(engine, addr).await.unwrap(), 3);
            }
            processes.close().await;
        });
    }
}
