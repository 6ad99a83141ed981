//! What optimistic transactions and those in timestamp order have in common: their changes are kept
//! aside until commit, which may find a conflict.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_txn::{AbortCause, Database, Isolation, KeyRange, Protocol, Table, Txn, TxnError, key};

use crate::common::{
    ACCOUNTS, Cluster, OPENING, OWNER, account, add, balance, bank, check, dump, failed_by, insert,
    pay, poll_times, transfer,
};

/// The protocols that keep changes aside, each with the cause by which a transaction fails that
/// meets the changes of another.
const PROTOCOLS: [(Protocol, AbortCause); 3] = [
    (Protocol::Optimistic, AbortCause::Stale),
    (Protocol::Timestamp, AbortCause::TooLate),
    (Protocol::Snapshot, AbortCause::Stale),
];

#[test]
fn uncommitted_changes_are_invisible_and_latch_nothing() {
    for (protocol, _) in PROTOCOLS {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let before = dump(&databases[1]).await;
            let mut txn = databases[0].begin();
            for id in 0..ACCOUNTS {
                txn.update(table, &key![id], add(5)).await.unwrap();
                txn.update(table, &key![id], |row| Ok(row.set_text(OWNER, "new")?)).await.unwrap();
                assert_eq!(txn.latched_leaves(), 0, "{protocol}");
            }
            txn.delete(table, &key![7]).await.unwrap();
            insert(&databases[0], &mut txn, table, 700, &account(700)).await.unwrap();
            assert_eq!(txn.latched_leaves(), 0, "{protocol}");
            assert_eq!(dump(&databases[1]).await, before, "{protocol}");
            assert_eq!(balance(&mut txn, table, 3).await.unwrap(), 15);
            assert!(txn.get(table, &key![7]).await.unwrap().is_none());
            let both = insert(&databases[0], &mut txn, table, 700, &account(701)).await;
            assert!(matches!(both, Err(TxnError::Duplicate { .. })), "{protocol}: {both:?}");
            txn.commit().await.unwrap();
            check(&databases[1]).await;
            let mut txn = databases[1].begin();
            assert_eq!(balance(&mut txn, table, 59).await.unwrap(), 15);
            assert_eq!(balance(&mut txn, table, 700).await.unwrap(), 10);
            txn.commit().await.unwrap();
            // Dropped, it was never there.
            let before = dump(&databases[1]).await;
            let mut txn = databases[0].begin();
            txn.delete(table, &key![8]).await.unwrap();
            drop(txn);
            assert_eq!(dump(&databases[1]).await, before, "{protocol}");
        });
        cluster.close();
    }
}

#[test]
fn a_transaction_never_sees_pages_of_different_states() {
    for (protocol, cause) in PROTOCOLS {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            for other in &databases {
                let mut txn = databases[0].begin();
                assert_eq!(balance(&mut txn, table, 1).await.unwrap(), OPENING);
                transfer(other, table, 1, 50, 3).await.unwrap();
                // It would be 3 more than there ever was.
                assert!(failed_by(balance(&mut txn, table, 50).await, cause), "{protocol}");
                let ended = txn.commit().await;
                assert!(
                    matches!(ended, Err(TxnError::RolledBack { cause: by }) if by == cause),
                    "{protocol}: {ended:?}"
                );
                transfer(other, table, 50, 1, 3).await.unwrap();
            }
        });
        cluster.close();
    }
}

#[test]
fn write_skew_and_phantoms_cannot_commit_twice() {
    for (protocol, cause) in PROTOCOLS {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            for other in &databases {
                // Each pays for the other.
                let (mut a, mut b) = (databases[0].begin(), other.begin());
                for txn in [&mut a, &mut b] {
                    balance(txn, table, 1).await.unwrap();
                    balance(txn, table, 50).await.unwrap();
                }
                a.update(table, &key![1], add(-1)).await.unwrap();
                b.update(table, &key![50], add(-1)).await.unwrap();
                let skew = commit_both(protocol, a, b).await;
                assert!(failed_by(skew, cause), "{protocol}");
                // Each adds to a range that it found empty.
                let range = KeyRange::between(&key![2000], &key![2999]);
                let (mut a, mut b) = (databases[0].begin(), other.begin());
                assert!(a.first(table, &range).await.unwrap().is_none());
                assert!(b.last(table, &range).await.unwrap().is_none());
                insert(&databases[0], &mut a, table, 2001, &account(2001)).await.unwrap();
                insert(other, &mut b, table, 2900, &account(2900)).await.unwrap();
                let phantom = commit_both(protocol, a, b).await;
                match protocol {
                    Protocol::Timestamp => assert!(failed_by(phantom, cause), "{protocol}"),
                    _ => assert!(phantom.is_err_and(|error| error.is_retryable()), "{protocol}"),
                }
                let mut txn = databases[0].begin();
                let winner = if first_one_loses(protocol) { 2900 } else { 2001 };
                txn.delete(table, &key![winner]).await.unwrap();
                txn.commit().await.unwrap();
            }
            check(&databases[0]).await;
        });
        cluster.close();
    }
}

