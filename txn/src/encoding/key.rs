//! Order-preserving keys: byte strings that compare like the tuples they encode.
//!
//! Byte map of one part:
//! ```text
//! i32, i64     big-endian with the sign bit flipped (4 or 8 bytes)
//! text, bytes  each 0x00 as 0x00 0xff, then the terminator 0x00 0x00
//! nullable     0x00 for NULL, or 0x01 and then the value as above; NULL sorts first
//! ```
//! No part's encoding is a prefix of another value of the same part, so parts can be put in a row,
//! and a key made of the first columns is a prefix of exactly the keys that agree in those columns:
//! a range over a prefix is [`KeyRange::prefix`].
//!
//! A key carries no types. The types given must be those of the columns: an `i64` where the column
//! is an `I32` makes a key of another length, which operations refuse
//! ([`KeyMismatch`](crate::TxnError::KeyMismatch)).

use smallvec::SmallVec;
use std::ops::Deref;

use crate::catalogue::schema::ColumnType;

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

    /// Appends the tag of a nullable column: `false` stands for NULL and ends the part.
    pub(crate) fn push_presence(&mut self, present: bool) {
        self.0.push(u8::from(present));
    }

    /// Appends bytes that are encoded already.
    pub(crate) fn push_encoded(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Turns it into the least key above every key that it is a prefix of; `false` if there is none
    /// (it is empty or all 0xff).
    fn make_successor(&mut self) -> bool {
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
        key.push_presence(self.is_some());
        if let Some(value) = self {
            value.append_to(key);
        }
    }
}

/// Builds a [`KeyBuf`] from values in the order of the key's columns: `key![w_id, d_id, "name"]`.
/// Values are `i32`, `i64`, text, byte slices, or an `Option` of these for nullable columns.
#[macro_export]
macro_rules! key {
    ($($part:expr),* $(,)?) => {{
        #[allow(unused_mut, reason = "an empty key is not changed")]
        let mut key = $crate::KeyBuf::new();
        $($crate::KeyPart::append_to(&$part, &mut key);)*
        key
    }};
}

/// Keys from `low` (included) up to `high` (not included).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    low: KeyBuf,
    high: Option<KeyBuf>,
}

impl KeyRange {
    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self { low: KeyBuf::new(), high: None }
    }

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self::between(prefix, prefix)
    }

    /// From the first key that begins with `first` to the last key that begins with `last`.
    #[must_use]
    pub fn between(first: &[u8], last: &[u8]) -> Self {
        let mut high = KeyBuf::from_encoded(last);
        let bounded = high.make_successor();
        Self { low: KeyBuf::from_encoded(first), high: bounded.then_some(high) }
    }

    /// From the first key that begins with `low` up to, not including, those that begin with
    /// `high`.
    #[must_use]
    pub fn half_open(low: &[u8], high: &[u8]) -> Self {
        Self { low: KeyBuf::from_encoded(low), high: Some(KeyBuf::from_encoded(high)) }
    }

    /// Every key that begins with `low` or follows.
    #[must_use]
    pub fn from(low: &[u8]) -> Self {
        Self { low: KeyBuf::from_encoded(low), high: None }
    }

    /// The inclusive lower bound.
    #[must_use]
    pub fn low(&self) -> &[u8] {
        &self.low
    }

    /// The exclusive upper bound, `None` for no bound.
    #[must_use]
    pub fn high(&self) -> Option<&[u8]> {
        self.high.as_deref()
    }

    /// Whether no key can lie in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }
}

/// One column of a key, as the checks of a key's shape need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyColumn {
    pub(crate) ty: ColumnType,
    pub(crate) nullable: bool,
}

/// Bytes that the first part of `key` takes if it is a `column`; `None` if it is not one.
pub(crate) fn part_length(column: KeyColumn, key: &[u8]) -> Option<usize> {
    let (tag, value) = if column.nullable {
        match key.split_first()? {
            (0, _) => return Some(1),
            (1, value) => (1, value),
            _ => return None,
        }
    } else {
        (0, key)
    };
    let length = match column.ty.fixed_bytes() {
        Some(bytes) => (value.len() >= bytes).then_some(bytes)?,
        None => text_length(value)?,
    };
    Some(tag + length)
}

/// Length of an escaped string with its terminator.
fn text_length(value: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += value.get(at..)?.iter().position(|&byte| byte == 0)?;
        match value.get(at + 1)? {
            0 => return Some(at + 2),
            0xff => at += 2,
            _ => return None,
        }
    }
}

/// Splits `key` behind the parts for `columns`; `None` if it does not begin with such parts.
pub(crate) fn split_parts<'a>(
    columns: &[KeyColumn],
    key: &'a [u8],
) -> Option<(&'a [u8], &'a [u8])> {
    let mut at = 0;
    for &column in columns {
        at += part_length(column, key.get(at..)?)?;
    }
    key.split_at_checked(at)
}

#[cfg(test)]
mod tests {
    use super::*;
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

    const COLUMNS: [KeyColumn; 4] = [
        KeyColumn { ty: ColumnType::I32, nullable: false },
        KeyColumn { ty: ColumnType::Text(16), nullable: true },
        KeyColumn { ty: ColumnType::Bytes(16), nullable: false },
        KeyColumn { ty: ColumnType::I64, nullable: false },
    ];

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
            let (head, tail) = split_parts(&COLUMNS[..2], &key).unwrap();
            prop_assert_eq!(head, &*key![a.0, a.1]);
            prop_assert_eq!(tail, &*key![a.2.as_slice(), a.3]);
            prop_assert_eq!(split_parts(&COLUMNS, &key), Some((&*key, &[][..])));
            prop_assert_eq!(split_parts(&COLUMNS, &key[..key.len() - 1]), None);
        }
    }

    #[test]
    fn ranges_at_the_edges() {
        assert_eq!(KeyRange::prefix(&[]).high(), None);
        assert_eq!(KeyRange::prefix(&[0xff, 0xff]).high(), None);
        assert_eq!(KeyRange::prefix(&[1, 0xff]).high(), Some(&[2][..]));
        assert!(KeyRange::between(&key![3], &key![2]).is_empty());
        assert!(!KeyRange::between(&key![3], &key![3]).is_empty());
        assert!(KeyRange::half_open(&key![3], &key![3]).is_empty());
        assert!(!KeyRange::all().is_empty());
    }
}
