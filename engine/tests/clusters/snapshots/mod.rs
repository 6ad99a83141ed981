//! Snapshots of several nodes: each reads one state, wherever its images are.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

mod failures;
mod pages;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::{Engine, EngineConfig, GAddr};
use selkie_fabric::Fabric;
use selkie_fabric::env::Env;
use selkie_fabric::fault::{Delay, FaultFabric, FaultPlan};
use selkie_fabric::mem::MemFabric;
use selkie_pool::PoolConfig;

use crate::common::load::until;
use crate::common::pages::coded;
use crate::common::{Cluster, engine_config, id, pool_config};
use pages::{commit, new_pages, read, sum};

const EACH: u64 = 1_000;

/// All snapshots have ended, and the nodes know it.
async fn comes_to_rest(cluster: &Cluster) {
    let env = cluster.runtime.env();
    let is_quiet = |engine: &Engine| {
        let stats = engine.stats();
        (stats.snapshots_active, stats.images_live) == (0, 0)
    };
    until(&env, cluster, "images are freed", || cluster.engines.iter().all(is_quiet)).await;
    let mut tries = 0;
    while !cluster.engines[0].draw_stamp().await.unwrap().1.is_empty() {
        tries += 1;
        assert!(tries < 10_000, "some node says that a snapshot is active");
        env.sleep(Duration::from_millis(1)).await;
    }
}

/// All nodes know that all others have published themselves: until then they keep images in a coded
/// pool. Returns the last stamp that was drawn.
async fn published(cluster: &Cluster) -> u64 {
    let (env, mut last) = (cluster.runtime.env(), 0);
    for engine in &cluster.engines {
        for tries in 0.. {
            let (stamp, active) = engine.draw_stamp().await.unwrap();
            last = stamp.get();
            if active.is_empty() {
                break;
            }
            assert!(tries < 10_000, "some node has not published itself");
            env.sleep(Duration::from_millis(1)).await;
        }
    }
    last
}

#[test]
fn a_snapshot_reads_what_was_committed_before_it_at_every_node() {
    let cluster = Cluster::new(3);
    cluster.run(async {
        published(&cluster).await;
        let [a, b, c] = &cluster.engines[..] else { panic!("three nodes") };
        let pages = new_pages(a, 2, 1).await;
        let first = commit(a, &pages, |_, value| value + 1).await;
        let of_a = a.begin_snapshot().await.unwrap();
        let of_b = b.begin_snapshot().await.unwrap();
        assert_eq!((of_a.stamp(), of_b.stamp()), (first, first));
        // An image at the node that reads, one at another, and one that leads to another's.
        commit(a, &pages, |_, _| 3).await;
        let between = c.begin_snapshot().await.unwrap();
        commit(b, &pages[..1], |_, _| 4).await;
        for (engine, snapshot) in [(a, &of_a), (b, &of_b), (c, &of_a)] {
            for page in &pages {
                assert_eq!(read(engine, snapshot, *page).await, Some(2));
            }
        }
        for engine in [a, b, c] {
            assert_eq!(read(engine, &between, pages[0]).await, Some(3));
        }
        let now = c.begin_snapshot().await.unwrap();
        assert_eq!(read(c, &now, pages[0]).await, Some(4));
        assert_eq!(read(c, &now, pages[1]).await, Some(3));
        assert_eq!(a.stats().images_kept, 2);
        assert_eq!(c.stats().snapshots_active, 2);
        drop((of_a, of_b, between, now));
        comes_to_rest(&cluster).await;
    });
    cluster.close_and_check();
}

#[test]
fn without_snapshots_no_image_is_kept() {
    let cluster = Cluster::new(2);
    cluster.run(async {
        let pages = new_pages(&cluster.engines[0], 4, 1).await;
        let last = published(&cluster).await;
        let kept = || cluster.engines.iter().map(|engine| engine.stats().images_kept).sum::<u64>();
        assert_eq!(kept(), 0, "nothing was committed");
        for round in 0..20 {
            let (stamp, active) = cluster.engines[1].draw_stamp().await.unwrap();
            assert!(active.is_empty() && stamp.get() == last + 2 * round + 1);
            commit(&cluster.engines[0], &pages, |_, value| value + 1).await;
        }
        assert_eq!(kept(), 0);
    });
}

