//! A change is durable before it leaves its node; writers wait for a log that is full or broken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::log::{LogFiles, LogTo};
use selkie_engine::{EngineError, change_together};
use selkie_fabric::PeerId;
use selkie_pool::ComputeIndex;

use super::cluster::{impatient, logged, read, recovered, roomy, valves, valves_alone, write};
use crate::common::{PAGE, REQUEST_TIMEOUT, page};

#[test]
fn nothing_leaves_a_node_before_it_is_durable() {
    for coding in ["plain", "2+1"] {
        let (valves, cluster) = valves(2, coding);
        let env = cluster.runtime.env();
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let addr = page(one).await;
            for (round, exclusive) in [(1, false), (2, true), (3, false)] {
                valves[0].shut.store(true, Ordering::SeqCst);
                write(one, addr, round).await;
                let lsn = one.shared(addr).await.unwrap().lsn();
                assert!(lsn > valves[0].end(), "it waits");
                assert_eq!(read(one, addr).await, round, "a node that is here sees it");
                // Neither home nor to another.
                let there = {
                    let two = two.clone();
                    let got = Arc::new(AtomicU64::new(0));
                    let seen = Arc::clone(&got);
                    let task = env.spawn("asks", async move {
                        let value = if exclusive {
                            let page = two.exclusive(addr).await.unwrap();
                            u64::from_le_bytes(page[16..24].try_into().unwrap())
                        } else {
                            read(&two, addr).await
                        };
                        seen.store(value, Ordering::SeqCst);
                    });
                    (task, got)
                };
                env.sleep(Duration::from_millis(50)).await;
                assert_eq!(there.1.load(Ordering::SeqCst), 0, "{coding}: it was granted");
                valves[0].shut.store(false, Ordering::SeqCst);
                there.0.join().await.unwrap();
                assert_eq!(there.1.load(Ordering::SeqCst), round);
                assert!(valves[0].end() >= lsn);
                one.until_durable(lsn).await.unwrap();
            }
            for engine in &cluster.engines {
                engine.close().await.unwrap();
            }
        });
    }
}

#[test]
fn many_changes_become_durable_at_once() {
    let (valves, cluster) = valves(1, "plain");
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let addr = page(engine).await;
        valves[0].shut.store(true, Ordering::SeqCst);
        for value in 0..200 {
            write(engine, addr, value).await;
        }
        let before = valves[0].appends.load(Ordering::SeqCst);
        valves[0].shut.store(false, Ordering::SeqCst);
        let lsn = engine.shared(addr).await.unwrap().lsn();
        engine.until_durable(lsn).await.unwrap();
        assert!(valves[0].appends.load(Ordering::SeqCst) - before <= 3);
        engine.close().await.unwrap();
    });
}

/// It failed at the first attempt that failed, and a driver with it.
#[test]
fn who_has_committed_waits_while_the_log_cannot_be_written() {
    let (valves, cluster) = valves(1, "plain");
    let env = cluster.runtime.env();
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let addr = page(engine).await;
        valves[0].broken.store(true, Ordering::SeqCst);
        write(engine, addr, 1).await;
        let lsn = engine.shared(addr).await.unwrap().lsn();
        let waits = engine.clone();
        let waiter = env.spawn("commits", async move { waits.until_durable(lsn).await.unwrap() });
        // Some attempts.
        env.sleep(Duration::from_millis(350)).await;
        assert!(valves[0].end() < lsn);
        valves[0].broken.store(false, Ordering::SeqCst);
        waiter.join().await.unwrap();
        assert!(valves[0].end() >= lsn);
        engine.close().await.unwrap();
    });
}

