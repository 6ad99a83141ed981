//! Order-preserving keys: byte strings that compare like the tuples they encode.
//!
//! Byte map of one part:
//! ```text
//! bool         0x00 or 0x01
//! i16 to i64   big-endian with the sign bit flipped (2, 4 or 8 bytes)
//! f32, f64     the bits, big-endian: all flipped if the sign bit is set, else that bit alone.
//!              -0 is written as 0, and a NaN as the positive quiet one, which is above infinity
//! date, time,
//! timestamp    as the i32 or i64 that they are
//! interval     its length in microseconds as an i128, big-endian with the sign bit flipped
//! uuid         the 16 bytes
//! decimal      the ordered form of encoding/decimal.rs
//! text, bytes  each 0x00 as 0x00 0xff, then the terminator 0x00 0x00
//! descending   the complement of every byte of the above
//! nullable     0x01 and then the value as above; or, for NULL, 0x00 where NULLs are first, and
//!              0x02 where they are last. These are not complemented
//! ```
//! No part's encoding is a prefix of another value of the same part, so parts can be put in a row,
//! their complements compare the other way round, and a key made of the first columns is a prefix
//! of exactly the keys that agree in those columns: a range over a prefix is
//! [`KeyRange::prefix`](crate::KeyRange::prefix).
//!
//! A key carries no types and no orders. [`Database::key`](crate::Database::key) makes keys from
//! [`Value`](crate::Value)s for any table and index. [`key!`](crate::key!) and [`KeyBuf`] make keys
//! of ascending columns with NULLs first, and the types given must be those of the columns: an
//! `i64` where the column is an `I32` makes a key of another length, which operations refuse
//! ([`KeyMismatch`](crate::TxnError::KeyMismatch)).

use smallvec::SmallVec;
use std::ops::Deref;

use crate::encoding::decimal::{Decimal, DecimalRef};
use crate::encoding::temporal::Interval;

/// Tag of a nullable column that is NULL, where NULLs are first.
pub(crate) const NULL_FIRST: u8 = 0;
/// Tag of a nullable column that has a value.
pub(crate) const PRESENT: u8 = 1;
/// Tag of a nullable column that is NULL, where NULLs are last.
pub(crate) const NULL_LAST: u8 = 2;

/// Keys up to this length live on the stack.
const INLINE_BYTES: usize = 64;

/// An encoded key, on the stack up to 64 bytes.
///
/// ```
/// use selkie_txn::{KeyBuf, key};
/// assert!(key![1, "a"] < key![1, "ab"]);
/// assert!(key![-1] < key![1]);
/// assert_eq!(key![7, "x"], KeyBuf::new().i32(7).text("x"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyBuf(SmallVec<[u8; INLINE_BYTES]>);

impl KeyBuf {
    /// The empty key, the prefix of all keys.
    #[must_use]
    pub fn new() -> Self {
        Self(SmallVec::new())
    }

