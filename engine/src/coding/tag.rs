//! The tag behind each split: the version of its write-back, and the checksum of its payload.
//!
//! ```text
//! tag      u64  version | checksum << 32
//! version  u32  dirty set, 12 bits | sequence number << 12, 20 bits
//! ```
//! A write-back writes all parity splits and the data splits that it changes, its *dirty set*, all
//! with one version. So a parity split says which data splits belong to it. The header of a page
//! has the version of each split of the page. A split that is made again after its loss has a
//! version with an empty dirty set. Sequence numbers count from 1, wrap after 2^20 - 1, and are
//! compared only with those of write-backs of about the same time. Splits that were never written
//! have version 0 and are zero, tag included.

use std::fmt;

use selkie_fabric::Buf;
use selkie_pool::layout::{MAX_SPLITS, TAG_BYTES, VERSION_COUNTER, VERSION_LOST, VERSION_NEVER};

use selkie_pool::checksum;

/// A set of splits of a page: bit i stands for split i.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct SplitSet(u16);

impl SplitSet {
    /// The empty set.
    pub(crate) const EMPTY: Self = Self(0);

    /// The first `count` splits.
    pub(crate) const fn first(count: usize) -> Self {
        debug_assert!(count <= MAX_SPLITS);
        Self(((1_u32 << count) - 1) as u16)
    }

    /// Whether a split is in it.
    pub(crate) const fn contains(self, split: usize) -> bool {
        self.0 >> split & 1 == 1
    }

    /// The set with one more split.
    #[must_use]
    pub(crate) const fn with(self, split: usize) -> Self {
        debug_assert!(split < MAX_SPLITS);
        Self(self.0 | 1 << split)
    }

    /// The union of both sets.
    #[must_use]
    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The splits that are not in the other set.
    #[must_use]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The number of splits.
    pub(crate) const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether it is empty.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The splits in ascending order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_SPLITS).filter(move |split| self.contains(*split))
    }
}

