//! What is found of the rows of a table by looking at some of them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use selkie_txn::{
    AnalyzeOptions, CatalogueError, ColumnType, Database, DatabaseSchema, Protocol, SchemaError,
    Table, TableSchema, TxnError, Value, key,
};

use crate::common::{Cluster, with_each_protocol};

const ROWS: i32 = 6_000;
/// Different values of the column `city`.
const CITIES: i32 = 200;
const ALL: AnalyzeOptions = AnalyzeOptions { sample_rows: usize::MAX };

fn people() -> TableSchema {
    TableSchema::new("person")
        .column("id", ColumnType::I32)
        .column("country", ColumnType::Text(20))
        .nullable_column("city", ColumnType::I32)
        .column("document", ColumnType::Json(40))
        .primary_key([0])
        .index("by_city", [2])
}

/// Nodes with the table, and rows in it: nine of ten are of one country, one of ten has no city.
fn filled(nodes: usize, rows: i32) -> (Cluster, Vec<Database>, Table) {
    let cluster = Cluster::start(nodes, 512);
    let schema = DatabaseSchema::from(vec![people()]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let table = databases[0].table("person").unwrap();
    cluster.runtime.block_on(async {
        for first in (0..rows).step_by(100) {
            let mut txn = databases[0].begin();
            for id in first..rows.min(first + 100) {
                insert(&databases[0], &mut txn, table, id).await;
            }
            txn.commit().await.unwrap();
        }
    });
    (cluster, databases, table)
}

async fn insert(db: &Database, txn: &mut selkie_txn::Txn<'_>, table: Table, id: i32) {
    let mut row = db.row(table).unwrap();
    row.i32(id).text(if id % 10 == 3 { "Norway" } else { "Scotland" });
    match id % 10 {
        7 => row.null(),
        // All rows with a city have another one than their neighbours.
        _ => row.i32(id * 7919 % CITIES),
    };
    row.json(format!("{{\"id\":{id}}}").as_bytes());
    txn.insert(table, row.finish().unwrap()).await.unwrap();
}

#[test]
fn a_sample_of_all_rows_is_exact() {
    let (cluster, databases, table) = filled(2, ROWS);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        assert_eq!(here.statistics(table).await.unwrap(), None);
        let found = here.analyze(table, ALL).await.unwrap();
        assert_eq!((found.rows, found.sampled_rows), (ROWS as u64, ROWS as u64));
        let leaves = here.tree(table).unwrap().verify(here.engine()).await.unwrap().leaves;
        assert_eq!(found.leaves, leaves as u64);
        assert_eq!(there.statistics(table).await.unwrap(), Some(found.clone()));

        let id = found.column("id").unwrap();
        assert_eq!((id.nulls, id.distinct, id.common.len()), (0.0, f64::from(ROWS), 0));
        let half = Bound::Excluded(Value::I32(ROWS / 2));
        let low = id.fraction_between(ColumnType::I32, Bound::Unbounded, half).unwrap();
        assert!((0.49..0.51).contains(&low), "{low}");

        let country = found.column("country").unwrap();
        let text = ColumnType::Text(20);
        let fraction = |name| country.fraction_equal(text, Value::Text(name)).unwrap();
        assert_eq!(["Scotland", "Norway", "Iceland"].map(fraction), [0.9, 0.1, 0.0]);
        assert_eq!((country.distinct, country.bounds.len()), (2.0, 0));

        let city = found.column("city").unwrap();
        assert_eq!(city.nulls, 0.1);
        let one = city.fraction_equal(ColumnType::I32, Value::I32(50)).unwrap();
        assert!((0.5..2.0).contains(&(one * f64::from(CITIES))), "{one}");
        let document = found.column("document").unwrap();
        assert_eq!(document.distinct, f64::from(ROWS));
        assert!(found.column("no column").is_none());
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_small_sample_tells_about_how_many_there_are() {
    let (cluster, databases, table) = filled(1, ROWS);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        for _ in 0..5 {
            let found = db.analyze(table, AnalyzeOptions { sample_rows: 600 }).await.unwrap();
            assert!((600..700).contains(&found.sampled_rows), "{}", found.sampled_rows);
            let rows = f64::from(ROWS);
            let near = |value: f64, of: f64| (0.7 * of..1.4 * of).contains(&value);
            assert!(near(found.rows as f64, rows), "{} rows", found.rows);
            let distinct = |name| found.column(name).unwrap().distinct;
            assert!(near(distinct("id"), rows), "{} ids", distinct("id"));
            let cities = f64::from(CITIES);
            assert!(near(distinct("city"), 0.9 * cities), "{} cities", distinct("city"));
            assert_eq!(db.statistics(table).await.unwrap(), Some(found));
        }
    });
    drop(databases);
    cluster.close();
}

