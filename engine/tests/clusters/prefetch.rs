//! Pages that are fetched before a caller asks for them: nothing is latched, nothing is left
//! behind, and what others use stays with them.

use std::time::Duration;

use selkie_engine::{Coherence, EngineConfig, GAddr};
use selkie_fabric::mem::MemFabric;

use crate::common::load::until;
use crate::common::pages::{check, cluster, pages, write};
use crate::common::processes::in_virtual_time;
use crate::common::{Cluster, engine_config, pool_config};

const LEASE: Duration = Duration::from_secs(2);

#[test]
fn a_page_that_was_fetched_ahead_is_there_and_is_not_latched() {
    for cluster in [Cluster::new(2), cluster(2, 3, "2+1").1] {
        let env = cluster.runtime.env();
        cluster.run(async {
            let [reads, writes] = &cluster.engines[..] else { panic!("two nodes") };
            let all = pages(writes, 40).await;
            let before = reads.stats();
            for addr in &all {
                assert!(reads.prefetch(*addr), "it is not cached here");
                assert!(!reads.prefetch(*addr), "it is, or is on its way");
            }
            let is_here = |addr: &GAddr| reads.shared_hit(*addr).is_some();
            until(&env, &cluster, "all are there", || all.iter().all(is_here)).await;
            for addr in &all {
                assert_eq!(check(&reads.shared(*addr).await.unwrap(), *addr), 1);
            }
            let stats = reads.stats() - before;
            assert_eq!((stats.prefetches, stats.misses), (40, 0));
            // The other writes them again, and this node sees that.
            for addr in &all {
                write(writes, *addr, 2).await;
                assert!(reads.prefetch(*addr));
                assert_eq!(check(&reads.shared(*addr).await.unwrap(), *addr), 2);
            }
        });
        cluster.close_and_check();
    }
}

/// As a caller that waits for no holder: another node keeps what it uses.
#[test]
fn a_page_that_another_node_uses_stays_there() {
    let cluster = Cluster::new(2);
    let env = cluster.runtime.env();
    cluster.run(async {
        let [reads, writes] = &cluster.engines[..] else { panic!("two nodes") };
        let addr = pages(writes, 1).await[0];
        let mut used = writes.exclusive(addr).await.unwrap();
        assert!(reads.prefetch(addr));
        let is_over = || reads.active_lines().is_empty();
        until(&env, &cluster, "it is refused", is_over).await;
        assert!(reads.shared_hit(addr).is_none());
        used.bytes_mut(0..8).copy_from_slice(&9_u64.to_le_bytes());
        drop(used);
        assert!(reads.prefetch(addr), "it may be asked for again");
        let page = reads.shared(addr).await.unwrap();
        assert_eq!(page[..8], 9_u64.to_le_bytes());
    });
    cluster.close_and_check();
}

/// A caller that comes while the page is on its way waits for that, and fetches nothing itself.
/// In virtual time nothing completes between two statements, however busy the machine is.
#[test]
fn a_caller_joins_a_fetch_that_is_under_way() {
    in_virtual_time(2, LEASE, async |processes, _, network| {
        let engine = &processes.engines[0];
        let all = pages(engine, 8).await;
        let sent = || network.busy().iter().map(|(_, adapter)| adapter.sends).sum::<Duration>();
        let mut sent_for = Vec::new();
        for ahead in [0, all.len()] {
            for addr in &all {
                engine.evict(*addr).await.unwrap();
            }
            let (stats, before) = (engine.stats(), sent());
            assert!(all[..ahead].iter().all(|addr| engine.prefetch(*addr)));
            assert!(
                all.iter().all(|addr| engine.shared_hit(*addr).is_none()),
                "none is waited for"
            );
            for addr in &all {
                assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1);
            }
            assert_eq!((engine.stats() - stats).prefetches, ahead as u64);
            sent_for.push(sent() - before);
        }
        assert!(sent_for[1] <= sent_for[0], "a page is sent twice: {sent_for:?}");
        processes.close().await;
    });
}

#[test]
fn the_last_free_frames_are_left_to_callers_that_wait() {
    const PAGES: usize = 3_000;
    in_virtual_time(2, LEASE, async |processes, _, _| {
        let engine = &processes.engines[0];
        let all = pages(engine, PAGES).await;
        let mut begun = 0;
        for addr in &all {
            // No other task runs between these, so nothing completes, and nothing is evicted.
            begun += usize::from(engine.prefetch(*addr));
            assert!(engine.stats().frames_free >= 8, "after {begun}");
        }
        assert!(begun > 0 && begun < PAGES / 2, "{begun}");
        for addr in &all {
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1);
        }
        processes.close().await;
    });
}

#[test]
fn where_nothing_can_be_fetched_nothing_is() {
    let cluster = Cluster::new(1);
    cluster.run(async {
        let engine = &cluster.engines[0];
        let addr = pages(engine, 1).await[0];
        assert!(!engine.prefetch(addr), "it is cached");
        assert!(!engine.prefetch(GAddr::NULL) && !engine.prefetch(GAddr::from_u64(1 << 47)));
        engine.evict(addr).await.unwrap();
        engine.close().await.unwrap();
        assert!(!engine.prefetch(addr), "the node has left");
    });
    // A node that caches nothing would give it up at once.
    let config = EngineConfig { coherence: Coherence::Sel, ..engine_config() };
    let cluster = Cluster::with(1, |_| MemFabric::new(), pool_config(2, 4 << 20), config);
    cluster.run(async {
        let addr = pages(&cluster.engines[0], 1).await[0];
        assert!(!cluster.engines[0].prefetch(addr));
    });
    cluster.close_and_check();
}
