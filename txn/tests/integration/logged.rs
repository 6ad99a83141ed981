//! Transactions in the order of timestamps on nodes with logs: when they may rely on their stamps,
//! and what becomes of these.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use selkie_engine::GAddr;
use selkie_engine::backup::Backup;
use selkie_engine::log::{
    LogError, LogFiles, LogObjects, LogOwner, LogStore, LogTo, Lsn, Pages, Piece, ReadError, Sink,
    Written, merge,
};
use selkie_fabric::BoxFuture;
use selkie_fabric::env::Env;
use selkie_txn::{
    BulkLoadOptions, Database, DatabaseSchema, Isolation, Protocol, RetryPolicy, Table,
    TableSchema, TxnError, is_unlinked, key, retry,
};

use tempfile::TempDir;

use crate::common::{Account, BALANCE, Cluster, Dump, accounts, check, dump, insert};

const GCL: usize = 512;

/// Logs in files, which make nothing durable while they are shut.
#[derive(Debug)]
pub(crate) struct Valve {
    files: LogFiles,
    is_shut: Arc<AtomicBool>,
    /// Appends that wait for it to be opened.
    waiting: Arc<AtomicU64>,
}

impl Valve {
    /// Logs in a directory, which is made; not shut.
    pub(crate) fn open(place: &Path) -> Arc<Self> {
        let files = LogFiles::new(place, 1 << 20, 1 << 30).unwrap();
        Arc::new(Self { files, is_shut: Arc::default(), waiting: Arc::default() })
    }

    pub(crate) fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
    }

    /// Returns when an append waits, as it is shut.
    pub(crate) async fn until_append_waits(&self, env: &Env) {
        for _ in 0..30_000 {
            if self.waiting.load(Ordering::SeqCst) > 0 {
                return;
            }
            env.sleep(Duration::from_millis(1)).await;
        }
        panic!("no append came to the log");
    }
}

struct Tap {
    file: Arc<dyn Sink>,
    is_shut: Arc<AtomicBool>,
    waiting: Arc<AtomicU64>,
}

impl Sink for Tap {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            while self.is_shut.load(Ordering::SeqCst) {
                selkie_fabric::env::yield_now().await;
            }
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            self.file.append(at, bytes).await
        })
    }

    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        self.file.truncate(lsn)
    }

    fn capacity(&self) -> u64 {
        self.file.capacity()
    }
}

impl LogStore for Valve {
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        Box::pin(async move {
            let file = self.files.create(owner).await?;
            let (is_shut, waiting) = (Arc::clone(&self.is_shut), Arc::clone(&self.waiting));
            Ok(Arc::new(Tap { file, is_shut, waiting }) as Arc<dyn Sink>)
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        self.files.pieces(owner)
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        self.files.piece(owner, start)
    }

    fn remove(&self, owner: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        self.files.remove(owner)
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        self.files.owners()
    }
}

/// A database on nodes with logs.
struct Logged {
    valve: Arc<Valve>,
    cluster: Cluster,
    databases: Vec<Database>,
    table: Table,
    _place: TempDir,
}

fn logged(nodes: usize) -> Logged {
    logged_by(Protocol::Timestamp, nodes)
}

fn logged_by(protocol: Protocol, nodes: usize) -> Logged {
    let place = tempfile::tempdir().unwrap();
    let valve = Valve::open(place.path());
    let store: Arc<dyn LogStore> = Arc::clone(&valve) as Arc<dyn LogStore>;
    let logs = vec![Some(LogTo::Store(store)); nodes];
    let cluster = Cluster::start_with_logs(&logs, GCL);
    let empty = TableSchema { name: "empty".into(), ..accounts() };
    let schema = DatabaseSchema::from(vec![accounts(), empty]).protocol(protocol);
    let databases = cluster.create(schema);
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in 0..40 {
            let account = Account { tag: id, owner: "o".into(), balance: 10, note: None };
            insert(&databases[0], &mut txn, table, id, &account).await.unwrap();
        }
        txn.commit().await.unwrap();
    });
    Logged { valve, cluster, databases, table, _place: place }
}

async fn pay(db: &Database, table: Table, from: i32, to: i32) -> Result<(), TxnError> {
    let mut txn = db.begin();
    for (id, by) in [(from, -1), (to, 1)] {
        txn.update(table, &key![id], |row| Ok(row.set_i64(BALANCE, row.i64(BALANCE)? + by)?))
            .await?;
    }
    txn.commit().await
}

/// Whether a future ends within 30 ms; polled once at least.
pub(crate) async fn ends<F: Future + Unpin>(future: &mut F, env: &Env) -> bool {
    let mut late = env.sleep(Duration::from_millis(30));
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        Poll::Ready(_) => Poll::Ready(true),
        Poll::Pending => late.as_mut().poll(cx).map(|()| false),
    })
    .await
}

#[test]
fn a_reader_commits_when_what_it_has_read_is_durable() {
    let Logged { valve, cluster, databases, table, _place } = logged(1);
    let (db, env) = (&databases[0], cluster.runtime.env());
    cluster.runtime.block_on(async {
        for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
            valve.is_shut.store(true, Ordering::SeqCst);
            let mut txn = db.begin_with(isolation);
            assert!(txn.get(table, &key![7]).await.unwrap().is_some());
            let mut commit = Box::pin(txn.commit());
            let stamps = isolation == Isolation::Serializable;
            assert_eq!(ends(&mut commit, &env).await, !stamps, "{isolation:?}");
            valve.is_shut.store(false, Ordering::SeqCst);
            if stamps {
                commit.await.unwrap();
            }
        }
        // A stamp that another has left is relied on, too.
        valve.is_shut.store(true, Ordering::SeqCst);
        let (mut early, mut late) = (db.begin(), db.begin());
        assert!(early.get(table, &key![39]).await.unwrap().is_some());
        valve.is_shut.store(false, Ordering::SeqCst);
        db.engine().until_durable(0).await.unwrap();
        env.sleep(Duration::from_millis(30)).await;
        valve.is_shut.store(true, Ordering::SeqCst);
        assert!(late.get(table, &key![7]).await.unwrap().is_some());
        assert!(early.get(table, &key![7]).await.unwrap().is_some());
        drop(late);
        let mut commit = Box::pin(early.commit());
        assert!(!ends(&mut commit, &env).await);
        valve.is_shut.store(false, Ordering::SeqCst);
        commit.await.unwrap();
    });
    cluster.close();
}

