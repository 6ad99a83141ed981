//! What transactions leave to trees: posted separators, merged leaves, what is done later.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::time::Duration;

use selkie_btree::{LeafView, TreeStats};
use selkie_txn::{
    ColumnType, Database, DatabaseSchema, Direction, KeyRange, Protocol, RowRef, Source, Table,
    TableSchema, key,
};

use crate::common::{Account, Cluster, accounts, check, insert, two_phase, with_each_protocol};

const ROWS: i32 = 200;
/// Of the tests that merge leaves.
const MANY_ROWS: i32 = 900;

async fn insert_all(db: &Database, txn: &mut selkie_txn::Txn<'_>, table: Table) {
    insert_some(db, txn, table, ROWS).await;
}

async fn insert_some(db: &Database, txn: &mut selkie_txn::Txn<'_>, table: Table, rows: i32) {
    for id in 0..rows {
        // Not ascending, so that leaves split in the middle as well.
        let id = (id * 77) % rows;
        let account = Account { tag: id, owner: format!("{id}"), balance: 0, note: None };
        insert(db, txn, table, id, &account).await.unwrap();
    }
}

async fn shapes(db: &Database) -> Vec<TreeStats> {
    let sources = [
        Source::from(db.table("account").unwrap()),
        db.index("account", "by_tag").unwrap().into(),
        db.index("account", "by_owner").unwrap().into(),
    ];
    let mut shapes = Vec::new();
    for source in sources {
        shapes.push(db.tree(source).unwrap().verify(db.engine()).await.unwrap());
    }
    shapes
}

