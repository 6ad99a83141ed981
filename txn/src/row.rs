//! The bytes of a row, and reading them without copying.
//!
//! Byte map, little-endian, packed:
//! ```text
//! NULL bitmap      one bit a column, only if a column of the table is nullable
//! fixed section    I32, I64 and F64 columns in column order, at constant offsets (NULL: zeroes)
//! ends             u16 for each variable column: where its bytes end, counted from the next section
//! variable bytes   Text and Bytes columns in column order (NULL: nothing)
//! ```
//! A fixed-width column is one load at an offset known from the schema, and can be changed in
//! place. Rows come from pages, so nothing here trusts them: bytes that do not fit the layout are
//! the error [`RowError::Damaged`].

use crate::schema::{ColumnType, TableSchema};

/// Where a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this byte of the row.
    Fixed(usize),
    /// The so-many-th variable column.
    Variable(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnLayout {
    pub(crate) ty: ColumnType,
    pub(crate) nullable: bool,
    /// Part of the primary key, hence never changed.
    pub(crate) in_key: bool,
    pub(crate) place: Place,
}

/// Where everything is in the rows of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowLayout {
    pub(crate) columns: Box<[ColumnLayout]>,
    pub(crate) variable_columns: usize,
    /// Where the ends begin.
    pub(crate) ends_at: usize,
    /// Where the variable bytes begin: also the length of the shortest row.
    pub(crate) variable_at: usize,
    /// Length of the longest row.
    pub(crate) max_bytes: usize,
}

impl RowLayout {
    pub(crate) fn of(schema: &TableSchema) -> Self {
        let any_null = schema.columns.iter().any(|column| column.nullable);
        let mut at = if any_null { schema.columns.len().div_ceil(8) } else { 0 };
        let (mut variable_columns, mut variable_bytes) = (0, 0);
        let mut columns = Vec::with_capacity(schema.columns.len());
        for (position, column) in schema.columns.iter().enumerate() {
            let place = if let Some(bytes) = column.ty.fixed_bytes() {
                at += bytes;
                Place::Fixed(at - bytes)
            } else {
                variable_columns += 1;
                variable_bytes += column.ty.max_bytes();
                Place::Variable(variable_columns - 1)
            };
            let in_key = schema.primary_key.contains(&position);
            let (ty, nullable) = (column.ty, column.nullable);
            columns.push(ColumnLayout { ty, nullable, in_key, place });
        }
        let variable_at = at + 2 * variable_columns;
        Self {
            columns: columns.into(),
            variable_columns,
            ends_at: at,
            variable_at,
            max_bytes: variable_at + variable_bytes,
        }
    }

    pub(crate) fn column(&self, column: usize) -> Result<&ColumnLayout, RowError> {
        let columns = self.columns.len();
        self.columns.get(column).ok_or(RowError::NoSuchColumn { column, columns })
    }

    /// Byte range of a variable column.
    pub(crate) fn variable(&self, row: &[u8], ordinal: usize) -> Option<std::ops::Range<usize>> {
        let start = if ordinal == 0 { 0 } else { self.end(row, ordinal - 1)? };
        let end = self.end(row, ordinal)?;
        (start <= end).then_some(self.variable_at + start..self.variable_at + end)
    }

    fn end(&self, row: &[u8], ordinal: usize) -> Option<usize> {
        let at = self.ends_at + 2 * ordinal;
        Some(u16::from_le_bytes(row.get(at..at + 2)?.try_into().ok()?).into())
    }
}

/// A value of any type, borrowed from a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// An `I32` column.
    I32(i32),
    /// An `I64` column.
    I64(i64),
    /// An `F64` column.
    F64(f64),
    /// A text column.
    Text(&'a str),
    /// A byte-string column.
    Bytes(&'a [u8]),
}

/// A row, read in place. Columns are named by position.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    layout: &'a RowLayout,
    bytes: &'a [u8],
}

impl<'a> RowRef<'a> {
    pub(crate) fn new(layout: &'a RowLayout, bytes: &'a [u8]) -> Self {
        Self { layout, bytes }
    }