#[test]
fn while_the_log_cannot_be_written_nothing_is_changed_and_then_it_goes_on() {
    let (valves, log) = valves_alone(2);
    let cluster = impatient(2, log);
    let env = cluster.runtime.env();
    let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let addr = page(one).await;
        write(one, addr, 1).await;
        assert_eq!(read(two, addr).await, 1);
        valves[0].broken.store(true, Ordering::SeqCst);
        write(one, addr, 2).await;
        let lsn = one.shared(addr).await.unwrap().lsn();
        let error = one.until_durable(lsn).await.unwrap_err();
        assert!(matches!(error, EngineError::Log(_)) && error.is_retryable(), "{error}");
        assert_eq!(error.to_string(), "log: cannot write valve: no storage space");
        let refused = one.exclusive(addr).await.map(drop).unwrap_err();
        assert!(matches!(refused, EngineError::Log(_)), "{refused}");
        assert_eq!(read(one, addr).await, 2, "reading goes on");
        // The other has a log of its own.
        let other = page(two).await;
        write(two, other, 7).await;
        valves[0].broken.store(false, Ordering::SeqCst);
        let started = env.now();
        while one.exclusive(addr).await.is_err() {
            assert!(env.now() - started < Duration::from_secs(10));
            env.sleep(Duration::from_millis(1)).await;
        }
        one.until_durable(lsn).await.unwrap();
        assert_eq!(read(two, addr).await, 2);
        for engine in &cluster.engines {
            engine.close().await.unwrap();
        }
    });
}

/// A write of the log panics, in the task of the caller that writes or in one of the engine:
/// nothing is written behind the hole, all that wait learn it, and the other node recovers.
#[test]
fn a_panic_in_a_write_of_the_log_ends_the_node_and_all_waits() {
    for writes_later in [false, true] {
        let (valves, cluster) = valves(2, "plain");
        let env = cluster.runtime.env();
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let addr = page(one).await;
            write(one, addr, 1).await;
            let lsn = one.shared(addr).await.unwrap().lsn();
            one.until_durable(lsn).await.unwrap();
            let end = valves[0].end();
            valves[0].shut.store(writes_later, Ordering::SeqCst);
            valves[0].panics.store(!writes_later, Ordering::SeqCst);
            write(one, addr, 2).await;
            let lsn = one.shared(addr).await.unwrap().lsn();
            let told = Arc::new(parking_lot::Mutex::new(Vec::new()));
            let waiters: Vec<_> = (0..2)
                .map(|_| {
                    let (one, told) = (one.clone(), Arc::clone(&told));
                    env.spawn("waits", async move {
                        let error = one.until_durable(lsn).await.unwrap_err();
                        told.lock().push(error);
                    })
                })
                .collect();
            if writes_later {
                valves[0].until_waited_for().await;
            }
            let started = env.now();
            valves[0].panics.store(true, Ordering::SeqCst);
            valves[0].shut.store(false, Ordering::SeqCst);
            for waiter in waiters {
                waiter.join().await.unwrap();
            }
            assert!(env.now() - started < REQUEST_TIMEOUT / 2, "they are woken");
            valves[0].panics.store(false, Ordering::SeqCst);
            let told = std::mem::take(&mut *told.lock());
            let says = |error: &EngineError| {
                matches!(error, EngineError::TaskPanicked { task: "log", message }
                    if message == "planted")
            };
            assert!(told.len() == 2 && told.iter().all(says), "{told:?}");
            assert!(says(&one.until_durable(lsn).await.unwrap_err()));
            recovered(two, &cluster.pool).await;
            assert_eq!(valves[0].end(), end, "nothing is written any more");
            assert_eq!(read(two, addr).await, 1, "as it was durable");
            two.close().await.unwrap();
        });
    }
}

