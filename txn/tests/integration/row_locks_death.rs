//! Locks of rows, and the death of nodes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::time::Duration;

use selkie_txn::{DatabaseSchema, LockOutcome, LockWait, Protocol, key};

use crate::common::{Cluster, ClusterOptions, account, accounts, insert};

#[test]
fn locks_of_a_dead_node_are_nobodys_and_those_of_others_stay() {
    let logs = vec![None; 3];
    let options = ClusterOptions { logs, ..ClusterOptions::new(512) };
    assert!(!is_lock_lost_with_another_node(options));
}

/// That a dead node was behind the holder costs the holder its lock.
#[cfg(feature = "planted")]
#[test]
fn a_lock_that_is_lost_with_another_node_is_found() {
    let (logs, planted) = (vec![None; 3], selkie_engine::Planted::LostLocks);
    let options = ClusterOptions { logs, planted, ..ClusterOptions::new(512) };
    assert!(is_lock_lost_with_another_node(options));
}

/// One node dies that holds a lock, and waits for another. Whether that one is had by two then.
fn is_lock_lost_with_another_node(options: ClusterOptions) -> bool {
    let cluster = Cluster::start_as(options);
    let schema = DatabaseSchema::from(vec![accounts()]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in 0..9 {
            insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let mut dying = databases[2].begin();
        let _ = dying.lock_row(table, &key![1], LockWait::Wait).await.unwrap();
        // Behind the living holder of another row.
        let mut living = databases[0].begin();
        let _ = living.lock_row(table, &key![2], LockWait::Wait).await.unwrap();
        let behind = {
            let db = databases[2].clone();
            databases[2].engine().env().spawn("client", async move {
                let mut txn = db.begin();
                let _ = txn.lock_row(table, &key![2], LockWait::Wait).await;
                std::future::pending::<()>().await;
            })
        };
        let waiter = {
            let db = databases[1].clone();
            databases[1].engine().env().spawn("client", async move {
                let mut txn = db.begin();
                let locked = txn.lock_row(table, &key![1], LockWait::Wait).await.unwrap();
                assert_eq!(locked, LockOutcome::Held);
                txn.commit().await.unwrap();
            })
        };
        let env = cluster.runtime.env();
        env.sleep(Duration::from_millis(50)).await;
        // Home, or they are lost with the node, which has no log.
        let pages: Vec<_> =
            databases[0].pages(databases[0].engine()).await.unwrap().into_iter().collect();
        for page in pages {
            drop(databases[0].engine().shared(page).await.unwrap());
        }
        cluster.kill(2).await;
        waiter.join().await.unwrap();
        let mut other = databases[1].begin();
        let outcome = other.lock_row(table, &key![2], LockWait::NoWait).await.unwrap();
        let is_lost = outcome == LockOutcome::Held;
        living.commit().await.unwrap();
        let outcome = other.lock_row(table, &key![2], LockWait::Wait).await.unwrap();
        assert_eq!(outcome, LockOutcome::Held);
        other.commit().await.unwrap();
        drop(dying);
        drop(behind);
        drop(databases);
        for engine in &cluster.engines[..2] {
            engine.close().await.unwrap();
        }
        is_lost
    })
}
