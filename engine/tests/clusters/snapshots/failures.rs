//! Snapshots when nodes end, memory is short, or callers give up.

use selkie_engine::EngineError;
use selkie_fabric::PeerId;
use selkie_pool::ComputeIndex;

use super::*;
use crate::common::PAGE;
use crate::common::drops::poll_times;
use crate::common::load::is_whole;
use crate::common::pages::cluster as coded_cluster;
use crate::common::processes::in_virtual_time;

/// Room for two images.
const TWO: u64 = 2 * (40 + PAGE as u64);

#[test]
fn when_the_arena_is_full_the_oldest_snapshot_is_missed_first() {
    let config = EngineConfig { image_bytes: TWO, ..engine_config() };
    let cluster = Cluster::with(2, |_| MemFabric::new(), pool_config(3, 8 << 20), config);
    cluster.run(async {
        let [a, b] = &cluster.engines[..] else { panic!("two nodes") };
        let pages = new_pages(a, 1, 1).await;
        let mut snapshots = Vec::new();
        for round in 2..6 {
            snapshots.push(b.begin_snapshot().await.unwrap());
            commit(a, &pages, |_, _| round).await;
        }
        let mut values = Vec::new();
        for snapshot in &snapshots {
            values.push(read(b, snapshot, pages[0]).await);
        }
        assert_eq!(values, [None, None, Some(3), Some(4)]);
        assert_eq!((a.stats().images_dropped, a.stats().images_live), (2, 2));
        assert_eq!(a.stats().image_bytes, TWO);
        drop(snapshots);
        comes_to_rest(&cluster).await;
    });
    cluster.close_and_check();
}

#[test]
fn a_node_without_room_keeps_none_and_too_little_room_is_refused() {
    let config = EngineConfig { image_bytes: 0, ..engine_config() };
    let cluster = Cluster::with(2, |_| MemFabric::new(), pool_config(3, 8 << 20), config);
    cluster.run(async {
        let [a, b] = &cluster.engines[..] else { panic!("two nodes") };
        let pages = new_pages(a, 1, 1).await;
        let snapshot = b.begin_snapshot().await.unwrap();
        assert_eq!(read(b, &snapshot, pages[0]).await, Some(1));
        commit(a, &pages, |_, _| 2).await;
        assert_eq!(read(b, &snapshot, pages[0]).await, None);
        let env = cluster.runtime.env();
        let config = EngineConfig { image_bytes: 100, ..engine_config() };
        let refused = Engine::start(&cluster.pool, &cluster.fabric, &env, id(2), config).await;
        let error = refused.map(drop).unwrap_err();
        assert!(matches!(error, EngineError::Config { key: "image_bytes", value: 100, .. }));
    });
}

/// The images of a node that leaves are gone, and its snapshots hold nothing back.
#[test]
fn a_node_that_leaves_takes_its_images_with_it() {
    let cluster = Cluster::new(3);
    cluster.run(async {
        let [a, b, c] = &cluster.engines[..] else { panic!("three nodes") };
        let pages = new_pages(a, 2, 1).await;
        let of_b = b.begin_snapshot().await.unwrap();
        let of_c = c.begin_snapshot().await.unwrap();
        commit(a, &pages, |_, _| 2).await;
        assert_eq!(read(b, &of_b, pages[0]).await, Some(1));
        a.close().await.unwrap();
        assert_eq!(read(b, &of_b, pages[0]).await, None);
        let now = b.begin_snapshot().await.unwrap();
        assert_eq!(read(b, &now, pages[0]).await, Some(2));
        // Another node has other images.
        let env = cluster.runtime.env();
        let again = Engine::start(&cluster.pool, &cluster.fabric, &env, id(3), engine_config());
        let again = again.await.unwrap();
        commit(&again, &pages, |_, _| 3).await;
        assert_eq!(read(b, &now, pages[0]).await, Some(2));
        assert_eq!(read(b, &of_b, pages[0]).await, None);
        c.close().await.unwrap();
        drop((of_b, now));
        // That of the node that has left is still held by its caller.
        let env = cluster.runtime.env();
        until(&env, &cluster, "images are freed", || again.stats().images_live == 0).await;
        drop(of_c);
        again.close().await.unwrap();
        b.close().await.unwrap();
        assert!(matches!(b.begin_snapshot().await, Err(EngineError::Closed)));
    });
}

/// A node dies that has snapshots, and one that has images.
#[test]
fn a_node_that_dies_holds_nothing_back() {
    let mem = MemFabric::new();
    let fabric = Arc::clone(&mem);
    let cluster = Cluster::with(2, move |_| fabric, pool_config(3, 8 << 20), engine_config());
    let env = cluster.runtime.env();
    cluster.run(async {
        let a = &cluster.engines[0];
        let dies =
            Engine::start(&cluster.pool, &cluster.fabric, &env, id(5), engine_config()).await;
        let dies = dies.unwrap();
        let pages = new_pages(a, 1, 1).await;
        let of_dead = dies.begin_snapshot().await.unwrap();
        let of_a = a.begin_snapshot().await.unwrap();
        commit(&dies, &pages, |_, _| 2).await;
        assert_eq!(read(a, &of_a, pages[0]).await, Some(1));
        // It is home.
        dies.evict(pages[0]).await.unwrap();
        drop(dies);
        let gone = ComputeIndex::new(5);
        let recovered = || !cluster.pool.is_member(gone) && cluster.pool.lost().is_empty();
        until(&env, &cluster, "the death is over", recovered).await;
        assert_eq!(read(a, &of_a, pages[0]).await, None, "its images are gone");
        commit(a, &pages, |_, _| 3).await;
        drop(of_a);
        until(&env, &cluster, "nothing is held back", || a.stats().images_live == 0).await;
        comes_to_rest(&cluster).await;
        drop(of_dead);
    });
}

