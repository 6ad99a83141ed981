//! Connections that the caller makes for benchmarks that run SQL: of sessions in the process, or of
//! servers over the wire.

use std::fmt;

use selkie_fabric::BoxFuture;
use selkie_txn::Database;

use crate::error::TpccError;

/// A value that a statement takes or gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    /// NULL.
    Null,
    /// `integer` or `bigint`.
    Int(i64),
    /// `text`.
    Text(String),
}

/// A row that a statement gives.
pub type SqlRow = Vec<SqlValue>;

/// A statement of a benchmark.
pub trait StatementText: Send + Sync {
    /// A number from 0 on that no other of the benchmark's statements has, by which connections
    /// keep what they have prepared.
    fn number(&self) -> usize;

    /// Whether it begins or ends a transaction, and takes no values.
    fn is_control(&self) -> bool;

    /// Its text, in the SQL of PostgreSQL, with `$1` and so on for its parameters.
    fn text(&self) -> String;
}

/// What runs the statements of a worker, one at a time.
pub trait SqlConnection: Send + Sync {
    /// Runs a statement with a value for each of its parameters. It may keep the statement
    /// prepared.
    ///
    /// # Errors
    /// [`TpccError::Sql`] with the code of the statement's error.
    fn run<'a>(
        &'a self,
        statement: &'a dyn StatementText,
        values: &'a [SqlValue],
    ) -> BoxFuture<'a, Result<Vec<SqlRow>, TpccError>>;
}

/// Makes the connections of workers.
pub trait SqlConnector: Send + Sync {
    /// What `--via` calls it.
    fn name(&self) -> &'static str;

    /// A connection that a worker of a node has for itself.
    ///
    /// # Errors
    /// Why there is none.
    fn connect<'a>(
        &'a self,
        database: &'a Database,
    ) -> BoxFuture<'a, Result<Box<dyn SqlConnection>, TpccError>>;
}

impl fmt::Debug for dyn SqlConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for dyn SqlConnector {
    /// Whether it is the same one.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self, other)
    }
}
