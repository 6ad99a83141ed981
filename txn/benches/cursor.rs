//! Cost of scans, cursors and batched reads.
//!
//! On a cached table, one thread: the least times of slices that alternate between all ways to read
//! the same rows, and their ratios. On a simulated network, in virtual time: a table larger than
//! the cache, with pages fetched ahead and without.
//!
//! Criterion adds the statistics of each way on the cached table, and what changed since the
//! previous run.
//!
//! Run with `cargo bench -p selkie-txn --bench cursor`. Under `cargo test` it runs tiny.
#![allow(clippy::unwrap_used, reason = "a benchmark: it stops at the first error")]

use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::Criterion;
use parking_lot::Mutex;
use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::sim::{World, WorldConfig};
use selkie_fabric::{Fabric, PeerId, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_txn::{
    ColumnType, Database, DatabaseSchema, Direction, KeyRange, Protocol, RowRef, Source, Table,
    TableSchema, Txn, key,
};

/// Bound of the virtual time of a run.
const BOUND: Duration = Duration::from_secs(600);

async fn fill(db: &Database, table: Table, rows: i32) {
    let text = "t".repeat(100);
    for first in (0..rows).step_by(100) {
        let mut txn = db.begin();
        for id in first..rows.min(first + 100) {
            let mut row = db.row(table).unwrap();
            // An index in another order than the table.
            row.i32(id).i64(i64::from(spread(id, rows))).text(&text);
            txn.insert(table, row.finish().unwrap()).await.unwrap();
        }
        txn.commit().await.unwrap();
    }
}

/// Spreads numbers over the rows.
fn spread(number: i32, rows: i32) -> i32 {
    let spread = u64::from(number.unsigned_abs()).wrapping_mul(7_919);
    i32::try_from(spread % u64::from(rows.unsigned_abs())).unwrap()
}

fn schema(protocol: Protocol) -> DatabaseSchema {
    let table = TableSchema::new("t")
        .column("id", ColumnType::I32)
        .column("n", ColumnType::I64)
        .column("text", ColumnType::Text(100))
        .primary_key([0])
        .index("by_n", [1]);
    DatabaseSchema::from(vec![table]).protocol(protocol)
}

fn pool_config(memory_nodes: usize, rows: i32) -> PoolConfig {
    PoolConfig {
        memory_nodes,
        bytes_per_node: (64 << 20) + 1024 * u64::from(rows.unsigned_abs()),
        gcl_bytes: 2048,
        range_bytes: 8 << 20,
        max_compute_nodes: 1,
        coding: Coding::PLAIN,
        log_bytes: 0,
    }
}

/// A way to read a range of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The tree alone.
    Tree,
    Scan,
    /// So many rows at a time.
    Fetch(usize),
    Next,
    /// Key by key.
    Gets,
    GetMany,
}

impl Way {
    const ALL: [Self; 7] = [
        Self::Tree,
        Self::Scan,
        Self::Fetch(1024),
        Self::Fetch(100),
        Self::Next,
        Self::Gets,
        Self::GetMany,
    ];

    fn name(self) -> String {
        match self {
            Self::Tree => "tree scan".into(),
            Self::Scan => "scan".into(),
            Self::Fetch(most) => format!("cursor, {most} rows at a time"),
            Self::Next => "cursor, row by row".into(),
            Self::Gets => "get, key by key".into(),
            Self::GetMany => "get_many".into(),
        }
    }
}