/// A snapshot that lives long is listed exactly: commits after the first keep nothing for it.
#[test]
fn one_image_a_page_is_kept_for_an_old_snapshot() {
    let cluster = Cluster::new(2);
    cluster.run(async {
        let [a, b] = &cluster.engines[..] else { panic!("two nodes") };
        let pages = new_pages(a, 8, 1).await;
        let old = b.begin_snapshot().await.unwrap();
        let env = cluster.runtime.env();
        let mut kept = 0;
        for round in 0..1_000 {
            commit(a, &pages, |_, _| 2 + round).await;
            let now = a.stats().images_kept;
            if round > 0 && now == kept {
                break;
            }
            assert!(round < 999, "images are kept for ever");
            kept = now;
            env.sleep(Duration::from_millis(2)).await;
        }
        // Horizon and chains: short snapshots come and go beside it.
        for round in 0..50 {
            let short = a.begin_snapshot().await.unwrap();
            commit(a, &pages, |_, _| 100 + round).await;
            drop(short);
            env.sleep(Duration::from_millis(2)).await;
        }
        for page in &pages {
            assert_eq!(read(b, &old, *page).await, Some(1));
            assert_eq!(read(a, &old, *page).await, Some(1));
        }
        assert_eq!(a.stats().images_dropped, 0);
        assert!(a.snapshot_horizon() <= old.stamp() && b.snapshot_horizon() <= old.stamp());
        drop(old);
        comes_to_rest(&cluster).await;
    });
    cluster.close_and_check();
}

/// What tasks move to and fro while others add up.
struct Bank {
    pages: Vec<GAddr>,
    sums: AtomicU64,
    too_old: AtomicU64,
}

