//! Cost of transactions on a cached table, one thread: what the transaction layer adds to the tree.
//!
//! `cargo bench -p selkie-txn --bench point`; under `cargo test` a few rounds, so that it does not
//! rot.
#![allow(clippy::unwrap_used, reason = "a bench stops at the first error")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_txn::{ColumnType, Database, Table, TableSchema, key};

const ROWS: i32 = 50_000;
/// Operations in a slice: short enough to fit between two interruptions.
const SLICE: i32 = 1000;
const SLICES: i32 = 500;

async fn fill(db: &Database, table: Table, rows: i32) {
    let text = "t".repeat(100);
    for first in (0..rows).step_by(100) {
        let mut txn = db.begin();
        for id in first..rows.min(first + 100) {
            let mut row = db.row(table).unwrap();
            row.i32(id).i64(i64::from(id)).text(&text);
            txn.insert(table, row.finish().unwrap()).await.unwrap();
        }
        txn.commit().await.unwrap();
    }
}

/// Spreads the rounds over the rows.
fn spread(round: i32, rows: i32) -> i32 {
    i32::try_from(
        u64::from(round.unsigned_abs()).wrapping_mul(0x9e37_79b9) % u64::from(rows.unsigned_abs()),
    )
    .unwrap()
}

/// Least time of an operation over many short slices, so that other processes disturb it little.
struct Least {
    name: &'static str,
    ns: f64,
}

impl Least {
    fn of(name: &'static str) -> Self {
        Self { name, ns: f64::INFINITY }
    }

    fn slice(&mut self, start: Instant, operations: i32) {
        self.ns = self.ns.min(start.elapsed().as_nanos() as f64 / f64::from(operations));
    }

    fn report(&self) {
        println!("{}: {:.0} ns", self.name, self.ns);
    }
}

async fn run(engine: &Engine, rows: i32, slices: i32) {
    let schema = TableSchema::new("t")
        .column("id", ColumnType::I32)
        .column("n", ColumnType::I64)
        .column("text", ColumnType::Text(100))
        .primary_key([0]);
    let db = Database::create(engine, vec![schema]).await.unwrap();
    let table = db.table("t").unwrap();
    fill(&db, table, rows).await;
    let tree = db.tree(table).unwrap();
    let mut sum = 0i64;
    let add = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_i64(1, row.i64(1)? + 1)?);
    let mut lookup = Least::of("tree lookup");
    let mut one = Least::of("transaction of one read");
    let mut twenty = Least::of("read, one of 20 in a transaction");
    let mut update = Least::of("transaction of one update");
    let mut updates = Least::of("update, one of 20 in a transaction");
    for slice in 0..slices {
        let ids = || (0..SLICE).map(|at| spread(slice * SLICE + at, rows));
        let start = Instant::now();
        for id in ids() {
            let found = tree.get_with(engine, &key![id], |value| value.len()).await.unwrap();
            sum += i64::try_from(found.unwrap()).unwrap();
        }
        lookup.slice(start, SLICE);

        let start = Instant::now();
        for id in ids() {
            let mut txn = db.begin();
            sum += txn.get(table, &key![id]).await.unwrap().unwrap().i64(1).unwrap();
            txn.commit().await.unwrap();
        }
        one.slice(start, SLICE);

        let start = Instant::now();
        let mut txn = db.begin();
        for (at, id) in ids().enumerate() {
            sum += txn.get(table, &key![id]).await.unwrap().unwrap().i64(1).unwrap();
            if at % 20 == 19 {
                std::mem::replace(&mut txn, db.begin()).commit().await.unwrap();
            }
        }
        txn.commit().await.unwrap();
        twenty.slice(start, SLICE);

        let start = Instant::now();
        for id in ids() {
            let mut txn = db.begin();
            txn.update(table, &key![id], add).await.unwrap();
            txn.commit().await.unwrap();
        }
        update.slice(start, SLICE);

        let start = Instant::now();
        let mut txn = db.begin();
        for (at, id) in ids().enumerate() {
            txn.update(table, &key![id], add).await.unwrap();
            if at % 20 == 19 {
                std::mem::replace(&mut txn, db.begin()).commit().await.unwrap();
            }
        }
        txn.commit().await.unwrap();
        updates.slice(start, SLICE);
    }
    for least in [&lookup, &one, &twenty, &update, &updates] {
        least.report();
    }
    println!("checksum {}", black_box(sum));
    println!("one-read transaction over tree lookup: ratio {:.2}", one.ns / lookup.ns);
    println!("read in a transaction over tree lookup: ratio {:.2}", twenty.ns / lookup.ns);
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let (rows, slices) = if full { (ROWS, SLICES) } else { (500, 1) };
    let runtime = RealRuntime::new(1).unwrap();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: 64 << 20,
        gcl_bytes: 2048,
        range_bytes: 8 << 20,
        max_compute_nodes: 1,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    let env = runtime.env();
    let task = async move {
        let node = ComputeId::new(0).unwrap();
        let engine =
            Engine::start(memory.pool(), &fabric, &env, node, EngineConfig::default()).await;
        let engine = engine.unwrap();
        run(&engine, rows, slices).await;
        engine.close().await.unwrap();
    };
    // On a worker thread, as in a real server: letting others run costs what it costs there.
    runtime.block_on(async { runtime.env().spawn("bench", task).join().await.unwrap() });
}
