//! One transaction with a million rows in random order, beside a cache and a log that it may not
//! fit into: it commits, or is refused with need and limit; or it is dropped, cancelled or killed
//! half way. Afterwards the table has all of its rows or none, and takes others. Each run of the
//! tests does the same with a fiftieth of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_engine::EngineError;
use selkie_engine::log::LogTo;
use selkie_txn::{
    AbortCause, ColumnType, Database, DatabaseSchema, Protocol, RetryPolicy, Table, TableSchema,
    Txn, TxnError, retry,
};

use crate::common::{Cluster, ClusterOptions, poll_times};

/// Numbers coprime to it, multiplied by this and taken modulo, come in an order like a random one.
const STRIDE: i64 = 7_919;
/// Rows that are there before.
const BEFORE: i64 = 10;

/// How large a test is.
#[derive(Clone, Copy)]
struct Size {
    rows: i64,
    gcl_bytes: usize,
    cache_bytes: u64,
    /// Zero: there is no log.
    log_bytes: u64,
}

/// A million rows beside a cache of 64 MiB and a log of 64 MiB.
const MILLION: Size =
    Size { rows: 1_000_000, gcl_bytes: 2_048, cache_bytes: 64 << 20, log_bytes: 64 << 20 };
const FIFTIETH: Size =
    Size { rows: 20_000, gcl_bytes: 512, cache_bytes: 1_300 << 10, log_bytes: 1_300 << 10 };

/// How the transaction is to end, unless it is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Commit,
    /// Half way.
    Drop,
    /// Half way an insert is given up in the middle; then a commit.
    Cancel,
    /// Half way the node dies.
    Kill,
}

struct Million<'t> {
    size: Size,
    protocol: Protocol,
    db: &'t Database,
    table: Table,
}

impl Million<'_> {
    async fn insert(&self, txn: &mut Txn<'_>, id: i64) -> Result<(), TxnError> {
        let text = format!("{id:0100}");
        txn.insert(self.table, self.db.row(self.table)?.i64(id).text(&text).finish()?).await
    }

    /// Inserts rows, each in a transaction of its own, to show that the table takes them.
    async fn takes_rows(&self, ids: std::ops::Range<i64>) {
        let (env, policy) = (self.db.engine().env(), RetryPolicy::default());
        for id in ids {
            let attempt = async || {
                let mut txn = self.db.begin();
                self.insert(&mut txn, id).await?;
                txn.commit().await
            };
            retry(env, &policy, attempt).await.unwrap();
        }
    }

    async fn entries(&self) -> i64 {
        let tree = self.db.tree(self.table).unwrap();
        tree.verify(self.db.engine()).await.unwrap().entries as i64
    }

    /// A transaction with the first rows. If it is refused: after how many, and why.
    async fn begun(&self, rows: i64) -> (Txn<'_>, Result<(), (i64, TxnError)>) {
        for _ in 0..20 {
            let mut txn = self.db.begin();
            let mut done = Ok(());
            for number in 0..rows {
                let id = number * STRIDE % self.size.rows;
                if let Err(error) = self.insert(&mut txn, id).await {
                    done = Err((number, error));
                    break;
                }
            }
            // What others have logged may take the room for a while.
            let is_for_now = |error: &TxnError| error.abort_cause() == Some(AbortCause::LogFull);
            if !done.as_ref().is_err_and(|(_, error)| is_for_now(error)) {
                return (txn, done);
            }
        }
        panic!("{}: the log stays full", self.protocol);
    }

    /// Checks that a refusal says what is needed and what is there.
    fn is_refusal(&self, error: &TxnError) {
        let (TxnError::Engine(EngineError::ChangeTooLarge { need, limit })
        | TxnError::WriteSetTooLarge { need, limit, .. }) = error
        else {
            panic!("{}: {error:?}", self.protocol);
        };
        assert!(need > limit && *limit > self.size.log_bytes / 4, "{need} {limit}");
        assert!(self.size.log_bytes > 0 && *limit < self.size.log_bytes, "{limit}");
    }

    /// A transaction that has got about half way to its end, or to where it would be refused.
    async fn half_way(&self) -> (Txn<'_>, i64) {
        let half = self.size.rows / 2;
        let (txn, refused) = self.begun(half).await;
        let Err((accepted, error)) = refused else { return (txn, half) };
        self.is_refusal(&error);
        drop(txn);
        let rows = accepted * 3 / 4;
        let (txn, refused) = self.begun(rows).await;
        refused.unwrap();
        (txn, rows)
    }

    async fn commits_or_is_refused(&self) {
        let (txn, done) = self.begun(self.size.rows).await;
        let done = match done {
            Ok(()) => txn.commit().await.map_err(|error| (self.size.rows, error)),
            Err(refused) => {
                drop(txn);
                Err(refused)
            }
        };
        println!("{}: {done:?}", self.protocol);
        match done {
            Ok(()) => assert_eq!(self.entries().await, self.size.rows + BEFORE),
            Err((_, error)) => {
                self.is_refusal(&error);
                assert_eq!(self.entries().await, BEFORE);
            }
        }
    }

    async fn is_dropped(&self) {
        for _ in 0..2 {
            let (txn, _) = self.half_way().await;
            drop(txn);
            assert_eq!(self.entries().await, BEFORE);
        }
    }

    async fn is_cancelled(&self) {
        let (mut txn, rows) = self.half_way().await;
        for id in rows..rows + 100 {
            let id = id * STRIDE % self.size.rows;
            if poll_times(self.insert(&mut txn, id), 1).await.is_none() {
                break;
            }
        }
        drop(txn);
        assert_eq!(self.entries().await, BEFORE);
        let (txn, rows) = self.half_way().await;
        let done = poll_times(txn.commit(), 3).await;
        println!("{}: a commit of {rows} rows, given up: {done:?}", self.protocol);
        let found = self.entries().await - BEFORE;
        assert!(found == rows || found == 0 && !matches!(done, Some(Ok(()))), "{found} of {rows}");
    }
}

