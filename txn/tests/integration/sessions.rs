//! [`Session`](selkie_txn::Session): transactions that own what they need, and latch nothing while
//! their client thinks.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::time::Duration;

use selkie_engine::GAddr;
use selkie_txn::{
    AbortCause, Database, Isolation, KeyRange, LockWait, Protocol, RetryPolicy, RowMut, Session,
    SessionLimits, Table, TxnError, key, retry,
};

use crate::common::{
    ACCOUNTS, BALANCE, Cluster, NOTE, OPENING, account, add, balance, bank, check, failed_by,
    insert, pay, poll_times, two_phase,
};

const DEFERRED: [Protocol; 3] = [Protocol::Snapshot, Protocol::Optimistic, Protocol::Timestamp];

/// Whether a session was rolled back for this cause, and is in that transaction still.
fn is_rolled_back(session: &Session, error: &TxnError, cause: AbortCause) -> bool {
    let is_it = matches!(error, TxnError::RolledBack { cause: own } if *own == cause);
    is_it && session.is_in_transaction()
}

async fn balance_of(session: &mut Session, table: Table, id: i32) -> Result<i64, TxnError> {
    session.run(|txn| Box::pin(async move { balance(txn, table, id).await })).await
}

async fn add_to(session: &mut Session, table: Table, id: i32, by: i64) -> Result<(), TxnError> {
    session
        .run(|txn| Box::pin(async move { txn.update(table, &key![id], add(by)).await.map(drop) }))
        .await
}

async fn total(db: &Database, table: Table) -> i64 {
    let (mut txn, mut total) = (db.begin_to_read(), 0);
    txn.scan(table, &KeyRange::all(), selkie_txn::Direction::Forward, |row| {
        total += row.i64(BALANCE)?;
        Ok(std::ops::ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    total
}

/// The addresses of a table's leaves.
async fn leaves(db: &Database, table: Table) -> Vec<GAddr> {
    let tree = db.tree(table).unwrap();
    let mut leaves = Vec::new();
    for id in 0..ACCOUNTS {
        let _pin = db.engine().pin();
        leaves.push(tree.locate(db.engine(), &key![id]).await.unwrap());
    }
    leaves.dedup();
    leaves
}

#[test]
fn nothing_is_latched_while_a_client_thinks() {
    for protocol in DEFERRED {
        println!("{protocol}");
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let mut session = databases[0].session().unwrap();
            session.begin(Isolation::Serializable).unwrap();
            let found = balance_of(&mut session, table, 0).await.unwrap();
            assert_eq!(found, OPENING);
            add_to(&mut session, table, 1, 5).await.unwrap();
            let new = account(5_000);
            let db = databases[0].clone();
            session
                .run(|txn| Box::pin(async move { insert(&db, txn, table, 5_000, &new).await }))
                .await
                .unwrap();
            // Another node latches every leaf at once, waiting for none.
            for leaf in leaves(&databases[1], table).await {
                for _ in 0..100 {
                    match databases[1].engine().try_exclusive(leaf).await {
                        Ok(_) => break,
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                    databases[1].engine().env().sleep(Duration::from_millis(1)).await;
                }
                drop(databases[1].engine().try_exclusive(leaf).await.unwrap());
            }
            assert_eq!(balance_of(&mut session, table, 1).await.unwrap(), OPENING + 5);
            session.commit().await.unwrap();
            assert!(!session.is_in_transaction());
            let mut txn = databases[1].begin();
            assert_eq!(balance(&mut txn, table, 1).await.unwrap(), OPENING + 5);
            txn.commit().await.unwrap();
            check(&databases[1]).await;
        });
        drop(databases);
        cluster.close();
    }
}

/// The row that it changes is one of a leaf in which another node changes its neighbours.
#[test]
fn a_client_that_thinks_conflicts_with_changes_of_its_rows_only() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut session = databases[0].session().unwrap();
        for (other, conflicts) in [(1, false), (0, true)] {
            session.begin(Isolation::Serializable).unwrap();
            add_to(&mut session, table, 0, 1).await.unwrap();
            pay(&databases[1], table, other, 10).await;
            let ended = session.commit().await;
            assert_eq!(failed_by(ended, AbortCause::Stale), conflicts, "row {other}");
            assert!(!session.is_in_transaction());
        }
        assert_eq!(total(&databases[1], table).await, i64::from(ACCOUNTS) * OPENING + 21);
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_snapshot_stays_while_a_client_thinks() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut reading = databases[0].session().unwrap();
        reading.begin_to_read().unwrap();
        let mut repeatable = databases[0].session().unwrap();
        repeatable.begin(Isolation::RepeatableRead).unwrap();
        let mut committed = databases[0].session().unwrap();
        committed.begin(Isolation::ReadCommitted).unwrap();
        for session in [&mut reading, &mut repeatable, &mut committed] {
            assert_eq!(balance_of(session, table, 3).await.unwrap(), OPENING);
        }
        for id in 0..ACCOUNTS {
            pay(&databases[1], table, id, 7).await;
        }
        for id in [3, 20] {
            assert_eq!(balance_of(&mut reading, table, id).await.unwrap(), OPENING);
            assert_eq!(balance_of(&mut repeatable, table, id).await.unwrap(), OPENING);
            assert_eq!(balance_of(&mut committed, table, id).await.unwrap(), OPENING + 7);
        }
        let refused = add_to(&mut reading, table, 3, 1).await.unwrap_err();
        assert!(matches!(refused, TxnError::ReadOnly), "{refused}");
        for session in [&mut reading, &mut repeatable, &mut committed] {
            session.commit().await.unwrap();
        }
    });
    drop(databases);
    cluster.close();
}

