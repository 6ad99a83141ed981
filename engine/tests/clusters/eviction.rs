//! Memory nodes that take slabs back: compute nodes tell which are used, move what is evicted, and
//! what is left of it is given back to the host.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_memnode::monitor::MonitorConfig;
use selkie_pool::{FailureDomain, Reclaim};

use crate::common::Cluster;
use crate::common::load::{is_whole, until};
use crate::common::pages::{check, cluster, pages, write};

const HEADROOM: u64 = 1 << 30;
/// Several times as many as the smallest cache has frames.
const PAGES: usize = 4_000;

/// Has a memory node look after a host that has so much free memory.
fn watch(cluster: &Cluster, node: usize, free: &Arc<AtomicU64>) {
    let free = Arc::clone(free);
    let config = MonitorConfig::new(HEADROOM, move || Ok(free.load(Ordering::Relaxed)));
    let config = MonitorConfig { every: Duration::from_millis(10), ..config };
    cluster.memory.start_monitor(node, &cluster.runtime.env(), config);
}

fn reclaim(cluster: &Cluster, node: u16) -> Reclaim {
    cluster.pool.state().reclaim_of(node).unwrap().clone()
}

/// Accesses that were told of to the slabs that lie on a memory node.
fn told(cluster: &Cluster, node: u16) -> u64 {
    let (state, geometry) = (cluster.pool.state(), cluster.pool.descriptor().geometry());
    let slabs = state.ranges.iter().flat_map(|range| &range.slabs);
    let own = slabs.filter(|slab| slab.node == node);
    let nodes = cluster.memory.memory_nodes();
    let region = nodes[usize::from(node)].region();
    own.map(|slab| region.load(geometry.activity_offset(slab.slab) as usize)).sum()
}

#[test]
fn who_watches_is_told_what_is_fetched_and_written_back_and_others_are_not() {
    let (_, cluster) = cluster(2, 3, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        watch(&cluster, 1, &Arc::new(AtomicU64::new(u64::MAX)));
        until(&env, &cluster, "watches", || reclaim(&cluster, 1).is_watching).await;
        let all = pages(&cluster.engines[0], PAGES).await;
        // The other has to fetch each of them.
        for addr in &all {
            check(&cluster.engines[1].shared(*addr).await.unwrap(), *addr);
        }
        until(&env, &cluster, "is told", || told(&cluster, 1) >= PAGES as u64).await;
        let accesses = |engine: usize| {
            let stats = cluster.engines[engine].stats();
            stats.misses + stats.write_backs + stats.upgrades
        };
        let most: u64 = (0..2).map(accesses).sum::<u64>() + 4 * PAGES as u64;
        assert!(told(&cluster, 1) <= most, "{} told, {most} accesses", told(&cluster, 1));
        assert_eq!([told(&cluster, 0), told(&cluster, 2)], [0, 0], "they do not watch");
        let before = told(&cluster, 1);
        env.sleep(Duration::from_millis(300)).await;
        let idle = told(&cluster, 1);
        for _ in 0..1_000 {
            drop(cluster.engines[1].shared(all[PAGES - 1]).await.unwrap());
        }
        env.sleep(Duration::from_millis(300)).await;
        let after = told(&cluster, 1);
        assert!(after - idle < 100, "hits are not told of: {before}, {idle}, {after}");
    });
}

#[test]
fn one_that_joins_later_is_told_as_well() {
    let (_, cluster) = cluster(2, 3, "2+1");
    let env = cluster.runtime.env();
    cluster.run(async {
        let all = pages(&cluster.engines[0], PAGES).await;
        let (memory, pool, fabric) = (&cluster.memory, &cluster.pool, &cluster.fabric);
        let node = memory.grow(fabric, &env, 8 << 20, FailureDomain::ALONE).await.unwrap();
        watch(&cluster, usize::from(node), &Arc::new(AtomicU64::new(u64::MAX)));
        until(&env, &cluster, "watches", || reclaim(&cluster, node).is_watching).await;
        until(&env, &cluster, "gets slabs", || pool.state().slabs_on(node) > 1).await;
        for addr in &all {
            check(&cluster.engines[1].shared(*addr).await.unwrap(), *addr);
        }
        until(&env, &cluster, "is told", || told(&cluster, node) > 0).await;
    });
}

#[test]
fn a_memory_node_gives_back_all_it_lends_and_lends_it_again() {
    let (mem, cluster) = cluster(2, 4, "2+1");
    let env = cluster.runtime.env();
    let free = Arc::new(AtomicU64::new(u64::MAX));
    cluster.run(async {
        let all = pages(&cluster.engines[0], PAGES).await;
        watch(&cluster, 1, &free);
        let used = cluster.pool.state().slabs_on(1);
        assert!(used > 1);
        free.store(0, Ordering::Relaxed);
        let lent = cluster.pool.descriptor().memory_nodes[1].ranges as usize;
        until(&env, &cluster, "gives back", || reclaim(&cluster, 1).withdrawn.len() == lent).await;
        assert_eq!(cluster.pool.state().slabs_on(1), 0);
        // Nothing is given back before that, so nothing is missing; and not less redundant.
        let next = cluster.pool.state().ranges[0].slabs[0].node;
        env.sleep(Duration::from_millis(50)).await;
        let (region, geometry) = (
            Arc::clone(cluster.memory.memory_nodes()[1].region()),
            cluster.pool.descriptor().geometry(),
        );
        let mut bytes = vec![1; lent * geometry.slab_bytes() as usize];
        region.read(geometry.slab_offset(0) as usize, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0), "what is given back is zero");
        mem.kill(PeerId::memory(next));
        for addr in &all {
            check(&cluster.engines[1].shared(*addr).await.unwrap(), *addr);
        }
        // What was lost can only be made again where memory is lent again.
        free.store(u64::MAX, Ordering::Relaxed);
        until(&env, &cluster, "is regenerated", || is_whole(&cluster.pool)).await;
        assert!(cluster.pool.state().slabs_on(1) > 0 && reclaim(&cluster, 1).withdrawn.is_empty());
        for addr in &all {
            write(&cluster.engines[0], *addr, 2).await;
        }
        for addr in &all {
            assert_eq!(check(&cluster.engines[1].shared(*addr).await.unwrap(), *addr), 2);
        }
    });
}
