//! Transactions that only read: what they refuse, whom they block, and what they see.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_btree::LeafView;
use selkie_engine::GAddr;
use selkie_txn::{
    Database, Direction, Isolation, KeyRange, Protocol, RetryPolicy, Table, Txn, TxnError, key,
    retry,
};

use crate::common::{
    ACCOUNTS, Account, BALANCE, Cluster, OPENING, account, accounts, add, bank, check, insert,
    transfer, two_phase,
};

async fn sum(txn: &mut Txn<'_>, table: Table) -> Result<(i32, i64), TxnError> {
    let (mut rows, mut sum) = (0, 0);
    let add = |row: selkie_txn::RowRef<'_>| {
        rows += 1;
        sum += row.i64(BALANCE)?;
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(table, &KeyRange::all(), Direction::Forward, add).await?;
    Ok((rows, sum))
}

#[test]
fn a_read_only_transaction_changes_nothing() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[1];
            let mut txn = db.begin_to_read();
            let refused = |result: Result<(), TxnError>| {
                let error = result.unwrap_err();
                assert!(matches!(error, TxnError::ReadOnly), "{protocol}: {error}");
                assert!(!error.is_retryable() && error.abort_cause().is_none());
            };
            refused(txn.update(table, &key![1], add(1)).await);
            refused(txn.delete(table, &key![2]).await);
            refused(insert(db, &mut txn, table, 100, &account(100)).await);
            refused(txn.get_for_update(table, &key![1]).await.map(drop));
            refused(txn.first_for_update(table, &KeyRange::all()).await.map(drop));
            refused(txn.last_for_update(table, &KeyRange::all()).await.map(drop));
            // It stays usable.
            let owner = db.index("account", "by_owner").unwrap();
            assert!(txn.get(table, &key![2]).await.unwrap().is_some());
            assert!(txn.first(owner, &KeyRange::prefix(&key!["3"])).await.unwrap().is_some());
            let all = (ACCOUNTS, i64::from(ACCOUNTS) * OPENING);
            assert_eq!(sum(&mut txn, table).await.unwrap(), all);
            txn.commit().await.unwrap();
            check(&databases[0]).await;
        });
        cluster.close();
    }
}

#[test]
fn a_read_only_transaction_holds_nothing_that_writers_need() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            for (reading, writing) in [(0, 1), (0, 0), (1, 0)] {
                let mut reader = databases[reading].begin_to_read();
                let all = (ACCOUNTS, i64::from(ACCOUNTS) * OPENING);
                assert_eq!(sum(&mut reader, table).await.unwrap(), all);
                assert_eq!(reader.latched_leaves(), 0, "{protocol}");
                let row = reader.get(table, &key![3]).await.unwrap().unwrap();
                let balance = row.i64(BALANCE).unwrap();
                let before = databases[writing].stats();
                for id in 0..ACCOUNTS {
                    let to = (id + 7) % ACCOUNTS;
                    transfer(&databases[writing], table, id, to, 1).await.unwrap();
                }
                let stats = databases[writing].stats() - before;
                assert_eq!(stats.aborts.total(), 0, "{protocol}: {stats:?}");
                // What it has read is not what there is. In the order of timestamps, and at its
                // snapshot, it was before all of that.
                if protocol == Protocol::Snapshot {
                    assert_eq!(sum(&mut reader, table).await.unwrap(), all);
                    let unchanged = reader.get(table, &key![3]).await.unwrap().unwrap();
                    assert_eq!(unchanged.i64(BALANCE).unwrap(), balance);
                }
                let ended = reader.commit().await;
                match protocol {
                    Protocol::TwoPhase | Protocol::Optimistic => {
                        assert!(matches!(ended, Err(TxnError::Stale { .. })), "{ended:?}");
                    }
                    Protocol::Timestamp | Protocol::Snapshot => ended.unwrap(),
                }
            }
        });
        cluster.close();
    }
}

#[test]
fn what_is_read_was_there_together() {
    /// Money goes between these, which are on different pages.
    const PAIR: [i32; 2] = [3, 40];
    const SEEN: usize = 200;
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        let env = cluster.runtime.env();
        let enough = Arc::new(AtomicBool::new(false));
        let policy = RetryPolicy { attempts: 100_000, ..RetryPolicy::default() };
        let mut movers = Vec::new();
        for (db, [from, to]) in databases.iter().cloned().zip([PAIR, [PAIR[1], PAIR[0]]]) {
            let (env, enough) = (env.clone(), Arc::clone(&enough));
            movers.push(cluster.runtime.env().spawn("mover", async move {
                while !enough.load(Ordering::Relaxed) {
                    retry(&env, &policy, || transfer(&db, table, from, to, 1)).await.unwrap();
                    env.sleep(Duration::from_micros(100)).await;
                }
            }));
        }
        cluster.runtime.block_on(async {
            for seen in 0..SEEN {
                let pair = async || {
                    let mut txn = databases[seen % 2].begin_to_read();
                    let mut sum = 0;
                    for id in PAIR {
                        sum += txn.get(table, &key![id]).await?.unwrap().i64(BALANCE)?;
                    }
                    txn.commit().await?;
                    Ok::<_, TxnError>(sum)
                };
                assert_eq!(retry(&env, &policy, pair).await.unwrap(), 2 * OPENING, "{protocol}");
            }
            enough.store(true, Ordering::Relaxed);
            for mover in movers {
                mover.join().await.unwrap();
            }
        });
        cluster.close();
    }
}