/// A cluster with an empty table.
fn start(size: Size, protocol: Protocol, nodes: usize) -> (Cluster, Vec<Database>, Table) {
    let log = (size.log_bytes > 0).then_some(LogTo::Memory);
    let options = ClusterOptions {
        logs: vec![log; nodes],
        log_bytes: size.log_bytes,
        cache_pages: size.cache_bytes / size.gcl_bytes as u64,
        bytes_per_node: 8 * size.cache_bytes + 3 * size.log_bytes,
        ..ClusterOptions::new(size.gcl_bytes)
    };
    let items = TableSchema::new("item")
        .column("id", ColumnType::I64)
        .column("text", ColumnType::Text(100))
        .primary_key([0]);
    let cluster = Cluster::start_as(options);
    let databases = cluster.create(DatabaseSchema::from(vec![items]).protocol(protocol));
    let with = |db: Database| db.with_protocol(protocol).unwrap();
    let databases: Vec<_> = databases.into_iter().map(with).collect();
    let table = databases[0].table("item").unwrap();
    (cluster, databases, table)
}

/// The first node has the transaction.
fn ends(size: Size, protocol: Protocol, end: End) {
    let nodes = if end == End::Kill { 2 } else { 1 };
    let (cluster, databases, table) = start(size, protocol, nodes);
    let million = Million { size, protocol, db: &databases[0], table };
    cluster.runtime.block_on(async {
        million.takes_rows(-BEFORE..0).await;
        match end {
            End::Commit => million.commits_or_is_refused().await,
            End::Drop => million.is_dropped().await,
            End::Cancel => million.is_cancelled().await,
            End::Kill => {
                let (txn, _) = million.half_way().await;
                cluster.kill(0).await;
                let other = Million { db: &databases[1], ..million };
                assert_eq!(other.entries().await, BEFORE);
                other.takes_rows(-2 * BEFORE..-BEFORE).await;
                assert_eq!(other.entries().await, 2 * BEFORE);
                drop(txn);
                cluster.engines[1].close().await.unwrap();
                return;
            }
        }
        million.takes_rows(-2 * BEFORE..-BEFORE).await;
        cluster.engines[0].close().await.unwrap();
    });
}

fn ends_in_all_protocols(size: Size, end: End) {
    for protocol in Protocol::ALL {
        println!("{protocol}: {end:?}");
        ends(size, protocol, end);
    }
}

#[test]
fn a_fiftieth_of_a_million_rows_is_one_transaction_or_is_refused() {
    ends_in_all_protocols(FIFTIETH, End::Commit);
    for log_bytes in [0, 64 << 20] {
        ends_in_all_protocols(Size { log_bytes, ..FIFTIETH }, End::Commit);
    }
}

/// Parents know leaves that the transaction has split off only after its commit. It finds them by
/// itself: on the way along their right links it would look at half of them for each row.
#[test]
fn a_transaction_does_not_walk_along_the_leaves_that_it_has_split_off() {
    let size = Size { cache_bytes: 32 << 20, log_bytes: 0, ..FIFTIETH };
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = start(size, protocol, 1);
        let million = Million { size, protocol, db: &databases[0], table };
        cluster.runtime.block_on(async {
            let mut polls = 0;
            let mut inserts = std::pin::pin!(async {
                let (txn, done) = million.begun(size.rows).await;
                done.unwrap();
                txn.commit().await.unwrap();
            });
            std::future::poll_fn(|cx| {
                polls += 1;
                inserts.as_mut().poll(cx)
            })
            .await;
            println!("{protocol}: {polls} polls");
            // It lets others run once in 64 leaves that it looks at, and waits for new pages now
            // and then: a poll in some rows.
            let most = size.rows;
            assert!(polls < most, "{protocol}: {polls} polls for {most} rows");
            assert_eq!(million.entries().await, size.rows);
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn a_fiftieth_of_a_million_rows_is_dropped_half_way() {
    ends_in_all_protocols(FIFTIETH, End::Drop);
}

#[test]
fn a_fiftieth_of_a_million_rows_is_cancelled_half_way() {
    ends_in_all_protocols(FIFTIETH, End::Cancel);
}

#[test]
fn a_fiftieth_of_a_million_rows_is_killed_half_way() {
    ends_in_all_protocols(FIFTIETH, End::Kill);
}

/// Run these with `cargo test --release -p selkie-txn --test integration million -- --ignored`.
#[test]
#[ignore = "takes minutes and a gigabyte"]
fn a_million_rows_are_one_transaction_or_are_refused() {
    ends_in_all_protocols(MILLION, End::Commit);
}

#[test]
#[ignore = "takes minutes and two gigabytes"]
fn a_million_rows_are_one_transaction_where_the_log_takes_them_or_there_is_none() {
    ends_in_all_protocols(Size { log_bytes: 0, ..MILLION }, End::Commit);
    let log_bytes = 1 << 30;
    ends_in_all_protocols(Size { log_bytes, ..MILLION }, End::Commit);
}

#[test]
#[ignore = "takes minutes and a gigabyte"]
fn a_million_rows_are_dropped_half_way() {
    ends_in_all_protocols(MILLION, End::Drop);
}

#[test]
#[ignore = "takes minutes and a gigabyte"]
fn a_million_rows_are_cancelled_half_way() {
    ends_in_all_protocols(MILLION, End::Cancel);
}

#[test]
#[ignore = "takes minutes and a gigabyte"]
fn a_million_rows_are_killed_half_way() {
    ends_in_all_protocols(MILLION, End::Kill);
}
