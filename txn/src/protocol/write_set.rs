//! The changes of a transaction that are deferred until it commits: entries of trees that no
//! other transaction sees.
//!
//! Reads ask the write set first. A log of the entries before each change takes changes back: those
//! of an operation that failed, or all since a savepoint.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, Range};

use smallvec::SmallVec;

use crate::protocol::per_tree::PerTree;

/// A key of a changed entry; those of most tables take no memory apart.
type EntryKey = SmallVec<[u8; 24]>;

/// Where the value of an entry is; `None` for an entry that was removed.
type EntryValue = Option<Range<usize>>;

/// A changed entry.
struct ChangedEntry {
    value: EntryValue,
    /// Which [read](crate::protocol::row_reads) has found its leaf, where rows are recorded.
    read: Option<usize>,
}

/// What the write set said of an entry before a change: `None` if it said nothing.
struct EarlierEntry {
    tree: usize,
    /// Where its key is.
    key: Range<usize>,
    before: Option<EntryValue>,
    /// Of an entry that was forgotten: which read has found its leaf.
    read: Option<usize>,
}

/// A change that is deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeferredChange<'a> {
    pub(crate) tree: usize,
    pub(crate) key: &'a [u8],
    /// `None`: the entry is removed.
    pub(crate) value: Option<&'a [u8]>,
    /// Which read has found its leaf, where rows are recorded.
    pub(crate) read: Option<usize>,
}

/// Changed entries, by tree and key, with the log of what was before each change.
#[derive(Default)]
pub(crate) struct WriteSet {
    trees: PerTree<BTreeMap<EntryKey, ChangedEntry>>,
    earlier: Vec<EarlierEntry>,
    /// Keys of the log.
    keys: Vec<u8>,
    /// Values of the changed entries, and of the log, in the order in which they were set.
    values: Vec<u8>,
    /// Bytes of the changed entries, keys included.
    bytes: u64,
    /// Bytes of the entries before the changes, without keys.
    before_bytes: u64,
}

/// What the log and the tree take for each change, at most.
const CHANGE_BYTES: usize =
    size_of::<EarlierEntry>() + size_of::<ChangedEntry>() + size_of::<EntryKey>();

/// Bytes of an entry.
fn entry_bytes(key: &[u8], value: &EntryValue) -> u64 {
    (key.len() + value.as_ref().map_or(0, |value| value.len())) as u64
}

/// Bytes of the value of an entry before a change.
fn value_bytes(before: &Option<EntryValue>) -> u64 {
    before.as_ref().and_then(Option::as_ref).map_or(0, |value| value.len()) as u64
}

/// An entry as a write set has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenEntry<'a> {
    /// The transaction has not changed it: the tree has its value.
    Unchanged,
    Removed,
    /// Added, or changed to this value.
    Present(&'a [u8]),
}

impl WriteSet {
    /// How many changes there were: a mark to go back to.
    pub(crate) fn len(&self) -> usize {
        self.earlier.len()
    }

    /// Bytes of the changed entries, keys included.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the write set takes of the process's memory, about.
    pub(crate) fn memory(&self) -> u64 {
        let log = self.keys.len() + self.earlier.len() * CHANGE_BYTES;
        self.bytes + self.before_bytes + log as u64
    }

    /// The tree of the latest change.
    pub(crate) fn latest_tree(&self) -> Option<usize> {
        self.earlier.last().map(|earlier| earlier.tree)
    }

    /// Whether no entry of a tree was changed.
    pub(crate) fn is_tree_unchanged(&self, tree: usize) -> bool {
        self.trees.get(tree).is_none_or(BTreeMap::is_empty)
    }

