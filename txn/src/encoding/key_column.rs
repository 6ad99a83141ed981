//! One column of the keys of a table or an index: its values as bytes, and where they end.
//!
//! The byte map is in [`key`](crate::key). Bytes that come from callers or pages are not trusted:
//! what is not the form of a value is refused.

use crate::catalogue::column_type::ColumnType;
use crate::catalogue::schema::KeyOrder;
use crate::encoding::decimal::ordered_length;
use crate::encoding::key::{
    KeyBuf, NULL_FIRST, NULL_LAST, PRESENT, float_of_ordered_32, float_of_ordered_64, ordered_f32,
    ordered_f64,
};
use crate::encoding::row_error::RowError;
use crate::encoding::temporal::{Interval, MAX_TIME_US};
use crate::encoding::value::Value;

/// One column of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    /// Its position among the columns of the table.
    pub(crate) column: usize,
    pub(crate) ty: ColumnType,
    pub(crate) nullable: bool,
    pub(crate) order: KeyOrder,
}

impl KeyColumn {
    /// Appends a value of this column.
    pub(crate) fn append(self, value: Value<'_>, key: &mut KeyBuf) -> Result<(), RowError> {
        let column = self.column;
        value.check(column, self.ty)?;
        match (value, self.nullable) {
            (Value::Null, false) => return Err(RowError::NotNullable { column }),
            (Value::Null, true) => {
                key.push_tag(self.null_tag());
                return Ok(());
            }
            (_, true) => key.push_tag(PRESENT),
            (_, false) => {}
        }
        let start = key.len();
        match value {
            Value::Null | Value::Json(_) => return Err(value.wrong_type(column, self.ty)),
            Value::Bool(value) => key.push_bool(value),
            Value::I16(value) => key.push_i16(value),
            Value::I32(value) | Value::Date(value) => key.push_i32(value),
            Value::I64(value) | Value::Time(value) | Value::Timestamp(value) => key.push_i64(value),
            Value::F32(value) => key.push_f32(value),
            Value::F64(value) => key.push_f64(value),
            Value::Interval(value) => key.push_interval(value),
            Value::Uuid(value) => key.push_encoded(&value),
            Value::Decimal(value) => key.push_decimal(value),
            Value::Text(value) => key.push_bytes(value.as_bytes()),
            Value::Bytes(value) => key.push_bytes(value),
        }
        if self.order.descending {
            key.complement_from(start);
        }
        Ok(())
    }

    fn null_tag(self) -> u8 {
        if self.order.nulls_last { NULL_LAST } else { NULL_FIRST }
    }

    /// Bytes that the first part of `key` takes if it is of this column; `None` if it is not.
    pub(crate) fn part_length(self, key: &[u8]) -> Option<usize> {
        let (tag, value) = if self.nullable {
            match key.split_first()? {
                (&null, _) if null == self.null_tag() => return Some(1),
                (&PRESENT, value) => (1, value),
                _ => return None,
            }
        } else {
            (0, key)
        };
        let flip = if self.order.descending { 0xff } else { 0 };
        let length = match self.ty {
            ColumnType::Decimal(_) => ordered_length(value, flip)?,
            ColumnType::Text(_) | ColumnType::Bytes(_) => text_length(value, flip)?,
            fixed => {
                let bytes = fixed.fixed_bytes()?;
                is_fixed_value(fixed, value.get(..bytes)?, flip).then_some(bytes)?
            }
        };
        Some(tag + length)
    }
}

/// Length of an escaped string with its terminator.
fn text_length(value: &[u8], flip: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        at += value.get(at..)?.iter().position(|&byte| byte == flip)?;
        match value.get(at + 1)? ^ flip {
            0 => return Some(at + 2),
            0xff => at += 2,
            _ => return None,
        }
    }
}

