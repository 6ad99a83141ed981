//! Optimistic transactions: what they see of others, and when they learn of it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::future::Future;
use std::ops::ControlFlow;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use selkie_txn::{
    AbortCause, Database, Direction, Isolation, KeyRange, Protocol, RowMut, Table, Txn, TxnError,
    key,
};

use crate::common::{Account, BALANCE, Cluster, OWNER, accounts, check, dump, insert};

const ACCOUNTS: i32 = 60;

fn account(id: i32) -> Account {
    Account { tag: id, owner: format!("{}", id % 9), balance: 10, note: None }
}

/// Two nodes with the accounts, three on a page; all handles are optimistic.
fn cluster() -> (Cluster, Vec<Database>, Table) {
    let cluster = Cluster::start(2, 512);
    let databases = cluster.create(vec![accounts().max_rows_per_page(3)]);
    let databases: Vec<_> =
        databases.into_iter().map(|db| db.with_protocol(Protocol::Optimistic).unwrap()).collect();
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in 0..ACCOUNTS {
            insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
    });
    (cluster, databases, table)
}

fn add(by: i64) -> impl FnOnce(&mut RowMut<'_>) -> Result<(), TxnError> + Send {
    move |row| Ok(row.set_i64(BALANCE, row.i64(BALANCE)? + by)?)
}

async fn balance(txn: &mut Txn<'_>, table: Table, id: i32) -> Result<i64, TxnError> {
    let row = txn.get(table, &key![id]).await?;
    Ok(row.unwrap().i64(BALANCE)?)
}

async fn pay(db: &Database, table: Table, id: i32, by: i64) {
    let mut txn = db.begin();
    txn.update(table, &key![id], add(by)).await.unwrap();
    txn.commit().await.unwrap();
}

fn is_stale<T: std::fmt::Debug>(result: Result<T, TxnError>) -> bool {
    matches!(&result, Err(error @ TxnError::Stale { .. }) if error.is_retryable()
        && error.abort_cause() == Some(AbortCause::Stale))
}

#[test]
fn nobody_sees_what_is_not_committed_and_nothing_is_latched_for_it() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        let before = dump(&databases[1]).await;
        let mut txn = databases[0].begin();
        for id in 0..ACCOUNTS {
            txn.update(table, &key![id], add(5)).await.unwrap();
            txn.update(table, &key![id], |row| Ok(row.set_text(OWNER, "new")?)).await.unwrap();
        }
        txn.delete(table, &key![7]).await.unwrap();
        insert(&databases[0], &mut txn, table, 700, &account(700)).await.unwrap();
        assert_eq!(txn.latched_leaves(), 0);
        assert_eq!(dump(&databases[1]).await, before);
        assert_eq!(balance(&mut txn, table, 3).await.unwrap(), 15);
        assert!(txn.get(table, &key![7]).await.unwrap().is_none());
        let both = insert(&databases[0], &mut txn, table, 700, &account(701)).await;
        assert!(matches!(both, Err(TxnError::Duplicate { .. })), "{both:?}");
        txn.commit().await.unwrap();
        check(&databases[1]).await;
        let mut txn = databases[1].begin();
        assert_eq!(balance(&mut txn, table, 59).await.unwrap(), 15);
        assert_eq!(balance(&mut txn, table, 700).await.unwrap(), 10);
        txn.commit().await.unwrap();
        // Dropped, it was never there.
        let before = dump(&databases[1]).await;
        let mut txn = databases[0].begin();
        txn.delete(table, &key![8]).await.unwrap();
        drop(txn);
        assert_eq!(dump(&databases[1]).await, before);
    });
    cluster.close();
}

#[test]
fn who_has_read_what_others_changed_does_not_commit() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        for other in &databases {
            let stats = databases[0].stats();
            // A lost update.
            let mut txn = databases[0].begin();
            let seen = balance(&mut txn, table, 1).await.unwrap();
            pay(other, table, 1, 1).await;
            txn.update(table, &key![40], |row| Ok(row.set_i64(BALANCE, seen)?)).await.unwrap_or(());
            assert!(is_stale_or_rolled_back(txn.commit().await));
            // Who only reads learns of it, too.
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

#[test]
fn nobody_goes_by_pages_that_were_never_there_together() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        for other in &databases {
            let mut txn = databases[0].begin();
            let one = balance(&mut txn, table, 1).await.unwrap();
            let mut transfer = other.begin();
            transfer.update(table, &key![1], add(-3)).await.unwrap();
            transfer.update(table, &key![50], add(3)).await.unwrap();
            transfer.commit().await.unwrap();
            assert_eq!(one, 10);
            // It would be 3 more than there ever was.
            assert!(is_stale(balance(&mut txn, table, 50).await));
            assert!(matches!(
                txn.commit().await,
                Err(TxnError::RolledBack { cause: AbortCause::Stale })
            ));
            let mut back = other.begin();
            back.update(table, &key![1], add(3)).await.unwrap();
            back.update(table, &key![50], add(-3)).await.unwrap();
            back.commit().await.unwrap();
        }
    });
    cluster.close();
}

