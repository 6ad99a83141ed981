//! Transactions of two nodes beside each other, under the protocol for snapshots:
//!
//! - a scan of a million rows at one node, beside paced updates of the same table at the other:
//!   whether it ends at its first attempt, and what the updates keep of their rate without it; at
//!   least 0.9 is wanted;
//! - updates of different rows of the same leaves at both nodes: their aborts, of which there
//!   should be none, and those under two-phase locking;
//! - an index of a million rows, built at one node beside paced updates of what it is about at the
//!   other: how long that takes, and what the updates keep of their rate. Afterwards its tree is
//!   verified, and has an entry for each row, which leads to it.
//!
//! What does not depend on the machine is asserted: each scan ends at its first attempt, and no
//! update of a row that no other transaction changes aborts.
//!
//! On the memory fabric, in one process with a thread for each node.
//!
//! Run with `cargo bench -p selkie-txn --bench sessions`. Under `cargo test` it runs tiny.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark: it stops at the first error"
)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::env::Env;
use selkie_fabric::{Fabric, RealRuntime, mem::MemFabric};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, PoolConfig};
use selkie_txn::{
    BulkLoadOptions, ColumnType, Database, DatabaseSchema, Direction, KeyRange, NewIndex, Protocol,
    RetryPolicy, Table, TableSchema, TxnError, key, retry,
};

/// Updates each second that are asked for.
const PACE: u32 = 2_000;
/// Rows that both nodes update in turn: a few leaves.
const SHARED_ROWS: i32 = 64;

struct Nodes {
    runtime: RealRuntime,
    engines: Vec<Engine>,
    databases: Vec<Database>,
    table: Table,
    _memory: Arc<EmbeddedPool>,
}

impl Nodes {
    /// Two nodes with a table of so many rows of about 100 bytes.
    fn start(protocol: Protocol, rows: i32) -> Self {
        let runtime = RealRuntime::new(2).unwrap();
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let bytes = u64::from(rows.unsigned_abs()) * 256 + (64 << 20);
        let config = PoolConfig {
            memory_nodes: 1,
            bytes_per_node: 2 * bytes,
            gcl_bytes: 2048,
            range_bytes: 8 << 20,
            max_compute_nodes: 2,
            coding: Coding::PLAIN,
            log_bytes: 0,
        };
        let memory = EmbeddedPool::start(&fabric, config).unwrap();
        let env = runtime.env();
        let (engines, databases, table) = runtime.block_on(async {
            let mut engines = Vec::new();
            for node in 0..2 {
                let config = EngineConfig { cache_bytes: bytes, ..EngineConfig::default() };
                let node = ComputeId::new(node).unwrap();
                let engine = Engine::start(memory.pool(), &fabric, &env, node, config).await;
                engines.push(engine.unwrap());
            }
            let schema = TableSchema::new("t")
                .column("id", ColumnType::I32)
                .column("n", ColumnType::I64)
                .column("text", ColumnType::Text(90))
                .primary_key([0]);
            let schema = DatabaseSchema::from(vec![schema]).protocol(protocol);
            let db = Database::create(&engines[0], schema).await.unwrap();
            let table = db.table("t").unwrap();
            let mut load = db.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
            let mut row = db.row(table).unwrap();
            for id in 0..rows {
                row.clear();
                row.i32(id).i64(0).text(&"x".repeat(80));
                load.push(row.finish().unwrap()).await.unwrap();
            }
            load.finish().await.unwrap();
            let other = Database::open(&engines[1]).await.unwrap();
            let databases =
                vec![db.with_protocol(protocol).unwrap(), other.with_protocol(protocol).unwrap()];
            (engines, databases, table)
        });
        Self { runtime, engines, databases, table, _memory: memory }
    }

    fn close(self) {
        self.runtime.block_on(async {
            for engine in &self.engines {
                engine.close().await.unwrap();
            }
        });
    }
}

/// Adds one to a row.
async fn update(db: &Database, table: Table, id: i32) -> Result<(), TxnError> {
    let mut txn = db.begin();
    txn.update(table, &key![id], |row| Ok(row.set_i64(1, row.i64(1)? + 1)?)).await?;
    txn.commit().await
}

/// Updates random rows at [`PACE`] until it is told to stop; counts them.
async fn updates(
    db: Database,
    table: Table,
    rows: i32,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
) {
    let env: Env = db.engine().env().clone();
    let (started, mut asked) = (env.now(), 0_u32);
    while !stop.load(Ordering::Relaxed) {
        let due = Duration::from_secs(1) * asked / PACE;
        if let Some(early) = due.checked_sub(env.now() - started) {
            env.sleep(early).await;
        }
        let id = (env.random_u64() % u64::from(rows.unsigned_abs())) as i32;
        let policy = RetryPolicy::default();
        retry(&env, &policy, || update(&db, table, id)).await.unwrap();
        done.fetch_add(1, Ordering::Relaxed);
        asked += 1;
    }
}

