//! Transactions: objects, closures, and what is run again.

use std::sync::{Arc, Barrier};

use selkie::block_on;
use selkie::sql::{
    Connection, Isolation, QueryError, SqlError, SqlState, TransactionOptions, TransactionState,
};

use crate::{count, notes};

const TOUCH: &str = "update note set text = text || '!' where id = 1";

#[test]
fn a_transaction_that_is_dropped_is_rolled_back_at_once() {
    block_on(async {
        let (db, mut conn) = notes(3).await;
        let mut other = db.connect().unwrap();
        other.batch("set lock_timeout = '50ms'").await.unwrap();
        let mut txn = conn.begin().await.unwrap();
        txn.execute(TOUCH, &[]).await.unwrap();
        let waits = other.execute(TOUCH, &[]).await.unwrap_err();
        assert_eq!(waits.state(), SqlState::LOCK_NOT_AVAILABLE);
        drop(txn);
        // Before anything else is done with that connection.
        assert_eq!(other.execute(TOUCH, &[]).await.unwrap(), 1);
        assert_eq!(conn.state(), TransactionState::Idle);

        let mut txn = conn.begin().await.unwrap();
        txn.execute("delete from note", &[]).await.unwrap();
        txn.rollback().await.unwrap();
        assert_eq!(count(&mut conn).await, 3);
        let mut txn = conn.begin().await.unwrap();
        txn.execute("delete from note", &[]).await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(count(&mut conn).await, 0);
    });
}

#[test]
fn a_transaction_says_when_it_has_not_committed() {
    block_on(async {
        let (_db, mut conn) = notes(3).await;
        let mut txn = conn.begin().await.unwrap();
        let nested = txn.begin().await.map(drop).unwrap_err();
        assert_eq!(nested.state(), SqlState::ACTIVE_TRANSACTION);
        // It goes on, until a statement fails.
        txn.execute("select 1 / 0", &[]).await.unwrap_err();
        let failed = txn.commit().await.unwrap_err();
        assert_eq!(failed.state(), SqlState::IN_FAILED_TRANSACTION);

        let mut txn = conn.begin().await.unwrap();
        txn.batch("rollback").await.unwrap();
        let ended = txn.commit().await.unwrap_err();
        assert_eq!(ended.state(), SqlState::NO_ACTIVE_TRANSACTION);

        let reads = TransactionOptions::new().read_only(true).isolation(Isolation::RepeatableRead);
        let mut txn = conn.begin_with(reads).await.unwrap();
        let level = txn.query_one::<(String,)>("show transaction_isolation", &[]).await;
        assert_eq!(level.unwrap().0, "repeatable read");
        drop(txn);
        let mut txn = conn.begin_with(reads).await.unwrap();
        let refused = txn.execute(TOUCH, &[]).await.unwrap_err();
        assert_eq!(refused.state(), SqlState::READ_ONLY_TRANSACTION);
    });
}

