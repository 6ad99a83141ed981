//! Reading a row without copying it.
//!
//! Rows come from pages, so nothing here trusts them: bytes that do not fit the layout are the
//! error [`RowError::Damaged`].

use crate::catalogue::column_type::ColumnType;
use crate::encoding::decimal::DecimalRef;
use crate::encoding::row_error::{RowError, wrong_type};
use crate::encoding::row_layout::{ColumnPlace, RowLayout};
use crate::encoding::temporal::Interval;
use crate::encoding::value::{Value, check_time};

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

    /// A `Bool` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32), and [`RowError::Damaged`] if the byte is neither 0 nor 1.
    pub fn bool(&self, column: usize) -> Result<bool, RowError> {
        match self.array(column, self.fixed(column, ColumnType::Bool)?)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(RowError::Damaged { column }),
        }
    }

    /// An `I16` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn i16(&self, column: usize) -> Result<i16, RowError> {
        let at = self.fixed(column, ColumnType::I16)?;
        Ok(i16::from_le_bytes(self.array(column, at)?))
    }

    /// An `F32` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn f32(&self, column: usize) -> Result<f32, RowError> {
        let at = self.fixed(column, ColumnType::F32)?;
        Ok(f32::from_le_bytes(self.array(column, at)?))
    }

    /// A `Date` column, in days since 2000-01-01.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn date(&self, column: usize) -> Result<i32, RowError> {
        let at = self.fixed(column, ColumnType::Date)?;
        Ok(i32::from_le_bytes(self.array(column, at)?))
    }

    /// A `Time` column, in microseconds since midnight.
    ///
    /// # Errors
    /// As [`i32`](Self::i32), and [`RowError::Damaged`] if it is no time of the day.
    pub fn time(&self, column: usize) -> Result<i64, RowError> {
        let at = self.fixed(column, ColumnType::Time)?;
        let time = i64::from_le_bytes(self.array(column, at)?);
        check_time(column, time).map_err(|_| RowError::Damaged { column })?;
        Ok(time)
    }

    /// A `Timestamp` column, in microseconds since 2000-01-01 00:00 UTC.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn timestamp(&self, column: usize) -> Result<i64, RowError> {
        let at = self.fixed(column, ColumnType::Timestamp)?;
        Ok(i64::from_le_bytes(self.array(column, at)?))
    }

    /// An `Interval` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn interval(&self, column: usize) -> Result<Interval, RowError> {
        let at = self.fixed(column, ColumnType::Interval)?;
        Ok(Interval::from_stored(self.array(column, at)?))
    }

    /// A `Uuid` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn uuid(&self, column: usize) -> Result<[u8; 16], RowError> {
        let at = self.fixed(column, ColumnType::Uuid)?;
        self.array(column, at)
    }

    /// A `Decimal` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32), and [`RowError::Damaged`] if the bytes are no decimal.
    pub fn decimal(&self, column: usize) -> Result<DecimalRef<'a>, RowError> {
        let bytes = self.variable_of(column, ColumnType::Decimal(0))?;
        DecimalRef::from_stored(bytes).ok_or(RowError::Damaged { column })
    }

    /// A text column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32), and [`RowError::Damaged`] if the bytes are not UTF-8.
    pub fn text(&self, column: usize) -> Result<&'a str, RowError> {
        let bytes = self.variable_of(column, ColumnType::Text(0))?;
        std::str::from_utf8(bytes).map_err(|_| RowError::Damaged { column })
    }

    /// A byte-string column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn bytes(&self, column: usize) -> Result<&'a [u8], RowError> {
        self.variable_of(column, ColumnType::Bytes(0))
    }

    /// A `Json` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn json(&self, column: usize) -> Result<&'a [u8], RowError> {
        self.variable_of(column, ColumnType::Json(0))
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
            ColumnType::Bool => Value::Bool(self.bool(column)?),
            ColumnType::I16 => Value::I16(self.i16(column)?),
            ColumnType::I32 => Value::I32(self.i32(column)?),
            ColumnType::I64 => Value::I64(self.i64(column)?),
            ColumnType::F32 => Value::F32(self.f32(column)?),
            ColumnType::F64 => Value::F64(self.f64(column)?),
            ColumnType::Date => Value::Date(self.date(column)?),
            ColumnType::Time => Value::Time(self.time(column)?),
            ColumnType::Timestamp => Value::Timestamp(self.timestamp(column)?),
            ColumnType::Interval => Value::Interval(self.interval(column)?),
            ColumnType::Uuid => Value::Uuid(self.uuid(column)?),
            ColumnType::Decimal(_) => Value::Decimal(self.decimal(column)?),
            ColumnType::Text(_) => Value::Text(self.text(column)?),
            ColumnType::Bytes(_) => Value::Bytes(self.bytes(column)?),
            ColumnType::Json(_) => Value::Json(self.json(column)?),
        })
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

    /// The bytes of a variable column of the type of `ty`, whatever its length.
    fn variable_of(&self, column: usize, ty: ColumnType) -> Result<&'a [u8], RowError> {
        let ordinal = self.layout.variable_ordinal(column, ty, 0)?;
        let damaged = RowError::Damaged { column };
        if self.is_null(column)? {
            return Err(RowError::Null { column });
        }
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
