//! Locks of rows that wait: order, deadlocks, and what is dropped.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::TaskHandle;
use selkie_txn::{
    AbortCause, Database, Direction, Isolation, KeyRange, LockOutcome, LockWait, Protocol,
    RetryPolicy, SessionLimits, Table, Txn, TxnError, key, retry, retry_numbered,
};

use crate::common::{
    ACCOUNTS, BALANCE, Cluster, OPENING, account, add, balance, bank, check, failed_by, insert,
    pay, poll_times, transfer,
};

const WAIT: LockWait = LockWait::Wait;
/// Long enough for a task that can go on to do so.
const A_WHILE: Duration = Duration::from_millis(60);

fn with_bank(test: impl AsyncFn(&Cluster, &[Database], Table)) {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(test(&cluster, &databases, table));
    drop(databases);
    cluster.close();
}

async fn lock(txn: &mut Txn<'_>, table: Table, id: i32) -> Result<(), TxnError> {
    assert_eq!(txn.lock_row(table, &key![id], WAIT).await?, LockOutcome::Held);
    Ok(())
}

/// Runs a client of its own.
fn spawn<F>(db: &Database, client: impl FnOnce(Database) -> F) -> TaskHandle
where
    F: Future<Output = ()> + Send + 'static,
{
    db.engine().env().spawn("client", client(db.clone()))
}

async fn a_while(db: &Database) {
    db.engine().env().sleep(A_WHILE).await;
}

/// Fails unless a row can be locked at once, soon.
async fn until_free(db: &Database, table: Table, id: i32) {
    for _ in 0..2000 {
        let mut txn = db.begin();
        if txn.lock_row(table, &key![id], LockWait::NoWait).await.unwrap() == LockOutcome::Held {
            txn.rollback().await;
            return;
        }
        drop(txn);
        db.engine().env().sleep(Duration::from_millis(2)).await;
    }
    panic!("row {id} stays locked");
}

#[test]
fn waiters_on_both_nodes_get_the_lock_in_the_order_in_which_they_came() {
    with_bank(async |_, databases, table| {
        let mut holder = databases[0].begin();
        lock(&mut holder, table, 7).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut clients = Vec::new();
        for number in 0..4 {
            let order = Arc::clone(&order);
            clients.push(spawn(&databases[number % 2], |db| async move {
                let mut txn = db.begin();
                lock(&mut txn, table, 7).await.unwrap();
                order.lock().push(number);
                txn.commit().await.unwrap();
            }));
            a_while(&databases[0]).await;
        }
        assert!(order.lock().is_empty());
        holder.commit().await.unwrap();
        for client in clients {
            client.join().await.unwrap();
        }
        assert_eq!(*order.lock(), [0, 1, 2, 3]);
        assert_eq!(databases.iter().map(|db| db.stats().lock_waits).sum::<u64>(), 4);
        // The first waited for four times that long, the second for three times, and so on.
        let waited: Duration = databases.iter().map(|db| db.stats().lock_wait_time).sum();
        assert!(waited >= A_WHILE * 8, "{waited:?}");
    });
}

#[test]
fn a_locked_row_is_refused_or_left_out_where_nobody_is_to_wait() {
    with_bank(async |_, databases, table| {
        let mut holder = databases[0].begin();
        assert!(holder.get_locked(table, &key![7], WAIT).await.unwrap().is_some());
        // Again, and one that is not there.
        lock(&mut holder, table, 7).await.unwrap();
        assert!(holder.get_locked(table, &key![-1], WAIT).await.unwrap().is_none());
        let mut other = databases[1].begin();
        for (id, is_locked) in [(7, true), (8, false), (-1, true)] {
            let outcome = other.lock_row(table, &key![id], LockWait::NoWait).await.unwrap();
            assert_eq!(outcome == LockOutcome::NotAvailable, is_locked, "{id}");
        }
        let refused = other.get_locked(table, &key![7], LockWait::NoWait).await.unwrap_err();
        let named = "table account: the row is locked by another transaction (id = I32 7)";
        assert_eq!(refused.to_string(), named);
        let skipped = other.get_locked(table, &key![7], LockWait::SkipLocked).await.unwrap();
        assert!(skipped.is_none());
        assert_eq!(databases[1].stats().lock_refusals, 3, "who leaves rows out is not refused");
        // It goes on, and readers see the row.
        assert_eq!(balance(&mut other, table, 7).await.unwrap(), OPENING);
        other.commit().await.unwrap();
        holder.rollback().await;
        until_free(&databases[1], table, 7).await;
    });
}

