//! Transactions in the order of timestamps: when one is too late, and for what.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;

use selkie_btree::{LeafView, Stamp, StampRule, Stamps, TreeError, leaf_remove, leaf_stamp};
use selkie_engine::GAddr;
use selkie_txn::{
    AbortCause, CatalogueError, Database, DatabaseSchema, Direction, Isolation, KeyRange, Protocol,
    RetryPolicy, Table, TxnError, key, retry,
};

use crate::common::{
    ACCOUNTS, Account, BALANCE, account, accounts, add, balance, bank, check, insert, pay,
};

fn is_too_late<T: std::fmt::Debug>(result: Result<T, TxnError>) -> bool {
    matches!(&result, Err(error @ TxnError::TooLate { .. }) if error.is_retryable()
        && error.abort_cause() == Some(AbortCause::TooLate))
}

/// The leaf of an account, and its stamps.
async fn leaf_of(db: &Database, table: Table, id: i32) -> (GAddr, Stamps) {
    let (engine, tree) = (db.engine(), db.tree(table).unwrap());
    let _pin = engine.pin();
    let mut addr = tree.locate(engine, &key![id]).await.unwrap();
    loop {
        let page = engine.shared(addr).await.unwrap();
        let leaf = LeafView::new(&page).unwrap();
        if leaf.high_fence().is_none_or(|high| *high > *key![id]) {
            return (addr, leaf.stamps());
        }
        addr = leaf.right();
    }
}

#[test]
fn a_transaction_after_a_later_one_is_too_late() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    cluster.runtime.block_on(async {
        for other in &databases {
            let stats = databases[0].stats();
            // A later one has changed what an earlier one reads.
            let mut earlier = databases[0].begin();
            balance(&mut earlier, table, 40).await.unwrap();
            pay(other, table, 1, 1).await;
            assert!(is_too_late(balance(&mut earlier, table, 1).await));
            assert!(matches!(
                earlier.commit().await,
                Err(TxnError::RolledBack { cause: AbortCause::TooLate })
            ));
            // Has read what it changes.
            let mut earlier = databases[0].begin();
            earlier.update(table, &key![1], add(1)).await.unwrap();
            let mut later = other.begin();
            let seen = balance(&mut later, table, 1).await.unwrap();
            assert!(is_too_late(earlier.commit().await));
            // Also if the later one comes to nothing.
            let mut earlier = databases[0].begin();
            earlier.update(table, &key![1], add(1)).await.unwrap();
            let mut gone = other.begin();
            balance(&mut gone, table, 1).await.unwrap();
            gone.rollback().await;
            assert!(is_too_late(earlier.commit().await));
            assert_eq!(balance(&mut later, table, 1).await.unwrap(), seen);
            later.commit().await.unwrap();
            // Has changed what it changes: a lost update.
            let mut earlier = databases[0].begin();
            earlier.update(table, &key![1], add(1)).await.unwrap();
            pay(other, table, 1, 1).await;
            assert!(is_too_late(earlier.commit().await));
            assert_eq!((databases[0].stats() - stats).aborts.of(AbortCause::TooLate), 4);
        }
    });
    cluster.close();
}

#[test]
fn transactions_in_order_do_not_conflict() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    cluster.runtime.block_on(async {
        for other in &databases {
            // A later one changes what an earlier one has read, which continues with what it was.
            let mut earlier = databases[0].begin();
            let seen = balance(&mut earlier, table, 1).await.unwrap();
            pay(other, table, 1, 1).await;
            earlier.update(table, &key![40], |row| Ok(row.set_i64(BALANCE, seen)?)).await.unwrap();
            earlier.commit().await.unwrap();
            // The later one reads what the earlier one has changed, and changes what it has read
            // and changed.
            let mut later = other.begin();
            assert_eq!(balance(&mut later, table, 40).await.unwrap(), seen);
            later.update(table, &key![40], |row| Ok(row.set_i64(BALANCE, 10)?)).await.unwrap();
            later.commit().await.unwrap();
            // Several read the same.
            let (mut a, mut b) = (databases[0].begin(), other.begin());
            for txn in [&mut a, &mut b, &mut databases[0].begin()] {
                balance(txn, table, 20).await.unwrap();
            }
            for txn in [&mut a, &mut b] {
                assert_eq!(balance(txn, table, 21).await.unwrap(), 10);
            }
            b.commit().await.unwrap();
            a.commit().await.unwrap();
        }
    });
    cluster.close();
}

