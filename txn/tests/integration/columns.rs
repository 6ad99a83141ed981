//! Columns that are added and dropped while rows are there.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use selkie_txn::{
    AbortCause, BulkLoadOptions, CatalogueError, Column, ColumnType, Database, DatabaseSchema,
    Direction, Isolation, KeyRange, MAX_COLUMNS, NamedRowError, NewIndex, Protocol, RetryPolicy,
    RowError, RowMut, RowRef, SchemaError, Source, Table, TableSchema, Txn, TxnError, Value, key,
    retry,
};

use crate::common::{Cluster, check, dump, failed_by, poll_times};
use crate::logged::ends;

const ISOLATIONS: [Isolation; 3] =
    [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];

fn items() -> TableSchema {
    TableSchema::new("item")
        .column("id", ColumnType::I32)
        .column("name", ColumnType::Text(12))
        .column("price", ColumnType::I64)
        .primary_key([0])
        .index("by_name", [1])
        .max_rows_per_page(5)
}

/// Two nodes with the items of these numbers, whose prices are ten times as high.
fn shop(ids: std::ops::Range<i32>) -> (Cluster, Vec<Database>, Table) {
    let cluster = Cluster::start(2, 1024);
    let schema = DatabaseSchema::from(vec![items()]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let table = databases[0].table("item").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in ids {
            put(&mut txn, table, id).await.unwrap();
        }
        txn.commit().await.unwrap();
    });
    (cluster, databases, table)
}

/// Inserts an item; the columns behind the third get their defaults.
async fn put(txn: &mut Txn<'_>, table: Table, id: i32) -> Result<(), TxnError> {
    let mut row = txn.row(table).await?;
    row.i32(id).text(&format!("item {}", id % 7)).i64(i64::from(id) * 10).default_values();
    txn.insert(table, row.finish()?).await
}

