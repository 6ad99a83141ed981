//! Pools and databases that a program opens by URL.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::time::Duration;

use selkie::pool::ComputeIndex;
use selkie::shared::{Network, UrlError};
use selkie::txn::{
    CatalogueError, ColumnType, DatabaseSchema, Isolation, Protocol, TableSchema, TxnError, key,
};
use selkie::{Database, Durability, OpenError, Pool, PoolOptions, block_on};

fn accounts() -> Vec<TableSchema> {
    let account = TableSchema::new("account")
        .column("id", ColumnType::I32)
        .column("cents", ColumnType::I64)
        .primary_key([0]);
    vec![account]
}

async fn insert(db: &Database, id: i32, cents: i64) {
    let table = db.table("account").unwrap();
    let mut txn = db.begin();
    txn.insert(table, db.row(table).unwrap().i32(id).i64(cents).finish().unwrap()).await.unwrap();
    txn.commit().await.unwrap();
}

async fn cents(db: &Database, id: i32) -> Option<i64> {
    let table = db.table("account").unwrap();
    let mut txn = db.begin();
    let cents = txn.get(table, &key![id]).await.unwrap().map(|row| row.i64(1).unwrap());
    txn.commit().await.unwrap();
    cents
}

#[test]
fn a_database_is_created_used_and_closed_by_synchronous_code() {
    let db = block_on(Database::create("embedded:", accounts())).unwrap();
    db.block_on(async {
        insert(&db, 1, 100).await;
        assert_eq!((cents(&db, 1).await, cents(&db, 2).await), (Some(100), None));
    });
    db.block_on(db.close()).unwrap();
}

/// Without a word about protocols.
#[test]
fn a_database_has_sessions_and_tables_that_change() {
    block_on(async {
        let db = Database::create("embedded:", accounts()).await.unwrap();
        assert_eq!(db.protocol(), Protocol::Snapshot);
        let table = db.table("account").unwrap();
        let mut session = db.session().unwrap();
        session.begin(Isolation::Serializable).unwrap();
        let inserted = session.run(|txn| {
            Box::pin(async move {
                let mut row = txn.row(table).await?;
                txn.insert(table, row.i32(1).i64(100).finish()?).await
            })
        });
        inserted.await.unwrap();
        session.commit().await.unwrap();
        assert_eq!(cents(&db, 1).await, Some(100));
        let mut txn = db.begin();
        let note = TableSchema::new("note").column("id", ColumnType::I32).primary_key([0]);
        txn.create_table(note).await.unwrap();
        txn.commit().await.unwrap();
        db.close().await.unwrap();
    });
}