/// Transfers at all nodes but those that only read, and sums at all.
async fn run_bank(env: &Env, engines: &[Engine], writers: usize, time: Duration) -> Arc<Bank> {
    let pages = new_pages(&engines[0], 12, EACH).await;
    let bank = Arc::new(Bank { pages, sums: AtomicU64::new(0), too_old: AtomicU64::new(0) });
    let ends = env.now() + time;
    let mut tasks = Vec::new();
    for (number, engine) in engines.iter().enumerate() {
        if number < writers {
            let (bank, engine, env) = (Arc::clone(&bank), engine.clone(), env.clone());
            let mut seed = number as u64 * 7919 + 1;
            tasks.push(env.clone().spawn("transfers", async move {
                while env.now() < ends {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let (one, other) = (seed >> 33, seed >> 43);
                    let (one, other) = ((one % 12) as usize, (other % 12) as usize);
                    let [from, to] = [one.min(other), one.max(other)];
                    if from == to {
                        continue;
                    }
                    let both = [bank.pages[from], bank.pages[to]];
                    // Always from the first, whose value may so fall below zero.
                    let way = |number: usize, value: u64| match number {
                        0 => value.wrapping_sub(1),
                        _ => value.wrapping_add(1),
                    };
                    commit(&engine, &both, way).await;
                }
            }));
        }
        let (bank, engine, env) = (Arc::clone(&bank), engine.clone(), env.clone());
        tasks.push(env.clone().spawn("sums", async move {
            while env.now() < ends {
                let snapshot = engine.begin_snapshot().await.unwrap();
                for _ in 0..2 {
                    match sum(&engine, &snapshot, &bank.pages).await {
                        Some(sum) => {
                            assert_eq!(sum, 12 * EACH, "{snapshot:?}");
                            bank.sums.fetch_add(1, Ordering::Relaxed);
                        }
                        None => drop(bank.too_old.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.join().await.unwrap();
    }
    bank
}

fn sums_stay(fabric: impl FnOnce(&Env) -> Arc<dyn Fabric>, pool: PoolConfig, time: Duration) {
    let cluster = Cluster::with(3, fabric, pool, engine_config());
    let env = cluster.runtime.env();
    cluster.run(async {
        let bank = run_bank(&env, &cluster.engines, 3, time).await;
        let dropped: u64 = cluster.engines.iter().map(|e| e.stats().images_dropped).sum();
        assert_eq!(dropped, 0);
        assert_eq!(bank.too_old.load(Ordering::Relaxed), 0, "none is too old");
        assert!(bank.sums.load(Ordering::Relaxed) > 0);
        comes_to_rest(&cluster).await;
    });
    cluster.close_and_check();
}

#[test]
fn sums_stay_while_all_nodes_transfer() {
    sums_stay(|_| MemFabric::new(), pool_config(3, 8 << 20), Duration::from_secs(1));
}

#[test]
fn sums_stay_in_a_coded_pool() {
    sums_stay(|_| MemFabric::new(), coded(3, "2+1"), Duration::from_secs(1));
    sums_stay(|_| MemFabric::new(), coded(3, "replicate=3"), Duration::from_secs(1));
}

#[test]
fn sums_stay_while_verbs_are_late() {
    let span = Duration::from_micros(100);
    let delay = Delay { one_in: 2, at_least: span, at_most: 2 * span };
    let plan = FaultPlan { delay, ..FaultPlan::none(7) };
    let fabric = |env: &Env| FaultFabric::wrap(MemFabric::new(), plan, env.clone()) as _;
    sums_stay(fabric, pool_config(2, 8 << 20), Duration::from_secs(1));
}

#[cfg(target_os = "linux")]
#[test]
fn sums_stay_over_shared_memory() {
    use selkie_fabric::shm::ShmFabric;
    let root = tempfile::tempdir().unwrap();
    let fabric = |_: &Env| ShmFabric::open(root.path().join("fabric")).unwrap() as _;
    sums_stay(fabric, pool_config(2, 8 << 20), Duration::from_secs(1));
}

/// Each node in a process of its own, and a node that may only read.
#[cfg(target_os = "linux")]
mod over_tcp {
    use selkie_fabric::env::RealRuntime;
    use selkie_fabric::tcp::{Admission, TcpConfig, TcpFabric};
    use selkie_memnode::MemoryServer;
    use selkie_pool::control::{ControlPlane, Identity, LocalPlane, Timing};
    use selkie_pool::{Pool, create};

    use super::*;

    /// No node dies here, however long a busy machine stands still.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn fabric(env: &Env) -> Arc<dyn Fabric> {
        let admission = Admission::ByCard;
        let config = TcpConfig { admission, dead_after: PATIENCE, ..TcpConfig::new(7) };
        TcpFabric::new(config, env.clone())
    }

    #[test]
    fn sums_stay_for_writers_and_a_node_that_only_reads() {
        let runtime = RealRuntime::new(2).unwrap();
        let env = runtime.env();
        runtime.block_on(async {
            let plane: Arc<dyn ControlPlane> = Arc::new(LocalPlane::default());
            let identity = Identity { name: "test", id: 7, fabric: "tcp" };
            let config = pool_config(1, 8 << 20);
            let timing = Timing { lease: PATIENCE, ..Timing::default() };
            create(&*plane, identity, &config, timing).await.unwrap();
            let lends = fabric(&env);
            let lent = MemoryServer::join(&lends, Arc::clone(&plane), &env, 1, 8 << 20);
            let lent = lent.await.unwrap();
            lent.follow(&env);
            let mut engines = Vec::new();
            for (number, reads_only) in [false, false, true].into_iter().enumerate() {
                let fabric = fabric(&env);
                let host = 2 + number as u64;
                let pool = Pool::open(Arc::clone(&fabric), Arc::clone(&plane), host).await.unwrap();
                pool.follow(&env);
                let config = EngineConfig { reads_only, ..engine_config() };
                let engine = Engine::start(&pool, &fabric, &env, id(number), config);
                engines.push(engine.await.unwrap());
            }
            let bank = run_bank(&env, &engines, 2, Duration::from_secs(2)).await;
            assert!(bank.sums.load(Ordering::Relaxed) > 0);
            assert_eq!(bank.too_old.load(Ordering::Relaxed), 0);
            let [writer, _, reader] = &engines[..] else { panic!("three nodes") };
            let snapshot = reader.begin_snapshot().await.unwrap();
            let page = bank.pages[0];
            let before = read(reader, &snapshot, page).await.unwrap();
            commit(writer, &[page], |_, value| value + 7).await;
            commit(writer, &[page], |_, value| value + 7).await;
            assert_eq!(read(reader, &snapshot, page).await, Some(before));
            assert!(reader.draw_stamp().await.is_err(), "it commits nothing");
            drop(snapshot);
            for engine in &engines {
                engine.close().await.unwrap();
            }
        });
    }
}