/// Of two transactions in conflict, of which the first one begins and commits first: in the order
/// of timestamps it is too late for what the second one has read; else it commits, and the second
/// one's reads are stale.
fn first_one_loses(protocol: Protocol) -> bool {
    protocol == Protocol::Timestamp
}

/// Commits both, of which one has to succeed; the result of the other.
async fn commit_both(protocol: Protocol, first: Txn<'_>, second: Txn<'_>) -> Result<(), TxnError> {
    let (first, second) = (first.commit().await, second.commit().await);
    let (winner, loser) = if first_one_loses(protocol) { (second, first) } else { (first, second) };
    assert!(winner.is_ok(), "{protocol}: {winner:?}");
    loser
}

#[test]
fn read_committed_reads_what_is_there_and_loses_no_update() {
    for (protocol, cause) in PROTOCOLS {
        let (cluster, databases, table) = bank(protocol);
        cluster.runtime.block_on(async {
            let mut txn = databases[0].begin_with(Isolation::ReadCommitted);
            assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 10);
            assert_eq!(txn.latched_leaves(), 0, "{protocol}");
            pay(&databases[1], table, 1, 1).await;
            assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 11);
            txn.update(table, &key![30], add(1)).await.unwrap();
            pay(&databases[1], table, 1, 1).await;
            assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 12);
            txn.commit().await.unwrap();
            for for_update in [false, true] {
                let mut txn = databases[0].begin_with(Isolation::ReadCommitted);
                if for_update {
                    assert!(txn.get_for_update(table, &key![30]).await.unwrap().is_some());
                }
                txn.update(table, &key![30], add(1)).await.unwrap();
                pay(&databases[1], table, 30, 1).await;
                assert!(failed_by(txn.commit().await, cause), "{protocol}");
            }
            let mut txn = databases[1].begin();
            assert_eq!(balance(&mut txn, table, 30).await.unwrap(), 13);
            txn.commit().await.unwrap();
        });
        cluster.close();
    }
}

/// A commit that is dropped at any of its await points has taken place, or has left nothing.
#[test]
fn a_commit_that_is_dropped_is_whole_or_nothing() {
    for (protocol, _) in PROTOCOLS {
        let (cluster, databases, table) = bank(protocol);
        // Drops come later and later, until a commit ends before its drop.
        let mut drops = CommitDrops { databases: &databases, table, whole: 0, nothing: 0 };
        let has_ended = (1..1000).any(|polls| drops.drop_commit_after(&cluster, polls));
        let CommitDrops { whole, nothing, .. } = drops;
        assert!(has_ended, "{protocol}: no commit ended");
        assert!(whole > 0 && nothing > 0, "{protocol}: {whole} were whole, {nothing} nothing");
        cluster.runtime.block_on(check(&databases[1]));
        cluster.close();
    }
}

/// What became of commits that were dropped.
struct CommitDrops<'d> {
    databases: &'d [Database],
    table: Table,
    whole: i64,
    nothing: i64,
}

impl CommitDrops<'_> {
    /// Drops a commit after it was polled so often, and checks that it is whole or nothing. Returns
    /// whether it had succeeded before.
    fn drop_commit_after(&mut self, cluster: &Cluster, polls: i32) -> bool {
        let (databases, table) = (self.databases, self.table);
        let (before, ended, after, balances) = cluster.runtime.block_on(async {
            let mut txn = databases[0].begin();
            for id in 0..ACCOUNTS {
                txn.update(table, &key![id], add(1)).await.unwrap();
            }
            let new = 10_000 + polls;
            insert(&databases[0], &mut txn, table, new, &account(new)).await.unwrap();
            // Elsewhere, so that commit has to fetch the pages exclusively.
            let before = dump(&databases[1]).await;
            let ended = poll_times(txn.commit(), usize::try_from(polls).unwrap()).await;
            let after = dump(&databases[0]).await;
            let mut txn = databases[0].begin();
            let mut balances = Vec::new();
            for id in [1, ACCOUNTS - 1] {
                balances.push(balance(&mut txn, table, id).await.unwrap());
            }
            (before, ended, after, balances)
        });
        let rows = after[0].len() - before[0].len();
        assert!(rows <= 1);
        if rows == 1 {
            self.whole += 1;
        } else {
            self.nothing += 1;
            assert!(!matches!(ended, Some(Ok(()))));
            assert_eq!(after, before);
        }
        assert_eq!(balances, [OPENING + self.whole; 2], "half of it");
        matches!(ended, Some(Ok(())))
    }
}
