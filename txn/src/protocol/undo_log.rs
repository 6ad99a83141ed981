//! The undo log: what to do, in reverse order, to take a transaction's changes back.
//!
//! Undo is logical by key, within the leaf the change was made in. A split is a change too: its
//! record has the whole page as it was before, and undo frees the right half. So each state that
//! undo returns to has been in that very page, and fits. All those leaves are held exclusively, so
//! undo fetches nothing, waits for nothing and cannot fail, and no other transaction saw the
//! change.
//!
//! A record holds only what its kind needs: the key for an insert, key and value for a delete or a
//! replacement, key and the changed bytes for a change in place, the page for a split. Keys and
//! images share one byte arena that is kept for the next transaction.

use std::ops::Range;

use selkie_btree::{
    KeyLocation, LeafView, PendingPost, give_back_new, leaf_insert, leaf_remove, leaf_replace,
};
use selkie_engine::Engine;

use crate::catalogue::known_tree::KnownTree;
use crate::protocol::lock_set::LockSet;

/// What an operation did to an entry, and what undo does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryChange {
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
    /// The leaf was split: free the right half and put the page back.
    Split,
}

/// A split that a transaction made and has not undone.
#[derive(Debug)]
pub(crate) struct MadeSplit {
    /// Position of the right half in the lock set.
    right: usize,
    /// What is to be posted when the transaction commits, and the tree.
    pub(crate) post: (KnownTree, PendingPost),
}

#[derive(Clone, Debug)]
struct UndoRecord {
    change: EntryChange,
    leaf: usize,
    key: Range<usize>,
}

/// One change to undo.
#[derive(Debug)]
pub(crate) struct UndoEntry<'a> {
    pub(crate) change: EntryChange,
    /// Position, among the held leaves, of the leaf the change was made in.
    pub(crate) leaf: usize,
    pub(crate) key: &'a [u8],
    pub(crate) image: &'a [u8],
}

/// The log of one transaction.
#[derive(Debug, Default)]
pub(crate) struct UndoLog {
    records: Vec<UndoRecord>,
    bytes: Vec<u8>,
    /// One for each record of a split, in their order.
    splits: Vec<MadeSplit>,
}

impl UndoLog {
    /// How many changes there are: a mark to go back to.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// The position, among the held leaves, of the leaf that was changed last.
    pub(crate) fn latest_leaf(&self) -> Option<usize> {
        self.records.last().map(|record| record.leaf)
    }

    /// What the log takes of the process's memory, about.
    pub(crate) fn memory(&self) -> u64 {
        let records = self.records.len() * size_of::<UndoRecord>();
        (self.bytes.len() + records + self.splits.len() * size_of::<MadeSplit>()) as u64
    }

    pub(crate) fn push(&mut self, change: EntryChange, leaf: usize, key: &[u8], image: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(image);
        self.records.push(UndoRecord { change, leaf, key: start..start + key.len() });
    }

    /// Adds a split: `image` is the page before.
    pub(crate) fn push_split(
        &mut self,
        left: usize,
        right: usize,
        image: &[u8],
        post: (KnownTree, PendingPost),
    ) {
        self.push(EntryChange::Split, left, &[], image);
        self.splits.push(MadeSplit { right, post });
    }

    /// Takes out the splits that were not undone: the transaction has committed.
    pub(crate) fn take_splits(&mut self) -> impl Iterator<Item = MadeSplit> + '_ {
        self.splits.drain(..)
    }

    /// The changes of entries since there were `mark` of them, oldest first: what was done, the
    /// position of the leaf, and the key.
    pub(crate) fn entries_since(
        &self,
        mark: usize,
    ) -> impl Iterator<Item = (EntryChange, usize, &[u8])> {
        let records = self.records.iter().skip(mark);
        let entries = records.filter(|record| record.change != EntryChange::Split);
        entries.filter_map(|record| {
            Some((record.change, record.leaf, self.bytes.get(record.key.clone())?))
        })
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

    /// Takes the latest changes back until `mark` are left.
    ///
    /// # Panics
    /// If a held leaf is not in the state that the log describes, so its bytes were damaged
    /// meanwhile: half a transaction would become visible.
    pub(crate) fn undo_to(&mut self, engine: &Engine, locks: &mut LockSet<'_>, mark: usize) {
        while self.len() > mark {
            let Some(entry) = self.last() else { panic!("a record without its bytes") };
            let (change, leaf) = (entry.change, entry.leaf);
            let reverted = revert(locks, &entry);
            assert!(
                reverted.is_some(),
                "undo of {change:?} found another leaf than the one it left"
            );
            // Undo may have moved other rows of the page.
            locks.note_change(leaf);
            self.pop();
            if change == EntryChange::Split {
                let split = self.splits.pop();
                let Some(right) = split.and_then(|split| locks.take_made(split.right)) else {
                    panic!("the right half of a split is not held");
                };
                give_back_new(engine, right);
            }
        }
    }

    /// Gives back memory of an empty log beyond so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        self.bytes.shrink_to(bytes);
        self.records.shrink_to(bytes / size_of::<UndoRecord>());
        self.splits.shrink_to(bytes / size_of::<MadeSplit>());
    }

    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.bytes.clear();
        self.splits.clear();
    }
}

/// Takes one change back in its leaf; `None` if that is impossible.
fn revert(locks: &mut LockSet<'_>, entry: &UndoEntry<'_>) -> Option<()> {
    let guard = locks.exclusive_mut(entry.leaf);
    if entry.change == EntryChange::Split {
        let page = guard.bytes_mut(0..entry.image.len());
        page.copy_from_slice(entry.image);
        return Some(());
    }
    let KeyLocation::Here(slot) = LeafView::new(guard).ok()?.where_is(entry.key).ok()? else {
        return None;
    };
    match (entry.change, slot) {
        (EntryChange::Inserted, Ok(slot)) => leaf_remove(guard, slot).ok(),
        (EntryChange::Removed, Err(_)) => leaf_insert(guard, entry.key, entry.image).ok(),
        (EntryChange::Replaced, Ok(slot)) => leaf_replace(guard, slot, entry.image).ok(),
        (EntryChange::Patched { offset }, Ok(slot)) => {
            let start = LeafView::new(guard).ok()?.value_range(slot).ok()?.start + offset;
            guard.bytes_mut(start..start + entry.image.len()).copy_from_slice(entry.image);
            Some(())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_reverse_order() {
        let mut log = UndoLog::default();
        let changes = [
            (EntryChange::Inserted, 3, &b"a"[..], &b""[..]),
            (EntryChange::Removed, 1, b"key", b"value"),
            (EntryChange::Patched { offset: 9 }, 0, b"", b"xy"),
            (EntryChange::Replaced, 2, b"k", b""),
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
