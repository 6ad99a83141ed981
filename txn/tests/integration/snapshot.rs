//! [`Protocol::Snapshot`]: states that stay while others change rows, and conflicts of rows and
//! ranges where leaves are shared.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;

use selkie_engine::log::LogTo;
use selkie_pool::Coding;
use selkie_txn::{
    AbortCause, ColumnType, Database, DatabaseSchema, Direction, Isolation, KeyRange, Protocol,
    RetryPolicy, Source, Table, TableSchema, Txn, TxnError, key, retry,
};

use crate::common::{
    ACCOUNTS, BALANCE, Cluster, ClusterOptions, NOTE, OPENING, account, accounts, add, balance,
    bank, check, failed_by, insert, pay, poll_times, transfer,
};

/// Transactions that were rolled back, on all nodes.
fn aborts(databases: &[Database]) -> u64 {
    databases.iter().map(|db| db.stats().aborts.total()).sum()
}

async fn rows(txn: &mut Txn<'_>, source: impl Into<Source>, direction: Direction) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    txn.scan(source, &KeyRange::all(), direction, |row| {
        rows.push(row.as_bytes().to_vec());
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    rows
}

/// Changes most of what there is: balances, lengths of rows, rows that go and come, so that leaves
/// split and are emptied.
async fn change_all(db: &Database, table: Table, round: i32) {
    for id in 0..ACCOUNTS {
        let mut txn = db.begin();
        match id % 4 {
            0 => txn.update(table, &key![id], add(1)).await.unwrap(),
            1 => {
                let note = "n".repeat((id + round * 7) as usize % 60);
                let long = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_text(NOTE, &note)?);
                txn.update(table, &key![id], long).await.unwrap();
            }
            2 => {
                txn.delete(table, &key![id]).await.unwrap();
                txn.commit().await.unwrap();
                txn = db.begin();
                insert(db, &mut txn, table, id, &account(id)).await.unwrap();
            }
            _ => {
                let new = 1_000 + round * ACCOUNTS + id;
                insert(db, &mut txn, table, new, &account(new)).await.unwrap();
            }
        }
        txn.commit().await.unwrap();
    }
}

fn a_snapshot_stays(coding: Coding, log: Option<LogTo>) {
    let log_bytes = if log.is_some() { 4 << 20 } else { 0 };
    let cluster = Cluster::start_as(ClusterOptions {
        logs: vec![log; 2],
        coding,
        log_bytes,
        ..ClusterOptions::new(512)
    });
    let schema = DatabaseSchema::from(vec![accounts().max_rows_per_page(3)]);
    let databases = cluster.create(schema.protocol(Protocol::Snapshot));
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in 0..ACCOUNTS {
            insert(&databases[0], &mut txn, table, id, &account(id)).await.unwrap();
        }
        txn.commit().await.unwrap();
        let owner = databases[0].index("account", "by_owner").unwrap();
        let tag = databases[0].index("account", "by_tag").unwrap();
        for (reading, writing) in [(0, 0), (0, 1), (1, 0)] {
            let mut readers = Vec::new();
            for round in 0..3 {
                let mut reader = databases[reading].begin_to_read();
                let before = rows(&mut reader, table, Direction::Forward).await;
                let by_owner = rows(&mut reader, owner, Direction::Forward).await;
                readers.push((reader, before, by_owner));
                change_all(&databases[writing], table, round).await;
            }
            // Each still sees what was there when it began, by every way.
            for (mut reader, before, by_owner) in readers {
                assert_eq!(rows(&mut reader, table, Direction::Forward).await, before);
                let mut backwards = rows(&mut reader, table, Direction::Reverse).await;
                backwards.reverse();
                assert_eq!(backwards, before);
                assert_eq!(rows(&mut reader, owner, Direction::Forward).await, by_owner);
                let mut by_tag = rows(&mut reader, tag, Direction::Reverse).await;
                by_tag.sort();
                let mut sorted = before.clone();
                sorted.sort();
                assert_eq!(by_tag, sorted);
                assert!(balance(&mut reader, table, 3).await.is_ok());
                reader.commit().await.unwrap();
            }
            // Rows of the rounds go again.
            let mut txn = databases[writing].begin();
            for id in 1_000..1_000 + 3 * ACCOUNTS {
                match txn.delete(table, &key![id]).await {
                    Ok(()) | Err(TxnError::NotFound { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            txn.commit().await.unwrap();
            check(&databases[reading]).await;
        }
        assert_eq!(aborts(&databases), 0);
    });
    cluster.close();
}

#[test]
fn a_snapshot_stays_while_all_is_changed() {
    a_snapshot_stays(Coding::PLAIN, None);
}

#[test]
fn a_snapshot_stays_on_coded_pages_with_logs() {
    a_snapshot_stays(Coding::new(2, 1).unwrap(), Some(LogTo::Memory));
}

#[test]
fn a_snapshot_has_every_commit_that_was_acknowledged_before() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        for round in 0..50 {
            let (writing, reading) = (round % 2, (round + 1) % 2);
            pay(&databases[writing], table, 7, 1).await;
            let mut reader = databases[reading].begin_to_read();
            let seen = balance(&mut reader, table, 7).await.unwrap();
            assert_eq!(seen, OPENING + 1 + round as i64);
            reader.commit().await.unwrap();
        }
    });
    cluster.close();
}

