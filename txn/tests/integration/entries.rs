//! Cursors over the entries of indexes: what they tell without reading rows, and what they record.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_txn::{
    AbortCause, Cursor, Database, Direction, Index, Isolation, KeyRange, Protocol, RowRef, Txn, key,
};

use crate::common::{ACCOUNTS, BALANCE, ID, NOTE, OWNER, TAG, add, bank, check, failed_by};
use crate::cursors::change_some;

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Reverse];
const ISOLATIONS: [Isolation; 3] =
    [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];

/// The indexes of the accounts, with what their entries tell.
fn indexes(db: &Database) -> [(Index, &'static [usize]); 2] {
    let index = |name| db.index("account", name).unwrap();
    [(index("by_tag"), &[ID, TAG]), (index("by_owner"), &[ID, OWNER, BALANCE])]
}

/// These columns, as text.
fn told(row: RowRef<'_>, columns: &[usize]) -> Vec<String> {
    columns.iter().map(|column| format!("{:?}", row.value(*column).unwrap())).collect()
}

/// Some columns of what a cursor shows to its end, so many rows at a time.
async fn rest(
    cursor: &mut Cursor,
    txn: &mut Txn<'_>,
    columns: &[usize],
    most: usize,
) -> Vec<Vec<String>> {
    let mut shown = Vec::new();
    loop {
        let rows = cursor.fetch(txn, most).await.unwrap();
        shown.extend(rows.iter().map(|row| told(row, columns)));
        if rows.len() < most {
            return shown;
        }
    }
}

#[test]
fn entries_tell_the_columns_of_their_index_and_of_the_primary_key() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[1];
            for (isolation, changes) in ISOLATIONS.iter().flat_map(|i| [(*i, false), (*i, true)]) {
                let mut txn = db.begin_with(isolation);
                if changes {
                    change_some(db, &mut txn, table).await;
                }
                for ((index, columns), direction) in
                    indexes(db).iter().flat_map(|own| DIRECTIONS.map(|d| (*own, d)))
                {
                    let all = KeyRange::all();
                    let mut whole = txn.cursor(index, all.clone(), direction).unwrap();
                    let expected = rest(&mut whole, &mut txn, columns, 100).await;
                    assert_eq!(expected.len(), if changes { 62 } else { 60 });
                    for most in [1, 2, 7, 100] {
                        let opened = txn.cursor_of_entries(index, all.clone(), direction);
                        let shown = rest(&mut opened.unwrap(), &mut txn, columns, most).await;
                        assert_eq!(shown, expected, "{protocol}, {isolation:?}, {index:?}");
                        let opened = txn.cursor_of_entries(index, all.clone(), direction);
                        let (mut passing, mut passed) = (opened.unwrap(), 0);
                        loop {
                            let some = passing.pass(&mut txn, most).await.unwrap();
                            passed += some;
                            if some < most {
                                break;
                            }
                        }
                        assert_eq!(passed, expected.len());
                    }
                }
                txn.rollback().await;
            }
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn what_an_entry_does_not_tell_cannot_be_read() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let db = &databases[0];
        let mut txn = db.begin_to_read();
        for (index, columns) in indexes(db) {
            let opened = txn.cursor_of_entries(index, KeyRange::all(), Direction::Forward);
            let mut cursor = opened.unwrap();
            let row = cursor.next(&mut txn).await.unwrap().unwrap();
            for column in [ID, TAG, OWNER, BALANCE, NOTE] {
                assert_eq!(row.value(column).is_ok(), columns.contains(&column), "{column}");
            }
        }
        // Of the table itself there is nothing but rows.
        let opened = txn.cursor_of_entries(table, KeyRange::all(), Direction::Forward);
        let mut cursor = opened.unwrap();
        let row = cursor.next(&mut txn).await.unwrap().unwrap();
        assert!(row.is_null(NOTE).unwrap());
    });
    drop(databases);
    cluster.close();
}

/// Others may change what was not read, and nothing of the range that was.
#[test]
fn what_is_recorded_is_the_range_of_the_index() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let [db, other] = &databases[..] else { panic!("two nodes") };
        let owner = db.index("account", "by_owner").unwrap();
        // Account 13 is one of owner 4.
        for (is_seen, id) in [(false, 13), (true, 13), (true, 58)] {
            let mut txn = db.begin();
            let range = KeyRange::prefix(&key!["4"]);
            let opened = txn.cursor_of_entries(owner, range, Direction::Forward);
            let shown = rest(&mut opened.unwrap(), &mut txn, &[ID], 100).await;
            assert_eq!(shown.len(), 7);
            txn.update(table, &key![0], |row| Ok(row.set_text(NOTE, "x")?)).await.unwrap();
            let mut theirs = other.begin();
            match is_seen {
                true => theirs.update(table, &key![id], add(1)).await.unwrap(),
                false => {
                    let note = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(NOTE, "y")?);
                    theirs.update(table, &key![id], note).await.unwrap();
                }
            }
            theirs.commit().await.unwrap();
            let committed = txn.commit().await;
            assert_eq!(committed.is_ok(), !is_seen, "{id}");
            assert!(!is_seen || failed_by(committed, AbortCause::Stale));
        }
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_transaction_that_moves_entries_ahead_of_its_cursor_meets_none_twice() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[0];
            let owner = db.index("account", "by_owner").unwrap();
            for (direction, most) in DIRECTIONS.iter().flat_map(|d| [1, 5].map(|m| (*d, m))) {
                let mut txn = db.begin();
                let opened = txn.cursor_of_entries(owner, KeyRange::all(), direction);
                let (mut cursor, mut seen) = (opened.unwrap(), Vec::<i32>::new());
                let to = if direction == Direction::Forward { "~" } else { "" };
                loop {
                    let rows = cursor.fetch(&mut txn, most).await.unwrap();
                    let ids: Vec<i32> = rows.iter().map(|row| row.i32(ID).unwrap()).collect();
                    for id in &ids {
                        let moved = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(OWNER, to)?);
                        txn.update(table, &key![*id], moved).await.unwrap();
                    }
                    seen.extend(&ids);
                    if ids.len() < most {
                        break;
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