impl FromIterator<usize> for SplitSet {
    fn from_iter<I: IntoIterator<Item = usize>>(splits: I) -> Self {
        splits.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for SplitSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The version of a split: which write-back wrote it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Version(u32);

const DIRTY_BITS: u32 = MAX_SPLITS as u32;
const _: () = assert!(DIRTY_BITS == 12);
// These versions have sequence number 0, which no write-back has.
const _: () = assert!(VERSION_COUNTER >> DIRTY_BITS == 0 && VERSION_LOST >> DIRTY_BITS == 0);

/// Versions that are fewer write-backs apart are of about the same time. The parity splits of a
/// page always are, and a data split that was not written for so long is not.
const SAME_TIME: u32 = 1 << 10;

/// The bits of the sequence number.
const SEQUENCE: u32 = u32::MAX << DIRTY_BITS;

impl Version {
    /// The version of splits that were never written.
    pub(crate) const NEVER: Self = Self(VERSION_NEVER);

    /// The version of a split whose tag is lost. No split has it.
    pub(crate) const LOST: Self = Self(VERSION_LOST);

    /// The version of the copies of a counter, which is no page.
    pub(crate) const COUNTER: Self = Self(VERSION_COUNTER);

    /// The version of a write-back of these data splits to a page whose splits have these versions.
    /// It differs from all of them.
    #[must_use]
    pub(crate) fn after(versions: &Versions, first_parity: usize, dirty: SplitSet) -> Self {
        let known = |version: &&Self| **version != Self::LOST;
        let (data, parity) = versions.split_at(first_parity);
        let latest = parity.iter().find(known).or_else(|| data.iter().filter(known).max());
        // A page of which all versions are lost begins anew.
        let latest = latest.copied().unwrap_or(Self::NEVER);
        // A split that was regenerated may have a later one than parity.
        let later =
            versions.iter().filter(known).filter_map(|own| Some((own.later_than(latest)?, own)));
        let newest = later.filter(|(by, _)| *by > 0).max_by_key(|(by, _)| *by).map(|(_, own)| own);
        let mut version = newest.copied().unwrap_or(latest).next(dirty);
        while versions.contains(&version) {
            version = version.next(dirty);
        }
        version
    }

    /// The version of the write-back after this one that changes these data splits.
    #[must_use]
    pub(crate) const fn next(self, dirty: SplitSet) -> Self {
        let sequence = (self.0 >> DIRTY_BITS).wrapping_add(1) & (u32::MAX >> DIRTY_BITS);
        let sequence = if sequence == 0 { 1 } else { sequence };
        Self(sequence << DIRTY_BITS | dirty.0 as u32)
    }

    /// How many write-backs later this one was, or, below 0, earlier; `None` if they are not of
    /// about the same time.
    pub(crate) const fn later_than(self, other: Self) -> Option<i32> {
        // Sign-extended from the length of a sequence number.
        let by = ((self.0 & SEQUENCE).wrapping_sub(other.0 & SEQUENCE) as i32) >> DIRTY_BITS;
        if by.unsigned_abs() < SAME_TIME { Some(by) } else { None }
    }

    /// The data splits that the write-back changed.
    pub(crate) const fn dirty(self) -> SplitSet {
        SplitSet((self.0 & ((1 << DIRTY_BITS) - 1)) as u16)
    }

    /// As it lies in a header or tag.
    pub(crate) const fn to_bits(self) -> u32 {
        self.0
    }

    /// From a header or tag: every value is valid.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.0 >> DIRTY_BITS, self.dirty())
    }
}

/// The versions of the splits of a page, by split.
pub(crate) type Versions = [Version; MAX_SPLITS];

/// The version of a split.
///
/// # Panics
/// If a page has no split of that number.
#[expect(clippy::indexing_slicing, reason = "a split number is below MAX_SPLITS")]
pub(crate) fn version_of(versions: &Versions, split: usize) -> Version {
    versions[split]
}

/// Sets the version of a split.
///
/// # Panics
/// If a page has no split of that number.
#[expect(clippy::indexing_slicing, reason = "a split number is below MAX_SPLITS")]
pub(crate) fn set_version(versions: &mut Versions, split: usize, version: Version) {
    versions[split] = version;
}

/// A split's tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The version of the split.
    pub version: Version,
    /// The crc32c of its payload.
    pub checksum: u32,
}

impl Tag {
    /// As it lies behind the payload.
    pub(crate) const fn to_word(self) -> u64 {
        self.version.0 as u64 | (self.checksum as u64) << 32
    }

    /// From behind a payload: every value is valid.
    pub(crate) const fn from_word(word: u64) -> Self {
        Self { version: Version(word as u32), checksum: (word >> 32) as u32 }
    }

    /// Writes the tag behind the payload of a split.
    ///
    /// # Panics
    /// If the buffer has no room for a tag.
    pub(crate) fn put(self, split: &mut Buf) {
        let Some(word) = split.words_mut().last_mut() else { panic!("a split without a tag") };
        *word = self.to_word().to_le();
    }

    /// Whether a payload matches this tag.
    pub(crate) fn is_of(self, payload: &[u8]) -> bool {
        if self.version == Version::NEVER {
            return self.checksum == 0 && payload.iter().all(|byte| *byte == 0);
        }
        checksum(payload) == self.checksum
    }