#[test]
fn commits_post_their_splits_and_give_empty_leaves_back() {
    with_each_protocol(1, async |protocol, databases, table| {
        let db = &databases[0];
        let mut txn = db.begin();
        insert_all(db, &mut txn, table).await;
        txn.commit().await.unwrap();
        let full = shapes(db).await;
        assert!(
            full.iter().all(|shape| shape.leaves > 5 && shape.unposted == 0),
            "{protocol}: {full:?}"
        );

        let mut txn = db.begin();
        for id in 0..ROWS {
            txn.delete(table, &key![id]).await.unwrap();
        }
        txn.commit().await.unwrap();
        if protocol == selkie_txn::Protocol::Snapshot {
            // By later transactions, once it is known that no snapshot wants images of them.
            for _ in 0..2_000 {
                db.begin().commit().await.unwrap();
                db.engine().env().sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        let empty = shapes(db).await;
        for (full, empty) in full.iter().zip(&empty) {
            assert!(empty.leaves * 2 < full.leaves, "{} leaves of {}", empty.leaves, full.leaves);
        }

        // Rolled back: the splits are undone.
        let mut txn = db.begin();
        insert_all(db, &mut txn, table).await;
        txn.rollback().await;
        assert_eq!(shapes(db).await, empty, "{protocol}");
    });
}

/// Runs transactions that do nothing until what was left to be done is done.
async fn until(db: &Database, is_done: impl Fn(&[TreeStats]) -> bool) -> Vec<TreeStats> {
    let end = db.engine().env().now() + Duration::from_secs(20);
    loop {
        let shapes = shapes(db).await;
        if is_done(&shapes) || db.engine().env().now() > end {
            return shapes;
        }
        db.begin().commit().await.unwrap();
        db.engine().env().sleep(Duration::from_millis(1)).await;
    }
}

/// The tables at most so full, and no larger than four times what their rows would fill.
fn is_small(shapes: &[TreeStats], full: &[TreeStats], rows: usize) -> bool {
    shapes.iter().zip(full).all(|(now, full)| {
        let share = full.leaves * rows / MANY_ROWS as usize;
        now.leaves <= 4 * share + 1 && now.inner_pages <= now.leaves / 4 + 1
    })
}

/// Nine of ten rows, a few in each transaction, up, down and in no order; then the rest.
#[test]
fn a_table_shrinks_to_what_is_left() {
    with_each_protocol(2, async |protocol, databases, table| {
        let db = &databases[0];
        for order in 0..3 {
            let mut txn = db.begin();
            insert_some(db, &mut txn, table, MANY_ROWS).await;
            txn.commit().await.unwrap();
            let full = shapes(db).await;
            assert!(full.iter().all(|shape| shape.leaves > 20), "{protocol}: {full:?}");
            let is_kept = |id: i32| id % 10 == 3;
            let ids = (0..MANY_ROWS).map(|at| match order {
                0 => at,
                1 => MANY_ROWS - 1 - at,
                _ => at * 77 % MANY_ROWS,
            });
            let ids: Vec<i32> = ids.filter(|id| !is_kept(*id)).collect();
            for some in ids.chunks(7) {
                let mut txn = db.begin();
                for id in some {
                    txn.delete(table, &key![*id]).await.unwrap();
                }
                txn.commit().await.unwrap();
            }
            let rows = MANY_ROWS as usize / 10;
            let few = until(db, |shapes| is_small(shapes, &full, rows)).await;
            assert!(is_small(&few, &full, rows), "{protocol} {order}: {full:?} {few:?}");
            for db in databases {
                check(db).await;
            }
            let mut txn = databases[1].begin();
            for id in (0..MANY_ROWS).filter(|id| is_kept(*id)) {
                txn.delete(table, &key![id]).await.unwrap();
            }
            txn.commit().await.unwrap();
            let is_least = |shapes: &[TreeStats]| {
                shapes.iter().all(|shape| (shape.leaves, shape.inner_pages) == (1, 1))
            };
            let least = until(&databases[1], is_least).await;
            assert!(is_least(&least), "{protocol} {order}: {least:?}");
        }
    });
}

/// Rows that become shorter make room as those that go.
#[test]
fn rows_that_become_shorter_are_brought_together() {
    for protocol in Protocol::ALL {
        let cluster = Cluster::start(1, 512);
        let notes = TableSchema::new("note")
            .column("id", ColumnType::I32)
            .nullable_column("text", ColumnType::Text(90))
            .primary_key([0]);
        let db = &cluster.create(DatabaseSchema::from(vec![notes]).protocol(protocol))[0];
        let (table, engine) = (db.table("note").unwrap(), db.engine());
        let tree = db.tree(table).unwrap();
        cluster.runtime.block_on(async {
            let mut txn = db.begin();
            for id in 0..ROWS {
                let mut row = db.row(table).unwrap();
                row.i32(id).text(&"n".repeat(90));
                txn.insert(table, row.finish().unwrap()).await.unwrap();
            }
            txn.commit().await.unwrap();
            let full = tree.verify(engine).await.unwrap();
            for id in (0..ROWS).map(|id| id * 77 % ROWS) {
                let mut txn = db.begin();
                txn.update(table, &key![id], |row| Ok(row.set_null(1)?)).await.unwrap();
                txn.commit().await.unwrap();
            }
            let mut less = tree.verify(engine).await.unwrap();
            for _ in 0..5_000 {
                if less.leaves * 2 < full.leaves {
                    break;
                }
                db.begin().commit().await.unwrap();
                engine.env().sleep(Duration::from_millis(1)).await;
                less = tree.verify(engine).await.unwrap();
            }
            assert!(less.leaves * 2 < full.leaves, "{protocol}: {full:?} {less:?}");
            assert_eq!(less.entries, ROWS as usize);
            check(db).await;
        });
        cluster.close();
    }
}

/// Leaves that a snapshot may want to see as they were are not merged before it ends.
#[test]
fn a_snapshot_sees_all_rows_of_leaves_that_are_to_be_merged() {
    let cluster = Cluster::start(2, 512);
    let databases =
        cluster.create(DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot));
    let db = &databases[0];
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        insert_some(db, &mut txn, table, MANY_ROWS).await;
        txn.commit().await.unwrap();
        let full = shapes(db).await;
        let mut reader = databases[1].begin_to_read();
        assert!(reader.get(table, &key![5]).await.unwrap().is_some());
        for id in (0..MANY_ROWS).filter(|id| id % 10 != 5) {
            let mut txn = db.begin();
            txn.delete(table, &key![id]).await.unwrap();
            txn.commit().await.unwrap();
        }
        for _ in 0..1_500 {
            db.begin().commit().await.unwrap();
            db.engine().env().sleep(Duration::from_millis(1)).await;
        }
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut ids = Vec::new();
            let collect = |row: RowRef<'_>| {
                ids.push(row.i32(0)?);
                Ok(ControlFlow::Continue(()))
            };
            reader.scan(table, &KeyRange::all(), direction, collect).await.unwrap();
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..MANY_ROWS), "{direction:?}");
        }
        let held = shapes(db).await;
        assert!(held[0].leaves * 10 > full[0].leaves * 9, "{full:?} {held:?}");
        reader.commit().await.unwrap();
        let rows = MANY_ROWS as usize / 10;
        let few = until(db, |shapes| is_small(shapes, &full, rows)).await;
        assert!(is_small(&few, &full, rows), "{full:?} {few:?}");
        check(db).await;
    });
    cluster.close();
}

