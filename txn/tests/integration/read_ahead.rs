//! Batched reads, and pages that are fetched ahead.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::{Bound, ControlFlow};

use selkie_btree::LeafView;
use selkie_engine::EngineStats;
use selkie_txn::{
    AbortCause, ColumnType, Database, DatabaseSchema, Direction, Isolation, KeyBuf, KeyRange,
    Protocol, RowRef, Source, Table, TableSchema, Txn, TxnError, key,
};

use crate::common::{
    BALANCE, Cluster, ClusterOptions, OPENING, account, add, bank, failed_by, insert, pay,
    poll_times,
};

/// The balances of accounts, by the positions of their keys.
async fn balances(txn: &mut Txn<'_>, table: Table, ids: &[i32]) -> Vec<Option<i64>> {
    let keys: Vec<KeyBuf> = ids.iter().map(|id| key![*id]).collect();
    let (mut found, mut seen) = (vec![None; ids.len()], 0);
    let visit = |at: usize, row: Option<RowRef<'_>>| {
        seen += 1;
        found[at] = row.map(|row| row.i64(BALANCE)).transpose()?;
        Ok(ControlFlow::Continue(()))
    };
    txn.get_many(table, &keys, visit).await.unwrap();
    assert_eq!(seen, ids.len(), "each key once");
    found
}

#[test]
fn many_keys_are_read_as_each_of_them_would_be() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[1];
            for isolation in
                [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted]
            {
                let mut txn = db.begin_with(isolation);
                txn.update(table, &key![12], add(5)).await.unwrap();
                txn.delete(table, &key![13]).await.unwrap();
                insert(db, &mut txn, table, 300, &account(300)).await.unwrap();
                // In no order, twice, not there, changed by the transaction itself.
                let mut ids = vec![44, 3, 12, 300, 44, -5, 13, 301];
                ids.extend((0..60).rev());
                let found = balances(&mut txn, table, &ids).await;
                let expected = |id: i32| match id {
                    12 => Some(OPENING + 5),
                    13 => None,
                    300 => Some(OPENING),
                    id => (0..60).contains(&id).then_some(OPENING),
                };
                let expected: Vec<_> = ids.into_iter().map(expected).collect();
                assert_eq!(found, expected, "{protocol}, {isolation:?}");
                if protocol != Protocol::TwoPhase {
                    assert_eq!(txn.latched_leaves(), 0);
                }
                assert!(balances(&mut txn, table, &[]).await.is_empty());
                txn.rollback().await;
            }
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn a_batch_ends_where_its_caller_breaks_and_bad_keys_harm_nothing() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let mut txn = databases[0].begin();
            let mut seen = Vec::new();
            let visit = |at: usize, _: Option<RowRef<'_>>| {
                seen.push(at);
                Ok(if at == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            };
            txn.get_many(table, &[key![50], key![1], key![7], key![9]], visit).await.unwrap();
            assert_eq!(seen, [1, 2], "in the order of the keys");
            let never = |_: usize, _: Option<RowRef<'_>>| panic!("nothing is read");
            let refused = txn.get_many(table, &[key![1], key![1_i64]], never).await.unwrap_err();
            let message = "table account, primary key: the key given has another shape: \
                           0x8000000000000001 is not of (id I32)";
            assert!(refused.to_string() == message && refused.abort_cause().is_none());
            let fails = |_: usize, _: Option<RowRef<'_>>| Err(TxnError::NoSavepoint);
            let failed = txn.get_many(table, &[key![1]], fails).await.unwrap_err();
            assert!(matches!(failed, TxnError::NoSavepoint));
            assert_eq!(balances(&mut txn, table, &[1, 90]).await, [Some(OPENING), None]);
            txn.commit().await.unwrap();
        });
        drop(databases);
        cluster.close();
    }
}

/// What was read is what was shown, also of keys without a row.
#[test]
fn what_a_batch_has_read_conflicts_and_what_it_has_not_does_not() {
    for (protocol, other_row) in [(Protocol::Snapshot, true), (Protocol::Optimistic, false)] {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let [db, other] = &databases[..] else { panic!("two nodes") };
            // A row that was read; one beside it, in its leaf; a key where there was no row.
            for (changed, conflicts) in [(40, true), (41, !other_row), (-7, true), (30, false)] {
                let mut txn = db.begin();
                balances(&mut txn, table, &[40, 3, -7]).await;
                txn.update(table, &key![20], add(1)).await.unwrap();
                if changed < 0 {
                    let mut theirs = other.begin();
                    insert(other, &mut theirs, table, changed, &account(900)).await.unwrap();
                    theirs.commit().await.unwrap();
                } else {
                    pay(other, table, changed, 1).await;
                }
                let committed = txn.commit().await;
                assert_eq!(
                    failed_by(committed, AbortCause::Stale),
                    conflicts,
                    "{protocol}: {changed}"
                );
            }
        });
        drop(databases);
        cluster.close();
    }
}

