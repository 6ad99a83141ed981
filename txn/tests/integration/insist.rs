//! Transactions that lose again and again get through: [`Txn::insist`](selkie_txn::Txn::insist),
//! and what sessions do for that.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use selkie_txn::{
    AbortCause, Column, ColumnType, Database, Direction, Isolation, KeyRange, LockOutcome,
    LockWait, NewIndex, Protocol, Session, Table, Txn, TxnError, Value, key,
};

use crate::common::{
    ACCOUNTS, BALANCE, account, add, balance, bank, check, failed_by, insert, pay, poll_times,
};

/// For how long a change of the others may wait for one that insists,
const PATIENCE: Duration = Duration::from_millis(2);
/// and for one that does not, and holds nothing for long.
const LONG_PATIENCE: Duration = Duration::from_millis(200);
/// Losses after which a session insists.
const INSISTS_AFTER: u32 = 4;

/// Losses after which a session that insists must have got through.
const MOST_LOSSES: u32 = 12;

fn with_bank(test: impl AsyncFn(&[Database], Table)) {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(test(&databases, table));
    drop(databases);
    cluster.close();
}

/// Does something, and changes rows from another node whenever that waits, or lets others run. A
/// change that waits is given up.
async fn beside_changes<T>(
    db: &Database,
    table: Table,
    ids: &[i32],
    patience: Duration,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    for _ in 0..50_000 {
        if let Some(done) = poll_times(work.as_mut(), 1).await {
            return done;
        }
        for id in ids {
            let change = async {
                let mut txn = db.begin();
                txn.update(table, &key![*id], add(1)).await?;
                txn.commit().await
            };
            until_one_ends(change, db.engine().env().sleep(patience)).await;
        }
    }
    panic!("it does not end");
}

/// Runs a transaction of a session until it commits, beside changes of rows. How often it lost.
async fn until_done<F>(
    databases: &[Database],
    table: Table,
    ids: &[i32],
    isolation: Isolation,
    work: F,
) -> u32
where
    F: AsyncFn(&mut Session) -> Result<(), TxnError>,
{
    let [here, there] = databases else { panic!("two nodes") };
    let mut session = here.session().unwrap();
    for losses in 0..=MOST_LOSSES {
        let attempt = async {
            session.begin(isolation)?;
            let ended = work(&mut session).await;
            session.commit().await.and(ended)
        };
        let patience = if losses < INSISTS_AFTER { LONG_PATIENCE } else { PATIENCE };
        match beside_changes(there, table, ids, patience, attempt).await {
            Ok(()) => return losses,
            Err(error) => println!("{losses}: {error}"),
        }
    }
    panic!("it has lost {MOST_LOSSES} times");
}

/// Lets the others change rows.
async fn pause(txn: &Txn<'_>, db: &Database) {
    let _ = txn;
    db.engine().env().yield_now().await;
}

#[test]
fn a_session_that_loses_gets_through_with_cursors() {
    with_bank(async |databases, table| {
        let db = databases[0].clone();
        let scan = async |session: &mut Session| {
            let db = db.clone();
            let scan = session.run(|txn| {
                Box::pin(async move {
                    let mut cursor = txn.cursor(table, KeyRange::all(), Direction::Forward)?;
                    let mut rows = 0;
                    while let Some(row) = cursor.next(txn).await? {
                        row.i64(BALANCE)?;
                        rows += 1;
                    }
                    assert_eq!(rows, ACCOUNTS);
                    pause(txn, &db).await;
                    txn.update(table, &key![40], add(0)).await
                })
            });
            scan.await.map(drop)
        };
        let losses = until_done(databases, table, &[0, 30], Isolation::Serializable, scan).await;
        assert!(losses >= INSISTS_AFTER, "{losses}");
        check(&databases[0]).await;
    });
}

