//! What is kept of a table, and what it says of ranges of values.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::catalogue::column_type::ColumnType;
use crate::catalogue::schema::KeyOrder;
use crate::encoding::key::KeyBuf;
use crate::encoding::key_column::KeyColumn;
use crate::encoding::row_error::RowError;
use crate::encoding::value::Value;

/// What the rows of a table are like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableStatistics {
    /// Rows, as far as the sample tells: exactly, if all leaves were in it.
    pub rows: u64,
    /// Leaves of the table's own tree.
    pub leaves: u64,
    /// Rows that were looked at.
    pub sampled_rows: u64,
    /// Bytes of a row on average.
    pub row_bytes: f64,
    /// Of each column, in the order of the table when it was analyzed.
    pub columns: Vec<ColumnStatistics>,
}

impl TableStatistics {
    /// Those of the column of that name. `None` if it was added or renamed since.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&ColumnStatistics> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// What the values of a column are like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnStatistics {
    /// The name of the column when the table was analyzed.
    pub name: String,
    /// The fraction of rows with NULL, 0 to 1.
    pub nulls: f64,
    /// Different values in the whole table, without NULL, as far as the sample tells.
    pub distinct: f64,
    /// Bytes of a value on average, without NULL.
    pub value_bytes: f64,
    /// Values that many rows have, the most common first.
    pub common: Vec<CommonValue>,
    /// Bounds between which there are equally many of the other values, each as long as is needed
    /// to tell it from others: the least first, the greatest last. Empty if there are none.
    pub bounds: Vec<ValueBytes>,
}

/// A value that many rows have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CommonValue {
    /// The value, in the bytes of an ascending key.
    pub value: ValueBytes,
    /// The fraction of all rows that have it.
    pub fraction: f64,
}

/// The bytes of a value in an ascending key, written as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueBytes(pub(super) Vec<u8>);

impl Serialize for ValueBytes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        to.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for ValueBytes {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(from)?;
        let byte = |pair: &[u8]| {
            let are_digits = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
            let digits = std::str::from_utf8(pair).ok().filter(|_| are_digits)?;
            u8::from_str_radix(digits, 16).ok()
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("no hexadecimal digits"))
    }
}

/// The bytes by which values of a column are compared; a JSON document has its own.
pub(super) fn value_bytes(ty: ColumnType, value: Value<'_>) -> Result<Vec<u8>, RowError> {
    let mut key = KeyBuf::new();
    match value {
        Value::Json(document) => key.push_encoded(document),
        _ => {
            let order = KeyOrder::default();
            KeyColumn { column: 0, ty, nullable: false, order }.append(value, &mut key)?;
        }
    }
    Ok(key.to_vec())
}

impl ColumnStatistics {
    /// The fraction of rows, 0 to 1, whose value is this one. `ty` is the type of the column.
    ///
    /// # Errors
    /// [`RowError`] if the value is of another type.
    pub fn fraction_equal(&self, ty: ColumnType, value: Value<'_>) -> Result<f64, RowError> {
        if value == Value::Null {
            return Ok(self.nulls);
        }
        let bytes = value_bytes(ty, value)?;
        if let Some(found) = self.common.iter().find(|common| common.value.0 == bytes) {
            return Ok(found.fraction);
        }
        let others = self.distinct - self.common.len() as f64;
        Ok(if others >= 1.0 { self.others() / others } else { 0.0 })
    }

    /// The fraction of rows, 0 to 1, whose value lies between two bounds. `ty` is the type of the
    /// column. NULL lies between none.
    ///
    /// # Errors
    /// [`RowError`] if a bound is of another type, or NULL.
    pub fn fraction_between(
        &self,
        ty: ColumnType,
        low: Bound<Value<'_>>,
        high: Bound<Value<'_>>,
    ) -> Result<f64, RowError> {
        let bytes = |bound: Bound<Value<'_>>| {
            Ok(match bound {
                Bound::Included(value) => Bound::Included(value_bytes(ty, value)?),
                Bound::Excluded(value) => Bound::Excluded(value_bytes(ty, value)?),
                Bound::Unbounded => Bound::Unbounded,
            })
        };
        let (low, high) = (bytes(low)?, bytes(high)?);
        let is_within = |value: &[u8]| {
            let is_above = match &low {
                Bound::Included(low) => value >= &low[..],
                Bound::Excluded(low) => value > &low[..],
                Bound::Unbounded => true,
            };
            is_above
                && match &high {
                    Bound::Included(high) => value <= &high[..],
                    Bound::Excluded(high) => value < &high[..],
                    Bound::Unbounded => true,
                }
        };
        let common = self.common.iter().filter(|common| is_within(&common.value.0));
        let common: f64 = common.map(|common| common.fraction).sum();
        let below = |bound: &Bound<Vec<u8>>, unbounded: f64| match bound {
            Bound::Included(value) | Bound::Excluded(value) => self.fraction_below(value),
            Bound::Unbounded => unbounded,
        };
        let others = (below(&high, 1.0) - below(&low, 0.0)).max(0.0);
        Ok((common + others * self.others()).clamp(0.0, 1.0))
    }

    /// The fraction of rows with a value that is not common.
    fn others(&self) -> f64 {
        let common: f64 = self.common.iter().map(|common| common.fraction).sum();
        (1.0 - self.nulls - common).max(0.0)
    }

    /// The fraction of the values that are not common which are less than this one.
    fn fraction_below(&self, value: &[u8]) -> f64 {
        let above = self.bounds.partition_point(|bound| bound.0.as_slice() <= value);
        let parts = self.bounds.len().saturating_sub(1);
        let (Some(before), Some(after)) =
            (above.checked_sub(1).and_then(|at| self.bounds.get(at)), self.bounds.get(above))
        else {
            return if above == 0 { 0.0 } else { 1.0 };
        };
        let within = position_between(value, &before.0, &after.0);
        ((above - 1) as f64 + within) / parts as f64
    }
}

