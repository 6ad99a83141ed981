//! Transactions in the order of timestamps: who is too late, and for what.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::future::Future;
use std::ops::ControlFlow;
use std::task::{Context, Poll, Waker};

use selkie_btree::{LeafView, Stamp, Stamps, TreeError, leaf_remove, leaf_stamp};
use selkie_engine::GAddr;
use selkie_txn::{
    AbortCause, CatalogueError, Database, DatabaseSchema, Direction, Isolation, KeyRange, Protocol,
    RetryPolicy, RowMut, Table, Txn, TxnError, key, retry,
};

use crate::common::{Account, BALANCE, Cluster, OWNER, accounts, check, dump, insert};

const ACCOUNTS: i32 = 60;

fn account(id: i32) -> Account {
    Account { tag: id, owner: format!("{}", id % 9), balance: 10, note: None }
}

/// Two nodes with the accounts, three on a page, in a database that goes by timestamps.
fn cluster() -> (Cluster, Vec<Database>, Table) {
    let cluster = Cluster::start(2, 512);
    let schema = DatabaseSchema::from(vec![accounts().max_rows_per_page(3)]);
    let databases = cluster.create(schema.protocol(Protocol::Timestamp));
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

async fn balance(txn: &mut Txn<'_>, table: Table, id: i32) -> Result<i64, TxnError> {
    let row = txn.get(table, &key![id]).await?;
    Ok(row.unwrap().i64(BALANCE)?)
}

async fn pay(db: &Database, table: Table, id: i32, by: i64) {
    let mut txn = db.begin();
    txn.update(table, &key![id], add(by)).await.unwrap();
    txn.commit().await.unwrap();
}

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
fn nobody_sees_what_is_not_committed_and_nothing_is_latched_for_it() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        let before = dump(&databases[1]).await;
        let mut txn = databases[0].begin();
        for id in 0..ACCOUNTS {
            txn.update(table, &key![id], add(5)).await.unwrap();
            txn.update(table, &key![id], |row| Ok(row.set_text(OWNER, "new")?)).await.unwrap();
            assert_eq!(txn.latched_leaves(), 0);
        }
        txn.delete(table, &key![7]).await.unwrap();
        insert(&databases[0], &mut txn, table, 700, &account(700)).await.unwrap();
        assert_eq!(dump(&databases[1]).await, before);
        assert_eq!(balance(&mut txn, table, 3).await.unwrap(), 15);
        assert!(txn.get(table, &key![7]).await.unwrap().is_none());
        let both = insert(&databases[0], &mut txn, table, 700, &account(701)).await;
        assert!(matches!(both, Err(TxnError::Duplicate { .. })), "{both:?}");
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
        assert_eq!(dump(&databases[1]).await, before);
    });
    cluster.close();
}

#[test]
fn who_meets_what_a_later_one_did_is_too_late() {
    let (cluster, databases, table) = cluster();
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
fn who_is_in_order_is_in_nobodys_way() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        for other in &databases {
            // A later one changes what an earlier one has read, which goes on with what it was.
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
    let (cluster, databases, table) = cluster();
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
fn nobody_goes_by_pages_that_were_never_there_together() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        for other in &databases {
            let mut txn = databases[0].begin();
            assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 10);
            let mut transfer = other.begin();
            transfer.update(table, &key![1], add(-3)).await.unwrap();
            transfer.update(table, &key![50], add(3)).await.unwrap();
            transfer.commit().await.unwrap();
            // It would be 3 more than there ever was.
            assert!(is_too_late(balance(&mut txn, table, 50).await));
            drop(txn);
            let mut back = other.begin();
            back.update(table, &key![1], add(3)).await.unwrap();
            back.update(table, &key![50], add(-3)).await.unwrap();
            back.commit().await.unwrap();
        }
    });
    cluster.close();
}

#[test]
fn write_skew_and_phantoms_cannot_commit_twice() {
    let (cluster, databases, table) = cluster();
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
            assert!(is_too_late(a.commit().await));
            b.commit().await.unwrap();
            // Each adds to a range that it found empty.
            let range = KeyRange::between(&key![2000], &key![2999]);
            let (mut a, mut b) = (databases[0].begin(), other.begin());
            assert!(a.first(table, &range).await.unwrap().is_none());
            assert!(b.last(table, &range).await.unwrap().is_none());
            insert(&databases[0], &mut a, table, 2001, &account(2001)).await.unwrap();
            insert(other, &mut b, table, 2900, &account(2900)).await.unwrap();
            assert!(is_too_late(a.commit().await));
            b.commit().await.unwrap();
            let mut txn = databases[0].begin();
            txn.delete(table, &key![2900]).await.unwrap();
            txn.commit().await.unwrap();
        }
        check(&databases[0]).await;
    });
    cluster.close();
}