#[test]
fn savepoints_and_errors_of_the_caller_leave_the_session_in_its_transaction() {
    for protocol in DEFERRED {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let mut session = databases[0].session().unwrap();
            session.begin(Isolation::Serializable).unwrap();
            add_to(&mut session, table, 0, 1).await.unwrap();
            let savepoint =
                session.run(|txn| Box::pin(async move { txn.savepoint() })).await.unwrap();
            add_to(&mut session, table, 0, 100).await.unwrap();
            add_to(&mut session, table, 1, 100).await.unwrap();
            let gone = session
                .run(|txn| Box::pin(async move { txn.delete(table, &key![99_999]).await }))
                .await
                .unwrap_err();
            assert!(matches!(gone, TxnError::NotFound { .. }), "{gone}");
            session.run(|txn| Box::pin(async move { txn.rollback_to(savepoint) })).await.unwrap();
            assert_eq!(balance_of(&mut session, table, 0).await.unwrap(), OPENING + 1);
            session.commit().await.unwrap();
            assert_eq!(total(&databases[0], table).await, i64::from(ACCOUNTS) * OPENING + 1);

            // One transaction at a time, and none without one.
            assert!(matches!(session.rollback().await, Err(TxnError::NoTransaction)));
            assert!(matches!(session.commit().await, Err(TxnError::NoTransaction)));
            let none = add_to(&mut session, table, 0, 1).await;
            assert!(matches!(none, Err(TxnError::NoTransaction)));
            session.begin(Isolation::Serializable).unwrap();
            add_to(&mut session, table, 0, 1).await.unwrap();
            let before = databases[0].stats().aborts.total();
            for second in [session.begin(Isolation::Serializable), session.begin_to_read()] {
                assert!(matches!(second, Err(TxnError::InTransaction)));
            }
            assert_eq!(databases[0].stats().aborts.total(), before, "none was begun");
            assert_eq!(balance_of(&mut session, table, 0).await.unwrap(), OPENING + 2);
            session.rollback().await.unwrap();

            // A session that is dropped in its transaction has changed nothing.
            session.begin(Isolation::Serializable).unwrap();
            add_to(&mut session, table, 0, 1).await.unwrap();
            let before = databases[0].stats().aborts.total();
            drop(session);
            assert_eq!(databases[0].stats().aborts.total(), before + 1);
            assert_eq!(total(&databases[0], table).await, i64::from(ACCOUNTS) * OPENING + 1);
        });
        drop(databases);
        cluster.close();
    }
}

