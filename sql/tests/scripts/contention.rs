//! Sessions that change one row at a time, and those that wait for one.

use std::time::Duration;

use selkie_sql::{Session, TransactionState};
use selkie_txn::{LockWait, Value};

use super::{with_database, with_nodes};

/// Runs a statement until others do not make it fail.
async fn again(session: &mut Session, sql: &str) -> selkie_sql::Outcome {
    for _ in 0..1_000 {
        match session.execute(sql).await {
            Ok(mut outcomes) => return outcomes.pop().unwrap(),
            Err(error) => {
                assert!(error.is_retryable(), "{sql}: {error}");
                if session.state() != TransactionState::Idle {
                    session.execute("rollback").await.unwrap();
                }
            }
        }
    }
    panic!("{sql}: fails again and again");
}

/// Sessions that count up one row: by UPDATE, and by SELECT FOR UPDATE with an UPDATE of what it
/// gave, under read committed.
#[test]
fn no_update_is_lost() {
    const ROUNDS: i64 = 60;
    with_database(async |database| {
        let mut first = Session::new(database, "tester", || 0).unwrap();
        let table = "create table c (id integer primary key, n integer, m integer)";
        first.execute(table).await.unwrap();
        first.execute("insert into c values (1, 0, 0)").await.unwrap();
        let env = database.engine().env().clone();
        let tasks: Vec<_> = (0..3)
            .map(|_| {
                let mut session = Session::new(database, "tester", || 0).unwrap();
                env.spawn("client", async move {
                    for _ in 0..ROUNDS {
                        again(&mut session, "update c set n = n + 1 where id = 1").await;
                        loop {
                            session.execute("begin").await.unwrap();
                            let read = "select m from c where id = 1 and m >= 0 for update";
                            let Ok(found) = session.execute(read).await else {
                                session.execute("rollback").await.unwrap();
                                continue;
                            };
                            let selkie_sql::Datum::I32(m) = found[0].rows[0][0] else { panic!() };
                            let write = format!("update c set m = {} where id = 1", m + 1);
                            let done = session.execute(&write).await.is_ok();
                            let ended = session.execute("commit").await;
                            if done && ended.is_ok_and(|ended| ended[0].tag == "COMMIT") {
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join().await.unwrap();
        }
        let found = first.execute("select n, m from c").await.unwrap();
        let counts = format!("{:?}", found[0].rows);
        assert_eq!(counts, format!("[[I32({0}), I32({0})]]", 3 * ROUNDS));
    });
}

/// As in PostgreSQL, a change under read committed waits for others of the same row, and goes on
/// with what they have left.
#[test]
fn transactions_that_change_one_row_wait_for_each_other_and_none_fails() {
    with_database(async |database| {
        let mut first = Session::new(database, "tester", || 0).unwrap();
        first.execute("create table c (id int primary key, n int, m int)").await.unwrap();
        first.execute("insert into c values (1, 0, 0), (2, 0, 0)").await.unwrap();
        let env = database.engine().env().clone();
        let work = |_| {
            let database = database.clone();
            env.spawn("changer", async move {
                let mut session = Session::new(&database, "tester", || 0).unwrap();
                for _ in 0..25 {
                    for sql in [
                        "begin",
                        "update c set n = n + 1 where id = 1",
                        "update c set m = m + 1 where m >= 0 and id = 2",
                        "commit",
                    ] {
                        session.execute(sql).await.unwrap();
                    }
                }
            })
        };
        let workers: Vec<_> = (0..4).map(work).collect();
        for worker in workers {
            worker.join().await.unwrap();
        }
        let found = first.execute("select n, m from c order by id").await.unwrap();
        let rows = format!("{:?}", found[0].rows);
        assert_eq!(rows, "[[I32(100), I32(0)], [I32(0), I32(100)]]");
    });
}

/// Statements of their own, which look for their row by something else than its key: each is run
/// again when it has lost to others, and gets through.
#[test]
fn statements_that_change_one_row_all_get_through() {
    with_nodes(2, async |databases| {
        let mut first = Session::new(&databases[0], "tester", || 0).unwrap();
        first.execute("create table c (id int primary key, n int, m int)").await.unwrap();
        first.execute("insert into c values (1, 0, 0), (2, 0, 5)").await.unwrap();
        let env = databases[0].engine().env().clone();
        let work = |worker: usize| {
            let database = databases[worker % 2].clone();
            env.spawn("changer", async move {
                let mut session = Session::new(&database, "tester", || 0).unwrap();
                let level = "set default_transaction_isolation = 'serializable'";
                session.execute(level).await.unwrap();
                for _ in 0..25 {
                    session.execute("update c set n = n + 1 where m >= 0").await.unwrap();
                }
            })
        };
        let workers: Vec<_> = (0..8).map(work).collect();
        for worker in workers {
            worker.join().await.unwrap();
        }
        let found = first.execute("select n from c order by id").await.unwrap();
        assert_eq!(format!("{:?}", found[0].rows), "[[I32(200)], [I32(200)]]");
    });
}

/// Also those of a row that is not there yet.
#[test]
fn transactions_that_insert_or_change_one_row_wait_for_each_other_and_none_fails() {
    with_database(async |database| {
        let mut first = Session::new(database, "tester", || 0).unwrap();
        let table = "create table c (id int primary key, name text unique, n int)";
        first.execute(table).await.unwrap();
        first.execute("insert into c values (1, 'a', 0)").await.unwrap();
        let env = database.engine().env().clone();
        let work = |worker: i32| {
            let database = database.clone();
            env.spawn("changer", async move {
                let mut session = Session::new(&database, "tester", || 0).unwrap();
                for round in 0..25 {
                    // One by its primary key, one by another.
                    let own = 1_000 * worker + round;
                    for row in [
                        "2, 'b', 1) on conflict (id)",
                        &format!("{own}, 'a', 1) on conflict (name)"),
                    ] {
                        session.execute("begin").await.unwrap();
                        let sql = format!("insert into c values ({row} do update set n = c.n + 1");
                        session.execute(&sql).await.unwrap();
                        session.execute("commit").await.unwrap();
                    }
                }
            })
        };
        let workers: Vec<_> = (1..5).map(work).collect();
        for worker in workers {
            worker.join().await.unwrap();
        }
        let found = first.execute("select id, n from c order by id").await.unwrap();
        let rows = format!("{:?}", found[0].rows);
        assert_eq!(rows, "[[I32(1), I32(100)], [I32(2), I32(100)]]");
    });
}

/// Statements of which one waits for a row, and what ends it: a limit, some of which are set in the
/// transaction, or another session.
const WAITS: [(&str, &[&str]); 8] = [
    ("timeout", &["update t set n = n + 1 where id = 1"]),
    (
        "local",
        &[
            "begin",
            "set local statement_timeout = '100ms'",
            "update t set n = n + 1 where id = 1 returning n",
        ],
    ),
    (
        "lock",
        &["begin", "set local lock_timeout = '100ms'", "select n from t where id = 1 for update"],
    ),
    (
        "local, as that of locks is set back",
        &[
            "begin",
            "set local lock_timeout = '50ms'",
            "select n from t where id = 3 for update",
            "set local lock_timeout = 0",
            "set local statement_timeout = '300ms'",
            "select n from t where id = 1 for update",
        ],
    ),
    ("cancel", &["update t set n = n + 1 where id = 1"]),
    ("cancel", &["update t set n = n + 1"]),
    ("cancel", &["begin", "insert into t values (4, 1)", "commit"]),
    ("terminate", &["update t set n = n + 1 where id = 1"]),
];

/// A change of one statement meets the lock of another session in its commit. The other session is
/// one of another node.
#[test]
fn a_statement_that_waits_for_a_row_is_ended_by_its_timeout_or_by_others() {
    with_nodes(2, async |databases| {
        let env = databases[0].engine().env().clone();
        let mut holder = Session::new(&databases[1], "tester", || 0).unwrap();
        holder.execute("create table t (id int primary key, n int)").await.unwrap();
        holder.execute("insert into t values (1, 0), (2, 0), (3, 0)").await.unwrap();
        holder.execute("begin").await.unwrap();
        holder.execute("update t set n = 9 where id in (1, 2)").await.unwrap();
        // A key of which there is no row.
        let mut other = databases[1].begin();
        let table = other.table("t").await.unwrap();
        drop(other.row(table).await.unwrap());
        let key = other.key(table, &[Value::I32(4)]).unwrap();
        let _ = other.lock_row(table, &key, LockWait::Wait).await.unwrap();
        for (how, statements) in WAITS {
            let mut session = Session::new(&databases[0], "tester", || 0).unwrap();
            if how == "timeout" {
                session.execute("set statement_timeout = '300ms'").await.unwrap();
            }
            let (handle, own, db) = (session.cancel_handle(), env.clone(), databases[0].clone());
            let before = db.stats().lock_waits;
            let other = env.spawn("other", async move {
                // Whatever statement waits.
                while how != "timeout" && db.stats().lock_waits == before {
                    own.sleep(Duration::from_millis(1)).await;
                }
                match how {
                    "cancel" => handle.cancel(),
                    "terminate" => handle.terminate(),
                    _ => {}
                }
            });
            let mut ended = Ok(Vec::new());
            for sql in statements {
                ended = ended.and(session.execute(sql).await);
            }
            let error = ended.unwrap_err();
            let code = match how {
                "terminate" => "57P01",
                "lock" => "55P03",
                _ => "57014",
            };
            assert_eq!(error.state().code(), code, "{how}: {error}");
            assert_ne!(session.state(), TransactionState::InTransaction, "{how}");
            other.join().await.unwrap();
        }
        holder.execute("rollback").await.unwrap();
        let mut session = Session::new(&databases[0], "tester", || 0).unwrap();
        session.execute("update t set n = n + 1").await.unwrap();
        let found = session.execute("select id, n from t order by id").await.unwrap();
        let rows = format!("{:?}", found[0].rows);
        assert_eq!(rows, "[[I32(1), I32(1)], [I32(2), I32(1)], [I32(3), I32(1)]]");
    });
}

/// What a transaction has locked goes with it, though nobody waits for that: it is no lock to be
/// had alone beside others who share it.
#[test]
fn a_lock_of_a_number_that_was_left_behind_is_not_had_alone_beside_others() {
    with_database(async |database| {
        let mut one = Session::new(database, "tester", || 0).unwrap();
        let mut other = Session::new(database, "tester", || 0).unwrap();
        let alone = "select pg_try_advisory_lock(1)";
        other.execute("select pg_advisory_lock_shared(1)").await.unwrap();
        one.execute("begin").await.unwrap();
        one.execute("select pg_advisory_xact_lock_shared(1)").await.unwrap();
        one.abandon(TransactionState::Idle);
        let had = one.execute(alone).await.unwrap();
        assert_eq!(format!("{:?}", had[0].rows), "[[Bool(false)]]");
        other.execute("select pg_advisory_unlock_shared(1)").await.unwrap();
        let had = one.execute(alone).await.unwrap();
        assert_eq!(format!("{:?}", had[0].rows), "[[Bool(true)]]");
    });
}