/// Rows that no longer matched were shown, and a row that was deleted meanwhile was the final error
/// "index disagrees with the rows".
#[test]
fn a_read_committed_index_scan_shows_rows_that_match_and_skips_those_that_are_gone() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let db = &databases[0];
            let owner = db.index("account", "by_owner").unwrap();
            // The accounts of one owner, in the order of their entries: balance, then number.
            let theirs = KeyRange::prefix(&key!["4"]);
            let change = async || {
                let mut txn = db.begin();
                txn.delete(table, &key![13]).await?;
                // The balance is a column of the index: this moves the entry behind the others.
                txn.update(table, &key![22], add(5)).await?;
                txn.commit().await
            };
            let (mut changed, mut seen) = (None, Vec::new());
            let visit = |row: selkie_txn::RowRef<'_>| {
                if changed.is_none() {
                    let other = || cluster.runtime.block_on(change());
                    changed = Some(std::thread::scope(|scope| scope.spawn(other).join().unwrap()));
                }
                seen.push((row.i64(BALANCE)?, row.i32(0)?));
                Ok(ControlFlow::Continue(()))
            };
            let mut txn = db.begin_with(Isolation::ReadCommitted);
            txn.scan(owner, &theirs, Direction::Forward, visit).await.unwrap();
            txn.commit().await.unwrap();
            let all = [4, 13, 22, 31, 40, 49, 58].map(|id| (OPENING, id));
            match changed.unwrap() {
                // The operation reads one state, the next one a later.
                Ok(()) if protocol == Protocol::Snapshot => {
                    assert_eq!(seen, all);
                    let mut txn = db.begin_with(Isolation::ReadCommitted);
                    assert!(txn.get(table, &key![13]).await.unwrap().is_none());
                    let last = txn.last(owner, &theirs).await.unwrap().unwrap();
                    assert_eq!(last.i32(0).unwrap(), 22);
                }
                Ok(()) => {
                    seen.retain(|row| *row != (OPENING + 5, 22));
                    assert_eq!(seen, [all[0], all[3], all[4], all[5], all[6]], "{protocol}");
                    let mut txn = db.begin_with(Isolation::ReadCommitted);
                    let last = txn.last(owner, &theirs).await.unwrap().unwrap();
                    assert_eq!(last.i32(0).unwrap(), 22);
                }
                // The walk has the leaf of the index latched.
                Err(error) => {
                    assert!(protocol == Protocol::TwoPhase && error.is_retryable(), "{error}");
                    assert_eq!(seen, all);
                }
            }
        });
        cluster.close();
    }
}

fn id_of(row: selkie_txn::RowRef<'_>) -> Result<i32, TxnError> {
    Ok(row.i32(0)?)
}

/// Deletes rows of which a leaf of an index has all entries, and uses its page for something else.
async fn use_page_again(db: &Database, table: Table, ids: &[i32], leaf: GAddr) {
    let (engine, env) = (db.engine(), db.engine().env());
    let policy = RetryPolicy { attempts: 100, ..RetryPolicy::default() };
    let deleting = async || {
        let mut txn = db.begin();
        for id in ids {
            txn.delete(table, &key![*id]).await?;
        }
        txn.commit().await
    };
    retry(env, &policy, deleting).await.unwrap();
    let until = env.now() + Duration::from_secs(10);
    loop {
        let mut page = engine.allocate().await.unwrap();
        if page.addr() == leaf {
            let bytes = page.len();
            return page.bytes_mut(0..bytes).fill(0xa5);
        }
        assert!(env.now() < until, "the leaf is not used again");
        env.sleep(Duration::from_millis(1)).await;
    }
}

/// The right link of a leaf that is not latched any more may lead to a page of something else.
#[test]
fn a_scan_of_an_index_finds_its_way_although_the_next_leaf_was_given_back() {
    let cluster = Cluster::start(2, 512);
    let databases = cluster.create(two_phase(vec![accounts().max_rows_per_page(3)]));
    let [reading, writing] = &databases[..] else { panic!("two nodes") };
    let (runtime, table) = (&cluster.runtime, reading.table("account").unwrap());
    let by_owner = reading.index("account", "by_owner").unwrap();
    // Rows of the first leaf of the index, and the next one.
    let (first, next) = runtime.block_on(async {
        let mut txn = reading.begin();
        for id in 0..ACCOUNTS {
            // The index has the order of the table.
            let owner = format!("{id:02}");
            insert(reading, &mut txn, table, id, &Account { owner, ..account(id) }).await.unwrap();
        }
        txn.commit().await.unwrap();
        let (engine, tree) = (reading.engine(), reading.tree(by_owner).unwrap());
        let first = engine.shared(tree.locate(engine, &[]).await.unwrap()).await.unwrap();
        let first = LeafView::new(&first).map(|leaf| (leaf.len(), leaf.right())).unwrap();
        let next = engine.shared(first.1).await.unwrap();
        (first.0, (LeafView::new(&next).unwrap().len(), first.1))
    });
    let mut left: Vec<i32> = (0..ACCOUNTS).collect();
    let rows: Vec<i32> = left.drain(first..first + next.0).collect();
    let mut seen = Vec::new();
    runtime.block_on(async {
        let mut txn = reading.begin_with(Isolation::ReadCommitted);
        let visit = |row: selkie_txn::RowRef<'_>| {
            if seen.is_empty() {
                let other = || runtime.block_on(use_page_again(writing, table, &rows, next.1));
                std::thread::scope(|threads| threads.spawn(other).join().unwrap());
            }
            seen.push(id_of(row)?);
            Ok(ControlFlow::Continue(()))
        };
        txn.scan(by_owner, &KeyRange::all(), Direction::Forward, visit).await.unwrap();
        txn.commit().await.unwrap();
    });
    assert_eq!(seen, left);
    drop(databases);
    cluster.close();
}
