//! Transactions that only read: what they refuse, whom they are in the way of, and what they see.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_txn::{
    Database, DatabaseSchema, Direction, KeyRange, Protocol, RetryPolicy, RowMut, Table, Txn,
    TxnError, key, retry,
};

use crate::common::{Account, BALANCE, Cluster, accounts, check, insert};

const ACCOUNTS: i32 = 60;
const OPENING: i64 = 10;

fn account(id: i32) -> Account {
    Account { tag: id, owner: format!("{}", id % 9), balance: OPENING, note: None }
}

/// Two nodes with the accounts, three on a page, and handles of this protocol.
fn cluster(protocol: Protocol) -> (Cluster, Vec<Database>, Table) {
    let cluster = Cluster::start(2, 512);
    let schema = DatabaseSchema::from(vec![accounts().max_rows_per_page(3)]).protocol(protocol);
    let databases = cluster.create(schema);
    let databases: Vec<_> =
        databases.into_iter().map(|db| db.with_protocol(protocol).unwrap()).collect();
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

async fn pay(db: &Database, table: Table, from: i32, to: i32) -> Result<(), TxnError> {
    let mut txn = db.begin();
    txn.update(table, &key![from], add(-1)).await?;
    txn.update(table, &key![to], add(1)).await?;
    txn.commit().await
}

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
fn nothing_is_changed_by_who_only_reads() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = cluster(protocol);
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
            // It goes on nevertheless.
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
fn who_only_reads_holds_nothing_that_writers_need() {
    for protocol in Protocol::ALL {
        let (cluster, databases, table) = cluster(protocol);
        cluster.runtime.block_on(async {
            for (reading, writing) in [(0, 1), (0, 0), (1, 0)] {
                let mut reader = databases[reading].begin_to_read();
                let all = (ACCOUNTS, i64::from(ACCOUNTS) * OPENING);
                assert_eq!(sum(&mut reader, table).await.unwrap(), all);
                assert_eq!(reader.latched_leaves(), 0, "{protocol}");
                let before = databases[writing].stats();
                for id in 0..ACCOUNTS {
                    let to = (id + 7) % ACCOUNTS;
                    pay(&databases[writing], table, id, to).await.unwrap();
                }
                let stats = databases[writing].stats() - before;
                assert_eq!(stats.aborts.total(), 0, "{protocol}: {stats:?}");
                // What it has read is not what there is. In the order of timestamps it was before
                // all of that.
                let ended = reader.commit().await;
                match protocol {
                    Protocol::TwoPhase | Protocol::Optimistic => {
                        assert!(matches!(ended, Err(TxnError::Stale { .. })), "{ended:?}");
                    }
                    Protocol::Timestamp => ended.unwrap(),
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
        let (cluster, databases, table) = cluster(protocol);
        let env = cluster.runtime.env();
        let enough = Arc::new(AtomicBool::new(false));
        let policy = RetryPolicy { attempts: 100_000, ..RetryPolicy::default() };
        let mut movers = Vec::new();
        for (db, [from, to]) in databases.iter().cloned().zip([PAIR, [PAIR[1], PAIR[0]]]) {
            let (env, enough) = (env.clone(), Arc::clone(&enough));
            movers.push(cluster.runtime.env().spawn("mover", async move {
                while !enough.load(Ordering::Relaxed) {
                    retry(&env, &policy, || pay(&db, table, from, to)).await.unwrap();
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