/// Dropped at every await, of an operation and of the commit.
#[test]
fn one_end_in_sixteen_of_a_session_lets_others_run() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut session = databases[0].session().unwrap();
        let mut yields = Vec::new();
        for number in 1..=32 {
            session.begin(Isolation::ReadCommitted).unwrap();
            add_to(&mut session, table, 0, 1).await.unwrap();
            let end = if number % 2 == 0 {
                poll_times(session.rollback(), 1).await
            } else {
                poll_times(session.commit(), 1).await
            };
            if end.map(Result::unwrap).is_none() {
                yields.push(number);
            }
        }
        assert_eq!(yields, [16, 32]);
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_session_survives_the_drop_of_its_futures() {
    for protocol in DEFERRED {
        println!("{protocol}");
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let mut session = databases[0].session().unwrap();
            let (mut paid, mut was_dropped) = (0, [false; 2]);
            for polls in 0..40 {
                // The page is at the other node: the operation waits. A commit that was dropped may
                // hold it a little longer.
                let env = databases[1].engine().env();
                let policy = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
                let paying = async || {
                    let mut txn = databases[1].begin();
                    txn.update(table, &key![0], add(1)).await?;
                    txn.commit().await
                };
                retry(env, &policy, paying).await.unwrap();
                paid += 1;
                session.begin(Isolation::Serializable).unwrap();
                let operation = add_to(&mut session, table, 0, 10);
                match poll_times(operation, polls).await {
                    Some(done) => done.unwrap(),
                    None if polls > 0 => {
                        was_dropped[0] = true;
                        let next = add_to(&mut session, table, 0, 10).await.unwrap_err();
                        let interrupted = AbortCause::Interrupted;
                        assert!(is_rolled_back(&session, &next, interrupted), "{next}");
                        session.rollback().await.unwrap();
                        continue;
                    }
                    None => {
                        // It has not begun.
                        session.rollback().await.unwrap();
                        continue;
                    }
                }
                // Now that the other node reads the page, the commit waits for it. It reads the
                // tree itself, as no transaction and in no order.
                let tree = databases[1].tree(table).unwrap();
                let read = tree.get_with(databases[1].engine(), &key![0], <[u8]>::len).await;
                assert!(read.unwrap().is_some());
                let committed = poll_times(session.commit(), polls / 2).await;
                was_dropped[1] |= committed.is_none();
                assert!(!session.is_in_transaction() || polls < 2);
                if session.is_in_transaction() {
                    session.rollback().await.unwrap();
                }
                let expected = i64::from(ACCOUNTS) * OPENING + paid;
                let now = total(&databases[0], table).await;
                match committed {
                    Some(done) => {
                        done.unwrap();
                        assert_eq!(now, expected + 10);
                    }
                    None => assert!(now == expected || now == expected + 10, "{now} {expected}"),
                }
                paid += now - expected;
            }
            assert_eq!(was_dropped, [true; 2], "an operation and a commit were dropped half-way");
            check(&databases[0]).await;
        });
        drop(databases);
        cluster.close();
    }
}

