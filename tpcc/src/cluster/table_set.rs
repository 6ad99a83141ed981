//! The tables of a benchmark.

use selkie_txn::{Database, TableSchema, TxnError};

/// The tables of a driver's database.
pub trait TableSet: Copy + Send + Sync + 'static {
    /// What to create them from.
    fn schemas() -> Vec<TableSchema>;

    /// Looks every table up by its name. No round trip.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the database is not one created with [`TableSet::schemas`].
    fn resolve(db: &Database) -> Result<Self, TxnError>;

    /// The tables of a database in which each of so many compute nodes has tables of its own; only
    /// of drivers that know such.
    #[must_use]
    fn divided_schemas(_nodes: usize) -> Vec<TableSchema> {
        Self::schemas()
    }

    /// Looks the tables of a compute node up. No round trip.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the database is not one created with [`TableSet::divided_schemas`].
    fn resolve_divided(db: &Database, _node: usize) -> Result<Self, TxnError> {
        Self::resolve(db)
    }
}