#[test]
fn what_cannot_lock_says_so() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut reader = databases[0].begin_to_read();
        let refused = reader.lock_row(table, &key![1], WAIT).await;
        assert!(matches!(refused, Err(TxnError::ReadOnly)));
        assert!(matches!(reader.insist(), Err(TxnError::ReadOnly)));
        let mut txn = databases[0].begin();
        let refused = txn.lock_row(table, &key!["text"], WAIT).await;
        assert!(matches!(refused, Err(TxnError::KeyMismatch { .. })));
        lock(&mut txn, table, 1).await.unwrap();
    });
    drop(databases);
    cluster.close();
    for protocol in [Protocol::TwoPhase, Protocol::Optimistic, Protocol::Timestamp] {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let mut txn = databases[0].begin();
            let refused = txn.lock_row(table, &key![1], WAIT).await;
            assert!(matches!(refused, Err(TxnError::NoRowLocks)), "{protocol}");
            assert!(matches!(txn.insist(), Err(TxnError::NoRowLocks)));
        });
        drop(databases);
        cluster.close();
    }
}

/// Commits that lock nothing wait for one that has locked their row, and for no other.
#[test]
fn a_plain_change_waits_behind_a_lock() {
    with_bank(async |_, databases, table| {
        for node in 0..2 {
            let mut holder = databases[0].begin();
            let row = holder.get_locked(table, &key![7], WAIT).await.unwrap().unwrap();
            let before = row.i64(BALANCE).unwrap();
            let done = Arc::new(AtomicU32::new(0));
            let writer = spawn(&databases[node], |db| {
                let done = Arc::clone(&done);
                async move {
                    retry(db.engine().env(), &RetryPolicy::default(), || async {
                        let mut txn = db.begin();
                        txn.update(table, &key![7], add(1)).await?;
                        txn.commit().await
                    })
                    .await
                    .unwrap();
                    done.store(1, Ordering::SeqCst);
                }
            });
            // The neighbour in the leaf, and an insert and a delete there.
            pay(&databases[1], table, 8, 1).await;
            a_while(&databases[0]).await;
            assert_eq!(done.load(Ordering::SeqCst), 0, "node {node}");
            holder.update(table, &key![7], add(10)).await.unwrap();
            holder.commit().await.unwrap();
            writer.join().await.unwrap();
            let mut txn = databases[1].begin();
            assert_eq!(balance(&mut txn, table, 7).await.unwrap(), before + 11);
        }
        check(&databases[1]).await;
    });
}

