//! Tables that a transaction creates and fills at once.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::time::Duration;

use selkie_txn::{
    BulkLoadError, ColumnType, Database, DatabaseSchema, Direction, EntryBuffer, IndexSchema,
    KeyRange, Protocol, Source, Table, TableSchema, Txn, TxnError, key,
};

use crate::common::{Cluster, ClusterOptions, accounts, check};

const TEXT: usize = 1;

/// A table with a number and a text, which may be long.
fn notes() -> TableSchema {
    TableSchema::new("note")
        .column("id", ColumnType::I32)
        .column("text", ColumnType::Text(64 << 10))
        .column("rest", ColumnType::I32)
        .primary_key([0])
        .index("by_rest", [2])
        .with_index(IndexSchema::new("once", [2, 0]).unique())
}

/// What stands in the row of a number. Every hundredth text is stored apart.
fn text(id: i32) -> String {
    let length = if id % 100 == 0 { 3_000 } else { 20 };
    "x".repeat(length) + &id.to_string()
}

/// The numbers below a bound, in another order.
fn shuffled(count: i32) -> impl Iterator<Item = i32> {
    (0..count).map(move |at| (i64::from(at) * 7_919 % i64::from(count)) as i32)
}

/// Fills a table with rows of these numbers.
async fn fill(
    txn: &mut Txn<'_>,
    table: Table,
    ids: impl Iterator<Item = i32>,
) -> Result<(), TxnError> {
    let mut fill = txn.fill_table(table).await?;
    let mut trees: Vec<Vec<(Vec<u8>, Vec<u8>)>> = vec![Vec::new(); fill.trees()];
    let (mut row, mut entries) = (txn.row(table).await?, EntryBuffer::default());
    for id in ids {
        row.clear();
        let row = row.i32(id).text(&text(id)).i32(id % 7).finish()?;
        fill.enter(txn, row, &mut entries).await?;
        for (tree, (key, value)) in trees.iter_mut().zip(entries.entries()) {
            tree.push((key.to_vec(), value.to_vec()));
        }
    }
    for (number, mut entries) in trees.into_iter().enumerate() {
        entries.sort();
        let mut tree = fill.begin_tree(txn, number).await?;
        for (key, value) in entries {
            tree.push(txn, &key, &value).await?;
        }
        fill.end_tree(txn, tree).await?;
    }
    fill.finish(txn).await
}