#[test]
fn read_stamps_do_not_go_back() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    cluster.runtime.block_on(async {
        for other in &databases {
            let (mut first, mut second) = (databases[0].begin(), databases[0].begin());
            balance(&mut first, table, 40).await.unwrap();
            second.update(table, &key![1], add(1)).await.unwrap();
            let mut third = other.begin();
            assert_eq!(balance(&mut third, table, 1).await.unwrap(), 10);
            let (_, after) = leaf_of(&databases[0], table, 1).await;
            balance(&mut first, table, 1).await.unwrap();
            assert_eq!(leaf_of(&databases[0], table, 1).await.1, after);
            assert!(is_too_late(second.commit().await), "the third has read it as it was");
            third.commit().await.unwrap();
            first.commit().await.unwrap();
        }
    });
    cluster.close();
}

#[test]
fn gaps_are_read_too() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    cluster.runtime.block_on(async {
        for (number, other) in (0..).zip(&databases) {
            let new = 1000 + 10 * number;
            let range = KeyRange::between(&key![new], &key![new + 9]);
            for direction in [Direction::Forward, Direction::Reverse] {
                let mut adds = databases[0].begin();
                insert(&databases[0], &mut adds, table, new, &account(new)).await.unwrap();
                let mut counts = other.begin();
                let mut rows = 0;
                let visit = |_: selkie_txn::RowRef<'_>| {
                    rows += 1;
                    Ok(ControlFlow::Continue(()))
                };
                counts.scan(table, &range, direction, visit).await.unwrap();
                assert_eq!(rows, 0);
                assert!(is_too_late(adds.commit().await), "a phantom");
                counts.commit().await.unwrap();
            }
            let mut adds = databases[0].begin();
            insert(&databases[0], &mut adds, table, new, &account(new)).await.unwrap();
            let mut looks = other.begin();
            assert!(looks.get(table, &key![new + 1]).await.unwrap().is_none());
            assert!(is_too_late(adds.commit().await), "its leaf was read");
        }
        check(&databases[0]).await;
    });
    cluster.close();
}

/// Rows move to other leaves when theirs is split, and when it is given back.
#[test]
fn stamps_go_with_the_keys_they_are_for() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    cluster.runtime.block_on(async {
        for (number, other) in (0..).zip(&databases) {
            // What was read is split by one that is later still.
            let mut earlier = databases[0].begin();
            balance(&mut earlier, table, 40).await.unwrap();
            let leaf = leaf_of(other, table, 1000 + number).await.0;
            let splits = other.stats().splits;
            let mut later = other.begin();
            for id in 0..9 {
                let id = 1000 + 100 * number + id;
                insert(other, &mut later, table, id, &account(id)).await.unwrap();
            }
            later.commit().await.unwrap();
            assert!(other.stats().splits > splits);
            let key = 1000 + 100 * number + 50;
            assert_ne!(leaf_of(other, table, key).await.0, leaf, "in the new leaf");
            assert!(is_too_late(earlier.get(table, &key![key]).await.map(|row| row.is_some())));

            // All rows of some leaves go, and a leaf that was there before takes over their keys.
            let mut earlier = databases[0].begin();
            balance(&mut earlier, table, 40).await.unwrap();
            let before = leaf_of(other, table, 13 + 6 * number).await.0;
            let mut later = other.begin();
            for id in 6 * number..6 * number + 18 {
                later.delete(table, &key![id]).await.unwrap();
            }
            later.commit().await.unwrap();
            let (leaf, stamps) = leaf_of(other, table, 13 + 6 * number).await;
            assert_ne!(leaf, before, "it was given back");
            assert!(stamps.write > Stamp::default());
            let gone = earlier.get(table, &key![13 + 6 * number]).await;
            assert!(is_too_late(gone.map(|row| row.is_some())), "it was there at that time");
            let mut again = other.begin();
            for id in 6 * number..6 * number + 18 {
                insert(other, &mut again, table, id, &account(id)).await.unwrap();
            }
            again.commit().await.unwrap();
        }
        check(&databases[0]).await;
    });
    cluster.close();
}