    /// A key from bytes that are encoded already.
    #[must_use]
    pub fn from_encoded(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// Appends an `I32` column.
    #[must_use]
    pub fn i32(mut self, value: i32) -> Self {
        self.push_i32(value);
        self
    }

    /// Appends an `I64` column.
    #[must_use]
    pub fn i64(mut self, value: i64) -> Self {
        self.push_i64(value);
        self
    }

    /// Appends a text column.
    #[must_use]
    pub fn text(mut self, value: &str) -> Self {
        self.push_bytes(value.as_bytes());
        self
    }

    /// Appends a byte-string column.
    #[must_use]
    pub fn bytes(mut self, value: &[u8]) -> Self {
        self.push_bytes(value);
        self
    }

    /// Appends a UUID column.
    #[must_use]
    pub fn uuid(mut self, value: [u8; 16]) -> Self {
        self.push_encoded(&value);
        self
    }

    /// Appends any part; `None` and `Some` are for nullable columns.
    #[must_use]
    pub fn part(mut self, part: impl KeyPart) -> Self {
        part.append_to(&mut self);
        self
    }

    /// The encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Empties it and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends an `I32` column in place.
    pub fn push_i32(&mut self, value: i32) {
        self.0.extend_from_slice(&(value.cast_unsigned() ^ (1 << 31)).to_be_bytes());
    }

    /// Appends an `I64` column in place.
    pub fn push_i64(&mut self, value: i64) {
        self.0.extend_from_slice(&(value.cast_unsigned() ^ (1 << 63)).to_be_bytes());
    }

    /// Appends a text or byte-string column in place.
    pub fn push_bytes(&mut self, value: &[u8]) {
        if value.contains(&0) {
            for &byte in value {
                self.0.push(byte);
                if byte == 0 {
                    self.0.push(0xff);
                }
            }
        } else {
            self.0.extend_from_slice(value);
        }
        self.0.extend_from_slice(&[0, 0]);
    }

    pub(crate) fn push_bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    pub(crate) fn push_i16(&mut self, value: i16) {
        self.0.extend_from_slice(&(value.cast_unsigned() ^ (1 << 15)).to_be_bytes());
    }

    pub(crate) fn push_f32(&mut self, value: f32) {
        self.0.extend_from_slice(&ordered_f32(value).to_be_bytes());
    }

    pub(crate) fn push_f64(&mut self, value: f64) {
        self.0.extend_from_slice(&ordered_f64(value).to_be_bytes());
    }

    pub(crate) fn push_interval(&mut self, value: Interval) {
        let length = value.length_us().cast_unsigned() ^ (1 << 127);
        self.0.extend_from_slice(&length.to_be_bytes());
    }

    pub(crate) fn push_decimal(&mut self, value: DecimalRef<'_>) {
        self.0.extend_from_slice(value.ordered());
    }

    /// Appends the tag of a nullable column.
    pub(crate) fn push_tag(&mut self, tag: u8) {
        self.0.push(tag);
    }

    /// Complements every byte from this position.
    pub(crate) fn complement_from(&mut self, at: usize) {
        self.0.iter_mut().skip(at).for_each(|byte| *byte = !*byte);
    }

    /// Appends bytes that are encoded already.
    pub(crate) fn push_encoded(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Turns it into the least key above every key that it is a prefix of; `false` if there is none
    /// (it is empty or all 0xff).
    pub(crate) fn make_successor(&mut self) -> bool {
        while let Some(last) = self.0.pop() {
            if let Some(next) = last.checked_add(1) {
                self.0.push(next);
                return true;
            }
        }
        false
    }
}

impl Deref for KeyBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for KeyBuf {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A value that can stand in a key: see [`key!`](crate::key!).
pub trait KeyPart {
    /// Appends the encoding.
    fn append_to(&self, key: &mut KeyBuf);
}

impl KeyPart for i32 {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_i32(*self);
    }
}

impl KeyPart for i64 {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_i64(*self);
    }
}

impl KeyPart for bool {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_bool(*self);
    }
}

impl KeyPart for i16 {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_i16(*self);
    }
}

impl KeyPart for f32 {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_f32(*self);
    }
}

impl KeyPart for f64 {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_f64(*self);
    }
}

impl KeyPart for Interval {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_interval(*self);
    }
}

impl KeyPart for Decimal {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_decimal(self.as_ref());
    }
}

impl KeyPart for DecimalRef<'_> {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_decimal(*self);
    }
}

impl KeyPart for str {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_bytes(self.as_bytes());
    }
}

impl KeyPart for String {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_bytes(self.as_bytes());
    }
}

impl KeyPart for [u8] {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_bytes(self);
    }
}

impl<T: KeyPart + ?Sized> KeyPart for &T {
    fn append_to(&self, key: &mut KeyBuf) {
        (**self).append_to(key);
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn append_to(&self, key: &mut KeyBuf) {
        key.push_tag(if self.is_some() { PRESENT } else { NULL_FIRST });
        if let Some(value) = self {
            value.append_to(key);
        }
    }
}

/// Builds a [`KeyBuf`] from values in the order of the key's columns: `key![w_id, d_id, "name"]`.
/// Values are `bool`, `i16`, `i32`, `i64`, `f32`, `f64`, [`Interval`], [`Decimal`], text, byte
/// slices, or an `Option` of these for nullable columns; dates are `i32`, times and timestamps
/// `i64`. All columns are ascending with NULLs first: else use
/// [`Database::key`](crate::Database::key).
///
/// [`Interval`]: crate::Interval
/// [`Decimal`]: crate::Decimal
#[macro_export]
macro_rules! key {
    ($($part:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "an empty key is not changed")]
        let mut key = $crate::KeyBuf::new();
        $($crate::KeyPart::append_to(&$part, &mut key);)*
        key
    }};
}

