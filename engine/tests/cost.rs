//! What an access costs: round trips of misses, allocations of hits, bytes written back.
#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

#[path = "clusters/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use common::{Cluster, GCL, engine_config, page, pool_config};
use selkie_engine::{GAddr, PSN_BYTES};
use selkie_fabric::PeerId;
use selkie_fabric::mem::MemFabric;
use selkie_fabric::meter::{Meter, MeterSnapshot};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn metered(engines: usize) -> (Cluster, Arc<Meter>) {
    let meter = Meter::wrap(MemFabric::new());
    let fabric = meter.clone();
    let mut config = engine_config();
    // Housekeeping talks to the pool: not during these tests.
    config.tick = std::time::Duration::from_secs(3600);
    (Cluster::with(engines, move |_| fabric, pool_config(1, 16 << 20), config), meter)
}

fn spent(meter: &Meter, node: u16, before: MeterSnapshot) -> MeterSnapshot {
    meter.snapshot(PeerId::compute(node)) - before
}

#[test]
fn a_hit_allocates_nothing_and_sends_nothing() {
    let (cluster, meter) = metered(1);
    cluster.run(async {
        let engine = &cluster.engines[0];
        let addr = page(engine).await;
        drop(engine.shared(addr).await.unwrap());
        let before = meter.snapshot(PeerId::compute(0));
        let allocations = ALLOCATIONS.with(Cell::get);
        for _ in 0..1000 {
            drop(engine.shared(addr).await.unwrap());
            drop(engine.exclusive(addr).await.unwrap());
            drop(engine.try_shared(addr).await.unwrap());
            drop(engine.try_exclusive(addr).await.unwrap());
        }
        assert_eq!(ALLOCATIONS.with(Cell::get), allocations);
        assert_eq!(spent(&meter, 0, before).chains, 0);
    });
    cluster.close_and_check();
}

#[test]
fn an_uncontended_miss_on_a_clean_page_is_one_round_trip() {
    let (cluster, meter) = metered(2);
    cluster.run(async {
        let engine = &cluster.engines[0];
        let pages = [page(&cluster.engines[1]).await, page(&cluster.engines[1]).await];
        // Gone from the other node's cache: no node holds them.
        cluster.engines[1].close().await.unwrap();
        assert_eq!(cluster.latched_words().await, []);
        for (addr, exclusive) in pages.into_iter().zip([false, true]) {
            let before = meter.snapshot(PeerId::compute(0));
            if exclusive {
                drop(engine.exclusive(addr).await.unwrap());
            } else {
                drop(engine.shared(addr).await.unwrap());
            }
            let spent = spent(&meter, 0, before);
            assert_eq!((spent.chains, spent.atomics, spent.bytes_read), (1, 1, GCL as u64));
            assert_eq!(spent.bytes_written, 0);
        }
    });
    cluster.close_and_check();
}

/// More pages than the cache holds, to be read in the place of others. To allocate some is to
/// write: lines that a node leases are marked.
async fn other_pages(engine: &selkie_engine::Engine) -> Vec<GAddr> {
    let mut pages = Vec::new();
    for _ in 0..4 * engine.stats().frames {
        pages.push(engine.allocate().await.unwrap().addr());
    }
    pages
}

/// Fills the cache with other pages until everything before has been evicted.
async fn evict_everything(engine: &selkie_engine::Engine, others: &[GAddr]) {
    for addr in others {
        drop(engine.shared(*addr).await.unwrap());
    }
}

#[test]
fn write_back_writes_the_dirty_bytes_only() {
    let (cluster, meter) = metered(1);
    cluster.run(async {
        let engine = &cluster.engines[0];
        let addr = page(engine).await;
        let others = other_pages(engine).await;
        evict_everything(engine, &others).await;
        let before = meter.snapshot(PeerId::compute(0));
        {
            let mut guard = engine.exclusive(addr).await.unwrap();
            guard.bytes_mut(400..403).fill(1);
            guard.bytes_mut(420..421).fill(2);
        }
        evict_everything(engine, &others).await;
        // Whole words around 400..421, and the page's number, far from them. The other pages were
        // never written.
        assert_eq!(spent(&meter, 0, before).bytes_written, 24 + PSN_BYTES as u64);
        let guard = engine.shared(addr).await.unwrap();
        assert_eq!((guard[399], guard[400], guard[402], guard[403], guard[420]), (0, 1, 1, 0, 2));
        drop(guard);
        // What is near to it goes with it in one piece.
        let before = meter.snapshot(PeerId::compute(0));
        engine.exclusive(addr).await.unwrap().bytes_mut(100..101).fill(1);
        evict_everything(engine, &others).await;
        assert_eq!(spent(&meter, 0, before).bytes_written, 112);
    });
    cluster.close_and_check();
}