/// The columns of a row, in words.
fn words(row: RowRef<'_>) -> Result<String, TxnError> {
    let mut words = Vec::new();
    for column in 0.. {
        match row.value(column) {
            Ok(value) => words.push(format!("{value:?}")),
            Err(error) if matches!(error.error, RowError::NoSuchColumn { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(words.join(" "))
}

/// Item `id` with these further columns, in words.
fn item(id: i32, further: &str) -> String {
    let name = format!("item {}", id % 7);
    format!("I32({id}) Text({name:?}) I64({}){further}", i64::from(id) * 10)
}

/// All rows by a scan, after a look that all other ways to read them agree.
async fn rows(txn: &mut Txn<'_>, table: Table) -> Result<Vec<String>, TxnError> {
    let all = KeyRange::all();
    let (mut scanned, mut keys) = (Vec::new(), Vec::new());
    txn.scan(table, &all, Direction::Forward, |row| {
        scanned.push(words(row)?);
        keys.push(key![row.i32(0)?]);
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    let mut many = Vec::new();
    txn.get_many(table, &keys, |_, row| {
        many.push(words(row.unwrap())?);
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    assert_eq!(many, scanned);
    let by_name = txn.index(table, "by_name").await?;
    for source in [Source::from(table), by_name.into()] {
        let mut fetched = Vec::new();
        let mut cursor = txn.cursor_for_update(source, KeyRange::all(), Direction::Reverse)?;
        loop {
            let some = cursor.fetch(txn, 4).await?;
            if some.is_empty() {
                break;
            }
            for row in &some {
                assert_eq!(txn.key_of(table, row)?[..], key![row.i32(0)?][..]);
                fetched.push((row.i32(0)?, words(row)?));
            }
        }
        fetched.sort();
        let fetched: Vec<_> = fetched.into_iter().map(|(_, words)| words).collect();
        assert_eq!(fetched, scanned, "{source:?}");
    }
    for (key, row) in keys.iter().zip(&scanned) {
        let found = txn.get(table, key).await?.map(words).transpose()?;
        assert_eq!(found.as_ref(), Some(row));
    }
    let first = txn.first(table, &all).await?.map(words).transpose()?;
    assert_eq!(first.as_ref(), scanned.first());
    Ok(scanned)
}

/// All rows as a new transaction of each kind sees them.
async fn all_see(databases: &[Database], table: Table, expected: &[String]) {
    for db in databases {
        let mut reader = db.begin_to_read();
        assert_eq!(rows_to_read(&mut reader, table).await, expected);
        reader.commit().await.unwrap();
        for isolation in ISOLATIONS {
            let mut txn = db.begin_with(isolation);
            assert_eq!(rows(&mut txn, table).await.unwrap(), expected, "{isolation:?}");
            txn.commit().await.unwrap();
        }
        db.refresh().await.unwrap();
        check(db).await;
    }
}

async fn rows_to_read(txn: &mut Txn<'_>, table: Table) -> Vec<String> {
    let mut scanned = Vec::new();
    txn.scan(table, &KeyRange::all(), Direction::Forward, |row| {
        scanned.push(words(row)?);
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    scanned
}

/// A transaction that makes one change.
macro_rules! change {
    ($db:expr, |$txn:ident| $change:expr) => {{
        let mut $txn = $db.begin();
        let changed = $change.await;
        match changed {
            Ok(done) => $txn.commit().await.map(|()| done),
            Err(error) => Err(error),
        }
    }};
}

fn number(name: &str) -> Column {
    Column::new(name, ColumnType::I16)
}

#[test]
fn rows_are_not_rewritten_and_have_the_defaults_of_their_time() {
    let (cluster, databases, table) = shop(0..40);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let stored = dump(here).await;
        let stars = number("stars").nullable().default(Value::I16(3));
        change!(here, |txn| txn.add_column(table, stars.clone())).unwrap();
        let tag = Column::new("tag", ColumnType::Text(8)).nullable();
        change!(there, |txn| txn.add_column(table, tag.clone())).unwrap();
        let code = Column::new("code", ColumnType::Bytes(9)).default(Value::Bytes(&[7; 9]));
        change!(here, |txn| txn.add_column(table, code.clone())).unwrap();
        let code_of_old = format!(" {:?}", Value::Bytes(&[7; 9]));
        let old = format!(" I16(3) Null{code_of_old}");
        let mut expected: Vec<_> = (0..40).map(|id| item(id, &old)).collect();
        all_see(&databases, table, &expected).await;
        let schema = there.begin().schema(table).await.unwrap();
        let all = items().with_column(stars).with_column(tag).with_column(code);
        assert_eq!(schema, all);
        assert_eq!(schema.columns[3].default.as_ref().unwrap().value(), Value::I16(3));

        // Later defaults are those of later rows.
        change!(there, |txn| txn.set_default(table, "stars", Value::I16(5))).unwrap();
        change!(there, |txn| txn.set_default(table, "tag", Value::Text("new"))).unwrap();
        change!(there, |txn| txn.drop_default(table, "code")).unwrap();
        assert_eq!(dump(here).await, stored, "rows were rewritten");
        let missing = change!(here, |txn| put(&mut txn, table, 50)).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "table item, column code: column 5 has no default, and may not be NULL"
        );
        let mut txn = there.begin();
        let mut row = txn.row(table).await.unwrap();
        row.i32(40).text("item 5").i64(400).default_value().default_value().bytes(&[1]);
        txn.insert(table, row.finish().unwrap()).await.unwrap();
        txn.commit().await.unwrap();
        expected.push(item(40, &format!(" I16(5) Text(\"new\") {:?}", Value::Bytes(&[1]))));
        all_see(&databases, table, &expected).await;

        // An update changes what it sets, in a row of any layout.
        let mut txn = here.begin();
        let set = |row: &mut RowMut<'_>| Ok(row.set_text(4, "set")?);
        txn.update(table, &key![7], set).await.unwrap();
        txn.update(table, &key![8], |row| Ok(row.set_null(3)?)).await.unwrap();
        txn.update(table, &key![9], |row| Ok(row.set_i64(2, row.i64(2)?)?)).await.unwrap();
        txn.delete(table, &key![10]).await.unwrap();
        txn.commit().await.unwrap();
        expected[7] = item(7, &format!(" I16(3) Text(\"set\"){code_of_old}"));
        expected[8] = item(8, &format!(" Null Null{code_of_old}"));
        expected.remove(10);
        all_see(&databases, table, &expected).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_dropped_column_does_not_come_back() {
    let (cluster, databases, table) = shop(0..20);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        change!(here, |txn| txn.add_column(table, number("n").default(Value::I16(1)))).unwrap();
        let mut txn = here.begin();
        txn.update(table, &key![3], |row| Ok(row.set_i16(3, 77)?)).await.unwrap();
        txn.commit().await.unwrap();
        let stored = dump(here).await;
        let (price, text) = ("price", Column::new("price", ColumnType::Text(9)).nullable());
        change!(there, |txn| txn.drop_column(table, price)).unwrap();
        let short = |id: i32, further: &str| {
            item(id, further).replace(&format!(" I64({})", i64::from(id) * 10), "")
        };
        let n = |id| if id == 3 { " I16(77)" } else { " I16(1)" };
        let expected: Vec<_> = (0..20).map(|id| short(id, n(id))).collect();
        all_see(&databases, table, &expected).await;

        // One of the same name, and one of the same name and type.
        change!(there, |txn| txn.add_column(table, text)).unwrap();
        change!(here, |txn| txn.drop_column(table, "n")).unwrap();
        change!(here, |txn| txn.add_column(table, number("n").nullable())).unwrap();
        assert_eq!(dump(here).await, stored, "rows were rewritten");
        let expected: Vec<_> = (0..20).map(|id| short(id, " Null Null")).collect();
        all_see(&databases, table, &expected).await;
        let schema = there.begin().schema(table).await.unwrap();
        let names: Vec<_> = schema.columns.iter().map(|column| &*column.name).collect();
        assert_eq!(names, ["id", "name", "price", "n"]);

        // A column before those of an index.
        let index = NewIndex::new("by_n", ["n", "price"]).unique().nulls_distinct();
        let index = here.create_index(table, index).await.unwrap();
        let mut txn = there.begin();
        txn.update(table, &key![4], |row| Ok(row.set_i16(3, 4)?)).await.unwrap();
        txn.commit().await.unwrap();
        change!(there, |txn| txn.drop_index(table, "by_name")).unwrap();
        change!(there, |txn| txn.drop_column(table, "name")).unwrap();
        let mut txn = there.begin();
        let schema = txn.schema(table).await.unwrap();
        assert_eq!(schema.indexes[0].columns, [2, 1]);
        let last = txn.last(index, &KeyRange::all()).await.unwrap().map(words).unwrap().unwrap();
        assert_eq!(last, "I32(4) Null I16(4)");
        txn.commit().await.unwrap();
        here.refresh().await.unwrap();
        check(here).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn what_cannot_be_changed_is_refused_by_name() {
    let (cluster, databases, table) = shop(0..10);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let stored = dump(here).await;
        let mut txn = here.begin();
        let mut refused = Vec::new();
        refused.push(txn.add_column(table, number("name").nullable()).await);
        refused.push(txn.drop_column(table, "no").await);
        refused.push(txn.set_default(table, "no", Value::Null).await);
        refused.push(txn.set_not_null(table, "no").await);
        refused.push(txn.drop_not_null(table, "no").await);
        refused.push(txn.drop_column(table, "id").await);
        refused.push(txn.drop_column(table, "name").await);
        refused.push(txn.drop_not_null(table, "id").await);
        refused.push(txn.drop_not_null(table, "name").await);
        refused.push(txn.add_column(table, number("n").default(Value::I32(1))).await);
        refused.push(txn.set_default(table, "price", Value::Text("much")).await);
        refused.push(txn.set_default(table, "name", Value::Text("of thirteen b")).await);
        refused.push(txn.add_column(table, number("n")).await);
        refused.push(txn.add_column(table, Column::new("t", ColumnType::Text(0))).await);
        let words: Vec<_> = refused.into_iter().map(|r| r.unwrap_err().to_string()).collect();
        assert_eq!(
            words,
            [
                "table item: the name name is used twice",
                "table item has no column no",
                "table item has no column no",
                "table item has no column no",
                "table item has no column no",
                "table item: column id is part of primary key",
                "table item: column name is part of by_name",
                "table item: column id of the primary key may not be nullable",
                "table item: column name is part of by_name",
                "table item, column n: its default cannot be stored: column 3 is I16, not I32",
                "table item, column price: its default cannot be stored: column 2 is I64, not Text",
                "table item, column name: its default cannot be stored: column 1: 13 bytes (allowed: 12)",
                "table item: there are rows in which column n is NULL",
                "table item, column t: 0 bytes (allowed: 1 to 268435456)",
            ]
        );
        assert_eq!(txn.schema(table).await.unwrap(), items());
        put(&mut txn, table, 10).await.unwrap();
        txn.rollback().await;
        assert_eq!(dump(there).await, stored);
        check(there).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn there_are_as_many_columns_as_there_may_be_where_tables_change() {
    let (cluster, databases, table) = shop(0..10);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let stored = dump(here).await;
        for at in 3..MAX_COLUMNS {
            let column = Column::new(format!("c{at}"), ColumnType::Bool).nullable();
            change!(here, |txn| txn.add_column(table, column)).unwrap();
        }
        let many = change!(there, |txn| txn.add_column(table, number("n").nullable()));
        let many = many.unwrap_err().to_string();
        assert_eq!(many, "table item, column n: it would be number 65 (allowed: 64)");
        let mut reader = there.begin_to_read();
        let refused = reader.add_column(table, number("n")).await;
        assert!(matches!(refused, Err(TxnError::ReadOnly)));
        assert_eq!(dump(there).await, stored);
        check(there).await;
    });
    drop(databases);
    cluster.close();
    let (cluster, databases, table) = crate::common::bank(Protocol::TwoPhase);
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        let fixed = txn.add_column(table, number("n").nullable()).await.unwrap_err();
        assert!(matches!(fixed, TxnError::Catalogue(CatalogueError::FixedTables)), "{fixed}");
        assert_eq!(
            txn.row(table).await.unwrap().i32(1).finish().unwrap_err().to_string(),
            "table account: the row has 1 of 5 columns"
        );
    });
    drop(databases);
    cluster.close();
}

/// What a transaction that is refused has read may have to be waited for, and then it holds no leaf
/// that others wait for.
#[test]
fn a_refused_change_waits_with_no_leaf_latched() {
    let (cluster, databases, table) = shop(0..30);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        change!(here, |txn| txn.add_column(table, number("n").nullable())).unwrap();
        let tree = there.tree(table).unwrap();
        let mut leaves = Vec::new();
        for id in [0, 29] {
            leaves.push(tree.locate(there.engine(), &key![id]).await.unwrap());
        }
        let mut txn = here.begin();
        txn.get(table, &key![29]).await.unwrap().unwrap();
        let last = there.engine().exclusive(leaves[1]).await.unwrap();
        let mut change = Box::pin(txn.set_not_null(table, "n"));
        let env = here.engine().env();
        assert!(!ends(&mut change, env).await, "it waits for the last leaf");
        let mut first = Box::pin(there.engine().exclusive(leaves[0]));
        let mut is_had = false;
        for _ in 0..30 {
            is_had = is_had || ends(&mut first, env).await;
        }
        assert!(is_had, "the first leaf is held by a transaction that waits for the last");
        drop(last);
        let refused = change.await.unwrap_err();
        assert!(refused.to_string().contains("column n is NULL"), "{refused}");
    });
    drop(databases);
    cluster.close();
}

/// A row with a NULL comes while a transaction looks whether there are any.
#[test]
fn no_null_gets_past_a_look_at_all_rows() {
    let (cluster, databases, table) = shop(0..30);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let n = || number("n").nullable();
        change!(here, |txn| txn.add_column(table, n())).unwrap();
        let nulls = change!(here, |txn| txn.set_not_null(table, "n")).unwrap_err();
        let error = "table item: there are rows in which column n is NULL";
        assert_eq!(nulls.to_string(), error);
        change!(there, |txn| txn.drop_column(table, "n")).unwrap();
        change!(there, |txn| txn.add_column(table, n().default(Value::I16(4)))).unwrap();
        for (round, isolation) in (30..).zip(ISOLATIONS) {
            for commits_first in [true, false] {
                let mut change = here.begin_with(isolation);
                let mut txn = there.begin_with(isolation);
                if !commits_first {
                    txn.update(table, &key![5], |row| Ok(row.set_null(3)?)).await.unwrap();
                }
                change.set_not_null(table, "n").await.unwrap();
                if commits_first {
                    let mut row = txn.row(table).await.unwrap();
                    let row = row.i32(round).text("null").i64(0).null().finish().unwrap();
                    txn.insert(table, row).await.unwrap();
                    txn.commit().await.unwrap();
                    assert!(failed_by(change.commit().await, AbortCause::Stale), "{isolation:?}");
                    change!(here, |txn| txn.delete(table, &key![round])).unwrap();
                } else {
                    change.commit().await.unwrap();
                    assert!(failed_by(txn.commit().await, AbortCause::Stale), "{isolation:?}");
                    let mut txn = there.begin();
                    let set = txn.update(table, &key![5], |row| Ok(row.set_null(3)?)).await;
                    assert!(matches!(
                        set,
                        Err(TxnError::Row(NamedRowError {
                            error: RowError::NotNullable { .. },
                            ..
                        }))
                    ));
                    txn.rollback().await;
                    change!(there, |txn| txn.drop_not_null(table, "n")).unwrap();
                }
            }
        }
        let expected: Vec<_> = (0..30).map(|id| item(id, " I16(4)")).collect();
        all_see(&databases, table, &expected).await;
        // No row at all.
        let mut txn = here.begin();
        for id in 0..30 {
            txn.delete(table, &key![id]).await.unwrap();
        }
        txn.add_column(table, number("m")).await.unwrap();
        txn.rollback().await;
        change!(here, |txn| txn.truncate(table)).unwrap();
        for isolation in ISOLATIONS {
            let mut change = here.begin_with(isolation);
            change.add_column(table, number("m")).await.unwrap();
            change!(there, |txn| put(&mut txn, table, 1)).unwrap();
            assert!(failed_by(change.commit().await, AbortCause::Stale), "{isolation:?}");
            change!(there, |txn| txn.delete(table, &key![1])).unwrap();
        }
        change!(here, |txn| txn.add_column(table, number("m"))).unwrap();
        let missing = change!(there, |txn| put(&mut txn, table, 1)).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "table item, column m: column 4 has no default, and may not be NULL"
        );
    });
    drop(databases);
    cluster.close();
}

#[test]
fn an_index_keeps_its_keys_if_a_column_may_not_be_null_any_more() {
    let (cluster, databases, table) = shop(0..12);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let n = number("n").nullable().default(Value::I16(-1));
        change!(here, |txn| txn.add_column(table, n)).unwrap();
        let index = here.create_index(table, NewIndex::new("by_n", ["n"])).await.unwrap();
        change!(there, |txn| txn.set_not_null(table, "n")).unwrap();
        change!(there, |txn| put(&mut txn, table, 12)).unwrap();
        let mut txn = here.begin();
        txn.update(table, &key![3], |row| Ok(row.set_i16(3, 8)?)).await.unwrap();
        txn.delete(table, &key![4]).await.unwrap();
        txn.commit().await.unwrap();
        here.refresh().await.unwrap();
        let range = KeyRange::prefix(&here.key(index, &[Value::I16(8)]).unwrap());
        let mut txn = here.begin();
        let found = txn.first(index, &range).await.unwrap().map(words).unwrap().unwrap();
        assert_eq!(found, item(3, " I16(8)"));
        txn.commit().await.unwrap();
        check(here).await;
        // An index from before may have NULLs again; one from then may not.
        there.create_index(table, NewIndex::new("strict", ["n"])).await.unwrap();
        let strict = change!(there, |txn| txn.drop_not_null(table, "n")).unwrap_err();
        assert_eq!(strict.to_string(), "table item: column n is part of strict");
        change!(there, |txn| txn.drop_index(table, "strict")).unwrap();
        change!(there, |txn| txn.drop_not_null(table, "n")).unwrap();
        change!(there, |txn| txn.update(table, &key![3], |row| Ok(row.set_null(3)?))).unwrap();
        there.refresh().await.unwrap();
        check(there).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn who_used_the_old_columns_is_run_again_and_old_snapshots_keep_them() {
    let (cluster, databases, table) = shop(0..10);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let before: Vec<_> = (0..10).map(|id| item(id, "")).collect();
        let mut reader = there.begin_to_read();
        assert_eq!(rows_to_read(&mut reader, table).await, before);
        for (round, isolation) in ISOLATIONS.into_iter().enumerate() {
            let name = format!("n{round}");
            let mut txn = there.begin_with(isolation);
            txn.update(table, &key![1], |row| Ok(row.set_i64(2, 5)?)).await.unwrap();
            let mut looks = there.begin_with(isolation);
            looks.get(table, &key![2]).await.unwrap();
            let n = number(&name).default(Value::I16(1));
            change!(here, |txn| txn.add_column(table, n)).unwrap();
            // Rows of the new layout.
            change!(here, |txn| txn.update(table, &key![2], |row| Ok(row.set_i64(2, 20)?)))
                .unwrap();
            assert!(failed_by(txn.commit().await, AbortCause::Stale), "{isolation:?}");
            let seen = looks.get(table, &key![2]).await.map(|row| row.map(words));
            match (isolation, seen) {
                (Isolation::Serializable, seen) => {
                    assert!(seen.is_err_and(|error| error.is_retryable()));
                }
                (_, seen) => {
                    let ones = " I16(1)".repeat(match isolation {
                        Isolation::ReadCommitted => round + 1,
                        _ => round,
                    });
                    assert_eq!(seen.unwrap().unwrap().unwrap(), item(2, &ones), "{isolation:?}");
                }
            }
        }
        change!(here, |txn| txn.drop_column(table, "price")).unwrap();
        change!(here, |txn| txn.delete(table, &key![3])).unwrap();
        assert_eq!(rows_to_read(&mut reader, table).await, before);
        assert_eq!(reader.schema(table).await.unwrap(), items());
        reader.commit().await.unwrap();
        // A row that was made before.
        let old = here.row(table).unwrap().i32(3).text("old").i64(1).finish().map(|_| ());
        assert!(old.is_err(), "this node has seen the change");
        let mut old = there.row(table).unwrap();
        let stale = match old.i32(3).text("old").i64(1).finish() {
            Ok(row) => there.begin().insert(table, row).await.unwrap_err(),
            Err(error) => error.into(),
        };
        assert!(matches!(stale, TxnError::ForeignRow { .. } | TxnError::Row(_)), "{stale}");
    });
    drop(databases);
    cluster.close();
}

/// Scans until it is told to stop, each in a state of its own, which may be later than its look at
/// the definition. Returns how many were to be run again.
async fn look_again_and_again(db: &Database, table: Table, stop: &AtomicBool) -> usize {
    let mut again = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut txn = db.begin_with(Isolation::ReadCommitted);
        let (mut seen, all) = (Vec::new(), KeyRange::all());
        let scan = txn.scan(table, &all, Direction::Forward, |row| {
            seen.push(words(row)?);
            Ok(ControlFlow::Continue(()))
        });
        match scan.await {
            Ok(()) => {
                let further = if seen[0] == item(0, "") { "" } else { " I16(1)" };
                let expected: Vec<_> = (0..30).map(|id| item(id, further)).collect();
                assert_eq!(seen, expected);
            }
            Err(error) => {
                assert_eq!(error.abort_cause(), Some(AbortCause::Stale), "{error}");
                assert!(txn.get(table, &key![1]).await.is_err());
                again += 1;
            }
        }
    }
    again
}

#[test]
fn operations_beside_changes_of_columns_see_one_state_or_are_run_again() {
    let (cluster, databases, table) = shop(0..30);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    let (stop, runtime) = (AtomicBool::new(false), &cluster.runtime);
    std::thread::scope(|threads| {
        let readers = [here, there]
            .map(|db| threads.spawn(|| runtime.block_on(look_again_and_again(db, table, &stop))));
        runtime.block_on(async {
            let policy = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
            for round in 0..60 {
                let changed = retry(here.engine().env(), &policy, || async {
                    let mut txn = here.begin();
                    match round % 2 {
                        0 => txn.add_column(table, number("n").default(Value::I16(1))).await?,
                        _ => txn.drop_column(table, "n").await?,
                    }
                    for id in 0..30 {
                        let same = |row: &mut RowMut<'_>| Ok(row.set_i64(2, row.i64(2)?)?);
                        txn.update(table, &key![id], same).await?;
                    }
                    txn.commit().await
                });
                changed.await.unwrap();
            }
        });
        stop.store(true, Ordering::Relaxed);
        let again: usize = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
        println!("{again} scans were to be run again");
    });
    runtime.block_on(check(there));
    drop(databases);
    cluster.close();
}

#[test]
fn what_is_rolled_back_leaves_no_columns() {
    let (cluster, databases, table) = shop(0..10);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin();
        put(&mut txn, table, 10).await.unwrap();
        let point = txn.savepoint().unwrap();
        txn.add_column(table, number("gone").default(Value::I16(1))).await.unwrap();
        put(&mut txn, table, 11).await.unwrap();
        txn.update(table, &key![1], |row| Ok(row.set_i16(3, 2)?)).await.unwrap();
        txn.drop_column(table, "price").await.unwrap();
        assert_eq!(
            txn.get(table, &key![1]).await.unwrap().map(words).unwrap().unwrap(),
            "I32(1) Text(\"item 1\") I16(2)"
        );
        txn.rollback_to(point).unwrap();
        let before: Vec<_> = (0..11).map(|id| item(id, "")).collect();
        assert_eq!(rows(&mut txn, table).await.unwrap(), before);
        assert_eq!(txn.schema(table).await.unwrap(), items());
        // The same layout numbers, with other columns, and rows of both in one transaction.
        txn.add_column(table, Column::new("t", ColumnType::Text(5)).nullable()).await.unwrap();
        put(&mut txn, table, 12).await.unwrap();
        txn.update(table, &key![2], |row| Ok(row.set_text(3, "two")?)).await.unwrap();
        let mut after: Vec<_> = (0..13).map(|id| item(id, " Null")).collect();
        after.remove(11);
        after[2] = item(2, " Text(\"two\")");
        assert_eq!(rows(&mut txn, table).await.unwrap(), after);
        // A refused change takes nothing along.
        assert!(txn.add_column(table, number("n")).await.is_err());
        assert_eq!(rows(&mut txn, table).await.unwrap(), after);
        txn.commit().await.unwrap();
        all_see(&databases, table, &after).await;
        let mut txn = there.begin();
        txn.drop_column(table, "t").await.unwrap();
        txn.rollback().await;
        all_see(&databases, table, &after).await;
        // A future that is dropped.
        let mut refused = 0;
        for polls in 1..60 {
            let mut txn = there.begin();
            let change = txn.add_column(table, number("n").nullable());
            if poll_times(change, polls).await.is_none() {
                refused += 1;
                assert!(txn.get(table, &key![1]).await.is_err());
            }
            drop(txn);
        }
        println!("{refused} were dropped");
        all_see(&databases, table, &after).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn an_index_is_of_the_columns_that_it_names() {
    let (cluster, databases, table) = shop(0..40);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        for (name, value) in [("n", 1), ("m", 2)] {
            let column = number(name).default(Value::I16(value));
            change!(here, |txn| txn.add_column(table, column)).unwrap();
        }
        change!(here, |txn| txn.update(table, &key![7], |row| Ok(row.set_i16(3, 70)?))).unwrap();
        // A client that goes by the definition it has seen, while the other node changes it.
        let mut session = here.session().unwrap();
        session.begin(Isolation::RepeatableRead).unwrap();
        let seen = session.run(|txn| Box::pin(async move { txn.schema(table).await }));
        let seen = seen.await.unwrap();
        let (price, n) = (&seen.columns[2].name, &seen.columns[3].name);
        change!(there, |txn| txn.drop_column(table, price)).unwrap();

        let gone = here.create_index(table, NewIndex::new("by_price", [n, price])).await;
        let gone = gone.unwrap_err();
        let TxnError::Schema(SchemaError::NoSuchColumn { .. }) = &gone else { panic!("{gone}") };
        assert_eq!(gone.to_string(), "table item has no column price");
        let by_n = here.create_index(table, NewIndex::new("by_n", [n])).await.unwrap();
        session.rollback().await.unwrap();
        there.refresh().await.unwrap();
        let mut txn = there.begin();
        let indexes = txn.schema(table).await.unwrap().indexes;
        let indexes: Vec<_> = indexes.iter().map(|index| (&*index.name, &*index.columns)).collect();
        assert_eq!(indexes, [("by_name", &[1][..]), ("by_n", &[2])]);
        let range = KeyRange::prefix(&there.key(by_n, &[Value::I16(70)]).unwrap());
        let found = txn.first(by_n, &range).await.unwrap().map(words).unwrap().unwrap();
        assert_eq!(found, "I32(7) Text(\"item 0\") I16(70) I16(2)");
        txn.commit().await.unwrap();
        check(there).await;

        // While the index is begun: it has the column, or has none of its columns.
        let (mut built, mut refused) = (0, 0);
        for polls in 0..24 {
            let mut building =
                std::pin::pin!(here.create_index(table, NewIndex::new("by_m", ["m"])));
            let done = poll_times(building.as_mut(), polls).await;
            let dropped = change!(there, |txn| txn.drop_column(table, "m"));
            let done = match done {
                Some(done) => done,
                None => building.await,
            };
            match done {
                Ok(by_m) => {
                    built += 1;
                    assert!(dropped.is_err(), "after {polls} polls: {dropped:?}");
                    let mut txn = here.begin();
                    let row = txn.last(by_m, &KeyRange::all()).await.unwrap().unwrap();
                    assert_eq!(row.i16(3), Ok(2));
                    txn.drop_index(table, "by_m").await.unwrap();
                    txn.commit().await.unwrap();
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.to_string(), "table item has no column m");
                    dropped.unwrap();
                    let column = number("m").default(Value::I16(2));
                    change!(there, |txn| txn.add_column(table, column)).unwrap();
                }
            }
            check(there).await;
        }
        assert!(built > 2 && refused > 0, "{built} built, {refused} refused");
    });
    drop(databases);
    cluster.close();
}

