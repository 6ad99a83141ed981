//! What transactions leave to trees: posted separators, reclaimed leaves, what is done later.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::time::Duration;

use selkie_btree::{LeafView, TreeStats};
use selkie_txn::{Database, Source, Table, key};

use crate::common::{Account, Cluster, accounts, check, insert, with_each_protocol};

const ROWS: i32 = 200;

async fn insert_all(db: &Database, txn: &mut selkie_txn::Txn<'_>, table: Table) {
    for id in 0..ROWS {
        // Not ascending, so that leaves split in the middle as well.
        let id = (id * 77) % ROWS;
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

/// An empty leaf whose neighbour was in use stayed for good.
#[test]
fn a_leaf_in_use_is_given_back_by_a_later_transaction() {
    let cluster = Cluster::start(1, 512);
    let databases = cluster.create(vec![accounts()]);
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
        assert!(empty <= 1, "{empty} of {}", leaves(&after));
        check(db).await;
    });
    cluster.close();
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
