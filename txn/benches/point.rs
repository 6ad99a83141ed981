//! Cost of transactions on a cached table, one thread: what the transaction layer adds to the tree.
//!
//! The ratios come from the least times of slices that alternate between all operations. Criterion
//! adds the statistics of each operation, and what changed since the previous run.
//!
//! Run with `cargo bench -p selkie-txn --bench point`. Under `cargo test` it runs tiny.
#![allow(clippy::unwrap_used, reason = "a benchmark: it stops at the first error")]

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use parking_lot::Mutex;
use selkie_btree::Tree;
use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_txn::{ColumnType, Database, DatabaseSchema, Protocol, Table, TableSchema, key};

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

/// An operation to measure. The first is the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Lookup,
    OneRead,
    TwentyReads,
    OneUpdate,
    TwentyUpdates,
}

impl Operation {
    const ALL: [Self; 5] =
        [Self::Lookup, Self::OneRead, Self::TwentyReads, Self::OneUpdate, Self::TwentyUpdates];

    fn name(self) -> &'static str {
        match self {
            Self::Lookup => "tree lookup",
            Self::OneRead => "transaction of one read",
            Self::TwentyReads => "read, one of 20 in a transaction",
            Self::OneUpdate => "transaction of one update",
            Self::TwentyUpdates => "update, one of 20 in a transaction",
        }
    }
}

/// A filled table.
struct Bench {
    engine: Engine,
    db: Database,
    table: Table,
    tree: Tree,
    rows: i32,
    /// Bytes of a row, the same for all.
    row_bytes: i64,
}

impl Bench {
    async fn new(engine: Engine, rows: i32) -> Self {
        let schema = TableSchema::new("t")
            .column("id", ColumnType::I32)
            .column("n", ColumnType::I64)
            .column("text", ColumnType::Text(100))
            .primary_key([0]);
        let schema = DatabaseSchema::from(vec![schema]).protocol(Protocol::TwoPhase);
        let db = Database::create(&engine, schema).await.unwrap();
        let table = db.table("t").unwrap();
        fill(&db, table, rows).await;
        let tree = db.tree(table).unwrap();
        let row_bytes = tree.get_with(&engine, &key![0_i32], |value| value.len()).await.unwrap();
        let row_bytes = i64::try_from(row_bytes.unwrap()).unwrap();
        Self { engine, db, table, tree, rows, row_bytes }
    }

    /// Runs these operations, one by one. Returns the sum of what it reads.
    async fn run(&self, operation: Operation, numbers: Range<i32>) -> i64 {
        let Self { engine, db, table, .. } = self;
        let table = *table;
        let ids = numbers.map(|number| spread(number, self.rows));
        let add = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_i64(1, row.i64(1)? + 1)?);
        let mut sum = 0;
        match operation {
            Operation::Lookup => {
                for id in ids {
                    let found = self.tree.get_with(engine, &key![id], |value| value.len()).await;
                    sum += i64::try_from(found.unwrap().unwrap()).unwrap();
                }
            }
            Operation::OneRead => {
                for id in ids {
                    let mut txn = db.begin();
                    sum += txn.get(table, &key![id]).await.unwrap().unwrap().i64(1).unwrap();
                    txn.commit().await.unwrap();
                }
            }
            Operation::TwentyReads => {
                let mut txn = db.begin();
                for (at, id) in ids.enumerate() {
                    sum += txn.get(table, &key![id]).await.unwrap().unwrap().i64(1).unwrap();
                    if at % 20 == 19 {
                        std::mem::replace(&mut txn, db.begin()).commit().await.unwrap();
                    }
                }
                txn.commit().await.unwrap();
            }
            Operation::OneUpdate => {
                for id in ids {
                    let mut txn = db.begin();
                    txn.update(table, &key![id], add).await.unwrap();
                    txn.commit().await.unwrap();
                }
            }
            Operation::TwentyUpdates => {
                let mut txn = db.begin();
                for (at, id) in ids.enumerate() {
                    txn.update(table, &key![id], add).await.unwrap();
                    if at % 20 == 19 {
                        std::mem::replace(&mut txn, db.begin()).commit().await.unwrap();
                    }
                }
                txn.commit().await.unwrap();
            }
        }
        sum
    }

    /// Prints the least time of each operation over many short slices, which other processes
    /// disturb little, and the ratios to the baseline.
    async fn compare(&self, slices: i32) {
        let mut least = Operation::ALL.map(|_| f64::INFINITY);
        let mut total = 0;
        for slice in 0..slices {
            let mut sums = [0; Operation::ALL.len()];
            for (operation, (least, sum)) in
                Operation::ALL.into_iter().zip(least.iter_mut().zip(&mut sums))
            {
                let start = Instant::now();
                *sum = self.run(operation, slice * SLICE..(slice + 1) * SLICE).await;
                *least = least.min(start.elapsed().as_nanos() as f64 / f64::from(SLICE));
            }
            let [lookup, one, twenty, ..] = sums;
            assert_eq!(lookup, self.row_bytes * i64::from(SLICE), "a lookup has found another row");
            assert_eq!(one, twenty, "both read the same rows");
            total += sums.iter().sum::<i64>();
        }
        for (operation, ns) in Operation::ALL.into_iter().zip(least) {
            println!("{}: {ns:.0} ns", operation.name());
        }
        println!("checksum {}", black_box(total));
        let [lookup, one, twenty, ..] = least;
        println!("one-read transaction over tree lookup: ratio {:.2}", one / lookup);
        println!("read in a transaction over tree lookup: ratio {:.2}", twenty / lookup);
    }
}

/// Runs a task to its end on a worker thread: a yield costs there what it costs in a server.
fn on_worker<T: Send + 'static>(
    runtime: &RealRuntime,
    task: impl Future<Output = T> + Send + 'static,
) -> T {
    let result = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&result);
    let task = async move {
        let value = task.await;
        *slot.lock() = Some(value);
    };
    runtime.block_on(async { runtime.env().spawn("bench", task).join().await.unwrap() });
    result.lock().take().unwrap()
}

/// Criterion's statistics of the operations, as one group.
fn sample(criterion: &mut Criterion, runtime: &RealRuntime, bench: &Arc<Bench>) {
    let mut group = criterion.benchmark_group("point");
    for operation in Operation::ALL {
        group.bench_function(operation.name(), |bencher| {
            bencher.iter_custom(|operations| {
                let operations = i32::try_from(operations).unwrap();
                let bench = Arc::clone(bench);
                on_worker(runtime, async move {
                    let start = Instant::now();
                    black_box(bench.run(operation, 0..operations).await);
                    start.elapsed()
                })
            });
        });
    }
    group.finish();
}

fn main() {
    let tiny = !std::env::args().any(|a| a == "--bench");
    let (rows, slices) = if tiny { (500, 1) } else { (ROWS, SLICES) };
    let mut criterion =
        Criterion::default().measurement_time(Duration::from_secs(3)).configure_from_args();
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
    let pool = Arc::clone(memory.pool());
    let bench = Arc::new(on_worker(&runtime, async move {
        let node = ComputeId::new(0).unwrap();
        let engine = Engine::start(&pool, &fabric, &env, node, EngineConfig::default()).await;
        Bench::new(engine.unwrap(), rows).await
    }));
    // First, so that its checksum does not depend on how many updates criterion makes.
    let compared = Arc::clone(&bench);
    on_worker(&runtime, async move { compared.compare(slices).await });
    sample(&mut criterion, &runtime, &bench);
    on_worker(&runtime, async move { bench.engine.close().await.unwrap() });
    criterion.final_summary();
}
