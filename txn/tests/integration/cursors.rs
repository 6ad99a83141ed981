//! Cursors: what they show and record, when they end, and several of them at a time.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::{Bound, ControlFlow};

use selkie_txn::{
    Cursor, Database, Direction, Isolation, KeyBuf, KeyRange, Protocol, RetryPolicy, RowRef,
    Source, Table, Txn, TxnError, Value, key, retry,
};

use crate::common::{
    ACCOUNTS, Account, BALANCE, ID, NOTE, OPENING, TAG, account, add, bank, check, insert,
    poll_times,
};

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Reverse];
const ISOLATIONS: [Isolation; 3] =
    [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];

/// The table, and each index of it.
fn sources(db: &Database, table: Table) -> [Source; 3] {
    let index = |name| db.index("account", name).unwrap().into();
    [table.into(), index("by_tag"), index("by_owner")]
}

fn all() -> KeyRange {
    KeyRange::all()
}

async fn scan(
    txn: &mut Txn<'_>,
    source: Source,
    range: &KeyRange,
    direction: Direction,
) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let visit = |row: RowRef<'_>| {
        rows.push(row.as_bytes().to_vec());
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(source, range, direction, visit).await.unwrap();
    rows
}

/// What a cursor shows to its end, so many rows at a time; 0: one by one.
async fn rest(cursor: &mut Cursor, txn: &mut Txn<'_>, most: usize) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    if most == 0 {
        while let Some(row) = cursor.next(txn).await.unwrap() {
            rows.push(row.as_bytes().to_vec());
        }
        assert!(cursor.next(txn).await.unwrap().is_none(), "after the end");
        return rows;
    }
    loop {
        let batch = cursor.fetch(txn, most).await.unwrap();
        rows.extend(batch.iter().map(|row| row.as_bytes().to_vec()));
        let (count, is_last) = (batch.len(), batch.len() < most);
        assert!(count <= most && batch.is_empty() == (count == 0) && batch.get(count).is_none());
        if is_last {
            assert!(cursor.fetch(txn, most).await.unwrap().is_empty(), "after the end");
            return rows;
        }
    }
}

async fn ids(cursor: &mut Cursor, txn: &mut Txn<'_>, most: usize) -> Vec<i32> {
    let rows = cursor.fetch(txn, most).await.unwrap();
    rows.iter().map(|row| row.i32(ID).unwrap()).collect()
}

/// Changes of every kind, so that the write set and the leaves have parts of what is seen.
pub(crate) async fn change_some(db: &Database, txn: &mut Txn<'_>, table: Table) {
    for id in [7, 8, 30, 59] {
        txn.delete(table, &key![id]).await.unwrap();
    }
    for id in [-3_i32, 30, 77, 78, 79, 80] {
        let new = Account { owner: format!("{}", id.rem_euclid(9)), ..account(100 + id) };
        insert(db, txn, table, id, &new).await.unwrap();
    }
    for id in [0, 12, 40] {
        txn.update(table, &key![id], add(3)).await.unwrap();
        txn.update(table, &key![id], |row| Ok(row.set_text(NOTE, &"n".repeat(40))?)).await.unwrap();
    }
}

/// Bounds of every kind; those of an index of two columns with one and with both.
fn ranges(db: &Database, source: Source) -> Vec<KeyRange> {
    let keys: Vec<KeyBuf> = match source {
        Source::Table(_) => vec![key![-1], key![12], key![30], key![44], key![90]],
        Source::Index(index) if Source::from(db.index("account", "by_tag").unwrap()) == source => {
            assert_eq!(index.table(), source.table());
            vec![key![-1], key![12], key![30], key![177]]
        }
        Source::Index(_) => vec![key!["2"], key!["2", OPENING], key!["5"], key!["7", OPENING + 3]],
    };
    let mut bounds = vec![Bound::Unbounded];
    bounds.extend(keys.iter().flat_map(|key| [Bound::Included(key), Bound::Excluded(key)]));
    let each = |low: &Bound<&KeyBuf>, high: &Bound<&KeyBuf>| {
        KeyRange::new(low.map(|key| &**key), high.map(|key| &**key))
    };
    bounds.iter().flat_map(|low| bounds.iter().map(|high| each(low, high))).collect()
}

