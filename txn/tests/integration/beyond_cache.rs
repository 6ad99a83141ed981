//! Transactions that change more pages than the cache holds.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::future::poll_fn;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use selkie_engine::log::LogTo;
use selkie_pool::Coding;
use selkie_txn::{
    AbortCause, ColumnType, Database, DatabaseSchema, Direction, KeyRange, Protocol, RowMut,
    RowRef, Table, TableSchema, Txn, TxnError, key,
};

use crate::common::{Cluster, ClusterOptions};

const ROWS: i64 = 12_000;
/// Numbers below ROWS, multiplied by this and taken modulo, come in an order like a random one.
const STRIDE: i64 = 7_919;
/// Pages of each cache.
const CACHE: u64 = 1_024;

fn schema() -> TableSchema {
    TableSchema::new("item")
        .column("id", ColumnType::I64)
        .column("text", ColumnType::Text(100))
        .primary_key([0])
}

async fn insert(
    db: &Database,
    txn: &mut Txn<'_>,
    table: Table,
    (id, text): (i64, i64),
) -> Result<(), TxnError> {
    txn.insert(table, db.row(table)?.i64(id).text(&format!("{text:0100}")).finish()?).await
}

/// The rows of a table: the key, and the number in the text.
async fn rows(db: &Database, table: Table) -> Vec<(i64, i64)> {
    let mut txn = db.begin_to_read();
    let mut rows = Vec::new();
    let visit = |row: RowRef<'_>| {
        rows.push((row.i64(0)?, row.text(1)?.parse().unwrap()));
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(table, &KeyRange::all(), Direction::Forward, visit).await.unwrap();
    rows
}

/// All pages that left the cache come to be home, and their memory is freed.
async fn are_home(db: &Database) {
    for _ in 0..2_000 {
        if db.engine().stats().pages_beyond_cache == 0 {
            return;
        }
        db.engine().env().sleep(Duration::from_millis(5)).await;
    }
    panic!("{:?}", db.engine().stats());
}

/// Two nodes, the first of which changes more than its cache holds.
fn with_two_nodes(
    (protocol, coding, log): (Protocol, Coding, Option<LogTo>),
    test: impl AsyncFn(&Database, &Database, Table),
) {
    println!("{protocol}, {coding}, {log:?}");
    let log_bytes = if log.is_some() { 64 << 20 } else { 0 };
    let cluster = Cluster::start_as(ClusterOptions {
        logs: vec![log.clone(), log],
        coding,
        cache_pages: CACHE,
        log_bytes,
        bytes_per_node: (64 << 20) + 2 * log_bytes,
        ..ClusterOptions::new(512)
    });
    let schema = DatabaseSchema::from(vec![schema()]).protocol(protocol);
    let mut databases = cluster.create(schema);
    for db in &mut databases {
        *db = db.clone().with_protocol(protocol).unwrap();
    }
    let [one, other] = databases.try_into().ok().unwrap();
    let table = one.table("item").unwrap();
    cluster.runtime.block_on(test(&one, &other, table));
    drop((one, other));
    cluster.close();
}

/// What is changed leaves the cache: with and without a log, plain and coded, when it is committed,
/// dropped, and taken back to a savepoint. The other node sees all or nothing.
fn changes_more_than_the_cache_holds(protocol: Protocol, coding: Coding, log: Option<LogTo>) {
    with_two_nodes((protocol, coding, log), async |one, other, table| {
        let mut txn = one.begin();
        for number in 0..ROWS {
            insert(one, &mut txn, table, (number * STRIDE % ROWS, 1)).await.unwrap();
        }
        // Where changes are deferred, commit latches the leaves.
        let in_place = protocol == Protocol::TwoPhase;
        if in_place {
            assert!(txn.latched_leaves() as u64 > 2 * CACHE, "{}", txn.latched_leaves());
            assert!(one.engine().stats().pages_beyond_cache > CACHE);
        }
        txn.commit().await.unwrap();
        are_home(one).await;
        let inserted: Vec<_> = (0..ROWS).map(|id| (id, 1)).collect();
        assert_eq!(rows(other, table).await, inserted);

        for is_dropped in [true, false] {
            let mut txn = one.begin();
            let savepoint = (!is_dropped).then(|| txn.savepoint().unwrap());
            for id in 0..ROWS {
                let set = |row: &mut RowMut<'_>| Ok(row.set_text(1, &format!("{:0100}", 2))?);
                txn.update(table, &key![id], set).await.unwrap();
            }
            if in_place {
                let mut reader = other.begin();
                let read = reader.get(table, &key![17i64]).await.map(drop);
                assert_eq!(read.unwrap_err().abort_cause(), Some(AbortCause::Conflict));
                assert!(one.engine().stats().pages_beyond_cache > CACHE);
            }
            if let Some(savepoint) = savepoint {
                txn.rollback_to(savepoint).unwrap();
                insert(one, &mut txn, table, (-1, 3)).await.unwrap();
                let mut reading = pin!(rows(other, table));
                if in_place {
                    // The other node waits for a page that is beyond the cache.
                    let waits = poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx).is_pending()));
                    assert!(waits.await);
                }
                txn.commit().await.unwrap();
                assert_eq!(reading.await[1..], inserted);
            } else {
                drop(txn);
            }
            are_home(one).await;
        }
        let mut expected = vec![(-1, 3)];
        expected.extend(&inserted);
        assert_eq!(rows(other, table).await, expected);
        // The other node changes all, and so has every page from the first.
        let mut txn = other.begin();
        for id in 0..ROWS {
            txn.delete(table, &key![id]).await.unwrap();
        }
        txn.commit().await.unwrap();
        assert_eq!(rows(one, table).await, [(-1, 3)]);
    });
}

#[test]
fn two_phase_locking_changes_more_than_the_cache_holds() {
    changes_more_than_the_cache_holds(Protocol::TwoPhase, Coding::PLAIN, None);
    changes_more_than_the_cache_holds(Protocol::TwoPhase, Coding::PLAIN, Some(LogTo::Memory));
}

#[test]
fn other_protocols_change_more_than_the_cache_holds() {
    changes_more_than_the_cache_holds(Protocol::Timestamp, Coding::PLAIN, Some(LogTo::Memory));
    changes_more_than_the_cache_holds(Protocol::Optimistic, Coding::PLAIN, None);
}

#[test]
fn coded_pages_leave_the_cache_too() {
    let coding = "2+1".parse().unwrap();
    changes_more_than_the_cache_holds(Protocol::TwoPhase, coding, Some(LogTo::Memory));
}
