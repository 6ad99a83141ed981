//! Tables that change while transactions wait for locks of their rows.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::{Env, TaskHandle};
use selkie_txn::{
    AbortCause, BulkLoadOptions, ColumnType, Database, DatabaseSchema, Isolation, LockOutcome,
    LockWait, Protocol, Table, TableSchema, Txn, TxnError, key,
};

use crate::common::{
    BALANCE, Cluster, OPENING, account, accounts, add, balance, bank, check, failed_by, insert,
};

const WAIT: LockWait = LockWait::Wait;
const ISOLATIONS: [Isolation; 3] =
    [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];

/// Runs a test with each isolation, on a bank of its own.
fn with_each(test: impl AsyncFn(&Cluster, &[Database], Table, Isolation)) {
    for isolation in ISOLATIONS {
        println!("{isolation:?}");
        let (cluster, databases, table) = bank(Protocol::Snapshot);
        cluster.runtime.block_on(test(&cluster, &databases, table, isolation));
        drop(databases);
        cluster.close();
    }
}

async fn lock<'db>(db: &'db Database, table: Table, id: i32) -> Txn<'db> {
    let mut txn = db.begin();
    assert_eq!(txn.lock_row(table, &key![id], WAIT).await.unwrap(), LockOutcome::Held);
    txn
}

/// Waits until so many more locks are waited for.
async fn until_waited(db: &Database, before: u64) {
    for _ in 0..5000 {
        if db.stats().lock_waits > before {
            return;
        }
        db.engine().env().sleep(Duration::from_millis(1)).await;
    }
    panic!("nobody waits");
}

/// A transaction of its own on that node, once it waits for a lock.
async fn waiter<F>(db: &Database, client: impl FnOnce(Database) -> F) -> TaskHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    let before = db.stats().lock_waits;
    let task = db.engine().env().spawn("client", client(db.clone()));
    until_waited(db, before).await;
    task
}

async fn truncate(db: &Database, table: Table) {
    let mut txn = db.begin();
    txn.truncate(table).await.unwrap();
    txn.commit().await.unwrap();
}

/// Gives the pages of dropped trees back, as far as can be in a while.
async fn reclaim(databases: &[Database], env: &Env) -> usize {
    let mut left = 1;
    for _ in 0..300 {
        left = 0;
        for db in databases {
            left = left.max(db.reclaim_dropped().await.unwrap());
        }
        if left == 0 {
            break;
        }
        env.sleep(Duration::from_millis(1)).await;
    }
    left
}

fn is_stale(ended: Result<LockOutcome, TxnError>) {
    assert!(failed_by(ended, AbortCause::Stale));
}

/// All that it has read was validated after a wait for a lock, and once more at its commit.
#[test]
fn who_has_waited_looks_at_its_tables_and_not_at_all_that_it_has_read() {
    const READ: std::ops::Range<i32> = 100..400;
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin();
        for id in READ {
            insert(here, &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let holder = lock(here, table, 7).await;
        let waiter = waiter(there, move |db| async move {
            let misses = || db.engine().stats().misses;
            let mut txn = db.begin();
            for id in READ.step_by(10) {
                assert!(txn.get(table, &key![id]).await.unwrap().is_some());
            }
            let read = misses();
            assert_eq!(txn.lock_row(table, &key![7], WAIT).await.unwrap(), LockOutcome::Held);
            let waited = misses();
            txn.update(table, &key![7], add(1)).await.unwrap();
            txn.commit().await.unwrap();
            println!("{} misses of the wait, {} of the commit", waited - read, misses() - waited);
            assert!(waited - read < 12, "{} misses of the wait", waited - read);
            assert!(misses() - waited >= 15, "the leaves had changed");
        })
        .await;
        // Other rows of the same leaves.
        let mut txn = here.begin();
        for id in READ.step_by(10) {
            txn.update(table, &key![id + 1], add(1)).await.unwrap();
        }
        txn.commit().await.unwrap();
        holder.commit().await.unwrap();
        waiter.join().await.unwrap();
        check(here).await;
    });
    drop(databases);
    cluster.close();
}

