//! Errors of rows with the names of table and column: rows know columns by their positions only.

use crate::catalogue::schema::TableSchema;
use crate::encoding::row_error::RowError;

/// A [`RowError`] with the names of table and column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("table {table}, column {column}: {error}")]
pub struct NamedRowError {
    /// The table.
    pub table: String,
    /// The column; empty if the error is of no column that the table has.
    pub column: String,
    /// What is wrong, which says the position of the column.
    pub error: RowError,
}

impl TableSchema {
    /// An error of a row of this table, with its name and that of the column.
    ///
    /// ```
    /// use selkie_txn::{ColumnType, RowError, TableSchema};
    /// let table = TableSchema::new("paper").column("title", ColumnType::Text(9));
    /// let error = table.name_error(RowError::TooLong { column: 0, bytes: 12, max: 9 });
    /// assert_eq!(
    ///     error.to_string(),
    ///     "table paper, column title: column 0: 12 bytes (allowed: 9)"
    /// );
    /// ```
    #[must_use]
    pub fn name_error(&self, error: RowError) -> NamedRowError {
        let column = error.column().and_then(|column| self.columns.get(column));
        let column = column.map(|column| column.name.clone()).unwrap_or_default();
        NamedRowError { table: self.name.clone(), column, error }
    }
}
