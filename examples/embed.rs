//! One process: creates a table, writes a row in a transaction, reads it in another.
//!
//! ```text
//! cargo run -p selkie --example embed
//! ```

use std::error::Error;

use selkie::Database;
use selkie::txn::{ColumnType, TableSchema, key};

/// Runs the example.
///
/// # Errors
/// What the pool, the database or a transaction reports.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // Any executor will do; a program without one uses this.
    selkie::block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let account = TableSchema::new("account")
        .column("id", ColumnType::I32)
        .column("cents", ColumnType::I64)
        .primary_key([0]);
    // A pool in the memory of this process. `shm:NAME` or `tcp:HOST:PORT` instead of `embedded:`
    // opens a pool that processes share.
    let db = Database::create("embedded:", vec![account]).await?;

    let account = db.table("account")?;
    let mut txn = db.begin();
    txn.insert(account, db.row(account)?.i32(7).i64(1_000).finish()?).await?;
    txn.commit().await?;

    let mut txn = db.begin();
    let found = txn.get(account, &key![7]).await?.ok_or("no such account")?;
    println!("account {} has {} cents", found.i32(0)?, found.i64(1)?);
    assert_eq!(found.i64(1)?, 1_000);
    txn.commit().await?;

    // Writes the pages home and leaves the pool.
    db.close().await?;
    Ok(())
}