/// All accounts of one leaf: both nodes change rows of the same leaves at the same time.
#[test]
fn changes_of_different_rows_of_a_leaf_are_no_conflict() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        for (one, other) in [(0, 1), (0, 0), (1, 0)] {
            let (mut a, mut b) = (databases[one].begin(), databases[other].begin());
            // Rows of the same leaf, read and changed by turns.
            for id in 0..ACCOUNTS {
                let txn = if id % 2 == 0 { &mut a } else { &mut b };
                balance(txn, table, id).await.unwrap();
                txn.update(table, &key![id], add(1)).await.unwrap();
            }
            a.commit().await.unwrap();
            b.commit().await.unwrap();
        }
        check(&databases[0]).await;
        let mut reader = databases[1].begin_to_read();
        for id in 0..ACCOUNTS {
            assert_eq!(balance(&mut reader, table, id).await.unwrap(), OPENING + 3);
        }
    });
    cluster.close();
}

/// Transactions of both nodes at the same time, with rows of the same leaves and none in common:
/// all commit at their first attempt, also those that latch many leaves in different orders.
#[test]
fn concurrent_commits_to_the_same_leaves_wait_for_each_other() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let mut tasks = Vec::new();
    for worker in 0..4_i32 {
        let db = databases[worker as usize % 2].clone();
        tasks.push(cluster.runtime.env().spawn("worker", async move {
            for round in 0..60 {
                let mut txn = db.begin();
                let mut mine: Vec<i32> = (0..ACCOUNTS).filter(|id| id % 4 == worker).collect();
                if round % 2 == 0 {
                    mine.reverse();
                }
                for id in mine {
                    txn.update(table, &key![id], |row| {
                        Ok(row.set_i64(BALANCE, row.i64(BALANCE)? + 1)?)
                    })
                    .await
                    .unwrap();
                }
                txn.commit().await.unwrap();
            }
        }));
    }
    cluster.runtime.block_on(async {
        for task in tasks {
            task.join().await.unwrap();
        }
        assert_eq!(aborts(&databases), 0);
        let mut reader = databases[0].begin_to_read();
        for id in 0..ACCOUNTS {
            assert_eq!(balance(&mut reader, table, id).await.unwrap(), OPENING + 60);
        }
        check(&databases[1]).await;
    });
    cluster.close();
}

/// What a scan has shown before its future was dropped counts as read.
#[test]
fn what_a_dropped_scan_has_shown_is_validated() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut failed = 0;
        for polls in 1..12 {
            let mut txn = databases[0].begin();
            let mut shown = Vec::new();
            let all = KeyRange::all();
            let scan = txn.scan(table, &all, Direction::Forward, |row| {
                shown.push(row.i32(0)?);
                Ok(ControlFlow::Continue(()))
            });
            poll_times(scan, polls).await;
            let Some(last) = shown.last() else { continue };
            pay(&databases[1], table, *last, 1).await;
            txn.update(table, &key![ACCOUNTS - 1], add(1)).await.unwrap_err();
            failed += 1;
        }
        assert!(failed > 0);
    });
    cluster.close();
}

