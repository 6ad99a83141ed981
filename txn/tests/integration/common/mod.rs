//! A small cluster in one process, a table with every kind of index, and looking at all of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use selkie_btree::LeafView;
use selkie_engine::log::LogTo;
use selkie_engine::{ComputeId, Engine, EngineConfig};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Fabric, PeerId, RealRuntime};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Coding, ComputeIndex, PoolConfig};
use selkie_txn::{
    AbortCause, ColumnType, Database, DatabaseSchema, Direction, Isolation, KeyRange, Protocol,
    RowMut, Source, Table, TableSchema, Txn, TxnError, key,
};

/// What a [`Cluster`] is made of.
pub(crate) struct ClusterOptions {
    /// The log of each compute node.
    pub(crate) logs: Vec<Option<LogTo>>,
    pub(crate) gcl_bytes: usize,
    /// Pages that each cache holds.
    pub(crate) cache_pages: u64,
    /// Pages that may be beyond each cache.
    pub(crate) pages_beyond: u64,
    pub(crate) coding: Coding,
    /// Room for the log of a node in each memory node.
    pub(crate) log_bytes: u64,
    /// Memory of each memory node.
    pub(crate) bytes_per_node: u64,
    /// A bug that is brought back on every node.
    #[cfg(feature = "planted")]
    pub(crate) planted: selkie_engine::Planted,
}

impl ClusterOptions {
    /// One node without a log, with the smallest cache allowed.
    pub(crate) fn new(gcl_bytes: usize) -> Self {
        let cache_pages = EngineConfig::min_cache_bytes(gcl_bytes) / gcl_bytes as u64;
        Self {
            logs: vec![None],
            gcl_bytes,
            cache_pages,
            pages_beyond: u64::MAX / gcl_bytes as u64,
            coding: Coding::PLAIN,
            log_bytes: 0,
            bytes_per_node: 64 << 20,
            #[cfg(feature = "planted")]
            planted: selkie_engine::Planted::Nothing,
        }
    }
}

/// Compute nodes on one pool of two memory nodes, or of as many as a page has splits.
pub(crate) struct Cluster {
    pub(crate) runtime: RealRuntime,
    pub(crate) engines: Vec<Engine>,
    fabric: Arc<MemFabric>,
    memory: Arc<EmbeddedPool>,
}

impl Cluster {
    pub(crate) fn start(nodes: usize, gcl_bytes: usize) -> Self {
        Self::start_with_logs(&vec![None; nodes], gcl_bytes)
    }

    /// As above, where nodes may have logs.
    pub(crate) fn start_with_logs(logs: &[Option<LogTo>], gcl_bytes: usize) -> Self {
        Self::start_as(ClusterOptions { logs: logs.to_vec(), ..ClusterOptions::new(gcl_bytes) })
    }

    pub(crate) fn start_as(options: ClusterOptions) -> Self {
        let ClusterOptions { logs, gcl_bytes, coding, log_bytes, bytes_per_node, .. } = options;
        let nodes = logs.len();
        let runtime = RealRuntime::new(2).unwrap();
        let mem = MemFabric::new();
        let fabric: Arc<dyn Fabric> = Arc::clone(&mem) as Arc<dyn Fabric>;
        let config = PoolConfig {
            memory_nodes: if coding.is_plain() { 2 } else { coding.splits() },
            bytes_per_node,
            gcl_bytes,
            range_bytes: 4 << 20,
            max_compute_nodes: nodes,
            coding,
            log_bytes,
        };
        let memory = EmbeddedPool::start(&fabric, config).unwrap();
        let cache_bytes = options.cache_pages * gcl_bytes as u64;
        let overflow_bytes = options.pages_beyond * gcl_bytes as u64;
        let engines = runtime.block_on(async {
            let mut engines = Vec::new();
            for (node, log) in logs.iter().enumerate() {
                let log = log.clone();
                let default = EngineConfig::default();
                let config = EngineConfig { cache_bytes, overflow_bytes, log, ..default };
                #[cfg(feature = "planted")]
                let config = EngineConfig { planted: options.planted, ..config };
                let id = ComputeId::new(node).unwrap();
                let env = runtime.env();
                engines
                    .push(Engine::start(memory.pool(), &fabric, &env, id, config).await.unwrap());
            }
            engines
        });
        Self { runtime, engines, fabric: mem, memory }
    }

