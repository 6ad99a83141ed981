//! Values as the columns of tables have them.
//!
//! Arrays are stored in the binary format of the protocol, oids as 64-bit numbers.

use std::sync::Arc;

use selkie_txn::{ColumnType, Decimal, MAX_COLUMN_BYTES, MAX_DECIMAL_DIGITS, Value};

use super::binary_format::{from_binary, to_binary};
use super::datum::Datum;
use super::numeric;
use super::sql_type::{Scalar, SqlType};
use super::text_format::MAX_NAME_BYTES;
use crate::error::{SqlError, SqlResult};

/// Most bytes of a character.
const CHARACTER_BYTES: usize = 4;

/// The type of a column that stores such values.
///
/// # Errors
/// Pseudo-types cannot be stored.
pub fn column_type(ty: SqlType) -> SqlResult<ColumnType> {
    if ty.is_array && !matches!(ty.scalar, Scalar::Record | Scalar::Unknown | Scalar::Void) {
        return Ok(ColumnType::Bytes(MAX_COLUMN_BYTES));
    }
    let text = |bytes: Option<usize>| {
        let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(MAX_COLUMN_BYTES);
        ColumnType::Text(bytes.clamp(1, MAX_COLUMN_BYTES))
    };
    Ok(match ty.scalar {
        Scalar::Bool => ColumnType::Bool,
        Scalar::Int2 => ColumnType::I16,
        Scalar::Int4 => ColumnType::I32,
        Scalar::Int8
        | Scalar::Oid
        | Scalar::Regclass
        | Scalar::Regtype
        | Scalar::Regproc
        | Scalar::Regprocedure
        | Scalar::Regoper
        | Scalar::Regoperator
        | Scalar::Regcollation
        | Scalar::Regnamespace
        | Scalar::Regrole => ColumnType::I64,
        Scalar::Float4 => ColumnType::F32,
        Scalar::Float8 => ColumnType::F64,
        Scalar::Numeric => {
            let digits = ty.precision_and_scale().map(|(precision, _)| precision);
            let digits = digits.and_then(|digits| u16::try_from(digits).ok());
            ColumnType::Decimal(digits.unwrap_or(MAX_DECIMAL_DIGITS))
        }
        Scalar::Text => text(None),
        Scalar::Varchar | Scalar::Char => {
            text(ty.max_characters().map(|most| most.saturating_mul(CHARACTER_BYTES)))
        }
        Scalar::Name => text(Some(MAX_NAME_BYTES)),
        Scalar::SingleChar => text(Some(CHARACTER_BYTES)),
        Scalar::Bytea => ColumnType::Bytes(MAX_COLUMN_BYTES),
        Scalar::Date => ColumnType::Date,
        Scalar::Time => ColumnType::Time,
        Scalar::Timestamp | Scalar::TimestampTz => ColumnType::Timestamp,
        Scalar::Interval => ColumnType::Interval,
        Scalar::Uuid => ColumnType::Uuid,
        Scalar::Json | Scalar::Jsonb => ColumnType::Json(MAX_COLUMN_BYTES),
        Scalar::Record | Scalar::Void | Scalar::Unknown => {
            return Err(SqlError::new(
                crate::error::SqlState::INVALID_TABLE_DEFINITION,
                format!("column has pseudo-type {}", ty.name()),
            ));
        }
    })
}

