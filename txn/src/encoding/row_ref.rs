//! Reading a row without copying it.
//!
//! Rows come from pages, so nothing here trusts them: bytes that do not fit the layout are the
//! error [`RowError::Damaged`].

use crate::catalogue::schema::ColumnType;
use crate::encoding::row_error::{RowError, wrong_type};
use crate::encoding::row_layout::{ColumnLayout, ColumnPlace, RowLayout};

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
        let ColumnPlace::Fixed(at) = layout.place else {
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
        let ColumnPlace::Variable(ordinal) = layout.place else { return Err(damaged) };
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