/// Bits that compare as floats do.
pub(crate) fn ordered_f32(value: f32) -> u32 {
    let value = if value.is_nan() { f32::from_bits(0x7fc0_0000) } else { value + 0.0 };
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits ^ (1 << 31) }
}

/// Bits that compare as floats do.
pub(crate) fn ordered_f64(value: f64) -> u64 {
    // -0 + 0 is 0; every other number stays.
    let value = if value.is_nan() { f64::from_bits(0x7ff8_0000_0000_0000) } else { value + 0.0 };
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits ^ (1 << 63) }
}

/// The float that [`ordered_f32`] gave these bits for.
pub(crate) fn float_of_ordered_32(bits: u32) -> f32 {
    f32::from_bits(if bits >> 31 == 1 { bits ^ (1 << 31) } else { !bits })
}

/// The float that [`ordered_f64`] gave these bits for.
pub(crate) fn float_of_ordered_64(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 { bits ^ (1 << 63) } else { !bits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::column_type::ColumnType;
    use crate::catalogue::schema::KeyOrder;
    use crate::encoding::key_column::{KeyColumn, split_parts};
    use crate::encoding::key_range::KeyRange;
    use proptest::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Tuple(i32, Option<String>, Vec<u8>, i64);

    fn encode(t: &Tuple) -> KeyBuf {
        key![t.0, t.1, t.2.as_slice(), t.3]
    }

    fn tuples() -> impl Strategy<Value = Tuple> {
        let small = prop_oneof![any::<i32>(), -2..3i32];
        let text = proptest::option::of("[\u{0}ab\u{ff}]{0,4}");
        let bytes = proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()],
            0..5,
        );
        (small, text, bytes, any::<i64>()).prop_map(|(a, b, c, d)| Tuple(a, b, c, d))
    }

    fn columns() -> [KeyColumn; 4] {
        let column =
            |ty, nullable| KeyColumn { column: 0, ty, nullable, order: KeyOrder::ASCENDING };
        [
            column(ColumnType::I32, false),
            column(ColumnType::Text(16), true),
            column(ColumnType::Bytes(16), false),
            column(ColumnType::I64, false),
        ]
    }

    proptest! {
        #[test]
        fn encodings_compare_like_tuples(a in tuples(), b in tuples()) {
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
        }

        #[test]
        fn equal_beginnings_still_compare_like_tuples(a in tuples(), b in tuples()) {
            let b = Tuple(a.0, a.1.clone(), b.2, b.3);
            prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
        }

        #[test]
        fn a_prefix_range_holds_exactly_the_keys_that_agree(a in tuples(), b in tuples(), same in any::<bool>()) {
            let b = if same { Tuple(a.0, a.1.clone(), b.2, b.3) } else { b };
            let range = KeyRange::prefix(&key![a.0, a.1]);
            let key = encode(&b);
            let inside = *key >= *range.low() && range.high().is_none_or(|high| *key < *high);
            prop_assert_eq!(inside, (a.0, &a.1) == (b.0, &b.1));
        }

        #[test]
        fn parts_are_told_apart(a in tuples()) {
            let key = encode(&a);
            let (head, tail) = split_parts(&columns()[..2], &key).unwrap();
            prop_assert_eq!(head, &*key![a.0, a.1]);
            prop_assert_eq!(tail, &*key![a.2.as_slice(), a.3]);
            prop_assert_eq!(split_parts(&columns(), &key), Some((&*key, &[][..])));
            prop_assert_eq!(split_parts(&columns(), &key[..key.len() - 1]), None);
        }
    }

    #[test]
    fn floats_have_one_key_for_zero_and_for_nan() {
        assert_eq!(key![0.0f64, 0.0f32], key![-0.0f64, -0.0f32]);
        assert_eq!(key![f64::NAN, f32::NAN], key![-f64::NAN, -f32::NAN]);
        let mut floats =
            [f64::NAN, f64::INFINITY, 1.5, 0.0, -f64::MIN_POSITIVE, -2.0, -f64::INFINITY];
        floats.reverse();
        assert!(floats.map(|float| key![float]).is_sorted());
        assert!(floats.map(|float| key![float as f32]).is_sorted());
    }
}