#[test]
fn a_walk_that_ends_early_reads_no_further() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let owner = databases[0].index("account", "by_owner").unwrap();
        for other in &databases {
            // The first of a range; later rows of the same leaf change, come and go.
            let mut txn = databases[0].begin();
            let first = txn.first(table, &KeyRange::all()).await.unwrap().unwrap();
            assert_eq!(first.i32(0).unwrap(), 0);
            txn.first(owner, &KeyRange::prefix(&key!["5"])).await.unwrap();
            pay(other, table, 1, 1).await;
            txn.update(table, &key![40], add(1)).await.unwrap();
            txn.commit().await.unwrap();
            // A row before the first one is a phantom.
            let mut txn = databases[0].begin();
            txn.first(table, &KeyRange::between(&key![-9], &key![9])).await.unwrap();
            let mut before = other.begin();
            insert(other, &mut before, table, -5, &account(-5)).await.unwrap();
            before.commit().await.unwrap();
            txn.update(table, &key![40], add(1)).await.err();
            let ended = txn.commit().await;
            assert!(
                matches!(ended, Err(TxnError::RolledBack { cause: AbortCause::Stale }))
                    || failed_by(ended, AbortCause::Stale)
            );
            let mut after = other.begin();
            after.delete(table, &key![-5]).await.unwrap();
            after.commit().await.unwrap();
        }
    });
    cluster.close();
}

#[test]
fn a_row_that_was_read_may_move_to_another_leaf() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut txn = databases[0].begin();
        for id in 0..ACCOUNTS {
            balance(&mut txn, table, id).await.unwrap();
        }
        // A range that others leave alone, while leaves beside and below it split.
        let range = KeyRange::between(&key![10], &key![29]);
        let mut count = 0;
        txn.scan(table, &range, Direction::Reverse, |_| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        })
        .await
        .unwrap();
        assert_eq!(count, 20);
        let mut other = databases[1].begin();
        for id in 200..260 {
            insert(&databases[1], &mut other, table, id, &account(id)).await.unwrap();
        }
        other.commit().await.unwrap();
        txn.update(table, &key![59], add(1)).await.unwrap();
        txn.commit().await.unwrap();
        check(&databases[1]).await;
    });
    cluster.close();
}

#[test]
fn an_open_transaction_delays_nobody() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut open = Vec::new();
        for id in 0..ACCOUNTS {
            let mut txn = databases[id as usize % 2].begin();
            txn.update(table, &key![id], add(100)).await.unwrap();
            assert_eq!(txn.latched_leaves(), 0);
            open.push(txn);
        }
        for id in 0..ACCOUNTS {
            let to = (id + 11) % ACCOUNTS;
            transfer(&databases[(id as usize + 1) % 2], table, id, to, i64::from(1 + id % 5))
                .await
                .unwrap();
        }
        for txn in open {
            assert!(failed_by(txn.commit().await, AbortCause::Stale));
        }
        assert_eq!(aborts(&databases), ACCOUNTS as u64);
        check(&databases[0]).await;
    });
    cluster.close();
}

#[test]
fn a_counter_that_all_change_loses_no_update() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    let mut tasks = Vec::new();
    for worker in 0..4 {
        let (db, env) = (databases[worker % 2].clone(), cluster.runtime.env());
        tasks.push(cluster.runtime.env().spawn("worker", async move {
            let policy = RetryPolicy { attempts: 100_000, ..RetryPolicy::default() };
            let isolation = [Isolation::Serializable, Isolation::RepeatableRead][worker / 2];
            for _ in 0..100 {
                retry(&env, &policy, || async {
                    let mut txn = db.begin_with(isolation);
                    txn.update(table, &key![5], add(1)).await?;
                    txn.commit().await
                })
                .await
                .unwrap();
            }
        }));
    }
    cluster.runtime.block_on(async {
        for task in tasks {
            task.join().await.unwrap();
        }
        let mut reader = databases[0].begin_to_read();
        assert_eq!(balance(&mut reader, table, 5).await.unwrap(), OPENING + 400);
    });
    cluster.close();
}

