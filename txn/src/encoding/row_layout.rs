//! The byte layout of a row.
//!
//! Byte map, little-endian, packed:
//! ```text
//! NULL bitmap      one bit a column, only if a column of the table is nullable
//! fixed section    the columns of fixed width in column order, at constant offsets (NULL: zeroes)
//! ends             u16 for each variable column: where its bytes end in the next section
//! variable bytes   Decimal, Text, Bytes and Json columns in column order (NULL: nothing)
//! ```
//! A `Bool` is 0 or 1; numbers, dates, times and timestamps are integers or floats of their width;
//! an `Interval` is its months (i32), days (i32) and microseconds (i64); a `Uuid` its 16 bytes; a
//! `Decimal` its scale and its ordered form, see `encoding/decimal.rs`.
//!
//! A fixed-width column is one load at an offset known from the schema, and can be changed in
//! place.

use crate::catalogue::column_type::ColumnType;
use crate::catalogue::schema::TableSchema;
use crate::encoding::row_error::{RowError, wrong_type};

/// Where a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnPlace {
    /// At this byte of the row.
    Fixed(usize),
    /// Ordinal among the variable columns.
    Variable(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnLayout {
    pub(crate) ty: ColumnType,
    pub(crate) nullable: bool,
    /// Part of the primary key, hence never changed.
    pub(crate) in_key: bool,
    pub(crate) place: ColumnPlace,
}

/// The places of all columns in the rows of one table.
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
                ColumnPlace::Fixed(at - bytes)
            } else {
                variable_columns += 1;
                variable_bytes += column.ty.max_bytes();
                ColumnPlace::Variable(variable_columns - 1)
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

    /// Offset of a fixed-width column of this type.
    pub(crate) fn fixed_offset(&self, column: usize, ty: ColumnType) -> Result<usize, RowError> {
        let found = self.column(column)?;
        match found.place {
            ColumnPlace::Fixed(at) if found.ty == ty => Ok(at),
            _ => Err(wrong_type(column, found.ty, ty)),
        }
    }

    /// Ordinal of a variable column of this type that takes a value of this length: digits of a
    /// decimal, else bytes.
    pub(crate) fn variable_ordinal(
        &self,
        column: usize,
        ty: ColumnType,
        length: usize,
    ) -> Result<usize, RowError> {
        let found = self.column(column)?;
        let ColumnPlace::Variable(ordinal) = found.place else {
            return Err(wrong_type(column, found.ty, ty));
        };
        if std::mem::discriminant(&found.ty) != std::mem::discriminant(&ty) {
            return Err(wrong_type(column, found.ty, ty));
        }
        match found.ty {
            ColumnType::Decimal(max) if length > usize::from(max) => {
                Err(RowError::TooManyDigits { column, digits: length, max })
            }
            ColumnType::Text(max) | ColumnType::Bytes(max) | ColumnType::Json(max)
                if length > usize::from(max) =>
            {
                Err(RowError::TooLong { column, bytes: length, max })
            }
            _ => Ok(ordinal),
        }
    }
}
