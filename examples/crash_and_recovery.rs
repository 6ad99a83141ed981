//! A compute node with a log dies in the middle of its work; another continues with every row that
//! it had committed.
//!
//! ```text
//! cargo run -p selkie --example crash_and_recovery
//! ```

use std::error::Error;
use std::time::Duration;

use selkie::pool::ComputeIndex;
use selkie::txn::{ColumnType, TableSchema, key};
use selkie::{Durability, PoolOptions};

const ROWS: i32 = 100;

/// Runs the example.
///
/// # Errors
/// What the pool, the database or a transaction reports.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    selkie::block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    // A transaction has committed when its changes are in the log of its node, which is in the
    // memory of the pool.
    let logged = PoolOptions::new().cache_bytes(8 << 20).durability(Durability::Memory);
    let victim = logged.open("embedded:").await?;
    let survivor = victim.join(&logged).await?;
    let index = victim.engine().node().index();

    let event = TableSchema::new("event").column("id", ColumnType::I32).primary_key([0]);
    let db = victim.create_database(vec![event]).await?;
    let table = db.table("event")?;
    for id in 0..ROWS {
        let mut txn = db.begin();
        txn.insert(table, db.row(table)?.i32(id).finish()?).await?;
        txn.commit().await?;
    }
    // This one never commits.
    let mut open = db.begin();
    open.insert(table, db.row(table)?.i32(ROWS).finish()?).await?;

    // The node dies: nothing is written home, nothing is given up. Within one process the others
    // notice that at once; in a pool that processes share, after the lease.
    drop(open);
    drop(db);
    drop(victim);
    let node = ComputeIndex::new(index as u16);
    while survivor.pool().is_member(node) || !survivor.pool().lost().is_empty() {
        survivor.env().sleep(Duration::from_millis(10)).await;
    }

    // The survivor has made the pages again from the log.
    let db = survivor.open_database().await?;
    let table = db.table("event")?;
    let mut txn = db.begin();
    for id in 0..ROWS {
        assert!(txn.get(table, &key![id]).await?.is_some(), "row {id} is lost");
    }
    assert!(txn.get(table, &key![ROWS]).await?.is_none(), "it was never committed");
    txn.commit().await?;
    println!("compute node {index} died; all {ROWS} rows that it committed are there");
    survivor.close().await?;
    Ok(())
}
