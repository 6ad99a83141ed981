//! Transactions far larger than those of TPC-C: thousands of splits, more leaves than the cache
//! has, more changes than the log takes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use selkie_btree::TreeStats;
use selkie_engine::EngineError;
use selkie_engine::log::LogTo;
use selkie_txn::{
    AbortCause, ColumnType, Database, DatabaseSchema, KeyRange, Protocol, RetryPolicy, RowMut,
    Table, TableSchema, TxnError, key, retry,
};

use crate::common::{Cluster, ClusterOptions, dump, poll_times};

/// Numbers coprime to it, multiplied by this and taken modulo, come in an order like a random one.
const STRIDE: i64 = 7_919;

fn items() -> TableSchema {
    TableSchema::new("item")
        .column("id", ColumnType::I64)
        .column("text", ColumnType::Text(100))
        .primary_key([0])
}

/// A cluster of one node with a table, and the database by each protocol that is asked for.
fn with_items(options: ClusterOptions, protocol: Protocol, test: impl AsyncFn(&Database, Table)) {
    let cluster = Cluster::start_as(options);
    let schema = DatabaseSchema::from(vec![items()]).protocol(protocol);
    let db = cluster.create(schema).remove(0).with_protocol(protocol).unwrap();
    let table = db.table("item").unwrap();
    cluster.runtime.block_on(test(&db, table));
    drop(db);
    cluster.close();
}

/// Pages of 512 bytes, and room for so many of them.
fn small_pages(cache_pages: u64) -> ClusterOptions {
    ClusterOptions { cache_pages, ..ClusterOptions::new(512) }
}

async fn insert(
    db: &Database,
    txn: &mut selkie_txn::Txn<'_>,
    table: Table,
    id: i64,
) -> Result<(), TxnError> {
    let text = format!("{id:0100}");
    txn.insert(table, db.row(table)?.i64(id).text(&text).finish()?).await
}

async fn shape(db: &Database, table: Table) -> TreeStats {
    db.tree(table).unwrap().verify(db.engine()).await.unwrap()
}

/// Inserts rows, each in a transaction of its own, to show that the table takes them.
async fn takes_rows(db: &Database, table: Table, ids: impl IntoIterator<Item = i64>) {
    let (env, policy) = (db.engine().env(), RetryPolicy::default());
    for id in ids {
        let attempt = async || {
            let mut txn = db.begin();
            insert(db, &mut txn, table, id).await?;
            txn.commit().await
        };
        retry(env, &policy, attempt).await.unwrap();
    }
}

/// The inserts failed with "no leaf for the key" after 8,919 rows, and the table took none any
/// more: more leaves of the transaction's own lay on the way than it followed.
#[test]
fn twenty_thousand_rows_in_random_order_are_one_transaction() {
    const ROWS: i64 = 20_000;
    for protocol in Protocol::ALL {
        with_items(small_pages(40_000), protocol, async |db, table| {
            let mut txn = db.begin();
            for number in 0..ROWS {
                insert(db, &mut txn, table, number * STRIDE % ROWS).await.unwrap();
            }
            txn.commit().await.unwrap();
            let shape = shape(db, table).await;
            assert_eq!((shape.entries, shape.unposted), (ROWS as usize, 0), "{protocol}");
            takes_rows(db, table, [ROWS, ROWS + 1, -1]).await;
        });
    }
}

/// The table was unusable for good: thousands of empty leaves stayed, and few of their separators
/// were posted later.
#[test]
fn a_large_transaction_that_is_dropped_leaves_nothing() {
    const ROWS: i64 = 30_000;
    with_items(small_pages(40_000), Protocol::TwoPhase, async |db, table| {
        takes_rows(db, table, (0..50).map(|number| number * 1_000)).await;
        let (before, rows) = (shape(db, table).await, dump(db).await);
        for is_ascending in [true, false] {
            let mut txn = db.begin();
            for number in 0..ROWS {
                let id = if is_ascending { number } else { ROWS - number };
                match insert(db, &mut txn, table, id * 1_000 + 1).await {
                    Ok(()) => {}
                    Err(error) => panic!("{number}: {error}"),
                }
            }
            assert!(txn.latched_leaves() > 5_000, "{}", txn.latched_leaves());
            drop(txn);
            assert_eq!(shape(db, table).await, before, "splits are undone, too");
            assert_eq!(dump(db).await, rows);
        }
        takes_rows(db, table, 1..50).await;
    });
}