/// A walk latches nothing while it looks for its next leaf, which may have grown by the one that it
/// comes from, or into it.
#[test]
fn a_walk_meets_each_row_once_though_leaves_are_given_back_on_the_way() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    let (db, tree) = (&databases[0], databases[0].tree(table).unwrap());
    for (direction, first) in [(Direction::Forward, 9), (Direction::Reverse, 30)] {
        let (empty, grown, met) = cluster.runtime.block_on(async {
            // A leaf without rows, which is still there.
            let (empty, _) = leaf_of(db, table, first).await;
            let mut guard = db.engine().exclusive(empty).await.unwrap();
            let rows = LeafView::new(&guard).unwrap().len();
            for _ in 0..rows {
                leaf_remove(&mut guard, 0).unwrap();
            }
            drop(guard);
            let gone = first..first + i32::try_from(rows).unwrap();
            let mut walker = db.begin();
            let left: Vec<i32> = (0..ACCOUNTS).filter(|id| !gone.contains(id)).collect();
            for id in &left {
                if walker.get(table, &key![*id]).await.unwrap().is_some() {
                    walker.update(table, &key![*id], add(1)).await.unwrap();
                }
            }
            // The entries of indexes are still there.
            let own = Account { tag: 5000 + first, owner: "own".into(), ..account(first) };
            insert(db, &mut walker, table, first, &own).await.unwrap();
            let (mut met, key) = (Vec::new(), key![first]);
            let visit = |row: selkie_txn::RowRef<'_>| {
                let id = row.i32(0)?;
                met.push(id);
                // Of the leaf before it if it goes up, and in it if it goes down.
                if id == first - i32::from(direction == Direction::Forward) {
                    let reclaimed = std::thread::scope(|scope| {
                        let reclaim = || {
                            cluster.runtime.block_on(tree.reclaim(
                                db.engine(),
                                &key,
                                StampRule::Latest,
                            ))
                        };
                        scope.spawn(reclaim).join().unwrap()
                    });
                    assert_eq!(reclaimed.unwrap(), selkie_btree::Reclaimed::Freed);
                }
                Ok(ControlFlow::Continue(()))
            };
            walker.scan(table, &KeyRange::all(), direction, visit).await.unwrap();
            let grown = leaf_of(db, table, first).await.0;
            walker.rollback().await;
            if direction == Direction::Reverse {
                met.reverse();
            }
            (empty, grown, met)
        });
        assert_ne!(empty, grown, "it was given back");
        assert!(met.is_sorted_by(|a, b| a < b), "{direction:?}: {met:?}");
        assert!(met.contains(&first) && met.contains(&0) && met.contains(&(ACCOUNTS - 1)));
    }
    cluster.close();
}

#[test]
fn read_committed_leaves_no_stamp() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    cluster.runtime.block_on(async {
        let before = leaf_of(&databases[0], table, 1).await.1;
        let mut txn = databases[0].begin_with(Isolation::ReadCommitted);
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 10);
        assert_eq!(leaf_of(&databases[0], table, 1).await.1, before, "no stamp");
        assert_eq!(txn.latched_leaves(), 0);
        txn.commit().await.unwrap();
    });
    cluster.close();
}

