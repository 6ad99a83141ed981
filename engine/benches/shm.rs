//! Cost of an uncontended shared miss over shared memory against what it cannot do without: a plain
//! copy of the page between the same mappings and two atomics on the page's latch word.
//!
//! Every round starts a new compute node, which has no page yet, and lets it read every page once.
//! The ratio comes from medians of rounds that alternate between both. Criterion adds the
//! statistics of each, and what changed since the previous run.
//!
//! Run with `cargo bench -p selkie-engine --bench shm`. Under `cargo test` it runs tiny.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark: what goes wrong shall end it"
)]
#![cfg(target_os = "linux")]

use std::fs::OpenOptions;
use std::hint::black_box;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use selkie_engine::{ComputeId, Engine, EngineConfig, EngineError, GAddr, PSN_BYTES};
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::shm::ShmFabric;
use selkie_fabric::{Fabric, FabricError};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, Pool, PoolConfig};

const GCL_BYTES: usize = 2048;
const ROUNDS: usize = 15;
const TARGET: f64 = 3.0;

/// The pages of the pool as mapped once more, and where one would keep copies of them.
struct Bare {
    memory: *mut u8,
    /// Latch word and data of each page, as offsets.
    pages: Vec<(usize, usize)>,
    copies: Vec<u8>,
}

impl Bare {
    fn of(root: &std::path::Path, pool: &Pool, keys: &[u64]) -> Bare {
        let path = root.join("mem0").join("region-0");
        let file = OpenOptions::new().read(true).write(true).open(path).expect("the region");
        let bytes = file.metadata().expect("its length").len() as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, &file, 0) };
        let geometry = pool.descriptor().geometry();
        let range_bytes = pool.descriptor().range_bytes;
        let place = |key: &u64| {
            let (range, gcl) = (key / range_bytes, key % range_bytes / GCL_BYTES as u64);
            let (range, gcl) = (range as u32, gcl as u32);
            (geometry.latch_offset(range, gcl) as usize, geometry.data_offset(range, gcl) as usize)
        };
        let pages = keys.iter().map(place).collect();
        let copies = vec![1; keys.len() * GCL_BYTES];
        Bare { memory: memory.expect("a mapping").cast(), pages, copies }
    }

    /// Copies every page; how long that takes, and the sum of their first words.
    fn run(&mut self) -> (Duration, u64) {
        let started = Instant::now();
        let mut sum = 0_u64;
        for ((latch, data), copy) in self.pages.iter().zip(self.copies.chunks_exact_mut(GCL_BYTES))
        {
            // SAFETY: the offset is in the mapping, and the word is accessed as an atomic by all.
            let latch = unsafe { AtomicU64::from_ptr(self.memory.wrapping_add(*latch).cast()) };
            latch.fetch_add(1, Ordering::SeqCst);
            // SAFETY: the page is in the mapping; no one writes it meanwhile.
            unsafe {
                ptr::copy_nonoverlapping(
                    self.memory.wrapping_add(*data),
                    copy.as_mut_ptr(),
                    GCL_BYTES,
                )
            };
            latch.fetch_sub(1, Ordering::SeqCst);
            sum = sum.wrapping_add(first_word(&black_box(copy)[PSN_BYTES..]));
        }
        (started.elapsed(), sum)
    }
}

fn first_word(page: &[u8]) -> u64 {
    u64::from_le_bytes(page[..8].try_into().expect("8 bytes"))
}

async fn start(pool: &Arc<Pool>, fabric: &Arc<dyn Fabric>, env: &Env, node: usize) -> Engine {
    let id = ComputeId::new(node).expect("few nodes");
    let config = || EngineConfig { cache_bytes: 32 << 20, ..EngineConfig::default() };
    let started = env.now();
    loop {
        match Engine::start(pool, fabric, env, id, config()).await {
            // Tasks of the engine before end with their next tick.
            Err(EngineError::Fabric(FabricError::AlreadyJoined { .. }))
                if env.now() - started < Duration::from_secs(5) =>
            {
                env.sleep(Duration::from_millis(1)).await;
            }
            started => return started.expect("an engine"),
        }
    }
}