/// The same for a savepoint, and for inserts that failed half-way.
#[test]
fn going_back_to_a_savepoint_undoes_its_splits() {
    // 512 leaves may be held; each round splits off some 300.
    let options = ClusterOptions { pages_beyond: 0, ..small_pages(1_024) };
    with_items(options, Protocol::TwoPhase, async |db, table| {
        let mut txn = db.begin();
        for id in 0..100 {
            insert(db, &mut txn, table, id * 10).await.unwrap();
        }
        let (savepoint, held) = (txn.savepoint().unwrap(), txn.latched_leaves());
        for _ in 0..8 {
            for id in 0..900 {
                if id % 10 != 0 {
                    insert(db, &mut txn, table, id).await.unwrap();
                }
            }
            let again = insert(db, &mut txn, table, 500).await;
            assert!(matches!(again, Err(TxnError::Duplicate { .. })), "{again:?}");
            assert!(txn.latched_leaves() > held * 4);
            txn.rollback_to(savepoint).unwrap();
            assert_eq!(txn.latched_leaves(), held, "the right halves are freed");
        }
        for id in 0..100 {
            assert!(txn.get(table, &key![id * 10i64]).await.unwrap().is_some());
            assert!(txn.get(table, &key![id * 10i64 + 1]).await.unwrap().is_none());
        }
        txn.commit().await.unwrap();
        let shape = shape(db, table).await;
        assert_eq!((shape.entries, shape.unposted), (100, 0));
        assert!(shape.leaves < 50, "{shape:?}");
    });
}

#[test]
fn a_transaction_beyond_its_memory_is_refused_where_it_goes_beyond() {
    for protocol in Protocol::ALL {
        // Half of the cache is no multiple of the leaves that are counted at once.
        let options = ClusterOptions { pages_beyond: 100, ..small_pages(1_100) };
        with_items(options, protocol, async |db, table| {
            takes_rows(db, table, 0..100).await;
            let rows = dump(db).await;
            let mut txn = db.begin();
            // 64 leaves, half the cache, and what may be beyond.
            let mut refused = Ok(());
            for number in 0..20_000 {
                refused = insert(db, &mut txn, table, 1_000 + number * STRIDE % 20_000).await;
                if refused.is_err() {
                    break;
                }
            }
            // Where changes are deferred the leaves are latched by commit.
            let refused = match refused {
                Ok(()) => txn.commit().await,
                Err(error) => {
                    txn.rollback().await;
                    Err(error)
                }
            };
            let error = refused.unwrap_err();
            let TxnError::TooManyLeaves { table: name, need, limit } = &error else {
                panic!("{protocol}: {error:?}")
            };
            assert_eq!((&**name, *need, *limit), ("item", 677, 676), "{protocol}");
            assert_eq!(
                (error.abort_cause(), error.is_retryable()),
                (Some(AbortCause::TooLarge), false)
            );
            assert_eq!(dump(db).await, rows, "{protocol}");
            takes_rows(db, table, 200..300).await;
        });
    }
}

/// What takes changes back grew without a bound, also by changing one row again and again.
#[test]
fn a_transaction_whose_changes_take_too_much_memory_is_refused_and_can_commit_what_it_has() {
    for protocol in [Protocol::TwoPhase, Protocol::Snapshot] {
        let options = ClusterOptions { pages_beyond: 0, ..small_pages(1_024) };
        with_items(options, protocol, async |db, table| {
            takes_rows(db, table, 0..2).await;
            let mut txn = db.begin();
            let text = |number: u32| char::from(b'a' + (number % 26) as u8).to_string().repeat(100);
            let mut done = 0;
            let error = loop {
                let set = |row: &mut RowMut<'_>| Ok(row.set_text(1, &text(done))?);
                match txn.update(table, &key![0i64], set).await {
                    Ok(_) => done += 1,
                    Err(error) => break error,
                }
                assert!(done < 2_000_000, "{protocol}");
            };
            assert_eq!((error.abort_cause(), error.is_retryable()), (None, false));
            let TxnError::TooMuchMemory { table: name, need, limit } = error else {
                panic!("{error:?}")
            };
            assert!(name == "item" && need > limit && limit == 64 << 20, "{name} {need} {limit}");
            txn.commit().await.unwrap();
            let mut txn = db.begin();
            let found = txn.get(table, &key![0i64]).await.unwrap().unwrap();
            assert_eq!(found.text(1).unwrap(), text(done - 1));
        });
    }
}

