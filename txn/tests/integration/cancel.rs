//! Futures dropped at every await point: nothing stays latched, nothing is half done.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_txn::{Database, KeyRange, RetryPolicy, Table, Txn, TxnError, key, retry};

use crate::common::{
    Account, BALANCE, Cluster, NOTE, OWNER, TAG, accounts, check, dump, insert, poll_times,
    two_phase, with_each_protocol,
};

fn account(id: i32) -> Account {
    Account { tag: id, owner: format!("{}", id % 5), balance: 1, note: Some("n".repeat(30)) }
}

/// Every row and index entry can be changed by one transaction of this node: no other holds a
/// leaf. Afterwards all is as before, and the pages are with this node. A page may still be on its
/// way to a node that gave up waiting for it; that passes.
async fn latch_everything(db: &Database, table: Table) {
    let rows = crate::common::scan_all(db, table.into()).await;
    let id = |row: &Vec<u8>| {
        let row = crate::common::without_layout(db, row);
        i32::from_le_bytes(row[1..5].try_into().unwrap())
    };
    let ids: Vec<i32> = rows.iter().map(id).collect();
    let policy = RetryPolicy { attempts: 1000, ..RetryPolicy::default() };
    let attempt = async || {
        let mut txn = db.begin();
        // It is undone by a second change: only some protocols latch before the commit.
        for added in [1, -1] {
            for &id in &ids {
                let change = |row: &mut selkie_txn::RowMut<'_>| {
                    row.set_i64(BALANCE, row.i64(BALANCE)? + added)?;
                    Ok(row.set_i32(TAG, -1 - row.i32(TAG)?)?)
                };
                txn.update(table, &key![id], change).await?;
            }
        }
        txn.commit().await
    };
    retry(db.engine().env(), &policy, attempt).await.unwrap();
}

async fn everything(db: &Database, txn: &mut Txn<'_>, table: Table) -> Result<(), TxnError> {
    txn.get(table, &key![3]).await?;
    txn.update(table, &key![3], |row| {
        row.set_text(NOTE, &"x".repeat(60))?;
        row.set_text(OWNER, "other")?;
        Ok(row.set_i32(TAG, 7000)?)
    })
    .await?;
    for id in 100..112 {
        insert(db, txn, table, id, &account(id)).await?;
    }
    txn.delete(table, &key![11]).await?;
    txn.last(db.index("account", "by_owner")?, &KeyRange::all()).await?;
    Ok(())
}

#[test]
fn a_transaction_dropped_at_any_await_leaves_nothing() {
    with_each_protocol(2, async |protocol, databases, table| {
        let mut txn = databases[0].begin();
        for id in 0..60 {
            insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let before = dump(&databases[0]).await;
        for polls in 0.. {
            // The pages are with the other node, so that accesses wait.
            latch_everything(&databases[1], table).await;
            let done = poll_times(
                async {
                    let mut txn = databases[0].begin();
                    everything(&databases[0], &mut txn, table).await
                },
                polls,
            );
            let done = done.await;
            assert_eq!(dump(&databases[1]).await, before, "{protocol}: after {polls} polls");
            latch_everything(&databases[1], table).await;
            if let Some(done) = done {
                done.unwrap();
                assert!(polls > 3, "nothing waited: the test shows nothing");
                break;
            }
        }
        check(&databases[0]).await;
    });
}

#[test]
fn an_operation_dropped_half_way_dooms_its_transaction() {
    with_each_protocol(2, async |protocol, databases, table| {
        let db = &databases[0];
        let mut txn = db.begin();
        for id in 0..60 {
            insert(db, &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let before = dump(db).await;
        let mut doomed = 0;
        for polls in 0.. {
            latch_everything(&databases[1], table).await;
            let mut txn = db.begin();
            txn.update(table, &key![1], |row| Ok(row.set_i64(BALANCE, 9)?)).await.unwrap();
            let operation =
                poll_times(insert(db, &mut txn, table, 500, &account(500)), polls).await;
            if operation.is_some() {
                txn.rollback().await;
                break;
            }
            // Not polled at all: it has not begun.
            let committed = txn.commit().await;
            assert_eq!(committed.is_ok(), polls == 0);
            if polls == 0 {
                let mut txn = db.begin();
                txn.update(table, &key![1], |row| Ok(row.set_i64(BALANCE, 1)?)).await.unwrap();
                txn.commit().await.unwrap();
            } else {
                doomed += 1;
            }
            assert_eq!(dump(db).await, before, "{protocol}: after {polls} polls");
        }
        assert!(doomed > 0, "nothing waited: the test shows nothing");
        assert_eq!(dump(db).await, before);
        latch_everything(&databases[1], table).await;
    });
}

#[test]
fn a_commit_dropped_at_any_await_has_committed() {
    let cluster = Cluster::start(1, 512);
    let databases = cluster.create(two_phase(vec![accounts()]));
    let db = &databases[0];
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        for polls in 1..40 {
            let mut txn = db.begin();
            for id in 0..20 {
                insert(db, &mut txn, table, polls * 100 + id, &account(polls * 100 + id))
                    .await
                    .unwrap();
            }
            poll_times(txn.commit(), usize::try_from(polls).unwrap()).await;
            assert_eq!(
                crate::common::scan_all(db, table.into()).await.len(),
                usize::try_from(polls).unwrap() * 20
            );
        }
        latch_everything(db, table).await;
        check(db).await;
    });
    cluster.close();
}

#[test]
fn an_upgrade_dropped_half_way_dooms_its_transaction() {
    let cluster = Cluster::start(2, 512);
    let databases = cluster.create(two_phase(vec![accounts()]));
    let db = &databases[0];
    let table = db.table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = db.begin();
        for id in 0..60 {
            insert(db, &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let mut doomed = 0;
        for polls in 1.. {
            // Both nodes cache the page, so that the upgrade has to ask the other one.
            crate::common::scan_all(&databases[1], table.into()).await;
            let mut txn = db.begin();
            assert!(txn.get(table, &key![1]).await.unwrap().is_some());
            let upgraded = poll_times(txn.get_for_update(table, &key![1]), polls).await;
            let upgraded = upgraded.map(|row| row.unwrap().is_some());
            assert_eq!(txn.commit().await.is_ok(), upgraded.is_some());
            if upgraded.is_some() {
                break;
            }
            doomed += 1;
        }
        assert!(doomed > 0, "nothing waited: the test shows nothing");
        latch_everything(&databases[1], table).await;
    });
    cluster.close();
}
