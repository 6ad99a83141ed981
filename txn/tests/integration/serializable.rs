//! Isolation between transactions of several compute nodes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use selkie_fabric::env::Env;
use selkie_txn::{
    AbortCause, ColumnType, Database, DatabaseSchema, Direction, Isolation, KeyRange, Protocol,
    RetryPolicy, Table, TableSchema, Txn, TxnError, key, retry,
};

use crate::common::{Account, BALANCE, Cluster, accounts, check, insert, two_phase};

const ACCOUNTS: i32 = 100;
const OPENING: i64 = 1000;

fn account(id: i32) -> Account {
    Account { tag: id, owner: format!("{}", id % 9), balance: OPENING, note: None }
}

async fn open_accounts(db: &Database, table: Table) {
    let mut txn = db.begin();
    for id in 0..ACCOUNTS {
        insert(db, &mut txn, table, id, &account(id)).await.unwrap();
    }
    txn.commit().await.unwrap();
}

async fn sum(
    txn: &mut Txn<'_>,
    table: Table,
    direction: Direction,
) -> Result<(usize, i64), TxnError> {
    let (mut rows, mut sum) = (0, 0);
    txn.scan(table, &KeyRange::all(), direction, |row| {
        (rows, sum) = (rows + 1, sum + row.i64(BALANCE)?);
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    Ok((rows, sum))
}

async fn transfer(
    db: &Database,
    table: Table,
    from: i32,
    to: i32,
    by: i64,
) -> Result<(), TxnError> {
    let mut txn = db.begin();
    for (id, by) in [(from, -by), (to, by)] {
        // Half of them read first and write later: an upgrade.
        if by % 2 == 0 {
            txn.get(table, &key![id]).await?;
        }
        let change =
            |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_i64(BALANCE, row.i64(BALANCE)? + by)?);
        txn.update(table, &key![id], change).await?;
    }
    txn.commit().await
}

/// Closes an account and opens another with its balance: rows come and go, also in the indexes.
async fn move_account(db: &Database, table: Table, id: i32) -> Result<(), TxnError> {
    let mut txn = db.begin();
    let target = (id + ACCOUNTS) % (2 * ACCOUNTS);
    let Some(row) = txn.get_for_update(table, &key![id]).await? else { return Ok(()) };
    let balance = row.i64(BALANCE)?;
    txn.delete(table, &key![id]).await?;
    let moved = Account { balance, ..account(target) };
    insert(db, &mut txn, table, target, &moved).await?;
    txn.commit().await
}

#[test]
fn money_is_neither_made_nor_lost_across_nodes() {
    use Protocol::{Optimistic, Timestamp, TwoPhase};
    let mixed = [Optimistic, TwoPhase, Optimistic];
    for protocols in [[TwoPhase; 3], [Timestamp; 3], [Optimistic; 3], mixed] {
        money_is_kept(protocols);
    }
}

/// Transfers and moves, each until it succeeds; after so many, slowly, until a reader has committed
/// as well.
async fn write_money(db: Database, env: Env, table: Table, scans: Arc<AtomicU64>) {
    let policy = RetryPolicy { attempts: 100_000, ..RetryPolicy::default() };
    for number in 0.. {
        if number >= 2000 {
            if scans.load(Ordering::Relaxed) > 0 || number >= 6000 {
                return;
            }
            env.sleep(std::time::Duration::from_millis(5)).await;
        }
        let random = env.random_u64();
        let id = |shift: u32| i32::try_from((random >> shift) % 200).unwrap();
        let by = i64::try_from(random % 50).unwrap();
        let attempt = async || match random % 4 {
            0 => move_account(&db, table, id(8)).await,
            _ => match transfer(&db, table, id(16), id(32), by).await {
                Err(TxnError::NotFound { .. }) => Ok(()),
                other => other,
            },
        };
        retry(&env, &policy, attempt).await.unwrap();
    }
}

fn money_is_kept(protocols: [Protocol; 3]) {
    let cluster = Cluster::start(3, 512);
    let schema = DatabaseSchema::from(vec![accounts().max_rows_per_page(3)]);
    let databases = cluster.create(schema.protocol(protocols[0]));
    let with = |(db, protocol): (Database, Protocol)| db.with_protocol(protocol).unwrap();
    let databases: Vec<Database> = databases.into_iter().zip(protocols).map(with).collect();
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(open_accounts(&databases[0], table));
    let stop = Arc::new(AtomicBool::new(false));
    let scans = Arc::new(AtomicU64::new(0));
    let env = cluster.runtime.env();
    let mut writers = Vec::new();
    let mut readers = Vec::new();
    for db in &databases {
        for _ in 0..2 {
            let task = write_money(db.clone(), env.clone(), table, scans.clone());
            writers.push(cluster.runtime.env().spawn("writer", task));
        }
        let (db, stop, scans) = (db.clone(), stop.clone(), scans.clone());
        let env = env.clone();
        let task = async move {
            for direction in [Direction::Forward, Direction::Reverse].into_iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let mut txn = db.begin();
                if let Ok(seen) = sum(&mut txn, table, direction).await {
                    assert_eq!(seen, (ACCOUNTS as usize, i64::from(ACCOUNTS) * OPENING));
                    if txn.commit().await.is_ok() {
                        scans.fetch_add(1, Ordering::Relaxed);
                    }
                } else {
                    drop(txn);
                }
                // Otherwise the readers would hold latches nearly all the time.
                env.sleep(std::time::Duration::from_millis(2)).await;
            }
        };
        readers.push(cluster.runtime.env().spawn("reader", task));
    }
    cluster.runtime.block_on(async {
        for writer in writers {
            writer.join().await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().await.unwrap();
        }
        for db in &databases {
            let mut txn = db.begin();
            let seen = sum(&mut txn, table, Direction::Forward).await.unwrap();
            assert_eq!(seen, (ACCOUNTS as usize, i64::from(ACCOUNTS) * OPENING));
            txn.commit().await.unwrap();
            check(db).await;
        }
    });
    let commits: u64 = databases.iter().map(|db| db.stats().commits).sum();
    assert!(commits > 2000, "the test is about transactions that succeed: {commits}");
    assert!(scans.load(Ordering::Relaxed) > 0, "no concurrent scan ever completed");
    cluster.close();
}

