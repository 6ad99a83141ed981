//! Cost of transactions on a cached table, one thread: what the transaction layer adds to the tree.
//!
//! `cargo bench -p selkie-txn --bench point`; under `cargo test` a few rounds, so that it does not rot.
#![allow(clippy::unwrap_used, reason = "a bench stops at the first error")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::{Pool, PoolConfig};
use selkie_txn::{ColumnType, Database, Table, TableSchema, key};

const ROWS: i32 = 50_000;
const ROUNDS: i32 = 500_000;

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

async fn run(engine: &Engine, rows: i32, rounds: i32) {
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
    let report = |name: &str, start: Instant, operations: i32| {
        let ns = start.elapsed().as_nanos() as f64 / f64::from(operations);
        println!("{name}: {ns:.0} ns");
        ns
    };

    let start = Instant::now();
    for round in 0..rounds {
        let key = key![spread(round, rows)];
        let found = tree.get_with(engine, &key, |value| value.len()).await.unwrap();
        sum += i64::try_from(found.unwrap()).unwrap();
    }
    let base = report("tree lookup", start, rounds);

    let start = Instant::now();
    for round in 0..rounds {
        let mut txn = db.begin();
        let row = txn.get(table, &key![spread(round, rows)]).await.unwrap();
        sum += row.unwrap().i64(1).unwrap();
        txn.commit().await.unwrap();
    }
    let one = report("transaction of one read", start, rounds);

    let start = Instant::now();
    for round in 0..rounds / 20 {
        let mut txn = db.begin();
        for read in 0..20 {
            let row = txn.get(table, &key![spread(round * 20 + read, rows)]).await.unwrap();
            sum += row.unwrap().i64(1).unwrap();
        }
        txn.commit().await.unwrap();
    }
    let twenty = report("read, one of 20 in a transaction", start, rounds / 20 * 20);

    let start = Instant::now();
    for round in 0..rounds {
        let mut txn = db.begin();
        let change = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_i64(1, row.i64(1)? + 1)?);
        txn.update(table, &key![spread(round, rows)], change).await.unwrap();
        txn.commit().await.unwrap();
    }
    report("transaction of one update", start, rounds);

    let start = Instant::now();
    for round in 0..rounds / 20 {
        let mut txn = db.begin();
        for write in 0..20 {
            let change = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_i64(1, row.i64(1)? + 1)?);
            let key = key![spread(round * 20 + write, rows)];
            txn.update(table, &key, change).await.unwrap();
        }
        txn.commit().await.unwrap();
    }
    report("update, one of 20 in a transaction", start, rounds / 20 * 20);

    println!("checksum {}", black_box(sum));
    println!("one-read transaction over tree lookup: ratio {:.2}", one / base);
    println!("read in a transaction over tree lookup: ratio {:.2}", twenty / base);
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let (rows, rounds) = if full { (ROWS, ROUNDS) } else { (500, 200) };
    let runtime = RealRuntime::new(1).unwrap();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: 64 << 20,
        gcl_bytes: 2048,
        range_bytes: 8 << 20,
        max_compute_nodes: 1,
    };
    let pool = Pool::start(&fabric, config).unwrap();
    let env = runtime.env();
    let task = async move {
        let node = ComputeId::new(0).unwrap();
        let engine = Engine::start(&pool, &fabric, &env, node, EngineConfig::default()).await;
        let engine = engine.unwrap();
        run(&engine, rows, rounds).await;
        engine.close().await.unwrap();
    };
    // On a worker thread, as in a real server: letting others run costs what it costs there.
    runtime.block_on(async { runtime.env().spawn("bench", task).join().await.unwrap() });
}
