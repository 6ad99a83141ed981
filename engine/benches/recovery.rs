//! How soon the pages of a dead compute node are usable again, for a gibibyte of its log in memory,
//! against reading as many bytes of the memory nodes and nothing else, in the same run.
//!
//! A node changes some hundred bytes of several pages at a time, as transactions do, until that
//! much of its log is kept; then it is gone at once, and another makes its pages again: that takes
//! its sweep, the log, and writing the pages home. The lease, after which a node is taken for dead,
//! comes on top.
//!
//! Criterion adds the statistics of recoveries of a shorter log, and what changed since the
//! previous run.
//!
//! Run with `cargo bench -p selkie-engine --bench recovery`. Under `cargo test` it runs tiny.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark: what goes wrong shall end it"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, SamplingMode, Throughput};
use selkie_engine::log::LogTo;
use selkie_engine::{ComputeId, Engine, EngineConfig, EngineError, GAddr, change_together};
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Buf, Fabric, PeerId, RemoteAddr, Verb};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, ComputeIndex, Pool, PoolConfig};

const GCL_BYTES: usize = 2048;
const NODES: usize = 2;
/// Pages of a change, and bytes of each that it changes: what TPC-C does, all records together.
const TOGETHER: usize = 5;
const CHANGED: usize = 320;
const READ_AT_ONCE: usize = 1 << 20;
const TARGET: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(120);

struct Size {
    log_bytes: u64,
    pages: usize,
}

const FULL: Size = Size { log_bytes: 1 << 30, pages: 32 << 10 };
/// Of each of many recoveries.
const SAMPLED: Size = Size { log_bytes: 16 << 20, pages: 2 << 10 };
const TINY: Size = Size { log_bytes: 1 << 20, pages: 256 };

fn main() {
    let tiny = !std::env::args().any(|argument| argument == "--bench");
    let (size, sampled) = if tiny { (TINY, TINY) } else { (FULL, SAMPLED) };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(10))
        .configure_from_args();
    for coding in ["plain", "2+1"] {
        let coding = coding.parse().expect("a coding");
        sample(&mut criterion, coding, &sampled);
        run(coding, &size).print(coding, &size);
    }
    criterion.final_summary();
}

/// How long the pages of the dead node took to be usable again, and reading its log alone.
struct Took {
    recovery: Duration,
    read: Duration,
}

impl Took {
    fn print(&self, coding: Coding, size: &Size) {
        let Size { log_bytes, pages } = size;
        let [recovery, read] = [self.recovery, self.read].map(|took| took.as_secs_f64());
        println!(
            "{coding}: {} MiB of log, {pages} pages, reading the log alone {read:.3} s",
            log_bytes >> 20
        );
        println!("recovery, {coding}: {recovery:.3} s (target <= {TARGET:?})");
        println!("recovery, {coding}: ratio {:.2}", recovery / read);
    }
}

/// Criterion's statistics of both, as one group.
fn sample(criterion: &mut Criterion, coding: Coding, size: &Size) {
    let mut group = criterion.benchmark_group(format!("recovery, {coding}"));
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Bytes(size.log_bytes));
    group.bench_function("usable again", |bencher| {
        bencher.iter_custom(|runs| (0..runs).map(|_| run(coding, size).recovery).sum());
    });
    group.bench_function("reading the log alone", |bencher| {
        bencher.iter_custom(|runs| (0..runs).map(|_| run(coding, size).read).sum());
    });
    group.finish();
}