#[derive(Debug)]
enum OwnError {
    Sql(#[expect(dead_code, reason = "it is shown")] QueryError),
    Own,
}

impl From<QueryError> for OwnError {
    fn from(error: QueryError) -> Self {
        Self::Sql(error)
    }
}

/// A closure meets another transaction as often as it says.
async fn meets(
    conn: &mut Connection,
    other: &mut Connection,
    times: u32,
    options: TransactionOptions,
) -> (u32, Result<(), OwnError>) {
    let mut runs = 0;
    let ran = conn
        .transaction_with(options.isolation(Isolation::RepeatableRead), async |txn| {
            runs += 1;
            let (text,) = txn
                .query_one::<(String,)>("select text from note where id = 1", &[])
                .await
                .map_err(OwnError::from)?;
            if runs <= times {
                other.execute(TOUCH, &[]).await?;
            }
            // What went wrong is not seen in the error.
            let change = "update note set text = $1 || '.' where id = 1";
            txn.execute(change, &[&text]).await.map_err(|_| OwnError::Own)?;
            Ok(())
        })
        .await;
    (runs, ran)
}

#[test]
fn a_closure_is_run_again_when_others_made_it_fail_and_not_for_ever() {
    block_on(async {
        let (db, mut conn) = notes(3).await;
        let mut other = db.connect().unwrap();
        let (runs, ran) = meets(&mut conn, &mut other, 3, TransactionOptions::new()).await;
        assert!(ran.is_ok(), "{ran:?}");
        assert_eq!(runs, 4);
        let text = "select text from note where id = 1";
        assert_eq!(conn.query_one::<(String,)>(text, &[]).await.unwrap().0, "note 1!!!.");

        let twice = TransactionOptions::new().attempts(2);
        let (runs, ran) = meets(&mut conn, &mut other, 9, twice).await;
        assert!(matches!(ran, Err(OwnError::Own)), "{ran:?}");
        assert_eq!((runs, conn.state()), (2, TransactionState::Idle));
    });
}

#[test]
fn a_closure_that_ends_the_transaction_itself_is_run_once() {
    block_on(async {
        let (db, mut conn) = notes(3).await;
        let mut other = db.connect().unwrap();
        let mut runs = 0;
        let options = TransactionOptions::new().isolation(Isolation::RepeatableRead);
        let ran: Result<(), QueryError> = conn
            .transaction_with(options, async |txn| {
                runs += 1;
                txn.query("select text from note where id = 1", &[]).await?;
                if runs == 1 {
                    other.execute(TOUCH, &[]).await?;
                }
                let lost = txn.execute(TOUCH, &[]).await.unwrap_err();
                assert!(lost.is_retryable(), "{lost}");
                txn.batch("rollback").await?;
                // Commits by itself.
                txn.execute("insert into note values (7, 'once')", &[]).await.map(drop)
            })
            .await;
        assert_eq!(ran.unwrap_err().state(), SqlState::NO_ACTIVE_TRANSACTION);
        assert_eq!((runs, count(&mut conn).await), (1, 4));
    });
}

#[test]
fn a_closure_that_fails_otherwise_is_run_once_and_rolled_back() {
    block_on(async {
        let (_db, mut conn) = notes(3).await;
        let mut runs = 0;
        let ran: Result<(), OwnError> = conn
            .transaction(async |txn| {
                runs += 1;
                txn.execute("delete from note", &[]).await?;
                Err(OwnError::Own)
            })
            .await;
        assert!(matches!(ran, Err(OwnError::Own)));
        let error: Result<(), QueryError> = conn
            .transaction(async |txn| {
                runs += 1;
                txn.execute("insert into note values (1, '')", &[]).await.map(drop)
            })
            .await;
        assert_eq!(error.unwrap_err().state(), SqlState::UNIQUE_VIOLATION);
        // The closure keeps the error to itself: nothing is committed all the same.
        let hidden: Result<(), QueryError> = conn
            .transaction(async |txn| {
                runs += 1;
                txn.execute("delete from note", &[]).await?;
                let _ = txn.execute("select 1 / 0", &[]).await;
                Ok(())
            })
            .await;
        assert_eq!(hidden.unwrap_err().state(), SqlState::IN_FAILED_TRANSACTION);
        assert_eq!((runs, count(&mut conn).await), (3, 3));
    });
}

#[test]
fn a_deadlock_is_run_again_by_one() {
    block_on(async {
        let (db, mut conn) = notes(2).await;
        let both_have_one = Arc::new(Barrier::new(2));
        let threads = [[1_i64, 2], [2, 1]].map(|ids| {
            let (db, both_have_one) = (db.clone(), Arc::clone(&both_have_one));
            std::thread::spawn(move || -> Result<u32, QueryError> {
                let mut conn = db.connect()?;
                let (mut runs, mut has_met) = (0, false);
                block_on(conn.transaction(async |txn| {
                    runs += 1;
                    let sql = "update note set text = text || '+' where id = $1";
                    txn.execute(sql, &[&ids[0]]).await?;
                    if !std::mem::replace(&mut has_met, true) {
                        both_have_one.wait();
                    }
                    txn.execute(sql, &[&ids[1]]).await
                }))?;
                Ok(runs)
            })
        });
        let runs = threads.map(|thread| thread.join().unwrap().unwrap());
        assert!(runs.iter().sum::<u32>() > 2, "{runs:?}: there was no deadlock");
        let both = "select count(*) from note where text like 'note _++'";
        assert_eq!(conn.query_one::<(i64,)>(both, &[]).await.unwrap().0, 2);
        let error: QueryError = SqlError::new(SqlState::DEADLOCK_DETECTED, "").into();
        assert!(error.is_retryable());
    });
}
