//! Reading a row without copying it.
//!
//! Rows come from pages, so nothing here trusts them: bytes that do not fit the layout are the
//! error [`RowError::Damaged`].

use crate::catalogue::column_type::ColumnType;
use crate::encoding::decimal::DecimalRef;
use crate::encoding::moved_values::{MovedValues, ValuePointer};
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_error::{RowError, wrong_type};
use crate::encoding::row_layout::{ColumnLayout, ColumnPlace, RowLayout};
use crate::encoding::temporal::Interval;
use crate::encoding::value::{Value, check_time};

/// A row, read in place. Columns are named by position.
#[derive(Clone, Copy, Debug)]
pub struct RowRef<'a> {
    layout: &'a RowLayout,
    bytes: &'a [u8],
    /// Values that it has pointers to.
    moved: Option<&'a MovedValues>,
    /// The columns that were read, one bit each.
    columns: u64,
}

/// Every column.
pub(crate) const ALL_COLUMNS: u64 = u64::MAX;

impl<'a> RowRef<'a> {
    pub(crate) fn new(layout: &'a RowLayout, bytes: &'a [u8]) -> Self {
        Self { layout, bytes, moved: None, columns: ALL_COLUMNS }
    }

    /// A row with values that are not in its bytes.
    pub(crate) fn with_moved(
        layout: &'a RowLayout,
        bytes: &'a [u8],
        moved: &'a MovedValues,
    ) -> Self {
        Self { layout, bytes, moved: Some(moved), columns: ALL_COLUMNS }
    }

    /// The same row, of which only these columns can be read.
    pub(crate) fn only(self, columns: u64) -> Self {
        Self { columns, ..self }
    }

