//! The types of columns, and how many bytes their values take.

use serde::{Deserialize, Serialize};

/// Most columns a table may have; sets of columns are 64-bit masks.
pub const MAX_COLUMNS: usize = 64;

/// Longest text, byte or JSON column, in bytes: 256 MiB. What a page has no room for is stored in
/// pieces, in databases for snapshots.
pub const MAX_COLUMN_BYTES: u32 = 256 << 20;

/// Most digits of a decimal column.
pub const MAX_DECIMAL_DIGITS: u16 = 8192;

/// Bytes of a decimal of one digit in a key.
const DECIMAL_KEY_BYTES: usize = 5;
/// Bytes of the scale, which stands before them in a row.
const SCALE_BYTES: usize = 2;

/// The type of a column. The names are those of the stored catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ColumnType {
    /// False or true; false is less.
    Bool,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer; also money, counted in its smallest unit.
    I64,
    /// 32-bit float; ordered in a key as an [`F64`](Self::F64).
    F32,
    /// 64-bit float. In a key -0 is 0, and every NaN is one value, greater than all others.
    F64,
    /// A day: days since 2000-01-01, as an `i32`.
    Date,
    /// A time of the day: microseconds since midnight, from 0 to 86 400 000 000.
    Time,
    /// A moment: microseconds since 2000-01-01 00:00 UTC. `i64::MIN` is -infinity, `i64::MAX` is
    /// infinity.
    Timestamp,
    /// Months, days and microseconds; in a key, the length of these.
    Interval,
    /// 16 bytes, compared as such.
    Uuid,
    /// Decimal number of at most so many digits, from the first that is not 0 to the last that is
    /// not 0. 1.0 and 1.00 are one value in a key.
    Decimal(u16),
    /// UTF-8 text of at most so many bytes. It is compared byte by byte, which is the order of
    /// code points: the collation "C" of SQL.
    Text(u32),
    /// Any bytes, at most so many.
    Bytes(u32),
    /// A JSON document of at most so many bytes; they are not looked at. It has no place in a key.
    Json(u32),
}

impl ColumnType {
    /// Bytes of a fixed-width column, `None` for a variable one.
    #[must_use]
    pub const fn fixed_bytes(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::I16 => Some(2),
            Self::I32 | Self::F32 | Self::Date => Some(4),
            Self::I64 | Self::F64 | Self::Time | Self::Timestamp => Some(8),
            Self::Interval | Self::Uuid => Some(16),
            Self::Decimal(_) | Self::Text(_) | Self::Bytes(_) | Self::Json(_) => None,
        }
    }

    /// Most bytes a value takes in a row, without the two that say where a variable one ends.
    #[must_use]
    pub const fn max_bytes(self) -> usize {
        match (self, self.fixed_bytes()) {
            (_, Some(bytes)) => bytes,
            (Self::Decimal(digits), _) => SCALE_BYTES + DECIMAL_KEY_BYTES + digits as usize / 2,
            (Self::Text(max) | Self::Bytes(max) | Self::Json(max), _) => max as usize,
            _ => 0,
        }
    }

    /// Most bytes a value takes in a key: every byte of a text may need its escape, and two end
    /// it.
    #[must_use]
    pub const fn max_key_bytes(self, nullable: bool) -> usize {
        let value = match self {
            Self::Decimal(digits) => DECIMAL_KEY_BYTES + digits as usize / 2,
            Self::Text(max) | Self::Bytes(max) => 2 * max as usize + 2,
            fixed => fixed.max_bytes(),
        };
        value + nullable as usize
    }

    /// Whether a key tells the values of such a column as they are, and not only what they are
    /// equal to: of floats it does not tell -0 from 0, of decimals 1.0 from 1.00, of intervals a
    /// month from 30 days.
    #[must_use]
    pub const fn has_exact_keys(self) -> bool {
        match self {
            Self::Bool
            | Self::I16
            | Self::I32
            | Self::I64
            | Self::Date
            | Self::Time
            | Self::Timestamp
            | Self::Uuid
            | Self::Text(_)
            | Self::Bytes(_) => true,
            Self::F32 | Self::F64 | Self::Interval | Self::Decimal(_) | Self::Json(_) => false,
        }
    }

    /// Fewest bytes a value takes in a key.
    pub(crate) const fn min_key_bytes(self, nullable: bool) -> usize {
        match (nullable, self) {
            (true, _) | (_, Self::Decimal(_)) => 1,
            // Those that end it.
            (_, Self::Text(_) | Self::Bytes(_)) => 2,
            (_, fixed) => fixed.max_bytes(),
        }
    }

    /// Its name without a length.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bool => "Bool",
            Self::I16 => "I16",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::F32 => "F32",
            Self::F64 => "F64",
            Self::Date => "Date",
            Self::Time => "Time",
            Self::Timestamp => "Timestamp",
            Self::Interval => "Interval",
            Self::Uuid => "Uuid",
            Self::Decimal(_) => "Decimal",
            Self::Text(_) => "Text",
            Self::Bytes(_) => "Bytes",
            Self::Json(_) => "Json",
        }
    }
}