#[test]
fn gaps_are_read_too() {
    let (cluster, databases, table) = cluster();
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
    let (cluster, databases, table) = cluster();
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
    let (cluster, databases, table) = cluster();
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
            let mut met = Vec::new();
            let visit = |row: selkie_txn::RowRef<'_>| {
                let id = row.i32(0)?;
                met.push(id);
                // Of the leaf before it if it goes up, and in it if it goes down.
                if id == first - i32::from(direction == Direction::Forward) {
                    let reclaimed = std::thread::scope(|scope| {
                        let reclaim = || cluster.runtime.block_on(tree.reclaim(db.engine(), empty));
                        scope.spawn(reclaim).join().unwrap()
                    });
                    assert!(reclaimed.unwrap());
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
fn read_committed_reads_what_is_there_and_loses_no_update() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        let before = leaf_of(&databases[0], table, 1).await.1;
        let mut txn = databases[0].begin_with(Isolation::ReadCommitted);
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), 10);
        assert_eq!(leaf_of(&databases[0], table, 1).await.1, before, "no stamp");
        assert_eq!(txn.latched_leaves(), 0);
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
            assert!(is_too_late(txn.commit().await));
        }
        let mut txn = databases[1].begin();
        assert_eq!(balance(&mut txn, table, 30).await.unwrap(), 13);
        txn.commit().await.unwrap();
    });
    cluster.close();
}

#[test]
fn a_database_is_for_timestamps_or_for_other_protocols() {
    use Protocol::{Optimistic, Timestamp, TwoPhase};
    let (cluster, databases, table) = cluster();
    let refused = |db: &Database, protocol| {
        let error = db.clone().with_protocol(protocol).err().unwrap();
        assert!(
            matches!(error, TxnError::Catalogue(CatalogueError::Protocol { wanted }) if wanted == protocol)
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
fn a_clock_that_is_behind_is_moved_on_by_those_who_find_out() {
    let (cluster, databases, table) = cluster();
    cluster.runtime.block_on(async {
        for (db, ahead) in databases.iter().zip([1 << 40, 1 << 50]) {
            let (addr, _) = leaf_of(db, table, 1).await;
            let stamps = Stamps { read: Stamp::new(ahead), write: Stamp::new(ahead - 5) };
            leaf_stamp(&mut db.engine().exclusive(addr).await.unwrap(), stamps);
            // Where it has left no stamp all goes on.
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
fn nobody_is_given_a_stamp_when_there_are_none_left() {
    let (cluster, databases, table) = cluster();
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
    let (cluster, databases, table) = cluster();
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

/// A commit that is dropped at any of its await points has taken place, or has left nothing.
#[test]
fn a_commit_that_is_given_up_is_whole_or_nothing() {
    let (cluster, databases, table) = cluster();
    let (mut whole, mut nothing) = (0, 0);
    for polls in 1..40 {
        let prepared = async {
            // Elsewhere, so that pages have to be fetched; with stamps of before.
            let mut txn = databases[0].begin();
            for id in 0..ACCOUNTS {
                txn.update(table, &key![id], add(1)).await.unwrap();
            }
            insert(&databases[0], &mut txn, table, 10_000 + polls, &account(10_000 + polls))
                .await
                .unwrap();
            let before = dump(&databases[1]).await;
            (before, txn)
        };
        let (before, txn) = cluster.runtime.block_on(prepared);
        let (ended, after) = cluster.runtime.block_on(async {
            let mut commit = Box::pin(txn.commit());
            let mut ended = None;
            for _ in 0..polls {
                if let Poll::Ready(result) =
                    commit.as_mut().poll(&mut Context::from_waker(Waker::noop()))
                {
                    ended = Some(result.is_ok());
                    break;
                }
                databases[0].engine().env().sleep(std::time::Duration::from_micros(50)).await;
            }
            drop(commit);
            (ended, dump(&databases[0]).await)
        });
        let rows = after[0].len() - before[0].len();
        assert!(rows <= 1);
        let mut txn = databases[0].begin();
        let added = cluster.runtime.block_on(async {
            let first = balance(&mut txn, table, 1).await.unwrap();
            let last = balance(&mut txn, table, ACCOUNTS - 1).await.unwrap();
            assert_eq!(first, last, "half of it");
            first
        });
        drop(txn);
        assert_eq!(added, 10 + whole + i64::try_from(rows).unwrap());
        if rows == 1 {
            whole += 1;
        } else {
            nothing += 1;
            assert_ne!(ended, Some(true));
            assert_eq!(after, before);
        }
    }
    assert!(whole > 0 && nothing > 0, "{whole} were whole, {nothing} nothing");
    cluster.runtime.block_on(check(&databases[1]));
    cluster.close();
}
