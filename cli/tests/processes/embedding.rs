//! Programs that open the pools of other processes by their URLs.

use selkie::txn::{CatalogueError, ColumnType, TableSchema, TxnError, key};
use selkie::{Database, Durability, OpenError, PoolOptions, block_on};

use crate::harness::{Over, Pool, Setup, prints, until};

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