#[test]
fn operations_and_transactions_end_at_their_deadlines() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let env = databases[0].engine().env().clone();
        let mut session = databases[0].session().unwrap();
        let limit = Duration::from_millis(150);
        session.set_limits(SessionLimits {
            operation: Some(limit),
            ..SessionLimits::default()
        });
        session.begin(Isolation::Serializable).unwrap();
        add_to(&mut session, table, 10, 1).await.unwrap();
        // Another node holds the leaf for longer.
        let leaf = leaves(&databases[1], table).await[0];
        let held = databases[1].engine().exclusive(leaf).await.unwrap();
        let started = env.now();
        let late = balance_of(&mut session, table, 0).await.unwrap_err();
        let is_operation =
            |error: &TxnError| matches!(error, TxnError::DeadlineExceeded { what: "operation", .. });
        assert!(is_operation(&late), "{late}");
        assert!(env.now() - started >= limit);
        drop(held);
        let next = balance_of(&mut session, table, 0).await.unwrap_err();
        assert!(is_rolled_back(&session, &next, AbortCause::Interrupted), "{next}");
        session.rollback().await.unwrap();

        // It idles for longer than the transaction may take.
        let transaction = Some(limit);
        session.set_limits(SessionLimits {
            transaction,
            ..SessionLimits::default()
        });
        for commits in [true, false] {
            session.begin(Isolation::Serializable).unwrap();
            add_to(&mut session, table, 10, 1).await.unwrap();
            env.sleep(limit + Duration::from_millis(20)).await;
            let late = match commits {
                true => session.commit().await.unwrap_err(),
                false => balance_of(&mut session, table, 10).await.unwrap_err(),
            };
            let is_transaction =
                matches!(late, TxnError::DeadlineExceeded { what: "transaction", limit: own } if own == limit);
            assert!(is_transaction, "{late}");
            assert_eq!(session.is_in_transaction(), !commits);
        }
        // Once it is rolled back, that is what it says, whatever the limits are by then.
        session.set_limits(SessionLimits {
            operation: Some(Duration::ZERO),
            ..SessionLimits::default()
        });
        let next = balance_of(&mut session, table, 10).await.unwrap_err();
        assert!(is_rolled_back(&session, &next, AbortCause::Interrupted), "{next}");
        session.set_limits(SessionLimits {
            transaction,
            ..SessionLimits::default()
        });
        session.rollback().await.unwrap();
        session.begin(Isolation::Serializable).unwrap();
        add_to(&mut session, table, 10, 1).await.unwrap();
        session.commit().await.unwrap();
        assert_eq!(total(&databases[0], table).await, i64::from(ACCOUNTS) * OPENING + 1);
    });
    drop(databases);
    cluster.close();
}

/// A change takes no lock: it meets that of another, on the other node, in its commit.
#[test]
fn a_commit_that_waits_for_a_lock_ends_with_its_time_or_when_it_is_told_to() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let env = databases[0].engine().env().clone();
        let mut holder = databases[1].begin();
        for id in [0, 1, 2] {
            let _ = holder.lock_row(table, &key![id], LockWait::Wait).await.unwrap();
        }
        let mut session = databases[0].session().unwrap();
        // Room for the operations before the commit.
        let limit = Duration::from_millis(500);
        let none = SessionLimits::default();
        let cases = [
            ("operation", SessionLimits { operation: Some(limit), ..none }),
            ("transaction", SessionLimits { transaction: Some(limit), ..none }),
            ("lock", SessionLimits { lock: Some(limit), ..none }),
            ("stop", none),
        ];
        let waits = || databases[0].stats().lock_waits;
        for (what, limits) in cases {
            session.set_limits(limits);
            session.begin(Isolation::Serializable).unwrap();
            for id in [0, 1, 2, 3] {
                add_to(&mut session, table, id, 1).await.unwrap();
            }
            let before = waits();
            let stop = async {
                while what != "stop" || waits() == before {
                    env.sleep(Duration::from_millis(1)).await;
                }
            };
            let error = session.commit_until(stop).await.unwrap_err();
            let is_it = match &error {
                TxnError::DeadlineExceeded { what: own, limit: of } => *own == what && *of == limit,
                // No longer than it was to wait: not for as long as it would without that.
                TxnError::LockTimeout { waited, .. } => {
                    what == "lock" && (limit..Duration::from_secs(60)).contains(waited)
                }
                TxnError::CommitStopped => what == "stop",
                _ => false,
            };
            assert!(is_it, "{what}: {error}");
            assert!(waits() > before, "{what}");
            assert!(!session.is_in_transaction());
        }
        session.set_limits(none);
        // It has left the queues, and none of its changes.
        holder.commit().await.unwrap();
        session.begin(Isolation::Serializable).unwrap();
        add_to(&mut session, table, 0, 1).await.unwrap();
        session.commit().await.unwrap();
        assert_eq!(total(&databases[1], table).await, i64::from(ACCOUNTS) * OPENING + 1);
        check(&databases[0]).await;
    });
    drop(databases);
    cluster.close();
}