/// Each leaf that was read stayed latched, until the cache was full; by the optimistic protocol,
/// each further read fetched 64 leaves again.
#[test]
fn a_transaction_reads_a_table_that_is_larger_than_the_cache() {
    const ROWS: i64 = 12_000;
    for protocol in Protocol::ALL {
        with_items(small_pages(1_024), protocol, async |db, table| {
            for first in (0..ROWS).step_by(100) {
                let mut txn = db.begin();
                for id in first..first + 100 {
                    insert(db, &mut txn, table, id).await.unwrap();
                }
                txn.commit().await.unwrap();
            }
            assert!(shape(db, table).await.leaves > 2_000);
            let before = db.engine().stats();
            let mut txn = db.begin();
            let mut count = 0;
            let visit = |_: selkie_txn::RowRef<'_>| {
                count += 1;
                Ok(std::ops::ControlFlow::Continue(()))
            };
            txn.scan(table, &KeyRange::all(), selkie_txn::Direction::Forward, visit).await.unwrap();
            assert_eq!(count, ROWS);
            insert(db, &mut txn, table, ROWS).await.unwrap();
            txn.commit().await.unwrap();
            // A leaf is fetched by the scan and to be validated, and inner pages are few.
            let misses = db.engine().stats().misses - before.misses;
            assert!(misses < 4 * 4_000, "{protocol}: {misses} misses");

            // What was read and not kept latched is validated.
            if protocol != Protocol::Timestamp {
                let mut txn = db.begin();
                let all = KeyRange::all();
                let visit = |_: selkie_txn::RowRef<'_>| Ok(std::ops::ControlFlow::Continue(()));
                txn.scan(table, &all, selkie_txn::Direction::Forward, visit).await.unwrap();
                insert(db, &mut txn, table, ROWS + 2).await.unwrap();
                let mut other = db.begin();
                let deleted = other.delete(table, &key![ROWS / 2]).await;
                deleted.and(other.commit().await).unwrap();
                let error = txn.commit().await.unwrap_err();
                assert_eq!(error.abort_cause(), Some(AbortCause::Stale), "{protocol}: {error}");
            }
        });
    }
}

/// The commit waited for room in the log that it prevented itself, and with it everything else.
#[test]
fn a_transaction_beyond_the_log_is_refused_where_it_goes_beyond() {
    for protocol in Protocol::ALL {
        let options = ClusterOptions {
            logs: vec![Some(LogTo::Memory)],
            log_bytes: 1 << 20,
            ..small_pages(40_000)
        };
        with_items(options, protocol, async |db, table| {
            takes_rows(db, table, 0..100).await;
            let rows = dump(db).await;
            for _ in 0..4 {
                let mut txn = db.begin();
                let mut start = txn.savepoint().unwrap();
                let mut number = 0;
                let (number, error) = loop {
                    let id = 1_000 + number * STRIDE % 20_000;
                    match insert(db, &mut txn, table, id).await {
                        Ok(()) => {}
                        // What was rolled back is in the log, until its pages are home.
                        Err(error) if error.is_retryable() => {
                            assert_eq!(error.abort_cause(), Some(AbortCause::LogFull));
                            txn = db.begin();
                            start = txn.savepoint().unwrap();
                            number = -1;
                        }
                        Err(error) => break (number, error),
                    }
                    number += 1;
                };
                assert!(number > 1_000, "{protocol}: {number}");
                let (need, limit, is_over) = match error {
                    TxnError::Engine(EngineError::ChangeTooLarge { need, limit }) => {
                        (need, limit, true)
                    }
                    TxnError::WriteSetTooLarge { ref table, need, limit } => {
                        assert_eq!(table, "item");
                        (need, limit, false)
                    }
                    error => panic!("{protocol}: {error:?}"),
                };
                assert!(need > limit && limit > (1 << 20) / 3, "{need} {limit}");
                assert_eq!(error.abort_cause(), is_over.then_some(AbortCause::TooLarge));
                // Where changes are deferred only that one is undone.
                assert_eq!(is_over, protocol == Protocol::TwoPhase, "{protocol}");
                if !is_over {
                    let refused = 1_000 + number * STRIDE % 20_000;
                    let before = 1_000 + (number - 1) * STRIDE % 20_000;
                    assert!(txn.get(table, &key![refused]).await.unwrap().is_none());
                    assert!(txn.get(table, &key![before]).await.unwrap().is_some());
                    txn.rollback_to(start).unwrap();
                    insert(db, &mut txn, table, 900).await.unwrap();
                    txn.delete(table, &key![900i64]).await.unwrap();
                    txn.commit().await.unwrap();
                }
                assert_eq!(dump(db).await, rows, "{protocol}");
            }
            takes_rows(db, table, 200..300).await;
        });
    }
}

