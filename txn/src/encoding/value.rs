//! A value of any type.

use crate::catalogue::column_type::ColumnType;
use crate::encoding::decimal::DecimalRef;
use crate::encoding::row_error::RowError;
use crate::encoding::temporal::{Interval, MAX_TIME_US};

/// A value of any type, borrowed from a row.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A `Bool` column.
    Bool(bool),
    /// An `I16` column.
    I16(i16),
    /// An `I32` column.
    I32(i32),
    /// An `I64` column.
    I64(i64),
    /// An `F32` column.
    F32(f32),
    /// An `F64` column.
    F64(f64),
    /// A `Date` column, in days since 2000-01-01.
    Date(i32),
    /// A `Time` column, in microseconds since midnight.
    Time(i64),
    /// A `Timestamp` column, in microseconds since 2000-01-01 00:00 UTC.
    Timestamp(i64),
    /// An `Interval` column.
    Interval(Interval),
    /// A `Uuid` column.
    Uuid([u8; 16]),
    /// A `Decimal` column.
    Decimal(DecimalRef<'a>),
    /// A text column.
    Text(&'a str),
    /// A byte-string column.
    Bytes(&'a [u8]),
    /// A `Json` column.
    Json(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The value of a column of this type that is stored in these bytes. That it is a time of the
    /// day is not checked.
    pub(crate) fn from_stored(ty: ColumnType, bytes: &'a [u8]) -> Option<Self> {
        Some(match ty {
            ColumnType::Bool => match bytes {
                [0] => Self::Bool(false),
                [1] => Self::Bool(true),
                _ => return None,
            },
            ColumnType::I16 => Self::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
            ColumnType::I32 => Self::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
            ColumnType::I64 => Self::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
            ColumnType::F32 => Self::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
            ColumnType::F64 => Self::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            ColumnType::Date => Self::Date(i32::from_le_bytes(bytes.try_into().ok()?)),
            ColumnType::Time => Self::Time(i64::from_le_bytes(bytes.try_into().ok()?)),
            ColumnType::Timestamp => Self::Timestamp(i64::from_le_bytes(bytes.try_into().ok()?)),
            ColumnType::Interval => Self::Interval(Interval::from_stored(bytes.try_into().ok()?)),
            ColumnType::Uuid => Self::Uuid(bytes.try_into().ok()?),
            ColumnType::Decimal(_) => Self::Decimal(DecimalRef::from_stored(bytes)?),
            ColumnType::Text(_) => Self::Text(std::str::from_utf8(bytes).ok()?),
            ColumnType::Bytes(_) => Self::Bytes(bytes),
            ColumnType::Json(_) => Self::Json(bytes),
        })
    }
}

impl Value<'_> {
    /// The name of its type, or NULL.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Null => "NULL",
            Self::Bool(_) => "Bool",
            Self::I16(_) => "I16",
            Self::I32(_) => "I32",
            Self::I64(_) => "I64",
            Self::F32(_) => "F32",
            Self::F64(_) => "F64",
            Self::Date(_) => "Date",
            Self::Time(_) => "Time",
            Self::Timestamp(_) => "Timestamp",
            Self::Interval(_) => "Interval",
            Self::Uuid(_) => "Uuid",
            Self::Decimal(_) => "Decimal",
            Self::Text(_) => "Text",
            Self::Bytes(_) => "Bytes",
            Self::Json(_) => "Json",
        }
    }

    fn is_of(self, ty: ColumnType) -> bool {
        matches!(
            (self, ty),
            (Self::Bool(_), ColumnType::Bool)
                | (Self::I16(_), ColumnType::I16)
                | (Self::I32(_), ColumnType::I32)
                | (Self::I64(_), ColumnType::I64)
                | (Self::F32(_), ColumnType::F32)
                | (Self::F64(_), ColumnType::F64)
                | (Self::Date(_), ColumnType::Date)
                | (Self::Time(_), ColumnType::Time)
                | (Self::Timestamp(_), ColumnType::Timestamp)
                | (Self::Interval(_), ColumnType::Interval)
                | (Self::Uuid(_), ColumnType::Uuid)
                | (Self::Decimal(_), ColumnType::Decimal(_))
                | (Self::Text(_), ColumnType::Text(_))
                | (Self::Bytes(_), ColumnType::Bytes(_))
                | (Self::Json(_), ColumnType::Json(_))
        )
    }

    /// Refuses what is neither NULL nor of this type and in its range; its length does not matter.
    pub(crate) fn check(self, column: usize, ty: ColumnType) -> Result<(), RowError> {
        match self {
            Self::Null => Ok(()),
            _ if !self.is_of(ty) => Err(self.wrong_type(column, ty)),
            Self::Time(value) => check_time(column, value),
            _ => Ok(()),
        }
    }

    /// The error for a column of type `actual` that is given this value.
    pub(crate) fn wrong_type(self, column: usize, actual: ColumnType) -> RowError {
        RowError::WrongType { column, actual, wanted: self.type_name() }
    }
}

/// Refuses a value that is too long for a column of this type: digits of a decimal, else bytes.
pub(crate) fn check_length(column: usize, ty: ColumnType, length: usize) -> Result<(), RowError> {
    match ty {
        ColumnType::Decimal(max) if length > usize::from(max) => {
            Err(RowError::TooManyDigits { column, digits: length, max })
        }
        ColumnType::Text(max) | ColumnType::Bytes(max) | ColumnType::Json(max)
            if length > max as usize =>
        {
            Err(RowError::TooLong { column, bytes: length, max })
        }
        _ => Ok(()),
    }
}

/// Refuses what is no time of the day.
pub(crate) fn check_time(column: usize, value: i64) -> Result<(), RowError> {
    if (0..=MAX_TIME_US).contains(&value) {
        return Ok(());
    }
    Err(RowError::OutOfRange { column, value, min: 0, max: MAX_TIME_US })
}
