//! Futures that are dropped after each number of polls: the connection is of use afterwards, and
//! nothing is left half done.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use selkie::block_on;
use selkie::sql::{Connection, SqlState, TransactionState};

use crate::{count, notes};

/// Polls until a future has been pending so often; `None` if it is not over then.
fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&flag));
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let bound = Instant::now() + Duration::from_secs(30);
        while !flag.0.swap(false, Ordering::SeqCst) {
            assert!(Instant::now() < bound, "nothing has woken the future");
            std::thread::yield_now();
        }
    }
    None
}

/// Waits at points in the middle: the rows of a change take more than one poll.
const CHANGE: &str = "update note set text = text || '!' where id <= 600";

async fn changed(conn: &mut Connection) -> i64 {
    let changed = "select count(*) from note where text like '%!'";
    conn.query_one::<(i64,)>(changed, &[]).await.unwrap().0
}

#[test]
fn a_statement_of_its_own_has_happened_or_not() {
    block_on(async {
        let (_db, mut conn) = notes(600).await;
        let mut dropped = 0;
        for times in 0.. {
            let ran = polled(conn.execute(CHANGE, &[]), times);
            assert_eq!(conn.state(), TransactionState::Idle, "after {times} polls");
            let seen = changed(&mut conn).await;
            if let Some(ran) = ran {
                assert_eq!((ran.unwrap(), seen), (600, 600));
                break;
            }
            dropped += 1;
            assert!(seen == 0 || seen == 600, "after {times} polls {seen} rows are changed");
            conn.execute("update note set text = 'note'", &[]).await.unwrap();
        }
        assert!(dropped > 0, "the statement never waited");
    });
}

#[test]
fn a_transaction_has_failed_with_a_statement_that_was_dropped() {
    block_on(async {
        let (_db, mut conn) = notes(600).await;
        let mut dropped = 0;
        for times in 0.. {
            let mut txn = conn.begin().await.unwrap();
            txn.execute("delete from note where id = 600", &[]).await.unwrap();
            let over = polled(txn.execute(CHANGE, &[]), times).is_some();
            if over {
                break;
            }
            // Nothing has run if it was not polled.
            if times > 0 {
                dropped += 1;
                let refused = txn.execute("select 1", &[]).await.unwrap_err();
                assert_eq!(refused.state(), SqlState::IN_FAILED_TRANSACTION, "{times} polls");
                let refused = txn.commit().await.unwrap_err();
                assert_eq!(refused.state(), SqlState::IN_FAILED_TRANSACTION, "{times} polls");
            } else {
                txn.rollback().await.unwrap();
            }
            assert_eq!((count(&mut conn).await, changed(&mut conn).await), (600, 0));
        }
        assert!(dropped > 0, "the statement never waited");
    });
}

#[test]
fn a_closure_that_is_dropped_leaves_no_transaction() {
    block_on(async {
        let (_db, mut conn) = notes(600).await;
        let mut dropped = 0;
        for times in 0.. {
            let ran = polled(
                conn.transaction(async |txn| {
                    txn.execute("set local lock_timeout = '1s'", &[]).await?;
                    txn.execute(CHANGE, &[]).await
                }),
                times,
            );
            assert_eq!(conn.state(), TransactionState::Idle, "after {times} polls");
            let seen = changed(&mut conn).await;
            let shown = conn.query_one::<(String,)>("show lock_timeout", &[]).await.unwrap().0;
            assert_eq!(shown, "0", "settings of the transaction are gone");
            if let Some(ran) = ran {
                assert_eq!((ran.unwrap(), seen), (600, 600));
                break;
            }
            dropped += 1;
            assert!(seen == 0 || seen == 600, "after {times} polls {seen} rows are changed");
            conn.execute("update note set text = 'note'", &[]).await.unwrap();
        }
        assert!(dropped > 1, "the closure never waited");
    });
}