#[test]
fn indexes_and_loads_take_rows_of_all_layouts() {
    let (cluster, databases, table) = shop(0..600);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let group = number("group").default(Value::I16(1));
        change!(here, |txn| txn.add_column(table, group)).unwrap();
        change!(here, |txn| txn.drop_column(table, "price")).unwrap();
        let mut txn = there.begin();
        for id in (0..600).step_by(3) {
            let group = (id % 4) as i16;
            txn.update(table, &key![id], |row| Ok(row.set_i16(2, group)?)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let by_group = here.create_index(table, NewIndex::new("by_group", ["group", "id"])).await;
        let by_group = by_group.unwrap();
        let only = there.create_index(table, NewIndex::new("only", ["group"]).unique()).await;
        assert!(matches!(only, Err(TxnError::Duplicate { .. })));
        there.refresh().await.unwrap();
        let mut counts = Vec::new();
        let mut txn = there.begin();
        for group in 0..4 {
            let range = KeyRange::prefix(&there.key(by_group, &[Value::I16(group)]).unwrap());
            let mut count = 0;
            txn.scan(by_group, &range, Direction::Forward, |row| {
                assert_eq!(row.i16(2)?, group);
                count += 1;
                Ok(ControlFlow::Continue(()))
            })
            .await
            .unwrap();
            counts.push(count);
        }
        txn.commit().await.unwrap();
        assert_eq!(counts, [50, 450, 50, 50]);
        // Entries of rows that are not rewritten are found and removed.
        let mut txn = here.begin();
        for id in 0..600 {
            if id % 2 == 0 {
                txn.delete(table, &key![id]).await.unwrap();
            } else {
                txn.update(table, &key![id], |row| Ok(row.set_i16(2, 9)?)).await.unwrap();
            }
        }
        txn.commit().await.unwrap();
        check(there).await;

        change!(here, |txn| txn.truncate(table)).unwrap();
        here.refresh().await.unwrap();
        let mut load = here.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
        for id in 0..500 {
            let mut row = here.row(table).unwrap();
            row.i32(id).text("loaded").default_value();
            load.push(row.finish().unwrap()).await.unwrap();
        }
        load.finish().await.unwrap();
        change!(there, |txn| txn.add_column(table, number("n").nullable())).unwrap();
        here.refresh().await.unwrap();
        let mut txn = here.begin();
        let row = txn.get(table, &key![499]).await.unwrap().map(words).unwrap().unwrap();
        assert_eq!(row, "I32(499) Text(\"loaded\") I16(1) Null");
        drop(txn);
        check(here).await;
        // Columns change while a load is under way.
        change!(here, |txn| txn.truncate(table)).unwrap();
        here.refresh().await.unwrap();
        let mut load = here.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
        let mut row = here.row(table).unwrap();
        row.i32(1).text("loaded").default_value().default_value();
        load.push(row.finish().unwrap()).await.unwrap();
        change!(there, |txn| txn.drop_column(table, "n")).unwrap();
        assert!(failed_by(load.finish().await, AbortCause::Stale));
    });
    drop(databases);
    cluster.close();
}

