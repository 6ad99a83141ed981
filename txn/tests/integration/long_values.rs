//! Values that rows have no room for, which are stored in pieces.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use selkie_btree::max_value;
use selkie_engine::log::LogTo;
use selkie_engine::{EngineError, PSN_BYTES};
use selkie_fabric::env::SplitMix;
use selkie_txn::{
    BulkLoadOptions, Column, ColumnType, Database, DatabaseSchema, Direction, Isolation, KeyRange,
    NewIndex, Protocol, RetryError, RetryPolicy, RowError, SchemaError, Table, TableSchema, Txn,
    TxnError, Value, WholeRow, key, retry,
};

use crate::common::{Cluster, ClusterOptions, check, poll_times};

const TEXT: usize = 1;
const BYTES: usize = 2;
const COUNT: usize = 3;

fn papers() -> TableSchema {
    TableSchema::new("paper")
        .column("id", ColumnType::I32)
        .nullable_column("text", ColumnType::Text(256 << 20))
        .nullable_column("bytes", ColumnType::Bytes(256 << 20))
        .column("count", ColumnType::I64)
        .primary_key([0])
}

/// What is wrong with a row.
fn of_row<T: std::fmt::Debug>(refused: Result<T, TxnError>) -> RowError {
    match refused {
        Err(TxnError::Row(refused)) => refused.error,
        other => panic!("{other:?}"),
    }
}

fn snapshots(tables: Vec<TableSchema>) -> DatabaseSchema {
    DatabaseSchema::from(tables).protocol(Protocol::Snapshot)
}

/// Nodes with the table, and a handle on each.
fn start(options: ClusterOptions) -> (Cluster, Vec<Database>, Table) {
    let cluster = Cluster::start_as(options);
    let databases = cluster.create(snapshots(vec![papers()]));
    let table = databases[0].table("paper").unwrap();
    (cluster, databases, table)
}

fn nodes(nodes: usize, gcl_bytes: usize) -> ClusterOptions {
    ClusterOptions { logs: vec![None; nodes], ..ClusterOptions::new(gcl_bytes) }
}

/// Bytes that say where they are.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u64 * 31 + seed * 7 + (at as u64 >> 8)) as u8).collect()
}