async fn ids(txn: &mut Txn<'_>, source: impl Into<Source>) -> Vec<i32> {
    let mut ids = Vec::new();
    txn.scan(source, &KeyRange::all(), Direction::Forward, |row| {
        ids.push(row.i32(0)?);
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    ids
}

fn start(nodes: usize) -> (Cluster, Vec<Database>) {
    let options = ClusterOptions { bytes_per_node: 16 << 20, ..ClusterOptions::new(1024) };
    let cluster = Cluster::start_as(ClusterOptions { logs: vec![None; nodes], ..options });
    let databases =
        cluster.create(DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot));
    (cluster, databases)
}

#[test]
fn a_table_that_is_filled_is_there_with_all_rows_once_it_is_committed() {
    let (cluster, databases) = start(2);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut before = there.begin();
        assert!(before.table("note").await.is_err());
        let mut txn = here.begin();
        let table = txn.create_table(notes()).await.unwrap();
        fill(&mut txn, table, shuffled(5_000)).await.unwrap();
        // Its own transaction sees and changes them.
        assert_eq!(ids(&mut txn, table).await, (0..5_000).collect::<Vec<_>>());
        txn.delete(table, &key![17]).await.unwrap();
        let mut row = txn.row(table).await.unwrap();
        let row = row.i32(5_000).text(&text(5_000)).i32(5_000 % 7).finish().unwrap();
        txn.insert(table, row).await.unwrap();
        let twice = txn.fill_table(table).await.unwrap().begin_tree(&mut txn, 0).await;
        let twice = twice.err().unwrap().to_string();
        assert_eq!(twice, "table note cannot be loaded: it is not empty");
        txn.commit().await.unwrap();
        assert!(before.table("note").await.is_err());

        let mut txn = there.begin();
        let table = txn.table("note").await.unwrap();
        let by_rest = txn.index(table, "by_rest").await.unwrap();
        let expected: Vec<i32> = (0..=5_000).filter(|id| *id != 17).collect();
        assert_eq!(ids(&mut txn, table).await, expected);
        let mut through_index = ids(&mut txn, by_rest).await;
        assert!(through_index.is_sorted_by_key(|id| (id % 7, *id)));
        through_index.sort_unstable();
        assert_eq!(through_index, expected);
        for id in [0, 100, 4_900, 5_000] {
            let row = txn.get_whole(table, &key![id]).await.unwrap().unwrap();
            assert_eq!(row.row().text(TEXT).unwrap(), text(id));
        }
        txn.commit().await.unwrap();
        there.refresh().await.unwrap();
        check(there).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn what_was_filled_is_given_back_if_the_creation_is_taken_back() {
    let (cluster, databases) = start(1);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let pages = db.pages(db.engine()).await.unwrap().len();
        // More than the pool has room for at once.
        for round in 0..12 {
            let mut txn = db.begin();
            let point = txn.savepoint().unwrap();
            let table = txn.create_table(notes()).await.unwrap();
            fill(&mut txn, table, shuffled(30_000)).await.unwrap();
            if round % 2 == 0 {
                txn.rollback_to(point).unwrap();
                assert!(txn.table("note").await.is_err());
                txn.commit().await.unwrap();
            } else {
                txn.rollback().await;
            }
            // Given back in the background, when it was in use.
            let until = db.engine().env().now() + Duration::from_secs(60);
            loop {
                let used = db.pages(db.engine()).await.unwrap();
                assert_eq!(used.len(), pages);
                let census = db.engine().repair_lines(&used, false).await.unwrap();
                if census.leaked == 0 {
                    break;
                }
                assert!(db.engine().env().now() < until, "{round}: {census:?}");
                db.begin().commit().await.unwrap();
                db.engine().env().sleep(Duration::from_millis(5)).await;
            }
        }
        check(db).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn what_cannot_be_filled_is_refused() {
    let (cluster, databases) = start(1);
    let db = &databases[0];
    let not_new = |error: TxnError| {
        assert!(matches!(error, TxnError::BulkLoad(BulkLoadError::NotNew { .. })), "{error}");
    };
    cluster.runtime.block_on(async {
        let account = db.table("account").unwrap();
        let mut txn = db.begin();
        not_new(txn.fill_table(account).await.err().unwrap());
        let table = txn.create_table(notes()).await.unwrap();
        let fill = txn.fill_table(table).await.unwrap();
        // A rollback to this savepoint would leave the rows there.
        let point = txn.savepoint().unwrap();
        not_new(txn.fill_table(table).await.err().unwrap());
        not_new(fill.finish(&mut txn).await.unwrap_err());
        txn.release(point).unwrap();

        let fill = txn.fill_table(table).await.unwrap();
        let mut entries = EntryBuffer::default();
        let mut row = txn.row(table).await.unwrap();
        let row = row.i32(5).text("five").i32(5).finish().unwrap();
        fill.enter(&mut txn, row, &mut entries).await.unwrap();
        let all: Vec<_> =
            entries.entries().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        for (number, (key, value)) in all.iter().enumerate() {
            let told = fill.row_of(number, (key, value)).unwrap();
            assert_eq!(fill.row(&told).unwrap().i32(0).unwrap(), 5);
            let mut tree = fill.begin_tree(&mut txn, number).await.unwrap();
            tree.push(&mut txn, key, value).await.unwrap();
            let again = tree.push(&mut txn, key, value).await.unwrap_err();
            assert!(matches!(again, TxnError::Duplicate { .. }), "{again}");
            let below = tree.push(&mut txn, &[0], value).await.unwrap_err();
            let out = matches!(below, TxnError::BulkLoad(BulkLoadError::OutOfOrder { .. }));
            assert!(out, "{below}");
        }
        // Nothing of that is left.
        assert!(ids(&mut txn, table).await.is_empty());
        txn.commit().await.unwrap();
        db.refresh().await.unwrap();
        check(db).await;
    });
    drop(databases);
    cluster.close();
}