/// Who gives a commit up before there is something to wait for is heard when there is.
#[test]
fn a_commit_that_is_told_to_stop_before_it_waits_goes_on_until_it_would() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut holder = databases[1].begin();
        let _ = holder.lock_row(table, &key![0], LockWait::Wait).await.unwrap();
        let mut session = databases[0].session().unwrap();
        for (id, waits) in [(0, true), (1, false)] {
            session.begin(Isolation::Serializable).unwrap();
            add_to(&mut session, table, id, 1).await.unwrap();
            let ended = session.commit_until(std::future::ready(())).await;
            match waits {
                true => assert!(matches!(ended, Err(TxnError::CommitStopped)), "{ended:?}"),
                false => ended.unwrap(),
            }
            assert!(!session.is_in_transaction());
        }
        holder.rollback().await;
        assert_eq!(total(&databases[1], table).await, i64::from(ACCOUNTS) * OPENING + 1);
        // It has left the queue.
        pay(&databases[0], table, 0, 1).await;
        check(&databases[0]).await;
    });
    drop(databases);
    cluster.close();
}

/// A task of its own for each client, as a server has.
#[test]
fn many_sessions_move_between_tasks() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let env = databases[0].engine().env().clone();
        let mut idle = Vec::new();
        for id in 0..ACCOUNTS {
            let mut session = databases[(id % 2) as usize].session().unwrap();
            session.begin(Isolation::Serializable).unwrap();
            add_to(&mut session, table, id, 1).await.unwrap();
            idle.push((id, session));
        }
        let long = |row: &mut RowMut<'_>| Ok(row.set_text(NOTE, &"n".repeat(60))?);
        // All leaves split under them.
        for id in 0..ACCOUNTS {
            let mut txn = databases[0].begin();
            insert(&databases[0], &mut txn, table, 10_000 - id, &account(10_000 - id))
                .await
                .unwrap();
            txn.update(table, &key![10_000 - id], long).await.unwrap();
            txn.commit().await.unwrap();
        }
        let tasks: Vec<_> = idle
            .into_iter()
            .map(|(id, mut session)| {
                env.spawn("client", async move {
                    assert_eq!(balance_of(&mut session, table, id).await.unwrap(), OPENING + 1);
                    session.commit().await.unwrap();
                })
            })
            .collect();
        for task in tasks {
            task.join().await.unwrap();
        }
        assert_eq!(total(&databases[0], table).await, i64::from(ACCOUNTS) * (2 * OPENING + 1));
        check(&databases[1]).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn two_phase_locking_has_no_sessions() {
    let cluster = Cluster::start(1, 512);
    let databases = cluster.create(two_phase(vec![crate::common::accounts()]));
    let refused = databases[0].session().map(drop).unwrap_err();
    assert!(matches!(refused, TxnError::NoSessions { protocol: Protocol::TwoPhase }), "{refused}");
    let session = databases[0].clone().with_protocol(Protocol::Optimistic).unwrap().session();
    drop(session.unwrap());
    drop(databases);
    cluster.close();
}

async fn a_while(db: &Database, millis: u64) {
    db.engine().env().sleep(Duration::from_millis(millis)).await;
}

const IDLE: Duration = Duration::from_millis(50);

