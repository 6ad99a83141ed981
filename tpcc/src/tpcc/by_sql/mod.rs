//! The five transactions as SQL, for connections that the caller makes: of sessions in the process,
//! or of servers over the wire. The database is the same, and so are load and check.

mod statement;
mod transactions;

use std::sync::Arc;

use crate::connection::SqlConnector;

pub use statement::SqlStatement;
pub(crate) use transactions::{deliver_district, new_order, order_status, payment, stock_level};

/// How workers run transactions.
#[derive(Clone, Debug, Default, PartialEq)]
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