#[test]
fn a_session_that_loses_gets_through_with_many_keys() {
    with_bank(async |databases, table| {
        let db = databases[0].clone();
        let read = async |session: &mut Session| {
            let db = db.clone();
            let read = session.run(|txn| {
                Box::pin(async move {
                    let (keys, mut rows) = ([key![30], key![0], key![99]], 0);
                    txn.get_many(table, &keys, |_, row| {
                        rows += usize::from(row.is_some());
                        Ok(std::ops::ControlFlow::Continue(()))
                    })
                    .await?;
                    assert_eq!(rows, 2);
                    pause(txn, &db).await;
                    txn.update(table, &key![40], add(0)).await
                })
            });
            read.await.map(drop)
        };
        let losses = until_done(databases, table, &[0, 30], Isolation::Serializable, read).await;
        assert!(losses >= INSISTS_AFTER, "{losses}");
        check(&databases[0]).await;
    });
}

/// Its snapshot comes after the locks that it has learnt to need.
#[test]
fn a_repeatable_read_session_gets_through_with_several_rows() {
    with_bank(async |databases, table| {
        let db = databases[0].clone();
        let change = async |session: &mut Session| {
            for id in [20, 0, 50] {
                let db = db.clone();
                session
                    .run(|txn| {
                        Box::pin(async move {
                            balance(txn, table, id).await?;
                            pause(txn, &db).await;
                            txn.update(table, &key![id], add(1)).await
                        })
                    })
                    .await?;
            }
            Ok(())
        };
        let all = [0, 20, 50];
        let losses = until_done(databases, table, &all, Isolation::RepeatableRead, change).await;
        assert!(losses >= INSISTS_AFTER, "{losses}");
        check(&databases[0]).await;
    });
}

/// A change of a table that has to look at all rows.
#[test]
fn a_session_that_looks_at_all_rows_to_change_the_table_gets_through() {
    with_bank(async |databases, table| {
        let mut txn = databases[0].begin();
        let new = Column::new("n", ColumnType::I16).nullable().default(Value::I16(4));
        txn.add_column(table, new).await.unwrap();
        txn.commit().await.unwrap();
        let db = databases[0].clone();
        let change = async |session: &mut Session| {
            let db = db.clone();
            let set = session.run(|txn| {
                Box::pin(async move {
                    txn.set_not_null(table, "n").await?;
                    pause(txn, &db).await;
                    Ok(())
                })
            });
            set.await
        };
        let losses = until_done(databases, table, &[0, 30], Isolation::Serializable, change).await;
        assert!(losses >= INSISTS_AFTER, "{losses}");
    });
}

/// Rows that change faster than a batch of them is entered.
#[test]
fn an_index_is_built_beside_rows_that_change_all_the_time() {
    with_bank(async |databases, table| {
        for first in (1_000..2_000).step_by(100) {
            let mut txn = databases[0].begin();
            for id in first..first + 100 {
                insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
            }
            txn.commit().await.unwrap();
        }
        let before = databases[0].stats().aborts.total();
        let built = databases[0].create_index(table, NewIndex::new("late", ["owner", "tag"]));
        let index =
            beside_changes(&databases[1], table, &[0, 1_500], PATIENCE, built).await.unwrap();
        let lost = databases[0].stats().aborts.total() - before;
        let mut rows = 0;
        let mut txn = databases[0].begin_to_read();
        txn.scan_keys(index, &KeyRange::all(), Direction::Forward, |_| {
            rows += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        })
        .await
        .unwrap();
        assert_eq!(rows, ACCOUNTS + 1_000);
        println!("it lost {lost} times");
        assert!(lost < 60, "it lost {lost} times");
    });
}

