//! Values of keys, in the form in which rows store them.
//!
//! Only those of types with [exact keys](ColumnType::has_exact_keys) can be read back. The byte map
//! is in [`key`](crate::key).

use crate::catalogue::column_type::ColumnType;
use crate::encoding::key_column::KeyColumn;

/// What a key says of one of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyValue {
    Null,
    /// It has a value, which the key does not tell as it is.
    Inexact,
    /// The value was read.
    Read,
}

impl KeyColumn {
    /// Reads the first part of `key`, which is of this column: appends the value to `stored`, as
    /// rows store it. Returns what there is, and the rest of the key; `None` if it does not begin
    /// with a part of this column.
    pub(crate) fn read<'k>(
        self,
        key: &'k [u8],
        stored: &mut Vec<u8>,
    ) -> Option<(KeyValue, &'k [u8])> {
        let (part, rest) = key.split_at_checked(self.part_length(key)?)?;
        let value = match (self.nullable, part) {
            // The length of any value is greater: no part is empty behind its tag.
            (true, [_]) => return Some((KeyValue::Null, rest)),
            (true, [_, value @ ..]) => value,
            (_, value) => value,
        };
        if !self.ty.has_exact_keys() {
            return Some((KeyValue::Inexact, rest));
        }
        let flip = if self.order.descending { 0xff } else { 0 };
        match self.ty {
            ColumnType::Text(_) | ColumnType::Bytes(_) => push_text(value, flip, stored)?,
            ColumnType::Bool | ColumnType::Uuid => {
                stored.extend(value.iter().map(|byte| byte ^ flip));
            }
            // Big-endian, with the sign bit flipped.
            _ => {
                stored.extend(value.iter().rev().map(|byte| byte ^ flip));
                *stored.last_mut()? ^= 0x80;
            }
        }
        Some((KeyValue::Read, rest))
    }
}

/// Appends an escaped string without its escapes and its terminator.
fn push_text(value: &[u8], flip: u8, stored: &mut Vec<u8>) -> Option<()> {
    let (escaped, _) = value.split_last_chunk::<2>()?;
    let mut bytes = escaped.iter().map(|byte| byte ^ flip);
    while let Some(byte) = bytes.next() {
        stored.push(byte);
        if byte == 0 {
            // What says that it does not end here.
            bytes.next()?;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::schema::KeyOrder;
    use crate::encoding::key::KeyBuf;
    use crate::encoding::value::Value;

    /// Every order, for columns that may be NULL and that may not.
    fn columns(ty: ColumnType) -> impl Iterator<Item = KeyColumn> {
        (0..8).map(move |bits| KeyColumn {
            column: 0,
            ty,
            nullable: bits & 1 != 0,
            order: KeyOrder { descending: bits & 2 != 0, nulls_last: bits & 4 != 0 },
        })
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        let values = [
            (ColumnType::Bool, Value::Bool(true)),
            (ColumnType::Bool, Value::Bool(false)),
            (ColumnType::I16, Value::I16(i16::MIN)),
            (ColumnType::I16, Value::I16(-2)),
            (ColumnType::I32, Value::I32(0x0102_0304)),
            (ColumnType::I32, Value::I32(i32::MAX)),
            (ColumnType::I64, Value::I64(-0x0102_0304_0506_0708)),
            (ColumnType::I64, Value::I64(i64::MIN)),
            (ColumnType::Date, Value::Date(-1)),
            (ColumnType::Time, Value::Time(86_400_000_000)),
            (ColumnType::Timestamp, Value::Timestamp(i64::MAX)),
            (
                ColumnType::Uuid,
                Value::Uuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255]),
            ),
            (ColumnType::Text(9), Value::Text("")),
            (ColumnType::Text(9), Value::Text("a\0\0b\u{ff}")),
            (ColumnType::Bytes(9), Value::Bytes(&[0, 255, 0, 0, 1])),
        ];
        for (ty, value) in values {
            for column in columns(ty) {
                let mut key = KeyBuf::new();
                column.append(value, &mut key).unwrap();
                key.push_encoded(&[7, 0]);
                let mut stored = Vec::new();
                let read = column.read(&key, &mut stored);
                assert_eq!(read, Some((KeyValue::Read, &[7, 0][..])), "{value:?} {column:?}");
                assert_eq!(Value::from_stored(ty, &stored), Some(value), "{column:?}");
            }
        }
    }

    #[test]
    fn null_is_told_from_every_value() {
        for ty in [ColumnType::I16, ColumnType::Text(3), ColumnType::F64] {
            for column in columns(ty).filter(|column| column.nullable) {
                let (mut key, mut stored) = (KeyBuf::new(), Vec::new());
                column.append(Value::Null, &mut key).unwrap();
                key.push_encoded(&[7]);
                assert_eq!(column.read(&key, &mut stored), Some((KeyValue::Null, &[7][..])));
                assert!(stored.is_empty());
            }
        }
    }

    #[test]
    fn what_a_key_does_not_tell_is_passed_over() {
        let half: crate::Decimal = "0.50".parse().unwrap();
        let values = [
            (ColumnType::F32, Value::F32(-0.0)),
            (ColumnType::F64, Value::F64(1.5)),
            (ColumnType::Interval, Value::Interval(crate::Interval::default())),
            (ColumnType::Decimal(9), Value::Decimal(half.as_ref())),
        ];
        for (ty, value) in values {
            for column in columns(ty) {
                let (mut key, mut stored) = (KeyBuf::new(), Vec::new());
                column.append(value, &mut key).unwrap();
                key.push_encoded(&[7]);
                assert_eq!(column.read(&key, &mut stored), Some((KeyValue::Inexact, &[7][..])));
                assert!(stored.is_empty());
            }
        }
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for ty in [ColumnType::I32, ColumnType::Text(3), ColumnType::Decimal(3)] {
            for column in columns(ty) {
                assert_eq!(column.read(&[], &mut Vec::new()), None);
                assert_eq!(column.read(&[9], &mut Vec::new()), None);
            }
        }
    }
}