fn run(coding: Coding, size: &Size) -> Took {
    let runtime = RealRuntime::new(2).expect("a runtime");
    let mem = MemFabric::new();
    let fabric: Arc<dyn Fabric> = Arc::clone(&mem) as Arc<dyn Fabric>;
    // So much that none is written home before.
    let log_bytes = 4 * size.log_bytes + (1 << 20);
    let config = PoolConfig {
        memory_nodes: 3,
        bytes_per_node: NODES as u64 * log_bytes
            + (4 * (size.pages * GCL_BYTES) as u64).max(64 << 20),
        gcl_bytes: GCL_BYTES,
        range_bytes: 4 << 20,
        max_compute_nodes: NODES,
        coding,
        log_bytes,
    };
    let memory = EmbeddedPool::start(&fabric, config).expect("a pool");
    let pool = memory.pool();
    let env = runtime.env();
    runtime.block_on(async {
        let [survivor, dies] = [0, 1].map(|node| start(pool, &fabric, &env, node, size));
        let (survivor, dies) = (survivor.await, dies.await);
        let mut addrs = Vec::new();
        for _ in 0..size.pages {
            addrs.push(dies.allocate().await.expect("a page").addr());
        }
        go_home(&dies, &survivor, &addrs).await;
        let before = dies.stats().write_backs;
        let (lsn, values) = work(&dies, &addrs, size).await;
        dies.until_durable(lsn).await.expect("a durable log");
        assert_eq!(dies.stats().write_backs, before, "there is less to be redone");
        let read = read_alone(&mem, pool, size.log_bytes).await;
        mem.kill(PeerId::compute(1));
        let started = Instant::now();
        pool.declare_dead(ComputeIndex::new(1)).await.expect("a dead node");
        while !pool.lost().is_empty() {
            assert!(started.elapsed() < WITHIN, "the recovery does not end");
            env.sleep(Duration::from_millis(1)).await;
        }
        let recovery = started.elapsed();
        assert!(pool.lost_pages().is_empty(), "pages are lost");
        for (addr, value) in addrs.iter().zip(&values) {
            let page = survivor.shared(*addr).await.expect("a page that is usable again");
            assert_eq!(u64::from_le_bytes(page[..8].try_into().expect("a word")), *value);
        }
        survivor.close().await.expect("an end");
        Took { recovery, read }
    })
}

async fn start(
    pool: &Arc<Pool>,
    fabric: &Arc<dyn Fabric>,
    env: &Env,
    node: usize,
    size: &Size,
) -> Engine {
    let cache_bytes =
        EngineConfig::min_cache_bytes(GCL_BYTES).max(2 * (size.pages * GCL_BYTES) as u64);
    let config = EngineConfig { cache_bytes, log: Some(LogTo::Memory), ..EngineConfig::default() };
    let id = ComputeId::new(node).expect("a compute node");
    Engine::start(pool, fabric, env, id, config).await.expect("an engine")
}

/// The pages are home, as those are that have been used for some time: the other node reads what
/// this one has written.
async fn go_home(writer: &Engine, reader: &Engine, addrs: &[GAddr]) {
    for addr in addrs {
        let mut page = writer.exclusive(*addr).await.expect("a page");
        let bytes = page.len();
        page.bytes_mut(0..bytes).fill(1);
        drop(page);
        drop(reader.shared(*addr).await.expect("a page"));
    }
}

/// Changes pages until the log is that long; up to where it is to be durable, and what the first
/// word of each page is.
async fn work(engine: &Engine, addrs: &[GAddr], size: &Size) -> (u64, Vec<u64>) {
    let mut values = vec![0; addrs.len()];
    let (mut lsn, mut number) = (0, 1_u64);
    while lsn < size.log_bytes {
        let mut guards = Vec::with_capacity(TOGETHER);
        for _ in 0..TOGETHER {
            number += 1;
            // All of them, and in an order that is none.
            let at = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) as usize;
            let at =
                if number <= addrs.len() as u64 { number as usize - 1 } else { at % addrs.len() };
            let mut page = match engine.try_exclusive(addrs[at]).await {
                Ok(page) => page,
                // It is one of these already.
                Err(EngineError::Busy { .. }) => continue,
                Err(EngineError::LogFull) => {
                    drop(std::mem::take(&mut guards));
                    engine.until_room(0).await.expect("room in the log");
                    continue;
                }
                Err(error) => panic!("a page: {error}"),
            };
            page.bytes_mut(0..8).copy_from_slice(&number.to_le_bytes());
            let place = 64 + (number as usize * 328) % (GCL_BYTES - 512);
            page.bytes_mut(place..place + CHANGED).fill(number as u8);
            values[at] = number;
            guards.push(page);
        }
        lsn = change_together(guards.iter_mut()).unwrap_or(lsn);
    }
    (lsn, values)
}

/// How long it takes to read as many bytes.
async fn read_alone(mem: &Arc<MemFabric>, pool: &Pool, bytes: u64) -> Duration {
    let at = pool.descriptor().geometry().log_offset(1);
    let endpoint = mem.join(PeerId::compute(9)).expect("an endpoint");
    let memory = pool.descriptor().memory_nodes[0].clone();
    let queue_pair = endpoint.connect(memory.peer).expect("a queue pair");
    let started = Instant::now();
    for offset in (0..bytes).step_by(READ_AT_ONCE) {
        let place = RemoteAddr::new(memory.region, at + offset);
        let read = Verb::read(place, Buf::zeroed(READ_AT_ONCE));
        black_box(queue_pair.post(read.into()).await.expect("bytes"));
    }
    started.elapsed()
}
