//! The five transactions as SQL, for connections that the caller makes: of sessions in the process,
//! or of servers over the wire. The database is the same, and so are load and check.

mod statement;
mod transactions;

use std::fmt;
use std::sync::Arc;

use selkie_fabric::BoxFuture;
use selkie_txn::Database;

use crate::error::TpccError;

pub use statement::SqlStatement;
pub(crate) use transactions::{deliver_district, new_order, order_status, payment, stock_level};

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

/// What runs the statements of a worker, one at a time.
pub trait SqlConnection: Send + Sync {
    /// Runs a statement with a value for each of its parameters. It may keep the statement
    /// prepared.
    ///
    /// # Errors
    /// [`TpccError::Sql`] with the code of the statement's error.
    fn run<'a>(
        &'a self,
        statement: SqlStatement,
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

/// How workers run transactions.
#[derive(Clone, Default)]
pub enum Via {
    /// By calls of the database.
    #[default]
    Native,
    /// By SQL.
    Sql(Arc<dyn SqlConnector>),
}

impl Via {
    /// What `--via` calls it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Sql(connector) => connector.name(),
        }
    }
}

impl fmt::Debug for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for Via {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Native, Self::Native) => true,
            (Self::Sql(one), Self::Sql(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}