#[test]
fn handles_of_one_pool_see_one_database_and_embedded_pools_are_apart() {
    block_on(async {
        let pool = Pool::open("embedded:").await.unwrap();
        let missing = pool.open_database().await.map(drop);
        assert!(matches!(missing, Err(TxnError::Catalogue(CatalogueError::Missing))));
        let first = pool.open_or_create_database(accounts()).await.unwrap();
        let second = pool.open_or_create_database(accounts()).await.unwrap();
        let again = pool.create_database(accounts()).await.map(drop);
        assert!(matches!(again, Err(TxnError::Catalogue(CatalogueError::Exists))));
        insert(&first, 1, 100).await;
        assert_eq!(cents(&second, 1).await, Some(100));

        let node = pool.join(&PoolOptions::new().cache_bytes(4 << 20)).await.unwrap();
        assert_ne!(node.engine().node(), pool.engine().node());
        let third = node.open_database().await.unwrap();
        assert_eq!(cents(&third, 1).await, Some(100));

        // Another one of this URL is another pool.
        let other = Database::open("embedded:").await.map(drop);
        let none = TxnError::Catalogue(CatalogueError::Missing).to_string();
        assert_eq!(other.unwrap_err().to_string(), none);
        third.close().await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn the_layers_below_are_in_reach() {
    block_on(async {
        let options = PoolOptions::new().memory_bytes(32 << 20).cache_bytes(4 << 20).threads(1);
        let db = options.create_database("embedded:", accounts()).await.unwrap();
        let pool = db.pool();
        assert_eq!(pool.url().to_string(), "embedded:");
        assert_eq!(pool.pool().descriptor().memory_nodes.len(), 1);
        let before = pool.env().now();
        pool.env().sleep(Duration::from_millis(2)).await;
        assert!(pool.env().now() > before);
        let page = pool.engine().allocate().await.unwrap().addr();
        assert_eq!(pool.engine().shared(page).await.unwrap().addr(), page);
        assert!(pool.fabric().join(selkie::fabric::PeerId::compute(40)).is_ok());
        db.close().await.unwrap();
    });
}

#[test]
fn wrong_urls_are_refused_by_their_part() {
    let refused = |url: &str| match block_on(Pool::open(url)) {
        Err(OpenError::Url { url: named, source }) => {
            assert_eq!(named, url);
            source
        }
        other => panic!("{url}: {other:?}"),
    };
    for url in ["", "http://x", "mem:x", "etcd:a:1"] {
        assert!(matches!(refused(url), UrlError::Form { .. }), "{url}");
    }
    assert!(matches!(refused("shm:a/b"), UrlError::Name { name } if name == "a/b"));
    assert!(matches!(refused("tcp:a:1,b"), UrlError::Address { address } if address == "b"));
    let text = block_on(Pool::open("tcp:b")).unwrap_err().to_string();
    assert_eq!(text, "pool URL `tcp:b`: `b` is not HOST:PORT, as 10.0.0.1:7000 or [::1]:7000");

    let none = format!("shm:test-embedding-none-{}", std::process::id());
    let error = block_on(Pool::open(&none)).unwrap_err();
    assert!(matches!(error, OpenError::Shared(_)), "{error}");
    assert!(error.to_string().contains("no pool `"), "{error}");
}

#[test]
fn options_that_mean_nothing_are_refused_by_name() {
    let refused = |options: PoolOptions, url: &str| match block_on(options.open(url)) {
        Err(OpenError::Option { option, .. }) => option,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(PoolOptions::new().memory_bytes(1 << 30), "shm:x"), "memory_bytes");
    let network = Network { insecure: true, ..Network::default() };
    assert_eq!(refused(PoolOptions::new().network(network), "embedded:"), "network");
    assert_eq!(refused(PoolOptions::new().tls("certs"), "embedded:"), "tls");
    assert_eq!(refused(PoolOptions::new().threads(0), "embedded:"), "threads");
    assert_eq!(refused(PoolOptions::new().node(1_000), "embedded:"), "node");
    let pool = block_on(Pool::open("embedded:")).unwrap();
    let refused = |options: PoolOptions| match block_on(pool.join(&options)) {
        Err(OpenError::Option { option, .. }) => option,
        other => panic!("{other:?}"),
    };
    let network = Network { insecure: true, ..Network::default() };
    assert_eq!(refused(PoolOptions::new().memory_bytes(1 << 20)), "memory_bytes");
    assert_eq!(refused(PoolOptions::new().threads(1)), "threads");
    assert_eq!(refused(PoolOptions::new().network(network)), "network");
    assert_eq!(refused(PoolOptions::new().tls("certs")), "tls");
}

#[test]
fn a_second_close_does_nothing_and_what_follows_is_refused() {
    block_on(async {
        let db = Database::create("embedded:", accounts()).await.unwrap();
        insert(&db, 1, 100).await;
        db.close().await.unwrap();
        db.close().await.unwrap();
        db.clone().pool().close().await.unwrap();
        assert!(db.pool().engine().allocate().await.is_err());
    });
}

#[test]
fn a_handle_of_another_protocol_keeps_the_pool_open() {
    block_on(async {
        let schema = DatabaseSchema::from(accounts()).protocol(Protocol::TwoPhase);
        let db = Database::create("embedded:", schema).await.unwrap();
        let optimistic = db.with_protocol(Protocol::Optimistic).unwrap();
        drop(db);
        insert(&optimistic, 1, 100).await;
        assert_eq!(cents(&optimistic, 1).await, Some(100));
        optimistic.close().await.unwrap();
    });
}

#[test]
fn what_is_dropped_without_closing_ends_like_a_node_that_died() {
    block_on(async {
        let options = PoolOptions::new().cache_bytes(4 << 20).durability(Durability::Memory);
        let pool = options.open("embedded:").await.unwrap();
        let other = pool.join(&options).await.unwrap();
        let node = ComputeIndex::new(pool.engine().node().index() as u16);
        let db = pool.create_database(accounts()).await.unwrap();
        insert(&db, 1, 100).await;
        drop((pool, db));
        let started = other.env().now();
        while other.pool().is_member(node) || !other.pool().lost().is_empty() {
            assert!(other.env().now() - started < Duration::from_secs(60), "no node noticed");
            other.env().sleep(Duration::from_millis(1)).await;
        }
        let db = other.open_database().await.unwrap();
        assert_eq!(cents(&db, 1).await, Some(100));
        drop((other, db));
    });
}

#[test]
fn handles_are_used_and_dropped_inside_tasks_of_another_executor() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let task = runtime.spawn(async {
        let db = Database::create("embedded:", accounts()).await.unwrap();
        insert(&db, 1, 100).await;
        assert_eq!(cents(&db, 1).await, Some(100));
        // Without a close.
        drop(db);
        let pool = Pool::open("embedded:").await.unwrap();
        pool.close().await.unwrap();
    });
    runtime.block_on(task).unwrap();
}

#[test]
fn a_node_that_reads_only_changes_nothing() {
    block_on(async {
        let pool = Pool::open("embedded:").await.unwrap();
        let db = pool.create_database(accounts()).await.unwrap();
        insert(&db, 1, 100).await;
        let reader = pool.join(&PoolOptions::new().reads_only(true)).await.unwrap();
        let read = reader.open_database().await.unwrap();
        let table = read.table("account").unwrap();
        let mut txn = read.begin_to_read();
        assert_eq!(txn.get(table, &key![1]).await.unwrap().unwrap().i64(1).unwrap(), 100);
        drop(txn);
        assert!(reader.engine().allocate().await.is_err());
        reader.close().await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn a_log_on_disk_is_where_it_was_asked_for() {
    let place = tempfile::tempdir().unwrap();
    block_on(async {
        let options = PoolOptions::new().durability(Durability::Disk(place.path().to_owned()));
        let db = options.create_database("embedded:", accounts()).await.unwrap();
        insert(&db, 1, 100).await;
        assert!(std::fs::read_dir(place.path()).unwrap().next().is_some());
        db.close().await.unwrap();
    });
}