#[test]
fn a_node_that_is_expelled_wakes_what_waits_for_its_log() {
    let (valves, cluster) = valves(2, "plain");
    let env = cluster.runtime.env();
    let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let addr = page(one).await;
        valves[0].shut.store(true, Ordering::SeqCst);
        write(one, addr, 1).await;
        let lsn = one.shared(addr).await.unwrap().lsn();
        let waits = {
            let one = one.clone();
            env.spawn("waits", async move {
                let error = one.until_durable(lsn).await.unwrap_err();
                assert!(matches!(error, EngineError::Expelled { .. }), "{error}");
            })
        };
        valves[0].until_waited_for().await;
        let started = env.now();
        cluster.pool.declare_dead(ComputeIndex::new(0)).await.unwrap();
        waits.join().await.unwrap();
        assert!(env.now() - started < REQUEST_TIMEOUT / 2, "it is woken");
        valves[0].shut.store(false, Ordering::SeqCst);
        recovered(two, &cluster.pool).await;
        two.close().await.unwrap();
    });
}

/// A directory that nothing can be made in: a commit is told so, and goes on when it can.
#[test]
fn a_log_directory_that_is_gone_for_a_while_stops_writers_and_loses_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (here, away) = (place.path().join("logs"), place.path().join("away"));
    let logs = LogFiles::new(&here, 1 << 16, 1 << 22).unwrap();
    let cluster = impatient(2, LogTo::Store(Arc::new(logs)));
    let [survivor, dies] = &cluster.engines[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let addrs = [page(dies).await, page(dies).await, page(dies).await];
        let commit = async |value: u64| {
            let mut page = dies.exclusive(addrs[value as usize % 3]).await?;
            let bytes = page.len();
            page.bytes_mut(24..bytes).fill(value as u8);
            page.bytes_mut(16..24).copy_from_slice(&value.to_le_bytes());
            let lsn = change_together([&mut page]).unwrap();
            drop(page);
            dies.until_durable(lsn).await
        };
        let mut acknowledged = 0;
        // Until the directory is missed, in a file that is there, and until it is back.
        let mut go_on = async |until_refused: bool| {
            for _ in 0..10_000 {
                match commit(acknowledged + 1).await {
                    Ok(()) => acknowledged += 1,
                    Err(EngineError::Log(error)) if until_refused => {
                        let text = error.to_string();
                        assert!(text.contains(here.to_str().unwrap()), "{text}");
                        return acknowledged;
                    }
                    Err(error) if until_refused => panic!("{error}"),
                    Err(_) => {}
                }
                if !until_refused && acknowledged % 200 == 0 {
                    break;
                }
            }
            acknowledged
        };
        assert_eq!(go_on(false).await, 200);
        std::fs::rename(&here, &away).unwrap();
        let stopped = go_on(true).await;
        assert!(stopped < 10_000, "no access was refused");
        std::fs::rename(&away, &here).unwrap();
        let last = go_on(false).await;
        assert!(last > stopped, "it does not go on");
        cluster.fabric.kill(PeerId::compute(1));
        cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
        recovered(survivor, &cluster.pool).await;
        for value in last - 2..=last {
            let addr = addrs[value as usize % 3];
            assert_eq!(read(survivor, addr).await, value);
            let page = survivor.shared(addr).await.unwrap();
            assert!(page[24..].iter().all(|byte| *byte == value as u8));
        }
        survivor.close().await.unwrap();
    });
}

/// Four files, of which only whole ones can go.
#[test]
fn a_log_of_few_files_never_stays_full() {
    let place = tempfile::tempdir().unwrap();
    let logs = LogFiles::new(place.path(), 1 << 16, 4 << 16).unwrap();
    let cluster = logged(1, LogTo::Store(Arc::new(logs)), "plain");
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let addrs = [page(engine).await, page(engine).await];
        // In all, several times what the log can keep.
        for round in 0..2000 {
            let mut page = engine.exclusive(addrs[round % 2]).await.unwrap();
            let bytes = page.len();
            page.bytes_mut(0..bytes).fill(round as u8);
        }
        engine.close().await.unwrap();
    });
}