/// Reads every page once; how long that takes, and the sum of their first words.
async fn misses(engine: &Engine, keys: &[u64]) -> (Duration, u64) {
    let started = Instant::now();
    let mut sum = 0_u64;
    for key in keys {
        let page = engine.shared(GAddr::from_u64(*key)).await.expect("a page");
        sum = sum.wrapping_add(first_word(&page));
    }
    (started.elapsed(), sum)
}

/// A pool whose pages are all at home, and the node that reads them.
struct Bench {
    runtime: RealRuntime,
    fabric: Arc<dyn Fabric>,
    memory: Arc<EmbeddedPool>,
    keys: Vec<u64>,
}

impl Bench {
    /// Starts a compute node, and lets it read every page once.
    fn misses(&self) -> (Duration, u64) {
        let env = self.runtime.env();
        self.runtime.block_on(async {
            let engine = start(self.memory.pool(), &self.fabric, &env, 1).await;
            let measured = misses(&engine, &self.keys).await;
            engine.close().await.expect("nothing to write back");
            measured
        })
    }

    /// Criterion's statistics of both, as one group; an iteration is a pass over all pages.
    fn sample(&self, criterion: &mut Criterion, bare: &mut Bare) {
        let mut group = criterion.benchmark_group("shm");
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Elements(self.keys.len() as u64));
        group.bench_function("copy and two atomics", |bencher| {
            bencher.iter_custom(|passes| (0..passes).map(|_| bare.run().0).sum());
        });
        group.bench_function("shared miss", |bencher| {
            bencher.iter_custom(|passes| (0..passes).map(|_| self.misses().0).sum());
        });
        group.finish();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let tiny = !std::env::args().any(|a| a == "--bench");
    let (pages, rounds) = if tiny { (100, 2) } else { (8000, ROUNDS) };
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let root = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let runtime = RealRuntime::new(1).expect("a runtime");
    let fabric: Arc<dyn Fabric> = ShmFabric::open(root.path()).expect("a fabric");
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: 64 << 20,
        gcl_bytes: GCL_BYTES,
        range_bytes: 16 << 20,
        max_compute_nodes: 2,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, config).expect("a pool");
    let pool = memory.pool();
    let env = runtime.env();
    let keys = runtime.block_on(async {
        let engine = start(pool, &fabric, &env, 0).await;
        let mut keys = Vec::new();
        for _ in 0..pages {
            let mut page = engine.allocate().await.expect("a page");
            let key = page.addr().to_u64();
            page.bytes_mut(0..8).copy_from_slice(&key.to_le_bytes());
            keys.push(key);
        }
        engine.close().await.expect("all written back");
        keys
    });
    let mut bare = Bare::of(root.path(), pool, &keys);
    let bench = Bench { runtime, fabric, memory, keys };
    bench.sample(&mut criterion, &mut bare);
    let (mut bare_ns, mut engine_ns) = (Vec::new(), Vec::new());
    let mut checksum = 0;
    for _ in 0..rounds {
        let (bare, expected) = bare.run();
        let (engine, sum) = bench.misses();
        assert_eq!(sum, expected, "both must read the same pages");
        bare_ns.push(bare.as_nanos() as f64 / pages as f64);
        engine_ns.push(engine.as_nanos() as f64 / pages as f64);
        checksum = sum;
    }
    criterion.final_summary();
    let (bare_ns, engine_ns) = (median(bare_ns), median(engine_ns));
    println!("{pages} pages of {GCL_BYTES} B, median of {rounds} rounds, checksum {checksum:#x}");
    println!("copy and two atomics {bare_ns:.0} ns, shared miss {engine_ns:.0} ns");
    println!("shm: ratio {:.2} (target <= {TARGET})", engine_ns / bare_ns);
}
