//! What can go wrong in a load of a table.

/// A load of a table failed ([`BulkLoad`](crate::BulkLoad)). The table is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BulkLoadError {
    /// The primary key of a row is not above that of the row before.
    #[error(
        "table {table}: the primary key of row {position} of the load, counted from 0, is not above \
         that of the row before ({key})"
    )]
    OutOfOrder {
        /// The table.
        table: String,
        /// How many rows came before it.
        position: u64,
        /// The columns of its key with their values.
        key: String,
    },
    /// The table had rows, others have inserted some meanwhile, or its leaves were emptied so
    /// lately that they were not given back.
    #[error("table {table} cannot be loaded: it is not empty")]
    NotEmpty {
        /// The table.
        table: String,
    },
    /// The table that is to be filled is not one that the transaction has created, after all
    /// savepoints ([`Txn::fill_table`](crate::Txn::fill_table)).
    #[error(
        "table {table} cannot be filled: this transaction has not created it since its last savepoint"
    )]
    NotNew {
        /// The table.
        table: String,
    },
    /// The entries of the table's indexes take more memory than the load may use.
    #[error(
        "table {table}: the entries of its indexes take {need} bytes (allowed: {limit}), most of them \
         those of {index}"
    )]
    IndexTooLarge {
        /// The table.
        table: String,
        /// The index whose entries take most.
        index: String,
        /// Bytes that the entries of all indexes take so far.
        need: usize,
        /// [`BulkLoadOptions::index_bytes`](crate::BulkLoadOptions::index_bytes).
        limit: usize,
    },
    /// The table, with its indexes, has more leaves than become its own in one change of this
    /// node's log: each of them gets the stamp of the load then.
    #[error(
        "table {table}: a load of {rows} rows takes {need} bytes of the log at its end (allowed: \
         {limit}); load fewer rows, or give the node a larger log"
    )]
    TooLarge {
        /// The table.
        table: String,
        /// Rows so far.
        rows: u64,
        /// Bytes that they need in the log.
        need: u64,
        /// Bytes that the log takes in one change.
        limit: u64,
    },
    /// An earlier row of the load has failed.
    #[error("table {table}: the load has failed before")]
    Failed {
        /// The table.
        table: String,
    },
}
