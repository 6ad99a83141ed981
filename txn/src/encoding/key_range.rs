//! Ranges of keys, as scans take them.

use crate::encoding::key::KeyBuf;

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
}
