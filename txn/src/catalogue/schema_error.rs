//! Why a schema is refused, or a change of it.

use crate::catalogue::column_type::{MAX_COLUMN_BYTES, MAX_COLUMNS, MAX_DECIMAL_DIGITS};
use crate::encoding::row_error::RowError;

/// Why a schema is refused, or a name does not resolve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Two tables, columns or indexes have one name.
    #[error("table {table}: the name {name} is used twice")]
    DuplicateName {
        /// The table.
        table: String,
        /// The name.
        name: String,
    },
    /// An index of that name is being built, or was left by who built it, with another definition.
    #[error(
        "table {table}: an index {name} with another definition is not complete: it is being built, \
         or was left; it may be dropped"
    )]
    IncompleteIndex {
        /// The table.
        table: String,
        /// The index.
        name: String,
    },
    /// No columns, or too many.
    #[error("table {table}: {columns} columns (allowed: 1 to {MAX_COLUMNS})")]
    ColumnCount {
        /// The table.
        table: String,
        /// How many it has.
        columns: usize,
    },
    /// A text, byte or JSON column of no or too great a length.
    #[error("table {table}, column {column}: {bytes} bytes (allowed: 1 to {MAX_COLUMN_BYTES})")]
    ColumnBytes {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// Its maximum length.
        bytes: u32,
    },
    /// A decimal column of no or too many digits.
    #[error("table {table}, column {column}: {digits} digits (allowed: 1 to {MAX_DECIMAL_DIGITS})")]
    DecimalDigits {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// How many it would have.
        digits: u16,
    },
    /// A default that its column does not take.
    #[error("table {table}, column {column}: its default cannot be stored: {error}")]
    Default {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// What is wrong with it.
        error: RowError,
    },
    /// One column more than a table may have.
    #[error(
        "table {table}, column {column}: it would be number {columns} (allowed: {MAX_COLUMNS})"
    )]
    TooManyColumns {
        /// The table.
        table: String,
        /// The column that was to be added.
        column: String,
        /// How many there would be.
        columns: usize,
    },
    /// With a column, even the smallest row does not fit a page with its key.
    #[error(
        "table {table}, column {column}: every row would take {size} bytes or more (allowed: {allowed} at this page size)"
    )]
    RowTooLarge {
        /// The table.
        table: String,
        /// The column that was to be added.
        column: String,
        /// Bytes of the smallest key and row.
        size: usize,
        /// Bytes allowed.
        allowed: usize,
    },
    /// The columns of a table have changed as often as they may.
    #[error(
        "table {table}, column {column}: the columns have changed {changes} times, and can change no more"
    )]
    TooManyLayouts {
        /// The table.
        table: String,
        /// The column that was to be changed.
        column: String,
        /// How often they have.
        changes: u16,
    },
    /// An index or the primary key needs a column as it is.
    #[error("table {table}: column {column} is part of {index}")]
    ColumnInUse {
        /// The table.
        table: String,
        /// The column.
        column: String,
        /// The index, or "primary key".
        index: String,
    },
    /// Rows have NULL in a column that is not to be NULL any more, or would have it in a new one.
    #[error("table {table}: there are rows in which column {column} is NULL")]
    NullsInRows {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A primary-key column may be NULL.
    #[error("table {table}: column {column} of the primary key may not be nullable")]
    NullableKey {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// A key that cannot work.
    #[error("table {table}: {key} on columns {columns:?}: {reason}")]
    Key {
        /// The table.
        table: String,
        /// The index, or "primary key".
        key: String,
        /// The columns asked for.
        columns: Vec<usize>,
        /// What is wrong.
        reason: &'static str,
    },
    /// `max_rows_per_page` is zero.
    #[error("table {table}: max_rows_per_page is 0 (allowed: 1 to 65535, or none)")]
    RowsPerPage {
        /// The table.
        table: String,
    },
    /// Even the smallest row with its key does not fit a page, or the smallest key is too long.
    #[error(
        "table {table}, {index}: every entry takes {size} bytes or more (allowed: {allowed} at this page size)"
    )]
    EntryTooLarge {
        /// The table.
        table: String,
        /// The index, or "primary key".
        index: String,
        /// Bytes of the smallest key and value, or of the smallest key.
        size: usize,
        /// Bytes allowed.
        allowed: usize,
    },
    /// Too many tables and indexes for one database.
    #[error("{trees} tables and indexes (allowed: 1 to {})", u16::MAX)]
    TooManyTrees {
        /// How many there would be.
        trees: usize,
    },
    /// A table is called as another is.
    #[error("there is a table {name} already")]
    TableExists {
        /// The name.
        name: String,
    },
    /// The name of a table is empty or too long.
    #[error("the name {name} takes {} bytes (allowed: 1 to {allowed} at this page size)", .name.len())]
    NameBytes {
        /// The name.
        name: String,
        /// Most bytes.
        allowed: usize,
    },
    /// All numbers of indexes of a table are used up.
    #[error("table {table} has had {} indexes, and can have no more", u16::MAX - 1)]
    IndexNumbers {
        /// The table.
        table: String,
    },
    /// There is no such column.
    #[error("table {table} has no column {name}")]
    NoSuchColumn {
        /// The table.
        table: String,
        /// The name asked for.
        name: String,
    },
    /// There is no such table.
    #[error("there is no table {name}")]
    NoSuchTable {
        /// The name or number asked for.
        name: String,
    },
    /// There is no such index.
    #[error("table {table} has no index {name}")]
    NoSuchIndex {
        /// The table.
        table: String,
        /// The name or number asked for.
        name: String,
    },
}
