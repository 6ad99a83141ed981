//! The undo log: what to do, in reverse order, to take a transaction back.
//!
//! Undo is logical by key: a record names the leaf the change was made in, and if that leaf was
//! split since, the right links lead to where the key is now. All those leaves are held
//! exclusively, so nothing is fetched, nothing is waited for, and nobody saw the change.
//!
//! A record holds only what its kind needs: the key for an insert, key and value for a delete or a
//! replacement, key and the changed bytes for a change in place. Keys and images share one byte
//! arena that is kept for the next transaction.

use std::ops::Range;

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The entry was added: remove it.
    Inserted,
    /// The entry was removed: insert it with the image as value.
    Removed,
    /// The value was replaced: put the image back.
    Replaced,
    /// Bytes of the value, from this offset on, were overwritten: put the image back there.
    Patched {
        /// Offset in the value.
        offset: usize,
    },
}

#[derive(Clone, Debug)]
struct Record {
    change: Change,
    leaf: usize,
    key: Range<usize>,
}

/// One change to take back.
#[derive(Debug)]
pub(crate) struct UndoEntry<'a> {
    pub(crate) change: Change,
    /// Position, among the held leaves, of the leaf the change was made in.
    pub(crate) leaf: usize,
    pub(crate) key: &'a [u8],
    pub(crate) image: &'a [u8],
}

/// The log of one transaction.
#[derive(Debug, Default)]
pub(crate) struct UndoLog {
    records: Vec<Record>,
    bytes: Vec<u8>,
}

impl UndoLog {
    /// How many changes there are: a mark to go back to.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn push(&mut self, change: Change, leaf: usize, key: &[u8], image: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(image);
        self.records.push(Record { change, leaf, key: start..start + key.len() });
    }

    /// The latest change.
    pub(crate) fn last(&self) -> Option<UndoEntry<'_>> {
        let record = self.records.last()?;
        let key = self.bytes.get(record.key.clone())?;
        let image = self.bytes.get(record.key.end..)?;
        Some(UndoEntry { change: record.change, leaf: record.leaf, key, image })
    }

    /// Forgets the latest change.
    pub(crate) fn pop(&mut self) {
        if let Some(record) = self.records.pop() {
            self.bytes.truncate(record.key.start);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_reverse_order() {
        let mut log = UndoLog::default();
        let changes = [
            (Change::Inserted, 3, &b"a"[..], &b""[..]),
            (Change::Removed, 1, b"key", b"value"),
            (Change::Patched { offset: 9 }, 0, b"", b"xy"),
            (Change::Replaced, 2, b"k", b""),
        ];
        for (change, leaf, key, image) in changes {
            log.push(change, leaf, key, image);
        }
        assert_eq!(log.len(), 4);
        for (change, leaf, key, image) in changes.into_iter().rev() {
            let last = log.last().unwrap();
            assert_eq!((last.change, last.leaf, last.key, last.image), (change, leaf, key, image));
            log.pop();
        }
        assert!(log.last().is_none() && log.bytes.is_empty());
    }
}