    pub(crate) fn layout(&self) -> &'a RowLayout {
        self.layout
    }

    /// The row's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// An `I32` column.
    ///
    /// # Errors
    /// [`RowError`] if there is no such column, it has another type, or it is NULL here.
    pub fn i32(&self, column: usize) -> Result<i32, RowError> {
        let at = self.fixed(column, ColumnType::I32)?;
        Ok(i32::from_le_bytes(self.array(column, at)?))
    }

    /// An `I64` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn i64(&self, column: usize) -> Result<i64, RowError> {
        let at = self.fixed(column, ColumnType::I64)?;
        Ok(i64::from_le_bytes(self.array(column, at)?))
    }

    /// An `F64` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn f64(&self, column: usize) -> Result<f64, RowError> {
        let at = self.fixed(column, ColumnType::F64)?;
        Ok(f64::from_le_bytes(self.array(column, at)?))
    }

    /// A text column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32), and [`RowError::Damaged`] if the bytes are not UTF-8.
    pub fn text(&self, column: usize) -> Result<&'a str, RowError> {
        let layout = self.layout.column(column)?;
        if !matches!(layout.ty, ColumnType::Text(_)) {
            return Err(RowError::WrongType { column, actual: layout.ty, wanted: "Text" });
        }
        let bytes = self.variable(column, layout)?;
        std::str::from_utf8(bytes).map_err(|_| RowError::Damaged { column })
    }

    /// A byte-string column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn bytes(&self, column: usize) -> Result<&'a [u8], RowError> {
        let layout = self.layout.column(column)?;
        if !matches!(layout.ty, ColumnType::Bytes(_)) {
            return Err(RowError::WrongType { column, actual: layout.ty, wanted: "Bytes" });
        }
        self.variable(column, layout)
    }

    /// Whether a column is NULL.
    ///
    /// # Errors
    /// [`RowError::NoSuchColumn`], [`RowError::Damaged`].
    pub fn is_null(&self, column: usize) -> Result<bool, RowError> {
        let layout = self.layout.column(column)?;
        Ok(layout.nullable && self.null_bit(column)?)
    }

    /// A column of whatever type it has.
    ///
    /// # Errors
    /// [`RowError::NoSuchColumn`], [`RowError::Damaged`].
    pub fn value(&self, column: usize) -> Result<Value<'a>, RowError> {
        if self.is_null(column)? {
            return Ok(Value::Null);
        }
        Ok(match self.layout.column(column)?.ty {
            ColumnType::I32 => Value::I32(self.i32(column)?),
            ColumnType::I64 => Value::I64(self.i64(column)?),
            ColumnType::F64 => Value::F64(self.f64(column)?),
            ColumnType::Text(_) => Value::Text(self.text(column)?),
            ColumnType::Bytes(_) => Value::Bytes(self.bytes(column)?),
        })
    }

    /// The bytes of a variable column, text or not; `None` if it is NULL.
    pub(crate) fn variable_bytes(&self, column: usize) -> Result<Option<&'a [u8]>, RowError> {
        if self.is_null(column)? {
            return Ok(None);
        }
        self.variable(column, self.layout.column(column)?).map(Some)
    }

    fn fixed(&self, column: usize, ty: ColumnType) -> Result<usize, RowError> {
        let layout = self.layout.column(column)?;
        let Place::Fixed(at) = layout.place else {
            return Err(wrong_type(column, layout.ty, ty));
        };
        if layout.ty != ty {
            return Err(wrong_type(column, layout.ty, ty));
        }
        if layout.nullable && self.null_bit(column)? {
            return Err(RowError::Null { column });
        }
        Ok(at)
    }

    fn variable(&self, column: usize, layout: &ColumnLayout) -> Result<&'a [u8], RowError> {
        let damaged = RowError::Damaged { column };
        if layout.nullable && self.null_bit(column)? {
            return Err(RowError::Null { column });
        }
        let Place::Variable(ordinal) = layout.place else { return Err(damaged) };
        let range = self.layout.variable(self.bytes, ordinal).ok_or(damaged.clone())?;
        self.bytes.get(range).ok_or(damaged)
    }

    fn null_bit(&self, column: usize) -> Result<bool, RowError> {
        let byte = self.bytes.get(column / 8).ok_or(RowError::Damaged { column })?;
        Ok(byte & (1 << (column % 8)) != 0)
    }

    fn array<const N: usize>(&self, column: usize, at: usize) -> Result<[u8; N], RowError> {
        let bytes = self.bytes.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or(RowError::Damaged { column })
    }
}

pub(crate) fn wrong_type(column: usize, actual: ColumnType, wanted: ColumnType) -> RowError {
    let wanted = match wanted {
        ColumnType::I32 => "I32",
        ColumnType::I64 => "I64",
        ColumnType::F64 => "F64",
        ColumnType::Text(_) => "Text",
        ColumnType::Bytes(_) => "Bytes",
    };
    RowError::WrongType { column, actual, wanted }
}

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
    /// The value is longer than the column allows.
    #[error("column {column}: {bytes} bytes (allowed: {max})")]
    TooLong {
        /// The column.
        column: usize,
        /// Length of the value.
        bytes: usize,
        /// Longest value allowed.
        max: u16,
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
    /// The stored bytes are not a row of this table.
    #[error("the stored row is damaged at column {column}")]
    Damaged {
        /// The column that could not be read.
        column: usize,
    },
}
