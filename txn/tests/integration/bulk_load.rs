//! Tables that are loaded from sorted rows, under every protocol.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::time::Duration;

use selkie_engine::log::{LogReservation, LogTo};
use selkie_txn::{
    AbortCause, BulkLoad, BulkLoadError, BulkLoadOptions, Database, DatabaseSchema, Direction,
    KeyRange, Protocol, RowRef, Table, Txn, TxnError, key,
};

use crate::common::{
    Account, Cluster, ClusterOptions, account, accounts, add, check, dump, failed_by, insert,
    poll_times, with_each_protocol,
};

const ROWS: i32 = 1_500;

async fn push(
    db: &Database,
    load: &mut BulkLoad<'_>,
    table: Table,
    id: i32,
    account: &Account,
) -> Result<(), TxnError> {
    let mut row = db.row(table).unwrap();
    row.i32(id).i32(account.tag).text(&account.owner).i64(account.balance);
    match &account.note {
        Some(note) => row.text(note),
        None => row.null(),
    };
    load.push(row.finish().unwrap()).await
}

/// Tags in another order than that of the rows.
fn loaded(id: i32) -> Account {
    let note = (id % 3 == 0).then(|| "n".repeat((id % 60).unsigned_abs() as usize));
    Account { tag: id * 77 % ROWS, note, ..account(id) }
}

async fn load_all(db: &Database, table: Table) -> Result<u64, TxnError> {
    let mut load = db.bulk_load(table, BulkLoadOptions::default()).await?;
    for id in 0..ROWS {
        push(db, &mut load, table, id, &loaded(id)).await?;
    }
    assert_eq!(load.rows(), u64::from(ROWS.unsigned_abs()));
    load.finish().await
}

async fn ids(txn: &mut Txn<'_>, table: Table, direction: Direction) -> Result<Vec<i32>, TxnError> {
    let mut ids = Vec::new();
    let collect = |row: RowRef<'_>| {
        ids.push(row.i32(0)?);
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(table, &KeyRange::all(), direction, collect).await?;
    Ok(ids)
}