    /// The values that are not in its bytes, and are here.
    pub(crate) fn moved(&self) -> Option<&'a MovedValues> {
        self.moved
    }

    pub(crate) fn layout(&self) -> &'a RowLayout {
        self.layout
    }

    /// The row's bytes. Long values are not among them. Of a row of which only
    /// [some columns](crate::Txn::get_columns) were read, the others may be changed by transactions
    /// that commit before this one.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// An `I32` column.
    ///
    /// # Errors
    /// A [`RowError`] with its names if there is no such column, it has another type, or it is NULL
    /// here.
    pub fn i32(&self, column: usize) -> Result<i32, NamedRowError> {
        Ok(i32::from_le_bytes(self.fixed(column, ColumnType::I32)?))
    }

    /// An `I64` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn i64(&self, column: usize) -> Result<i64, NamedRowError> {
        Ok(i64::from_le_bytes(self.fixed(column, ColumnType::I64)?))
    }

    /// An `F64` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn f64(&self, column: usize) -> Result<f64, NamedRowError> {
        Ok(f64::from_le_bytes(self.fixed(column, ColumnType::F64)?))
    }

    /// A `Bool` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32), and [`RowError::Damaged`] if the byte is neither 0 nor 1.
    pub fn bool(&self, column: usize) -> Result<bool, NamedRowError> {
        match self.fixed(column, ColumnType::Bool)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(self.damaged(column)),
        }
    }

    /// An `I16` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn i16(&self, column: usize) -> Result<i16, NamedRowError> {
        Ok(i16::from_le_bytes(self.fixed(column, ColumnType::I16)?))
    }

    /// An `F32` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn f32(&self, column: usize) -> Result<f32, NamedRowError> {
        Ok(f32::from_le_bytes(self.fixed(column, ColumnType::F32)?))
    }

    /// A `Date` column, in days since 2000-01-01.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn date(&self, column: usize) -> Result<i32, NamedRowError> {
        Ok(i32::from_le_bytes(self.fixed(column, ColumnType::Date)?))
    }

    /// A `Time` column, in microseconds since midnight.
    ///
    /// # Errors
    /// As [`i32`](Self::i32), and [`RowError::Damaged`] if it is no time of the day.
    pub fn time(&self, column: usize) -> Result<i64, NamedRowError> {
        let time = i64::from_le_bytes(self.fixed(column, ColumnType::Time)?);
        check_time(column, time).map_err(|_| self.damaged(column))?;
        Ok(time)
    }

    /// A `Timestamp` column, in microseconds since 2000-01-01 00:00 UTC.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn timestamp(&self, column: usize) -> Result<i64, NamedRowError> {
        Ok(i64::from_le_bytes(self.fixed(column, ColumnType::Timestamp)?))
    }

    /// An `Interval` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn interval(&self, column: usize) -> Result<Interval, NamedRowError> {
        Ok(Interval::from_stored(self.fixed(column, ColumnType::Interval)?))
    }

    /// A `Uuid` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn uuid(&self, column: usize) -> Result<[u8; 16], NamedRowError> {
        self.fixed(column, ColumnType::Uuid)
    }

    /// A `Decimal` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32), and [`RowError::Damaged`] if the bytes are no decimal.
    pub fn decimal(&self, column: usize) -> Result<DecimalRef<'a>, NamedRowError> {
        let bytes = self.variable_of(column, ColumnType::Decimal(0))?;
        DecimalRef::from_stored(bytes).ok_or_else(|| self.damaged(column))
    }

    /// A text column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32); [`RowError::Damaged`] if the bytes are not UTF-8; [`RowError::Moved`]
    /// if they are [stored apart](Self::is_moved) from the row.
    pub fn text(&self, column: usize) -> Result<&'a str, NamedRowError> {
        let bytes = self.variable_of(column, ColumnType::Text(0))?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged(column))
    }

    /// A byte-string column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn bytes(&self, column: usize) -> Result<&'a [u8], NamedRowError> {
        self.variable_of(column, ColumnType::Bytes(0))
    }

    /// A `Json` column.
    ///
    /// # Errors
    /// As [`i32`](Self::i32).
    pub fn json(&self, column: usize) -> Result<&'a [u8], NamedRowError> {
        self.variable_of(column, ColumnType::Json(0))
    }

    /// Whether a column is NULL.
    ///
    /// # Errors
    /// [`RowError::NoSuchColumn`], [`RowError::Damaged`].
    pub fn is_null(&self, column: usize) -> Result<bool, NamedRowError> {
        let layout = self.named(self.column(column))?;
        Ok(layout.nullable && self.named(self.null_bit(layout, column))?)
    }

    /// Whether the value of a column is stored apart from the row and was not read with it: then
    /// reading it is [`RowError::Moved`]. [`Txn::get_whole`](crate::Txn::get_whole),
    /// [`Txn::load_values`](crate::Txn::load_values) and
    /// [`Txn::read_value`](crate::Txn::read_value) read it.
    ///
    /// # Errors
    /// [`RowError::NoSuchColumn`], [`RowError::Damaged`].
    pub fn is_moved(&self, column: usize) -> Result<bool, NamedRowError> {
        match self.find_stored(column) {
            Err(RowError::Moved { .. }) => Ok(true),
            stored => self.named(stored.map(|_| false)),
        }
    }

    /// Bytes of the value of a column as it is stored, also if that is apart from the row; `None`
    /// if it is NULL. Of texts, byte strings and JSON: their length.
    ///
    /// # Errors
    /// [`RowError::NoSuchColumn`], [`RowError::Damaged`].
    pub fn value_bytes(&self, column: usize) -> Result<Option<usize>, NamedRowError> {
        match self.find_stored(column) {
            Err(RowError::Moved { bytes, .. }) => Ok(Some(bytes as usize)),
            stored => self.named(stored.map(|value| value.map(<[u8]>::len))),
        }
    }

    /// The pointer that it has in place of a column, if it has one.
    pub(crate) fn pointer(&self, column: usize) -> Result<Option<ValuePointer>, NamedRowError> {
        match self.named(self.column(column))?.place {
            ColumnPlace::Variable(ordinal) if self.layout.is_moved(self.bytes, ordinal) => {
                let range = self.layout.variable(self.bytes, ordinal);
                let bytes = range.and_then(|range| self.bytes.get(range));
                let pointer = bytes.and_then(ValuePointer::decode);
                pointer.map(Some).ok_or_else(|| self.damaged(column))
            }
            _ => Ok(None),
        }
    }

    /// The value that it has a pointer to.
    #[cold]
    fn moved_value(&self, column: usize, ordinal: usize) -> Result<Option<&'a [u8]>, RowError> {
        let range = self.layout.variable(self.bytes, ordinal);
        let bytes = range.and_then(|range| self.bytes.get(range));
        let pointer = bytes.and_then(ValuePointer::decode).ok_or(RowError::Damaged { column })?;
        let value = self.moved.and_then(|moved| moved.get(pointer));
        value.map(Some).ok_or(RowError::Moved { column, bytes: pointer.bytes })
    }

    /// A column of whatever type it has.
    ///
    /// # Errors
    /// [`RowError::NoSuchColumn`], [`RowError::Damaged`]; [`RowError::Moved`] if it is stored apart
    /// from the row, and was not read with it.
    pub fn value(&self, column: usize) -> Result<Value<'a>, NamedRowError> {
        let Some(bytes) = self.stored(column)? else { return Ok(Value::Null) };
        match self.named(self.column(column))?.ty {
            ColumnType::Time => self.time(column).map(Value::Time),
            ty => Value::from_stored(ty, bytes).ok_or_else(|| self.damaged(column)),
        }
    }

    /// The bytes of a column as they are stored, `None` if it is NULL.
    pub(crate) fn stored(&self, column: usize) -> Result<Option<&'a [u8]>, NamedRowError> {
        self.named(self.find_stored(column))
    }

    fn find_stored(&self, column: usize) -> Result<Option<&'a [u8]>, RowError> {
        let layout = self.column(column)?;
        if layout.nullable && self.null_bit(layout, column)? {
            return Ok(None);
        }
        let bytes = match layout.place {
            ColumnPlace::Fixed(at) => self.bytes.get(at..at + layout.ty.max_bytes()),
            ColumnPlace::Variable(ordinal) => {
                if self.layout.is_moved(self.bytes, ordinal) {
                    return self.moved_value(column, ordinal);
                }
                let range = self.layout.variable(self.bytes, ordinal);
                range.and_then(|range| self.bytes.get(range))
            }
            ColumnPlace::Missing { start, end } => self.layout.missing.get(start..end),
            ColumnPlace::MissingNull => return Ok(None),
        };
        bytes.map(Some).ok_or(RowError::Damaged { column })
    }

    fn fixed<const N: usize>(
        &self,
        column: usize,
        ty: ColumnType,
    ) -> Result<[u8; N], NamedRowError> {
        self.named(self.find_fixed(column, ty))
    }

    fn find_fixed<const N: usize>(
        &self,
        column: usize,
        ty: ColumnType,
    ) -> Result<[u8; N], RowError> {
        let layout = self.column(column)?;
        if layout.ty != ty {
            return Err(wrong_type(column, layout.ty, ty));
        }
        if layout.nullable && self.null_bit(layout, column)? {
            return Err(RowError::Null { column });
        }
        let bytes = match layout.place {
            ColumnPlace::Fixed(at) => self.bytes.get(at..at + N),
            ColumnPlace::Missing { start, end } => self.layout.missing.get(start..end),
            ColumnPlace::Variable(_) | ColumnPlace::MissingNull => None,
        };
        bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(RowError::Damaged { column })
    }

    /// The bytes of a variable column of the type of `ty`, whatever its length.
    fn variable_of(&self, column: usize, ty: ColumnType) -> Result<&'a [u8], NamedRowError> {
        let found = self.named(self.column(column))?.ty;
        if std::mem::discriminant(&found) != std::mem::discriminant(&ty) {
            return Err(self.layout.named(wrong_type(column, found, ty)));
        }
        self.stored(column)?.ok_or_else(|| self.layout.named(RowError::Null { column }))
    }

    /// Fails if only some columns were read.
    pub(crate) fn check_whole(&self) -> Result<(), NamedRowError> {
        let mut columns = 0..self.layout.columns.len();
        self.named(columns.try_for_each(|column| self.column(column).map(drop)))
    }

    /// What was found in the row, or an error with its names.
    #[inline]
    fn named<T>(&self, found: Result<T, RowError>) -> Result<T, NamedRowError> {
        found.map_err(|error| self.layout.named(error))
    }

    fn damaged(&self, column: usize) -> NamedRowError {
        self.layout.named(RowError::Damaged { column })
    }

    fn column(&self, column: usize) -> Result<&'a ColumnLayout, RowError> {
        let layout = self.layout.column(column)?;
        match self.columns >> column & 1 {
            0 => Err(RowError::NotRead { column }),
            _ => Ok(layout),
        }
    }

    fn null_bit(&self, layout: &ColumnLayout, column: usize) -> Result<bool, RowError> {
        if layout.place == ColumnPlace::MissingNull {
            return Ok(true);
        }
        let byte = self.bytes.get(layout.null_bit / 8).ok_or(RowError::Damaged { column })?;
        Ok(byte & (1 << (layout.null_bit % 8)) != 0)
    }
}
