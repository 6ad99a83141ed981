//! Why a value cannot be read from or put into a row.

use crate::catalogue::column_type::ColumnType;

/// Why a value cannot be read from or put into a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// The table has fewer columns.
    #[error("there is no column {column} (the table has {columns})")]
    NoSuchColumn {
        /// Position asked for.
        column: usize,
        /// How many there are.
        columns: usize,
    },
    /// The column has another type.
    #[error("column {column} is {actual:?}, not {wanted}")]
    WrongType {
        /// The column.
        column: usize,
        /// Its type.
        actual: ColumnType,
        /// The type asked for.
        wanted: &'static str,
    },
    /// Only other columns were [read](crate::Txn::get_columns).
    #[error("column {column} was not read with the row")]
    NotRead {
        /// The column.
        column: usize,
    },
    /// The column is NULL in this row.
    #[error("column {column} is NULL")]
    Null {
        /// The column.
        column: usize,
    },
    /// The column may not be NULL.
    #[error("column {column} may not be NULL")]
    NotNullable {
        /// The column.
        column: usize,
    },
    /// The column was left to its default, has none, and may not be NULL.
    #[error("column {column} has no default, and may not be NULL")]
    NoDefault {
        /// The column.
        column: usize,
    },
    /// The value is longer than the column allows.
    #[error("column {column}: {bytes} bytes (allowed: {max})")]
    TooLong {
        /// The column.
        column: usize,
        /// Length of the value.
        bytes: usize,
        /// Longest value allowed.
        max: u32,
    },
    /// The value is stored apart from the row, and was not read with it:
    /// [`Txn::get_whole`](crate::Txn::get_whole), [`Txn::load_values`](crate::Txn::load_values) and
    /// [`Txn::read_value`](crate::Txn::read_value) read it.
    #[error("column {column}: its {bytes} bytes are stored apart from the row, and were not read")]
    Moved {
        /// The column.
        column: usize,
        /// Length of the value.
        bytes: u32,
    },
    /// Bytes that are to be appended to a text are not UTF-8 by themselves.
    #[error("column {column}: the {bytes} bytes to be written are not UTF-8 by themselves")]
    NotUtf8 {
        /// The column.
        column: usize,
        /// How many there are.
        bytes: usize,
    },
    /// The decimal has more digits than the column allows.
    #[error("column {column}: {digits} digits (allowed: {max})")]
    TooManyDigits {
        /// The column.
        column: usize,
        /// Digits of the value.
        digits: usize,
        /// Most digits allowed.
        max: u16,
    },
    /// The value is not one that the type has.
    #[error("column {column}: {value} (allowed: {min} to {max})")]
    OutOfRange {
        /// The column.
        column: usize,
        /// The value.
        value: i64,
        /// The least value allowed.
        min: i64,
        /// The greatest value allowed.
        max: i64,
    },
    /// Primary-key columns do not change; delete the row and insert another.
    #[error("column {column} is part of the primary key and cannot be changed")]
    KeyColumn {
        /// The column.
        column: usize,
    },
    /// A row was finished before every column had its value.
    #[error("the row has {given} of {columns} columns")]
    Incomplete {
        /// Values given.
        given: usize,
        /// Columns of the table.
        columns: usize,
    },
    /// A stored row has a layout that the definition does not know: the definition is older than
    /// the row, or the row is damaged.
    #[error("the stored row has layout {number} (known: 0 to {last})")]
    UnknownLayout {
        /// The number in the row.
        number: u16,
        /// The last one of the definition.
        last: u16,
    },
    /// The stored bytes are not a row of this table.
    #[error("the stored row is damaged at column {column}")]
    Damaged {
        /// The column that could not be read.
        column: usize,
    },
}

impl RowError {
    /// The column that it is about, if it is about one.
    #[must_use]
    pub fn column(&self) -> Option<usize> {
        match *self {
            Self::NoSuchColumn { column, .. }
            | Self::WrongType { column, .. }
            | Self::NotRead { column }
            | Self::Null { column }
            | Self::NotNullable { column }
            | Self::NoDefault { column }
            | Self::TooLong { column, .. }
            | Self::Moved { column, .. }
            | Self::NotUtf8 { column, .. }
            | Self::TooManyDigits { column, .. }
            | Self::OutOfRange { column, .. }
            | Self::KeyColumn { column }
            | Self::Damaged { column } => Some(column),
            Self::Incomplete { .. } | Self::UnknownLayout { .. } => None,
        }
    }
}

/// The error for a column of type `actual` used as `wanted`.
pub(crate) fn wrong_type(column: usize, actual: ColumnType, wanted: ColumnType) -> RowError {
    RowError::WrongType { column, actual, wanted: wanted.name() }
}