    /// Kills a node, and waits until the others have recovered from its death.
    pub(crate) async fn kill(&self, node: u16) {
        let (pool, env) = (self.memory.pool(), self.runtime.env());
        self.fabric.kill(PeerId::compute(node));
        pool.declare_dead(ComputeIndex::new(node)).await.unwrap();
        let until = env.now() + Duration::from_secs(300);
        while !pool.lost().is_empty() {
            assert!(env.now() < until, "{:?}", pool.lost());
            env.sleep(Duration::from_millis(5)).await;
        }
        assert!(pool.dead().is_empty(), "pages are lost with the node");
    }

    /// One handle of the same database on every node.
    pub(crate) fn create(&self, schema: impl Into<DatabaseSchema>) -> Vec<Database> {
        self.runtime.block_on(async {
            let mut databases = vec![Database::create(&self.engines[0], schema).await.unwrap()];
            for engine in &self.engines[1..] {
                databases.push(Database::open(engine).await.unwrap());
            }
            databases
        })
    }

    pub(crate) fn close(self) {
        self.runtime.block_on(async {
            for engine in &self.engines {
                engine.close().await.unwrap();
            }
        });
    }
}

pub(crate) const ID: usize = 0;
pub(crate) const TAG: usize = 1;
pub(crate) const OWNER: usize = 2;
pub(crate) const BALANCE: usize = 3;
pub(crate) const NOTE: usize = 4;

/// A table with a unique and an ordinary index, and rows that grow and shrink.
pub(crate) fn accounts() -> TableSchema {
    TableSchema::new("account")
        .column("id", ColumnType::I32)
        .column("tag", ColumnType::I32)
        .column("owner", ColumnType::Text(6))
        .column("balance", ColumnType::I64)
        .nullable_column("note", ColumnType::Text(60))
        .primary_key([ID])
        .unique_index("by_tag", [TAG])
        .index("by_owner", [OWNER, BALANCE])
}

/// A database of these tables for two-phase locking.
pub(crate) fn two_phase(tables: Vec<TableSchema>) -> DatabaseSchema {
    DatabaseSchema::from(tables).protocol(Protocol::TwoPhase)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) tag: i32,
    pub(crate) owner: String,
    pub(crate) balance: i64,
    pub(crate) note: Option<String>,
}

pub(crate) async fn insert(
    db: &Database,
    txn: &mut Txn<'_>,
    table: Table,
    id: i32,
    account: &Account,
) -> Result<(), TxnError> {
    let mut row = db.row(table)?;
    row.i32(id).i32(account.tag).text(&account.owner).i64(account.balance);
    match &account.note {
        Some(note) => row.text(note),
        None => row.null(),
    };
    txn.insert(table, row.finish()?).await
}

/// How many accounts [`bank`] opens, numbered from 0.
pub(crate) const ACCOUNTS: i32 = 60;
/// What each of them begins with.
pub(crate) const OPENING: i64 = 10;

/// The account of that number.
pub(crate) fn account(id: i32) -> Account {
    Account { tag: id, owner: format!("{}", id % 9), balance: OPENING, note: None }
}

/// Two nodes with the accounts, three on a page, and handles of this protocol.
pub(crate) fn bank(protocol: Protocol) -> (Cluster, Vec<Database>, Table) {
    let cluster = Cluster::start(2, 512);
    let schema = DatabaseSchema::from(vec![accounts().max_rows_per_page(3)]).protocol(protocol);
    let databases = cluster.create(schema);
    let databases: Vec<_> =
        databases.into_iter().map(|db| db.with_protocol(protocol).unwrap()).collect();
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in 0..ACCOUNTS {
            insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
    });
    (cluster, databases, table)
}

/// Runs a test for each protocol, on the accounts of a new cluster of this many nodes.
pub(crate) fn with_each_protocol(nodes: usize, test: impl AsyncFn(Protocol, &[Database], Table)) {
    for protocol in Protocol::ALL {
        println!("{protocol}");
        let cluster = Cluster::start(nodes, 512);
        let databases = cluster.create(DatabaseSchema::from(vec![accounts()]).protocol(protocol));
        let with = |db: Database| db.with_protocol(protocol).unwrap();
        let databases: Vec<_> = databases.into_iter().map(with).collect();
        let table = databases[0].table("account").unwrap();
        cluster.runtime.block_on(test(protocol, &databases, table));
        drop(databases);
        cluster.close();
    }
}

/// A change that adds to the balance.
pub(crate) fn add(by: i64) -> impl FnOnce(&mut RowMut<'_>) -> Result<(), TxnError> + Send {
    move |row| Ok(row.set_i64(BALANCE, row.i64(BALANCE)? + by)?)
}

/// The balance of an account that is there.
pub(crate) async fn balance(txn: &mut Txn<'_>, table: Table, id: i32) -> Result<i64, TxnError> {
    let row = txn.get(table, &key![id]).await?;
    Ok(row.unwrap().i64(BALANCE)?)
}