/// A cursor that goes on while its transaction changes the columns of what it shows, whose rows are
/// deleted and inserted as they were read.
#[test]
fn cursors_go_on_with_other_columns() {
    let (cluster, databases, table) = shop(0..12);
    let db = &databases[1];
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        txn.add_column(table, number("n").default(Value::I16(6))).await.unwrap();
        let all = KeyRange::all;
        let mut cursor = txn.cursor_for_update(table, all(), Direction::Forward).unwrap();
        for id in 0..4 {
            let row = cursor.next(&mut txn).await.unwrap().unwrap();
            assert_eq!(words(row).unwrap(), item(id, " I16(6)"));
            let key = txn.key_of(table, row).unwrap();
            txn.delete(table, &key).await.unwrap();
            txn.insert(table, row).await.unwrap();
        }
        txn.drop_column(table, "price").await.unwrap();
        let row = cursor.next(&mut txn).await.unwrap().unwrap();
        assert_eq!(words(row).unwrap(), "I32(4) Text(\"item 4\") I16(6)");
        txn.drop_column(table, "n").await.unwrap();
        let foreign = txn.insert(table, row).await.unwrap_err();
        let expected = "table item: the row was built for another table, or for other columns";
        assert_eq!(foreign.to_string(), expected);
        let rest = cursor.fetch(&mut txn, 100).await.unwrap();
        let rest: Vec<_> = rest.iter().map(|row| words(row).unwrap()).collect();
        assert_eq!(rest.len(), 7);
        assert_eq!(rest[6], "I32(11) Text(\"item 4\")");
        assert_eq!(rows(&mut txn, table).await.unwrap().len(), 12);
        txn.commit().await.unwrap();
        db.refresh().await.unwrap();
        check(db).await;
    });
    drop(databases);
    cluster.close();
}