/// Whether bytes of the right number are the form of a value.
fn is_fixed_value(ty: ColumnType, bytes: &[u8], flip: u8) -> bool {
    let number = || bytes.iter().fold(0, |number, byte| number << 8 | u128::from(byte ^ flip));
    let is_signed = |within: fn(i128) -> bool, bits: u32| {
        // The bit that was flipped has the weight of the offset.
        within(number().cast_signed().wrapping_sub((1_u128 << (bits - 1)).cast_signed()))
    };
    match ty {
        ColumnType::Bool => number() <= 1,
        ColumnType::Time => is_signed(|us| (0..=i128::from(MAX_TIME_US)).contains(&us), 64),
        ColumnType::Interval => is_signed(Interval::has_length, 128),
        ColumnType::F32 => {
            u32::try_from(number()).is_ok_and(|bits| ordered_f32(float_of_ordered_32(bits)) == bits)
        }
        ColumnType::F64 => {
            u64::try_from(number()).is_ok_and(|bits| ordered_f64(float_of_ordered_64(bits)) == bits)
        }
        _ => true,
    }
}

/// Splits `key` behind the parts for `columns`; `None` if it does not begin with such parts.
pub(crate) fn split_parts<'a>(
    columns: &[KeyColumn],
    key: &'a [u8],
) -> Option<(&'a [u8], &'a [u8])> {
    let mut at = 0;
    for &column in columns {
        at += column.part_length(key.get(at..)?)?;
    }
    key.split_at_checked(at)
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;
    use crate::encoding::decimal::{Decimal, tests as decimals};
    use crate::encoding::key_range::KeyRange;
    use crate::key;
    use proptest::prelude::*;

    /// Every type that may stand in a key.
    const TYPES: [ColumnType; 14] = [
        ColumnType::Bool,
        ColumnType::I16,
        ColumnType::I32,
        ColumnType::I64,
        ColumnType::F32,
        ColumnType::F64,
        ColumnType::Date,
        ColumnType::Time,
        ColumnType::Timestamp,
        ColumnType::Interval,
        ColumnType::Uuid,
        ColumnType::Decimal(200),
        ColumnType::Text(8),
        ColumnType::Bytes(8),
    ];

    /// A value that owns what a [`Value`] borrows.
    #[derive(Clone, Debug)]
    enum Model {
        Plain(Value<'static>),
        Decimal(String),
        Text(String),
        Bytes(Vec<u8>),
    }

    impl Model {
        fn is_null(&self) -> bool {
            matches!(self, Self::Plain(Value::Null))
        }

        fn append(&self, column: KeyColumn, key: &mut KeyBuf) {
            let result = match self {
                Self::Plain(value) => column.append(*value, key),
                Self::Text(text) => column.append(Value::Text(text), key),
                Self::Bytes(bytes) => column.append(Value::Bytes(bytes), key),
                Self::Decimal(text) => {
                    let decimal: Decimal = text.parse().unwrap();
                    column.append(Value::Decimal(decimal.as_ref()), key)
                }
            };
            result.unwrap();
        }
    }

    fn compare_floats(a: f64, b: f64) -> Ordering {
        a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    }

    /// Whole days of 24 hours, and what is left.
    fn days(interval: Interval) -> (i64, i64) {
        let days = 30 * i64::from(interval.months) + i64::from(interval.days);
        let us = interval.microseconds;
        (days + us.div_euclid(MAX_TIME_US), us.rem_euclid(MAX_TIME_US))
    }

    /// The order of two values that are not NULL.
    fn compare_values(a: &Model, b: &Model) -> Ordering {
        match (a, b) {
            (Model::Decimal(a), Model::Decimal(b)) => decimals::compare(a, b),
            (Model::Text(a), Model::Text(b)) => a.cmp(b),
            (Model::Bytes(a), Model::Bytes(b)) => a.cmp(b),
            (Model::Plain(a), Model::Plain(b)) => match (a, b) {
                (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
                (Value::I16(a), Value::I16(b)) => a.cmp(b),
                (Value::I32(a), Value::I32(b)) | (Value::Date(a), Value::Date(b)) => a.cmp(b),
                (Value::I64(a), Value::I64(b))
                | (Value::Time(a), Value::Time(b))
                | (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
                (Value::F32(a), Value::F32(b)) => compare_floats((*a).into(), (*b).into()),
                (Value::F64(a), Value::F64(b)) => compare_floats(*a, *b),
                (Value::Interval(a), Value::Interval(b)) => days(*a).cmp(&days(*b)),
                (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
                _ => panic!("{a:?} and {b:?} are of different types"),
            },
            _ => panic!("{a:?} and {b:?} are of different types"),
        }
    }

    fn compare_parts(order: KeyOrder, a: &Model, b: &Model) -> Ordering {
        let null_first = match (a.is_null(), b.is_null()) {
            (false, false) => {
                let ascending = compare_values(a, b);
                return if order.descending { ascending.reverse() } else { ascending };
            }
            (a, b) => b.cmp(&a),
        };
        if order.nulls_last { null_first.reverse() } else { null_first }
    }

    fn compare(columns: &[KeyColumn], a: &[Model], b: &[Model]) -> Ordering {
        let parts = columns.iter().zip(a).zip(b);
        parts.fold(Ordering::Equal, |order, ((column, a), b)| {
            order.then_with(|| compare_parts(column.order, a, b))
        })
    }

    fn encode(columns: &[KeyColumn], values: &[Model]) -> KeyBuf {
        let mut key = KeyBuf::new();
        columns.iter().zip(values).for_each(|(&column, value)| value.append(column, &mut key));
        key
    }

    /// Values of a type, many of them equal, near each other or at an edge.
    fn values(ty: ColumnType) -> BoxedStrategy<Model> {
        fn plain<T: std::fmt::Debug + 'static>(
            from: impl Strategy<Value = T> + 'static,
            make: fn(T) -> Value<'static>,
        ) -> BoxedStrategy<Model> {
            from.prop_map(move |value| Model::Plain(make(value))).boxed()
        }
        let i32s = prop_oneof![any::<i32>(), -2..3, Just(i32::MIN), Just(i32::MAX)];
        let i64s = prop_oneof![any::<i64>(), -2..3i64, Just(i64::MIN), Just(i64::MAX)];
        let special = prop_oneof![
            Just(f64::NAN),
            Just(-f64::NAN),
            Just(0.0),
            Just(-0.0),
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(f64::from_bits(1)),
            -3.0..3.0,
        ];
        let floats = prop_oneof![special, any::<u64>().prop_map(f64::from_bits)];
        let time = prop_oneof![0..=MAX_TIME_US, Just(0), Just(MAX_TIME_US)];
        let days = prop::sample::select(vec![-61, -60, -31, -30, -1, 0, 1, 29, 30, 31, 60]);
        let us = prop::sample::select(vec![-MAX_TIME_US, -1, 0, 1, MAX_TIME_US - 1, MAX_TIME_US]);
        let interval = (-2..3i32, days, us).prop_map(|(months, days, microseconds)| Interval {
            months,
            days,
            microseconds,
        });
        let edges = Interval { months: i32::MIN, days: i32::MIN, microseconds: i64::MIN };
        let byte = prop_oneof![Just(0u8), Just(1), Just(254), Just(255), any::<u8>()];
        match ty {
            ColumnType::Bool => plain(any::<bool>(), Value::Bool),
            ColumnType::I16 => plain(prop_oneof![any::<i16>(), -2..3i16], Value::I16),
            ColumnType::I32 => plain(i32s, Value::I32),
            ColumnType::I64 => plain(i64s, Value::I64),
            ColumnType::F32 => plain(floats.prop_map(|float| float as f32), Value::F32),
            ColumnType::F64 => plain(floats, Value::F64),
            ColumnType::Date => plain(i32s, Value::Date),
            ColumnType::Time => plain(time, Value::Time),
            ColumnType::Timestamp => plain(i64s, Value::Timestamp),
            ColumnType::Interval => {
                plain(prop_oneof![9 => interval, 1 => Just(edges)], Value::Interval)
            }
            ColumnType::Uuid => plain(prop_oneof![any::<[u8; 16]>(), Just([7; 16])], Value::Uuid),
            ColumnType::Decimal(_) => decimals::texts().prop_map(Model::Decimal).boxed(),
            ColumnType::Text(_) => "[\u{0}\u{1}ab\u{ff}]{0,4}".prop_map(Model::Text).boxed(),
            _ => proptest::collection::vec(byte, 0..5).prop_map(Model::Bytes).boxed(),
        }
    }

    fn tuple(columns: &[KeyColumn]) -> Vec<BoxedStrategy<Model>> {
        let part = |column: &KeyColumn| match column.nullable {
            true => {
                prop_oneof![1 => Just(Model::Plain(Value::Null)), 3 => values(column.ty)].boxed()
            }
            false => values(column.ty),
        };
        columns.iter().map(part).collect()
    }

    /// Columns of any types and orders, and two tuples of them that begin alike.
    fn tuples() -> impl Strategy<Value = (Vec<KeyColumn>, Vec<Model>, Vec<Model>)> {
        let flags = any::<(bool, bool, bool)>();
        let column =
            (0..TYPES.len(), flags).prop_map(|(ty, (nullable, descending, nulls_last))| {
                let order = KeyOrder { descending, nulls_last };
                KeyColumn { column: 0, ty: TYPES[ty], nullable, order }
            });
        proptest::collection::vec(column, 1..5).prop_flat_map(|columns| {
            let pair = (tuple(&columns), tuple(&columns), 0..=columns.len());
            (Just(columns), pair).prop_map(|(columns, (a, mut b, same))| {
                b[..same].clone_from_slice(&a[..same]);
                (columns, a, b)
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn encodings_compare_like_tuples_in_every_order((columns, a, b) in tuples()) {
            let (key_a, key_b) = (encode(&columns, &a), encode(&columns, &b));
            prop_assert_eq!(key_a.cmp(&key_b), compare(&columns, &a, &b));
        }

        #[test]
        fn a_prefix_range_holds_exactly_the_keys_that_agree((columns, a, b) in tuples()) {
            let key = encode(&columns, &b);
            for length in 0..=columns.len() {
                let range = KeyRange::prefix(&encode(&columns[..length], &a));
                let inside = *key >= *range.low() && range.high().is_none_or(|high| *key < *high);
                let agree = compare(&columns[..length], &a, &b).is_eq();
                prop_assert_eq!(inside, agree);
            }
        }

        #[test]
        fn parts_are_told_apart_and_damage_is_no_reason_to_panic(
            (columns, a, b) in tuples(), at in any::<prop::sample::Index>(), bits in 1u8..
        ) {
            let (key, behind) = (encode(&columns, &a), encode(&columns, &b));
            for length in 0..=columns.len() {
                let head = encode(&columns[..length], &a);
                let (found, rest) = split_parts(&columns[..length], &key).unwrap();
                prop_assert_eq!((found, rest), (&*head, &key[head.len()..]));
            }
            for cut in 0..key.len() {
                prop_assert_eq!(split_parts(&columns, &key[..cut]), None);
            }
            let mut both = key.clone();
            both.push_encoded(&behind);
            prop_assert_eq!(split_parts(&columns, &both), Some((&*key, &*behind)));
            let mut damaged = key.to_vec();
            damaged[at.index(key.len())] ^= bits;
            if let Some((head, rest)) = split_parts(&columns, &damaged) {
                prop_assert_eq!(head.len() + rest.len(), damaged.len());
            }
        }
    }

    fn column(ty: ColumnType, nullable: bool, order: KeyOrder) -> KeyColumn {
        KeyColumn { column: 4, ty, nullable, order }
    }

    #[test]
    fn ascending_keys_are_those_of_the_macro() {
        let decimal: Decimal = "-7.25".parse().unwrap();
        let interval = Interval { months: 1, days: 2, microseconds: 3 };
        let values = [
            (Value::Bool(true), ColumnType::Bool, key![true]),
            (Value::I16(-1), ColumnType::I16, key![-1i16]),
            (Value::F32(0.5), ColumnType::F32, key![0.5f32]),
            (Value::F64(0.5), ColumnType::F64, key![0.5f64]),
            (Value::Date(9), ColumnType::Date, key![9]),
            (Value::Time(9), ColumnType::Time, key![9i64]),
            (Value::Interval(interval), ColumnType::Interval, key![interval]),
            (Value::Uuid([3; 16]), ColumnType::Uuid, KeyBuf::new().uuid([3; 16])),
            (Value::Decimal(decimal.as_ref()), ColumnType::Decimal(9), key![decimal]),
            (Value::Text("x"), ColumnType::Text(9), key!["x"]),
        ];
        for (value, ty, expected) in values {
            let mut key = KeyBuf::new();
            column(ty, false, KeyOrder::ASCENDING).append(value, &mut key).unwrap();
            assert_eq!(key, expected, "{value:?}");
        }
        let mut key = KeyBuf::new();
        column(ColumnType::I16, true, KeyOrder::ASCENDING).append(Value::I16(5), &mut key).unwrap();
        assert_eq!(key, key![Some(5i16)]);
    }

    #[test]
    fn the_bytes_are_those_of_the_map() {
        let encoded = |ty, order, value| {
            let mut key = KeyBuf::new();
            column(ty, true, order).append(value, &mut key).unwrap();
            key.to_vec()
        };
        let (text, last) = (ColumnType::Text(9), KeyOrder::DESCENDING.nulls_last());
        assert_eq!(encoded(text, KeyOrder::ASCENDING, Value::Null), [0]);
        assert_eq!(encoded(text, KeyOrder::DESCENDING, Value::Null), [0]);
        assert_eq!(encoded(text, last, Value::Null), [2]);
        assert_eq!(encoded(text, last, Value::Text("a\0")), [1, 0x9e, 0xff, 0, 0xff, 0xff]);
        assert_eq!(encoded(ColumnType::I16, last, Value::I16(1)), [1, 0x7f, 0xfe]);
        let minute = Interval { microseconds: 60_000_000, ..Interval::default() };
        let bytes = encoded(ColumnType::Interval, KeyOrder::ASCENDING, Value::Interval(minute));
        assert_eq!(bytes, [1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0x93, 0x87, 0]);
    }

    #[test]
    fn what_is_no_form_of_a_value_is_refused() {
        let refused = |ty, bytes: &[u8]| {
            for descending in [false, true] {
                let flip = if descending { 0xff } else { 0 };
                let bytes: Vec<u8> = bytes.iter().map(|byte| byte ^ flip).collect();
                let column = column(ty, false, KeyOrder { descending, nulls_last: false });
                assert_eq!(column.part_length(&bytes), None, "{ty:?} {bytes:?}");
            }
        };
        refused(ColumnType::Bool, &[2]);
        refused(ColumnType::Time, &key![-1i64]);
        refused(ColumnType::Time, &key![MAX_TIME_US + 1]);
        refused(ColumnType::F64, &(0x7fff_ffff_ffff_ffff_u64).to_be_bytes());
        refused(ColumnType::F64, &(0xfff8_0000_0000_0001_u64).to_be_bytes());
        refused(ColumnType::F32, &(0x7fff_ffff_u32).to_be_bytes());
        refused(ColumnType::Interval, &[0xff; 16]);
        refused(ColumnType::Text(4), &[65, 0, 1, 0, 0]);
        refused(ColumnType::Decimal(4), &[0x85, 0, 0]);
        refused(ColumnType::Decimal(4), &[0x81, 0x20, 0, 102, 0]);
        refused(ColumnType::Decimal(4), &[0x81, 0x20, 0, 1, 7, 0]);
        refused(ColumnType::Decimal(4), &[0x81, 0x20, 0, 7, 1, 0]);
        refused(ColumnType::Json(4), &[0, 0]);
        let nullable = |order| column(ColumnType::Bool, true, order);
        assert_eq!(nullable(KeyOrder::ASCENDING).part_length(&[2]), None);
        assert_eq!(nullable(KeyOrder::ASCENDING.nulls_last()).part_length(&[0]), None);
        assert_eq!(nullable(KeyOrder::ASCENDING).part_length(&[3, 1]), None);
        assert_eq!(nullable(KeyOrder::ASCENDING).part_length(&[1, 1]), Some(2));
    }

    #[test]
    fn values_of_other_columns_are_refused_by_name() {
        let refused = |ty, value| {
            let mut key = KeyBuf::new();
            column(ty, false, KeyOrder::ASCENDING).append(value, &mut key).unwrap_err().to_string()
        };
        let wrong = refused(ColumnType::I32, Value::I64(1));
        assert_eq!(wrong, "column 4 is I32, not I64");
        assert_eq!(refused(ColumnType::Bool, Value::Null), "column 4 may not be NULL");
        let time = refused(ColumnType::Time, Value::Time(-1));
        assert_eq!(time, "column 4: -1 (allowed: 0 to 86400000000)");
    }
}
