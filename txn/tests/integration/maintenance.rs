//! What transactions leave to trees: posted separators, reclaimed leaves, the backlog.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_btree::TreeStats;
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
        let empty = shapes(db).await;
        for (full, empty) in full.iter().zip(&empty) {
            assert!(empty.leaves * 2 < full.leaves, "{} leaves of {}", empty.leaves, full.leaves);
        }

        // Rolled back: the splits stay, empty, until their leaves are given back.
        let mut txn = db.begin();
        insert_all(db, &mut txn, table).await;
        txn.rollback().await;
        for (empty, after) in empty.iter().zip(shapes(db).await) {
            assert_eq!(after.entries, 0, "{protocol}");
            assert!(after.leaves <= empty.leaves * 2, "{after:?}");
        }
    });
}

#[test]
fn what_a_dropped_transaction_leaves_is_done_by_later_ones() {
    let cluster = Cluster::start(1, 512);
    let databases = cluster.create(vec![accounts()]);
    let db = &databases[0];
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        insert_all(db, &mut txn, table).await;
        drop(txn);
        let unposted = |shapes: &[TreeStats]| shapes.iter().map(|s| s.unposted).sum::<usize>();
        assert!(unposted(&shapes(db).await) > 10, "no transaction could post them yet");
        for _ in 0..200 {
            db.begin().commit().await.unwrap();
        }
        assert_eq!(unposted(&shapes(db).await), 0);
        check(db).await;
    });
    cluster.close();
}