#[test]
fn a_database_for_snapshots_takes_no_other_protocol() {
    let (cluster, databases, _) = bank(Protocol::Snapshot);
    for db in &databases {
        assert_eq!(db.protocol(), Protocol::Snapshot);
        for protocol in Protocol::ALL {
            let with = db.clone().with_protocol(protocol);
            assert_eq!(with.is_ok(), protocol == Protocol::Snapshot);
        }
    }
    cluster.close();
}

/// The commit of a change needs no round trip for the right to write a page that the transaction
/// has fetched itself.
#[test]
fn a_leaf_that_is_read_to_be_changed_is_fetched_with_the_right_to_write() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let db = &databases[1];
        for (isolation, id) in [(Isolation::Serializable, 5), (Isolation::RepeatableRead, 30)] {
            let before = db.engine().stats();
            let mut txn = db.begin_with(isolation);
            txn.update(table, &key![id], add(1)).await.unwrap();
            txn.commit().await.unwrap();
            let counted = db.engine().stats() - before;
            assert!(counted.misses > 0, "{isolation:?}: the leaf was here");
            assert_eq!(counted.upgrades, 0, "{isolation:?}");
        }
        let before = db.engine().stats();
        assert_eq!(balance(&mut db.begin(), table, 15).await.unwrap(), OPENING);
        let mut txn = db.begin();
        txn.update(table, &key![15], add(1)).await.unwrap();
        txn.commit().await.unwrap();
        let counted = db.engine().stats() - before;
        assert_eq!(counted.upgrades, 1, "of a leaf that was read first");
    });
    cluster.close();
}

#[test]
fn keys_beside_each_other_need_no_descent_though_other_tables_are_read_between() {
    const ROWS: i32 = 2_000;
    const READ: i32 = 8;
    let cluster = Cluster::start(1, 512);
    let line = TableSchema::new("line").column("id", ColumnType::I32).primary_key([0]);
    let schema = DatabaseSchema::from(vec![accounts(), line]).protocol(Protocol::Snapshot);
    let databases = cluster.create(schema);
    let db = &databases[0];
    let (table, line) = (db.table("account").unwrap(), db.table("line").unwrap());
    cluster.runtime.block_on(async {
        for first in (0..ROWS).step_by(100) {
            let mut txn = db.begin();
            for id in first..first + 100 {
                insert(db, &mut txn, table, id, &account(id)).await.unwrap();
                let mut row = db.row(line).unwrap();
                row.i32(id);
                txn.insert(line, row.finish().unwrap()).await.unwrap();
            }
            txn.commit().await.unwrap();
        }
        // Pages that were accessed to read accounts all over, and lines between.
        let accessed = async |lines: bool| {
            let before = db.engine().stats();
            let mut txn = db.begin();
            assert!(txn.get(line, &key![ROWS / 2]).await.unwrap().is_some());
            for at in 0..READ {
                assert!(txn.get(table, &key![at * 977 % ROWS]).await.unwrap().is_some());
                if lines {
                    assert!(txn.get(line, &key![ROWS / 2 + at]).await.unwrap().is_some());
                }
            }
            txn.commit().await.unwrap();
            (db.engine().stats() - before).hits
        };
        let (without, with) = (accessed(false).await, accessed(true).await);
        // A leaf for each line, and a descent where one leaf ends and the next begins.
        let most = u64::from(READ.unsigned_abs()) + 5;
        assert!(with - without <= most, "{} pages for {READ} lines", with - without);
        assert!(without > 3 * u64::from(READ.unsigned_abs()), "the tree of accounts is flat");
    });
    drop(databases);
    cluster.close();
}