/// Nothing is asked of the session meanwhile: the row is free, and the snapshot ends, by itself.
#[test]
fn a_transaction_that_idles_too_long_is_ended_without_its_client() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let [here, there] = &databases[..] else { panic!("two nodes") };
    cluster.runtime.block_on(async {
        let mut session = here.session().unwrap();
        assert_eq!(session.limits().idle, None, "off unless it is asked for");
        session.set_limits(SessionLimits { idle: Some(IDLE), ..SessionLimits::default() });
        for (round, ending) in ["commit", "rollback", "drop"].into_iter().enumerate() {
            session.begin(Isolation::RepeatableRead).unwrap();
            let _ = balance_of(&mut session, table, 3).await.unwrap();
            add_to(&mut session, table, 4, 1_000).await.unwrap();
            session
                .run(|txn| {
                    Box::pin(async move {
                        let wait = selkie_txn::LockWait::Wait;
                        txn.lock_row(table, &key![5], wait).await.map(drop)
                    })
                })
                .await
                .unwrap();
            let mut other = there.begin();
            let waited = other.lock_row(table, &key![5], selkie_txn::LockWait::Wait).await;
            assert_eq!(waited.unwrap(), selkie_txn::LockOutcome::Held);
            other.commit().await.unwrap();
            assert_eq!(here.engine().stats().snapshots_active, 0);
            let ended = here.stats().aborts.of(AbortCause::IdleTimeout);
            assert_eq!(ended, round as u64 + 1);
            a_while(here, 20).await;
            assert!(session.is_in_transaction(), "until it is told");
            assert!(matches!(session.begin_to_read(), Err(TxnError::InTransaction)));
            match ending {
                "commit" => {
                    let error = session.commit().await.unwrap_err();
                    assert!(error.is_retryable(), "{error}");
                    let TxnError::IdleTooLong { limit, idled } = error else { panic!("{error}") };
                    assert!(limit == IDLE && idled >= IDLE && idled < IDLE * 100, "{idled:?}");
                }
                "rollback" => {
                    let error = balance_of(&mut session, table, 3).await.unwrap_err();
                    let text = error.to_string();
                    assert!(text.ends_with("(allowed: 50ms)"), "{text}");
                    let error = balance_of(&mut session, table, 3).await.unwrap_err();
                    assert!(is_rolled_back(&session, &error, AbortCause::IdleTimeout), "{error}");
                    session.rollback().await.unwrap();
                }
                _ => drop(session),
            }
            session = here.session().unwrap();
            session.set_limits(SessionLimits { idle: Some(IDLE), ..SessionLimits::default() });
        }
        assert_eq!(total(there, table).await, i64::from(ACCOUNTS) * OPENING);
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_transaction_that_does_something_now_and_then_goes_on() {
    for protocol in DEFERRED {
        let (cluster, databases, table) = bank(protocol);
        let db = &databases[0];
        cluster.runtime.block_on(async {
            let mut session = db.session().unwrap();
            let idle = Some(Duration::from_millis(400));
            session.set_limits(SessionLimits { idle, ..SessionLimits::default() });
            session.begin(Isolation::Serializable).unwrap();
            for _ in 0..6 {
                add_to(&mut session, table, 1, 1).await.unwrap();
                a_while(db, 100).await;
            }
            session.commit().await.unwrap();
            // Without one in progress nothing is ended, nor where there is no limit.
            a_while(db, 450).await;
            session.set_limits(SessionLimits::default());
            session.begin(Isolation::Serializable).unwrap();
            add_to(&mut session, table, 1, 1).await.unwrap();
            a_while(db, 450).await;
            session.commit().await.unwrap();
            assert_eq!(total(db, table).await, i64::from(ACCOUNTS) * OPENING + 7);
            assert_eq!(db.stats().aborts.of(AbortCause::IdleTimeout), 0);
        });
        drop(databases);
        cluster.close();
    }
}

/// The limit of the whole transaction bounds how old a snapshot gets, whatever the client does.
#[test]
fn a_snapshot_gets_no_older_than_the_transaction_may() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let mut session = db.session().unwrap();
        let transaction = Some(Duration::from_millis(150));
        session.set_limits(SessionLimits { transaction, ..SessionLimits::default() });
        session.begin_to_read().unwrap();
        for _ in 0..2 {
            balance_of(&mut session, table, 3).await.unwrap();
            assert_eq!(db.engine().stats().snapshots_active, 1);
            a_while(db, 30).await;
        }
        for _ in 0..1000 {
            if db.engine().stats().snapshots_active == 0 {
                break;
            }
            a_while(db, 5).await;
        }
        assert_eq!(db.engine().stats().snapshots_active, 0, "nobody has asked the session");
        let error = balance_of(&mut session, table, 3).await.unwrap_err();
        assert!(matches!(error, TxnError::DeadlineExceeded { what: "transaction", .. }), "{error}");
        session.rollback().await.unwrap();
    });
    drop(databases);
    cluster.close();
}