const ROWS: i64 = 12_000;
/// Pages of each cache: fewer than there are leaves.
const CACHE: u64 = 1_024;

/// A table of more leaves than the cache of a node has pages, and an index in another order. All of
/// it is home. The node that reads has nothing of it.
fn with_cold_table(protocol: Protocol, test: impl AsyncFnOnce(&Database, Table)) {
    let cluster = Cluster::start_as(ClusterOptions {
        logs: vec![None; 2],
        cache_pages: CACHE,
        ..ClusterOptions::new(512)
    });
    let schema = TableSchema::new("item")
        .column("id", ColumnType::I64)
        .column("place", ColumnType::I64)
        .column("text", ColumnType::Text(100))
        .primary_key([0])
        .index("by_place", [1]);
    let schema = DatabaseSchema::from(vec![schema]).protocol(protocol);
    let with = |db: Database| db.with_protocol(protocol).unwrap();
    let databases: Vec<_> = cluster.create(schema).into_iter().map(with).collect();
    let table = databases[0].table("item").unwrap();
    cluster.runtime.block_on(async {
        let db = &databases[0];
        for first in (0..ROWS).step_by(200) {
            let mut txn = db.begin();
            for id in first..first + 200 {
                let mut row = db.row(table).unwrap();
                row.i64(id).i64(id * 7_919 % ROWS).text(&"t".repeat(100));
                txn.insert(table, row.finish().unwrap()).await.unwrap();
            }
            txn.commit().await.unwrap();
        }
        db.engine().close().await.unwrap();
        test(&databases[1], table).await;
        databases[1].engine().close().await.unwrap();
    });
    drop(databases);
}

async fn count(txn: &mut Txn<'_>, source: Source, range: &KeyRange, direction: Direction) -> i64 {
    let mut rows = 0;
    let visit = |_: RowRef<'_>| {
        rows += 1;
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(source, range, direction, visit).await.unwrap();
    rows
}

/// What a node does while it does this.
async fn stats_of<T>(db: &Database, work: impl Future<Output = T>) -> (EngineStats, T) {
    let before = db.engine().stats();
    let done = work.await;
    (db.engine().stats() - before, done)
}

#[test]
fn a_scan_that_goes_on_fetches_leaves_ahead() {
    for protocol in Protocol::ALL {
        with_cold_table(protocol, async |db, table| {
            let leaves = db.tree(table).unwrap().verify(db.engine()).await.unwrap().leaves as u64;
            assert!(leaves > 2 * CACHE, "{leaves}");
            let all = KeyRange::all();
            for direction in [Direction::Forward, Direction::Reverse] {
                // One that may see a later state validates what it has read.
                let mut txn = db.begin_with(Isolation::RepeatableRead);
                let scanned = count(&mut txn, table.into(), &all, direction);
                let (stats, rows) = stats_of(db, scanned).await;
                assert_eq!(rows, ROWS);
                if protocol == Protocol::Timestamp {
                    assert_eq!(stats.prefetches, 0, "its leaves are to be stamped");
                } else {
                    // Some leaves are cached that the scan before has come to last.
                    assert!(stats.prefetches > leaves / 2, "{protocol}: {stats:?}");
                    assert!(stats.misses < leaves / 5, "{protocol}: {stats:?}");
                    assert!(stats.prefetches + stats.misses < leaves * 11 / 10, "none twice");
                }
                txn.rollback().await;
            }
            db.set_read_ahead(0);
            let mut txn = db.begin();
            let scanned = count(&mut txn, table.into(), &all, Direction::Forward);
            assert_eq!(stats_of(db, scanned).await.0.prefetches, 0);
            txn.rollback().await;
        });
    }
}