/// The pages of the old tree are other pages by the time that the waiter has the lock.
#[test]
fn who_waits_for_a_row_of_a_table_that_is_emptied_is_told() {
    with_each(async |cluster, databases, table, isolation| {
        let [here, there] = databases else { panic!("two nodes") };
        let holder = lock(here, table, 7).await;
        let waiter = waiter(there, move |db| async move {
            let mut txn = db.begin_with(isolation);
            is_stale(txn.lock_row(table, &key![7], WAIT).await);
            // Run again it finds the table as it is.
            drop(txn);
            let mut txn = db.begin_with(isolation);
            assert!(txn.get_locked(table, &key![7], WAIT).await.unwrap().is_none());
            insert(&db, &mut txn, table, 7, &account(70)).await.unwrap();
            txn.commit().await.unwrap();
        })
        .await;
        truncate(here, table).await;
        let left = reclaim(databases, &cluster.runtime.env()).await;
        assert_eq!(left > 0, isolation == Isolation::RepeatableRead, "a snapshot keeps them");
        for id in 100..200 {
            let mut txn = here.begin();
            insert(here, &mut txn, table, id, &account(id)).await.unwrap();
            txn.commit().await.unwrap();
        }
        // It has locked a row of the tree before.
        assert!(failed_by(holder.commit().await, AbortCause::Stale));
        waiter.join().await.unwrap();
        let mut txn = there.begin_to_read();
        assert_eq!(txn.get(table, &key![7]).await.unwrap().unwrap().i32(1).unwrap(), 70);
        drop(txn);
        check(here).await;
    });
}

#[test]
fn a_commit_that_waits_for_a_row_of_a_table_that_is_emptied_is_told() {
    with_each(async |cluster, databases, table, isolation| {
        let [here, there] = databases else { panic!("two nodes") };
        let holder = lock(here, table, 7).await;
        let waiter = waiter(there, move |db| async move {
            let mut txn = db.begin_with(isolation);
            txn.update(table, &key![7], add(1)).await.unwrap();
            assert!(failed_by(txn.commit().await, AbortCause::Stale));
        })
        .await;
        truncate(here, table).await;
        reclaim(databases, &cluster.runtime.env()).await;
        for id in 100..200 {
            let mut txn = here.begin();
            insert(here, &mut txn, table, id, &account(id)).await.unwrap();
            txn.commit().await.unwrap();
        }
        holder.rollback().await;
        waiter.join().await.unwrap();
        check(here).await;
    });
}

/// Freed pages of both nodes become pages that may be used.
async fn can_use_freed_pages_again(databases: &[Database]) -> bool {
    let engine = databases[0].engine();
    for _ in 0..4 {
        let page = engine.allocate().await.unwrap();
        engine.free(page);
    }
    for _ in 0..400 {
        if databases.iter().all(|db| db.engine().unused_lines().2 == 0) {
            return true;
        }
        engine.env().sleep(Duration::from_millis(1)).await;
    }
    false
}

/// A wait may take a minute. The waiter reads no older state, so nothing has to wait with it.
#[test]
fn who_waits_for_a_row_keeps_no_freed_page_from_being_used() {
    with_each(async |_, databases, table, isolation| {
        let [here, there] = databases else { panic!("two nodes") };
        let pin = there.engine().pin();
        assert!(!can_use_freed_pages_again(databases).await, "the test sees a pin");
        drop(pin);
        for is_statement in [false, true] {
            let holder = lock(here, table, 7).await;
            let waiter = waiter(there, move |db| async move {
                let mut txn = db.begin_with(isolation);
                if is_statement {
                    txn.begin_statement().unwrap();
                    balance(&mut txn, table, 8).await.unwrap();
                }
                let row = txn.get_locked(table, &key![7], WAIT).await.unwrap().unwrap();
                assert_eq!(row.i64(BALANCE).unwrap(), OPENING);
                txn.commit().await.unwrap();
            })
            .await;
            assert!(can_use_freed_pages_again(databases).await, "{is_statement}");
            let snapshots = there.engine().stats().snapshots_active;
            assert_eq!(snapshots > 0, isolation == Isolation::RepeatableRead, "{is_statement}");
            holder.commit().await.unwrap();
            waiter.join().await.unwrap();
        }
    });
}

