//! What cursors record as read, which state they show, and what is kept and latched meanwhile.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::time::Duration;

use selkie_txn::{
    AbortCause, Cursor, Database, DatabaseSchema, Direction, Isolation, KeyRange, Protocol,
    RetryPolicy, SessionLimits, Source, Table, Txn, TxnError, key, retry,
};

use crate::common::{
    ACCOUNTS, BALANCE, Cluster, ID, NOTE, OPENING, account, accounts, add, bank, failed_by, insert,
    pay,
};

const ISOLATIONS: [Isolation; 3] =
    [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];

fn all() -> KeyRange {
    KeyRange::all()
}

async fn ids(cursor: &mut Cursor, txn: &mut Txn<'_>, most: usize) -> Vec<i32> {
    let rows = cursor.fetch(txn, most).await.unwrap();
    rows.iter().map(|row| row.i32(ID).unwrap()).collect()
}

/// One node with all rows in leaves of many, and another.
fn with_large_leaves(protocol: Protocol, test: impl AsyncFnOnce(&Database, &Database, Table)) {
    let cluster = Cluster::start(2, 2048);
    let schema = DatabaseSchema::from(vec![accounts().max_rows_per_page(12)]).protocol(protocol);
    let databases: Vec<_> = cluster.create(schema);
    let with = |db: Database| db.with_protocol(protocol).unwrap();
    let databases: Vec<_> = databases.into_iter().map(with).collect();
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        // Room between the keys.
        for id in 0..ACCOUNTS {
            insert(&databases[0], &mut txn, table, 10 * id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        test(&databases[0], &databases[1], table).await;
    });
    drop(databases);
    cluster.close();
}

/// Whether a transaction that reads three rows with a cursor, and changes one at the other end,
/// commits although another one does `meanwhile` what it does before.
async fn commits_beside(
    (db, other, table): (&Database, &Database, Table),
    (direction, at_once): (Direction, bool),
    new: i32,
) -> bool {
    let mut txn = db.begin();
    let range = KeyRange::between(&key![100], &key![400]);
    let mut cursor = txn.cursor(table, range, direction).unwrap();
    let mut seen = Vec::new();
    for _ in 0..if at_once { 1 } else { 3 } {
        seen.extend(ids(&mut cursor, &mut txn, if at_once { 3 } else { 1 }).await);
    }
    let expected = if direction == Direction::Forward { [100, 110, 120] } else { [400, 390, 380] };
    assert_eq!(seen, expected);
    txn.update(table, &key![590], |row| Ok(row.set_text(NOTE, "x")?)).await.unwrap();
    let mut theirs = other.begin();
    insert(other, &mut theirs, table, new, &account(1_000 + new)).await.unwrap();
    theirs.commit().await.unwrap();
    let committed = txn.commit().await;
    let mut undo = other.begin();
    undo.delete(table, &key![new]).await.unwrap();
    undo.commit().await.unwrap();
    assert!(committed.is_ok() || failed_by(committed.map(drop), AbortCause::Stale));
    // It has gone, so what it said has been asserted: look at the row that it changed instead.
    let mut txn = db.begin();
    let row = txn.get(table, &key![590]).await.unwrap().unwrap();
    let is_changed = !row.is_null(NOTE).unwrap();
    txn.update(table, &key![590], |row| Ok(row.set_null(NOTE)?)).await.unwrap();
    txn.commit().await.unwrap();
    is_changed
}

#[test]
fn what_is_read_is_the_range_up_to_the_row_shown_last() {
    with_large_leaves(Protocol::Snapshot, async |db, other, table| {
        for at_once in [false, true] {
            let forward = async |new| {
                commits_beside((db, other, table), (Direction::Forward, at_once), new).await
            };
            let reverse = async |new| {
                commits_beside((db, other, table), (Direction::Reverse, at_once), new).await
            };
            // Between the rows shown, and before the first of them.
            assert!(!forward(105).await && !forward(115).await);
            assert!(!reverse(395).await && !reverse(385).await);
            // In the same leaf, beside what was read.
            assert!(forward(121).await && forward(99).await && forward(205).await);
            assert!(reverse(379).await && reverse(401).await && reverse(305).await);
        }
    });
    // Where leaves conflict: the first leaf, and not the others.
    with_large_leaves(Protocol::Optimistic, async |db, other, table| {
        let pair = (db, other, table);
        assert!(!commits_beside(pair, (Direction::Forward, false), 105).await);
        assert!(commits_beside(pair, (Direction::Forward, false), 355).await);
        assert!(commits_beside(pair, (Direction::Reverse, true), 55).await);
    });
}