/// Many transactions that fit one by one, at a time: together they would fill the log.
#[test]
fn transactions_that_fill_the_log_together_take_turns() {
    for protocol in Protocol::ALL {
        let options = ClusterOptions {
            logs: vec![Some(LogTo::Memory)],
            log_bytes: 1 << 17,
            ..small_pages(40_000)
        };
        with_items(options, protocol, async |db, table| {
            // Timestamp order needs pauses that grow beyond the length of a transaction.
            let (base, cap) = (Duration::from_micros(300), Duration::from_secs(1));
            let policy = RetryPolicy { attempts: 10_000, base, cap };
            let work = async |worker: i64| {
                for round in 0..6 {
                    let attempt = async || {
                        let mut txn = db.begin();
                        for number in 0..150 {
                            let id = (worker * 6 + round) * 1_000 + number;
                            insert(db, &mut txn, table, id).await?;
                        }
                        txn.commit().await
                    };
                    retry(db.engine().env(), &policy, attempt).await.expect("it has its turn");
                }
            };
            let all = [work(0), work(1), work(2), work(3), work(4), work(5), work(6), work(7)];
            let mut all: Vec<_> = all.into_iter().map(|work| Some(Box::pin(work))).collect();
            poll_fn(|cx| {
                for work in &mut all {
                    if work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
                        *work = None;
                    }
                }
                if all.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            assert_eq!(shape(db, table).await.entries, 8 * 6 * 150);
        });
    }
}

/// A commit that is dropped while it posts separators leaves them to later transactions, however
/// many they are.
#[test]
fn separators_of_a_dropped_commit_are_posted_later() {
    const ROWS: i64 = 20_000;
    with_items(small_pages(40_000), Protocol::TwoPhase, async |db, table| {
        let mut txn = db.begin();
        for number in 0..ROWS {
            insert(db, &mut txn, table, number * STRIDE % ROWS).await.unwrap();
        }
        assert!(poll_times(txn.commit(), 1).await.is_none(), "it yields between posts");
        assert!(shape(db, table).await.unposted > 2_000);
        let mut transactions = 0;
        while shape(db, table).await.unposted > 0 {
            for _ in 0..20 {
                db.begin().commit().await.unwrap();
            }
            transactions += 20;
            assert!(transactions < 2_000, "{:?}", shape(db, table).await);
        }
        assert_eq!(shape(db, table).await.entries, ROWS as usize);
    });
}

/// What was deleted goes back into pages that are rebuilt for it: the rollback took ten times what
/// the changes had taken in the log, and more than it has, so that nothing became durable any more.
#[test]
fn a_rollback_fits_the_log_too() {
    const LEAVES: i64 = 2_500;
    let log = vec![Some(LogTo::Memory)];
    let options = ClusterOptions { logs: log, log_bytes: 1 << 20, ..small_pages(40_000) };
    with_items(options, Protocol::TwoPhase, async |db, table| {
        for first in (0..LEAVES * 4).step_by(40) {
            let attempt = async || {
                let mut txn = db.begin();
                for id in first..first + 40 {
                    insert(db, &mut txn, table, id).await?;
                }
                txn.commit().await
            };
            retry(db.engine().env(), &RetryPolicy::default(), attempt).await.unwrap();
        }
        let rows = dump(db).await;
        let mut is_refused = false;
        for _ in 0..3 {
            let mut txn = db.begin();
            for leaf in 0..LEAVES {
                match txn.delete(table, &key![leaf * 4]).await {
                    Ok(()) => {}
                    Err(
                        TxnError::Engine(EngineError::ChangeTooLarge { .. })
                        | TxnError::WriteSetTooLarge { .. },
                    ) => {
                        is_refused = true;
                        break;
                    }
                    Err(error) => {
                        assert_eq!(error.abort_cause(), Some(AbortCause::LogFull), "{error}");
                        break;
                    }
                }
            }
            drop(txn);
            assert_eq!(dump(db).await, rows);
            takes_rows(db, table, [-1]).await;
            let mut txn = db.begin();
            txn.delete(table, &key![-1i64]).await.unwrap();
            txn.commit().await.unwrap();
        }
        assert!(is_refused, "its rollback would not fit");
    });
}

/// A row that another transaction had inserted after this one had seen that there was none was the
/// final error that the key is there.
#[test]
fn what_is_there_or_not_is_validated_where_reads_are_not_latched() {
    with_items(small_pages(1_024), Protocol::TwoPhase, async |db, table| {
        takes_rows(db, table, (0..400).map(|id| id * 2)).await;
        db.set_latched_reads(0);
        let stale = |error: TxnError| assert_eq!(error.abort_cause(), Some(AbortCause::Stale));
        for is_inserted in [true, false] {
            let mut txn = db.begin();
            let mut count = 0;
            let visit = |_: selkie_txn::RowRef<'_>| {
                count += 1;
                Ok(std::ops::ControlFlow::Continue(()))
            };
            txn.scan(table, &KeyRange::all(), selkie_txn::Direction::Forward, visit).await.unwrap();
            assert_eq!((count, txn.latched_leaves()), (400 + i32::from(!is_inserted), 0));
            let mut other = db.begin();
            if is_inserted {
                insert(db, &mut other, table, 301).await.unwrap();
                other.commit().await.unwrap();
                stale(insert(db, &mut txn, table, 301).await.unwrap_err());
            } else {
                other.delete(table, &key![301i64]).await.unwrap();
                other.commit().await.unwrap();
                stale(txn.delete(table, &key![301i64]).await.unwrap_err());
            }
        }
    });
}