/// How far a value is on the way between two others, 0 to 1, by the bytes behind those that both
/// have in common.
fn position_between(value: &[u8], low: &[u8], high: &[u8]) -> f64 {
    let shared = low.iter().zip(high).take_while(|(low, high)| low == high).count();
    let number = |bytes: &[u8]| {
        let digits = bytes.iter().skip(shared).copied().chain(std::iter::repeat(0));
        digits.take(8).fold(0.0, |number, digit| number * 256.0 + f64::from(digit))
    };
    let (low, high) = (number(low), number(high));
    if high > low { ((number(value) - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the numbers have few digits")]
mod tests {
    use super::*;

    fn numbers(
        common: &[(i32, f64)],
        bounds: &[i32],
        nulls: f64,
        distinct: f64,
    ) -> ColumnStatistics {
        let bytes =
            |value: i32| ValueBytes(value_bytes(ColumnType::I32, Value::I32(value)).unwrap());
        let common = common.iter();
        let common = common.map(|&(value, fraction)| CommonValue { value: bytes(value), fraction });
        ColumnStatistics {
            name: "n".to_owned(),
            nulls,
            distinct,
            value_bytes: 4.0,
            common: common.collect(),
            bounds: bounds.iter().map(|bound| bytes(*bound)).collect(),
        }
    }

    #[test]
    fn fractions_of_values_and_ranges() {
        let column = numbers(&[(7, 0.25)], &[0, 100, 200], 0.25, 101.0);
        let equal = |value| column.fraction_equal(ColumnType::I32, value).unwrap();
        assert_eq!(equal(Value::Null), 0.25);
        assert_eq!(equal(Value::I32(7)), 0.25);
        assert_eq!(equal(Value::I32(8)), 0.5 / 100.0);
        let between = |low, high| column.fraction_between(ColumnType::I32, low, high).unwrap();
        let number = Value::I32;
        assert_eq!(between(Bound::Unbounded, Bound::Unbounded), 0.75);
        assert_eq!(between(Bound::Included(number(100)), Bound::Unbounded), 0.25);
        assert_eq!(between(Bound::Included(number(0)), Bound::Excluded(number(50))), 0.375);
        assert_eq!(between(Bound::Excluded(number(7)), Bound::Included(number(7))), 0.0);
        assert_eq!(between(Bound::Included(number(7)), Bound::Included(number(7))), 0.25);
        assert_eq!(between(Bound::Included(number(-9)), Bound::Excluded(number(0))), 0.0);
        assert_eq!(between(Bound::Included(number(300)), Bound::Excluded(number(900))), 0.0);
        assert_eq!(between(Bound::Included(number(60)), Bound::Included(number(20))), 0.0);
        assert!(column.fraction_equal(ColumnType::I32, Value::Text("x")).is_err());
        let null = Bound::Included(Value::Null);
        assert!(column.fraction_between(ColumnType::I32, null, Bound::Unbounded).is_err());
    }

    #[test]
    fn a_column_without_values_has_none_between() {
        let column = numbers(&[], &[], 1.0, 0.0);
        let equal = column.fraction_equal(ColumnType::I32, Value::I32(1)).unwrap();
        let low = Bound::Included(Value::I32(0));
        let between = column.fraction_between(ColumnType::I32, low, Bound::Unbounded).unwrap();
        assert_eq!((equal, between), (0.0, 0.0));
    }

    #[test]
    fn values_are_stored_as_digits() {
        let column = numbers(&[(-5, 0.5)], &[1, 2], 0.0, 3.0);
        let stored = serde_json::to_string(&column).unwrap();
        assert!(stored.contains("\"7ffffffb\""), "{stored}");
        assert_eq!(serde_json::from_str::<ColumnStatistics>(&stored).unwrap(), column);
        for damaged in ["7ffffff", "7fffffzz", "7f ffff", "+fffffff", "ä0"] {
            let damaged = stored.replace("7ffffffb", damaged);
            assert!(serde_json::from_str::<ColumnStatistics>(&damaged).is_err(), "{damaged}");
        }
    }
}