#[test]
fn conflicts_are_typed_and_leave_the_winner_alone() {
    let cluster = Cluster::start(2, 2048);
    let databases = cluster.create(two_phase(vec![accounts()]));
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        open_accounts(&databases[0], table).await;
        let add =
            |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_i64(BALANCE, row.i64(BALANCE)? + 1)?);
        for loser_db in &databases {
            let mut winner = databases[0].begin();
            winner.update(table, &key![1], add).await.unwrap();
            let mut loser = loser_db.begin();
            let before = loser_db.stats();
            let error = loser.get(table, &key![1]).await.map(|row| row.is_some()).unwrap_err();
            assert!(matches!(error, TxnError::Conflict { upgrade: false, .. }), "{error}");
            assert!(error.is_retryable());
            assert_eq!(loser.latched_leaves(), 0, "rolled back at once");
            let again = loser.get(table, &key![2]).await.map(|row| row.is_some()).unwrap_err();
            assert!(matches!(again, TxnError::RolledBack { cause: AbortCause::Conflict }));
            assert!(matches!(loser.commit().await, Err(TxnError::RolledBack { .. })));
            winner.commit().await.unwrap();
            assert_eq!((loser_db.stats() - before).aborts.of(AbortCause::Conflict), 1);
        }
        // Two readers of one row both want to write it: one upgrade fails, then the other succeeds.
        for other in &databases {
            let (mut a, mut b) = (databases[0].begin(), other.begin());
            assert!(a.get(table, &key![1]).await.unwrap().is_some());
            assert!(b.get(table, &key![1]).await.unwrap().is_some());
            let error = b.update(table, &key![1], add).await.unwrap_err();
            assert_eq!(error.abort_cause(), Some(AbortCause::UpgradeConflict), "{error}");
            a.update(table, &key![1], add).await.unwrap();
            a.commit().await.unwrap();
        }
        let mut txn = databases[1].begin();
        let row = txn.get(table, &key![1]).await.unwrap().unwrap();
        assert_eq!(row.i64(BALANCE).unwrap(), OPENING + 4);
    });
    cluster.close();
}

