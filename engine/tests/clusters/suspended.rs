//! A node that cannot show that it lives: hits wait, and go on or not, and none of them is stale.
//! In virtual time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, EngineError, GAddr};
use selkie_fabric::PeerId;
use selkie_fabric::env::{Env, TaskHandle};
use selkie_memnode::{ComputeIndex, Pool};

use crate::common::processes::{Processes, in_virtual_time, value, write};

const LEASE: Duration = Duration::from_secs(2);
/// The node whose way to the plane is cut.
const CUT: ComputeIndex = ComputeIndex::new(0);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Reads a page at one node again and again, and asserts that nothing that it gets is older than
/// what is written.
struct Reader {
    seen: Arc<Seen>,
    task: TaskHandle,
}

#[derive(Default)]
struct Seen {
    /// What has been written when a read begins.
    written: AtomicU64,
    reads: AtomicU64,
    /// Nanoseconds of the environment's clock.
    latest: AtomicU64,
    ends: AtomicBool,
    error: Mutex<Option<EngineError>>,
}

impl Reader {
    fn start(engine: &Engine, addr: GAddr, env: &Env) -> Self {
        let seen = Arc::new(Seen::default());
        let (engine, env) = (engine.clone(), env.clone());
        let task = {
            let (seen, env) = (Arc::clone(&seen), env.clone());
            env.clone().spawn("reader", async move {
                while !seen.ends.load(Ordering::SeqCst) {
                    let floor = seen.written.load(Ordering::SeqCst);
                    match value(&engine, addr).await {
                        Ok(value) => assert!(value >= floor, "stale: {value} after {floor}"),
                        Err(error) => {
                            *seen.error.lock() = Some(error);
                            return;
                        }
                    }
                    seen.reads.fetch_add(1, Ordering::SeqCst);
                    seen.latest.store(env.now().as_nanos() as u64, Ordering::SeqCst);
                    env.sleep(Duration::from_micros(300)).await;
                }
            })
        };
        Self { seen, task }
    }

    fn reads(&self) -> u64 {
        self.seen.reads.load(Ordering::SeqCst)
    }

    fn latest(&self) -> Duration {
        Duration::from_nanos(self.seen.latest.load(Ordering::SeqCst))
    }

    /// From now on nothing else is to be read.
    fn written(&self, value: u64) {
        self.seen.written.store(value, Ordering::SeqCst);
    }

    /// Waits until it has not read anything for a while.
    async fn stops(&self, env: &Env) {
        until(env, "hits wait", || env.now() - self.latest() > ms(50)).await;
    }

    async fn end(self) -> Option<EngineError> {
        self.seen.ends.store(true, Ordering::SeqCst);
        self.task.join().await.unwrap();
        self.seen.error.lock().take()
    }
}

async fn until(env: &Env, what: &str, is_so: impl Fn() -> bool) {
    let started = env.now();
    while !is_so() {
        assert!(env.now() - started < 10 * LEASE, "not: {what}");
        env.sleep(ms(1)).await;
    }
}

async fn is_recovered_from(env: &Env, pool: &Pool) {
    let is_over = || !pool.is_member(CUT) && pool.lost().is_empty();
    until(env, "the others recover from the death", is_over).await;
}

/// A page at the last memory node, or at all, which one node reads from now on.
async fn read(processes: &Processes, env: &Env) -> (GAddr, Reader) {
    let [one, two] = &processes.engines;
    let is_on_the_last = |addr: &GAddr| {
        let descriptor = processes.pools[0].descriptor();
        let before =
            descriptor.memory_nodes.iter().rev().skip(1).map(|node| u64::from(node.ranges));
        !descriptor.coding.is_plain()
            || addr.to_u64() >= before.sum::<u64>() * descriptor.range_bytes
    };
    let addr = loop {
        let addr = two.allocate().await.unwrap().addr();
        if is_on_the_last(&addr) {
            break addr;
        }
    };
    write(two, addr, 1).await;
    let reader = Reader::start(one, addr, env);
    reader.written(1);
    env.sleep(LEASE).await;
    assert!(reader.reads() > 1_000);
    (addr, reader)
}

fn silent_for(processes: &Processes, env: &Env) -> Duration {
    processes.pools[0].signs_of_life(env.now()).silent_for
}

fn renewals(processes: &Processes) -> u64 {
    processes.pools[1].state().compute_nodes[&CUT.get()].renewals
}

#[test]
fn who_is_cut_off_for_a_moment_lets_hits_wait_and_goes_on() {
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
        assert!(env.now() - reader.latest() > ms(50), "before it goes on");
        assert_eq!(renewals(&processes), 0);
        processes.ways[0].cut(false);
        let reads = reader.reads();
        until(&env, "it goes on", || reader.reads() > reads + 100).await;
        assert!(reader.end().await.is_none());
        assert_eq!(renewals(&processes), 1);
        processes.close().await;
    });
}

