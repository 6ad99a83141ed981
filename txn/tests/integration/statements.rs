//! Statements: several operations that see one state, under ReadCommitted.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;

use selkie_txn::{
    AbortCause, Column, ColumnType, Cursor, Direction, Isolation, KeyRange, Protocol, Table, Txn,
    TxnError, key,
};

use crate::common::{
    ACCOUNTS, BALANCE, NOTE, OPENING, account, add, balance, bank, failed_by, insert, pay,
    transfer, with_each_protocol,
};

/// The sum of all balances, of rows pulled two at a time by two cursors in turn, one in each
/// direction; between two rows, another transaction moves money.
async fn sums(
    txn: &mut Txn<'_>,
    table: Table,
    mut between: impl AsyncFnMut(),
) -> Result<[i64; 2], TxnError> {
    let mut sums = [0; 2];
    let ways = [Direction::Forward, Direction::Reverse];
    let mut cursors: Vec<Cursor> = Vec::new();
    for way in ways {
        cursors.push(txn.cursor(table, KeyRange::all(), way)?);
    }
    for _ in 0..=ACCOUNTS / 2 {
        for (cursor, sum) in cursors.iter_mut().zip(&mut sums) {
            let rows = cursor.fetch(txn, 2).await?;
            for row in rows.iter() {
                *sum += row.i64(BALANCE)?;
            }
        }
        between().await;
    }
    Ok(sums)
}

#[test]
fn operations_of_a_statement_see_one_state() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let all = OPENING * i64::from(ACCOUNTS);
        let mut txn = here.begin_with(Isolation::ReadCommitted);
        // Without one, each operation sees what is committed by then.
        let before = balance(&mut txn, table, 1).await.unwrap();
        pay(there, table, 1, 10).await;
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), before + 10);
        pay(there, table, 1, -10).await;

        let mut turn = 0;
        let mut moves = async || {
            // From the end that a cursor has yet to come to, to the one that it has seen.
            turn += 1;
            transfer(there, table, ACCOUNTS - 1 - turn % 3, turn % 3, 7).await.unwrap();
        };
        let torn = sums(&mut txn, table, &mut moves).await.unwrap();
        assert_ne!(torn, [all; 2], "nothing was moved between two rows");
        txn.begin_statement().unwrap();
        assert_eq!(sums(&mut txn, table, &mut moves).await.unwrap(), [all; 2]);
        // Reads by key, ranges and cursors, of leaves that were changed since.
        let held = balance(&mut txn, table, 1).await.unwrap();
        pay(there, table, 1, 100).await;
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), held);
        let mut sum = 0;
        txn.scan(table, &KeyRange::all(), Direction::Forward, |row| {
            sum += row.i64(BALANCE)?;
            Ok(ControlFlow::Continue(()))
        })
        .await
        .unwrap();
        assert_eq!(sum, all);

        // The next one is later, and so is what comes behind it.
        txn.begin_statement().unwrap();
        let now = balance(&mut there.begin(), table, 1).await.unwrap();
        assert!(now > held + 100, "money was moved there, and paid");
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), now);
        pay(there, table, 1, 1).await;
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), now);
        txn.end_statement();
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), now + 1);
        txn.commit().await.unwrap();
    });
    drop(databases);
    cluster.close();
}

#[test]
fn one_that_only_reads_may_see_a_state_a_statement() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin_to_read_committed();
        txn.begin_statement().unwrap();
        let before = balance(&mut txn, table, 1).await.unwrap();
        pay(there, table, 1, 10).await;
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), before);
        txn.end_statement();
        txn.begin_statement().unwrap();
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), before + 10);
        let changed = txn.update(table, &key![1], add(1)).await;
        assert!(matches!(changed, Err(TxnError::ReadOnly)));
        txn.end_statement();
        txn.commit().await.unwrap();
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_session_idles_in_a_statement_and_sees_its_own_changes() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut session = here.session().unwrap();
        session.begin(Isolation::ReadCommitted).unwrap();
        let first = session.run(|txn| {
            Box::pin(async move {
                txn.begin_statement()?;
                txn.update(table, &key![2], add(5)).await?;
                balance(txn, table, 1).await
            })
        });
        let first = first.await.unwrap();
        pay(there, table, 1, 10).await;
        let again = session.run(|txn| {
            Box::pin(
                async move { Ok((balance(txn, table, 1).await?, balance(txn, table, 2).await?)) },
            )
        });
        assert_eq!(again.await.unwrap(), (first, OPENING + 5));
        let after = session.run(|txn| {
            Box::pin(async move {
                txn.end_statement();
                balance(txn, table, 1).await
            })
        });
        assert_eq!(after.await.unwrap(), first + 10);
        session.commit().await.unwrap();
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_change_of_what_others_have_changed_since_the_statement_began_is_no_lost_update() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin_with(Isolation::ReadCommitted);
        txn.begin_statement().unwrap();
        balance(&mut txn, table, 0).await.unwrap();
        pay(there, table, 1, 10).await;
        txn.update(table, &key![1], add(1)).await.unwrap();
        assert!(failed_by(txn.commit().await, AbortCause::Stale));

        let mut txn = here.begin_with(Isolation::ReadCommitted);
        txn.begin_statement().unwrap();
        balance(&mut txn, table, 0).await.unwrap();
        pay(there, table, 1, 10).await;
        txn.begin_statement().unwrap();
        txn.update(table, &key![1], add(1)).await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(balance(&mut there.begin(), table, 1).await.unwrap(), OPENING + 21);
    });
    drop(databases);
    cluster.close();
}

#[test]
fn under_other_isolations_a_statement_changes_nothing() {
    with_each_protocol(1, async |_, databases, table| {
        let db = &databases[0];
        let mut txn = db.begin();
        for id in 0..3 {
            crate::common::insert(db, &mut txn, table, id, &crate::common::account(id))
                .await
                .unwrap();
        }
        txn.commit().await.unwrap();
        for isolation in [Isolation::Serializable, Isolation::RepeatableRead] {
            let mut txn = db.begin_with(isolation);
            txn.begin_statement().unwrap();
            txn.update(table, &key![1], add(3)).await.unwrap();
            let one = balance(&mut txn, table, 1).await.unwrap();
            txn.begin_statement().unwrap();
            assert_eq!(balance(&mut txn, table, 1).await.unwrap(), one);
            txn.end_statement();
            assert_eq!(balance(&mut txn, table, 1).await.unwrap(), one);
            txn.commit().await.unwrap();
        }
    });
}

/// The row has no value in the column: that it may not be NULL there would be no fault of the
/// client.
#[test]
fn a_row_made_before_a_column_came_that_has_to_have_a_value_is_one_of_an_old_definition() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let (db, new) = (&databases[0], ACCOUNTS + 7);
        let mut txn = db.begin_with(Isolation::ReadCommitted);
        txn.begin_statement().unwrap();
        insert(db, &mut txn, table, new, &account(new)).await.unwrap();
        let mut ddl = databases[1].begin();
        ddl.add_column(table, Column::new("rank", ColumnType::I32).nullable()).await.unwrap();
        for id in 0..ACCOUNTS {
            ddl.update(table, &key![id], |row| Ok(row.set_i32(NOTE + 1, id)?)).await.unwrap();
        }
        ddl.set_not_null(table, "rank").await.unwrap();
        ddl.commit().await.unwrap();
        txn.begin_statement().unwrap();
        assert!(failed_by(txn.update(table, &key![new], add(1)).await, AbortCause::Stale));
    });
    cluster.close();
}
