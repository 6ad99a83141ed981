//! Loading a table bottom-up beside inserting its rows in the order of their keys: one in each
//! transaction, and a hundred, which is the best case of inserts, as they find their leaf latched.
//! One thread, everything cached, with and without an index.
//!
//! The ratios come from the least times of rounds that alternate between the three. Each stores the
//! same rows, of which a sum is printed.
//!
//! Criterion adds the statistics of short loads, and what changed since the previous run.
//!
//! Run with `cargo bench -p selkie-txn --bench load`. Under `cargo test` it runs tiny.
#![allow(clippy::unwrap_used, reason = "a benchmark: it stops at the first error")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_txn::{
    BulkLoadOptions, ColumnType, Database, Direction, KeyRange, Protocol, RowRef, Table,
    TableSchema,
};

const ROWS: i32 = 200_000;
const ROUNDS: usize = 5;
const TEXT: &str = "a hundred bytes of text, or nearly so, as rows of benchmarks have had them since \
                    long ago, and no more";

/// A row's second column, which an index may be on: in another order than the rows.
fn number(id: i32) -> i64 {
    i64::from(id.unsigned_abs().wrapping_mul(0x9e37_79b9) >> 8)
}

/// How rows come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// So many in each transaction.
    Inserts(usize),
    BulkLoad,
}

/// The last one is compared with the others.
const WAYS: [Way; 3] = [Way::Inserts(1), Way::Inserts(100), Way::BulkLoad];

async fn insert(db: &Database, table: Table, rows: i32, batch: usize) {
    let ids: Vec<i32> = (0..rows).collect();
    let mut row = db.row(table).unwrap();
    for some in ids.chunks(batch) {
        let mut txn = db.begin();
        for &id in some {
            row.clear();
            row.i32(id).i64(number(id)).text(TEXT);
            txn.insert(table, row.finish().unwrap()).await.unwrap();
        }
        txn.commit().await.unwrap();
    }
}

async fn load(db: &Database, table: Table, rows: i32) {
    // As full as inserts in order leave the pages of the table.
    let options = BulkLoadOptions { fill: 100, ..BulkLoadOptions::default() };
    let mut load = db.bulk_load(table, options).await.unwrap();
    let mut row = db.row(table).unwrap();
    for id in 0..rows {
        row.clear();
        row.i32(id).i64(number(id)).text(TEXT);
        load.push(row.finish().unwrap()).await.unwrap();
    }
    load.finish().await.unwrap();
}

async fn checksum(db: &Database, table: Table) -> i64 {
    let mut sum = 0_i64;
    let add = |row: RowRef<'_>| {
        sum = sum.wrapping_mul(31).wrapping_add(row.i64(1)?);
        Ok(ControlFlow::Continue(()))
    };
    let mut txn = db.begin_to_read();
    txn.scan(table, &KeyRange::all(), Direction::Forward, add).await.unwrap();
    txn.commit().await.unwrap();
    sum
}

/// One measurement, on a database of its own. Returns the time and the checksum.
fn measure(protocol: Protocol, has_index: bool, way: Way, rows: i32) -> (Duration, i64) {
    let runtime = RealRuntime::new(1).unwrap();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let bytes = u64::from(rows.unsigned_abs()) * 512 + (64 << 20);
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: bytes * 2,
        gcl_bytes: 2048,
        range_bytes: 8 << 20,
        max_compute_nodes: 1,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    runtime.block_on(async {
        let config = EngineConfig { cache_bytes: bytes, ..EngineConfig::default() };
        let node = ComputeId::new(0).unwrap();
        let env = runtime.env();
        let engine = Engine::start(memory.pool(), &fabric, &env, node, config).await.unwrap();
        let mut schema = TableSchema::new("t")
            .column("id", ColumnType::I32)
            .column("n", ColumnType::I64)
            .column("text", ColumnType::Text(110))
            .primary_key([0]);
        if has_index {
            schema = schema.index("by_n", [1]);
        }
        let schema = selkie_txn::DatabaseSchema::from(vec![schema]).protocol(protocol);
        let db = Database::create(&engine, schema).await.unwrap();
        let table = db.table("t").unwrap();
        let started = Instant::now();
        match way {
            Way::BulkLoad => load(&db, table, rows).await,
            Way::Inserts(batch) => insert(&db, table, rows, batch).await,
        }
        let took = started.elapsed();
        let sum = checksum(&db, table).await;
        engine.close().await.unwrap();
        (took, sum)
    })
}

/// Criterion's statistics of short loads, a fresh database each.
fn sample(rows: i32) {
    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("load");
    for (way, name) in WAYS.into_iter().zip(["insert", "insert 100", "bulk load"]) {
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|times| {
                (0..times).map(|_| measure(Protocol::Snapshot, false, way, rows).0).sum()
            });
        });
    }
    group.finish();
    criterion.final_summary();
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (rows, rounds) = if is_bench { (ROWS, ROUNDS) } else { (2_000, 1) };
    println!("{rows} rows of about 120 bytes, pages of 2 KiB, best of {rounds} rounds");
    for protocol in [Protocol::TwoPhase, Protocol::Snapshot] {
        for has_index in [false, true] {
            let (mut best, mut sums) = ([Duration::MAX; WAYS.len()], [0; WAYS.len()]);
            for _ in 0..rounds {
                for (way, (best, sum)) in WAYS.into_iter().zip(best.iter_mut().zip(&mut sums)) {
                    let (took, found) = measure(protocol, has_index, way, rows);
                    *best = (*best).min(took);
                    *sum = found;
                }
            }
            assert!(sums.iter().all(|sum| *sum == sums[0]), "all store the same rows");
            let [one, hundred, bulk] = best.map(|time| time.as_nanos() as f64 / f64::from(rows));
            let index = if has_index { "one index" } else { "no index" };
            println!(
                "{protocol}, {index}: bulk load {bulk:.0} ns a row; inserts, one in a transaction, \
                 {one:.0} ns, ratio {:.1}; a hundred, {hundred:.0} ns, ratio {:.1}; checksum {:x}",
                one / bulk,
                hundred / bulk,
                sums[0]
            );
        }
    }
    sample(if is_bench { 2_000 } else { 100 });
}