/// Pages were written home up to half of the capacity, where the log counts as full. A file with
/// more than that, which changes that came at once had filled, was never free: writers waited for
/// ever.
#[test]
fn a_log_with_more_than_half_of_its_capacity_in_one_file_does_not_stay_full() {
    let (valves, log) = valves_alone(1);
    valves[0].capacity.store(64 << 10, Ordering::SeqCst);
    let cluster = roomy(1, log);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        let env = engine.env().clone();
        let mut pages = Vec::new();
        for _ in 0..200 {
            pages.push(page(engine).await);
        }
        for addr in &pages {
            engine.evict(*addr).await.unwrap();
        }
        let mut latched = Vec::new();
        for addr in pages.drain(..8) {
            latched.push(engine.exclusive(addr).await.unwrap());
        }
        valves[0].is_one_piece.store(true, Ordering::SeqCst);
        valves[0].shut.store(true, Ordering::SeqCst);
        let writer = engine.clone();
        let fills = env.spawn("fills", async move {
            // More than the capacity.
            for addr in pages {
                let mut page = writer.exclusive(addr).await.unwrap();
                page.bytes_mut(0..PAGE).fill(3);
            }
        });
        valves[0].until_waited_for().await;
        // It waits for room, but for changes of pages that are latched already.
        env.sleep(Duration::from_millis(100)).await;
        for page in &mut latched {
            page.bytes_mut(0..PAGE).fill(7);
        }
        drop(latched);
        valves[0].shut.store(false, Ordering::SeqCst);
        fills.join().await.unwrap();
        engine.close().await.unwrap();
    });
}

/// What it has latched may be what the log would have to be rid of.
#[test]
fn who_waits_for_no_latch_does_not_wait_for_room_in_the_log() {
    let (valves, cluster) = valves(1, "plain");
    let engine = &cluster.engines[0];
    valves[0].capacity.store(1 << 16, Ordering::SeqCst);
    cluster.runtime.block_on(async {
        let (held, other) = (page(engine).await, page(engine).await);
        let mut first = engine.exclusive(held).await.unwrap();
        first.bytes_mut(0..8).fill(1);
        change_together([&mut first]);
        let refused = loop {
            match engine.try_exclusive(other).await {
                Ok(mut page) => {
                    let bytes = page.len();
                    page.bytes_mut(0..bytes).fill(2);
                }
                Err(error) => break error,
            }
            engine.env().yield_now().await;
        };
        assert!(matches!(refused, EngineError::LogFull), "{refused}");
        // A page that is allocated beside latched ones waits for no room either.
        let started = engine.env().now();
        engine.free(engine.allocate().await.unwrap());
        assert!(engine.env().now() - started < REQUEST_TIMEOUT);
        drop(first);
        write(engine, other, 3).await;
        assert_eq!(read(engine, other).await, 3);
        engine.close().await.unwrap();
    });
}

/// What unlinks a page may be lost with its node, which is redone then with what led there.
#[test]
fn a_freed_line_is_not_marked_before_it_is_durable_that_nothing_leads_there() {
    let (valves, cluster) = valves(1, "2+1");
    let (one, env) = (&cluster.engines[0], cluster.runtime.env());
    cluster.runtime.block_on(async {
        let (leads, freed) = (page(one).await, page(one).await);
        write(one, leads, freed.to_u64()).await;
        one.until_durable(one.shared(leads).await.unwrap().lsn()).await.unwrap();
        valves[0].shut.store(true, Ordering::SeqCst);
        write(one, leads, 0).await;
        one.free(one.exclusive(freed).await.unwrap());
        valves[0].until_waited_for().await;
        env.sleep(Duration::from_millis(100)).await;
        let (_, reusable, held) = one.unused_lines();
        assert_eq!((reusable, held), (0, 1), "it is not durable yet");
        valves[0].shut.store(false, Ordering::SeqCst);
        let until = env.now() + REQUEST_TIMEOUT;
        while one.unused_lines().1 == 0 {
            assert!(env.now() < until, "it is durable, and still held");
            env.sleep(Duration::from_millis(1)).await;
        }
        one.close().await.unwrap();
    });
}
