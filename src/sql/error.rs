//! What can go wrong between a program and its SQL.

use std::fmt;

use selkie_sql::{SqlError, SqlState, SqlType};

/// Why a statement of a program, or the values that it takes and gives, failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The statement failed.
    #[error(transparent)]
    Sql(#[from] SqlError),
    /// A value for a parameter is not of its type.
    #[error("parameter ${number}: {source}")]
    Parameter {
        /// The parameter, from 1.
        number: usize,
        /// Why.
        source: SqlError,
    },
    /// More or fewer values were given than the statement has parameters.
    #[error("the statement has {wanted} parameters, and {given} values are given")]
    ParameterCount {
        /// Parameters of the statement.
        wanted: usize,
        /// Values that are given.
        given: usize,
    },
    /// A column is not what was asked for.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// A statement gave more or fewer rows than asked for.
    #[error("the statement gave {found} rows, and {wanted} was wanted")]
    RowCount {
        /// How many it gave.
        found: usize,
        /// How many were wanted.
        wanted: &'static str,
    },
}

/// Why a column cannot be read as asked for.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ColumnError {
    /// There is no column of this name.
    #[error("there is no column {name:?}; there are: {}", .columns.join(", "))]
    NoName {
        /// The name.
        name: String,
        /// The names that there are.
        columns: Vec<String>,
    },
    /// Several columns have this name.
    #[error("several columns are called {name:?}: name them apart with AS, or use their index")]
    Ambiguous {
        /// The name.
        name: String,
    },
    /// There is no column of this index.
    #[error("there is no column of index {index}; there are {count}, from 0")]
    NoIndex {
        /// The index, from 0.
        index: usize,
        /// Columns of the row.
        count: usize,
    },
    /// A column is of a type that the Rust type cannot take.
    #[error("column {column:?} is of type {}, which cannot be read as {wanted}", TypeName(*.found))]
    Type {
        /// The name of the column.
        column: String,
        /// Its type.
        found: SqlType,
        /// The Rust type that was asked for.
        wanted: &'static str,
    },
    /// A column is NULL.
    #[error("column {column:?} is NULL, which cannot be read as {wanted}: use Option")]
    Null {
        /// The name of the column.
        column: String,
        /// The Rust type that was asked for.
        wanted: &'static str,
    },
    /// A value is of a type that can be read, but has no counterpart.
    #[error("column {column:?} has {value}, which cannot be read as {wanted}")]
    Value {
        /// The name of the column.
        column: String,
        /// The value, as text.
        value: String,
        /// The Rust type that was asked for.
        wanted: &'static str,
    },
    /// A row has more or fewer columns than asked for.
    #[error("the row has {found} columns, and {wanted} are asked for")]
    Count {
        /// Columns of the row.
        found: usize,
        /// Columns that are asked for.
        wanted: usize,
    },
}

struct TypeName(SqlType);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.name())
    }
}

impl QueryError {
    /// PostgreSQL's code. What is no error of a statement has the code that PostgreSQL gives to
    /// what is most like it.
    #[must_use]
    pub fn state(&self) -> SqlState {
        match self {
            Self::Sql(error) | Self::Parameter { source: error, .. } => error.state(),
            Self::ParameterCount { .. } => SqlState::UNDEFINED_PARAMETER,
            Self::Column(ColumnError::NoName { .. } | ColumnError::NoIndex { .. }) => {
                SqlState::UNDEFINED_COLUMN
            }
            Self::Column(ColumnError::Ambiguous { .. }) => SqlState::AMBIGUOUS_COLUMN,
            Self::Column(ColumnError::Type { .. } | ColumnError::Count { .. }) => {
                SqlState::DATATYPE_MISMATCH
            }
            Self::Column(ColumnError::Null { .. }) => SqlState::NOT_NULL_VIOLATION,
            Self::Column(ColumnError::Value { .. }) => SqlState::INVALID_PARAMETER,
            Self::RowCount { .. } => SqlState::CARDINALITY_VIOLATION,
        }
    }

    /// Whether the same transaction may succeed when it is run again.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Sql(error) if error.is_retryable())
    }

    /// The error of the statement, with its detail, hint and place.
    #[must_use]
    pub fn sql(&self) -> Option<&SqlError> {
        match self {
            Self::Sql(error) | Self::Parameter { source: error, .. } => Some(error),
            _ => None,
        }
    }
}