/// The memory node dies at which snapshots are published: those that are active lose no image that
/// was kept, those that begin are right, and none reads a wrong value.
#[test]
fn snapshots_outlive_the_memory_node_that_has_the_epochs() {
    for coding in ["2+1", "replicate=3"] {
        let (mem, cluster) = coded_cluster(3, 4, coding);
        let env = cluster.runtime.env();
        cluster.run(async {
            let pages = new_pages(&cluster.engines[0], 2, 1).await;
            let old = cluster.engines[1].begin_snapshot().await.unwrap();
            commit(&cluster.engines[0], &pages, |_, _| 2).await;
            let young = cluster.engines[1].begin_snapshot().await.unwrap();
            mem.kill(PeerId::memory(0));
            // Nothing says yet, at the next memory node, that the two are active.
            commit(&cluster.engines[0], &pages, |_, _| 3).await;
            // That node's registry is open, by what it has said at the memory node that is gone.
            let again = cluster.engines[1].begin_snapshot().await.unwrap();
            for (snapshot, value) in [(&old, 1), (&young, 2), (&again, 3)] {
                let found = read(&cluster.engines[1], snapshot, pages[0]).await;
                assert_eq!(found, Some(value), "{coding}");
            }
            drop((young, again));
            let later = cluster.engines[2].begin_snapshot().await.unwrap();
            commit(&cluster.engines[0], &pages, |_, _| 4).await;
            assert_eq!(read(&cluster.engines[1], &old, pages[0]).await, Some(1), "{coding}");
            assert_eq!(read(&cluster.engines[2], &later, pages[0]).await, Some(3), "{coding}");
            let bank = run_bank(&env, &cluster.engines, 3, Duration::from_millis(500)).await;
            assert!(bank.sums.load(Ordering::Relaxed) > 0);
            drop((old, later));
            comes_to_rest(&cluster).await;
        });
    }
}

/// A copy of the clock is zero until it is made again. Who took that for the clock read a state of
/// before commits that were acknowledged.
#[test]
fn no_snapshot_is_older_than_a_commit_while_a_lost_copy_of_the_clock_is_made_again() {
    let (mem, cluster) = coded_cluster(3, 4, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let pages = new_pages(&cluster.engines[0], 2, 1).await;
        let mut killed = None;
        for round in 2.. {
            let committed = commit(&cluster.engines[0], &pages, |_, _| round).await;
            for engine in &cluster.engines[1..] {
                let snapshot = engine.begin_snapshot().await.unwrap();
                assert!(snapshot.stamp() >= committed, "{snapshot:?} is before {committed:?}");
            }
            let is_made = cluster.pool.is_memory_dead(0) && is_whole(&cluster.pool);
            match killed {
                None if round == 50 => {
                    mem.kill(PeerId::memory(0));
                    killed = Some(env.now());
                }
                None => {}
                Some(_) if is_made => break,
                Some(killed) => assert!(env.now() - killed < Duration::from_secs(30), "not made"),
            }
        }
    });
}

#[test]
fn sums_stay_while_the_memory_node_with_the_epochs_is_lost() {
    let (mem, cluster) = coded_cluster(3, 4, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let kills = env.spawn("kills", {
            let env = env.clone();
            async move {
                env.sleep(Duration::from_millis(300)).await;
                mem.kill(PeerId::memory(0));
            }
        });
        let bank = run_bank(&env, &cluster.engines, 3, Duration::from_secs(1)).await;
        kills.join().await.unwrap();
        assert!(bank.sums.load(Ordering::Relaxed) > 0);
        comes_to_rest(&cluster).await;
    });
}

/// Futures that are dropped at every await point leave no snapshot, no bit and no image behind.
#[test]
fn dropped_futures_leave_nothing_active() {
    for coding in ["plain", "2+1"] {
        let span = Duration::from_micros(100);
        let delay = Delay { one_in: 1, at_least: span, at_most: 2 * span };
        let plan = FaultPlan { delay, ..FaultPlan::none(7) };
        let fabric = |env: &Env| FaultFabric::wrap(MemFabric::new(), plan, env.clone()) as _;
        let cluster = Cluster::with(2, fabric, coded(3, coding), engine_config());
        cluster.run(async {
            let [a, b] = &cluster.engines[..] else { panic!("two nodes") };
            let pages = new_pages(a, 1, 1).await;
            for (value, polls) in (1..).zip(1..12) {
                drop(poll_times(b.begin_snapshot(), polls).await);
                drop(poll_times(a.draw_stamp(), polls).await);
                // In the midst of what the dropped futures have begun.
                let snapshot = b.begin_snapshot().await.unwrap();
                commit(a, &pages, |_, value| value + 1).await;
                let _ = poll_times(read(b, &snapshot, pages[0]), polls).await;
                assert_eq!(read(b, &snapshot, pages[0]).await, Some(value), "{coding}, {polls}");
                drop(snapshot);
                if polls % 3 == 0 {
                    comes_to_rest(&cluster).await;
                }
            }
            comes_to_rest(&cluster).await;
        });
        cluster.close_and_check();
    }
}

/// Two processes in virtual time.
#[test]
fn snapshots_in_virtual_time() {
    in_virtual_time(2, Duration::from_secs(2), async |processes, env, _| {
        let bank = run_bank(&env, &processes.engines, 2, Duration::from_millis(200)).await;
        assert!(bank.sums.load(Ordering::Relaxed) > 0);
        assert_eq!(bank.too_old.load(Ordering::Relaxed), 0);
        processes.close().await;
    });
}