/// Runs two futures together until one of them has ended.
async fn until_one_ends(a: impl Future, b: impl Future) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(move |cx| match a.as_mut().poll(cx).is_ready() || b.as_mut().poll(cx).is_ready() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// The outputs of two futures that run together.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(move |cx| {
        if of_a.is_none()
            && let Poll::Ready(done) = a.as_mut().poll(cx)
        {
            of_a = Some(done);
        }
        if of_b.is_none()
            && let Poll::Ready(done) = b.as_mut().poll(cx)
        {
            of_b = Some(done);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}

/// A transaction that is run again is as old as its first attempt: it gives up to none that began
/// meanwhile.
#[test]
fn who_has_given_up_in_a_circle_is_older_the_next_time() {
    with_bank(async |databases, table| {
        let db = &databases[0];
        let mut session = db.session().unwrap();
        for gives_up in [true, false, true] {
            // The other one begins first.
            let mut other = db.begin();
            let _ = other.lock_row(table, &key![1], LockWait::Wait).await.unwrap();
            pay(db, table, 40, 1).await;
            session.begin(Isolation::Serializable).unwrap();
            let lock = async |session: &mut Session, id: i32| {
                let lock = session.run(|txn| {
                    Box::pin(async move {
                        txn.lock_row(table, &key![id], LockWait::Wait).await.map(drop)
                    })
                });
                lock.await
            };
            lock(&mut session, 0).await.unwrap();
            let (own, others) = both(lock(&mut session, 1), async {
                let locked = other.lock_row(table, &key![0], LockWait::Wait).await;
                other.rollback().await;
                locked.map(drop)
            })
            .await;
            assert_eq!(failed_by(own, AbortCause::Deadlock), gives_up);
            assert_eq!(failed_by(others, AbortCause::Deadlock), !gives_up);
            // Once it has committed, it is as young as any.
            assert_eq!(session.commit().await.is_err(), gives_up);
            pay(db, table, 40, 1).await;
        }
    });
}

/// Reads a row in a transaction of a session, and changes it from another node, which waits for no
/// lock. Whether that could be done.
async fn leaves_unlocked(session: &mut Session, db: &Database, table: Table) -> bool {
    session.begin(Isolation::Serializable).unwrap();
    let read = session.run(|txn| Box::pin(async move { balance(txn, table, 0).await }));
    read.await.unwrap();
    let mut other = db.begin();
    other.set_lock_timeout(Duration::ZERO);
    other.update(table, &key![0], add(1)).await.unwrap();
    match other.commit().await {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.abort_cause(), Some(AbortCause::LockTimeout), "{error}");
            false
        }
    }
}

/// Locks are given back by a task where nothing waits for that.
async fn until_free(db: &Database, table: Table) {
    for _ in 0..2_000 {
        let mut txn = db.begin();
        let locked = txn.lock_row(table, &key![0], LockWait::NoWait).await.unwrap();
        txn.rollback().await;
        if locked == LockOutcome::Held {
            return;
        }
        db.engine().env().sleep(Duration::from_millis(2)).await;
    }
    panic!("the row stays locked");
}

/// What a session does next is other work, which has lost nothing.
#[test]
fn what_a_program_gives_up_is_no_loss() {
    with_bank(async |databases, table| {
        let [here, there] = databases else { panic!("two nodes") };
        let mut session = here.session().unwrap();
        let write = async |session: &mut Session| {
            let change = session
                .run(|txn| Box::pin(async move { txn.update(table, &key![40], add(0)).await }));
            change.await
        };
        for how in ["abandon", "rollback", "a commit that is dropped"] {
            for _ in 0..INSISTS_AFTER {
                assert!(leaves_unlocked(&mut session, there, table).await, "{how}");
                let changed = write(&mut session).await;
                let ended = session.commit().await;
                assert!(failed_by(changed.and(ended), AbortCause::Stale), "{how}");
            }
            assert!(!leaves_unlocked(&mut session, there, table).await, "{how}");
            match how {
                "abandon" => session.abandon(),
                "rollback" => session.rollback().await.unwrap(),
                _ => {
                    write(&mut session).await.unwrap();
                    // Or it has committed, and that is no loss either.
                    let _ = poll_times(session.commit(), 1).await;
                }
            }
            until_free(there, table).await;
            assert!(leaves_unlocked(&mut session, there, table).await, "{how}");
            session.rollback().await.unwrap();
        }
        check(here).await;
    });
}
