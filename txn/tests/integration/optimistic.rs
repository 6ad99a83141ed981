//! Optimistic transactions: when a read is stale, and whom they block or wait for.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::time::Duration;

use selkie_txn::{AbortCause, Database, Direction, KeyRange, Protocol, Table, Txn, TxnError, key};

use crate::common::{ACCOUNTS, BALANCE, account, add, balance, bank, check, insert, pay};

fn is_stale<T: std::fmt::Debug>(result: Result<T, TxnError>) -> bool {
    matches!(&result, Err(error @ TxnError::Stale { .. }) if error.is_retryable()
        && error.abort_cause() == Some(AbortCause::Stale))
}

#[test]
fn a_transaction_with_stale_reads_does_not_commit() {
    let (cluster, databases, table) = bank(Protocol::Optimistic);
    cluster.runtime.block_on(async {
        for other in &databases {
            let stats = databases[0].stats();
            // A lost update.
            let mut txn = databases[0].begin();
            let seen = balance(&mut txn, table, 1).await.unwrap();
            pay(other, table, 1, 1).await;
            txn.update(table, &key![40], |row| Ok(row.set_i64(BALANCE, seen)?)).await.unwrap_or(());
            assert!(is_stale_or_rolled_back(txn.commit().await));
            // A transaction that only reads learns of it, too.
            let mut txn = databases[0].begin();
            balance(&mut txn, table, 1).await.unwrap();
            pay(other, table, 1, 1).await;
            assert!(is_stale(txn.commit().await));
            assert!((databases[0].stats() - stats).aborts.of(AbortCause::Stale) >= 2);
            // Other pages do not matter.
            let mut txn = databases[0].begin();
            balance(&mut txn, table, 1).await.unwrap();
            pay(other, table, 50, 1).await;
            txn.commit().await.unwrap();
        }
    });
    cluster.close();
}

fn is_stale_or_rolled_back(result: Result<(), TxnError>) -> bool {
    result.is_err_and(|error| error.abort_cause() == Some(AbortCause::Stale))
}

/// Leaves that were read before are all looked at again, and one that is latched may have been
/// changed.
#[test]
fn a_read_is_stale_also_behind_a_latch_or_three_leaves_ago() {
    let (cluster, databases, table) = bank(Protocol::Optimistic);
    let locking = databases[0].clone().with_protocol(Protocol::TwoPhase).unwrap();
    cluster.runtime.block_on(async {
        let transfer = async |by: i64| {
            let mut transfer = databases[1].begin();
            transfer.update(table, &key![1], add(-by)).await.unwrap();
            transfer.update(table, &key![50], add(by)).await.unwrap();
            transfer.commit().await.unwrap();
        };
        for others in [&[20][..], &[20, 25], &[20, 25, 30], &[20, 25, 30, 35]] {
            let mut txn = databases[0].begin();
            assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 10);
            for other in others {
                balance(&mut txn, table, *other).await.unwrap();
            }
            transfer(3).await;
            assert!(is_stale(balance(&mut txn, table, 50).await), "after {others:?}");
            drop(txn);
            transfer(-3).await;
        }
        let mut txn = databases[0].begin();
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 10);
        transfer(3).await;
        let mut holds = locking.begin();
        holds.update(table, &key![1], add(1)).await.unwrap();
        let found = balance(&mut txn, table, 50).await;
        assert!(found.as_ref().is_err_and(TxnError::is_retryable), "{found:?}");
        holds.rollback().await;
    });
    cluster.close();
}

