//! How large rows and keys may be: as large as they are, not as their columns are declared.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;

use selkie_btree::{max_key, max_value};
use selkie_engine::PSN_BYTES;
use selkie_fabric::env::SplitMix;
use selkie_txn::{
    Column, ColumnType, Database, DatabaseSchema, IndexSchema, Protocol, SchemaError, Table,
    TableSchema, Txn, TxnError, Value, key,
};

use crate::common::{Cluster, check, dump};

/// A cluster with these tables, and a handle of this protocol on each node.
fn start(
    nodes: usize,
    gcl_bytes: usize,
    protocol: Protocol,
    tables: Vec<TableSchema>,
) -> (Cluster, Vec<Database>) {
    let cluster = Cluster::start(nodes, gcl_bytes);
    let databases = cluster.create(DatabaseSchema::from(tables).protocol(protocol));
    let with = |db: Database| db.with_protocol(protocol).unwrap();
    (cluster, databases.into_iter().map(with).collect())
}

/// A table as YCSB has it: a key and ten texts, declared longer than a page.
fn usertable() -> TableSchema {
    let table = TableSchema::new("usertable").column("key", ColumnType::Text(4_000));
    let table =
        (0..10).fold(table, |table, n| table.column(format!("f{n}"), ColumnType::Text(9_000)));
    table.primary_key([0])
}

async fn put(
    txn: &mut Txn<'_>,
    table: Table,
    name: &str,
    texts: &[String],
) -> Result<(), TxnError> {
    let mut row = txn.row(table).await?;
    row.text(name);
    texts.iter().for_each(|text| _ = row.text(text));
    txn.insert(table, row.finish()?).await
}

/// Rows with texts of 100 bytes each, that grow, shrink and go, in random order.
#[test]
fn rows_of_a_kilobyte_fit_pages_of_two() {
    for protocol in Protocol::ALL {
        let (cluster, databases) = start(2, 2048, protocol, vec![usertable()]);
        let table = databases[0].table("usertable").unwrap();
        let random = SplitMix::new(7);
        let texts = |bytes: u64| -> Vec<String> {
            (0..10).map(|n| char::from(b'a' + n).to_string().repeat(bytes as usize)).collect()
        };
        cluster.runtime.block_on(async {
            let mut model: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for step in 0..900 {
                let db = &databases[step % 2];
                let name = format!("user{}", random.below(1 << 40) % 300);
                let texts = texts([100, 100, 100, 0, 120][random.below(5) as usize]);
                let mut txn = db.begin();
                let before = model.clone();
                if !model.contains_key(&name) {
                    put(&mut txn, table, &name, &texts).await.unwrap();
                    model.insert(name, texts);
                } else if random.below(3) == 0 {
                    txn.delete(table, &key![&*name]).await.unwrap();
                    model.remove(&name);
                } else {
                    let mut set = model.remove(&name).unwrap();
                    let changed = random.below(10) as usize;
                    set[changed].clone_from(&texts[changed]);
                    let value = &set[changed];
                    txn.update(table, &key![&*name], |row| Ok(row.set_text(1 + changed, value)?))
                        .await
                        .unwrap();
                    model.insert(name, set);
                }
                if random.below(5) == 0 {
                    txn.rollback().await;
                    model = before;
                } else {
                    txn.commit().await.unwrap();
                }
            }
            // Splits of many leaves are undone, too.
            let dumped = dump(&databases[1]).await;
            let mut txn = databases[1].begin();
            for number in 0..300 {
                let name = format!("other{}", number * 77 % 300);
                put(&mut txn, table, &name, &texts(100)).await.unwrap();
            }
            txn.rollback().await;
            assert_eq!(dump(&databases[0]).await, dumped, "{protocol}");
            assert!(model.len() > 100);
            for db in &databases {
                check(db).await;
                let mut txn = db.begin();
                for (name, texts) in &model {
                    let row = txn.get(table, &key![&**name]).await.unwrap().unwrap();
                    for (at, text) in texts.iter().enumerate() {
                        assert_eq!(row.text(1 + at), Ok(&**text), "{protocol}");
                    }
                }
                txn.commit().await.unwrap();
            }
            let mut txn = databases[0].begin();
            for name in model.keys() {
                txn.delete(table, &key![&**name]).await.unwrap();
            }
            txn.commit().await.unwrap();
            check(&databases[1]).await;
        });
        drop(databases);
        cluster.close();
    }
}