/// As many layouts as there may be, with a row in every eleventh.
#[test]
fn the_columns_of_a_table_change_a_thousand_times() {
    let cluster = Cluster::start(2, 8192);
    let schema = DatabaseSchema::from(vec![items()]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let table = here.table("item").unwrap();
        let mut values = Vec::new();
        for layout in 0..1024 {
            let mut txn = if layout % 3 == 0 { here.begin() } else { there.begin() };
            match layout % 4 {
                0 => {}
                1 | 3 => {
                    let value = Value::I16((layout / 2) as i16);
                    let name = if layout % 4 == 1 { "a" } else { "b" };
                    txn.add_column(table, number(name).default(value)).await.unwrap();
                }
                _ => txn.drop_column(table, "a").await.unwrap(),
            }
            if layout % 4 == 0 && layout > 0 {
                txn.drop_column(table, "b").await.unwrap();
            }
            if layout % 11 == 0 {
                put(&mut txn, table, layout).await.unwrap();
                values.push(layout);
            }
            txn.commit().await.unwrap();
        }
        for db in &databases {
            let mut txn = db.begin();
            let rows = rows(&mut txn, table).await.unwrap();
            let expected: Vec<_> = values.iter().map(|id| item(*id, " I16(511)")).collect();
            assert_eq!(rows, expected);
            txn.commit().await.unwrap();
        }
        let last = change!(here, |txn| txn.drop_column(table, "b")).unwrap_err();
        assert!(matches!(&last, TxnError::Schema(SchemaError::TooManyLayouts { .. })), "{last}");
        let words =
            "table item, column b: the columns have changed 1023 times, and can change no more";
        assert_eq!(last.to_string(), words);
        change!(there, |txn| txn.set_default(table, "b", Value::I16(1))).unwrap();
        there.refresh().await.unwrap();
        check(there).await;
    });
    drop(databases);
    cluster.close();
}
