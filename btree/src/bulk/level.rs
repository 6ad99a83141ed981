//! One level of a tree that is being built: the entries of its rightmost page, and where to cut.

use selkie_engine::ExclusiveGuard;

use crate::page::{self, entry_bytes};

/// Entries in order, one after the other.
#[derive(Default)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// Lengths of key and value.
    lengths: Vec<(usize, usize)>,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.lengths.len()
    }

    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.lengths.push((key.len(), value.len()));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.lengths.iter().map(move |(key, value)| {
            let (key, after) = rest.split_at(*key);
            let (value, after) = after.split_at(*value);
            rest = after;
            (key, value)
        })
    }

    fn last_key(&self) -> Option<&[u8]> {
        let (key, value) = self.lengths.last()?;
        let end = self.bytes.len().checked_sub(*value)?;
        self.bytes.get(end.checked_sub(*key)?..end)
    }

    /// Takes the entries from `at` on out.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        let kept: usize = self.lengths.iter().take(at).map(|(key, value)| key + value).sum();
        Self { bytes: self.bytes.split_off(kept), lengths: self.lengths.split_off(at) }
    }
}

/// One level of a tree that is being built: its rightmost page, which is not written yet.
pub(super) struct Level<'e> {
    pub(super) level: u8,
    /// Where the page goes; `None` for the first of its level, which may become the tree's own.
    pub(super) place: Option<ExclusiveGuard<'e>>,
    pub(super) low: Vec<u8>,
    pub(super) entries: Entries,
    /// Common prefix of the low fence and the last key.
    prefix: usize,
    /// What the entries take with this prefix.
    bytes: usize,
}

impl<'e> Level<'e> {
    pub(super) fn new(level: u8, place: Option<ExclusiveGuard<'e>>, low: Vec<u8>) -> Self {
        Self { level, place, low, entries: Entries::default(), prefix: usize::MAX, bytes: 0 }
    }

    /// As large as the one before it has become.
    pub(super) fn with_room_as(mut self, before: &Entries) -> Self {
        self.entries.bytes.reserve(before.bytes.capacity());
        self.entries.lengths.reserve(before.lengths.capacity());
        self
    }

    /// Bytes of the page with one more entry, and a high fence as long as its key.
    pub(super) fn bytes_with(&mut self, key: &[u8], value: &[u8]) -> usize {
        let prefix = common(&self.low, key).min(self.prefix);
        if prefix != self.prefix {
            self.prefix = prefix;
            let sizes = self.entries.lengths.iter();
            self.bytes =
                sizes.map(|(key, value)| entry_bytes(key.saturating_sub(prefix), *value)).sum();
        }
        let entry = entry_bytes(key.len().saturating_sub(prefix), value.len());
        page::HEADER + self.low.len() + key.len() + self.bytes + entry
    }

    /// Adds an entry that was [sized](Self::bytes_with) just now.
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes += entry_bytes(key.len().saturating_sub(self.prefix), value.len());
        self.entries.push(key, value);
    }

    /// The most of the entries that fit a page if the rest, and `next`, begin another one; with the
    /// fence between them.
    pub(super) fn cut(&self, next: Option<&[u8]>, page_bytes: usize) -> (usize, Vec<u8>) {
        if let (Some(last), Some(next)) = (self.entries.last_key(), next) {
            let high = self.separator(last, next);
            let fences = self.low.len() + high.len();
            // The usual case: all of them, as they were sized.
            let is_as_sized = common(&self.low, &high) == self.prefix;
            if is_as_sized && page::HEADER + fences + self.bytes <= page_bytes {
                return (self.entries.len(), high);
            }
        }
        let keys: Vec<&[u8]> = self.entries.iter().map(|(key, _)| key).collect();
        let mut at = keys.len();
        loop {
            let high = match (at.checked_sub(1).and_then(|last| keys.get(last)), keys.get(at)) {
                (Some(last), Some(first)) => self.separator(last, first),
                (Some(last), None) => next.map_or(Vec::new(), |next| self.separator(last, next)),
                (None, _) => Vec::new(),
            };
            if at <= 1 || self.bytes_of(at, &high) <= page_bytes {
                return (at, high);
            }
            at -= 1;
        }
    }

    /// Bytes of a page with the first entries and this high fence.
    pub(super) fn bytes_of(&self, count: usize, high: &[u8]) -> usize {
        let prefix = common(&self.low, high);
        let sizes = self.entries.lengths.iter().take(count);
        let entries: usize =
            sizes.map(|(key, value)| entry_bytes(key.saturating_sub(prefix), *value)).sum();
        page::HEADER + self.low.len() + high.len() + entries
    }

    /// The shortest separator of two leaves; of inner pages, the first key of the right one.
    fn separator(&self, last: &[u8], first: &[u8]) -> Vec<u8> {
        let len = if self.level == 0 { common(last, first) + 1 } else { first.len() };
        first.iter().take(len).copied().collect()
    }
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