/// The value that a row stores.
///
/// # Errors
/// What is stored is no value of this type.
pub fn to_datum(value: Value<'_>, ty: SqlType) -> SqlResult<Datum> {
    Ok(match value {
        Value::Null => Datum::Null,
        Value::Bool(value) => Datum::Bool(value),
        Value::I16(value) => Datum::I16(value),
        Value::I32(value) => Datum::I32(value),
        Value::I64(value) => Datum::I64(value),
        Value::F32(value) => Datum::F32(value),
        Value::F64(value) => Datum::F64(value),
        Value::Date(value) => Datum::Date(value),
        Value::Time(value) => Datum::Time(value),
        Value::Timestamp(value) => Datum::Timestamp(value),
        Value::Interval(value) => Datum::Interval(value),
        Value::Uuid(value) => Datum::Uuid(value),
        Value::Decimal(value) => match numeric::parse(&value.to_string()) {
            Some(value) => Datum::Numeric(value?.map(Arc::new)),
            None => return Err(SqlError::internal("a stored decimal is no number")),
        },
        Value::Text(value) => Datum::text(value),
        Value::Bytes(value) if ty.is_array => from_binary(value, ty.plain())?,
        Value::Bytes(value) => Datum::Bytes(value.into()),
        Value::Json(value) => match std::str::from_utf8(value) {
            Ok(text) => Datum::Json(text.into()),
            Err(_) => return Err(SqlError::internal("a stored JSON document is no text")),
        },
        _ => return Err(SqlError::internal("a stored value of a type that is not known")),
    })
}

/// Lends a value to `f` as a row stores it.
///
/// # Errors
/// A `numeric` that is NaN, a row, an array that is too long.
pub fn with_value<R>(value: &Datum, ty: SqlType, f: impl FnOnce(Value<'_>) -> R) -> SqlResult<R> {
    Ok(match value {
        Datum::Null => f(Value::Null),
        Datum::Bool(value) => f(Value::Bool(*value)),
        Datum::I16(value) => f(Value::I16(*value)),
        Datum::I32(value) => f(Value::I32(*value)),
        Datum::I64(value) => f(Value::I64(*value)),
        Datum::F32(value) => f(Value::F32(*value)),
        Datum::F64(value) => f(Value::F64(*value)),
        Datum::Numeric(None) => return Err(SqlError::unsupported("a NaN in a numeric column")),
        Datum::Numeric(Some(value)) => {
            let mut text = String::new();
            numeric::print(value, &mut text);
            let decimal: Decimal = text.parse().map_err(|_| numeric::overflow())?;
            f(Value::Decimal(decimal.as_ref()))
        }
        Datum::Text(value) => f(Value::Text(value)),
        Datum::Bytes(value) => f(Value::Bytes(value)),
        Datum::Json(value) => f(Value::Json(value.as_bytes())),
        Datum::Date(value) => f(Value::Date(*value)),
        Datum::Time(value) => f(Value::Time(*value)),
        Datum::Timestamp(value) => f(Value::Timestamp(*value)),
        Datum::Interval(value) => f(Value::Interval(*value)),
        Datum::Uuid(value) => f(Value::Uuid(*value)),
        Datum::Array(_) => {
            let mut bytes = Vec::new();
            to_binary(value, ty, &mut bytes)?;
            f(Value::Bytes(&bytes))
        }
        Datum::Record(_) => return Err(SqlError::unsupported("a row in a column")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::settings::FormatSettings;
    use crate::types::text_format::{from_text, to_string};

    #[test]
    fn values_come_back_as_they_were_stored() {
        let settings = FormatSettings::default();
        for (ty, text) in [
            (SqlType::NUMERIC, "-1.50"),
            (SqlType::NUMERIC, "100"),
            (SqlType::array(Scalar::Text), "{a,NULL,\"b c\"}"),
            (SqlType::array(Scalar::Oid), "{1,4294967295}"),
            (SqlType::JSONB, "{\"a\": 1}"),
            (SqlType::OID, "4294967295"),
            (SqlType::TIMESTAMPTZ, "2000-01-01 00:00:00+00"),
        ] {
            let value = from_text(text, ty, &settings).unwrap();
            let back = with_value(&value, ty, |value| to_datum(value, ty)).unwrap().unwrap();
            assert_eq!(to_string(&back, ty, &settings), text);
        }
        let nan = from_text("NaN", SqlType::NUMERIC, &settings).unwrap();
        with_value(&nan, SqlType::NUMERIC, |_| ()).unwrap_err();
        assert_eq!(column_type(SqlType::VARCHAR.with_modifier(14)).unwrap(), ColumnType::Text(40));
        column_type(SqlType::RECORD).unwrap_err();
    }
}
