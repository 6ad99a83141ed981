//! A value that stands in a definition: a column's default, or what it is in rows from before it.

use serde::{Deserialize, Serialize};

use crate::catalogue::column_type::ColumnType;
use crate::encoding::row_error::RowError;
use crate::encoding::value::{Value, check_length};

/// The value that a column gets where a new row does not say: a constant, and not NULL.
///
/// ```
/// use selkie_txn::{DefaultValue, Value};
/// let default = DefaultValue::of(Value::Text("none")).expect("not NULL");
/// assert_eq!(default.value(), Value::Text("none"));
/// assert!(DefaultValue::of(Value::Null).is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredDefault", into = "StoredDefault")]
pub struct DefaultValue {
    /// Of a text or another variable value: as long as the value.
    ty: ColumnType,
    /// As a row has it.
    bytes: Box<[u8]>,
}

/// How the catalogue has it: hexadecimal digits, as a document has no bytes and no infinities.
#[derive(Clone, Serialize, Deserialize)]
struct StoredDefault {
    ty: ColumnType,
    hex: String,
}

impl DefaultValue {
    /// The default of this value; `None` for NULL, which is no default.
    #[must_use]
    pub fn of(value: Value<'_>) -> Option<Self> {
        // What is too long for its length is too long for every column.
        let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let (ty, bytes): (_, Box<[u8]>) = match value {
            Value::Null => return None,
            Value::Bool(value) => (ColumnType::Bool, [u8::from(value)].into()),
            Value::I16(value) => (ColumnType::I16, value.to_le_bytes().into()),
            Value::I32(value) => (ColumnType::I32, value.to_le_bytes().into()),
            Value::I64(value) => (ColumnType::I64, value.to_le_bytes().into()),
            Value::F32(value) => (ColumnType::F32, value.to_le_bytes().into()),
            Value::F64(value) => (ColumnType::F64, value.to_le_bytes().into()),
            Value::Date(value) => (ColumnType::Date, value.to_le_bytes().into()),
            Value::Time(value) => (ColumnType::Time, value.to_le_bytes().into()),
            Value::Timestamp(value) => (ColumnType::Timestamp, value.to_le_bytes().into()),
            Value::Interval(value) => (ColumnType::Interval, value.to_stored().into()),
            Value::Uuid(value) => (ColumnType::Uuid, value.into()),
            Value::Decimal(value) => {
                let digits = u16::try_from(value.significant_digits()).unwrap_or(u16::MAX);
                (ColumnType::Decimal(digits), value.to_stored().as_slice().into())
            }
            Value::Text(value) => (ColumnType::Text(length(value.len())), value.as_bytes().into()),
            Value::Bytes(value) => (ColumnType::Bytes(length(value.len())), value.into()),
            Value::Json(value) => (ColumnType::Json(length(value.len())), value.into()),
        };
        Some(Self { ty, bytes })
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        // It was made of a value, or checked when it was read.
        Value::from_stored(self.ty, &self.bytes).unwrap_or(Value::Null)
    }

    /// Its bytes in a row.
    pub(crate) fn stored(&self) -> &[u8] {
        &self.bytes
    }

    /// Refuses one that a column of this type does not take.
    pub(crate) fn check(&self, column: usize, ty: ColumnType) -> Result<(), RowError> {
        let value = self.value();
        value.check(column, ty)?;
        let length = match value {
            Value::Decimal(value) => value.significant_digits(),
            _ => self.bytes.len(),
        };
        check_length(column, ty, length)
    }
}

impl From<DefaultValue> for StoredDefault {
    fn from(default: DefaultValue) -> Self {
        let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
        let digits = |byte: &u8| [digit(byte >> 4), digit(byte & 15)];
        Self { ty: default.ty, hex: default.bytes.iter().flat_map(digits).collect() }
    }
}

impl TryFrom<StoredDefault> for DefaultValue {
    type Error = &'static str;

    fn try_from(stored: StoredDefault) -> Result<Self, Self::Error> {
        let digit = |digit: u8| char::from(digit).to_digit(16).map(|digit| digit as u8);
        let byte = |pair: &[u8]| match pair {
            &[high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        };
        let bytes: Option<Box<[u8]>> = stored.hex.as_bytes().chunks(2).map(byte).collect();
        let bytes = bytes.ok_or("a default is not made of hexadecimal digits")?;
        let is_value = Value::from_stored(stored.ty, &bytes).is_some();
        let default = Self { ty: stored.ty, bytes };
        is_value.then_some(default).ok_or("a default is no value of its type")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::decimal::Decimal;
    use crate::encoding::temporal::Interval;

    #[test]
    fn defaults_of_all_types_are_stored_and_read() {
        let decimal: Decimal = "-12.50".parse().unwrap();
        let values = [
            Value::Bool(true),
            Value::I16(-2),
            Value::I32(i32::MIN),
            Value::I64(7),
            Value::F32(f32::INFINITY),
            Value::F64(f64::NEG_INFINITY),
            Value::Date(-1),
            Value::Time(5),
            Value::Timestamp(i64::MAX),
            Value::Interval(Interval { months: -1, days: 2, microseconds: i64::MIN }),
            Value::Uuid([0xa5; 16]),
            Value::Decimal(decimal.as_ref()),
            Value::Text("né"),
            Value::Text(""),
            Value::Bytes(&[0, 255]),
            Value::Json(b"{}"),
        ];
        for value in values {
            let default = DefaultValue::of(value).unwrap();
            assert_eq!(format!("{:?}", default.value()), format!("{value:?}"));
            let document = serde_json::to_string(&default).unwrap();
            assert_eq!(serde_json::from_str::<DefaultValue>(&document).unwrap(), default);
            assert_eq!(default.check(3, default.ty), Ok(()), "{document}");
            assert!(default.check(3, ColumnType::Bool).is_err() || value == Value::Bool(true));
        }
        assert_eq!(DefaultValue::of(Value::Null), None);
        for bad in [
            r#"{"ty":"I32","hex":"00"}"#,
            r#"{"ty":"I16","hex":"000"}"#,
            r#"{"ty":"I16","hex":"00zz"}"#,
            r#"{"ty":{"Text":1},"hex":"ff"}"#,
        ] {
            assert!(serde_json::from_str::<DefaultValue>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_column_does_not_take_is_no_default_of_it() {
        let refused = |value, ty| {
            let default = DefaultValue::of(value).unwrap();
            default.check(4, ty).unwrap_err().to_string()
        };
        assert_eq!(refused(Value::I32(1), ColumnType::I64), "column 4 is I64, not I32");
        assert_eq!(
            refused(Value::Text("long"), ColumnType::Text(3)),
            "column 4: 4 bytes (allowed: 3)"
        );
        let decimal: Decimal = "1234".parse().unwrap();
        let digits = refused(Value::Decimal(decimal.as_ref()), ColumnType::Decimal(3));
        assert_eq!(digits, "column 4: 4 digits (allowed: 3)");
        assert!(refused(Value::Time(-1), ColumnType::Time).starts_with("column 4: -1 (allowed"));
        let long = "x".repeat(70_000);
        assert!(refused(Value::Text(&long), ColumnType::Text(8192)).contains("70000 bytes"));
    }
}