#[test]
fn a_loaded_table_is_as_one_with_inserted_rows() {
    let bulk_loaded = std::sync::Mutex::new(Vec::new());
    with_each_protocol(2, async |protocol, databases, table| {
        let db = &databases[0];
        assert_eq!(load_all(db, table).await.unwrap(), ROWS as u64);
        let bulk = dump(db).await;
        for db in databases {
            check(db).await;
        }
        // Changed as any other, on both nodes.
        for (at, db) in databases.iter().enumerate() {
            let id = 100 + at as i32;
            let mut txn = db.begin();
            txn.update(table, &key![id], add(5)).await.unwrap();
            txn.delete(table, &key![id + 10]).await.unwrap();
            let own = Account { tag: ROWS + id, ..account(id) };
            insert(db, &mut txn, table, ROWS + id, &own).await.unwrap();
            txn.commit().await.unwrap();
            check(db).await;
        }
        let refused = db.bulk_load(table, BulkLoadOptions::default()).await.err().unwrap();
        let is_full = matches!(refused, TxnError::BulkLoad(BulkLoadError::NotEmpty { .. }));
        assert!(is_full, "{protocol}: {refused:?}");
        bulk_loaded.lock().unwrap().push(bulk);
    });
    // The same entries as of inserts.
    let bulk_loaded = std::sync::Mutex::new(bulk_loaded.into_inner().unwrap().into_iter());
    with_each_protocol(1, async |protocol, databases, table| {
        let db = &databases[0];
        let mut txn = db.begin();
        for id in 0..ROWS {
            insert(db, &mut txn, table, id, &loaded(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        assert!(dump(db).await == bulk_loaded.lock().unwrap().next().unwrap(), "{protocol}");
    });
}

/// Errors name table and row; the table stays empty, and can be loaded.
#[test]
fn a_load_that_fails_leaves_the_table_as_it_was() {
    with_each_protocol(1, async |protocol, databases, table| {
        let db = &databases[0];
        let empty = dump(db).await;
        let begin = async |index_bytes| {
            let options = BulkLoadOptions { index_bytes, ..BulkLoadOptions::default() };
            let mut load = db.bulk_load(table, options).await.unwrap();
            for id in 0..300 {
                push(db, &mut load, table, id * 2, &loaded(id)).await.unwrap();
            }
            load
        };
        for id in [599, 598, 0] {
            let mut load = begin(1 << 20).await;
            let last = push(db, &mut load, table, id, &loaded(700)).await;
            if id == 599 {
                last.unwrap();
                continue;
            }
            let error = last.unwrap_err();
            let expected = format!(
                "table account: the primary key of row 300 of the load, counted from 0, is not \
                 above that of the row before (id = I32 {id})"
            );
            assert_eq!(error.to_string(), expected);
            let failed = push(db, &mut load, table, 999, &loaded(999)).await.unwrap_err();
            assert!(matches!(failed, TxnError::BulkLoad(BulkLoadError::Failed { .. })));
            let failed = load.finish().await.unwrap_err();
            assert!(matches!(failed, TxnError::BulkLoad(BulkLoadError::Failed { .. })));
            assert_eq!(dump(db).await, empty, "{protocol}");
        }
        // A unique index has a key twice.
        let mut load = begin(1 << 20).await;
        push(db, &mut load, table, 600, &loaded(7)).await.unwrap();
        let error = load.finish().await.unwrap_err();
        let TxnError::Duplicate { table: name, index, key } = error else {
            panic!("{protocol}: {error:?}")
        };
        let tag = format!("tag = I32 {}", loaded(7).tag);
        assert_eq!((&*name, &*index, &*key), ("account", "by_tag", &*tag), "{protocol}");
        assert_eq!(dump(db).await, empty, "{protocol}");
        // Entries of indexes are sorted in memory.
        let options = BulkLoadOptions { index_bytes: 5_000, ..BulkLoadOptions::default() };
        let mut load = db.bulk_load(table, options).await.unwrap();
        let mut refused = Ok(());
        for id in 0..300 {
            refused = push(db, &mut load, table, id, &loaded(id)).await;
            if refused.is_err() {
                break;
            }
        }
        let error = refused.unwrap_err();
        let TxnError::BulkLoad(BulkLoadError::IndexTooLarge { table: name, index, need, limit }) =
            error
        else {
            panic!("{protocol}: {error:?}")
        };
        // Its entries have more columns than those of the other.
        assert_eq!((&*name, &*index, limit), ("account", "by_owner", 5_000), "{protocol}");
        assert!(need > limit, "{protocol}: {need}");
        drop(load);
        // Of none.
        let load = db.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
        assert_eq!(load.finish().await.unwrap(), 0);
        assert_eq!(dump(db).await, empty, "{protocol}");
        load_all(db, table).await.unwrap();
        check(db).await;
    });
}

/// The table is free for all while it is loaded; a row of others makes the load fail, and stays.
#[test]
fn others_use_the_table_meanwhile() {
    with_each_protocol(2, async |protocol, databases, table| {
        let [db, other] = databases else { panic!("two nodes") };
        let mut load = db.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
        for id in 0..ROWS {
            push(db, &mut load, table, id, &loaded(id)).await.unwrap();
        }
        let mut txn = other.begin();
        assert_eq!(ids(&mut txn, table, Direction::Forward).await.unwrap(), Vec::<i32>::new());
        insert(other, &mut txn, table, 5, &account(5)).await.unwrap();
        txn.commit().await.unwrap();
        let refused = load.finish().await.unwrap_err();
        let is_full = matches!(refused, TxnError::BulkLoad(BulkLoadError::NotEmpty { .. }));
        assert!(is_full, "{protocol}: {refused:?}");
        let mut txn = db.begin();
        assert_eq!(ids(&mut txn, table, Direction::Reverse).await.unwrap(), [5]);
        txn.delete(table, &key![5]).await.unwrap();
        txn.commit().await.unwrap();
        // Empty again: the leaf is still the only one.
        load_all(db, table).await.unwrap();
        check(other).await;
    });
}

/// A transaction that has read the table as empty, and one that reads it at an earlier snapshot.
#[test]
fn nobody_sees_a_load_half_way() {
    with_each_protocol(2, async |protocol, databases, table| {
        let [db, other] = databases else { panic!("two nodes") };
        let mut load = db.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
        for id in 0..ROWS {
            push(db, &mut load, table, id, &loaded(id)).await.unwrap();
        }
        let mut reader = other.begin_to_read();
        assert!(reader.get(table, &key![ROWS / 2]).await.unwrap().is_none());
        let mut writer = other.begin();
        assert_eq!(ids(&mut writer, table, Direction::Forward).await.unwrap(), Vec::<i32>::new());
        if protocol == Protocol::TwoPhase {
            // It holds the table to its end, and the load waits for that.
            assert!(poll_times(load.finish(), 3).await.is_none());
            writer.commit().await.unwrap();
            reader.commit().await.unwrap();
            load_all(db, table).await.unwrap();
            check(other).await;
            return;
        }
        load.finish().await.unwrap();
        // The first row of a leaf that is new, of the first one, and all.
        let late = insert(other, &mut writer, table, ROWS, &account(ROWS)).await;
        let late = match late {
            Ok(()) => writer.commit().await,
            Err(error) => Err(error),
        };
        let cause = match protocol {
            Protocol::Timestamp => AbortCause::TooLate,
            _ => AbortCause::Stale,
        };
        assert!(failed_by(late, cause), "{protocol}");
        if protocol == Protocol::Snapshot {
            for id in [0, ROWS / 2, ROWS - 1] {
                assert!(reader.get(table, &key![id]).await.unwrap().is_none());
            }
            for direction in [Direction::Forward, Direction::Reverse] {
                assert_eq!(ids(&mut reader, table, direction).await.unwrap(), Vec::<i32>::new());
            }
            reader.commit().await.unwrap();
        } else {
            let all = ids(&mut reader, table, Direction::Forward).await;
            let all = match all {
                Ok(_) => reader.commit().await,
                Err(error) => Err(error),
            };
            assert!(all.unwrap_err().is_retryable(), "{protocol}");
        }
        let mut reader = other.begin_to_read();
        let found = ids(&mut reader, table, Direction::Forward).await.unwrap();
        assert!(found.into_iter().eq(0..ROWS));
        reader.commit().await.unwrap();
        check(other).await;
    });
}

/// At whatever await the load is dropped.
#[test]
fn a_load_that_is_dropped_at_any_await_is_nothing_or_all() {
    with_each_protocol(1, async |protocol, databases, table| {
        let db = &databases[0];
        let empty = dump(db).await;
        let mut polls = 0;
        loop {
            let loaded = poll_times(load_all(db, table), polls).await;
            if loaded.is_some() || dump(db).await != empty {
                break;
            }
            polls += 1 + polls / 4;
            assert!(polls < 100_000, "{protocol}");
        }
        check(db).await;
        let mut txn = db.begin_to_read();
        let found = ids(&mut txn, table, Direction::Forward).await.unwrap();
        assert!(found.into_iter().eq(0..ROWS), "{protocol}");
        txn.commit().await.unwrap();
    });
}

/// The loader dies: before the end nothing is left of its load, after it all.
#[test]
fn a_load_survives_its_node_whole_or_not_at_all() {
    for (protocol, is_finished) in
        Protocol::ALL.into_iter().flat_map(|protocol| [(protocol, false), (protocol, true)])
    {
        let logs = vec![Some(LogTo::Memory), Some(LogTo::Memory)];
        let options = ClusterOptions { logs, log_bytes: 1 << 20, ..ClusterOptions::new(512) };
        let cluster = Cluster::start_as(options);
        let databases = cluster.create(DatabaseSchema::from(vec![accounts()]).protocol(protocol));
        let table = databases[0].table("account").unwrap();
        cluster.runtime.block_on(async {
            let db = &databases[0];
            let mut load = db.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
            for id in 0..ROWS {
                push(db, &mut load, table, id, &loaded(id)).await.unwrap();
            }
            if is_finished {
                load.finish().await.unwrap();
            } else {
                std::mem::forget(load);
            }
            cluster.kill(0).await;
            let survivor = &databases[1];
            survivor.engine().env().sleep(Duration::from_millis(10)).await;
            check(survivor).await;
            let mut txn = survivor.begin_to_read();
            let found = ids(&mut txn, table, Direction::Forward).await.unwrap();
            let expected = if is_finished { ROWS } else { 0 };
            assert!(found.into_iter().eq(0..expected), "{protocol} {is_finished}");
            txn.commit().await.unwrap();
        });
    }
}

/// With the table and the limit, before all of it is written: where the stamps of its leaves take
/// more than one change of the log may.
#[test]
fn a_load_beyond_the_log_is_refused_where_it_goes_beyond() {
    let options = ClusterOptions {
        logs: vec![Some(LogTo::Memory)],
        log_bytes: 1 << 20,
        ..ClusterOptions::new(512)
    };
    let cluster = Cluster::start_as(options);
    let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
    let db = &cluster.create(schema)[0];
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut load = db.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
        let (mut id, most) = (0, 60_000);
        let error = loop {
            assert!(id < most, "all rows were taken");
            let account = Account { note: Some("n".repeat(40)), ..account(id) };
            match push(db, &mut load, table, id, &account).await {
                Ok(()) => id += 1,
                Err(error) => break error,
            }
        };
        let TxnError::BulkLoad(BulkLoadError::TooLarge { table: name, rows, need, limit }) = error
        else {
            panic!("{error}")
        };
        assert_eq!((&*name, rows), ("account", u64::from(id.unsigned_abs()) + 1));
        assert!(need > limit && limit == db.engine().largest_change(), "{need} {limit}");
        drop(load);
        assert_eq!(load_all(db, table).await.unwrap(), ROWS as u64);
        check(db).await;
    });
    cluster.close();
}

/// What is recorded while the leaves of the table are latched has its room by then: that the log
/// is more than half full is no reason to refuse it.
#[test]
fn a_load_that_has_room_in_the_log_is_attached_though_that_fills_up() {
    let options = ClusterOptions {
        logs: vec![Some(LogTo::Memory)],
        log_bytes: 1 << 20,
        ..ClusterOptions::new(512)
    };
    let cluster = Cluster::start_as(options);
    let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
    let db = &cluster.create(schema)[0];
    let (table, engine) = (db.table("account").unwrap(), db.engine());
    cluster.runtime.block_on(async {
        let mut load = db.bulk_load(table, BulkLoadOptions::default()).await.unwrap();
        // Its stamps take most of what changes that are made together may.
        let rows = 9_000;
        for id in 0..rows {
            let account = Account { note: Some("n".repeat(40)), ..account(id) };
            push(db, &mut load, table, id, &account).await.unwrap();
        }
        // A page that is latched keeps what is recorded from here on in the log.
        let mut page = engine.allocate().await.unwrap();
        page.bytes_mut(0..256).fill(1);
        let held = page.addr();
        drop(page);
        let page = engine.exclusive(held).await.unwrap();
        while engine.reserve_log(&mut LogReservation::default(), engine.largest_change()).is_ok() {
            engine.allocate().await.unwrap().bytes_mut(0..256).fill(2);
        }
        assert_eq!(load.finish().await.unwrap(), u64::from(rows.unsigned_abs()));
        drop(page);
        check(db).await;
    });
    cluster.close();
}