/// Leaves that were read before are all looked at again, and one that is latched may have been
/// changed.
#[test]
fn nobody_goes_by_what_was_changed_behind_a_latch_or_three_leaves_ago() {
    let (cluster, databases, table) = cluster();
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

/// What an error says of the data has to be true of one moment, too.
#[test]
fn who_finds_what_was_never_there_is_told_to_try_again() {
    let (cluster, databases, table) = cluster();
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
fn write_skew_and_phantoms_cannot_commit_twice() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        for other in &databases {
            // Each pays for the other.
            let (mut a, mut b) = (databases[0].begin(), other.begin());
            for txn in [&mut a, &mut b] {
                balance(txn, table, 1).await.unwrap();
                balance(txn, table, 50).await.unwrap();
            }
            a.update(table, &key![1], add(-1)).await.unwrap();
            b.update(table, &key![50], add(-1)).await.unwrap();
            a.commit().await.unwrap();
            assert!(is_stale(b.commit().await));
            // Each adds to a range that it found empty.
            let range = KeyRange::between(&key![2000], &key![2999]);
            let (mut a, mut b) = (databases[0].begin(), other.begin());
            assert!(a.first(table, &range).await.unwrap().is_none());
            assert!(b.last(table, &range).await.unwrap().is_none());
            insert(&databases[0], &mut a, table, 2001, &account(2001)).await.unwrap();
            insert(other, &mut b, table, 2900, &account(2900)).await.unwrap();
            a.commit().await.unwrap();
            assert!(b.commit().await.is_err_and(|error| error.is_retryable()));
            let mut txn = databases[0].begin();
            txn.delete(table, &key![2001]).await.unwrap();
            txn.commit().await.unwrap();
        }
        check(&databases[0]).await;
    });
    cluster.close();
}

#[test]
fn gaps_are_read_too() {
    let (cluster, databases, table) = cluster();
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
fn read_committed_reads_what_is_there_and_loses_no_update() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin_with(Isolation::ReadCommitted);
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 10);
        pay(&databases[1], table, 1, 1).await;
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 11);
        txn.update(table, &key![30], add(1)).await.unwrap();
        txn.commit().await.unwrap();
        let mut txn = databases[0].begin_with(Isolation::ReadCommitted);
        txn.update(table, &key![30], add(1)).await.unwrap();
        pay(&databases[1], table, 30, 1).await;
        assert!(is_stale(txn.commit().await));
        let mut txn = databases[1].begin();
        assert_eq!(balance(&mut txn, table, 30).await.unwrap(), 12);
        txn.commit().await.unwrap();
    });
    cluster.close();
}

#[test]
fn a_two_phase_locked_transaction_is_in_the_way() {
    let (cluster, databases, table) = cluster();
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

/// A commit that is dropped at any of its await points has taken place, or has left nothing.
#[test]
fn a_commit_that_is_given_up_is_whole_or_nothing() {
    let (cluster, databases, table) = cluster();
    let (mut whole, mut nothing) = (0, 0);
    for polls in 1..40 {
        let prepared = async {
            // Elsewhere, so that pages have to be fetched.
            let mut txn = databases[1].begin();
            for id in (0..ACCOUNTS).step_by(4) {
                txn.update(table, &key![id], add(1)).await.unwrap();
            }
            txn.commit().await.unwrap();
            let before = dump(&databases[0]).await;
            let mut txn = databases[0].begin();
            for id in 0..ACCOUNTS {
                txn.update(table, &key![id], add(1)).await.unwrap();
            }
            insert(&databases[0], &mut txn, table, 10_000 + polls, &account(10_000 + polls))
                .await
                .unwrap();
            (before, txn)
        };
        let (before, txn) = cluster.runtime.block_on(prepared);
        let (ended, after) = cluster.runtime.block_on(async {
            let mut commit = Box::pin(txn.commit());
            let mut ended = None;
            for _ in 0..polls {
                if let Poll::Ready(result) =
                    commit.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                {
                    ended = Some(result.is_ok());
                    break;
                }
                databases[0].engine().env().sleep(std::time::Duration::from_micros(50)).await;
            }
            drop(commit);
            (ended, dump(&databases[0]).await)
        });
        let rows = after[0].len() - before[0].len();
        assert!(rows <= 1);
        let mut txn = databases[0].begin();
        let added = cluster.runtime.block_on(async {
            let first = balance(&mut txn, table, 1).await.unwrap();
            let last = balance(&mut txn, table, ACCOUNTS - 1).await.unwrap();
            assert_eq!(first, last, "half of it");
            first
        });
        drop(txn);
        assert_eq!(added, 10 + whole + i64::try_from(rows).unwrap());
        if rows == 1 {
            whole += 1;
        } else {
            nothing += 1;
            assert_ne!(ended, Some(true));
            assert_eq!(after, before);
        }
    }
    assert!(whole > 0 && nothing > 0, "{whole} were whole, {nothing} nothing");
    cluster.runtime.block_on(check(&databases[1]));
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
    for _ in 0..100 {
        let mut txn = db.begin();
        if txn.get_for_update(table, &key![id]).await.is_ok() {
            return txn;
        }
        // Somebody was about to let go of it.
        db.engine().env().sleep(Duration::from_millis(1)).await;
    }
    panic!("nobody else is there")
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
    let (cluster, databases, table) = cluster();
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
