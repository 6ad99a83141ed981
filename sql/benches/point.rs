//! Cost of a point SELECT whose plan is kept, against the same read by the table API: cached, one
//! thread.
//!
//! A transaction of the table API lets other tasks run at its end, one of a session now and then:
//! outside of a task both merely go on.
//!
//! Run with `cargo bench -p selkie-sql --bench point`. Under `cargo test` it runs tiny.
#![allow(clippy::unwrap_used, reason = "a benchmark: it stops at the first error")]

use std::sync::Arc;
use std::time::Instant;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_sql::{Datum, Prepared, Session};
use selkie_txn::{Database, DatabaseSchema, Isolation, Protocol, Table, key};

const ROWS: i32 = 50_000;
/// Reads in a slice: short enough to fit between two interruptions.
const SLICE: i32 = 1000;
const SLICES: i32 = 200;

/// Most that the statement may cost, in reads by the table API.
const TARGET: f64 = 2.0;

/// A filled table, and both ways to read it.
struct Bench {
    engine: Engine,
    db: Database,
    table: Table,
    session: Session,
    select: Prepared,
    rows: i32,
}

impl Bench {
    async fn new(engine: Engine, rows: i32) -> Self {
        let schema = DatabaseSchema::from(Vec::new()).protocol(Protocol::Snapshot);
        let db = Database::create(&engine, schema).await.unwrap();
        let mut session = Session::new(&db, "bench", || 0).unwrap();
        let table = "CREATE TABLE t (id int PRIMARY KEY, n bigint NOT NULL, filler char(84))";
        session.execute(table).await.unwrap();
        let fill =
            format!("INSERT INTO t SELECT i, i * 2, '' FROM generate_series(0, {rows} - 1) i");
        session.execute(&fill).await.unwrap();
        let select = session.prepare("SELECT n FROM t WHERE id = $1", &[]).await.unwrap();
        let mut txn = db.begin();
        let table = txn.table("t").await.unwrap();
        txn.commit().await.unwrap();
        Self { engine, db, table, session, select, rows }
    }

    /// Spreads the rounds over the rows.
    fn id(&self, round: i32) -> i32 {
        let spread = u64::from(round.unsigned_abs()).wrapping_mul(0x9e37_79b9);
        i32::try_from(spread % u64::from(self.rows.unsigned_abs())).unwrap()
    }

    async fn by_table(&self, first: i32) -> i64 {
        let mut sum = 0;
        for round in first..first + SLICE {
            let mut txn = self.db.begin_with(Isolation::ReadCommitted);
            let row = txn.get(self.table, &key![self.id(round)]).await.unwrap().unwrap();
            sum += row.i64(1).unwrap();
            txn.commit().await.unwrap();
        }
        sum
    }

    async fn by_sql(&mut self, first: i32) -> i64 {
        let mut sum = 0;
        for round in first..first + SLICE {
            let id = vec![Datum::I32(self.id(round))];
            let outcome = self.session.run_prepared(&self.select, id).await.unwrap().unwrap();
            let [row] = &*outcome.rows else { unreachable!("one row has the key") };
            let [Datum::I64(n)] = &**row else { unreachable!("the column is a bigint") };
            sum += n;
        }
        sum
    }

    /// Prints the least time of each over many short slices, which other processes disturb little,
    /// and the ratio.
    async fn compare(&mut self, slices: i32) {
        let (mut table, mut sql) = (f64::INFINITY, f64::INFINITY);
        let each = |start: Instant| start.elapsed().as_nanos() as f64 / f64::from(SLICE);
        for slice in 0..slices {
            let start = Instant::now();
            let wanted = self.by_table(slice * SLICE).await;
            table = table.min(each(start));
            let start = Instant::now();
            let found = self.by_sql(slice * SLICE).await;
            sql = sql.min(each(start));
            assert_eq!(found, wanted, "the statement has read other rows");
        }
        println!("transaction of one read, by the table API: {table:.0} ns");
        println!("point SELECT, prepared: {sql:.0} ns");
        println!("point SELECT over table API: ratio {:.2} (target <= {TARGET})", sql / table);
    }
}

fn main() {
    let tiny = !std::env::args().any(|argument| argument == "--bench");
    let (rows, slices) = if tiny { (500, 1) } else { (ROWS, SLICES) };
    let runtime = RealRuntime::new(1).unwrap();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: 128 << 20,
        gcl_bytes: 2048,
        range_bytes: 8 << 20,
        max_compute_nodes: 1,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    runtime.block_on(async {
        let (env, node) = (runtime.env(), ComputeId::new(0).unwrap());
        let config = EngineConfig::default();
        let engine = Engine::start(memory.pool(), &fabric, &env, node, config).await;
        let mut bench = Bench::new(engine.unwrap(), rows).await;
        bench.compare(slices).await;
        let Bench { engine, session, db, .. } = bench;
        drop((session, db));
        engine.close().await.unwrap();
    });
}