#[test]
fn a_database_is_for_timestamps_or_for_other_protocols() {
    use Protocol::{Optimistic, Timestamp, TwoPhase};
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    let refused = |db: &Database, protocol| {
        let error = db.clone().with_protocol(protocol).err().unwrap();
        assert!(
            matches!(error, TxnError::Catalogue(CatalogueError::Protocol { wanted, .. }) if wanted == protocol)
        );
        error.to_string()
    };
    for db in &databases {
        assert_eq!(db.protocol(), Timestamp, "also where it was only opened");
        assert_eq!(db.clone().with_protocol(Timestamp).unwrap().protocol(), Timestamp);
        let text = "the database is for protocol to: 2pl cannot be used on it";
        assert_eq!(refused(db, TwoPhase), text);
        refused(db, Optimistic);
    }
    cluster.runtime.block_on(async {
        let engine = &cluster.engines[0];
        let schema = || DatabaseSchema::from(vec![accounts()]);
        for protocol in [TwoPhase, Optimistic] {
            let db = Database::replace(engine, schema().protocol(protocol)).await.unwrap();
            assert_eq!(db.protocol(), protocol);
            let opened = Database::open(&cluster.engines[1]).await.unwrap();
            assert_eq!(opened.protocol(), TwoPhase);
            let text = "the database is for protocol 2pl or occ: to cannot be used on it";
            assert_eq!(refused(&opened, Timestamp), text);
            assert_eq!(opened.with_protocol(Optimistic).unwrap().protocol(), Optimistic);
        }
        assert_eq!(databases[0].table("account").unwrap(), table);
    });
    cluster.close();
}

/// As after pages were put into a new pool, whose clock begins anew.
#[test]
fn a_clock_that_is_behind_is_moved_when_that_is_found() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    cluster.runtime.block_on(async {
        for (db, ahead) in databases.iter().zip([1 << 40, 1 << 50]) {
            let (addr, _) = leaf_of(db, table, 1).await;
            let stamps = Stamps { read: Stamp::new(ahead), write: Stamp::new(ahead - 5) };
            leaf_stamp(&mut db.engine().exclusive(addr).await.unwrap(), stamps);
            // Leaves without such a stamp are not affected.
            pay(db, table, 40, 0).await;
            let stats = db.stats();
            retry(db.engine().env(), &RetryPolicy::default(), || async {
                let mut txn = db.begin();
                txn.update(table, &key![1], add(1)).await?;
                txn.commit().await
            })
            .await
            .unwrap();
            assert_eq!((db.stats() - stats).aborts.total(), 1, "it is moved at once");
            let moved = db.engine().advance_clock(1).await.unwrap();
            assert!((ahead..ahead + 10).contains(&moved), "{moved}");
        }
        let mut txn = databases[0].begin();
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 12);
        txn.commit().await.unwrap();
    });
    cluster.close();
}

#[test]
fn no_stamp_is_given_when_none_are_left() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    cluster.runtime.block_on(async {
        let last = 1_u64 << 62;
        databases[0].engine().raise_clock(last - 1).await.unwrap();
        pay(&databases[1], table, 1, 1).await;
        for db in &databases {
            let mut txn = db.begin();
            let error = txn.get(table, &key![1]).await.map(|row| row.is_some()).unwrap_err();
            assert!(matches!(error, TxnError::OutOfTimestamps { last: l } if l == last), "{error}");
            assert!(!error.is_retryable());
            assert!(matches!(txn.commit().await, Err(TxnError::RolledBack { .. })));
        }
        // What takes no place in the order still works.
        check(&databases[0]).await;
    });
    cluster.close();
}

/// It is not taken for the clock's, which would then be moved to its end.
#[test]
fn a_stamp_beyond_the_last_is_damage() {
    let (cluster, databases, table) = bank(Protocol::Timestamp);
    let db = &databases[0];
    cluster.runtime.block_on(async {
        let (addr, stamps) = leaf_of(db, table, 30).await;
        let wrong = Stamps { write: Stamp::new((1 << 62) + 1), ..stamps };
        leaf_stamp(&mut db.engine().exclusive(addr).await.unwrap(), wrong);
        let mut txn = db.begin();
        let error = balance(&mut txn, table, 30).await.unwrap_err();
        assert!(
            matches!(&error, TxnError::Tree(TreeError::Corrupt { addr: a, .. }) if *a == addr),
            "{error}"
        );
        assert!(!error.is_retryable());
        drop(txn);
        pay(db, table, 1, 1).await;
    });
    cluster.close();
}