/// An empty leaf whose neighbour was in use stayed for good.
#[test]
fn a_leaf_in_use_is_given_back_by_a_later_transaction() {
    let cluster = Cluster::start(1, 512);
    let databases = cluster.create(two_phase(vec![accounts()]));
    let db = &databases[0];
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        insert_all(db, &mut txn, table).await;
        txn.commit().await.unwrap();
        let full = shapes(db).await;

        // Every leaf but those of the reader's rows is emptied while the reader holds some.
        let mut reader = db.begin();
        for id in (0..ROWS).step_by(20) {
            assert!(reader.get(table, &key![id]).await.unwrap().is_some());
        }
        for id in 0..ROWS {
            let mut txn = db.begin();
            if txn.delete(table, &key![id]).await.is_ok() {
                txn.commit().await.unwrap();
            }
        }
        let held = shapes(db).await;
        reader.commit().await.unwrap();
        for _ in 0..20 {
            db.begin().commit().await.unwrap();
            db.engine().env().pause(Duration::from_millis(100)).await;
        }
        let after = shapes(db).await;
        let leaves = |shapes: &[TreeStats]| shapes[0].leaves;
        assert!(leaves(&held) <= leaves(&full), "{held:?}");
        assert!(leaves(&after) < leaves(&held), "{held:?} {after:?}");
        let empty = count_empty_leaves(db, table).await;
        assert!(empty == 0, "{empty} of {}", leaves(&after));
        check(db).await;
    });
    cluster.close();
}

fn is_least(shapes: &[TreeStats]) -> bool {
    shapes.iter().all(|shape| (shape.leaves, shape.inner_pages) == (1, 1))
}

/// Inserts many rows and deletes them all again, beside one who reads them.
async fn fill_and_empty(db: &Database, table: Table) {
    let mut txn = db.begin();
    insert_some(db, &mut txn, table, MANY_ROWS).await;
    txn.commit().await.unwrap();
    let mut reader = db.begin_to_read();
    assert!(reader.get(table, &key![5]).await.unwrap().is_some());
    let mut txn = db.begin();
    for id in 0..MANY_ROWS {
        txn.delete(table, &key![id]).await.unwrap();
    }
    txn.commit().await.unwrap();
    // It waits for nothing, and does nothing for others.
    drop(reader);
}