    pub(crate) fn get(&self, tree: usize, key: &[u8]) -> WrittenEntry<'_> {
        let entry = self.trees.get(tree).and_then(|tree| tree.get(key));
        self.written(entry.map(|entry| &entry.value))
    }

    /// An entry with this value.
    fn written(&self, entry: Option<&EntryValue>) -> WrittenEntry<'_> {
        match entry {
            None => WrittenEntry::Unchanged,
            Some(None) => WrittenEntry::Removed,
            Some(Some(value)) => WrittenEntry::Present(self.value(value)),
        }
    }

    /// The bytes of a value.
    ///
    /// # Panics
    /// If there are fewer: another value would be written.
    fn value(&self, at: &Range<usize>) -> &[u8] {
        let Some(value) = self.values.get(at.clone()) else {
            panic!("the values end before {at:?}")
        };
        value
    }

    /// Sets an entry, or removes it if there is no value. `read` is the number of the read that has
    /// found its leaf, if this is the first change of the entry and reads are recorded.
    pub(crate) fn set(
        &mut self,
        tree: usize,
        key: &[u8],
        value: Option<&[u8]>,
        read: Option<usize>,
    ) {
        let value = value.map(|value| {
            let start = self.values.len();
            self.values.extend_from_slice(value);
            start..self.values.len()
        });
        let added = entry_bytes(key, &value);
        let before = match self.trees.or_default(tree).entry(EntryKey::from_slice(key)) {
            Entry::Vacant(entry) => {
                entry.insert(ChangedEntry { value, read });
                None
            }
            Entry::Occupied(mut entry) => {
                Some(std::mem::replace(&mut entry.get_mut().value, value))
            }
        };
        self.bytes += added;
        self.bytes -= before.as_ref().map_or(0, |before| entry_bytes(key, before));
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        let key = start..self.keys.len();
        self.push(EarlierEntry { tree, key, before, read: None });
    }

    fn push(&mut self, earlier: EarlierEntry) {
        self.before_bytes += value_bytes(&earlier.before);
        self.earlier.push(earlier);
    }

    /// Forgets all changed entries of these trees, which others replace.
    pub(crate) fn forget_trees(&mut self, is_replaced: impl Fn(usize) -> bool) {
        let replaced = self.trees.iter().map(|(tree, _)| tree).filter(|tree| is_replaced(*tree));
        for tree in replaced.collect::<Vec<_>>() {
            self.forget_tree(tree);
        }
    }

    fn forget_tree(&mut self, tree: usize) {
        for (key, ChangedEntry { value, read }) in std::mem::take(self.trees.or_default(tree)) {
            self.bytes -= entry_bytes(&key, &value);
            let start = self.keys.len();
            self.keys.extend_from_slice(&key);
            let key = start..self.keys.len();
            self.push(EarlierEntry { tree, key, before: Some(value), read });
        }
    }

    /// The changes since there were `mark` of them, oldest first: tree and key, and what the write
    /// set said of the entry before.
    pub(crate) fn entries_since(
        &self,
        mark: usize,
    ) -> impl Iterator<Item = (usize, &[u8], WrittenEntry<'_>)> {
        self.earlier.iter().skip(mark).filter_map(|earlier| {
            let before = self.written(earlier.before.as_ref());
            Some((earlier.tree, self.keys.get(earlier.key.clone())?, before))
        })
    }

    /// Takes the latest changes back until `mark` are left.
    #[expect(clippy::expect_used, reason = "a lost change would break atomicity")]
    pub(crate) fn take_back(&mut self, mark: usize) {
        while self.earlier.len() > mark {
            let Some(earlier) = self.earlier.pop() else { return };
            self.before_bytes -= value_bytes(&earlier.before);
            let EarlierEntry { tree, key: at, before, read } = earlier;
            let key = self.keys.split_off(at.start);
            let entries = self.trees.get_mut(tree).expect("what is taken back was changed");
            let restored = before.as_ref().map_or(0, |before| entry_bytes(&key, before));
            let taken = match before {
                Some(value) => match entries.entry(EntryKey::from_slice(&key)) {
                    Entry::Occupied(mut entry) => {
                        Some(std::mem::replace(&mut entry.get_mut().value, value))
                    }
                    Entry::Vacant(entry) => {
                        entry.insert(ChangedEntry { value, read });
                        None
                    }
                },
                None => entries.remove(&*key).map(|entry| entry.value),
            };
            self.bytes += restored;
            self.bytes -= taken.as_ref().map_or(0, |taken| entry_bytes(&key, taken));
            // Nothing else has the value of a change that is taken back: it was the last to be set.
            if let Some(Some(value)) = taken {
                self.values.truncate(value.start);
            }
        }
    }

    /// The changed entries of a tree from `low` up to, and without, `high`; empty bounds are
    /// infinite.
    pub(crate) fn range<'a>(
        &'a self,
        tree: usize,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], WrittenEntry<'a>)> {
        let high = high.map_or(Bound::Unbounded, Bound::Excluded);
        let is_empty = matches!(high, Bound::Excluded(high) if high <= low);
        let entries = self.trees.get(tree).filter(|_| !is_empty);
        let bounds = (Bound::Included(low), high);
        let found = entries.map(|entries| entries.range::<[u8], _>(bounds));
        let written = |(key, entry): (&'a EntryKey, &'a ChangedEntry)| {
            (&**key, self.written(Some(&entry.value)))
        };
        found.into_iter().flatten().map(written)
    }

    /// All changed entries, tree by tree, in the order of their keys.
    pub(crate) fn all(&self) -> impl Iterator<Item = DeferredChange<'_>> {
        self.trees.iter().flat_map(move |(tree, entries)| {
            entries.iter().map(move |(key, ChangedEntry { value, read })| DeferredChange {
                tree,
                key,
                value: value.as_ref().map(|value| self.value(value)),
                read: *read,
            })
        })
    }

    pub(crate) fn clear(&mut self) {
        self.trees.clear(BTreeMap::clear);
        self.earlier.clear();
        self.keys.clear();
        self.values.clear();
        (self.bytes, self.before_bytes) = (0, 0);
    }

    /// Gives back memory of an empty set beyond so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.keys.shrink_to(bytes);
        self.values.shrink_to(bytes);
        self.earlier.shrink_to(bytes / size_of::<EarlierEntry>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(writes: &WriteSet, low: &[u8], high: Option<&[u8]>) -> Vec<Vec<u8>> {
        writes.range(1, low, high).map(|(key, _)| key.to_vec()).collect()
    }

    #[test]
    fn what_is_set_is_found_and_what_is_taken_back_is_not() {
        let mut writes = WriteSet::default();
        assert!(writes.is_tree_unchanged(1) && writes.get(1, b"a") == WrittenEntry::Unchanged);
        writes.set(1, b"b", Some(b"1"), None);
        writes.set(1, b"d", None, None);
        let mark = writes.len();
        writes.set(1, b"b", Some(b"2"), None);
        writes.set(1, b"c", Some(b"3"), None);
        writes.set(1, b"d", Some(b"4"), None);
        writes.set(0, b"c", None, None);
        assert_eq!(writes.get(1, b"b"), WrittenEntry::Present(b"2"));
        assert_eq!(writes.get(0, b"c"), WrittenEntry::Removed);
        let all: Vec<_> = writes.all().map(|change| (change.tree, change.key[0])).collect();
        assert_eq!(all, [(1, b'b'), (1, b'c'), (1, b'd'), (0, b'c')]);
        assert_eq!(keys(&writes, b"c", None), [b"c", b"d"]);
        assert_eq!(keys(&writes, b"", Some(b"c")), [b"b"]);
        assert!(
            keys(&writes, b"d", Some(b"b")).is_empty()
                && keys(&writes, b"c", Some(b"c")).is_empty()
        );
        writes.take_back(mark);
        assert_eq!(writes.get(1, b"b"), WrittenEntry::Present(b"1"));
        assert_eq!(
            [writes.get(1, b"c"), writes.get(1, b"d")],
            [WrittenEntry::Unchanged, WrittenEntry::Removed]
        );
        assert!(writes.is_tree_unchanged(0));
        writes.take_back(0);
        assert!(writes.is_tree_unchanged(1) && writes.all().next().is_none());
        assert!(writes.values.is_empty() && writes.keys.is_empty());
    }

    #[test]
    fn the_read_that_found_an_entry_first_stays_with_it() {
        let mut writes = WriteSet::default();
        let read = |writes: &WriteSet| writes.all().next().map(|change| change.read);
        writes.set(0, b"a", Some(b"1"), Some(7));
        let mark = writes.len();
        writes.set(0, b"a", Some(b"2"), None);
        assert_eq!(read(&writes), Some(Some(7)));
        writes.take_back(mark);
        assert_eq!((read(&writes), writes.bytes()), (Some(Some(7)), 2));
        writes.take_back(0);
        assert_eq!((read(&writes), writes.bytes()), (None, 0));
    }
}