fn text(seed: u64, bytes: usize) -> String {
    pattern(seed, bytes).iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

async fn put(
    txn: &mut Txn<'_>,
    table: Table,
    id: i32,
    text: Option<&str>,
    bytes: Option<&[u8]>,
) -> Result<(), TxnError> {
    let mut row = txn.row(table).await?;
    row.i32(id).value(text.map_or(Value::Null, Value::Text));
    row.value(bytes.map_or(Value::Null, Value::Bytes)).i64(id.into());
    txn.insert(table, row.finish()?).await
}

/// A value read in parts of this size.
async fn in_parts(
    txn: &mut Txn<'_>,
    table: Table,
    id: i32,
    column: usize,
    part: usize,
) -> Result<Vec<u8>, TxnError> {
    let (mut value, mut buffer) = (Vec::new(), vec![0; part]);
    loop {
        let at = value.len() as u64;
        match txn.read_value(table, &key![id], column, at, &mut buffer).await? {
            0 => return Ok(value),
            read => value.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Entries of the tree of long values, which is checked.
async fn pieces(db: &Database, table: Table) -> usize {
    let tree = db.values_tree(table).unwrap().unwrap();
    tree.verify(db.engine()).await.unwrap().entries
}

/// Fails unless there are as many pieces as the rows say.
async fn check_pieces(db: &Database, table: Table) {
    let piece = max_value(db.engine().page_bytes(), 12);
    let (mut expected, mut lengths) = (0, Vec::new());
    let mut txn = db.begin_to_read();
    txn.scan(table, &KeyRange::all(), Direction::Forward, |row| {
        for column in [TEXT, BYTES] {
            if row.is_moved(column)? {
                let bytes = row.value_bytes(column)?.unwrap();
                expected += bytes.div_ceil(piece);
                lengths.push((row.i32(0)?, column, bytes));
            }
        }
        assert!(row.as_bytes().len() <= db.engine().page_bytes() * 5 / 8);
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    txn.commit().await.unwrap();
    assert_eq!(pieces(db, table).await, expected, "{lengths:?}");
}

#[test]
fn long_values_are_read_whole_with_their_rows_and_in_parts() {
    for gcl_bytes in [512, 2048, 8192] {
        let (cluster, databases, table) = start(nodes(2, gcl_bytes));
        cluster.runtime.block_on(async {
            let (long, bytes) = (text(1, 20_000), pattern(2, 50_001));
            let mut txn = databases[0].begin();
            put(&mut txn, table, 1, Some(&long), Some(&bytes)).await.unwrap();
            put(&mut txn, table, 2, Some("short"), None).await.unwrap();
            // Before it commits, and after, on the other node.
            for _ in 0..2 {
                let row = txn.get(table, &key![1]).await.unwrap().unwrap();
                assert_eq!((row.is_moved(TEXT), row.is_moved(COUNT)), (Ok(true), Ok(false)));
                assert_eq!(row.value_bytes(BYTES), Ok(Some(50_001)));
                let unread = row.text(TEXT).unwrap_err().error;
                assert_eq!(unread, RowError::Moved { column: TEXT, bytes: 20_000 });
                assert_eq!(row.i64(COUNT), Ok(1));
                let whole: WholeRow = txn.get_whole(table, &key![1]).await.unwrap().unwrap();
                assert_eq!(whole.row().text(TEXT), Ok(&*long));
                assert_eq!(whole.row().bytes(BYTES), Ok(&*bytes));
                assert_eq!(whole.row().value(BYTES), Ok(Value::Bytes(&bytes)));
                assert_eq!(
                    in_parts(&mut txn, table, 1, TEXT, 7_777).await.unwrap(),
                    long.as_bytes()
                );
                assert_eq!(in_parts(&mut txn, table, 1, BYTES, 1 << 20).await.unwrap(), bytes);
                let mut part = [0; 100];
                for offset in [0, 1, 419, 1_961, 49_950, 50_000, 50_001, 90_000_000_000] {
                    let key = key![1];
                    let read = txn.read_value(table, &key, BYTES, offset, &mut part);
                    let read = read.await.unwrap();
                    let rest = bytes.get(offset as usize..).unwrap_or_default();
                    assert_eq!(part[..read], rest[..rest.len().min(100)], "from {offset}");
                }
                assert_eq!(in_parts(&mut txn, table, 2, TEXT, 3).await.unwrap(), b"short");
                let length = txn.value_bytes(table, &key![1], TEXT).await.unwrap();
                assert_eq!(length, Some(20_000));
                assert_eq!(txn.value_bytes(table, &key![2], BYTES).await.unwrap(), None);
                let null = txn.read_value(table, &key![2], BYTES, 0, &mut part).await;
                assert_eq!(of_row(null), RowError::Null { column: BYTES });
                let missing = txn.read_value(table, &key![3], BYTES, 0, &mut part).await;
                assert!(matches!(missing, Err(TxnError::NotFound { .. })));
                let fixed = txn.read_value(table, &key![1], COUNT, 0, &mut part).await;
                assert!(matches!(of_row(fixed), RowError::WrongType { column: COUNT, .. }));
                // What a cursor shows, with one of its values.
                let range = KeyRange::all();
                let mut cursor = txn.cursor(table, range, Direction::Forward).unwrap();
                let row = cursor.next(&mut txn).await.unwrap().unwrap();
                let loaded = txn.load_values(table, row, &[TEXT]).await.unwrap();
                assert_eq!(loaded.row().text(TEXT), Ok(&*long));
                assert_eq!(loaded.row().is_moved(BYTES), Ok(true));
                let row = cursor.next(&mut txn).await.unwrap().unwrap();
                assert_eq!((row.text(TEXT), row.is_moved(TEXT)), (Ok("short"), Ok(false)));
                txn.commit().await.unwrap();
                txn = databases[1].begin();
            }
            txn.rollback().await;
            for db in &databases {
                check(db).await;
                check_pieces(db, table).await;
            }
        });
        drop(databases);
        cluster.close();
    }
}

type Model = BTreeMap<i32, (Option<String>, Option<Vec<u8>>)>;

/// One random change, of the model as of the database.
async fn change(
    txn: &mut Txn<'_>,
    table: Table,
    model: &mut Model,
    random: &SplitMix,
) -> Result<(), TxnError> {
    let id = random.below(24) as i32;
    let length = match random.below(5) {
        0 => random.below(20) as usize,
        1 => random.below(700) as usize,
        2 => 1_900 + random.below(200) as usize,
        _ => random.below(20_000) as usize,
    };
    let seed = random.below(1 << 20);
    let Some((own_text, own_bytes)) = model.get_mut(&id) else {
        let own_text = (random.below(4) > 0).then(|| text(seed, length));
        let own_bytes = (random.below(4) == 0).then(|| pattern(seed, length / 2));
        put(txn, table, id, own_text.as_deref(), own_bytes.as_deref()).await?;
        model.insert(id, (own_text, own_bytes));
        return Ok(());
    };
    match random.below(8) {
        0 => {
            txn.delete(table, &key![id]).await?;
            model.remove(&id);
        }
        1 => {
            txn.update(table, &key![id], |row| Ok(row.set_null(TEXT)?)).await?;
            *own_text = None;
        }
        2 => {
            let value = text(seed, length);
            txn.update(table, &key![id], |row| {
                row.set_text(TEXT, &value)?;
                assert_eq!(row.text(TEXT), Ok(&*value));
                Ok(row.set_i64(COUNT, 5)?)
            })
            .await?;
            *own_text = Some(value);
        }
        // Another column: nothing long is read.
        3 => txn.update(table, &key![id], |row| Ok(row.set_i64(COUNT, 9)?)).await?,
        4 => {
            let more = text(seed, length / 3);
            let appended = txn.append_value(table, &key![id], TEXT, more.as_bytes()).await?;
            let value = own_text.get_or_insert_default();
            value.push_str(&more);
            assert_eq!(appended, value.len() as u64);
        }
        5 => {
            let value = pattern(seed, length);
            txn.write_value(table, &key![id], BYTES, &value).await?;
            *own_bytes = Some(value);
        }
        _ => {
            let more = pattern(seed, length / 2);
            txn.append_value(table, &key![id], BYTES, &more).await?;
            own_bytes.get_or_insert_default().extend_from_slice(&more);
        }
    }
    Ok(())
}

async fn assert_same(txn: &mut Txn<'_>, table: Table, model: &Model, random: &SplitMix) {
    for id in 0..24 {
        let whole = txn.get_whole(table, &key![id]).await.unwrap();
        let Some((own_text, own_bytes)) = model.get(&id) else {
            assert!(whole.is_none(), "{id}");
            continue;
        };
        let whole = whole.unwrap();
        let expected = own_text.as_deref().map_or(Value::Null, Value::Text);
        assert!(whole.row().value(TEXT) == Ok(expected), "text of {id}");
        let expected = own_bytes.as_deref().map_or(Value::Null, Value::Bytes);
        assert!(whole.row().value(BYTES) == Ok(expected), "bytes of {id}");
        if let Some(bytes) = own_bytes {
            let offset = random.below(bytes.len() as u64 + 1);
            let mut part = vec![0; random.below(3_000) as usize];
            let read = txn.read_value(table, &key![id], BYTES, offset, &mut part).await.unwrap();
            let rest = &bytes[offset as usize..];
            assert_eq!(part[..read], rest[..rest.len().min(part.len())], "bytes of {id}");
        }
    }
}

#[test]
fn random_changes_of_two_nodes_match_an_ordered_map() {
    for gcl_bytes in [512, 2048, 8192] {
        let (cluster, databases, table) = start(nodes(2, gcl_bytes));
        cluster.runtime.block_on(async {
            let random = SplitMix::new(gcl_bytes as u64);
            let mut model = Model::new();
            let empty = databases[0].pages(databases[0].engine()).await.unwrap().len();
            for number in 0..120 {
                let db = &databases[number % 2];
                let isolations =
                    [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];
                let mut txn = db.begin_with(isolations[number % 3]);
                let mut after = model.clone();
                for _ in 0..=random.below(4) {
                    change(&mut txn, table, &mut after, &random).await.unwrap();
                }
                if random.below(4) == 0 {
                    let (savepoint, before) = (txn.savepoint().unwrap(), after.clone());
                    for _ in 0..2 {
                        change(&mut txn, table, &mut after, &random).await.unwrap();
                    }
                    txn.rollback_to(savepoint).unwrap();
                    after = before;
                }
                if number % 5 == 0 {
                    assert_same(&mut txn, table, &after, &random).await;
                }
                if random.below(5) == 0 {
                    txn.rollback().await;
                } else {
                    txn.commit().await.unwrap();
                    model = after;
                }
                if number % 20 == 19 {
                    let mut txn = databases[(number + 1) % 2].begin_to_read();
                    assert_same(&mut txn, table, &model, &random).await;
                    txn.commit().await.unwrap();
                    check_pieces(db, table).await;
                }
            }
            check(&databases[1]).await;
            let mut txn = databases[0].begin();
            for id in model.keys() {
                txn.delete(table, &key![*id]).await.unwrap();
            }
            txn.commit().await.unwrap();
            assert_eq!(pieces(&databases[0], table).await, 0);
            until_pages(&databases[0], empty + 4).await;
        });
        drop(databases);
        cluster.close();
    }
}

/// Runs transactions that do nothing until the database has no more pages than that: leaves without
/// rows are given back by later transactions, once no snapshot wants images of them.
async fn until_pages(db: &Database, most: usize) {
    let env = db.engine().env();
    let end = env.now() + Duration::from_secs(60);
    loop {
        let pages = db.pages(db.engine()).await.unwrap().len();
        if pages <= most {
            return;
        }
        assert!(env.now() < end, "{pages} pages are left");
        for _ in 0..100 {
            db.begin().commit().await.unwrap();
        }
        env.sleep(Duration::from_millis(2)).await;
    }
}

/// What a transaction has read stays as it was; one that has read the value before, and writes,
/// fails.
#[test]
fn a_snapshot_keeps_a_long_value_that_is_replaced() {
    let (cluster, databases, table) = start(nodes(2, 2048));
    cluster.runtime.block_on(async {
        let values: Vec<_> = (0..4).map(|round| pattern(round, 100_000)).collect();
        let mut txn = databases[0].begin();
        put(&mut txn, table, 1, None, Some(&values[0])).await.unwrap();
        put(&mut txn, table, 2, None, None).await.unwrap();
        txn.commit().await.unwrap();
        let mut reader = databases[1].begin_to_read();
        let mut repeats = databases[1].begin_with(Isolation::RepeatableRead);
        let mut writer = databases[1].begin();
        let mut part = [0; 10];
        for txn in [&mut reader, &mut repeats, &mut writer] {
            txn.read_value(table, &key![1], BYTES, 50_000, &mut part).await.unwrap();
            assert_eq!(part, values[0][50_000..50_010]);
        }
        for (round, value) in values.iter().enumerate().skip(1) {
            let db = &databases[round % 2];
            let mut txn = db.begin();
            txn.write_value(table, &key![1], BYTES, value).await.unwrap();
            txn.commit().await.unwrap();
            check_pieces(db, table).await;
            for txn in [&mut reader, &mut repeats] {
                let read = in_parts(txn, table, 1, BYTES, 30_000).await.unwrap();
                assert!(read == values[0], "{round}");
            }
        }
        reader.commit().await.unwrap();
        repeats.commit().await.unwrap();
        // Its next read finds leaves that are later than what it has seen.
        let read = in_parts(&mut writer, table, 1, BYTES, 30_000).await;
        assert!(read.is_err_and(|error| error.is_retryable()));
        // An operation finds the value of the row that it has found itself.
        let mut committed = databases[1].begin_with(Isolation::ReadCommitted);
        let read = in_parts(&mut committed, table, 1, BYTES, 200_000).await.unwrap();
        assert!(read == values[3]);
        let mut cursor = committed.cursor(table, KeyRange::all(), Direction::Forward).unwrap();
        let row = cursor.next(&mut committed).await.unwrap().unwrap();
        let mut txn = databases[0].begin();
        txn.delete(table, &key![1]).await.unwrap();
        txn.commit().await.unwrap();
        let gone = committed.load_values(table, row, &[BYTES]).await.unwrap_err();
        assert!(matches!(gone, TxnError::ValueGone { .. }), "{gone}");
        assert!(committed.get_whole(table, &key![2]).await.unwrap().is_some());
        committed.commit().await.unwrap();
        assert_eq!(pieces(&databases[0], table).await, 0);
        check(&databases[0]).await;
    });
    drop(databases);
    cluster.close();
}

/// The bytes and their number say which they are, also after they were appended to.
fn numbered(number: i64) -> Vec<u8> {
    pattern(number as u64, 500 + number as usize * 997 % 12_000)
}

/// Writes the value of this number in two parts; deletes it in some rounds.
async fn write_numbered(
    txn: &mut Txn<'_>,
    table: Table,
    id: i32,
    (number, round): (i64, u64),
) -> Result<(), TxnError> {
    if txn.get_for_update(table, &key![id]).await?.is_none() {
        let mut row = txn.row(table).await?;
        row.i32(id).null().bytes(&numbered(number)).i64(number);
        return txn.insert(table, row.finish()?).await;
    }
    if round.is_multiple_of(7) {
        return txn.delete(table, &key![id]).await;
    }
    let value = numbered(number);
    let (first, rest) = value.split_at((round as usize * 7).min(value.len()));
    txn.update(table, &key![id], |row| Ok(row.set_i64(COUNT, number)?)).await?;
    txn.write_value(table, &key![id], BYTES, first).await?;
    txn.append_value(table, &key![id], BYTES, rest).await.map(drop)
}

/// Writers on two nodes replace values, append to them and delete them, while others read: a value
/// is always that of its row, whole.
#[test]
fn values_are_those_of_their_rows_while_they_are_replaced() {
    const ROWS: i32 = 3;
    let (cluster, databases, table) = start(nodes(2, 512));
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in 0..ROWS {
            let mut row = txn.row(table).await.unwrap();
            row.i32(id).null().bytes(&numbered(0)).i64(0);
            txn.insert(table, row.finish().unwrap()).await.unwrap();
        }
        txn.commit().await.unwrap();
        let env = cluster.runtime.env();
        let policy = RetryPolicy { attempts: 10_000, ..RetryPolicy::default() };
        let mut tasks = Vec::new();
        for task in 0..8_u64 {
            let (db, policy) = (databases[task as usize % 2].clone(), policy);
            tasks.push(env.spawn("long values", async move {
                let random = SplitMix::new(task);
                for round in 0..60 {
                    let id = random.below(ROWS as u64) as i32;
                    let number = (task * 60 + round) as i64;
                    let (env, writes) = (db.engine().env(), task < 4);
                    let isolation = match round % 3 {
                        0 => Isolation::Serializable,
                        1 => Isolation::RepeatableRead,
                        _ => Isolation::ReadCommitted,
                    };
                    let attempt = async || {
                        let mut txn = db.begin_with(isolation);
                        if !writes {
                            let whole = txn.get_whole(table, &key![id]).await?;
                            if let Some(whole) = whole {
                                let row = whole.row();
                                let expected = numbered(row.i64(COUNT)?);
                                assert!(row.bytes(BYTES)? == expected, "{isolation:?}");
                            }
                            return txn.commit().await;
                        }
                        write_numbered(&mut txn, table, id, (number, round)).await?;
                        txn.commit().await
                    };
                    match retry(env, &policy, attempt).await.map_err(RetryError::into_inner) {
                        Ok(()) => {}
                        // Each operation sees a later state.
                        Err(TxnError::Duplicate { .. } | TxnError::NotFound { .. })
                            if isolation == Isolation::ReadCommitted => {}
                        Err(error) => panic!("{isolation:?}: {error}"),
                    }
                }
            }));
        }
        for task in tasks {
            task.join().await.unwrap();
        }
        for db in &databases {
            check(db).await;
            check_pieces(db, table).await;
        }
    });
    drop(databases);
    cluster.close();
}

/// A cursor's row, of which the value is replaced before it is read.
#[test]
fn a_value_that_was_replaced_is_not_taken_for_that_of_its_row() {
    let (cluster, databases, table) = start(nodes(2, 2048));
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        put(&mut txn, table, 1, None, Some(&pattern(1, 9_000))).await.unwrap();
        txn.commit().await.unwrap();
        for isolation in [Isolation::Serializable, Isolation::RepeatableRead] {
            let mut reader = databases[1].begin_with(isolation);
            let mut cursor = reader.cursor(table, KeyRange::all(), Direction::Forward).unwrap();
            let row = cursor.next(&mut reader).await.unwrap().unwrap();
            let mut txn = databases[0].begin();
            let whole = txn.get_whole(table, &key![1]).await.unwrap().unwrap();
            txn.write_value(table, &key![1], BYTES, &pattern(2, 8_000)).await.unwrap();
            txn.commit().await.unwrap();
            match reader.load_values(table, row, &[]).await {
                Ok(loaded) => {
                    assert_eq!(isolation, Isolation::RepeatableRead);
                    assert_eq!(loaded.row().bytes(BYTES), whole.row().bytes(BYTES));
                }
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    });
    drop(databases);
    cluster.close();
}

/// The shorter of the columns that are moved out gets an index: its values go back into their rows.
#[test]
fn values_that_keys_are_made_of_stay_in_their_rows() {
    let wide = TableSchema::new("wide").column("id", ColumnType::I32).primary_key([0]);
    let names = (0..6).map(|number| format!("c{number}"));
    let wide = names.fold(wide, |wide, name| wide.column(name, ColumnType::Text(1_000)));
    let wide = wide.column("tag", ColumnType::Text(1_000)).column("n", ColumnType::I64);
    let cluster = Cluster::start(2, 512);
    let databases = cluster.create(snapshots(vec![wide]));
    let (here, there) = (&databases[0], &databases[1]);
    let table = here.table("wide").unwrap();
    const TAG: usize = 7;
    let tag = |id: i32| format!("{id:070}");
    cluster.runtime.block_on(async {
        let insert = async |txn: &mut Txn<'_>, id: i32| {
            let mut row = txn.row(table).await.unwrap();
            row.i32(id);
            (0..6).for_each(|column| _ = row.text(&text(column, 50)));
            row.text(&tag(id)).i64(0);
            txn.insert(table, row.finish().unwrap()).await
        };
        let mut txn = here.begin();
        for id in 0..300 {
            insert(&mut txn, id).await.unwrap();
        }
        let row = txn.get(table, &key![7]).await.unwrap().unwrap();
        assert_eq!((row.is_moved(TAG), row.is_moved(1)), (Ok(true), Ok(false)));
        txn.commit().await.unwrap();
        let by_tag = there.create_index(table, NewIndex::new("by_tag", ["tag"])).await.unwrap();
        here.refresh().await.unwrap();
        let mut txn = here.begin();
        insert(&mut txn, 300).await.unwrap();
        txn.delete(table, &key![5]).await.unwrap();
        txn.update(table, &key![6], |row| Ok(row.set_i64(8, 9)?)).await.unwrap();
        txn.update(table, &key![7], |row| Ok(row.set_text(TAG, &tag(700))?)).await.unwrap();
        txn.commit().await.unwrap();
        for db in &databases {
            check(db).await;
            let mut txn = db.begin_with(Isolation::ReadCommitted);
            let mut seen = 0;
            txn.scan(by_tag, &KeyRange::all(), Direction::Forward, |row| {
                let id = row.i32(0)?;
                assert_eq!(row.text(TAG), Ok(&*tag(if id == 7 { 700 } else { id })));
                seen += 1;
                Ok(ControlFlow::Continue(()))
            })
            .await
            .unwrap();
            assert_eq!(seen, 300);
            txn.commit().await.unwrap();
        }
        let mut txn = here.begin();
        for id in (0..=300).filter(|id| *id != 5) {
            let whole = txn.get_whole(table, &key![id]).await.unwrap().unwrap();
            (0..6).for_each(|column| {
                assert_eq!(whole.row().text(1 + column), Ok(&*text(column as u64, 50)));
            });
            txn.delete(table, &key![id]).await.unwrap();
        }
        txn.commit().await.unwrap();
        assert_eq!(pieces(there, table).await, 0);
    });
    drop(databases);
    cluster.close();
}

/// What cannot be moved out is too much for a page.
#[test]
fn rows_are_refused_that_fit_no_page_with_all_moved_out() {
    let wide = TableSchema::new("wide").column("id", ColumnType::I32).primary_key([0]);
    let wide = (0..20).fold(wide, |wide, n| wide.column(format!("u{n}"), ColumnType::Uuid));
    let wide = (0..9).fold(wide, |wide, n| wide.column(format!("t{n}"), ColumnType::Text(90)));
    let cluster = Cluster::start(1, 512);
    let databases = cluster.create(snapshots(vec![wide]));
    let (db, table) = (&databases[0], databases[0].table("wide").unwrap());
    cluster.runtime.block_on(async {
        let row = async |txn: &mut Txn<'_>, id: i32, bytes: usize| {
            let mut row = txn.row(table).await.unwrap();
            row.i32(id);
            (0..20).for_each(|at| _ = row.uuid([at; 16]));
            (0..9).for_each(|at| _ = row.text(&text(at, bytes)));
            txn.insert(table, row.finish().unwrap()).await
        };
        let mut txn = db.begin();
        row(&mut txn, 1, 5).await.unwrap();
        // Longer than a pointer or not, all of them are too many.
        for bytes in [12, 80] {
            let error = row(&mut txn, 2, bytes).await.unwrap_err();
            let TxnError::RowTooLarge { table, bytes, limit, key_bytes: 4, .. } = &error else {
                panic!("{error}");
            };
            let fixed = 1 + 4 + 20 * 16 + 9 * 2;
            assert_eq!((&**table, *bytes, *limit), ("wide", fixed + 9 * 12, 504 - 55 - 8));
        }
        let set = |row: &mut selkie_txn::RowMut<'_>| {
            (0..9).try_for_each(|at| Ok(row.set_text(21 + at, "of fifteen byte")?))
        };
        let error = txn.update(table, &key![1], set).await.unwrap_err();
        assert!(matches!(error, TxnError::RowTooLarge { .. }), "{error}");
        txn.commit().await.unwrap();
        assert_eq!(pieces(db, table).await, 0);
        let mut txn = db.begin();
        let row = txn.get(table, &key![1]).await.unwrap().unwrap();
        assert_eq!(row.text(21), Ok(&*text(0, 5)));
        txn.commit().await.unwrap();
        check(db).await;
    });
    drop(databases);
    cluster.close();
}

/// Two transactions that append to one value: one of them fails.
#[test]
fn parts_of_two_transactions_do_not_mix() {
    let (cluster, databases, table) = start(nodes(2, 2048));
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        put(&mut txn, table, 1, None, Some(&pattern(0, 10_000))).await.unwrap();
        txn.commit().await.unwrap();
        let mut ends = 0;
        for isolation in [Isolation::Serializable, Isolation::RepeatableRead] {
            let (mut one, mut two) =
                (databases[0].begin_with(isolation), databases[1].begin_with(isolation));
            one.append_value(table, &key![1], BYTES, &[1; 3_000]).await.unwrap();
            two.append_value(table, &key![1], BYTES, &[2; 5_000]).await.unwrap();
            one.commit().await.unwrap();
            assert!(two.commit().await.is_err_and(|error| error.is_retryable()));
            ends += 3_000;
        }
        let mut txn = databases[1].begin();
        let value = in_parts(&mut txn, table, 1, BYTES, 1 << 20).await.unwrap();
        assert_eq!(value.len(), 10_000 + ends);
        assert!(value[10_000..].iter().all(|byte| *byte == 1));
        assert!(value[..10_000] == pattern(0, 10_000));
        txn.commit().await.unwrap();
        check_pieces(&databases[0], table).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn operations_that_are_dropped_leave_nothing() {
    let (cluster, databases, table) = start(nodes(2, 512));
    cluster.runtime.block_on(async {
        let value = pattern(0, 200_000);
        let mut txn = databases[0].begin();
        put(&mut txn, table, 1, None, Some(&value)).await.unwrap();
        txn.commit().await.unwrap();
        let mut polls = 1;
        loop {
            let db = &databases[polls % 2];
            let mut txn = db.begin();
            let written = pattern(1, 150_000);
            let write = poll_times(txn.write_value(table, &key![1], BYTES, &written), polls).await;
            let is_over = write.is_some();
            if is_over {
                txn.rollback().await;
            } else {
                assert!(txn.get(table, &key![1]).await.is_err(), "it was rolled back");
            }
            let mut txn = db.begin();
            let more = &written;
            if poll_times(txn.append_value(table, &key![1], BYTES, more), polls).await.is_none() {
                drop(txn);
            }
            let mut txn = db.begin();
            let read = poll_times(txn.get_whole(table, &key![1]), polls).await;
            // A read that is dropped does not harm its transaction.
            let again = in_parts(&mut txn, table, 1, BYTES, 77_777).await.unwrap();
            assert!(again == value, "{polls}");
            txn.commit().await.unwrap();
            check_pieces(db, table).await;
            if is_over && read.is_some() {
                break;
            }
            polls += 1;
            assert!(polls < 200, "it never ends");
        }
        assert!(polls > 2, "nothing was dropped half-way");
        // Commits.
        let mut had_value = true;
        for polls in 1..6 {
            let mut txn = databases[0].begin();
            if had_value {
                txn.delete(table, &key![1]).await.unwrap();
            } else {
                put(&mut txn, table, 1, None, Some(&value)).await.unwrap();
            }
            let _ = poll_times(txn.commit(), polls).await;
            let mut reader = databases[1].begin_to_read();
            had_value = match reader.get_whole(table, &key![1]).await.unwrap() {
                Some(whole) => whole.row().bytes(BYTES).is_ok_and(|read| *read == value),
                None => false,
            };
            reader.commit().await.unwrap();
            check_pieces(&databases[1], table).await;
        }
        check(&databases[0]).await;
    });
    drop(databases);
    cluster.close();
}

/// An index of a column whose values may be long: those that are, are refused.
#[test]
fn keys_are_made_of_values_as_they_are() {
    let (cluster, databases, table) = start(nodes(2, 2048));
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let filler = text(0, 1_200);
        let mut txn = db.begin();
        for id in 0..20 {
            // Each of these values is moved out, as it is the longer of the two in its row.
            let (long, short) = (text(id as u64, 400), pattern(1, 300));
            put(&mut txn, table, id, Some(&long), Some(&short)).await.unwrap();
        }
        put(&mut txn, table, 30, Some(&filler), None).await.unwrap();
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        for id in 0..20 {
            let filler = pattern(2, 1_250);
            txn.write_value(table, &key![id], BYTES, &filler).await.unwrap();
            txn.write_value(table, &key![id], BYTES, &pattern(2, 1_000)).await.unwrap();
        }
        txn.commit().await.unwrap();
        check_pieces(db, table).await;
        // The long one among them has no room in a key.
        let schema = NewIndex::new("by_text", ["text"]);
        let error = db.create_index(table, schema.clone()).await.unwrap_err();
        let TxnError::KeyTooLong { index, bytes, limit, .. } = &error else { panic!("{error}") };
        assert_eq!((&**index, *bytes), ("by_text", 1 + 1_200 + 2 + 4));
        assert!(*limit > 480, "{limit}");
        let mut txn = db.begin();
        txn.delete(table, &key![30]).await.unwrap();
        txn.commit().await.unwrap();
        let by_text = db.create_index(table, schema).await.unwrap();
        for db in &databases {
            db.refresh().await.unwrap();
            check(db).await;
            check_pieces(db, table).await;
        }
        let mut txn = databases[1].begin();
        let range = KeyRange::prefix(&key![Some(&*text(7, 400))]);
        let row = txn.first(by_text, &range).await.unwrap().unwrap();
        assert_eq!((row.i32(0), row.text(TEXT)), (Ok(7), Ok(&*text(7, 400))));
        // It stays in its row, and follows changes.
        txn.append_value(table, &key![7], TEXT, b"more").await.unwrap();
        let long = "x".repeat(500);
        let refused = txn.append_value(table, &key![8], TEXT, long.as_bytes()).await.unwrap_err();
        assert!(matches!(refused, TxnError::KeyTooLong { .. }), "{refused}");
        txn.delete(table, &key![9]).await.unwrap();
        txn.commit().await.unwrap();
        for db in &databases {
            check(db).await;
            check_pieces(db, table).await;
        }
        let mut txn = db.begin();
        let range = KeyRange::prefix(&key![Some(&*format!("{}more", text(7, 400)))]);
        assert_eq!(txn.first(by_text, &range).await.unwrap().unwrap().i32(0), Ok(7));
        txn.commit().await.unwrap();
    });
    drop(databases);
    cluster.close();
}

