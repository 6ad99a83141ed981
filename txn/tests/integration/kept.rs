//! Reads that have to stay true until the commit, whatever the isolation.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_txn::{AbortCause, Database, Isolation, KeyRange, Protocol, Table, Txn, TxnError, key};

use crate::common::{account, add, bank, check, failed_by, insert, with_each_protocol};

/// Keeps something at one node, lets `other` commit something at another, changes account 2, and
/// commits.
async fn keep_beside(
    [here, there]: [&Database; 2],
    (table, isolation): (Table, Isolation),
    keep: impl AsyncFn(&mut Txn<'_>),
    other: impl AsyncFn(&mut Txn<'_>),
) -> Result<(), TxnError> {
    let mut txn = here.begin_with(isolation);
    keep(&mut txn).await;
    let mut beside = there.begin();
    other(&mut beside).await;
    beside.commit().await.unwrap();
    txn.update(table, &key![2], add(1)).await?;
    txn.commit().await
}

#[test]
fn a_row_that_is_kept_may_change_but_not_go() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let nodes = [&databases[0], &databases[1]];
    cluster.runtime.block_on(async {
        let keep = async |txn: &mut Txn<'_>| assert!(txn.keep_row(table, &key![1]).await.unwrap());
        let keep_none =
            async |txn: &mut Txn<'_>| assert!(!txn.keep_row(table, &key![1]).await.unwrap());
        let pay = async |txn: &mut Txn<'_>| txn.update(table, &key![1], add(5)).await.unwrap();
        let delete = async |txn: &mut Txn<'_>| txn.delete(table, &key![1]).await.unwrap();
        let fresh = async |txn: &mut Txn<'_>| {
            insert(&databases[1], txn, table, 1, &account(1)).await.unwrap();
        };
        let isolations =
            [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
        for isolation in isolations {
            let of = (table, isolation);
            keep_beside(nodes, of, keep, pay).await.unwrap();
            // Two who keep one row do not meet.
            keep_beside(nodes, of, keep, keep).await.unwrap();
            let gone = keep_beside(nodes, of, keep, delete).await;
            assert!(failed_by(gone, AbortCause::Stale), "{isolation:?}");
            // Of a row that is not there nothing is promised below serializable.
            let came = keep_beside(nodes, of, keep_none, fresh).await;
            assert_eq!(came.is_err(), isolation == Isolation::Serializable, "{came:?}");
        }
        check(&databases[0]).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn a_range_that_is_kept_stays_without_rows() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let nodes = [&databases[0], &databases[1]];
    let last = account(1_000_000);
    cluster.runtime.block_on(async {
        let range = KeyRange::from(&key![1_000_000]);
        let keep = async |txn: &mut Txn<'_>| {
            assert!(!txn.keep_range(table, &range, false).await.unwrap());
        };
        let elsewhere = async |txn: &mut Txn<'_>| {
            txn.update(table, &key![1], add(1)).await.unwrap();
        };
        let within = async |txn: &mut Txn<'_>| {
            insert(&databases[1], txn, table, 1_000_000, &last).await.unwrap();
        };
        for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
            let of = (table, isolation);
            keep_beside(nodes, of, keep, elsewhere).await.unwrap();
            let came = keep_beside(nodes, of, keep, within).await;
            assert!(failed_by(came, AbortCause::Stale), "{isolation:?}");
            let mut txn = databases[0].begin();
            assert!(txn.keep_range(table, &range, false).await.unwrap());
            txn.delete(table, &key![1_000_000]).await.unwrap();
            assert!(!txn.keep_range(table, &range, false).await.unwrap());
            txn.commit().await.unwrap();
        }
        check(&databases[0]).await;
    });
    drop(databases);
    cluster.close();
}

#[test]
fn every_protocol_tells_whether_there_is_a_row() {
    with_each_protocol(1, async |protocol, databases, table| {
        let mut txn = databases[0].begin();
        assert!(!txn.keep_row(table, &key![1]).await.unwrap(), "{protocol}");
        assert!(!txn.keep_range(table, &KeyRange::all(), true).await.unwrap(), "{protocol}");
        insert(&databases[0], &mut txn, table, 1, &account(1)).await.unwrap();
        assert!(txn.keep_row(table, &key![1]).await.unwrap(), "{protocol}");
        assert!(txn.keep_range(table, &KeyRange::all(), true).await.unwrap(), "{protocol}");
        txn.delete(table, &key![1]).await.unwrap();
        assert!(!txn.keep_row(table, &key![1]).await.unwrap(), "{protocol}");
        txn.commit().await.unwrap();
    });
}