/// Rows that were changed by the transaction before it opened them, and those that were not.
#[test]
fn cursors_show_what_scans_show() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[1];
            for (isolation, changes) in ISOLATIONS.iter().flat_map(|i| [(*i, false), (*i, true)]) {
                let mut txn = db.begin_with(isolation);
                if changes {
                    change_some(db, &mut txn, table).await;
                }
                for (source, direction) in
                    sources(db, table).iter().flat_map(|s| DIRECTIONS.map(|d| (*s, d)))
                {
                    let expected = scan(&mut txn, source, &all(), direction).await;
                    assert_eq!(expected.len(), if changes { 62 } else { 60 });
                    for most in [0, 1, 2, 7, 1_000] {
                        let mut cursor = txn.cursor(source, all(), direction).unwrap();
                        let shown = rest(&mut cursor, &mut txn, most).await;
                        assert_eq!(shown, expected, "{protocol}, {isolation:?}, {source:?}");
                    }
                    for (at, range) in ranges(db, source).into_iter().enumerate() {
                        let expected = scan(&mut txn, source, &range, direction).await;
                        let mut cursor = txn.cursor(source, range.clone(), direction).unwrap();
                        let shown = rest(&mut cursor, &mut txn, at % 5).await;
                        assert_eq!(shown, expected, "{protocol}, {source:?}, {range:?}");
                    }
                }
                txn.rollback().await;
            }
        });
        drop(databases);
        cluster.close();
    }
}

/// A scan with bounds of every kind shows exactly the rows between them.
#[test]
fn bounds_are_inclusive_or_exclusive() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let db = &databases[0];
        let mut txn = db.begin_to_read();
        for source in sources(db, table) {
            let every = scan(&mut txn, source, &all(), Direction::Forward).await;
            for range in ranges(db, source) {
                let mut expected = every.clone();
                // The entry of a row begins with its columns; no bound is longer.
                expected.retain(|row| range.contains(&key_of(db, source, row)));
                let shown = scan(&mut txn, source, &range, Direction::Forward).await;
                assert_eq!(shown, expected, "{source:?}, {range:?}");
            }
        }
    });
    drop(databases);
    cluster.close();
}

/// The columns of a table or an index, of the bytes of a row that has no note.
fn key_of(db: &Database, source: Source, row: &[u8]) -> KeyBuf {
    let row = crate::common::without_layout(db, row);
    let number = |at: usize| i32::from_le_bytes(row[at..at + 4].try_into().unwrap());
    let balance = i64::from_le_bytes(row[9..17].try_into().unwrap());
    let (id, tag) = (number(1), number(5));
    match source {
        Source::Table(_) => key![id],
        _ if source == Source::from(db.index("account", "by_tag").unwrap()) => key![tag],
        Source::Index(_) => key![format!("{}", id % 9), balance],
    }
}