/// The sum of a column over rows of a table or an index, `from` the first `count` rows.
async fn read(
    db: &Database,
    txn: &mut Txn<'_>,
    (source, way): (Source, Way),
    from: i32,
    count: i32,
) -> i64 {
    let table = source.table();
    let range = match source {
        Source::Table(_) => KeyRange::half_open(&key![from], &key![from + count]),
        Source::Index(_) => {
            KeyRange::half_open(&key![i64::from(from)], &key![i64::from(from + count)])
        }
    };
    let forward = Direction::Forward;
    let mut sum = 0;
    match way {
        Way::Tree => {
            let bounds = (
                Bound::Included(range.low()),
                range.high().map_or(Bound::Unbounded, Bound::Excluded),
            );
            // Rows of tables that may change begin with the number of their layout.
            let at = 4 + usize::from(db.protocol() == Protocol::Snapshot);
            let each = |_: &[u8], value: &[u8]| {
                sum += i64::from_le_bytes(value.get(at..at + 8).unwrap().try_into().unwrap());
                ControlFlow::Continue(())
            };
            db.tree(source).unwrap().scan(db.engine(), bounds, forward, each).await.unwrap();
        }
        Way::Scan => {
            let visit = |row: RowRef<'_>| {
                sum += row.i64(1)?;
                Ok(ControlFlow::Continue(()))
            };
            txn.scan(source, &range, forward, visit).await.unwrap();
        }
        Way::Fetch(most) => {
            let mut cursor = txn.cursor(source, range, forward).unwrap();
            loop {
                let rows = cursor.fetch(txn, most).await.unwrap();
                sum += rows.iter().map(|row| row.i64(1).unwrap()).sum::<i64>();
                if rows.len() < most {
                    break;
                }
            }
        }
        Way::Next => {
            let mut cursor = txn.cursor(source, range, forward).unwrap();
            while let Some(row) = cursor.next(txn).await.unwrap() {
                sum += row.i64(1).unwrap();
            }
        }
        Way::Gets => {
            for id in from..from + count {
                sum += txn.get(table, &key![id]).await.unwrap().unwrap().i64(1).unwrap();
            }
        }
        Way::GetMany => {
            let keys: Vec<_> = (from..from + count).map(|id| key![id]).collect();
            let visit = |_, row: Option<RowRef<'_>>| {
                sum += row.unwrap().i64(1)?;
                Ok(ControlFlow::Continue(()))
            };
            txn.get_many(table, &keys, visit).await.unwrap();
        }
    }
    sum
}