/// Leaves have three rows at most: the locked row moves to other leaves, and its leaf is merged.
#[test]
fn a_lock_stays_with_its_row_when_leaves_are_split_and_merged() {
    with_bank(async |_, databases, table| {
        let mut holder = databases[0].begin();
        lock(&mut holder, table, 30).await.unwrap();
        lock(&mut holder, table, 1000).await.unwrap();
        let others = |db: Database| async move {
            for round in 0..2 {
                for id in (1001..1040).chain(900..940) {
                    let mut txn = db.begin();
                    match round {
                        0 => insert(&db, &mut txn, table, id, &account(id)).await.unwrap(),
                        _ => txn.delete(table, &key![id]).await.unwrap(),
                    }
                    txn.commit().await.unwrap();
                }
            }
            for id in (20..30).chain(31..40) {
                let mut txn = db.begin();
                txn.delete(table, &key![id]).await.unwrap();
                txn.commit().await.unwrap();
            }
        };
        others(databases[1].clone()).await;
        let done = Arc::new(AtomicU32::new(0));
        let mut writers = Vec::new();
        for id in [30, 1000] {
            let done = Arc::clone(&done);
            writers.push(spawn(&databases[1], |db| async move {
                let mut txn = db.begin();
                match id {
                    30 => txn.delete(table, &key![id]).await.unwrap(),
                    _ => insert(&db, &mut txn, table, id, &account(id)).await.unwrap(),
                }
                txn.commit().await.unwrap();
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        a_while(&databases[0]).await;
        assert_eq!(done.load(Ordering::SeqCst), 0);
        holder.commit().await.unwrap();
        for writer in writers {
            writer.join().await.unwrap();
        }
        check(&databases[0]).await;
    });
}

async fn in_a_circle(databases: &[Database], table: Table, of: usize) {
    let victims = Arc::new(AtomicU32::new(0));
    let mut clients = Vec::new();
    for number in 0..of {
        let victims = Arc::clone(&victims);
        clients.push(spawn(&databases[number % 2], |db| async move {
            let mut txn = db.begin();
            lock(&mut txn, table, number as i32).await.unwrap();
            a_while(&db).await;
            match lock(&mut txn, table, ((number + 1) % of) as i32).await {
                Ok(()) => txn.commit().await.unwrap(),
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    let TxnError::Deadlock { table, key } = error else { panic!("{error}") };
                    let waited_for = format!("id = I32 {}", (number + 1) % of);
                    assert_eq!((table, key), ("account".to_owned(), waited_for));
                    victims.fetch_add(1, Ordering::SeqCst);
                    txn.rollback().await;
                }
            }
        }));
    }
    for client in clients {
        client.join().await.unwrap();
    }
    assert_eq!(victims.load(Ordering::SeqCst), 1, "of {of}");
}

#[test]
fn of_those_who_wait_in_a_circle_one_gives_up() {
    with_bank(async |_, databases, table| {
        for of in [2, 3, 5] {
            in_a_circle(databases, table, of).await;
        }
        let deadlocks = databases.iter().map(|db| db.stats().aborts.of(AbortCause::Deadlock));
        assert_eq!(deadlocks.sum::<u64>(), 3);
        for id in 0..5 {
            until_free(&databases[0], table, id).await;
        }
    });
}

/// One of the two finds no room in the queue, so it is in none.
#[test]
fn a_circle_through_a_queue_that_is_full_ends() {
    with_bank(async |_, databases, table| {
        let victims = Arc::new(AtomicU32::new(0));
        let mut clients = Vec::new();
        for (number, db) in databases.iter().enumerate().take(2) {
            let victims = Arc::clone(&victims);
            clients.push(spawn(db, move |db| async move {
                let mut txn = db.begin();
                lock(&mut txn, table, number as i32).await.unwrap();
                db.engine().env().sleep(A_WHILE * 2).await;
                txn.set_lock_timeout(Duration::from_secs(5));
                match lock(&mut txn, table, 1 - number as i32).await {
                    Ok(()) => txn.commit().await.unwrap(),
                    Err(error) => {
                        assert!(matches!(error, TxnError::Deadlock { .. }), "{error}");
                        victims.fetch_add(1, Ordering::SeqCst);
                        txn.rollback().await;
                    }
                }
            }));
        }
        a_while(&databases[0]).await;
        // More than there is room for.
        for number in 0..26 {
            clients.push(spawn(&databases[number % 2], move |db| async move {
                let mut txn = db.begin_with(Isolation::ReadCommitted);
                lock(&mut txn, table, 1).await.unwrap();
                txn.commit().await.unwrap();
            }));
        }
        for client in clients {
            client.join().await.unwrap();
        }
        assert_eq!(victims.load(Ordering::SeqCst), 1);
    });
}

/// Each locks its rows in the order of their keys, so that there is no circle; and counts who is
/// between lock and release.
#[test]
fn nobody_gives_up_without_a_circle_and_two_never_hold_one_lock() {
    with_bank(async |_, databases, table| {
        let inside: Arc<Vec<AtomicU32>> = Arc::new((0..4).map(|_| AtomicU32::new(0)).collect());
        let locked = Arc::new(AtomicU64::new(0));
        let mut clients = Vec::new();
        for number in 0..8_usize {
            let (inside, locked) = (Arc::clone(&inside), Arc::clone(&locked));
            clients.push(spawn(&databases[number % 2], |db| async move {
                for round in 0..25_usize {
                    let mut txn = db.begin_with(Isolation::ReadCommitted);
                    let rows: Vec<usize> =
                        (0..4).filter(|row| (number + round * 5 + row * 3) % 4 < 2).collect();
                    for row in &rows {
                        lock(&mut txn, table, *row as i32).await.unwrap();
                        assert_eq!(inside[*row].fetch_add(1, Ordering::SeqCst), 0, "row {row}");
                    }
                    let pause = db.engine().env().random_u64() % 8;
                    if pause == 0 {
                        // Longer than it takes until waiters look for a circle.
                        db.engine().env().sleep(Duration::from_millis(25)).await;
                    }
                    for row in &rows {
                        inside[*row].fetch_sub(1, Ordering::SeqCst);
                        locked.fetch_add(1, Ordering::SeqCst);
                    }
                    txn.commit().await.unwrap();
                }
            }));
        }
        for client in clients {
            client.join().await.unwrap();
        }
        assert!(locked.load(Ordering::SeqCst) >= 8 * 25);
    });
}

#[test]
fn what_is_dropped_leaves_no_lock_and_no_place() {
    with_bank(async |_, databases, table| {
        let mut holder = databases[0].begin();
        lock(&mut holder, table, 7).await.unwrap();
        // Dropped at each await, while it enters, waits, and is entered already.
        for polls in 1..30 {
            let db = &databases[polls % 2];
            let mut txn = db.begin();
            assert!(poll_times(txn.lock_row(table, &key![7], WAIT), polls).await.is_none());
            // The transaction lives on, and has no place in the queue.
            assert_eq!(balance(&mut txn, table, 8).await.unwrap(), OPENING);
            drop(txn);
        }
        a_while(&databases[0]).await;
        holder.rollback().await;
        until_free(&databases[1], table, 7).await;
        let mut dropped = databases[0].begin();
        lock(&mut dropped, table, 7).await.unwrap();
        drop(dropped);
        until_free(&databases[1], table, 7).await;
        // A commit that waits for the lock, and one that releases it, are dropped.
        for polls in 1..20 {
            let mut holder = databases[0].begin();
            lock(&mut holder, table, 9).await.unwrap();
            let mut writer = databases[1].begin();
            writer.update(table, &key![9], add(1)).await.unwrap();
            assert!(poll_times(writer.commit(), polls).await.is_none());
            let _ = poll_times(holder.commit(), polls).await;
            until_free(&databases[1], table, 9).await;
        }
        check(&databases[0]).await;
    });
}

#[test]
fn a_session_keeps_its_locks_while_its_client_thinks() {
    with_bank(async |_, databases, table| {
        let mut session = databases[0].session().unwrap();
        let lock_7 = async |session: &mut selkie_txn::Session| {
            session.run(|txn| Box::pin(async move { lock(txn, table, 7).await })).await
        };
        session.begin(Isolation::ReadCommitted).unwrap();
        lock_7(&mut session).await.unwrap();
        a_while(&databases[0]).await;
        let mut other = databases[1].session().unwrap();
        let lock = Some(Duration::from_millis(30));
        other.set_limits(SessionLimits { lock, ..SessionLimits::default() });
        other.begin(Isolation::Serializable).unwrap();
        let error = lock_7(&mut other).await.unwrap_err();
        assert!(matches!(error, TxnError::LockTimeout { waited, .. } if Some(waited) >= lock));
        assert!(error.is_retryable() && other.is_in_transaction());
        other.rollback().await.unwrap();
        // So does its operation's deadline.
        let operation = Some(Duration::from_millis(30));
        other.set_limits(SessionLimits { operation, ..SessionLimits::default() });
        other.begin(Isolation::Serializable).unwrap();
        let error = lock_7(&mut other).await.unwrap_err();
        assert!(matches!(error, TxnError::DeadlineExceeded { .. }));
        other.rollback().await.unwrap();
        drop(session);
        until_free(&databases[1], table, 7).await;
    });
}

/// Under each isolation, what is read after a wait.
#[test]
fn a_row_is_read_in_its_newest_state_after_the_wait() {
    with_bank(async |_, databases, table| {
        let all = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::ReadCommitted];
        for (isolation, reads_before) in all.into_iter().flat_map(|i| [(i, false), (i, true)]) {
            let mut holder = databases[1].begin();
            lock(&mut holder, table, 7).await.unwrap();
            holder.update(table, &key![7], add(1)).await.unwrap();
            let waiter = spawn(&databases[0], |db| async move {
                let mut txn = db.begin_with(isolation);
                let before = match reads_before {
                    true => balance(&mut txn, table, 7).await.unwrap(),
                    false => balance(&mut txn, table, 40).await.unwrap() - 1,
                };
                let found = txn.get_locked(table, &key![7], WAIT).await;
                let found = found.map(|row| row.unwrap().i64(BALANCE).unwrap());
                match isolation {
                    Isolation::ReadCommitted => {
                        assert!(!reads_before || found.unwrap() == before + 1)
                    }
                    Isolation::Serializable if !reads_before => drop(found.unwrap()),
                    _ => assert!(failed_by(found, AbortCause::Stale), "{isolation:?}"),
                }
                if txn.savepoint().is_ok() {
                    txn.update(table, &key![7], add(-1)).await.unwrap();
                    txn.commit().await.unwrap();
                }
            });
            a_while(&databases[0]).await;
            holder.commit().await.unwrap();
            waiter.join().await.unwrap();
        }
    });
}

/// Workers on two nodes take rows from a queue, and leave out those that others have.
#[test]
fn of_a_queue_of_work_each_row_is_taken_once() {
    with_bank(async |_, databases, table| {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let mut workers = Vec::new();
        for number in 0..4 {
            let taken = Arc::clone(&taken);
            workers.push(spawn(&databases[number % 2], |db| async move {
                loop {
                    let mut txn = db.begin_with(Isolation::ReadCommitted);
                    let mut rows = txn.cursor(table, KeyRange::all(), Direction::Forward).unwrap();
                    let next = txn.next_locked(&mut rows, LockWait::SkipLocked).await.unwrap();
                    let Some(id) = next.map(|row| row.i32(0).unwrap()) else { break };
                    db.engine().env().sleep(Duration::from_millis(1)).await;
                    txn.delete(table, &key![id]).await.unwrap();
                    txn.commit().await.unwrap();
                    taken.lock().push((number, id));
                }
            }));
        }
        for worker in workers {
            worker.join().await.unwrap();
        }
        let mut ids: Vec<i32> = taken.lock().iter().map(|(_, id)| *id).collect();
        ids.sort_unstable();
        // A worker that finds all rows locked ends early: others take the rest.
        assert_eq!(ids, (0..ACCOUNTS).collect::<Vec<_>>());
        check(&databases[0]).await;
    });
}

#[test]
fn ten_thousand_rows_are_locked_and_released() {
    with_bank(async |_, databases, table| {
        let mut txn = databases[0].begin();
        for id in 0..10_000 {
            lock(&mut txn, table, id).await.unwrap();
        }
        let mut other = databases[1].begin();
        for id in [0, 5_000, 9_999] {
            let outcome = other.lock_row(table, &key![id], LockWait::NoWait).await.unwrap();
            assert_eq!(outcome, LockOutcome::NotAvailable);
        }
        txn.commit().await.unwrap();
        for id in [0, 5_000, 9_999] {
            lock(&mut other, table, id).await.unwrap();
        }
    });
}

/// A large transaction beside writers of the rows that it reads.
#[test]
fn a_transaction_that_loses_gets_through_when_it_insists() {
    with_bank(async |_, databases, table| {
        let stop = Arc::new(AtomicU32::new(0));
        let mut writers = Vec::new();
        for number in 0..2_i32 {
            let stop = Arc::clone(&stop);
            writers.push(spawn(&databases[1], |db| async move {
                let (env, mut id) = (db.engine().env().clone(), number);
                while stop.load(Ordering::SeqCst) == 0 {
                    id = (id + 7) % ACCOUNTS;
                    let to = (id + 1) % ACCOUNTS;
                    let moved = transfer(&db, table, id, to, 1).await;
                    assert!(moved.is_ok() || moved.unwrap_err().is_retryable());
                    env.yield_now().await;
                }
            }));
        }
        let db = &databases[0];
        let sum = async |insists: bool| {
            let mut txn = db.begin();
            if insists {
                txn.insist()?;
            }
            let mut total = 0;
            for id in 0..ACCOUNTS {
                total += balance(&mut txn, table, id).await?;
                db.engine().env().sleep(Duration::from_millis(1)).await;
            }
            txn.update(table, &key![0], add(0)).await?;
            txn.commit().await.map(|()| total)
        };
        for _ in 0..5 {
            assert!(sum(false).await.unwrap_err().is_retryable());
        }
        let policy = RetryPolicy::default();
        let env = db.engine().env();
        let total = retry_numbered(env, &policy, |losses| sum(losses > 0)).await.unwrap();
        assert_eq!(total, i64::from(ACCOUNTS) * OPENING);
        // A session does so by itself, and with ranges.
        let mut session = db.session().unwrap();
        let mut losses = 0;
        loop {
            session.begin(Isolation::Serializable).unwrap();
            let ended = session
                .run(|txn| {
                    Box::pin(async move {
                        let mut total = 0;
                        let all = KeyRange::all();
                        txn.scan(table, &all, Direction::Forward, |row| {
                            total += row.i64(BALANCE)?;
                            Ok(std::ops::ControlFlow::Continue(()))
                        })
                        .await?;
                        Ok(total)
                    })
                })
                .await;
            a_while(db).await;
            match (ended, session.commit().await) {
                (Ok(total), Ok(())) => break assert_eq!(total, i64::from(ACCOUNTS) * OPENING),
                _ => losses += 1,
            }
            assert!(losses < 20);
        }
        assert!(losses >= 4, "{losses}");
        stop.store(1, Ordering::SeqCst);
        for writer in writers {
            writer.join().await.unwrap();
        }
        check(db).await;
    });
}
