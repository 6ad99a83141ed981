//! Keys as errors show them: the values of their columns, by name.

use std::fmt::Write;

use crate::catalogue::column_type::ColumnType;
use crate::encoding::decimal::DecimalRef;
use crate::encoding::key::{PRESENT, float_of_ordered_32, float_of_ordered_64};
use crate::encoding::key_column::KeyColumn;
use crate::encoding::row_names::RowNames;
use crate::encoding::shown_value::{shown, shown_bytes};
use crate::encoding::value::Value;

/// The columns of a key with their values, as many as it has. Bytes that are no key of the first of
/// these columns are shown as such.
pub(crate) fn shown_key(names: &RowNames, columns: &[KeyColumn], key: &[u8]) -> String {
    let (mut text, mut rest) = (String::new(), key);
    for column in columns {
        let length = column.part_length(rest);
        let Some((part, behind)) = length.and_then(|length| rest.split_at_checked(length)) else {
            break;
        };
        let separator = if text.is_empty() { "" } else { ", " };
        let name = names.column(column.column).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(text, "{separator}{name} = {}", column.shown(part));
        rest = behind;
    }
    if text.is_empty() { shown_bytes(key) } else { text }
}

impl KeyColumn {
    /// The value that a part of a key stands for, with its type. Of an interval a key has no more
    /// than the length.
    pub(crate) fn shown(self, part: &[u8]) -> String {
        let value = match (self.nullable, part) {
            (false, value) => value,
            (true, [PRESENT, value @ ..]) => value,
            (true, _) => return shown(Value::Null),
        };
        let flip = if self.order.descending { 0xff } else { 0 };
        let ascending: Vec<u8> = value.iter().map(|byte| byte ^ flip).collect();
        shown_ascending(self.ty, &ascending).unwrap_or_else(|| shown_bytes(part))
    }
}

/// A value of this type, whose bytes are those of an ascending column.
fn shown_ascending(ty: ColumnType, bytes: &[u8]) -> Option<String> {
    let text: Vec<u8>;
    let value = match ty {
        ColumnType::Bool => Value::Bool(bytes == [1]),
        ColumnType::I16 => {
            let bits = u16::from_be_bytes(bytes.try_into().ok()?);
            Value::I16((bits ^ (1 << 15)).cast_signed())
        }
        ColumnType::I32 => Value::I32(signed_32(bytes)?),
        ColumnType::Date => Value::Date(signed_32(bytes)?),
        ColumnType::I64 => Value::I64(signed_64(bytes)?),
        ColumnType::Time => Value::Time(signed_64(bytes)?),
        ColumnType::Timestamp => Value::Timestamp(signed_64(bytes)?),
        ColumnType::F32 => {
            Value::F32(float_of_ordered_32(u32::from_be_bytes(bytes.try_into().ok()?)))
        }
        ColumnType::F64 => {
            Value::F64(float_of_ordered_64(u64::from_be_bytes(bytes.try_into().ok()?)))
        }
        ColumnType::Interval => {
            let bits = u128::from_be_bytes(bytes.try_into().ok()?);
            return Some(format!("{} {} us", ty.name(), (bits ^ (1 << 127)).cast_signed()));
        }
        ColumnType::Uuid => Value::Uuid(bytes.try_into().ok()?),
        ColumnType::Decimal(_) => Value::Decimal(DecimalRef::from_ordered(bytes)?),
        ColumnType::Text(_) => {
            text = unescaped(bytes);
            std::str::from_utf8(&text).map_or(Value::Bytes(&text), Value::Text)
        }
        ColumnType::Bytes(_) => {
            text = unescaped(bytes);
            Value::Bytes(&text)
        }
        // It has no place in a key.
        ColumnType::Json(_) => return None,
    };
    Some(shown(value))
}

fn signed_32(bytes: &[u8]) -> Option<i32> {
    Some((u32::from_be_bytes(bytes.try_into().ok()?) ^ (1 << 31)).cast_signed())
}

fn signed_64(bytes: &[u8]) -> Option<i64> {
    Some((u64::from_be_bytes(bytes.try_into().ok()?) ^ (1 << 63)).cast_signed())
}

/// A string without its terminator, and without the escapes of its zeros.
fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut escaped = bytes.iter().take(bytes.len().saturating_sub(2));
    let mut text = Vec::with_capacity(bytes.len());
    while let Some(byte) = escaped.next() {
        text.push(*byte);
        if *byte == 0 {
            escaped.next();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::schema::{KeyOrder, TableSchema};
    use crate::encoding::decimal::Decimal;
    use crate::encoding::key::KeyBuf;

    #[test]
    fn each_value_is_shown_as_it_was_given_in_every_order() {
        let decimal: Decimal = "-7.25".parse().unwrap();
        let infinite: Decimal = "-Infinity".parse().unwrap();
        let cases = [
            (ColumnType::Bool, Value::Bool(true)),
            (ColumnType::Bool, Value::Bool(false)),
            (ColumnType::I16, Value::I16(-2)),
            (ColumnType::I32, Value::I32(i32::MIN)),
            (ColumnType::I64, Value::I64(7)),
            (ColumnType::F32, Value::F32(-0.5)),
            (ColumnType::F64, Value::F64(2.5)),
            (ColumnType::Date, Value::Date(-1)),
            (ColumnType::Time, Value::Time(5)),
            (ColumnType::Timestamp, Value::Timestamp(i64::MAX)),
            (ColumnType::Uuid, Value::Uuid([3; 16])),
            (ColumnType::Decimal(9), Value::Decimal(decimal.as_ref())),
            (ColumnType::Decimal(9), Value::Decimal(infinite.as_ref())),
            (ColumnType::Text(9), Value::Text("a\0\0b")),
            (ColumnType::Text(9), Value::Text("")),
            (ColumnType::Bytes(9), Value::Bytes(&[0, 255, 0])),
        ];
        for (ty, value) in cases {
            for (nullable, descending) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let order = KeyOrder { descending, nulls_last: descending };
                let column = KeyColumn { column: 0, ty, nullable, order };
                let mut key = KeyBuf::new();
                column.append(value, &mut key).unwrap();
                assert_eq!(column.shown(&key), shown(value), "{order:?}");
                if nullable {
                    key.clear();
                    column.append(Value::Null, &mut key).unwrap();
                    assert_eq!(column.shown(&key), "NULL");
                }
            }
        }
    }

    #[test]
    fn the_parts_of_a_key_are_shown_by_name() {
        let table = TableSchema::new("t")
            .column("id", ColumnType::I16)
            .nullable_column("note", ColumnType::Text(9))
            .column("for", ColumnType::Interval);
        let names = RowNames::of(&table);
        let part = |column: usize| KeyColumn {
            column,
            ty: table.columns[column].ty,
            nullable: table.columns[column].nullable,
            order: KeyOrder::ASCENDING,
        };
        let columns = [part(1), part(0), part(2)];
        let interval = crate::encoding::temporal::Interval { days: -1, ..Default::default() };
        let key = crate::key![Some("x"), 7i16, interval];
        let whole = "note = Text \"x\", id = I16 7, for = Interval -86400000000 us";
        assert_eq!(shown_key(&names, &columns, &key), whole);
        assert_eq!(shown_key(&names, &columns, &crate::key![None::<&str>]), "note = NULL");
        assert_eq!(shown_key(&names, &columns, &[7, 7]), "0x0707");
    }
}