/// A kilobyte of columns of fixed width.
#[test]
fn wide_rows_fit_pages_of_two_kilobytes() {
    let wide = TableSchema::new("wide").column("id", ColumnType::I32).primary_key([0]);
    let wide =
        (0..63).fold(wide, |wide, number| wide.column(format!("u{number}"), ColumnType::Uuid));
    for protocol in Protocol::ALL {
        let (cluster, databases) = start(1, 2048, protocol, vec![wide.clone()]);
        let (db, table) = (&databases[0], databases[0].table("wide").unwrap());
        cluster.runtime.block_on(async {
            let mut txn = db.begin();
            for id in 0..120 {
                let id = id * 77 % 120;
                let mut row = txn.row(table).await.unwrap();
                row.i32(id);
                (0..63).for_each(|at| _ = row.uuid([at ^ id as u8; 16]));
                txn.insert(table, row.finish().unwrap()).await.unwrap();
            }
            txn.commit().await.unwrap();
            check(db).await;
            let mut txn = db.begin();
            for id in 0..120 {
                let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set(63, Value::Uuid([9; 16]))?);
                txn.update(table, &key![id], set).await.unwrap();
                if id % 3 == 0 {
                    txn.delete(table, &key![id]).await.unwrap();
                }
            }
            txn.commit().await.unwrap();
            check(db).await;
        });
        drop(databases);
        cluster.close();
    }
}

/// The longest text of which each byte is one in a key.
fn text_of_key(key_bytes: usize) -> String {
    "k".repeat(key_bytes - 2)
}

fn refused<T: std::fmt::Debug>(result: Result<T, TxnError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.abort_cause(), None, "{error}");
    error.to_string()
}

#[test]
fn keys_may_take_a_quarter_of_a_page_and_no_more() {
    for protocol in Protocol::ALL {
        for gcl_bytes in [512, 2048, 8192] {
            let table = TableSchema::new("long")
                .column("key", ColumnType::Text(9_000))
                .column("id", ColumnType::I16)
                .nullable_column("tag", ColumnType::Text(9_000))
                .primary_key([0])
                .with_index(IndexSchema::new("by_tag", [2]).unique());
            let (cluster, databases) = start(1, gcl_bytes, protocol, vec![table]);
            let (db, table) = (&databases[0], databases[0].table("long").unwrap());
            let longest = max_key(gcl_bytes - PSN_BYTES);
            assert!(longest * 21 / 5 > gcl_bytes - 100, "{longest} of {gcl_bytes}");
            cluster.runtime.block_on(async {
                let mut txn = db.begin();
                // Different from the first byte on, or from the last.
                for number in 0..40_u8 {
                    let mut name = text_of_key(longest);
                    let at = if number % 2 == 0 { 0 } else { name.len() - 1 };
                    name.replace_range(at..=at, &char::from(b'0' + number).to_string());
                    let mut row = txn.row(table).await.unwrap();
                    row.text(&name).i16(number.into()).null();
                    if number > 0 {
                        // NULLs are equal here.
                        row = txn.row(table).await.unwrap();
                        row.text(&name).i16(number.into());
                        row.text(&format!("{}{number}", text_of_key(longest / 2)));
                    }
                    txn.insert(table, row.finish().unwrap()).await.unwrap();
                }
                txn.commit().await.unwrap();
                check(db).await;
                let before = dump(db).await;
                let mut txn = db.begin();
                let name = text_of_key(longest + 1);
                let mut row = txn.row(table).await.unwrap();
                row.text(&name).i16(1).text("t");
                let error = refused(txn.insert(table, row.finish().unwrap()).await);
                let too_long = format!(
                    "table long, primary key: the key takes {0} bytes (allowed: {longest} at this \
                     page size), most of them the {0} of column key, which is Text \"kkk",
                    longest + 1
                );
                assert!(error.starts_with(&too_long), "{error}");
                // A byte says that it is not NULL.
                let tag = text_of_key(longest);
                let too_long = format!(
                    "table long, by_tag: the key takes {0} bytes (allowed: {longest} at this page \
                     size), most of them the {0} of column tag, which is Text \"kkk",
                    longest + 1
                );
                let mut row = txn.row(table).await.unwrap();
                row.text("short").i16(1).text(&tag);
                let error = refused(txn.insert(table, row.finish().unwrap()).await);
                assert!(error.starts_with(&too_long), "{error}");
                let first = format!("0{}", &text_of_key(longest)[1..]);
                let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(2, &tag)?);
                let error = refused(txn.update(table, &key![&*first], set).await);
                assert!(error.starts_with(&too_long), "{error}");
                txn.commit().await.unwrap();
                assert_eq!(dump(db).await, before);
                // One byte less fits.
                let mut txn = db.begin();
                let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(2, &tag[1..])?);
                txn.update(table, &key![&*first], set).await.unwrap();
                txn.commit().await.unwrap();
                check(db).await;
            });
            drop(databases);
            cluster.close();
        }
    }
}

