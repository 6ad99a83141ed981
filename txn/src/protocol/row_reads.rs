//! The rows and ranges that a transaction has read, each with a digest of what was there, and the
//! leaf and page sequence number under which it was read: the read set of
//! [`Protocol::Snapshot`](crate::Protocol::Snapshot).
//!
//! While a leaf has the same sequence number, what was read there is unchanged. Otherwise only the
//! rows and ranges themselves are compared: other rows of the leaf may have changed, and splits
//! may have moved rows to other leaves. Of a row of which only some columns were read, only those
//! are compared. A range covers the gaps between its entries, so an entry that appears there
//! changes its digest: there are no phantoms.
//!
//! The digest of a range is the sum of those of its entries, so a range that lies in several leaves
//! by now is compared leaf by leaf. Digests have 64 bits and a seed of the node; two values of one
//! row have the same digest once in 2^64 times.

use std::hash::{BuildHasher, Hasher};
use std::ops::Range;

use foldhash::quality::FixedState;
use selkie_btree::LeafView;
use selkie_engine::GAddr;

use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::locks::turns::RowName;

/// Items added last that are searched for one that says the same.
const SEARCHED: usize = 4;
/// Items added last that count as read lately.
const LATELY: usize = 64;

/// A sum of the digests of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    /// With the digest of what lies beside.
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }
}

/// Makes digests.
#[derive(Clone, Debug)]
pub(crate) struct Digester(FixedState);

impl Digester {
    pub(crate) fn new(seed: u64) -> Self {
        Self(FixedState::with_seed(seed))
    }

    /// A name of a key of a tree.
    #[inline]
    pub(crate) fn name_of(&self, tree: usize, key: &[u8]) -> RowName {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.write_usize(tree);
        hasher.finish()
    }

    /// Of the value of one key; `None`: there is none.
    pub(crate) fn of_value(&self, value: Option<&[u8]>) -> Digest {
        let Some(value) = value else { return Digest::default() };
        let mut hasher = self.0.build_hasher();
        hasher.write(value);
        // Shorter and longer values that end in zeros.
        hasher.write_usize(value.len());
        Digest(hasher.finish())
    }

    /// Of some columns of a row.
    pub(crate) fn of_columns(&self, row: RowRef<'_>, columns: u64) -> Result<Digest, TxnError> {
        let mut hasher = self.0.build_hasher();
        for column in (0..64).filter(|column| columns >> column & 1 != 0) {
            if let Some(pointer) = row.pointer(column)? {
                // Another value has another pointer.
                hasher.write_u8(2);
                hasher.write(&pointer.encode());
                continue;
            }
            let stored = row.stored(column)?;
            hasher.write_u8(stored.is_some().into());
            hasher.write(stored.unwrap_or_default());
            hasher.write_usize(stored.map_or(0, <[u8]>::len));
        }
        Ok(Digest(hasher.finish()))
    }

    /// Of the entries in these slots of a leaf, with their keys. `key` is a buffer.
    pub(crate) fn of_slots(
        &self,
        leaf: &LeafView<'_>,
        slots: Range<usize>,
        key: &mut Vec<u8>,
    ) -> Result<Digest, TxnError> {
        let mut sum = Digest::default();
        for slot in slots {
            leaf.key_into(slot, key)?;
            let value = leaf.value(slot)?;
            let mut hasher = self.0.build_hasher();
            hasher.write_usize(key.len());
            hasher.write(key);
            hasher.write(value);
            sum = sum.and(Digest(hasher.finish()));
        }
        Ok(sum)
    }
}

/// A leaf as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeafVersion {
    pub(crate) addr: GAddr,
    /// Its page sequence number; `None` if an older image of it was read.
    pub(crate) psn: Option<u64>,
}

impl LeafVersion {
    /// No leaf.
    pub(crate) const NONE: Self = Self { addr: GAddr::NULL, psn: None };
}

/// Which columns of a row were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnsRead {
    /// All, whatever the definition of the table, or what was read is no row.
    All,
    Some {
        /// One bit each.
        columns: u64,
        /// Where the definition is that gives them their numbers, if the table may change.
        definition: Option<usize>,
    },
}

