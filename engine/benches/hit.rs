//! Cost of a shared hit (lookup, latch, read 8 bytes, unlatch) against a bare open-addressing table
//! of pages with one atomic latch word an entry, measured alternately in one run.
//!
//! Run with `cargo bench -p selkie-engine --bench hit`. Under `cargo test` it runs tiny.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark: what goes wrong shall end it"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use selkie_engine::{ComputeId, Engine, EngineConfig, GAddr};
use selkie_fabric::Fabric;
use selkie_fabric::env::RealRuntime;
use selkie_fabric::mem::MemFabric;
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};

const GCL_BYTES: usize = 2048;
const HOT: usize = 1000;
const ROUNDS: usize = 15;
const TARGET: f64 = 2.0;

/// An entry of the bare table, on a cache line of its own: threads on disjoint keys share nothing.
#[repr(align(64))]
struct Entry {
    key: AtomicU64,
    latch: AtomicU64,
    page: Box<[u64; GCL_BYTES / 8]>,
}

/// Open addressing, linear probing, half full.
struct BareTable {
    entries: Vec<Entry>,
}

impl BareTable {
    fn new(keys: &[u64]) -> BareTable {
        let slots = (2 * keys.len()).next_power_of_two();
        let entry = |_| Entry {
            key: AtomicU64::new(0),
            latch: AtomicU64::new(0),
            page: Box::new([0; GCL_BYTES / 8]),
        };
        let mut table = BareTable { entries: (0..slots).map(entry).collect() };
        for key in keys {
            let mut slot = table.start(*key);
            while table.entries[slot].key.load(Ordering::Relaxed) != 0 {
                slot = (slot + 1) & (slots - 1);
            }
            table.entries[slot].key.store(*key, Ordering::Relaxed);
            table.entries[slot].page[0] = *key;
        }
        table
    }

    fn start(&self, key: u64) -> usize {
        let product = (key >> 11).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (product >> 32) as usize & (self.entries.len() - 1)
    }

    #[inline]
    fn read(&self, key: u64) -> u64 {
        let mut slot = self.start(key);
        loop {
            let entry = &self.entries[slot];
            let found = entry.key.load(Ordering::Relaxed);
            if found == key {
                let mut word = entry.latch.load(Ordering::Relaxed);
                loop {
                    match entry.latch.compare_exchange_weak(
                        word,
                        word + 1,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    ) {
                        Ok(_) => break,
                        Err(now) => word = now,
                    }
                }
                let value = entry.page[0];
                entry.latch.fetch_sub(1, Ordering::Release);
                return value;
            }
            assert!(found != 0, "every key is in the table");
            slot = (slot + 1) & (self.entries.len() - 1);
        }
    }
}

fn read_page(engine: &Engine, addr: GAddr) -> u64 {
    let guard = engine.shared_hit(addr).expect("everything is cached");
    u64::from_le_bytes(guard[..8].try_into().expect("8 bytes"))
}

/// Nanoseconds a read and the sum of what was read.
fn measure(keys: &[u64], passes: usize, read: impl Fn(u64) -> u64) -> (f64, u64) {
    let start = Instant::now();
    let mut sum = 0u64;
    for _ in 0..passes {
        for key in keys {
            sum = sum.wrapping_add(black_box(read(black_box(*key))));
        }
    }
    (start.elapsed().as_nanos() as f64 / (passes * keys.len()) as f64, sum)
}

/// The same on several threads at once, each on its own share of the keys; mean nanoseconds.
fn measure_threads(
    keys: &[u64],
    threads: usize,
    passes: usize,
    read: impl Fn(u64) -> u64 + Sync,
) -> (f64, u64) {
    let barrier = std::sync::Barrier::new(threads);
    let run = |share: &[u64]| {
        barrier.wait();
        measure(share, passes, &read)
    };
    let run = &run;
    let results: Vec<(f64, u64)> = std::thread::scope(|scope| {
        let handles: Vec<_> = keys
            .chunks(keys.len() / threads)
            .map(|share| scope.spawn(move || run(share)))
            .collect();
        handles.into_iter().map(|h| h.join().expect("no panic")).collect()
    });
    let mean = results.iter().map(|r| r.0).sum::<f64>() / results.len() as f64;
    (mean, results.iter().fold(0, |sum, r| sum.wrapping_add(r.1)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(
    name: &str,
    threads: usize,
    passes: usize,
    bare: &BareTable,
    engine: &Engine,
    keys: &[u64],
) -> f64 {
    let (mut bare_ns, mut engine_ns) = (Vec::new(), Vec::new());
    let mut checksums = (0, 0);
    for _ in 0..ROUNDS {
        let (ns, sum) = measure_threads(keys, threads, passes, |key| bare.read(key));
        bare_ns.push(ns);
        checksums.0 = sum;
        let (ns, sum) =
            measure_threads(keys, threads, passes, |key| read_page(engine, GAddr::from_u64(key)));
        engine_ns.push(ns);
        checksums.1 = sum;
    }
    assert_eq!(checksums.0, checksums.1, "both must read the same pages");
    let (bare_ns, engine_ns) = (median(bare_ns), median(engine_ns));
    let ratio = engine_ns / bare_ns;
    println!(
        "{name}: bare table {bare_ns:.1} ns, engine {engine_ns:.1} ns, checksum {:#x}",
        checksums.1
    );
    println!("{name}: ratio {ratio:.2} (target <= {TARGET})");
    ratio
}

fn main() {
    let tiny = !std::env::args().any(|a| a == "--bench");
    let passes = if tiny { 2 } else { 1000 };
    let runtime = RealRuntime::new(2).expect("a runtime");
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: 64 << 20,
        gcl_bytes: GCL_BYTES,
        range_bytes: 16 << 20,
        max_compute_nodes: 1,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, config).expect("a pool");
    let env = runtime.env();
    let node = ComputeId::new(0).expect("node 0");
    let config = EngineConfig { cache_bytes: 32 << 20, ..EngineConfig::default() };
    let (engine, keys) = runtime.block_on(async {
        let engine =
            Engine::start(memory.pool(), &fabric, &env, node, config).await.expect("an engine");
        let mut keys = Vec::new();
        for _ in 0..HOT {
            let mut page = engine.allocate().await.expect("a page");
            let key = page.addr().to_u64();
            page.bytes_mut(0..8).copy_from_slice(&key.to_le_bytes());
            keys.push(key);
        }
        (engine, keys)
    });
    let bare = BareTable::new(&keys);
    println!("{HOT} hot pages of {GCL_BYTES} B, {passes} passes, median of {ROUNDS} rounds");
    let per_line = engine.overhead_bytes() as f64 / engine.stats().frames as f64;
    println!("memory beside page data: {per_line:.0} B a cached page (target <= 160)");
    let one = compare("hit, 1 thread", 1, passes, &bare, &engine, &keys);
    let two = compare("hit, 2 threads on disjoint pages", 2, passes, &bare, &engine, &keys);
    println!("hit: ratio {:.2} (target <= {TARGET})", one.max(two));
}