/// No transaction ends behind the one that has deleted all.
#[test]
fn the_last_transactions_of_a_node_leave_no_empty_leaf() {
    for closes in [true, false] {
        let cluster = Cluster::start(1, 512);
        let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
        let db = &cluster.create(schema)[0];
        let table = db.table("account").unwrap();
        cluster.runtime.block_on(async {
            if !closes {
                db.maintain_when_idle();
            }
            fill_and_empty(db, table).await;
            let left = shapes(db).await;
            assert!(left.iter().all(|shape| shape.leaves > 20), "{left:?}");
            if closes {
                assert!(db.finish_maintenance(Duration::from_secs(20)).await);
            }
            let end = db.engine().env().now() + Duration::from_secs(20);
            while !is_least(&shapes(db).await) && db.engine().env().now() < end {
                db.engine().env().sleep(Duration::from_millis(50)).await;
            }
            let least = shapes(db).await;
            assert!(is_least(&least), "{closes}: {least:?}");
            check(db).await;
        });
        cluster.close();
    }
}

/// A sweep that a snapshot held up was tried again at once, so that closing had no end.
#[test]
fn a_node_that_closes_waits_for_no_snapshot() {
    const ROWS: i32 = 30_000;
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let cluster = Cluster::start(1, 512);
        let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
        let db = &cluster.create(schema)[0];
        let table = db.table("account").unwrap();
        cluster.runtime.block_on(async {
            let mut txn = db.begin();
            insert_some(db, &mut txn, table, ROWS).await;
            txn.commit().await.unwrap();
            let mut reader = db.begin_to_read();
            assert!(reader.get(table, &key![5]).await.unwrap().is_some());
            let mut txn = db.begin();
            for id in 0..ROWS {
                txn.delete(table, &key![id]).await.unwrap();
            }
            txn.commit().await.unwrap();
            // More than are kept one by one.
            assert!(shapes(db).await[0].leaves > 1_200);
            assert!(!db.finish_maintenance(Duration::from_millis(300)).await);
            drop(reader);
            assert!(db.finish_maintenance(Duration::from_secs(20)).await);
            let least = shapes(db).await;
            assert!(is_least(&least), "{least:?}");
        });
        cluster.close();
        let _ = done.send(());
    });
    ended.recv_timeout(Duration::from_secs(120)).unwrap();
}

/// A node that has emptied leaves ends at once. Those who meet them later give them back.
#[test]
fn empty_leaves_of_a_node_that_is_gone_are_given_back_by_those_who_meet_them() {
    let cluster = Cluster::start(2, 512);
    let other = TableSchema::new("other").column("id", ColumnType::I32).primary_key([0]);
    let schema = DatabaseSchema::from(vec![accounts(), other]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let [gone, db] = &databases[..] else { panic!("two nodes") };
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        fill_and_empty(gone, table).await;
        gone.engine().close().await.unwrap();
        let other = db.table("other").unwrap();
        for id in 0..1_200 {
            let mut txn = db.begin();
            txn.insert(other, db.row(other).unwrap().i32(id).finish().unwrap()).await.unwrap();
            txn.commit().await.unwrap();
        }
        assert!(shapes(db).await[0].leaves > 20);
        for direction in [Direction::Forward, Direction::Reverse] {
            let mut txn = db.begin_to_read();
            let all = KeyRange::all();
            txn.scan(table, &all, direction, |_| Ok(ControlFlow::Continue(()))).await.unwrap();
            txn.commit().await.unwrap();
            assert!(db.finish_maintenance(Duration::from_secs(20)).await);
        }
        let shape = shapes(db).await[0];
        assert_eq!((shape.leaves, shape.inner_pages), (1, 1), "{shape:?}");
        check(db).await;
        db.engine().close().await.unwrap();
    });
}

/// Leaves without rows.
async fn count_empty_leaves(db: &Database, table: Table) -> usize {
    let (tree, engine) = (db.tree(table).unwrap(), db.engine());
    let (mut empty, mut addr) = (0, tree.locate(engine, b"").await.unwrap());
    while !addr.is_null() {
        let guard = engine.shared(addr).await.unwrap();
        let leaf = LeafView::new(&guard).unwrap();
        empty += usize::from(leaf.is_empty());
        addr = leaf.right();
    }
    empty
}