/// A cursor that has come to its end has read the range to its end.
#[test]
fn a_row_that_appears_where_a_cursor_has_ended_is_a_conflict() {
    for protocol in [Protocol::Snapshot, Protocol::Optimistic] {
        with_large_leaves(protocol, async |db, other, table| {
            for (new, direction) in [(5_000, Direction::Forward), (-5, Direction::Reverse)] {
                let mut txn = db.begin();
                let mut cursor = txn.cursor(table, all(), direction).unwrap();
                assert_eq!(ids(&mut cursor, &mut txn, 100).await.len(), 60);
                txn.update(table, &key![300], add(1)).await.unwrap();
                let mut theirs = other.begin();
                insert(other, &mut theirs, table, new, &account(new)).await.unwrap();
                theirs.commit().await.unwrap();
                assert!(failed_by(txn.commit().await, AbortCause::Stale), "{protocol}");
                let mut undo = other.begin();
                undo.delete(table, &key![new]).await.unwrap();
                undo.commit().await.unwrap();
            }
        });
    }
}

/// A transaction that comes to see a later state sees all of it: the cursor has read the leaf, and
/// has not shown the row, which was not compared.
#[test]
fn a_cursor_shows_the_state_that_its_transaction_sees() {
    with_large_leaves(Protocol::Snapshot, async |db, other, table| {
        let owner = db.index("account", "by_owner").unwrap();
        for source in [Source::from(table), owner.into()] {
            let mut txn = db.begin();
            let mut cursor = txn.cursor(source, all(), Direction::Forward).unwrap();
            assert_eq!(ids(&mut cursor, &mut txn, 1).await, [0]);
            let mut theirs = other.begin();
            theirs
                .delete(table, &key![if source == table.into() { 10 } else { 90 }])
                .await
                .unwrap();
            theirs.update(table, &key![590], add(7)).await.unwrap();
            theirs.commit().await.unwrap();
            let row = txn.get(table, &key![590]).await.unwrap().unwrap();
            assert_ne!(row.i64(BALANCE).unwrap(), OPENING);
            let next = if source == table.into() { 20 } else { 180 };
            assert_eq!(ids(&mut cursor, &mut txn, 1).await, [next], "{source:?}");
            txn.update(table, &key![300], add(1)).await.unwrap();
            txn.commit().await.unwrap();
        }
    });
}

#[test]
fn rows_read_for_update_are_kept_as_they_are_at_any_isolation() {
    for (protocol, isolation) in
        Protocol::ALL.iter().flat_map(|p| ISOLATIONS.map(|isolation| (*p, isolation)))
    {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let [db, other] = &databases[..] else { panic!("two nodes") };
            let mut txn = db.begin_with(isolation);
            let mut cursor = txn.cursor_for_update(table, all(), Direction::Forward).unwrap();
            assert_eq!(ids(&mut cursor, &mut txn, 1).await, [0]);
            assert_eq!(ids(&mut cursor, &mut txn, 1).await, [1]);
            let mut theirs = other.begin();
            let changed = theirs.update(table, &key![1], add(5)).await;
            let changed = match changed {
                Ok(()) => theirs.commit().await,
                Err(error) => Err(error),
            };
            let updated = txn.update(table, &key![1], add(1)).await;
            let committed = match updated {
                Ok(()) => txn.commit().await,
                Err(error) => Err(error),
            };
            assert!(
                changed.is_err() || committed.is_err(),
                "{protocol}, {isolation:?}: both have committed"
            );
            assert!(changed.is_ok() || committed.is_ok(), "{protocol}, {isolation:?}");
        });
        drop(databases);
        cluster.close();
    }
}