/// Reads of rows of a cached table.
async fn compare(db: &Database, rows: i32, count: i32, slices: i32) {
    let table = Source::from(db.table("t").unwrap());
    let mut least = Way::ALL.map(|_| f64::INFINITY);
    let mut total = 0;
    for slice in 0..slices {
        let from = spread(slice, rows - count + 1);
        let mut sums = [0; Way::ALL.len()];
        for (way, (least, sum)) in Way::ALL.into_iter().zip(least.iter_mut().zip(&mut sums)) {
            let start = Instant::now();
            let mut txn = db.begin();
            *sum = read(db, &mut txn, (table, way), from, count).await;
            txn.commit().await.unwrap();
            *least = least.min(start.elapsed().as_nanos() as f64 / f64::from(count));
        }
        assert!(sums.iter().all(|sum| *sum == sums[0]), "other rows were read: {sums:?}");
        total += sums[0];
    }
    println!("{}, {count} rows, checksum {}", db.protocol(), black_box(total));
    for (way, ns) in Way::ALL.into_iter().zip(least) {
        let [tree, scan, ..] = least;
        let (name, over_tree, over_scan) = (way.name(), ns / tree, ns / scan);
        println!("  {name}: {ns:.0} ns a row, {over_tree:.2} of tree scan, {over_scan:.2} of scan");
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

/// Criterion's statistics of reads of so many rows.
fn sample(runtime: &RealRuntime, db: &Database, count: i32, criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("{}, {count} rows", db.protocol()));
    for way in Way::ALL {
        group.bench_function(way.name(), |bencher| {
            bencher.iter_custom(|times| {
                let db = db.clone();
                on_worker(runtime, async move {
                    let table = Source::from(db.table("t").unwrap());
                    let start = Instant::now();
                    for _ in 0..times {
                        let mut txn = db.begin();
                        black_box(read(&db, &mut txn, (table, way), 0, count).await);
                        txn.commit().await.unwrap();
                    }
                    start.elapsed()
                })
            });
        });
    }
    group.finish();
}

fn cached(protocol: Protocol, rows: i32, slices: i32, criterion: &mut Criterion) {
    let runtime = RealRuntime::new(1).unwrap();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let memory = EmbeddedPool::start(&fabric, pool_config(1, rows)).unwrap();
    let env = runtime.env();
    let pool = Arc::clone(memory.pool());
    let (engine, db) = on_worker(&runtime, async move {
        let node = ComputeId::new(0).unwrap();
        let config = EngineConfig { cache_bytes: 256 << 20, ..EngineConfig::default() };
        let engine = Engine::start(&pool, &fabric, &env, node, config).await.unwrap();
        let db = Database::create(&engine, schema(protocol)).await.unwrap();
        fill(&db, db.table("t").unwrap(), rows).await;
        for count in [100, 10_000] {
            compare(&db, rows, count.min(rows), (slices * 100 / count).max(3)).await;
        }
        (engine, db)
    });
    sample(&runtime, &db, rows.min(1_000), criterion);
    on_worker(&runtime, async move { engine.close().await.unwrap() });
}

/// Reads of a table larger than the cache, on a simulated network.
fn beyond_cache(protocol: Protocol, rows: i32) {
    let world = World::new(WorldConfig::new(7));
    let fabric: Arc<dyn Fabric> = world.fabric();
    let memory = EmbeddedPool::start_as(&fabric, pool_config(4, rows), 1).unwrap();
    let env = world.env_of(PeerId::compute(0));
    let pool = Arc::clone(memory.pool());
    let run = async {
        let node = ComputeId::new(0).unwrap();
        let config = EngineConfig {
            cache_bytes: EngineConfig::min_cache_bytes(2048),
            tick: Duration::from_millis(1),
            ..EngineConfig::default()
        };
        let engine = Engine::start(&pool, &fabric, &env, node, config).await.unwrap();
        let db = Database::create(&engine, schema(protocol)).await.unwrap();
        let table = db.table("t").unwrap();
        fill(&db, table, rows).await;
        let by_n = Source::from(db.index("t", "by_n").unwrap());
        let ways = [
            ("scan of the table", Source::from(table), Way::Scan),
            ("cursor over the table", table.into(), Way::Fetch(100)),
            ("scan of the index", by_n, Way::Scan),
            ("cursor over the index", by_n, Way::Fetch(100)),
        ];
        for (name, source, way) in ways {
            let count = if source == by_n { rows / 10 } else { rows };
            let (mut times, mut commits) = ([Duration::ZERO; 2], [Duration::ZERO; 2]);
            let mut sums = [0; 2];
            let both = sums.iter_mut().zip(times.iter_mut().zip(&mut commits));
            for (ahead, (sum, (time, commit))) in [0, 16].into_iter().zip(both) {
                db.set_read_ahead(ahead);
                let (start, mut txn) = (env.now(), db.begin());
                *sum = read(&db, &mut txn, (source, way), 0, count).await;
                let read = env.now();
                txn.commit().await.unwrap();
                (*time, *commit) = (read - start, env.now() - read);
            }
            assert_eq!(sums[0], sums[1], "other rows were read");
            report(name, times, sums[0]);
            report("  its commit", commits, sums[1]);
        }
        many(&db, table, rows).await;
        engine.close().await.unwrap();
    };
    println!("{protocol}, {rows} rows, cache of 1024 pages of 2 KiB, virtual time");
    world.run(BOUND, run).unwrap();
}

fn report(name: &str, [without, with]: [Duration; 2], checksum: i64) {
    let ratio = with.as_nanos() as f64 / without.as_nanos() as f64;
    println!(
        "  {name}: {without:.1?} without, {with:.1?} ahead, ratio {ratio:.2}, checksum {checksum}"
    );
}

/// Keys here and there: one by one, and in batches of a hundred.
async fn many(db: &Database, table: Table, rows: i32) {
    let env = db.engine().env();
    let keys: Vec<_> = (0..rows / 20).map(|n| key![spread(n * 17, rows)]).collect();
    for ahead in [0, 16] {
        db.set_read_ahead(ahead);
        let (mut times, mut sums) = ([Duration::ZERO; 2], [0; 2]);
        let start = env.now();
        for some in keys.chunks(100) {
            let mut txn = db.begin();
            for key in some {
                sums[0] += txn.get(table, key).await.unwrap().unwrap().i64(1).unwrap();
            }
            txn.commit().await.unwrap();
        }
        times[0] = env.now() - start;
        let start = env.now();
        for some in keys.chunks(100) {
            let mut txn = db.begin();
            let visit = |_, row: Option<RowRef<'_>>| {
                sums[1] += row.unwrap().i64(1)?;
                Ok(ControlFlow::Continue(()))
            };
            txn.get_many(table, some, visit).await.unwrap();
            txn.commit().await.unwrap();
        }
        times[1] = env.now() - start;
        assert_eq!(sums[0], sums[1], "other rows were read");
        report(&format!("get and get_many, {ahead} pages ahead"), times, sums[0]);
    }
}

fn main() {
    let tiny = !std::env::args().any(|a| a == "--bench");
    let (rows, slices) = if tiny { (500, 1) } else { (50_000, 1_000) };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    for protocol in Protocol::ALL {
        cached(protocol, rows, slices, &mut criterion);
    }
    for protocol in Protocol::ALL {
        beyond_cache(protocol, rows);
    }
    criterion.final_summary();
}
