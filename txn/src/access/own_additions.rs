//! The entries that a transaction has added to a tree since a cursor was opened there: the cursor
//! does not see them. A statement that moves rows ahead of its own cursor would meet them again
//! and again otherwise (the Halloween problem).
//!
//! The logs of the transaction's changes have what is needed: the first change of an entry since
//! the cursor was opened says whether the entry was there then. A cursor looks at each record once,
//! and keeps what lies ahead of it.

use std::collections::BTreeMap;

use crate::protocol::undo_log::EntryChange;
use crate::protocol::write_set::WrittenEntry;
use crate::transaction::txn::Txn;

/// Whether an entry was there when the cursor was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtOpening {
    There,
    Absent,
    /// As it is in the leaf, which the transaction has not changed.
    AsInLeaf,
}

/// What one transaction has changed in one tree since a cursor was opened.
#[derive(Debug, Default)]
pub(crate) struct OwnAdditions {
    /// How many changes there were when the cursor was opened.
    opened: usize,
    /// How many were looked at.
    seen: usize,
    /// How often the transaction had rolled back to a savepoint then.
    rollbacks: u64,
    changed: BTreeMap<Box<[u8]>, AtOpening>,
}

impl OwnAdditions {
    /// Of a cursor that is opened now.
    pub(crate) fn since_now(txn: &Txn<'_>) -> Self {
        let (opened, rollbacks) = (txn.mark(), txn.cursors.rollbacks());
        Self { opened, seen: opened, rollbacks, changed: BTreeMap::new() }
    }

    /// Whether nothing was changed that lies ahead.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }

    /// Whether an entry was added since. `in_leaf`: its leaf has it.
    pub(crate) fn has(&self, key: &[u8], in_leaf: bool) -> bool {
        match self.changed.get(key) {
            None | Some(AtOpening::There) => false,
            Some(AtOpening::Absent) => true,
            Some(AtOpening::AsInLeaf) => !in_leaf,
        }
    }

    /// Takes note of the changes of a tree that were made since the last call, of those entries
    /// that the cursor has not passed.
    pub(crate) fn follow(&mut self, txn: &Txn<'_>, tree: usize, is_ahead: impl Fn(&[u8]) -> bool) {
        if self.rollbacks != txn.cursors.rollbacks() {
            // Other changes may have taken the places of some that were taken back.
            (self.seen, self.rollbacks) = (self.opened, txn.cursors.rollbacks());
        }
        let mut note = |key: &[u8], at_opening| {
            if is_ahead(key) && !self.changed.contains_key(key) {
                self.changed.insert(key.into(), at_opening);
            }
        };
        if txn.defers_writes() {
            let changes = txn.work.writes.entries_since(self.seen);
            for (_, key, before) in changes.filter(|(of, ..)| *of == tree) {
                note(
                    key,
                    match before {
                        WrittenEntry::Present(_) => AtOpening::There,
                        WrittenEntry::Removed => AtOpening::Absent,
                        WrittenEntry::Unchanged => AtOpening::AsInLeaf,
                    },
                );
            }
        } else {
            let changes = txn.work.undo.entries_since(self.seen);
            let of_tree = |leaf: usize| txn.work.locks.tree_of(leaf) == Some(tree);
            for (change, _, key) in changes.filter(|(_, leaf, _)| of_tree(*leaf)) {
                note(
                    key,
                    match change {
                        EntryChange::Inserted => AtOpening::Absent,
                        _ => AtOpening::There,
                    },
                );
            }
        }
        self.seen = txn.mark();
    }
}
