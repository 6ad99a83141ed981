//! SQL for programs that embed the engine: connections, typed values, streams of rows, transactions
//! that are run again when others make them fail.
//!
//! It is the SQL of `selkie server`, as PostgreSQL understands it, in this process: no socket, no
//! copy of rows. Behind the cargo feature `sql`, which is on by default.
//!
//! ```
//! use selkie::SqlDatabase;
//!
//! # selkie::block_on(async {
//! let db = SqlDatabase::open("embedded:").await?;
//! let mut conn = db.connect()?;
//! conn.batch("create table note (id bigint primary key, text text)").await?;
//! conn.execute("insert into note values ($1, $2)", &[&1_i64, &"first"]).await?;
//!
//! let find = conn.prepare("select text from note where id = $1").await?;
//! let (text,) = conn.query_one::<(String,)>(&find, &[&1_i64]).await?;
//! assert_eq!(text, "first");
//! drop(conn);
//! db.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | run a statement | [`Connection::execute`], [`Connection::batch`] for several |
//! | read rows | [`Connection::query_as`], [`Connection::query_one`], [`Connection::query_opt`] |
//! | read columns by their names | [`Connection::query`], [`Row::get`] |
//! | read more rows than memory has room for | [`Connection::stream`] |
//! | change several rows at once | [`Connection::transaction`], [`Connection::begin`] |
//! | end a statement from outside | [`Connection::cancel_handle`] |
//! | know what went wrong | [`QueryError::state`], PostgreSQL's SQLSTATE |
//!
//! Contents: `database`, `connection`, `statement`, `stream` (how few rows are in memory),
//! `transaction`, `row`, `to_sql` and `from_sql` (which Rust types are which of SQL), `value`
//! (types that Rust does not have), `error`, `tag` (what a statement says that it did).

mod connection;
mod database;
mod error;
mod from_sql;
mod row;
mod statement;
mod stream;
mod tag;
mod to_sql;
mod transaction;
mod value;

pub use bigdecimal::BigDecimal;
pub use connection::Connection;
pub use database::SqlDatabase;
pub use error::{ColumnError, QueryError};
pub use from_sql::FromSql;
pub use row::{ColumnIndex, FromRow, Row};
pub use selkie_sql::types::FormatSettings;
pub use selkie_sql::{
    Array, CancelHandle, Datum, OutputColumn, Scalar, SqlError, SqlState, SqlType, TransactionState,
};
pub use selkie_txn::{Interval, Isolation};
pub use statement::{Params, Runnable, Source, Statement};
pub use stream::RowStream;
pub use to_sql::{ArrayElement, ToSql};
pub use transaction::{Transaction, TransactionOptions};
pub use value::{Date, Time, Timestamp, Uuid, clock};