    /// A split as it lies in memory: its payload and its tag.
    pub(crate) fn append(version: Version, payload: &[u8]) -> Buf {
        let checksum = if version == Version::NEVER { 0 } else { checksum(payload) };
        let mut buf = Buf::zeroed(payload.len() + TAG_BYTES as usize);
        buf.split_at_mut(payload.len()).0.copy_from_slice(payload);
        Self { version, checksum }.put(&mut buf);
        buf
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_follow_each_other_and_begin_anew() {
        let dirty: SplitSet = [0, 3].into_iter().collect();
        let first = Version::NEVER.next(dirty);
        assert_eq!(first.to_bits(), 1 << 12 | 0b1001);
        assert_eq!(first.dirty(), dirty);
        let last = Version::from_bits(0xFFFF_F000).next(SplitSet::EMPTY);
        assert_eq!(last.to_bits(), 1 << 12, "0 is for splits never written");
        assert_ne!(first.next(dirty), first);
    }

    #[test]
    fn a_new_version_differs_from_all_of_the_page() {
        let dirty = SplitSet::EMPTY.with(0);
        let first = Version::NEVER.next(dirty);
        let mut versions = Versions::default();
        assert_eq!(Version::after(&versions, 2, dirty), first);
        versions[0] = first;
        versions[2] = Version::LOST;
        let after = Version::after(&versions, 2, dirty);
        assert_eq!(after, first.next(dirty));
        versions[2] = Version::NEVER.next(SplitSet::EMPTY);
        versions[1] = Version::after(&versions, 2, dirty);
        assert!(!versions.contains(&Version::after(&versions, 2, dirty)));
    }

    #[test]
    fn a_new_version_is_later_than_splits_made_again() {
        let (dirty, none) = (SplitSet::EMPTY.with(0), SplitSet::EMPTY);
        let old = Version::from_bits(7 << 28 | 1);
        let latest = Version::from_bits(0xFFFF_F001);
        let mut versions = Versions::default();
        versions[..4].copy_from_slice(&[latest, old, latest, latest]);
        versions[0] = Version::after(&versions, 2, none);
        versions[3] = Version::after(&versions, 2, none);
        let next = Version::after(&versions, 2, dirty);
        assert_eq!(
            [versions[0], versions[3], next].map(|own| own.later_than(latest)),
            [2, 3, 4].map(Some)
        );
        assert_eq!((latest.later_than(next), next.later_than(next)), (Some(-4), Some(0)));
    }

    #[test]
    fn a_split_of_long_ago_is_of_no_time() {
        let latest = Version::from_bits(5 << 12 | 1);
        let long_ago = Version::from_bits(1 << 31 | 1);
        assert_eq!((long_ago.later_than(latest), latest.later_than(long_ago)), (None, None));
        let mut versions = Versions::default();
        versions[..3].copy_from_slice(&[latest, long_ago, latest]);
        let next = Version::after(&versions, 2, SplitSet::EMPTY.with(0));
        assert_eq!(next, latest.next(SplitSet::EMPTY.with(0)));
    }

    #[test]
    fn a_tag_is_a_word_with_the_version_first() {
        let tag = Tag { version: Version::from_bits(0x0123_4567), checksum: 0x89AB_CDEF };
        assert_eq!(tag.to_word().to_le_bytes(), [0x67, 0x45, 0x23, 0x01, 0xEF, 0xCD, 0xAB, 0x89]);
        assert_eq!(Tag::from_word(tag.to_word()), tag);
    }

    #[test]
    fn a_flipped_bit_shows_also_in_what_was_never_written() {
        let mut payload = vec![7_u8; 256];
        let version = Version::NEVER.next(SplitSet::first(2));
        let tag = Tag { version, checksum: checksum(&payload) };
        assert!(tag.is_of(&payload));
        payload[200] ^= 4;
        assert!(!tag.is_of(&payload));
        assert!(Tag::default().is_of(&[0; 256]));
        assert!(!Tag::default().is_of(&payload));
        assert!(!Tag { checksum: 1, ..Tag::default() }.is_of(&[0; 256]));
        // As a regeneration writes it.
        for (version, payload) in [(version, &payload[..]), (Version::NEVER, &[0; 256][..])] {
            let split = Tag::append(version, payload);
            let tag = Tag::from_word(u64::from_le(*split.words().last().unwrap()));
            assert_eq!((&split[..256], tag.version), (payload, version));
            assert!(tag.is_of(&split[..256]));
        }
    }
}
