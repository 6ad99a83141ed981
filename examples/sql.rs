//! SQL in a program: a table, typed values, a transaction that is run again if others make it fail.
//!
//! ```text
//! cargo run -p selkie --example sql
//! ```

use std::error::Error;

use selkie::SqlDatabase;
use selkie::sql::{QueryError, SqlState};

/// Runs the example.
///
/// # Errors
/// What the pool or a statement reports.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    selkie::block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    // `embedded:DIR` keeps it in a directory; `shm:NAME` and `tcp:HOST:PORT` are shared pools.
    let db = SqlDatabase::open("embedded:").await?;
    let mut conn = db.connect()?;
    let table = "create table account (id bigint primary key, owner text, cents bigint not null)";
    conn.execute(table, &[]).await?;
    let insert = conn.prepare("insert into account values ($1, $2, $3)").await?;
    for (id, owner) in [(1_i64, Some("Ann")), (2, None)] {
        conn.execute(&insert, &[&id, &owner, &1_000_i64]).await?;
    }

    let left = conn
        .transaction(async |txn| {
            let give = "update account set cents = cents + $2 where id = $1";
            txn.execute(give, &[&2_i64, &250_i64]).await?;
            let take = "update account set cents = cents - $2 where id = $1 returning cents";
            let (left,) = txn.query_one::<(i64,)>(take, &[&1_i64, &250_i64]).await?;
            Ok::<_, QueryError>(left)
        })
        .await?;
    assert_eq!(left, 750);

    let mut rows = conn.stream("select * from account order by id", &[]).await?;
    while let Some(row) = rows.next().await? {
        let owner = row.get::<Option<String>>("owner")?;
        println!("{:?} has {} cents", owner.as_deref().unwrap_or("nobody"), row.get::<i64>(2)?);
    }
    drop(rows);

    match conn.execute("insert into account values (1, 'Bob', 0)", &[]).await {
        Err(error) if error.state() == SqlState::UNIQUE_VIOLATION => println!("refused: {error}"),
        other => return Err(format!("a second row of the same key: {other:?}").into()),
    }
    drop(conn);
    db.close().await?;
    Ok(())
}