/// An entry that was read before leads to no row, as that is gone since.
#[test]
fn a_read_committed_cursor_skips_rows_that_are_gone() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let [db, other] = &databases[..] else { panic!("two nodes") };
            let owner = db.index("account", "by_owner").unwrap();
            let mut txn = db.begin_with(Isolation::ReadCommitted);
            let theirs = KeyRange::prefix(&key!["4"]);
            let mut cursor = txn.cursor(owner, theirs, Direction::Forward).unwrap();
            assert_eq!(ids(&mut cursor, &mut txn, 1).await, [4]);
            let deleting = async || {
                let mut txn = other.begin();
                txn.delete(table, &key![13]).await?;
                txn.update(table, &key![31], add(9)).await?;
                txn.commit().await
            };
            let policy = RetryPolicy { attempts: 100, ..RetryPolicy::default() };
            let env = other.engine().env();
            if retry(env, &policy, deleting).await.is_ok() {
                let mut shown = ids(&mut cursor, &mut txn, 9).await;
                // Moved ahead: it is shown there, if the leaf was read again.
                shown.pop_if(|last| *last == 31);
                assert_eq!(shown, [22, 40, 49, 58], "{protocol}");
            } else {
                assert_eq!(protocol, Protocol::TwoPhase, "it has the leaf latched");
            }
            txn.commit().await.unwrap();
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn a_cursor_is_kept_beside_a_session() {
    for protocol in [Protocol::Snapshot, Protocol::Optimistic, Protocol::Timestamp] {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let mut session = databases[0].session().unwrap();
            session.begin(Isolation::Serializable).unwrap();
            let owner = databases[0].index("account", "by_owner").unwrap();
            let open = |direction| {
                move |txn: &mut Txn<'_>| {
                    (txn.cursor(table, all(), direction), txn.cursor(owner, all(), direction))
                }
            };
            let both = open(Direction::Forward);
            let (by_id, by_owner) =
                session.run(|txn| Box::pin(async move { Ok(both(txn)) })).await.unwrap();
            let (mut by_id, mut by_owner) = (by_id.unwrap(), by_owner.unwrap());
            let (mut ids, mut owners) = (Vec::new(), 0);
            loop {
                let rows = session.fetch(&mut by_id, 7).await.unwrap();
                ids.extend(rows.iter().map(|row| row.i32(ID).unwrap()));
                if rows.is_empty() {
                    break;
                }
                let last = *ids.last().unwrap();
                owners += session.fetch(&mut by_owner, 5).await.unwrap().len();
                session
                    .run(|txn| {
                        Box::pin(async move { txn.update(table, &key![last], add(1)).await })
                    })
                    .await
                    .unwrap();
                // Another client may use the thread, and the rows, meanwhile.
                assert_eq!(databases[0].begin().latched_leaves(), 0);
            }
            assert_eq!(ids, (0..ACCOUNTS).collect::<Vec<_>>(), "{protocol}");
            assert_eq!(owners, 45);
            session.commit().await.unwrap();
            let refused = session.fetch(&mut by_owner, 5).await.map(drop).unwrap_err();
            assert!(matches!(refused, TxnError::NoTransaction), "{refused}");
            session.begin(Isolation::ReadCommitted).unwrap();
            let refused = session.fetch(&mut by_owner, 5).await.map(drop).unwrap_err();
            assert!(matches!(refused, TxnError::InvalidCursor { .. }), "{refused}");
            assert!(
                session
                    .run(|txn| Box::pin(async move { txn.get(table, &key![1]).await.map(drop) }))
                    .await
                    .is_ok()
            );
            session.rollback().await.unwrap();

            // A fetch that takes too long ends the transaction, as any operation does.
            session.set_limits(SessionLimits {
                operation: Some(Duration::ZERO),
                ..SessionLimits::default()
            });
            session.begin(Isolation::Serializable).unwrap();
            let late = session.fetch(&mut by_id, 1).await.map(drop).unwrap_err();
            assert!(matches!(late, TxnError::DeadlineExceeded { .. }), "{late}");
        });
        drop(databases);
        cluster.close();
    }
}

/// Nothing is latched by a cursor between two operations.
#[test]
fn a_cursor_latches_nothing_between_operations() {
    for protocol in [Protocol::Snapshot, Protocol::Optimistic, Protocol::Timestamp] {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let mut txn = databases[0].begin();
            let owner = databases[0].index("account", "by_owner").unwrap().into();
            for source in [Source::from(table), owner] {
                let mut cursor = txn.cursor(source, all(), Direction::Forward).unwrap();
                assert_eq!(ids(&mut cursor, &mut txn, 1).await, [0]);
                assert_eq!(txn.latched_leaves(), 0, "{protocol}");
                pay(&databases[1], table, if protocol == Protocol::Snapshot { 0 } else { 59 }, 0)
                    .await;
            }
            txn.commit().await.ok();
        });
        drop(databases);
        cluster.close();
    }
}