#[test]
fn write_skew_and_phantoms_cannot_commit_twice() {
    let cluster = Cluster::start(2, 512);
    let shift = TableSchema::new("shift")
        .column("day", ColumnType::I32)
        .column("doctor", ColumnType::I32)
        .column("on_call", ColumnType::I32)
        .primary_key([0, 1])
        .max_rows_per_page(1);
    let databases = cluster.create(two_phase(vec![shift]));
    let table = databases[0].table("shift").unwrap();
    let put = async |db: &Database, txn: &mut Txn<'_>, day: i32, doctor: i32| {
        let mut row = db.row(table)?;
        row.i32(day).i32(doctor).i32(1);
        txn.insert(table, row.finish()?).await
    };
    let count = async |txn: &mut Txn<'_>, day: i32| {
        let mut on_call = 0;
        let visit = |row: selkie_txn::RowRef<'_>| {
            on_call += row.i32(2)?;
            Ok(ControlFlow::Continue(()))
        };
        txn.scan(table, &KeyRange::prefix(&key![day]), Direction::Forward, visit).await?;
        Ok::<_, TxnError>(on_call)
    };
    let count_backwards = async |txn: &mut Txn<'_>, day: i32| {
        let last = txn.last(table, &KeyRange::prefix(&key![day])).await?;
        Ok::<_, TxnError>(last.is_some())
    };
    cluster.runtime.block_on(async {
        for (a_db, b_db) in [(0, 0), (0, 1)].map(|(a, b)| (&databases[a], &databases[b])) {
            let mut txn = a_db.begin();
            for (day, doctor) in [(1, 1), (1, 2), (3, 1)] {
                put(a_db, &mut txn, day, doctor).await.unwrap();
            }
            txn.commit().await.unwrap();

            // Each goes home if the other stays.
            let (mut a, mut b) = (a_db.begin(), b_db.begin());
            assert_eq!(count(&mut a, 1).await.unwrap(), 2);
            assert_eq!(count(&mut b, 1).await.unwrap(), 2);
            let first = a.update(table, &key![1, 1], |row| Ok(row.set_i32(2, 0)?)).await;
            let second = b.update(table, &key![1, 2], |row| Ok(row.set_i32(2, 0)?)).await;
            assert!(first.is_err() || second.is_err(), "both went home");
            drop((a, b));

            // Each inserts into a range that it found empty, and the other too.
            let (mut a, mut b) = (a_db.begin(), b_db.begin());
            assert_eq!(count(&mut a, 2).await.unwrap(), 0);
            assert!(!count_backwards(&mut b, 2).await.unwrap());
            let first = put(a_db, &mut a, 2, 1).await;
            let second = put(b_db, &mut b, 2, 2).await;
            assert!(first.is_err() || second.is_err(), "both inserted a phantom");
            drop((a, b));

            // A row looked for and not found is locked, too.
            let (mut a, mut b) = (a_db.begin(), b_db.begin());
            assert!(a.get(table, &key![2, 1]).await.unwrap().is_none());
            assert!(put(b_db, &mut b, 2, 1).await.is_err());
            a.commit().await.unwrap();
            drop(b);

            // Rows of other days do not stand in the way of each other.
            let (mut a, mut b) = (a_db.begin(), b_db.begin());
            a.update(table, &key![1, 1], |row| Ok(row.set_i32(2, 5)?)).await.unwrap();
            b.update(table, &key![3, 1], |row| Ok(row.set_i32(2, 5)?)).await.unwrap();
            assert_eq!(count(&mut a, 1).await.unwrap(), 6);
            assert_eq!(count(&mut b, 3).await.unwrap(), 5);
            a.commit().await.unwrap();
            b.commit().await.unwrap();

            let mut txn = a_db.begin();
            for (day, doctor) in [(1, 1), (1, 2), (3, 1)] {
                txn.delete(table, &key![day, doctor]).await.unwrap();
            }
            txn.commit().await.unwrap();
        }
    });
    cluster.close();
}