/// The statement that gives all a rise, by the index of what it raises.
#[test]
fn a_transaction_that_moves_rows_ahead_of_its_cursor_meets_none_twice() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[1];
            let owner = db.index("account", "by_owner").unwrap();
            for (direction, most) in DIRECTIONS.iter().flat_map(|d| [1, 5, 13].map(|m| (*d, m))) {
                let mut txn = db.begin();
                let ahead = if direction == Direction::Forward { 1 } else { -1 };
                let mut cursor = txn.cursor_for_update(owner, all(), direction).unwrap();
                let mut seen = Vec::new();
                loop {
                    let rows = cursor.fetch(&mut txn, most).await.unwrap();
                    if rows.is_empty() {
                        break;
                    }
                    for row in &rows {
                        assert_eq!(row.i64(BALANCE).unwrap(), OPENING, "{protocol}: met again");
                        seen.push(row.i32(ID).unwrap());
                        let key = db.key_of(table, row).unwrap();
                        txn.update(table, &key, add(ahead)).await.unwrap();
                        // Ahead of all, too, where a transaction may move it again.
                        let to = if direction == Direction::Forward { "~" } else { "" };
                        let moved = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(2, to)?);
                        txn.update(table, &key, moved).await.unwrap();
                    }
                }
                seen.sort_unstable();
                assert_eq!(seen, (0..ACCOUNTS).collect::<Vec<_>>(), "{protocol}, {direction:?}");
                txn.rollback().await;
            }
            check(db).await;
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn a_cursor_shows_changes_of_rows_and_no_rows_that_were_added_since_it_was_opened() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[0];
            for (direction, most) in DIRECTIONS.iter().flat_map(|d| [1, 4].map(|m| (*d, m))) {
                let mut txn = db.begin();
                insert(db, &mut txn, table, 100, &account(100)).await.unwrap();
                txn.delete(table, &key![33]).await.unwrap();
                txn.delete(table, &key![34]).await.unwrap();
                let mut cursor = txn.cursor(table, all(), direction).unwrap();
                let first = ids(&mut cursor, &mut txn, 1).await;
                assert_eq!(first, if direction == Direction::Forward { [0] } else { [100] });
                // It is there when the cursor comes to it; the next one was not when it was opened.
                txn.delete(table, &key![31]).await.unwrap();
                insert(db, &mut txn, table, 31, &account(331)).await.unwrap();
                insert(db, &mut txn, table, 33, &account(33)).await.unwrap();
                txn.delete(table, &key![32]).await.unwrap();
                insert(db, &mut txn, table, 101, &account(101)).await.unwrap();
                insert(db, &mut txn, table, -1, &account(-1)).await.unwrap();
                txn.update(table, &key![30], add(5)).await.unwrap();
                let mut shown = Vec::new();
                loop {
                    let rows = cursor.fetch(&mut txn, most).await.unwrap();
                    let of = |row: RowRef<'_>| (row.i32(ID).unwrap(), row.i64(BALANCE).unwrap());
                    shown.extend(rows.iter().map(of));
                    if rows.len() < most {
                        break;
                    }
                    // Behind the cursor, and once more ahead of it.
                    let behind = if direction == Direction::Forward { 0 } else { 100 };
                    txn.update(table, &key![behind], add(1)).await.unwrap();
                }
                shown.sort_unstable();
                let left = (0..ACCOUNTS).chain([100]).filter(|id| !(32..35).contains(id));
                let balance = |id| OPENING + if id == 30 { 5 } else { 0 };
                let mut expected: Vec<_> = left.map(|id| (id, balance(id))).collect();
                expected.retain(|(id, _)| *id != first[0]);
                assert_eq!(shown, expected, "{protocol}, {direction:?}, {most}");
                txn.rollback().await;
            }
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn several_cursors_are_open_between_other_operations() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[0];
            for isolation in ISOLATIONS {
                let mut txn = db.begin_with(isolation);
                let [_, tag, owner] = sources(db, table);
                let forward = txn.cursor(table, all(), Direction::Forward).unwrap();
                let backward = txn.cursor_for_update(table, all(), Direction::Reverse).unwrap();
                let by_tag = txn.cursor(tag, all(), Direction::Reverse).unwrap();
                let theirs = KeyRange::prefix(&key!["4"]);
                let by_owner = txn.cursor(owner, theirs, Direction::Forward).unwrap();
                let mut cursors = [forward, backward, by_tag, by_owner];
                let mut shown = [const { Vec::new() }; 4];
                for round in 0..20 {
                    for (cursor, shown) in cursors.iter_mut().zip(&mut shown) {
                        shown.extend(ids(cursor, &mut txn, 1 + round % 3).await);
                    }
                    let id = 3 * i32::try_from(round).unwrap();
                    txn.update(table, &key![id], add(0)).await.unwrap();
                    txn.update(table, &key![id], |row| Ok(row.set_text(NOTE, "x")?)).await.unwrap();
                    assert!(txn.get(table, &key![59 - id]).await.unwrap().is_some());
                }
                let up: Vec<i32> = (0..39).collect();
                let down: Vec<i32> = (21..60).rev().collect();
                assert_eq!(shown[0], up, "{protocol}, {isolation:?}");
                assert_eq!([&shown[1], &shown[2]], [&down; 2], "{protocol}, {isolation:?}");
                assert_eq!(shown[3], [4, 13, 22, 31, 40, 49, 58], "{protocol}, {isolation:?}");
                txn.commit().await.unwrap();
            }
            check(db).await;
        });
        drop(databases);
        cluster.close();
    }
}