/// A statement and a commit went through any number of changes in one turn, so bulk work on the
/// only thread of a node outlived the node's lease.
#[test]
fn a_large_transaction_lets_other_tasks_run_all_the_while() {
    const ROWS: i64 = 6_000;
    // Of what is done between two turns: leaves looked at, and changes made or taken back.
    const AT_ONCE: usize = 256;
    // A commit holds leaves meanwhile, and so does it less often.
    const AT_ONCE_IN_THE_END: usize = 1024;
    for protocol in Protocol::ALL {
        with_items(small_pages(40_000), protocol, async |db, table| {
            for is_committed in [true, false] {
                let rows = || (0..ROWS).map(|number| number * STRIDE % ROWS);
                let mut txn = db.begin();
                let (turns, splits) = turns_of(db, async {
                    for id in rows() {
                        insert(db, &mut txn, table, id).await.unwrap();
                    }
                })
                .await;
                assert!(turns > ROWS as usize / AT_ONCE, "{protocol}: {turns} in the inserts");
                assert!(splits < AT_ONCE as u64, "{protocol}: {splits} at once in the inserts");
                let (turns, splits) = turns_of(db, async {
                    if is_committed { txn.commit().await.unwrap() } else { txn.rollback().await }
                })
                .await;
                // A commit has posted the separators, a rollback has undone the splits.
                if is_committed || protocol == Protocol::TwoPhase {
                    let most = ROWS as usize / AT_ONCE_IN_THE_END;
                    assert!(turns > most, "{protocol}: {turns} in the end");
                }
                let most = AT_ONCE_IN_THE_END as u64;
                assert!(splits < most, "{protocol}: {splits} at once in the end");
                let mut txn = db.begin();
                for id in rows().filter(|_| is_committed) {
                    txn.delete(table, &key![id]).await.unwrap();
                }
                txn.commit().await.unwrap();
            }
        });
    }
}

/// How often other tasks of the thread could run while this one did, and how many leaves it has
/// split at most before one could.
async fn turns_of(db: &Database, work: impl Future<Output = ()>) -> (usize, u64) {
    let mut work = std::pin::pin!(work);
    let (mut turns, mut most) = (0, 0);
    poll_fn(|cx| {
        let before = db.stats().splits;
        let polled = work.as_mut().poll(cx);
        most = most.max(db.stats().splits - before);
        turns += 1;
        polled
    })
    .await;
    (turns, most)
}