#[test]
fn read_committed_holds_no_read_latches() {
    let cluster = Cluster::start(2, 512);
    let databases = cluster.create(two_phase(vec![accounts()]));
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        open_accounts(&databases[0], table).await;
        let mut reader = databases[0].begin_with(Isolation::ReadCommitted);
        assert_eq!(sum(&mut reader, table, Direction::Forward).await.unwrap().0, ACCOUNTS as usize);
        assert_eq!(reader.latched_leaves(), 0);
        assert!(reader.get(table, &key![5]).await.unwrap().is_some());
        assert_eq!(reader.latched_leaves(), 1, "the row is still being looked at");
        assert!(reader.get(table, &key![95]).await.unwrap().is_some());
        assert_eq!(reader.latched_leaves(), 1);
        let mut writer = databases[1].begin();
        let set = |row: &mut selkie_txn::RowMut<'_>| Ok(row.set_i64(BALANCE, 77)?);
        writer.update(table, &key![5], set).await.unwrap();
        writer.commit().await.unwrap();
        let row = reader.get(table, &key![5]).await.unwrap().unwrap();
        assert_eq!(row.i64(BALANCE).unwrap(), 77);
        // What it changes stays latched.
        reader.update(table, &key![5], set).await.unwrap();
        assert!(reader.get(table, &key![95]).await.unwrap().is_some());
        let mut other = databases[1].begin();
        assert!(other.get(table, &key![5]).await.is_err());
        reader.commit().await.unwrap();

        let mut reader = databases[0].begin();
        sum(&mut reader, table, Direction::Forward).await.unwrap();
        assert!(reader.latched_leaves() > 5, "a serializable scan holds what it crossed");
    });
    cluster.close();
}

/// Far more pages than either node can cache: every transaction fetches and evicts.
#[test]
fn nothing_is_lost_when_the_data_exceeds_the_caches() {
    const MANY: i32 = 8000;
    let cluster = Cluster::start(2, 512);
    let databases = cluster.create(two_phase(vec![accounts()]));
    let table = databases[0].table("account").unwrap();
    cluster.runtime.block_on(async {
        let mut loaders = Vec::new();
        for (db, half) in databases.iter().zip([0, 1]) {
            let db = db.clone();
            let task = async move {
                for first in (half * MANY / 2..(half + 1) * MANY / 2).step_by(20) {
                    let attempt = async || {
                        let mut txn = db.begin();
                        for id in first..first + 20 {
                            let note = Some("n".repeat(60));
                            let row = Account { note, ..account(id) };
                            insert(&db, &mut txn, table, id, &row).await?;
                        }
                        txn.commit().await
                    };
                    retry(db.engine().env(), &RetryPolicy::default(), attempt).await.unwrap();
                }
            };
            loaders.push(cluster.runtime.env().spawn("loader", task));
        }
        for loader in loaders {
            loader.join().await.unwrap();
        }
        let mut workers = Vec::new();
        for db in &databases {
            let db = db.clone();
            let task = async move {
                for _ in 0..1500 {
                    let random = db.engine().env().random_u64();
                    let id = |shift: u32| i32::try_from((random >> shift) % 8000).unwrap();
                    let attempt = async || transfer(&db, table, id(8), id(24), 3).await;
                    retry(db.engine().env(), &RetryPolicy::default(), attempt).await.unwrap();
                }
            };
            workers.push(cluster.runtime.env().spawn("worker", task));
        }
        for worker in workers {
            worker.join().await.unwrap();
        }
        for db in &databases {
            assert!(db.engine().stats().evictions > 1000, "everything fitted the cache");
            let mut txn = db.begin_with(Isolation::ReadCommitted);
            let seen = sum(&mut txn, table, Direction::Forward).await.unwrap();
            assert_eq!(seen, (MANY as usize, i64::from(MANY) * OPENING));
            txn.commit().await.unwrap();
            check(db).await;
        }
    });
    cluster.close();
}