fn is_invalid<T>(outcome: Result<T, TxnError>, index: &str) -> bool {
    let Err(error) = outcome else { return false };
    let named = error.to_string().starts_with(&format!("table account, {index}:"));
    let is_it = matches!(error, TxnError::InvalidCursor { .. });
    is_it && named && !error.is_retryable() && error.abort_cause().is_none()
}

#[test]
fn a_cursor_is_of_one_transaction_and_ends_with_what_it_was_opened_in() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let [db, other_node] = &databases[..] else { panic!("two nodes") };
            let owner = db.index("account", "by_owner").unwrap();
            let mut first = db.begin();
            let mut cursor = first.cursor(owner, all(), Direction::Forward).unwrap();
            assert_eq!(ids(&mut cursor, &mut first, 2).await.len(), 2);
            for elsewhere in [db, other_node] {
                let mut txn = elsewhere.begin();
                assert!(is_invalid(cursor.next(&mut txn).await, "by_owner"));
                let mut own = txn.cursor(table, all(), Direction::Forward).unwrap();
                assert!(is_invalid(cursor.fetch(&mut txn, 3).await.map(drop), "by_owner"));
                assert_eq!(ids(&mut own, &mut txn, 1).await, [0], "it is as it was");
                assert!(is_invalid(own.next(&mut first).await, "primary key"));
                txn.commit().await.unwrap();
            }
            assert_eq!(rest(&mut cursor, &mut first, 7).await.len(), 58);
            first.commit().await.unwrap();
            let mut txn = db.begin();
            assert!(is_invalid(cursor.next(&mut txn).await, "by_owner"));

            // Savepoints.
            let mut outer = txn.cursor_for_update(table, all(), Direction::Forward).unwrap();
            assert_eq!(ids(&mut outer, &mut txn, 4).await, [0, 1, 2, 3]);
            let savepoint = txn.savepoint().unwrap();
            let mut inner = txn.cursor(table, all(), Direction::Forward).unwrap();
            assert_eq!(ids(&mut inner, &mut txn, 1).await, [0]);
            for id in [4, 5, 9] {
                txn.delete(table, &key![id]).await.unwrap();
            }
            insert(db, &mut txn, table, 4, &account(4)).await.unwrap();
            assert_eq!(ids(&mut outer, &mut txn, 1).await, [4]);
            txn.rollback_to(savepoint).unwrap();
            assert!(is_invalid(inner.next(&mut txn).await, "primary key"));
            // In the places of changes that were taken back.
            for id in [100, 101, 102] {
                insert(db, &mut txn, table, id, &account(id)).await.unwrap();
            }
            assert_eq!(ids(&mut outer, &mut txn, 3).await, [5, 6, 7], "{protocol}");
            let left = rest(&mut outer, &mut txn, 9).await.len();
            assert_eq!(left, 52, "{protocol}: without rows that were added since");
            txn.rollback().await;

            // A change that fails, and one that is dropped half-way, which rolls back.
            let mut txn = db.begin();
            let mut cursor = txn.cursor(table, all(), Direction::Forward).unwrap();
            let failed = txn.update(table, &key![1], |_| Err::<(), _>(TxnError::NoSavepoint)).await;
            assert!(failed.is_err());
            assert_eq!(ids(&mut cursor, &mut txn, 1).await, [0]);
            txn.rollback().await;
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn bad_input_is_refused_and_harms_nothing() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[0];
            let mut txn = db.begin();
            txn.update(table, &key![1], add(1)).await.unwrap();
            let [_, tag, owner] = sources(db, table);
            let (wide, text) = (key![1_i64], key!["a"]);
            let bad = [
                (Source::from(table), KeyRange::from(&wide), "primary key"),
                (table.into(), KeyRange::half_open(&[], &wide), "primary key"),
                (
                    table.into(),
                    KeyRange::new(Bound::Excluded(&text), Bound::Unbounded),
                    "primary key",
                ),
                (tag, KeyRange::new(Bound::Unbounded, Bound::Included(&wide)), "by_tag"),
                (tag, KeyRange::prefix(&key![1, 2]), "by_tag"),
                (owner, KeyRange::between(&text, &key!["a", 5_i32]), "by_owner"),
            ];
            for (source, range, index) in bad {
                let named = format!("table account, {index}: the key given has another shape: 0x");
                for direction in DIRECTIONS {
                    let refused = txn.cursor(source, range.clone(), direction).err().unwrap();
                    assert!(refused.to_string().starts_with(&named), "{refused}");
                    let visit = |_: RowRef<'_>| Ok(ControlFlow::Continue(()));
                    let refused = txn.scan(source, &range, direction, visit).await.unwrap_err();
                    assert!(refused.to_string().starts_with(&named), "{refused}");
                    assert!(refused.abort_cause().is_none());
                }
            }
            // A value of another type has no key in the first place.
            let wrong = db.key(owner, &[Value::I32(1)]).unwrap_err();
            assert!(matches!(wrong, TxnError::Row(_)), "{wrong}");
            // An empty range is one without rows, and no leaf is read for it.
            let mut cursor = txn
                .cursor(table, KeyRange::between(&key![9], &key![3]), Direction::Forward)
                .unwrap();
            let before = db.engine().stats();
            assert!(cursor.next(&mut txn).await.unwrap().is_none());
            assert_eq!((db.engine().stats() - before).hits, 0);
            assert!(cursor.fetch(&mut txn, 0).await.unwrap().is_empty());
            txn.commit().await.unwrap();
            let mut txn = db.begin_to_read();
            let refused = txn.cursor_for_update(table, all(), Direction::Forward).err().unwrap();
            assert!(matches!(refused, TxnError::ReadOnly), "{refused}");
            let mut cursor = txn.cursor(table, all(), Direction::Forward).unwrap();
            let first = cursor.next(&mut txn).await.unwrap().unwrap();
            assert_eq!(first.i64(BALANCE).unwrap(), OPENING);
            assert!(matches!(db.key_of(table, first), Ok(key) if key == key![0]));
        });
        drop(databases);
        cluster.close();
    }
}