/// A transaction that adds to one balance.
pub(crate) async fn pay(db: &Database, table: Table, id: i32, by: i64) {
    let mut txn = db.begin();
    txn.update(table, &key![id], add(by)).await.unwrap();
    txn.commit().await.unwrap();
}

/// A transaction that moves money from one account to another.
pub(crate) async fn transfer(
    db: &Database,
    table: Table,
    from: i32,
    to: i32,
    by: i64,
) -> Result<(), TxnError> {
    let mut txn = db.begin();
    txn.update(table, &key![from], add(-by)).await?;
    txn.update(table, &key![to], add(by)).await?;
    txn.commit().await
}

/// Whether it failed for this cause, and may be run again.
pub(crate) fn failed_by<T>(result: Result<T, TxnError>, cause: AbortCause) -> bool {
    result.is_err_and(|error| error.is_retryable() && error.abort_cause() == Some(cause))
}

/// Polls a future each time it is woken, up to `polls` times, and drops it then; its output if it
/// ended before.
pub(crate) async fn poll_times<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    std::future::poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Everything stored: for each tree its entries in order, read page by page under waiting latches.
pub(crate) type Dump = Vec<Vec<(Vec<u8>, Vec<u8>)>>;

pub(crate) async fn dump(db: &Database) -> Dump {
    let mut trees = Vec::new();
    for table in db.tables() {
        let name = db.schema(table).unwrap().name.clone();
        trees.push(dump_tree(db, table.into()).await);
        for index in &db.schema(table).unwrap().indexes {
            trees.push(dump_tree(db, db.index(&name, &index.name).unwrap().into()).await);
        }
    }
    trees
}

async fn dump_tree(db: &Database, source: Source) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (engine, tree) = (db.engine(), db.tree(source).unwrap());
    let _pin = engine.pin();
    let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut addr = tree.locate(engine, &[]).await.unwrap();
    while !addr.is_null() {
        let page = engine.shared(addr).await.unwrap();
        let leaf = LeafView::new(&page).unwrap();
        for slot in 0..leaf.len() {
            let mut key = Vec::new();
            leaf.key_into(slot, &mut key).unwrap();
            assert!(entries.last().is_none_or(|(last, _)| *last < key), "keys out of order");
            entries.push((key, leaf.value(slot).unwrap().to_vec()));
        }
        addr = leaf.right();
    }
    entries
}

/// Fails unless rows and index entries agree, and every tree is sound.
pub(crate) async fn check(db: &Database) {
    for table in db.tables() {
        let schema = db.schema(table).unwrap().clone();
        let rows = scan_all(db, table.into()).await;
        verify(db, table.into(), rows.len()).await;
        let forward: Vec<_> = rows.iter().rev().cloned().collect();
        assert_eq!(scan_reverse(db, table.into()).await, forward, "reverse scan of the table");
        for index in &schema.indexes {
            let source = Source::from(db.index(&schema.name, &index.name).unwrap());
            verify(db, source, rows.len()).await;
            let mut through_index = scan_all(db, source).await;
            let backwards: Vec<_> = through_index.iter().rev().cloned().collect();
            assert_eq!(scan_reverse(db, source).await, backwards, "reverse scan of {}", index.name);
            through_index.sort();
            let mut sorted = rows.clone();
            sorted.sort();
            assert_eq!(through_index, sorted, "index {} has other rows", index.name);
        }
    }
}

/// A stored row without its layout number, of which it has one where tables may change.
pub(crate) fn without_layout<'r>(db: &Database, row: &'r [u8]) -> &'r [u8] {
    &row[usize::from(db.protocol() == Protocol::Snapshot)..]
}

async fn verify(db: &Database, source: Source, rows: usize) {
    let stats = db.tree(source).unwrap().verify(db.engine()).await.unwrap();
    assert_eq!(stats.entries, rows, "{source:?} has entries without rows");
}

pub(crate) async fn scan_all(db: &Database, source: Source) -> Vec<Vec<u8>> {
    scan(db, source, Direction::Forward).await
}

async fn scan_reverse(db: &Database, source: Source) -> Vec<Vec<u8>> {
    scan(db, source, Direction::Reverse).await
}

async fn scan(db: &Database, source: Source, direction: Direction) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut txn = db.begin_with(Isolation::ReadCommitted);
    txn.scan(source, &KeyRange::all(), direction, |row| {
        rows.push(row.as_bytes().to_vec());
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    txn.commit().await.unwrap();
    rows
}
