//! Ranges of keys, as scans and cursors take them.
//!
//! A bound is a key of the first columns of a table or an index: all of them, or fewer. It stands
//! for all keys that begin with it. As a lower bound it is inclusive with the first of these, and
//! exclusive from behind the last; as an upper bound inclusive up to the last, and exclusive up to
//! the key before the first. The empty key is a prefix of all keys.

use std::ops::Bound;

use crate::encoding::key::KeyBuf;

/// Keys between two bounds, each of them inclusive, exclusive or none.
///
/// ```
/// # use std::ops::Bound;
/// use selkie_txn::{KeyRange, key};
/// // Of the keys (a, b): those with 3 < a, and up to a = 5 with any b.
/// let range = KeyRange::new(Bound::Excluded(&key![3]), Bound::Included(&key![5]));
/// assert!(!range.contains(&key![3, 9]) && range.contains(&key![4, 0]));
/// assert!(range.contains(&key![5, 9]) && !range.contains(&key![6, 0]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that it may have.
    low: KeyBuf,
    /// The first key that is beyond it.
    high: Option<KeyBuf>,
    /// The key of the lower bound, if it is exclusive.
    first: Option<Box<KeyBuf>>,
    /// The key of the upper bound, if it is inclusive.
    last: Option<KeyBuf>,
}

impl KeyRange {
    /// The range from the first key of either to the last of either.
    pub(crate) fn hull(&self, other: &Self) -> Self {
        let low = self.low.clone().min(other.low.clone());
        let high = match (&self.high, &other.high) {
            (Some(one), Some(other)) => Some(one.clone().max(other.clone())),
            _ => None,
        };
        Self { low, high, first: None, last: None }
    }

    /// Keys between these bounds. A bound of fewer columns than the keys have stands for all keys
    /// that begin with it.
    #[must_use]
    pub fn new(low: Bound<&[u8]>, high: Bound<&[u8]>) -> Self {
        let mut range = match low {
            Bound::Included(key) | Bound::Excluded(key) => Self::from(key),
            Bound::Unbounded => Self::all(),
        };
        match high {
            Bound::Included(key) => {
                let mut beyond = KeyBuf::from_encoded(key);
                range.last = Some(beyond.clone());
                range.high = beyond.make_successor().then_some(beyond);
            }
            Bound::Excluded(key) => range.high = Some(KeyBuf::from_encoded(key)),
            Bound::Unbounded => {}
        }
        if let Bound::Excluded(_) = low {
            range.first = Some(Box::new(range.low.clone()));
            if !range.low.make_successor() {
                // Behind the last key of all there is none.
                range.last = range.last.or(range.high);
                range.high = Some(KeyBuf::new());
            }
        }
        range
    }

    /// All keys.
    #[must_use]
    pub fn all() -> Self {
        Self::from(&[])
    }

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self::between(prefix, prefix)
    }

    /// From the first key that begins with `first` to the last key that begins with `last`.
    #[must_use]
    pub fn between(first: &[u8], last: &[u8]) -> Self {
        Self::new(Bound::Included(first), Bound::Included(last))
    }

    /// From the first key that begins with `low` up to, not including, those that begin with
    /// `high`.
    #[must_use]
    pub fn half_open(low: &[u8], high: &[u8]) -> Self {
        Self { high: Some(KeyBuf::from_encoded(high)), ..Self::from(low) }
    }

    /// Every key that begins with `low` or follows.
    #[must_use]
    pub fn from(low: &[u8]) -> Self {
        Self { low: KeyBuf::from_encoded(low), high: None, first: None, last: None }
    }

    /// The first key that may lie in it: no key of it is less.
    #[must_use]
    pub fn low(&self) -> &[u8] {
        &self.low
    }

    /// The first key that is beyond it; `None` if no key is.
    #[must_use]
    pub fn high(&self) -> Option<&[u8]> {
        self.high.as_deref()
    }

    /// Whether no key can lie in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// Whether a key lies in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.low && self.high.as_ref().is_none_or(|high| *key < **high)
    }

    /// The keys of its bounds, but for empty ones, which every index has.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = &[u8]> {
        let low = self.first.as_deref().unwrap_or(&self.low);
        let high = self.last.as_ref().or(self.high.as_ref());
        [Some(low), high].into_iter().flatten().map(|key| &**key).filter(|key| !key.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;

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

    /// Every kind of bound, of one column and of both, against what it says.
    #[test]
    fn bounds_stand_for_all_keys_that_begin_with_them() {
        let keys: Vec<[i32; 2]> = (-1..3).flat_map(|a| (-1..3).map(move |b| [a, b])).collect();
        // A bound as the columns it has, with how a key compares to it.
        let parts: [&[i32]; 4] = [&[], &[0], &[1, 0], &[2, 2]];
        let encode = |part: &[i32]| part.iter().fold(KeyBuf::new(), |key, n| key.i32(*n));
        let compare = |key: &[i32; 2], part: &[i32]| key[..part.len()].cmp(part);
        for (low, high) in parts.iter().flat_map(|low| parts.iter().map(move |high| (low, high))) {
            let (first, last) = (encode(low), encode(high));
            for kinds in 0..9 {
                let bound = |kind: i32, key| match kind {
                    0 => Bound::Included(key),
                    1 => Bound::Excluded(key),
                    _ => Bound::Unbounded,
                };
                let (of_low, of_high) = (kinds % 3, kinds / 3);
                let range = KeyRange::new(bound(of_low, &*first), bound(of_high, &*last));
                for key in &keys {
                    let (from, to) = (compare(key, low), compare(key, high));
                    let above = [from.is_ge(), from.is_gt(), true][of_low as usize];
                    let below = [to.is_le(), to.is_lt(), true][of_high as usize];
                    let encoded = encode(key);
                    assert_eq!(range.contains(&encoded), above && below, "{key:?} in {range:?}");
                    assert!(!(above && below && range.is_empty()), "{range:?}");
                }
                let given: Vec<_> = range.bounds().map(<[u8]>::to_vec).collect();
                let low = (of_low != 2).then(|| first.to_vec());
                let high = (of_high != 2).then(|| last.to_vec());
                let wanted = [low, high].into_iter().flatten().filter(|key| !key.is_empty());
                assert_eq!(given, wanted.collect::<Vec<_>>());
            }
        }
    }
}