/// Drops fetches at every await: the next call goes on where the last one that ended has come to.
#[test]
fn a_dropped_fetch_leaves_cursor_and_transaction_as_they_were() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let [db, other] = &databases[..] else { panic!("two nodes") };
            let policy = RetryPolicy { attempts: 1_000, ..RetryPolicy::default() };
            let mut dropped = 0;
            for (source, direction) in
                sources(db, table).iter().flat_map(|s| DIRECTIONS.map(|d| (*s, d)))
            {
                // The pages are with the other node, so that each leaf is waited for.
                for id in 0..ACCOUNTS {
                    let paying = async || {
                        let mut txn = other.begin();
                        txn.update(table, &key![id], |row| {
                            Ok(row.set_i32(TAG, -1 - row.i32(TAG)?)?)
                        })
                        .await?;
                        txn.update(table, &key![id], add(1)).await?;
                        txn.commit().await
                    };
                    retry(other.engine().env(), &policy, paying).await.unwrap();
                }
                let mut txn = db.begin();
                txn.update(table, &key![7], add(0)).await.unwrap();
                let mut cursor = txn.cursor(source, all(), direction).unwrap();
                let mut shown = Vec::new();
                let (mut polls, mut is_done) = (0, false);
                while !is_done {
                    polls += 1;
                    let fetched = poll_times(cursor.fetch(&mut txn, 4), polls).await;
                    match fetched {
                        None => dropped += 1,
                        Some(rows) => {
                            let rows = rows.unwrap();
                            shown.extend(rows.iter().map(|row| row.as_bytes().to_vec()));
                            (polls, is_done) = (0, rows.len() < 4);
                        }
                    }
                }
                assert_eq!(shown, scan(&mut txn, source, &all(), direction).await, "{protocol}");
                txn.commit().await.unwrap();
            }
            assert!(dropped > 20, "{protocol}: {dropped}: the test shows nothing");
            check(db).await;
        });
        drop(databases);
        cluster.close();
    }
}