#[test]
fn writers_go_on_beside_it() {
    let (cluster, databases, table) = filled(2, 2_000);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    let stops = Arc::new(AtomicBool::new(false));
    cluster.runtime.block_on(async {
        let (db, stop) = (there.clone(), Arc::clone(&stops));
        let writer = here.engine().env().spawn("writes", async move {
            let mut id = 2_000;
            while !stop.load(Ordering::Relaxed) {
                let mut txn = db.begin();
                insert(&db, &mut txn, table, id).await;
                txn.delete(table, &key![id - 2_000]).await.unwrap();
                txn.commit().await.unwrap();
                id += 1;
            }
        });
        for _ in 0..10 {
            let found = here.analyze(table, ALL).await.unwrap();
            // Of one state; leaves that were split since were drawn as one.
            assert_eq!(found.sampled_rows, 2_000);
        }
        stops.store(true, Ordering::Relaxed);
        writer.join().await.unwrap();
    });
    drop(databases);
    cluster.close();
}

#[test]
fn what_is_known_of_a_table_goes_with_it() {
    let (cluster, databases, table) = filled(1, 50);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        db.analyze(table, AnalyzeOptions::default()).await.unwrap();
        let mut txn = db.begin();
        txn.truncate(table).await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(db.statistics(table).await.unwrap().unwrap().rows, 50);
        let empty = db.analyze(table, AnalyzeOptions::default()).await.unwrap();
        assert_eq!((empty.rows, empty.leaves, empty.row_bytes), (0, 1, 0.0));
        assert_eq!(empty.column("id").unwrap().distinct, 0.0);

        let mut txn = db.begin();
        txn.drop_table(table).await.unwrap();
        txn.commit().await.unwrap();
        for error in
            [db.statistics(table).await.unwrap_err(), db.analyze(table, ALL).await.unwrap_err()]
        {
            let is_gone = matches!(error, TxnError::Schema(SchemaError::NoSuchTable { .. }));
            assert!(is_gone, "{error}");
        }
    });
    drop(databases);
    cluster.close();
}

/// It failed: such a value is not in the row, and reading it there is an error.
#[test]
fn long_values_are_counted_without_being_read() {
    let (cluster, databases, _) = filled(1, 1);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        let note = TableSchema::new("note")
            .column("id", ColumnType::I32)
            .column("text", ColumnType::Text(100_000))
            .primary_key([0]);
        let table = txn.create_table(note).await.unwrap();
        for id in 0..20 {
            let mut row = txn.row(table).await.unwrap();
            let text = "x".repeat(if id % 2 == 0 { 10 } else { 5_000 });
            txn.insert(table, row.i32(id).text(&text).finish().unwrap()).await.unwrap();
        }
        txn.commit().await.unwrap();
        let found = db.analyze(table, ALL).await.unwrap();
        let text = found.column("text").unwrap();
        assert_eq!((found.rows, text.nulls, text.value_bytes), (20, 0.0, 2_505.0));
        assert_eq!(text.distinct, 11.0);
        let short = text.fraction_equal(ColumnType::Text(100_000), Value::Text(&"x".repeat(10)));
        assert_eq!(short.unwrap(), 0.5);

        let mut txn = db.begin();
        let row = txn.get(table, &key![1]).await.unwrap().unwrap();
        let bytes = row.value_bytes(1).unwrap();
        assert_eq!((row.is_moved(1).unwrap(), bytes), (true, Some(5_000)));
        let mut cursor =
            txn.cursor(table, selkie_txn::KeyRange::all(), selkie_txn::Direction::Forward).unwrap();
        let row = cursor.next(&mut txn).await.unwrap().unwrap();
        let missing = txn.load_values(table, row, &[65]).await.unwrap_err();
        assert!(matches!(missing, TxnError::Row(_)), "{missing}");
    });
    drop(databases);
    cluster.close();
}

#[test]
fn databases_whose_tables_never_change_have_no_statistics() {
    with_each_protocol(1, async |protocol, databases, table| {
        let analyzed = databases[0].analyze(table, AnalyzeOptions::default()).await;
        if protocol == Protocol::Snapshot {
            return drop(analyzed.unwrap());
        }
        let is_fixed = matches!(analyzed, Err(TxnError::Catalogue(CatalogueError::FixedTables)));
        assert!(is_fixed, "{protocol}: {analyzed:?}");
    });
}

/// A transaction that inserts many rows splits leaves whose separators come later: until then they
/// count as one.
#[test]
fn of_rows_that_came_at_once_no_more_are_looked_at() {
    let (cluster, databases, table) = filled(1, 0);
    let db = &databases[0];
    let near = |found: u64| (2_000..10_000).contains(&found);
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        for id in 0..5_000 {
            insert(db, &mut txn, table, id).await;
        }
        txn.commit().await.unwrap();
        let options = AnalyzeOptions { sample_rows: 400 };
        assert_eq!(db.analyze(table, options).await.unwrap().sampled_rows, 400);
        db.maintain(std::time::Duration::from_secs(60)).await;
        let found = db.analyze(table, options).await.unwrap();
        assert_eq!(found.sampled_rows, 400);
        assert!(near(found.rows), "{} rows", found.rows);
        let leaves = db.tree(table).unwrap().verify(db.engine()).await.unwrap().leaves;
        assert_eq!(found.leaves, leaves as u64);
    });
    drop(databases);
    cluster.close();
}