/// What an error says of the data has to be true of one state, too.
#[test]
fn an_error_from_pages_of_different_states_is_retryable() {
    let (cluster, databases, table) = bank(Protocol::Optimistic);
    cluster.runtime.block_on(async {
        // More leaves than are looked at again with each, so that the change is not met before.
        let mut txn = databases[0].begin();
        for id in 1000..1300 {
            insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let mut txn = databases[0].begin();
        for id in 0..ACCOUNTS {
            balance(&mut txn, table, id).await.unwrap();
        }
        for id in 1000..1290 {
            balance(&mut txn, table, id).await.unwrap();
        }
        // The row moves from one end to the other.
        let mut moves = databases[1].begin();
        moves.delete(table, &key![1299]).await.unwrap();
        moves.delete(table, &key![1150]).await.unwrap();
        moves.commit().await.unwrap();
        let gone = txn.delete(table, &key![1299]).await;
        assert!(gone.as_ref().is_err_and(TxnError::is_retryable), "{gone:?}");
    });
    cluster.close();
}

#[test]
fn gaps_are_read_too() {
    let (cluster, databases, table) = bank(Protocol::Optimistic);
    cluster.runtime.block_on(async {
        for (number, other) in (0..).zip(&databases) {
            let new = 1000 + 10 * number;
            let mut counts = databases[0].begin();
            let mut rows = 0;
            let range = KeyRange::between(&key![new], &key![new + 9]);
            counts
                .scan(table, &range, Direction::Reverse, |_| {
                    rows += 1;
                    Ok(ControlFlow::Continue(()))
                })
                .await
                .unwrap();
            assert_eq!(rows, 0);
            let mut looks = databases[0].begin();
            assert!(looks.get(table, &key![new + 1]).await.unwrap().is_none());
            let mut adds = other.begin();
            insert(other, &mut adds, table, new + 1, &account(new + 1)).await.unwrap();
            adds.commit().await.unwrap();
            let counted =
                insert(&databases[0], &mut counts, table, new + 2, &account(new + 2)).await;
            assert!(counted.is_err() || counts.commit().await.is_err(), "a phantom");
            let found = insert(&databases[0], &mut looks, table, new + 3, &account(new + 3)).await;
            assert!(found.is_err() || looks.commit().await.is_err(), "a phantom");
        }
        check(&databases[0]).await;
    });
    cluster.close();
}

#[test]
fn a_two_phase_locked_transaction_is_in_the_way() {
    let (cluster, databases, table) = bank(Protocol::Optimistic);
    let locking: Vec<Database> =
        databases.iter().map(|db| db.clone().with_protocol(Protocol::TwoPhase).unwrap()).collect();
    cluster.runtime.block_on(async {
        for lock in &locking {
            // It has read what is to be changed: nothing may come between that and its end.
            let mut txn = databases[0].begin();
            txn.update(table, &key![1], add(1)).await.unwrap();
            let mut reader = lock.begin();
            let seen = balance(&mut reader, table, 1).await.unwrap();
            assert!(matches!(txn.commit().await, Err(TxnError::Conflict { .. })));
            assert_eq!(balance(&mut reader, table, 1).await.unwrap(), seen);
            reader.commit().await.unwrap();
            // It has changed what was read, and has not ended.
            let mut txn = databases[0].begin();
            balance(&mut txn, table, 1).await.unwrap();
            assert_eq!(txn.latched_leaves(), 0);
            let mut writer = lock.begin();
            writer.update(table, &key![1], add(1)).await.unwrap();
            assert!(matches!(txn.commit().await, Err(TxnError::Conflict { .. })));
            writer.rollback().await;
        }
    });
    cluster.close();
}

/// An account whose next one is on another leaf.
async fn last_of_a_leaf(db: &Database, table: Table) -> i32 {
    let db = db.clone().with_protocol(Protocol::TwoPhase).unwrap();
    for id in 0..ACCOUNTS - 1 {
        let mut txn = db.begin();
        for id in [id, id + 1] {
            txn.get_for_update(table, &key![id]).await.unwrap();
        }
        let is_last = txn.latched_leaves() == 2;
        txn.rollback().await;
        if is_last {
            return id;
        }
    }
    panic!("all accounts are on one leaf")
}

/// A transaction that holds the leaf of an account, to change it.
async fn holding(db: &Database, table: Table, id: i32) -> Txn<'_> {
    for _ in 0..10_000 {
        let mut txn = db.begin();
        if txn.get_for_update(table, &key![id]).await.is_ok() {
            return txn;
        }
        // Another transaction is about to release it.
        db.engine().env().sleep(Duration::from_millis(1)).await;
    }
    panic!("another transaction still holds it")
}

/// Reads an account and the next one, from either end.
async fn walk(db: Database, table: Table, id: i32, direction: Direction) -> Result<(), TxnError> {
    let mut txn = db.begin();
    let range = KeyRange::between(&key![id], &key![id + 1]);
    txn.scan(table, &range, direction, |_| Ok(ControlFlow::Continue(()))).await?;
    txn.commit().await
}

/// Others' requests for a leaf that is being changed wait, also when it is no longer changed but
/// read here.
#[test]
fn walks_in_opposite_directions_do_not_wait_for_each_other() {
    let (cluster, databases, table) = bank(Protocol::Optimistic);
    let env = cluster.runtime.env();
    let soon = Duration::from_millis(50);
    cluster.runtime.block_on(async {
        let id = last_of_a_leaf(&databases[0], table).await;
        let locking = databases.iter().map(|db| db.clone().with_protocol(Protocol::TwoPhase));
        let locking: Vec<_> = locking.map(Result::unwrap).collect();
        let mut writers = Vec::new();
        for (db, id) in locking.iter().zip([id, id + 1]) {
            writers.push(holding(db, table, id).await);
        }
        let mut tasks = Vec::new();
        // Each waits for the leaf that is changed on its node, and will go on to the other.
        for (db, direction) in databases.iter().zip([Direction::Forward, Direction::Reverse]) {
            let walk = walk(db.clone(), table, id, direction);
            tasks.push(env.spawn("walk", async move { walk.await.unwrap() }));
        }
        env.sleep(soon).await;
        // Each has its node ask for the leaf that is changed on the other.
        for (db, id) in databases.iter().zip([id + 1, id]) {
            let db = db.clone();
            tasks.push(env.spawn("look", async move {
                balance(&mut db.begin(), table, id).await.unwrap();
            }));
        }
        env.sleep(soon).await;
        for writer in writers {
            writer.commit().await.unwrap();
        }
        for task in tasks {
            task.join().await.unwrap();
        }
    });
    cluster.close();
}
