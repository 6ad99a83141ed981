//! Cost of snapshots to those that have none: a commit stamp, against the bare advance of the
//! pool's clock. Then what a stamp, a snapshot and an image cost while snapshots are active.
//!
//! Medians of rounds that alternate between all. Criterion adds the statistics of a clock, a stamp
//! and a snapshot, and what changed since the previous run. Run with
//! `cargo bench -p selkie-engine --bench snapshots`. Under `cargo test` it runs tiny.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark: what goes wrong shall end it"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use selkie_engine::{ComputeId, Engine, EngineConfig, ImageLink, Stamp};
use selkie_fabric::Fabric;
use selkie_fabric::env::RealRuntime;
use selkie_fabric::mem::MemFabric;
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};

const ROUNDS: usize = 11;
const GCL_BYTES: usize = 2048;

/// What is measured.
#[derive(Clone, Copy)]
enum Work {
    Clock,
    Stamp,
    Snapshot,
    Image,
}

async fn work(engine: &Engine, work: Work, times: u64) -> Duration {
    let page = vec![1; engine.page_bytes()];
    let started = Instant::now();
    for _ in 0..times {
        match work {
            Work::Clock => drop(black_box(engine.advance_clock(1).await.expect("a stamp"))),
            Work::Stamp => drop(black_box(engine.draw_stamp().await.expect("a stamp"))),
            Work::Snapshot => drop(black_box(engine.begin_snapshot().await.expect("a snapshot"))),
            Work::Image => {
                let (stamp, active) = engine.draw_stamp().await.expect("a stamp");
                let from = Stamp::new(stamp.get() - 1);
                black_box(engine.keep_image(&page, from, stamp, ImageLink::NONE, &active));
            }
        }
    }
    started.elapsed()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds of each.
async fn measure<const N: usize>(all: [(&Engine, Work); N], times: u64) -> [f64; N] {
    let mut rounds = [const { Vec::new() }; N];
    for _ in 0..ROUNDS {
        for (number, (engine, kind)) in all.into_iter().enumerate() {
            let took = work(engine, kind, times).await;
            rounds[number].push(took.as_nanos() as f64 / times as f64);
        }
    }
    rounds.map(median)
}

fn main() {
    let tiny = !std::env::args().any(|a| a == "--bench");
    let times = if tiny { 20 } else { 100_000 };
    let runtime = RealRuntime::new(2).expect("a runtime");
    let fabric: Arc<dyn Fabric> = MemFabric::new();
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
    let env = runtime.env();
    let [a, b] = runtime.block_on(async {
        let config = EngineConfig { cache_bytes: 4 << 20, ..EngineConfig::default() };
        let [a, b] = [0, 1].map(|node| ComputeId::new(node).expect("a node"));
        let a = Engine::start(memory.pool(), &fabric, &env, a, config.clone()).await.expect("one");
        let b = Engine::start(memory.pool(), &fabric, &env, b, config).await.expect("another");
        let [clock, stamp] = measure([(&a, Work::Clock), (&a, Work::Stamp)], times).await;
        println!("no snapshot: clock {clock:.0} ns, stamp {stamp:.0} ns");
        println!("no snapshot: ratio {:.2}", stamp / clock);
        let [clock, begun, stamp] =
            measure([(&a, Work::Clock), (&b, Work::Snapshot), (&a, Work::Stamp)], times).await;
        println!("beside short snapshots of another node: begin and end {begun:.0} ns");
        println!(
            "beside them: clock {clock:.0} ns, stamp {stamp:.0} ns, ratio {:.2}",
            stamp / clock
        );
        let old = b.begin_snapshot().await.expect("a snapshot");
        let [clock, image] = measure([(&a, Work::Clock), (&a, Work::Image)], times).await;
        println!("an old snapshot: stamp and image {image:.0} ns, ratio {:.2}", image / clock);
        println!("images kept: {}, dropped: {}", a.stats().images_kept, a.stats().images_dropped);
        drop(old);
        [a, b]
    });
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("snapshots");
    for (name, kind) in
        [("clock", Work::Clock), ("stamp", Work::Stamp), ("snapshot", Work::Snapshot)]
    {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| runtime.block_on(work(&a, kind, times)));
        });
    }
    group.finish();
    runtime.block_on(async {
        a.close().await.expect("closed");
        b.close().await.expect("closed");
    });
    criterion.final_summary();
}
