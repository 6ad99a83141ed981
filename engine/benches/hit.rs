//! Cost of a shared hit (lookup, latch, read 8 bytes, unlatch) against a bare open-addressing table
//! of pages with one atomic latch word an entry.
//!
//! The ratios come from medians of rounds that alternate between both. Criterion adds the
//! statistics of each, and what changed since the previous run.
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
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput};
use selkie_engine::{ComputeId, Engine, EngineConfig, GAddr};
use selkie_fabric::Fabric;
use selkie_fabric::env::RealRuntime;
use selkie_fabric::mem::MemFabric;
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};

const GCL_BYTES: usize = 2048;
const HOT: usize = 1000;
const ROUNDS: usize = 15;
const TARGET: f64 = 1.8;

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

/// How long so many reads of every key take, and the sum of what was read.
fn measure(keys: &[u64], passes: u64, read: impl Fn(u64) -> u64) -> (Duration, u64) {
    let start = Instant::now();
    let mut sum = 0u64;
    for _ in 0..passes {
        for key in keys {
            sum = sum.wrapping_add(black_box(read(black_box(*key))));
        }
    }
    (start.elapsed(), sum)
}

/// The same on several threads at once, each on its own share of the keys; their mean.
fn measure_threads(
    keys: &[u64],
    threads: usize,
    passes: u64,
    read: impl Fn(u64) -> u64 + Sync,
) -> (Duration, u64) {
    let barrier = std::sync::Barrier::new(threads);
    let run = |share: &[u64]| {
        barrier.wait();
        measure(share, passes, &read)
    };
    let run = &run;
    let results: Vec<(Duration, u64)> = std::thread::scope(|scope| {
        let handles: Vec<_> = keys
            .chunks(keys.len() / threads)
            .map(|share| scope.spawn(move || run(share)))
            .collect();
        handles.into_iter().map(|h| h.join().expect("no panic")).collect()
    });
    let total: Duration = results.iter().map(|r| r.0).sum();
    (total / threads as u32, results.iter().fold(0, |sum, r| sum.wrapping_add(r.1)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What is compared, and how.
struct Bench {
    bare: BareTable,
    engine: Engine,
    keys: Vec<u64>,
}

impl Bench {
    fn read_bare(&self, threads: usize, passes: u64) -> (Duration, u64) {
        measure_threads(&self.keys, threads, passes, |key| self.bare.read(key))
    }

    fn read_engine(&self, threads: usize, passes: u64) -> (Duration, u64) {
        let read = |key| read_page(&self.engine, GAddr::from_u64(key));
        measure_threads(&self.keys, threads, passes, read)
    }

    /// Criterion's statistics of both, as one group; an iteration is a pass over all keys.
    fn sample(&self, criterion: &mut Criterion, name: &str, threads: usize) {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(self.keys.len() as u64));
        group.bench_function("bare table", |bencher| {
            bencher.iter_custom(|passes| self.read_bare(threads, passes).0);
        });
        group.bench_function("engine", |bencher| {
            bencher.iter_custom(|passes| self.read_engine(threads, passes).0);
        });
        group.finish();
    }

    /// Prints and returns the ratio, from rounds that alternate between both.
    fn compare(&self, name: &str, threads: usize, passes: u64) -> f64 {
        let reads = passes as f64 * (self.keys.len() / threads) as f64;
        let (mut bare_ns, mut engine_ns) = (Vec::new(), Vec::new());
        let mut checksum = 0;
        for _ in 0..ROUNDS {
            let (bare, expected) = self.read_bare(threads, passes);
            let (engine, sum) = self.read_engine(threads, passes);
            assert_eq!(sum, expected, "both must read the same pages");
            bare_ns.push(bare.as_nanos() as f64 / reads);
            engine_ns.push(engine.as_nanos() as f64 / reads);
            checksum = sum;
        }
        let (bare, engine) = (median(bare_ns), median(engine_ns));
        let ratio = engine / bare;
        println!("{name}: bare table {bare:.1} ns, engine {engine:.1} ns, checksum {checksum:#x}");
        println!("{name}: ratio {ratio:.2} (target <= {TARGET})");
        ratio
    }
}

fn main() {
    let tiny = !std::env::args().any(|a| a == "--bench");
    let passes = if tiny { 2 } else { 1000 };
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
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
    let bench = Bench { bare, engine, keys };
    let mut worst = 0_f64;
    for (name, threads) in [("hit, 1 thread", 1), ("hit, 2 threads on disjoint pages", 2)] {
        bench.sample(&mut criterion, name, threads);
        worst = worst.max(bench.compare(name, threads, passes));
    }
    criterion.final_summary();
    println!("hit: ratio {worst:.2} (target <= {TARGET})");
}