/// The stamps come back with the pages; the clock of the new pool begins anew, and is found to be
/// behind.
#[test]
fn a_database_that_is_restored_from_logs_works() {
    let Logged { valve, cluster, databases, table, _place } = logged(2);
    let before = cluster.runtime.block_on(async {
        for round in 0..200 {
            let db = &databases[round % 2];
            let ids = [round * 7 % 40, round * 11 % 40].map(|id| i32::try_from(id).unwrap());
            retry(db.engine().env(), &RetryPolicy::default(), || pay(db, table, ids[0], ids[1]))
                .await
                .unwrap();
        }
        dump(&databases[0]).await
    });
    cluster.close();
    let cluster = Cluster::start(2, GCL);
    let mut pages = Pages::new(GCL);
    cluster.runtime.block_on(async {
        let owners = valve.owners().await.unwrap();
        merge(&*valve, &owners, &mut pages, false).await.unwrap();
    });
    let lines = pages.into_lines();

    cluster.runtime.block_on(async {
        cluster.engines[0].restore(&lines, selkie_txn::written_at).await.unwrap();
        for engine in &cluster.engines {
            let db = Database::open(engine).await.unwrap();
            assert_eq!(db.protocol(), Protocol::Timestamp);
            assert_eq!(dump(&db).await, before);
            for round in 0..40 {
                retry(engine.env(), &RetryPolicy::default(), || pay(&db, table, round, 39 - round))
                    .await
                    .unwrap();
            }
            assert_eq!(dump(&db).await, before, "each has got what it has given");
            assert!(db.stats().aborts.total() <= 5, "{:?}", db.stats());
            check(&db).await;
        }
        assert!(cluster.engines[0].advance_clock(1).await.unwrap() > 200);
    });
    cluster.close();
}

/// That a page was freed is noted in the pool alone: logs and backups have its last bytes, and a
/// pool made of them must not keep a line for it that nothing leads to.
#[test]
fn a_pool_made_of_logs_or_a_backup_has_no_line_for_pages_that_were_freed() {
    let Logged { valve, cluster, databases, table, _place } = logged_by(Protocol::TwoPhase, 1);
    let (db, place) = (&databases[0], tempfile::tempdir().unwrap());
    let at = LogObjects::at(&format!("file://{}/backup", place.path().display()), 0).unwrap();
    let (mut pages, mut backup, before) = cluster.runtime.block_on(async {
        let mut txn = db.begin();
        for id in 40..400 {
            let account = Account { tag: id, owner: "o".into(), balance: 10, note: None };
            insert(db, &mut txn, table, id, &account).await.unwrap();
        }
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        for id in 20..390 {
            txn.delete(table, &key![id]).await.unwrap();
        }
        txn.commit().await.unwrap();
        // Pages that are made, and never led to.
        let mut txn = db.begin();
        for id in 1000..1200 {
            let account = Account { tag: id, owner: "o".into(), balance: 10, note: None };
            insert(db, &mut txn, table, id, &account).await.unwrap();
        }
        drop(txn);
        let empty = db.table("empty").unwrap();
        let mut load = db.bulk_load(empty, BulkLoadOptions::default()).await.unwrap();
        for id in 0..200 {
            let mut row = db.row(empty).unwrap();
            row.i32(id).i32(id).text("o").i64(10).null();
            load.push(row.finish().unwrap()).await.unwrap();
        }
        drop(load);
        // What is freed in the background is done by then.
        for _ in 0..200 {
            cluster.runtime.env().sleep(Duration::from_millis(1)).await;
        }
        db.engine().backup(&at, &|_, _| {}).await.unwrap();
        let mut pages = Pages::new(GCL);
        let owners = valve.owners().await.unwrap();
        merge(&*valve, &owners, &mut pages, false).await.unwrap();
        (pages, Backup::open(&at).await.unwrap(), dump(db).await)
    });
    cluster.close();
    let all = pages.len();
    pages.retain(|page| !is_unlinked(page));
    assert!(pages.len() + 10 < all, "{} of {all} pages are in use", pages.len());
    check_restored(&pages.into_lines(), &before);
    let all = backup.lines().len();
    backup.retain(|page| !is_unlinked(page));
    assert!(backup.lines().len() + 10 < all, "{} of {all} pages", backup.lines().len());
    check_restored(backup.lines(), &before);
}

/// A pool that is made of these lines has a line for each page of the database, and no other.
fn check_restored(lines: &BTreeMap<GAddr, Box<[u8]>>, before: &Dump) {
    let cluster = Cluster::start(1, GCL);
    let engine = &cluster.engines[0];
    cluster.runtime.block_on(async {
        engine.restore(lines, selkie_txn::written_at).await.unwrap();
        let db = Database::open(engine).await.unwrap();
        assert_eq!(&dump(&db).await, before);
        let used = db.pages(engine).await.unwrap();
        let census = engine.repair_lines(&used, true).await.unwrap();
        assert_eq!((census.leaked, census.in_use), (0, lines.len() as u64 - 1), "{census:?}");
        check(&db).await;
    });
    cluster.close();
}