#[test]
fn moved_values_stay_while_columns_come_and_go() {
    let short = TableSchema::new("short").column("id", ColumnType::I32).primary_key([0]);
    let cluster = Cluster::start(2, 512);
    let databases = cluster.create(snapshots(vec![papers(), short]));
    let (here, there) = (&databases[0], &databases[1]);
    let table = here.table("paper").unwrap();
    cluster.runtime.block_on(async {
        let (long, bytes) = (text(1, 3_000), pattern(2, 5_000));
        let mut txn = here.begin();
        for id in 0..3 {
            put(&mut txn, table, id, Some(&long), Some(&bytes)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let all = pieces(here, table).await;
        let mut txn = there.begin();
        let default = text(3, 200);
        let note = Column::new("note", ColumnType::Text(2_000)).default(Value::Text(&default));
        txn.add_column(table, note).await.unwrap();
        txn.drop_column(table, "text").await.unwrap();
        txn.commit().await.unwrap();
        // id, bytes, count, note
        let mut txn = here.begin();
        let whole = txn.get_whole(table, &key![1]).await.unwrap().unwrap();
        assert_eq!(whole.row().bytes(1), Ok(&*bytes));
        assert_eq!(whole.row().text(3), Ok(&*default));
        assert_eq!(txn.append_value(table, &key![1], 1, &[7]).await.unwrap(), 5_001);
        txn.delete(table, &key![2]).await.unwrap();
        // Nothing is set, so the row stays as it was.
        txn.update(table, &key![0], |_| Ok(())).await.unwrap();
        txn.commit().await.unwrap();
        let page = here.engine().page_bytes();
        let of = |bytes: usize| bytes.div_ceil(max_value(page, 12));
        // What was dropped goes with the row, or when it is updated.
        let left = all - 2 * of(3_000) - of(5_000);
        assert_eq!(pieces(there, table).await, left);
        let mut txn = there.begin();
        let whole = txn.get_whole(table, &key![1]).await.unwrap().unwrap();
        assert_eq!(whole.row().bytes(1).unwrap()[..5_000], bytes);
        assert_eq!(whole.row().text(3), Ok(&*default));
        for id in 0..2 {
            txn.delete(table, &key![id]).await.unwrap();
        }
        txn.commit().await.unwrap();
        assert_eq!(pieces(there, table).await, 0);
        // A table of which rows could not have long values before.
        let short = here.table("short").unwrap();
        assert!(here.values_tree(short).unwrap().is_none());
        let mut txn = there.begin();
        let long = Column::new("long", ColumnType::Bytes(1 << 20)).nullable();
        txn.add_column(short, long).await.unwrap();
        let mut row = txn.row(short).await.unwrap();
        row.i32(1).bytes(&bytes);
        txn.insert(short, row.finish().unwrap()).await.unwrap();
        txn.commit().await.unwrap();
        here.refresh().await.unwrap();
        assert_eq!(pieces(here, short).await, of(5_000));
        let mut txn = here.begin();
        let whole = txn.get_whole(short, &key![1]).await.unwrap().unwrap();
        assert_eq!(whole.row().bytes(1), Ok(&*bytes));
        let too_long = txn.append_value(short, &key![1], 1, &vec![0; 1 << 20]).await;
        let too_long = too_long.unwrap_err().to_string();
        assert!(too_long.contains("column 1: 1053576 bytes (allowed: 1048576)"), "{too_long}");
        txn.commit().await.unwrap();
    });
    drop(databases);
    cluster.close();
}

#[test]
fn pages_of_long_values_come_back_with_their_table() {
    let (cluster, databases, table) = start(nodes(2, 512));
    let (here, there) = (&databases[0], &databases[1]);
    cluster.runtime.block_on(async {
        let empty = here.pages(here.engine()).await.unwrap().len();
        for round in 0..2 {
            let mut txn = here.begin();
            for id in 0..5 {
                put(&mut txn, table, id, None, Some(&pattern(1, 20_000))).await.unwrap();
            }
            txn.commit().await.unwrap();
            assert!(here.pages(here.engine()).await.unwrap().len() > empty + 200);
            let mut txn = there.begin();
            put(&mut txn, table, 9, None, Some(&pattern(1, 20_000))).await.unwrap();
            match round {
                0 => txn.truncate(table).await.unwrap(),
                _ => txn.drop_table(table).await.unwrap(),
            }
            let lines = || databases.iter().map(|db| db.engine().unused_lines());
            let free = || lines().map(|(fresh, ripe, held)| fresh + ripe + held).sum::<u64>();
            let free_before = free();
            txn.commit().await.unwrap();
            here.refresh().await.unwrap();
            let env = here.engine().env();
            for _ in 0..20_000 {
                if here.reclaim_dropped().await.unwrap() == 0 {
                    break;
                }
                env.sleep(Duration::from_millis(1)).await;
            }
            let pages = here.pages(here.engine()).await.unwrap().len();
            assert!(pages <= empty + 2, "{pages} pages, {empty} before");
            assert!(free() > free_before + 200, "{} lines, {free_before} before", free());
        }
        assert!(here.table("paper").is_err());
    });
    drop(databases);
    cluster.close();
}

/// Rows of one place that are stored at another.
#[test]
fn rows_that_were_read_are_stored_with_values_of_their_own() {
    let (cluster, databases, table) = start(nodes(1, 2048));
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let bytes = pattern(1, 9_000);
        let mut txn = db.begin();
        put(&mut txn, table, 1, None, Some(&bytes)).await.unwrap();
        let whole = txn.get_whole(table, &key![1]).await.unwrap().unwrap();
        txn.delete(table, &key![1]).await.unwrap();
        txn.insert(table, whole.row()).await.unwrap();
        txn.commit().await.unwrap();
        check_pieces(db, table).await;
        let mut txn = db.begin();
        let row = txn.get(table, &key![1]).await.unwrap().unwrap();
        let (copied, mut cursor) = (row.as_bytes().to_vec(), None);
        assert!(!copied.is_empty());
        let opened = txn.cursor(table, KeyRange::all(), Direction::Forward).unwrap();
        let cursor = cursor.insert(opened);
        let row = cursor.next(&mut txn).await.unwrap().unwrap();
        txn.delete(table, &key![1]).await.unwrap();
        let refused = txn.insert(table, row).await;
        assert_eq!(of_row(refused), RowError::Moved { column: BYTES, bytes: 9_000 });
        txn.rollback().await;
        let mut txn = db.begin();
        let whole = txn.get_whole(table, &key![1]).await.unwrap().unwrap();
        assert_eq!(whole.row().bytes(BYTES), Ok(&*bytes));
        // Of an update only what is set is looked at.
        let unread = txn.update(table, &key![1], |row| Ok(row.value(BYTES).map(drop)?)).await;
        assert!(matches!(of_row(unread), RowError::Moved { .. }));
        let text = txn.append_value(table, &key![1], TEXT, &[0xff]).await;
        assert_eq!(of_row(text), RowError::NotUtf8 { column: TEXT, bytes: 1 });
        txn.commit().await.unwrap();
        check_pieces(db, table).await;
        // A load stores none.
        let mut txn = db.begin();
        txn.truncate(table).await.unwrap();
        txn.commit().await.unwrap();
        db.refresh().await.unwrap();
        for length in [1_000, 3_000, 60_000] {
            let mut load = db.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
            let mut row = db.row(table).unwrap();
            row.i32(1).null().bytes(&pattern(1, length)).i64(1);
            match load.push(row.finish().unwrap()).await {
                Ok(()) => assert_eq!(length, 1_000),
                Err(TxnError::RowTooLarge { bytes, limit, key_bytes: 4, .. }) => {
                    assert!(bytes > limit && (1_950..2_040).contains(&limit), "{limit}");
                    assert!(bytes >= length);
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    drop(databases);
    cluster.close();
}

/// Larger than the cache: its pages leave it before the commit. Larger than the log: refused.
#[test]
fn a_value_may_be_larger_than_the_cache_and_not_than_the_log() {
    const PART: usize = 1 << 20;
    let options = ClusterOptions {
        logs: vec![Some(LogTo::Memory)],
        log_bytes: 32 << 20,
        ..ClusterOptions::new(2048)
    };
    let cache = options.cache_pages as usize * 2048;
    let (cluster, databases, table) = start(options);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        put(&mut txn, table, 1, Some("as it was"), None).await.unwrap();
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        let mut written = 0;
        let error = loop {
            let part = pattern(written as u64, PART);
            match txn.append_value(table, &key![1], BYTES, &part).await {
                Ok(length) => written = length as usize,
                Err(error) => break error,
            }
            assert!(written < 64 << 20, "it fits no log");
        };
        let (TxnError::Engine(EngineError::ChangeTooLarge { need, limit })
        | TxnError::WriteSetTooLarge { need, limit, .. }) = error
        else {
            panic!("{error:?}");
        };
        assert!(need > limit && limit > 4 << 20 && written > PART, "{need} {limit} {written}");
        drop(txn);
        let mut txn = db.begin();
        let row = txn.get(table, &key![1]).await.unwrap().unwrap();
        assert_eq!((row.text(TEXT), row.is_null(BYTES)), (Ok("as it was"), Ok(true)));
        txn.commit().await.unwrap();
        assert_eq!(pieces(db, table).await, 0);
        let parts = (cache / PART + 2).max(3);
        assert!(((parts + 1) * PART) < limit as usize * 3 / 4, "{parts} parts of {limit}");
        let mut txn = db.begin();
        for part in 0..parts {
            txn.append_value(table, &key![1], BYTES, &pattern(part as u64, PART)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        let mut buffer = vec![0; PART];
        for part in (0..parts).rev() {
            let offset = (part * PART) as u64;
            let read = txn.read_value(table, &key![1], BYTES, offset, &mut buffer).await.unwrap();
            assert!(read == PART && buffer == pattern(part as u64, PART), "{part}");
        }
        txn.commit().await.unwrap();
        check_pieces(db, table).await;
        let mut txn = db.begin();
        txn.delete(table, &key![1]).await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(pieces(db, table).await, 0);
    });
    drop(databases);
    cluster.close();
}

/// Writes, reads, replaces, takes back and deletes a value of so many bytes.
fn life_of_a_value(parts: usize, bytes_per_node: u64) {
    const PART: usize = 1 << 20;
    let (cluster, databases, table) = start(ClusterOptions { bytes_per_node, ..nodes(2, 2048) });
    cluster.runtime.block_on(async {
        let empty = databases[0].pages(databases[0].engine()).await.unwrap().len();
        let write = async |db: &Database, seed: usize, commits: bool| {
            let mut txn = db.begin();
            txn.write_value(table, &key![1], BYTES, &[]).await.unwrap();
            for part in 0..parts {
                let bytes = pattern((seed + part) as u64, PART);
                let length = txn.append_value(table, &key![1], BYTES, &bytes).await.unwrap();
                assert_eq!(length, ((part + 1) * PART) as u64);
            }
            if commits { txn.commit().await.unwrap() } else { txn.rollback().await }
        };
        let is_there = async |db: &Database, seed: usize| {
            let random = SplitMix::new(seed as u64);
            let mut txn = db.begin();
            let length = txn.value_bytes(table, &key![1], BYTES).await.unwrap();
            assert_eq!(length, Some((parts * PART) as u64));
            let mut buffer = vec![0; 10_000];
            for _ in 0..40 {
                let (part, at) = (random.below(parts as u64), random.below(PART as u64));
                let offset = part * PART as u64 + at;
                let key = key![1];
                let read = txn.read_value(table, &key, BYTES, offset, &mut buffer);
                let read = read.await.unwrap();
                let of_part = read.min(PART - at as usize);
                let expected = pattern(seed as u64 + part, PART);
                assert!(buffer[..of_part] == expected[at as usize..][..of_part], "at {offset}");
            }
            txn.commit().await.unwrap();
        };
        let mut txn = databases[0].begin();
        put(&mut txn, table, 1, None, None).await.unwrap();
        txn.commit().await.unwrap();
        write(&databases[0], 1, true).await;
        is_there(&databases[1], 1).await;
        write(&databases[1], 7, false).await;
        is_there(&databases[0], 1).await;
        write(&databases[1], 100, true).await;
        is_there(&databases[0], 100).await;
        check_pieces(&databases[0], table).await;
        let mut txn = databases[0].begin();
        let too_long = txn.append_value(table, &key![1], BYTES, &vec![0; 256 << 20]).await;
        let too_long = of_row(too_long);
        assert!(matches!(too_long, RowError::TooLong { column: BYTES, max: 0x1000_0000, .. }));
        txn.delete(table, &key![1]).await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(pieces(&databases[1], table).await, 0);
        until_pages(&databases[0], empty + 8).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_value_of_16_mib_is_written_and_read_in_parts() {
    life_of_a_value(16, 64 << 20);
}

#[test]
#[ignore = "takes a minute, and gigabytes of memory"]
fn a_value_of_256_mib_is_written_and_read_in_parts() {
    life_of_a_value(256, 1 << 30);
}

#[test]
fn long_values_come_back_from_the_log() {
    let logs = vec![Some(LogTo::Memory); 2];
    let options = ClusterOptions { logs, log_bytes: 8 << 20, ..ClusterOptions::new(2048) };
    let (cluster, databases, table) = start(options);
    cluster.runtime.block_on(async {
        let values: Vec<_> = (0..6).map(|id| pattern(id, 30_000 * (id as usize + 1))).collect();
        for (id, value) in (0..).zip(&values) {
            let mut txn = databases[id as usize % 2].begin();
            put(&mut txn, table, id, None, Some(value)).await.unwrap();
            txn.commit().await.unwrap();
        }
        let mut txn = databases[1].begin();
        txn.append_value(table, &key![1], BYTES, &values[5]).await.unwrap();
        txn.delete(table, &key![2]).await.unwrap();
        txn.commit().await.unwrap();
        // Not committed.
        let mut txn = databases[1].begin();
        txn.write_value(table, &key![0], BYTES, &values[5]).await.unwrap();
        txn.delete(table, &key![3]).await.unwrap();
        cluster.kill(1).await;
        let db = &databases[0];
        let mut reader = db.begin();
        for (id, value) in (0..).zip(&values) {
            let whole = reader.get_whole(table, &key![id]).await.unwrap();
            let Some(whole) = whole else {
                assert_eq!(id, 2);
                continue;
            };
            let expected = match id {
                1 => [&value[..], &values[5]].concat(),
                _ => value.clone(),
            };
            assert!(whole.row().bytes(BYTES) == Ok(&*expected), "{id}");
        }
        reader.commit().await.unwrap();
        check(db).await;
        check_pieces(db, table).await;
        drop(txn);
        let mut txn = db.begin();
        txn.delete(table, &key![1]).await.unwrap();
        txn.commit().await.unwrap();
        check_pieces(db, table).await;
    });
    drop(databases);
    drop(cluster);
}

#[test]
fn tables_that_cannot_be_are_refused_and_long_ones_are_not() {
    let refused = |bytes: u32| {
        let table = papers().column("more", ColumnType::Json(bytes));
        table.validate().unwrap_err()
    };
    let expected = "table paper, column more: 268435457 bytes (allowed: 1 to 268435456)";
    assert_eq!(refused((256 << 20) + 1).to_string(), expected);
    assert!(matches!(refused(0), SchemaError::ColumnBytes { bytes: 0, .. }));
    assert_eq!(papers().column("more", ColumnType::Json(256 << 20)).validate(), Ok(()));
    assert_eq!(512 - PSN_BYTES, 504);
}