#[test]
fn a_cursor_fetches_ahead_from_its_second_leaf_on_and_not_beyond_its_range() {
    for protocol in [Protocol::TwoPhase, Protocol::Optimistic, Protocol::Snapshot] {
        with_cold_table(protocol, async |db, table| {
            let (engine, tree) = (db.engine(), db.tree(table).unwrap());
            let leaves = tree.verify(engine).await.unwrap().leaves as u64;
            let rows = ROWS.unsigned_abs();
            for (direction, from) in [(Direction::Forward, 3_000_i64), (Direction::Reverse, 8_000)]
            {
                let leaf = engine.shared(tree.locate(engine, &key![from]).await.unwrap()).await;
                let leaf = leaf.unwrap();
                let view = LeafView::new(&leaf).unwrap();
                let (low, high) = (view.low_fence().to_vec(), view.high_fence().unwrap().to_vec());
                let in_leaf = view.len();
                drop(leaf);
                let range = match direction {
                    Direction::Forward => KeyRange::from(&low),
                    Direction::Reverse => KeyRange::new(Bound::Unbounded, Bound::Excluded(&high)),
                };
                let mut txn = db.begin();
                let mut cursor = txn.cursor(table, range, direction).unwrap();
                for _ in 0..in_leaf {
                    let (stats, row) = stats_of(db, cursor.next(&mut txn)).await;
                    assert!(row.unwrap().is_some());
                    assert_eq!(stats.prefetches, 0, "{protocol}: in the first leaf");
                }
                let (stats, _) = stats_of(db, cursor.fetch(&mut txn, 200)).await;
                assert!(stats.prefetches > 20, "{protocol}: {stats:?}");
                assert!(stats.prefetches <= 300 * leaves / rows, "{protocol}: {stats:?}");
                txn.rollback().await;
                // A range of a few leaves.
                let range = KeyRange::between(&key![from + 1_000], &key![from + 1_040]);
                let mut txn = db.begin();
                let mut cursor = txn.cursor(table, range, direction).unwrap();
                let (stats, rows) = stats_of(db, cursor.fetch(&mut txn, 100)).await;
                assert_eq!(rows.unwrap().len(), 41);
                let most = 41 * leaves / ROWS.unsigned_abs() + 6;
                assert!((1..=most).contains(&stats.prefetches), "{protocol}: {stats:?}");
                txn.rollback().await;
            }
        });
    }
}

#[test]
fn rows_of_index_entries_and_of_batches_are_fetched_together() {
    for protocol in [Protocol::TwoPhase, Protocol::Optimistic, Protocol::Snapshot] {
        with_cold_table(protocol, async |db, table| {
            // Inner pages.
            let mut txn = db.begin_to_read();
            for id in (0..ROWS).step_by(40) {
                txn.get(table, &key![id]).await.unwrap();
            }
            drop(txn);
            let by_place = Source::from(db.index("item", "by_place").unwrap());
            let range = KeyRange::half_open(&key![500_i64], &key![900_i64]);
            for direction in [Direction::Forward, Direction::Reverse] {
                let mut txn = db.begin();
                let scanned = count(&mut txn, by_place, &range, direction);
                let (stats, rows) = stats_of(db, scanned).await;
                assert_eq!(rows, 400);
                if direction == Direction::Forward {
                    assert!(stats.prefetches > 300, "{protocol}: {stats:?}");
                    assert!(stats.misses < 100, "{protocol}: {stats:?}");
                }
                txn.rollback().await;
            }
            let mut txn = db.begin();
            let keys: Vec<_> = (0..300).map(|n| key![n * 7_001 % ROWS]).collect();
            let mut rows = 0;
            let visit = |at: usize, row: Option<RowRef<'_>>| {
                assert_eq!(row.unwrap().i64(0)?, i64::try_from(at).unwrap() * 7_001 % ROWS);
                rows += 1;
                Ok(ControlFlow::Continue(()))
            };
            let (stats, read) = stats_of(db, txn.get_many(table, &keys, visit)).await;
            read.unwrap();
            assert_eq!(rows, 300);
            // What finds no free frame is not fetched ahead; how often depends on the cleaners.
            assert!(stats.prefetches > 180 && stats.misses < 90, "{protocol}: {stats:?}");
            // Dropped at any await it leaves the transaction usable.
            let visit = |_: usize, _: Option<RowRef<'_>>| Ok(ControlFlow::Continue(()));
            for polls in 1..4 {
                poll_times(txn.get_many(table, &keys, visit), polls).await;
                assert!(txn.get(table, &keys[0]).await.unwrap().is_some());
            }
            txn.commit().await.unwrap();
        });
    }
}