#[test]
fn rows_that_fit_no_page_are_refused_where_values_stay_in_rows() {
    for protocol in Protocol::ALL {
        let (cluster, databases) = start(1, 512, protocol, vec![usertable()]);
        let (db, table) = (&databases[0], databases[0].table("usertable").unwrap());
        cluster.runtime.block_on(async {
            let mut txn = db.begin();
            let short = vec!["s".to_owned(); 10];
            put(&mut txn, table, "short", &short).await.unwrap();
            txn.commit().await.unwrap();
            let before = dump(db).await;
            let mut txn = db.begin();
            let mut long = short.clone();
            let limit = max_value(512 - PSN_BYTES, 6);
            long[3] = "l".repeat(limit - 11 * 2 - "long".len() - 9);
            if protocol != Protocol::Snapshot {
                put(&mut txn, table, "long", &long).await.unwrap();
                txn.delete(table, &key!["long"]).await.unwrap();
                long[3].push('+');
                let expected = format!(
                    "table usertable: the row takes {} bytes (allowed: {limit} at this page size, \
                     with a key of 6 bytes), most of them the {} of column f3, which is Text \"lll",
                    limit + 1,
                    long[3].len()
                );
                let error = refused(put(&mut txn, table, "long", &long).await);
                assert!(error.starts_with(&expected), "{error}");
                let very_long = "v".repeat(8_000);
                let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(1, &very_long)?);
                let error = refused(txn.update(table, &key!["short"], set).await);
                assert!(error.starts_with("table usertable: the row takes 80"), "{error}");
            }
            // No longer than the column.
            let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(4, &"x".repeat(9_001))?);
            let error = refused(txn.update(table, &key!["short"], set).await);
            let expected = "table usertable, column f3: column 4: 9001 bytes (allowed: 9000)";
            assert!(error.starts_with(expected), "{error}");
            txn.commit().await.unwrap();
            assert_eq!(dump(db).await, before);
            check(db).await;
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn columns_of_which_no_row_fits_cannot_be_added() {
    let table = TableSchema::new("t").column("id", ColumnType::I32).primary_key([0]);
    let (cluster, databases) = start(1, 512, Protocol::Snapshot, vec![table]);
    let (db, table) = (&databases[0], databases[0].table("t").unwrap());
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        let mut added = 0;
        let error = loop {
            let column = Column::new(format!("u{added}"), ColumnType::Uuid).nullable();
            match txn.add_column(table, column).await {
                Ok(()) => added += 1,
                Err(error) => break error,
            }
        };
        assert!((20..30).contains(&added), "{added}");
        let TxnError::Schema(SchemaError::RowTooLarge { table: of, column, size, allowed }) =
            &error
        else {
            panic!("{error}");
        };
        assert_eq!((&**of, &**column), ("t", &*format!("u{added}")));
        assert!((*allowed + 1..*allowed + 17).contains(size), "{error}");
        let mut row = txn.row(table).await.unwrap();
        row.i32(1);
        (0..added).for_each(|_| _ = row.uuid([1; 16]));
        txn.insert(table, row.finish().unwrap()).await.unwrap();
        txn.commit().await.unwrap();
        check(db).await;
    });
    drop(databases);
    cluster.close();
}