/// What was read: the value of one key, or all entries of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReadExtent {
    /// The key, and the columns of the row.
    Point(Range<usize>, ColumnsRead),
    /// From a key up to, and without, another; `None`: to the end.
    Keys(Range<usize>, Option<Range<usize>>),
}

#[derive(Clone, Debug)]
struct Item {
    tree: usize,
    extent: ReadExtent,
    leaf: LeafVersion,
    digest: Digest,
}

/// What was read, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read<'a> {
    /// A key, and the columns of the row.
    Point(&'a [u8], ColumnsRead),
    Keys(&'a [u8], Option<&'a [u8]>),
}

/// One thing that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowRead<'a> {
    pub(crate) tree: usize,
    pub(crate) read: Read<'a>,
    pub(crate) leaf: LeafVersion,
    pub(crate) digest: Digest,
}

/// The rows and ranges that a transaction has read.
#[derive(Default)]
pub(crate) struct RowReads {
    items: Vec<Item>,
    /// Keys of all items.
    keys: Vec<u8>,
}

impl RowReads {
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<Item>() + self.keys.capacity()
    }

    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.keys.clear();
    }

    /// Gives memory beyond this back.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if self.bytes() > bytes {
            self.items.shrink_to(bytes / 2 / size_of::<Item>());
            self.keys.shrink_to(bytes / 2);
        }
    }

    /// Adds what was read, unless one of the latest items says the same. Returns its number.
    pub(crate) fn add(
        &mut self,
        tree: usize,
        read: Read<'_>,
        leaf: LeafVersion,
        digest: Digest,
    ) -> usize {
        let count = self.items.len();
        let known = (count.saturating_sub(SEARCHED)..count).find(|at| {
            self.items.get(*at).is_some_and(|known| {
                known.digest == digest
                    && (known.tree, known.leaf) == (tree, leaf)
                    && self.get(*at).is_some_and(|known| known.read == read)
            })
        });
        if let Some(known) = known {
            return known;
        }
        let extent = match read {
            Read::Point(key, columns) => ReadExtent::Point(self.keep(key), columns),
            Read::Keys(low, high) => {
                let low = self.keep(low);
                ReadExtent::Keys(low, high.map(|high| self.keep(high)))
            }
        };
        self.items.push(Item { tree, extent, leaf, digest });
        count
    }

    /// Adds a range that was read. If it lies beside that of the item `beside`, and was read in the
    /// same version of the same leaf, that item grows. Returns the number of the item that has it.
    pub(crate) fn add_beside(&mut self, beside: Option<usize>, read: RowRead<'_>) -> usize {
        if let (Some(at), Read::Keys(low, high)) = (beside, read.read)
            && let Some(known) = self.get(at)
            && (known.tree, known.leaf) == (read.tree, read.leaf)
            && let Read::Keys(known_low, known_high) = known.read
        {
            let (goes_on, goes_before) = (known_high == Some(low), high == Some(known_low));
            if goes_on || goes_before {
                let digest = known.digest.and(read.digest);
                self.grow(at, goes_on.then_some(high), goes_before.then_some(low), digest);
                return at;
            }
        }
        self.add(read.tree, read.read, read.leaf, read.digest)
    }

    /// Moves the upper bound of a range, or its lower one.
    fn grow(&mut self, at: usize, high: Option<Option<&[u8]>>, low: Option<&[u8]>, digest: Digest) {
        let Some(Item { extent: ReadExtent::Keys(from, to), .. }) = self.items.get(at) else {
            panic!("item {at} is no range")
        };
        let (from, to) = (from.clone(), to.clone());
        let low = low.map_or_else(|| from.clone(), |low| self.keep_at(&from, low));
        let high = match (high, to) {
            (None, to) => to,
            (Some(high), to) => high.map(|high| match to {
                Some(to) => self.keep_at(&to, high),
                None => self.keep(high),
            }),
        };
        let item = self.item_mut(at);
        (item.extent, item.digest) = (ReadExtent::Keys(low, high), digest);
    }

    /// The item of this number, if there are so many.
    pub(crate) fn get(&self, at: usize) -> Option<RowRead<'_>> {
        let Item { tree, extent, leaf, digest } = self.items.get(at)?;
        let read = match extent {
            ReadExtent::Point(key, columns) => Read::Point(self.key(key), *columns),
            ReadExtent::Keys(low, high) => {
                Read::Keys(self.key(low), high.as_ref().map(|high| self.key(high)))
            }
        };
        Some(RowRead { tree: *tree, read, leaf: *leaf, digest: *digest })
    }

    /// Whether a key was read lately, by itself or in a range: a transaction may have read so much
    /// that to look at all of it would cost more than the answer is worth.
    pub(crate) fn has_read_lately(&self, tree: usize, key: &[u8]) -> bool {
        let reads = (0..self.len()).rev().take(LATELY).filter_map(|at| self.get(at));
        reads.filter(|read| read.tree == tree).any(|RowRead { read, .. }| match read {
            Read::Point(read, _) => read == key,
            Read::Keys(low, high) => low <= key && high.is_none_or(|high| key < high),
        })
    }

    /// The leaf of the item of this number, if there are so many.
    pub(crate) fn leaf_of(&self, at: usize) -> Option<LeafVersion> {
        self.items.get(at).map(|item| item.leaf)
    }

    /// The item of this number.
    ///
    /// # Panics
    /// If there are fewer: what was read would count as validated.
    pub(crate) fn of_number(&self, at: usize) -> RowRead<'_> {
        let Some(item) = self.get(at) else { panic!("nothing was read with number {at}") };
        item
    }

    /// Notes that what was read was found again in another version of its leaf, or another leaf.
    pub(crate) fn found_again(&mut self, at: usize, leaf: LeafVersion) {
        self.item_mut(at).leaf = leaf;
    }

    /// Replaces an item by its first part, of which it is the range up to `high`.
    pub(crate) fn cut(&mut self, at: usize, high: &[u8], leaf: LeafVersion, digest: Digest) {
        let high = self.keep(high);
        let item = self.item_mut(at);
        let ReadExtent::Keys(_, end) = &mut item.extent else { panic!("a point is cut") };
        *end = Some(high);
        (item.leaf, item.digest) = (leaf, digest);
    }

    fn item_mut(&mut self, at: usize) -> &mut Item {
        let Some(item) = self.items.get_mut(at) else {
            panic!("nothing was read with number {at}")
        };
        item
    }

    fn key(&self, range: &Range<usize>) -> &[u8] {
        let Some(key) = self.keys.get(range.clone()) else {
            panic!("the keys end before {range:?}")
        };
        key
    }

    /// As [`keep`](Self::keep), in the place of a key that is not needed any more.
    fn keep_at(&mut self, place: &Range<usize>, key: &[u8]) -> Range<usize> {
        let end = place.start + key.len();
        if let Some(bytes) = self.keys.get_mut(place.start..end)
            && end <= place.end
        {
            bytes.copy_from_slice(key);
            return place.start..end;
        }
        if place.end == self.keys.len() {
            self.keys.truncate(place.start);
        }
        self.keep(key)
    }

    fn keep(&mut self, key: &[u8]) -> Range<usize> {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        start..self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAF: LeafVersion = LeafVersion { addr: GAddr::NULL, psn: Some(7) };

    #[test]
    fn what_is_read_twice_is_kept_once_and_in_another_version_again() {
        let (mut reads, digester) = (RowReads::default(), Digester::new(3));
        let digest = digester.of_value(Some(b"v"));
        for _ in 0..3 {
            reads.add(1, Read::Point(b"a", ColumnsRead::All), LEAF, digest);
            reads.add(1, Read::Keys(b"a", None), LEAF, digest);
        }
        assert_eq!(reads.len(), 2);
        reads.add(
            1,
            Read::Point(b"a", ColumnsRead::All),
            LeafVersion { psn: Some(8), ..LEAF },
            digest,
        );
        reads.add(2, Read::Point(b"a", ColumnsRead::All), LEAF, digest);
        reads.add(1, Read::Keys(b"a", Some(b"b")), LEAF, digest);
        assert_eq!(reads.len(), 5);
        let last = reads.get(4).unwrap();
        assert_eq!((last.tree, last.read), (1, Read::Keys(b"a", Some(&b"b"[..]))));
        reads.cut(1, b"ab", LEAF, Digest::default());
        assert_eq!(reads.get(1).unwrap().read, Read::Keys(b"a", Some(&b"ab"[..])));
        assert!(reads.get(5).is_none());
    }

    #[test]
    fn a_range_grows_by_what_lies_beside_it() {
        let (mut reads, digester) = (RowReads::default(), Digester::new(3));
        let digest = |value: &[u8]| digester.of_value(Some(value));
        let keys = |low, high, value: &[u8]| RowRead {
            tree: 1,
            read: Read::Keys(low, high),
            leaf: LEAF,
            digest: digest(value),
        };
        let first = reads.add_beside(None, keys(b"c", Some(b"d"), b"1"));
        let other = reads.add_beside(None, keys(b"x", Some(b"y"), b"9"));
        assert_eq!(reads.add_beside(Some(first), keys(b"d", Some(b"longer"), b"2")), first);
        assert_eq!(reads.add_beside(Some(first), keys(b"aaaa", Some(b"c"), b"3")), first);
        let all = digest(b"1").and(digest(b"2")).and(digest(b"3"));
        let grown = reads.get(first).unwrap();
        assert_eq!((grown.read, grown.digest), (Read::Keys(b"aaaa", Some(b"longer")), all));
        assert_eq!(reads.get(other).unwrap().read, Read::Keys(b"x", Some(b"y")));
        // To the end; then nothing lies beside it there.
        assert_eq!(reads.add_beside(Some(first), keys(b"longer", None, b"4")), first);
        assert_eq!(reads.get(first).unwrap().read, Read::Keys(b"aaaa", None));
        // A gap, another tree, another version of the leaf.
        let apart = keys(b"a", Some(b"aa"), b"5");
        let tree = RowRead { tree: 2, ..keys(b"y", Some(b"z"), b"5") };
        let version = LeafVersion { psn: Some(8), ..LEAF };
        let later = RowRead { leaf: version, ..keys(b"y", Some(b"z"), b"5") };
        assert_eq!(reads.add_beside(Some(first), apart), 2);
        assert_eq!(reads.add_beside(Some(other), tree), 3);
        assert_eq!(reads.add_beside(Some(other), later), 4);
        assert_eq!(reads.get(other).unwrap().read, Read::Keys(b"x", Some(b"y")));
    }

    #[test]
    fn a_key_counts_as_read_until_many_others_were() {
        let mut reads = RowReads::default();
        let none = (LeafVersion::NONE, Digest::default());
        reads.add(1, Read::Point(b"k", ColumnsRead::All), none.0, none.1);
        reads.add(1, Read::Keys(b"m", Some(b"p")), none.0, none.1);
        for (tree, key, was_read) in [
            (1, "k", true),
            (2, "k", false),
            (1, "l", false),
            (1, "m", true),
            (1, "o", true),
            (1, "p", false),
        ] {
            assert_eq!(reads.has_read_lately(tree, key.as_bytes()), was_read, "{tree}, {key}");
        }
        for other in 0..LATELY as u64 {
            let key = Read::Point(&other.to_be_bytes(), ColumnsRead::All);
            reads.add(1, key, none.0, none.1);
        }
        assert!(!reads.has_read_lately(1, b"k"), "not all that was read is looked at");
    }

    #[test]
    fn absence_and_values_that_are_alike_differ() {
        let digester = Digester::new(5);
        let all = [None, Some(&b""[..]), Some(b"\0"), Some(b"\0\0"), Some(b"a"), Some(b"a\0")];
        for (at, one) in all.iter().enumerate() {
            for (beside, other) in all.iter().enumerate() {
                let (one, other) = (digester.of_value(*one), digester.of_value(*other));
                assert_eq!(one == other, at == beside);
            }
        }
        assert_ne!(digester.of_value(Some(b"a")), Digester::new(6).of_value(Some(b"a")));
    }
}