/// Scans all rows at one node beside updates at the other, or waits as long; returns the rate of
/// the updates, how long that was, and the attempts of the scan.
fn beside_updates(nodes: &Nodes, rows: i32, span: Option<Duration>) -> (f64, Duration, u32) {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let [here, there] = &nodes.databases[..] else { unreachable!("two nodes") };
    let env = here.engine().env().clone();
    nodes.runtime.block_on(async {
        let task = updates(there.clone(), nodes.table, rows, Arc::clone(&stop), Arc::clone(&done));
        let task = env.spawn("updates", task);
        env.sleep(Duration::from_millis(100)).await;
        let (started, before) = (env.now(), done.load(Ordering::Relaxed));
        let mut attempts = 0;
        match span {
            Some(span) => env.sleep(span).await,
            None => {
                let policy = RetryPolicy::default();
                let scan = retry(&env, &policy, || {
                    attempts += 1;
                    scan(here, nodes.table)
                });
                assert_eq!(scan.await.unwrap(), rows);
            }
        }
        let (took, updates) = (env.now() - started, done.load(Ordering::Relaxed) - before);
        stop.store(true, Ordering::Relaxed);
        task.join().await.unwrap();
        (updates as f64 / took.as_secs_f64(), took, attempts)
    })
}

async fn scan(db: &Database, table: Table) -> Result<i32, TxnError> {
    let (mut txn, mut rows) = (db.begin_to_read(), 0);
    txn.scan(table, &KeyRange::all(), Direction::Forward, |_| {
        rows += 1;
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    txn.commit().await?;
    Ok(rows)
}

/// Both nodes update rows of the same leaves, each its own; returns transactions and aborts.
fn same_leaves(protocol: Protocol, each: i32) -> (u64, u64) {
    let nodes = Nodes::start(protocol, SHARED_ROWS);
    nodes.runtime.block_on(async {
        let env = nodes.engines[0].env().clone();
        let tasks = nodes.databases.iter().cloned().enumerate().map(|(node, db)| {
            let table = nodes.table;
            env.spawn("updates", async move {
                let env = db.engine().env().clone();
                for turn in 0..each {
                    let id = (2 * turn + node as i32) % SHARED_ROWS;
                    let policy = RetryPolicy { attempts: 10_000, ..RetryPolicy::default() };
                    retry(&env, &policy, || update(&db, table, id)).await.unwrap();
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.join().await.unwrap();
        }
    });
    let stats = nodes.databases.iter().map(Database::stats);
    let (committed, aborted) = stats.fold((0, 0), |(committed, aborted), stats| {
        (committed + stats.commits, aborted + stats.aborts.total())
    });
    nodes.close();
    (committed, aborted)
}

/// Builds an index on the column that the other node updates. Returns how long it took, and the
/// rate of the updates meanwhile.
fn index_beside_updates(nodes: &Nodes, rows: i32) -> (Duration, f64) {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let [here, there] = &nodes.databases[..] else { unreachable!("two nodes") };
    let env = here.engine().env().clone();
    nodes.runtime.block_on(async {
        let task = updates(there.clone(), nodes.table, rows, Arc::clone(&stop), Arc::clone(&done));
        let task = env.spawn("updates", task);
        env.sleep(Duration::from_millis(100)).await;
        let (started, before) = (env.now(), done.load(Ordering::Relaxed));
        let index = here.create_index(nodes.table, NewIndex::new("by_n", ["n"])).await.unwrap();
        let (took, updates) = (env.now() - started, done.load(Ordering::Relaxed) - before);
        // Some more, which keep the index up as one that is complete.
        env.sleep(Duration::from_millis(100)).await;
        stop.store(true, Ordering::Relaxed);
        task.join().await.unwrap();
        here.refresh().await.unwrap();
        let stats = here.tree(index).unwrap().verify(here.engine()).await.unwrap();
        assert_eq!(stats.entries, rows.unsigned_abs() as usize, "{stats:?}");
        let (mut txn, mut found, mut last) = (here.begin_to_read(), 0, i64::MIN);
        txn.scan(index, &KeyRange::all(), Direction::Forward, |row| {
            let n = row.i64(1)?;
            assert!(n >= last, "an entry leads to a row that is not in its place");
            (found, last) = (found + 1, n);
            Ok(ControlFlow::Continue(()))
        })
        .await
        .unwrap();
        assert_eq!(found, rows);
        (took, updates as f64 / took.as_secs_f64())
    })
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (rows, rounds, each) = if is_bench { (1_000_000, 5, 20_000) } else { (5_000, 1, 200) };
    let nodes = Nodes::start(Protocol::Snapshot, rows);
    let (mut with, mut without, mut first) = (0.0, 0.0, 0);
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        let (rate, took, attempts) = beside_updates(&nodes, rows, None);
        with += rate;
        without += beside_updates(&nodes, rows, Some(took)).0;
        first += u32::from(attempts == 1);
        longest = longest.max(took);
    }
    assert_eq!(first, rounds, "a scan at a snapshot has been run again");
    let (took, rate) = index_beside_updates(&nodes, rows);
    nodes.close();
    println!(
        "scan of {rows} rows beside updates at the other node: {first} of {rounds} ended at the first \
         attempt, in up to {longest:.2?}; {:.0} updates/s beside it, {:.0} without ({PACE} asked for), \
         ratio {:.3}",
        with / f64::from(rounds),
        without / f64::from(rounds),
        with / without
    );
    println!(
        "index of {rows} rows built beside updates at the other node in {took:.2?}; {rate:.0} updates/s \
         beside it"
    );
    for protocol in [Protocol::Snapshot, Protocol::TwoPhase] {
        let (committed, aborted) = same_leaves(protocol, each);
        println!(
            "two nodes, different rows of the same leaves, {protocol}: {committed} committed, \
             {aborted} aborts"
        );
        assert!(protocol != Protocol::Snapshot || aborted == 0, "a conflict of different rows");
    }
}
