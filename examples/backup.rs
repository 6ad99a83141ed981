//! Backs up a pool in use, and restores the backup into a new pool.
//!
//! ```text
//! cargo run -p selkie --example backup
//! ```

use std::error::Error;
use std::path::PathBuf;

use selkie::txn::{ColumnType, TableSchema, key};
use selkie::{Pool, PoolOptions};

/// Runs the example.
///
/// # Errors
/// What the pool, the database or a transaction reports.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let place: PathBuf = std::env::temp_dir().join(format!("selkie-backup-{}", std::process::id()));
    let done = selkie::block_on(run(place.to_str().ok_or("no name of a directory")?));
    // It holds the backup, if there is one.
    let _ = std::fs::remove_dir_all(&place);
    done
}

async fn run(place: &str) -> Result<(), Box<dyn Error>> {
    let item = TableSchema::new("item")
        .column("id", ColumnType::I32)
        .column("name", ColumnType::Text(20))
        .primary_key([0]);
    let pool = Pool::open("embedded:").await?;
    let db = pool.create_database(vec![item]).await?;
    let table = db.table("item")?;
    let mut txn = db.begin();
    for (id, name) in [(1, "lamp"), (2, "chair"), (3, "table")] {
        txn.insert(table, db.row(table)?.i32(id).text(name).finish()?).await?;
    }
    txn.commit().await?;

    // To a directory, or to an object store as `s3://BUCKET/MONDAY`. Other nodes may go on; they
    // need logs for that (`PoolOptions::durability`).
    let report = pool.backup(place).await?;
    println!("{} pages are in the backup", report.pages);

    // What happens after the backup is not in it.
    let mut txn = db.begin();
    txn.delete(table, &key![2]).await?;
    txn.commit().await?;
    drop(db);
    pool.close().await?;
    drop(pool);

    // Another pool, which may have other memory nodes and another coding.
    let restored = PoolOptions::new().restore("embedded:", place).await?;
    let db = restored.open_database().await?;
    let table = db.table("item")?;
    let mut txn = db.begin();
    let chair = txn.get(table, &key![2]).await?.ok_or("the chair is not in the backup")?;
    println!("item 2 is a {} again", chair.text(1)?);
    assert_eq!(chair.text(1)?, "chair");
    txn.commit().await?;
    restored.close().await?;
    Ok(())
}