/// Without a wait, too, a lock moves the rest of a statement to a later state. What tables look
/// like there has to be looked up again.
#[test]
fn after_a_lock_a_statement_sees_tables_as_they_are_by_then() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut txn = here.begin_with(Isolation::ReadCommitted);
        txn.begin_statement().unwrap();
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), OPENING);
        let mut change = there.begin();
        change.drop_index(table, "by_tag").await.unwrap();
        change.drop_column(table, "tag").await.unwrap();
        change.commit().await.unwrap();
        let mut change = there.begin();
        change.update(table, &key![1], |row| Ok(row.set_i64(BALANCE - 1, 99)?)).await.unwrap();
        change.commit().await.unwrap();
        // Still the state and the columns of the statement.
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), OPENING);
        let held = txn.lock_row(table, &key![2], WAIT).await.unwrap();
        assert_eq!(held, LockOutcome::Held);
        let row = txn.get(table, &key![1]).await.unwrap().unwrap();
        assert_eq!(row.i64(BALANCE - 1).unwrap(), 99);
        txn.end_statement();
        // It has used two definitions.
        assert!(failed_by(txn.commit().await, AbortCause::Stale));
    });
    drop(databases);
    cluster.close();
}

/// A transaction that has locked a key without a row finds no row there until it ends.
#[test]
fn a_load_of_a_table_waits_for_those_who_have_locked_a_row_of_it() {
    with_each(async |_, databases, _, _| {
        let db = &databases[0];
        let mut txn = db.begin();
        let schema = TableSchema::new("new").column("id", ColumnType::I32).primary_key([0]);
        let table = txn.create_table(schema).await.unwrap();
        txn.commit().await.unwrap();
        db.refresh().await.unwrap();
        databases[1].refresh().await.unwrap();
        let load = async || {
            let mut load = db.bulk_load(table, BulkLoadOptions::default()).await?;
            for id in 0..500 {
                load.push(db.row(table)?.i32(id).finish()?).await?;
            }
            load.finish().await
        };
        let mut holder = lock(&databases[1], table, 7).await;
        let mut loading = pin!(load());
        let mut over = db.engine().env().sleep(Duration::from_millis(1_500));
        poll_fn(|cx| {
            assert!(loading.as_mut().poll(cx).is_pending(), "a row of it is locked");
            over.as_mut().poll(cx)
        })
        .await;
        let found = holder.get(table, &key![7]).await.unwrap();
        assert!(found.is_none(), "a row is there that is locked");
        holder.rollback().await;
        assert_eq!(loading.await.unwrap(), 500);
        // Also those of rows that have come with the load are locked, and found.
        let holder = lock(&databases[1], table, 7).await;
        let mut other = db.begin();
        let outcome = other.lock_row(table, &key![7], LockWait::NoWait).await.unwrap();
        assert_eq!(outcome, LockOutcome::NotAvailable);
        holder.commit().await.unwrap();
    });
}

/// More than a page of 512 bytes has places for.
#[test]
fn sixty_waiters_on_both_nodes_get_the_lock_in_the_order_in_which_they_came() {
    let cluster = Cluster::start(2, 2048);
    let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        let holder = lock(&databases[0], table, 7).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut clients = Vec::new();
        for number in 0..60 {
            let order = Arc::clone(&order);
            let client = async move |db: Database| {
                let txn = lock(&db, table, 7).await;
                order.lock().push(number);
                txn.commit().await.unwrap();
            };
            clients.push(waiter(&databases[number % 2], client).await);
        }
        holder.commit().await.unwrap();
        for client in clients {
            client.join().await.unwrap();
        }
        assert_eq!(*order.lock(), (0..60).collect::<Vec<_>>());
    });
    drop(databases);
    cluster.close();
}
