//! Programs that open the pools of other processes by their URLs.

use std::time::Duration;

use selkie::txn::{
    CatalogueError, ColumnType, DatabaseSchema, LockOutcome, LockWait, Protocol, TableSchema,
    TxnError, key,
};
use selkie::{Database, Durability, OpenError, PoolOptions, block_on};

use crate::harness::{Over, Pool, Setup, prints, succeeds, until};

fn accounts() -> Vec<TableSchema> {
    let account = TableSchema::new("account")
        .column("id", ColumnType::I32)
        .column("cents", ColumnType::I64)
        .primary_key([0]);
    vec![account]
}

#[test]
fn a_database_in_the_memory_of_other_processes_outlives_its_node() {
    outlives(Over::Shm);
}

#[test]
fn a_database_in_the_memory_of_other_processes_outlives_its_node_over_tcp() {
    outlives(Over::Tcp);
}

fn outlives(over: Over) {
    let setup = Setup { test: "embedding", over, memory_nodes: 2, ..Setup::default() };
    let pool = Pool::start(&setup);
    block_on(async {
        let missing = Database::open(&pool.url).await.map(drop);
        let missing = missing.unwrap_err();
        let none = OpenError::from(TxnError::from(CatalogueError::Missing)).to_string();
        assert_eq!(missing.to_string(), none);
        assert!(pool.compute_nodes().is_empty(), "a node that finds no database leaves again");

        let db = Database::create(&pool.url, accounts()).await.unwrap();
        let table = db.table("account").unwrap();
        let mut txn = db.begin();
        txn.insert(table, db.row(table).unwrap().i32(7).i64(1_000).finish().unwrap())
            .await
            .unwrap();
        txn.commit().await.unwrap();
        assert_eq!(db.pool().engine().largest_change() >> 20, 2, "three eighths of a log of 8 MiB");
        let node = db.pool().engine().node().to_string();
        assert_eq!(pool.compute_nodes().len(), 1);
        until("it is seen by others", || {
            let seen = prints(&["top", &pool.name, "--once", "--json"]);
            seen["compute_nodes"].as_array().unwrap().iter().find(|n| n["node"] == *node).map(drop)
        });
        db.close().await.unwrap();
        assert!(pool.compute_nodes().is_empty());

        let options = PoolOptions::new().cache_bytes(8 << 20);
        let later = options.open_or_create_database(&pool.url, accounts()).await.unwrap();
        let table = later.table("account").unwrap();
        let mut txn = later.begin();
        let found = txn.get(table, &key![7]).await.unwrap().unwrap().i64(1).unwrap();
        assert_eq!(found, 1_000);
        txn.commit().await.unwrap();
        later.close().await.unwrap();
    });
}

/// Two transactions on two nodes want each other's rows, after one was refused and one timed out.
#[test]
fn what_transactions_wait_for_is_seen_by_others() {
    let setup = Setup { test: "embedding-locks", memory_nodes: 1, ..Setup::default() };
    let pool = Pool::start(&setup);
    block_on(async {
        let schema = DatabaseSchema::from(accounts()).protocol(Protocol::Snapshot);
        let one = Database::create(&pool.url, schema).await.unwrap();
        let two = Database::open(&pool.url).await.unwrap();
        let table = one.table("account").unwrap();
        let mut holder = one.begin();
        let held = holder.lock_row(table, &key![1], LockWait::Wait).await.unwrap();
        assert_eq!(held, LockOutcome::Held);
        let mut late = two.begin();
        for _ in 0..3 {
            let refused = late.lock_row(table, &key![1], LockWait::NoWait).await.unwrap();
            assert_eq!(refused, LockOutcome::NotAvailable);
        }
        late.set_lock_timeout(Duration::from_millis(100));
        let timed_out = late.lock_row(table, &key![1], LockWait::Wait).await.unwrap_err();
        assert!(matches!(timed_out, TxnError::LockTimeout { .. }), "{timed_out}");
        drop(late);

        let (db, (told, ended)) = (two.clone(), std::sync::mpsc::channel());
        let other = two.pool().env().spawn("other", async move {
            let mut txn = db.begin();
            let held = txn.lock_row(table, &key![2], LockWait::Wait).await.unwrap();
            assert_eq!(held, LockOutcome::Held);
            told.send(txn.lock_row(table, &key![1], LockWait::Wait).await.map(drop)).unwrap();
        });
        two.pool().env().sleep(Duration::from_millis(100)).await;
        let own = holder.lock_row(table, &key![2], LockWait::Wait).await.map(drop);
        drop(holder);
        other.join().await.unwrap();
        let gave_up = [own, ended.recv().unwrap()];
        let gave_up = gave_up.iter().filter(|end| matches!(end, Err(TxnError::Deadlock { .. })));
        assert_eq!(gave_up.count(), 1);

        let figures = ["lock_waits", "deadlocks", "lock_timeouts", "lock_refusals"];
        until("its figures are seen", || {
            let seen = prints(&["top", &pool.name, "--once", "--json"]);
            let nodes = seen["compute_nodes"].as_array().unwrap();
            let sum = |figure: &str| nodes.iter().filter_map(|n| n[figure].as_u64()).sum::<u64>();
            let waited: f64 = nodes.iter().filter_map(|n| n["lock_wait_s"].as_f64()).sum();
            (figures.map(sum) == [3, 1, 1, 3] && (0.1..30.0).contains(&waited)).then_some(())
        });
        let text = succeeds(&["top", &pool.name, "--once"]);
        let line = "row locks: waits 3, deadlocks 1, timeouts 1, refused 3, waited ";
        assert!(text.contains(line), "{text}");
        two.close().await.unwrap();
        one.close().await.unwrap();
    });
}

#[test]
fn without_room_for_logs_a_program_must_ask_to_go_on_without() {
    let create = &["--log-size", "0"];
    let setup = Setup { test: "embedding-no-logs", memory_nodes: 1, create, ..Setup::default() };
    let pool = Pool::start(&setup);
    block_on(async {
        for options in [PoolOptions::new(), PoolOptions::new().durability(Durability::Memory)] {
            let refused = options.open(&pool.url).await.map(drop).unwrap_err();
            assert!(matches!(refused, OpenError::Option { option: "durability", .. }), "{refused}");
        }
        let asked = PoolOptions::new().durability(Durability::None);
        let opened = asked.open(&pool.url).await.unwrap();
        assert_eq!(opened.engine().largest_change(), u64::MAX, "there is no log");
        opened.close().await.unwrap();
        // A node that changes nothing loses nothing.
        let reader = PoolOptions::new().reads_only(true).open(&pool.url).await.unwrap();
        reader.close().await.unwrap();
    });
}