/// The plane hears of it again, or never.
#[test]
fn who_is_cut_off_for_longer_than_a_lease_is_expelled_and_serves_nothing_stale() {
    for is_healed in [true, false] {
        in_virtual_time(1, LEASE, async |processes, env, _| {
            let two = &processes.engines[1];
            let (addr, reader) = read(&processes, &env).await;
            processes.ways[0].cut(true);
            let reads = reader.reads();
            is_recovered_from(&env, &processes.pools[1]).await;
            assert!(reader.reads() - reads > 1_000, "it went on before");
            // Who was recovered from is not asked.
            write(two, addr, 2).await;
            reader.written(2);
            env.sleep(ms(10)).await;
            processes.ways[0].cut(!is_healed);
            let ended = || reader.seen.error.lock().is_some();
            until(&env, "it ends", ended).await;
            let error = reader.end().await;
            assert!(matches!(error, Some(EngineError::Expelled)), "{error:?}");
            assert_eq!(value(two, addr).await.unwrap(), 2);
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
        until(&env, "it ends", || reader.seen.error.lock().is_some()).await;
        let error = reader.end().await;
        assert!(matches!(error, Some(EngineError::Expelled)), "{error:?}");
        two.close().await.unwrap();
    });
}

/// The memory node is away from the plane too, from later on, and gets it back before it is missed
/// itself: until then the death is not complete, and the node goes on. It cannot tell a memory node
/// that it does not reach from one that acts.
#[test]
fn a_memory_node_that_gets_the_plane_back_is_heard_before_it_acts() {
    for is_far in [false, true] {
        in_virtual_time(1, LEASE, async |processes, env, network| {
            let two = &processes.engines[1];
            let (addr, reader) = read(&processes, &env).await;
            processes.ways[0].cut(true);
            env.sleep(LEASE / 4).await;
            processes.memory_ways[0].cut(true);
            let pool = &processes.pools[1];
            until(&env, "it is declared dead", || !pool.is_member(CUT)).await;
            assert!(silent_for(&processes, &env) > LEASE);
            assert!(
                env.now() - reader.latest() < ms(1),
                "it goes on, as nobody has acted upon that"
            );
            let reads = reader.reads();
            env.sleep(ms(100)).await;
            assert!(reader.reads() - reads > 100);
            assert!(!pool.lost().is_empty());
            if is_far {
                // What the node heard last is all that it has.
                network.cut(PeerId::compute(CUT.get()), PeerId::memory(0));
            }
            processes.memory_ways[0].cut(false);
            is_recovered_from(&env, pool).await;
            write(two, addr, 2).await;
            reader.written(2);
            assert!(env.now() - reader.latest() > LEASE / 32, "it stopped well before");
            // It has heard of the death, and is away again.
            processes.memory_ways[0].cut(true);
            env.sleep(LEASE / 2).await;
            processes.ways[0].cut(false);
            until(&env, "it ends", || reader.seen.error.lock().is_some()).await;
            let error = reader.end().await;
            assert!(matches!(error, Some(EngineError::Expelled)), "{error:?}");
            two.close().await.unwrap();
        });
    }
}

/// The plane is away from all, and the node stands still for a moment: its memory nodes have heard
/// nothing meanwhile.
#[test]
fn who_hears_late_that_the_plane_is_away_goes_on_all_the_same() {
    in_virtual_time(1, LEASE, async |processes, env, network| {
        let two = &processes.engines[1];
        let (addr, reader) = read(&processes, &env).await;
        processes.all_ways().for_each(|way| way.cut(true));
        let cut_at = env.now();
        env.sleep(2 * LEASE).await;
        assert!(env.now() - reader.latest() < ms(1), "it goes on");
        network.slow(PeerId::memory(0), 10_000_000);
        reader.stops(&env).await;
        network.slow(PeerId::memory(0), 1);
        let reads = reader.reads();
        until(&env, "it goes on", || reader.reads() > reads + 100).await;
        assert!(env.now() - cut_at < 3 * LEASE);
        write(two, addr, 2).await;
        reader.written(2);
        env.sleep(LEASE).await;
        assert_eq!(renewals(&processes), 0, "all without the plane");
        processes.all_ways().for_each(|way| way.cut(false));
        until(&env, "it makes sure", || renewals(&processes) == 1).await;
        assert!(reader.end().await.is_none());
        processes.close().await;
    });
}

/// One that alone is away may be declared dead as well, and is then asked no more.
#[test]
fn a_memory_node_that_alone_is_away_is_not_relied_on() {
    in_virtual_time(2, LEASE, async |processes, env, _| {
        let two = &processes.engines[1];
        let (addr, reader) = read(&processes, &env).await;
        processes.ways[0].cut(true);
        processes.memory_ways[0].cut(true);
        let (reads, cut_at) = (reader.reads(), env.now());
        reader.stops(&env).await;
        assert!(reader.reads() - reads > 1_000, "it went on before");
        assert!(reader.latest() - cut_at < LEASE, "in time");
        let pool = &processes.pools[1];
        is_recovered_from(&env, pool).await;
        assert!(pool.is_memory_dead(0) && !pool.is_memory_dead(1));
        write(two, addr, 2).await;
        reader.written(2);
        until(&env, "it ends", || reader.seen.error.lock().is_some()).await;
        let error = reader.end().await;
        assert!(matches!(error, Some(EngineError::Expelled)), "{error:?}");
        assert_eq!(value(two, addr).await.unwrap(), 2);
    });
}

/// Adds one to a page's value.
async fn add(engine: Engine, addr: GAddr) {
    let mut page = engine.exclusive(addr).await.unwrap();
    let bytes = page.bytes_mut(0..8);
    let now = u64::from_le_bytes(bytes.try_into().unwrap());
    bytes.copy_from_slice(&(now + 1).to_le_bytes());
}

/// The guard that both wait for is let go before the node is suspended, or after.
#[test]
fn who_waits_at_a_suspended_node_lets_others_go_first() {
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
                // Its turn has come, and it does not look.
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
