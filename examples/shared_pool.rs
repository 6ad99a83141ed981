//! Two compute nodes on one pool: what one commits, the other reads, each through its own cache.
//!
//! ```text
//! cargo run -p selkie --example shared_pool
//! ```
//! Both nodes are in this process. In a pool `shm:NAME` or `tcp:HOST:PORT` they would be in two
//! processes, each with `Database::open(url)`.

use std::error::Error;

use selkie::txn::{ColumnType, TableSchema, key};
use selkie::{Pool, PoolOptions};

/// Runs the example.
///
/// # Errors
/// What the pool, the database or a transaction reports.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    selkie::block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let first = Pool::open("embedded:").await?;
    let second = first.join(&PoolOptions::new().cache_bytes(8 << 20)).await?;
    println!("compute nodes {} and {}", first.engine().node(), second.engine().node());

    let counter = TableSchema::new("counter")
        .column("id", ColumnType::I32)
        .column("value", ColumnType::I64)
        .primary_key([0]);
    // The database belongs to the pool, not to the node that creates it.
    let created = first.create_database(vec![counter]).await?;
    let opened = second.open_database().await?;
    let counter = created.table("counter")?;
    let mut txn = created.begin();
    txn.insert(counter, created.row(counter)?.i32(1).i64(0).finish()?).await?;
    txn.commit().await?;

    // The nodes take turns: the page goes from cache to cache, with the latest value in it.
    for turn in 0..10 {
        let db = if turn % 2 == 0 { &created } else { &opened };
        let mut txn = db.begin();
        txn.update(counter, &key![1], |row| Ok(row.set_i64(1, row.i64(1)? + 1)?)).await?;
        txn.commit().await?;
    }

    let mut txn = opened.begin_to_read();
    let value = txn.get(counter, &key![1]).await?.ok_or("no counter")?.i64(1)?;
    println!("counted to {value}");
    assert_eq!(value, 10);
    drop(txn);

    // Each node leaves by itself.
    second.close().await?;
    first.close().await?;
    Ok(())
}
