//! What can be seen of an engine while it works.
#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join;
use selkie_engine::{Engine, GAddr, NodeCounters, Roster, UserCounters, UserCounts};
use selkie_fabric::env::yield_now;
use selkie_fabric::mem::MemFabric;
use selkie_fabric::meter::Meter;

use crate::common::pages::{cluster, pages};
use crate::common::{Cluster, engine_config, page, pool_config};

#[test]
fn the_hottest_are_lines_that_are_missed_or_given_up_and_not_those_that_are_hit() {
    let cluster = Cluster::new(2);
    cluster.run(async {
        let [one, two] = &cluster.engines[..] else { unreachable!("two engines") };
        let (fought_over, quiet) = (page(one).await, page(one).await);
        let before = (one.stats(), two.stats());
        for _ in 0..100 {
            drop(one.exclusive(fought_over).await.unwrap());
            drop(two.exclusive(fought_over).await.unwrap());
            drop(one.shared(quiet).await.unwrap());
        }
        for (engine, before) in [(one, before.0), (two, before.1)] {
            let stats = engine.stats() - before;
            let hottest = engine.hottest(10);
            let first = hottest.first().unwrap();
            assert_eq!(first.addr, fought_over, "{hottest:?}");
            assert_eq!(first.error, 0, "there are fewer lines than counters");
            assert!(stats.misses > 10 && stats.invalidations > 10, "{stats:?}");
            let noted = first.count + stats.hottest_skipped;
            assert!(noted >= stats.misses + stats.invalidations, "{hottest:?} {stats:?}");
            assert!(first.home < 3);
            let quiet = hottest.iter().find(|line| line.addr == quiet);
            assert!(quiet.is_none_or(|line| line.count < 5), "{hottest:?}");
            assert!(engine.hottest(1).len() == 1 && engine.hottest(0).is_empty());
        }
        // Each was asked for the line as often as it gave it up, or more often.
        let (one, two) = (one.stats() - before.0, two.stats() - before.1);
        assert!(one.invalidations_sent >= two.invalidations, "{one:?} {two:?}");
        assert!(two.invalidations_sent >= one.invalidations, "{one:?} {two:?}");
    });
    cluster.close_and_check();
}

/// Reads each page three times.
async fn read(engine: &Engine, all: &[GAddr]) {
    for addr in all.iter().flat_map(|addr| [addr; 3]) {
        drop(engine.shared(*addr).await.unwrap());
        yield_now().await;
    }
}

/// What others do meanwhile, on the same thread, is not on it.
#[test]
fn an_account_has_what_was_done_for_one_future() {
    for cluster in [Cluster::new(2), cluster(2, 3, "2+1").1] {
        cluster.run(async {
            let [one, two] = &cluster.engines[..] else { unreachable!("two engines") };
            let (own, others) = (pages(two, 5).await, pages(two, 20).await);
            let before = one.stats();
            let (((), done), ()) = join(one.account(read(one, &own)), read(one, &others)).await;
            let all = one.stats() - before;
            assert_eq!((done.misses, done.hits, done.upgrades), (5, 10, 0), "{done:?}");
            assert!(done.round_trips >= 5, "{done:?}");
            assert_eq!((all.misses, all.hits), (25, 50));
            // The other has a copy too, and is asked to give it up.
            let Some(addr) = own.first() else { unreachable!("pages") };
            drop(two.shared(*addr).await.unwrap());
            let ((), done) = one.account(async { drop(one.exclusive(*addr).await.unwrap()) }).await;
            assert_eq!((done.misses, done.hits, done.upgrades), (0, 0, 1), "{done:?}");
            assert!(done.round_trips >= 2 && done.invalidations_sent >= 1, "{done:?}");
            let ((), done) = one.account(async {}).await;
            assert_eq!((done.misses, done.hits, done.round_trips), (0, 0, 0), "{done:?}");
        });
        cluster.close_and_check();
    }
}

#[test]
fn a_roster_shows_the_nodes_that_are_entered_and_lets_go_of_them() {
    let meter = Meter::wrap(MemFabric::new());
    let fabric = Arc::clone(&meter);
    let cluster = Cluster::with(2, move |_| fabric, pool_config(1, 8 << 20), engine_config());
    cluster.run(async {
        let [one, two] = &cluster.engines[..] else { unreachable!("two engines") };
        let roster = Roster::default();
        let done = Arc::new(AtomicU64::new(7));
        let counted = Arc::clone(&done);
        let user: UserCounts = Arc::new(move || UserCounters {
            operations: counted.load(Ordering::Relaxed),
            ..UserCounters::default()
        });
        let entered = roster.enter(one, Some(Arc::clone(&meter)), Some(Arc::clone(&user)));
        let plain = roster.enter(two, None, None);
        let addr = page(one).await;
        drop(two.exclusive(addr).await.unwrap());
        done.store(9, Ordering::Relaxed);
        let counters = roster.counters(5);
        let [first, second] = &counters[..] else { unreachable!("{counters:?}") };
        assert_eq!((first.node, second.node), (one.node(), two.node()));
        let operations = |counters: &NodeCounters| counters.user.map(|user| user.operations);
        assert_eq!((operations(first), operations(second)), (Some(9), None));
        assert!(first.traffic.is_some_and(|traffic| traffic.chains > 0), "{first:?}");
        assert!(second.traffic.is_none());
        assert_eq!(second.engine.misses, two.stats().misses);
        assert!(second.hottest.iter().any(|line| line.addr == addr), "{second:?}");
        let added = [entered.add_user(Arc::clone(&user)), plain.add_user(user)];
        let all = || roster.counters(0).iter().map(operations).collect::<Vec<_>>();
        assert_eq!(all(), [Some(18), Some(9)]);
        drop(added);
        done.store(10, Ordering::Relaxed);
        assert_eq!(all(), [Some(19), Some(9)], "what they had counted stays");
        assert_eq!(Arc::strong_count(&done), 2);
        drop(entered);
        assert_eq!(roster.counters(5).len(), 1);
        assert_eq!(Arc::strong_count(&done), 1, "all that was entered is gone");
    });
    cluster.close_and_check();
}
