//! What a transaction that insists wants to lock, for its next attempt
//! ([`insist`](crate::access::insist)).

use std::collections::{BTreeMap, BTreeSet};

use crate::encoding::key_range::KeyRange;

/// What one that insists wants to lock, by the numbers of trees: first ranges, then rows.
#[derive(Default)]
pub(crate) struct WantedLocks {
    pub(crate) ranges: BTreeMap<usize, KeyRange>,
    pub(crate) rows: BTreeSet<(usize, Box<[u8]>)>,
    /// They are of an attempt before, and not locked yet.
    pub(crate) are_ahead: bool,
}

impl WantedLocks {
    /// The same, for the next attempt.
    pub(crate) fn ahead(mut self) -> Self {
        self.are_ahead = !self.ranges.is_empty() || !self.rows.is_empty();
        self
    }

    /// The same, now that they are locked.
    pub(crate) fn locked(mut self) -> Self {
        self.are_ahead = false;
        self
    }

    /// There are as few as a transaction that insists locks one by one.
    pub(crate) fn add_row(&mut self, tree: usize, key: &[u8]) {
        self.rows.insert((tree, key.into()));
    }

    /// Of a tree all ranges are one, from the first to the last.
    pub(crate) fn add_range(&mut self, tree: usize, range: &KeyRange) {
        match self.ranges.get_mut(&tree) {
            Some(wanted) => *wanted = wanted.hull(range),
            None => drop(self.ranges.insert(tree, range.clone())),
        }
    }
}
