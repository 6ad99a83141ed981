//! How far a walk over the leaves of a tree has come: what of it can be set aside between two
//! operations of a transaction.

use std::collections::VecDeque;
use std::ops::Range;

use selkie_btree::{Direction, Stamp};

use crate::encoding::key_range::KeyRange;
use crate::protocol::leaf_latch::LeafImage;
use crate::protocol::row_reads::LeafVersion;
use crate::transaction::txn::Txn;

/// The leaf a walk stands on.
pub(super) enum WalkLeaf<'db> {
    /// In the lock set, at this position.
    Held(usize),
    /// Until the walk moves on.
    Image(LeafImage<'db>),
}

/// Where the entry is that a walk has reached.
#[derive(Debug)]
pub(crate) enum EntryPosition {
    /// In this slot of the leaf the walk stands on.
    Slot(usize),
    /// In the write set, under this key.
    WriteSet(Box<[u8]>),
}

/// The part of a leaf that a walk goes over and has not recorded as read.
pub(super) struct Unrecorded {
    pub(super) leaf: LeafVersion,
    /// Its entries.
    pub(super) slots: Range<usize>,
    /// Its keys, of which no other leaf has any.
    pub(super) low: Vec<u8>,
    pub(super) high: Option<Vec<u8>>,
}

/// How far a walk has come.
#[derive(Default)]
pub(crate) struct WalkState<'db> {
    /// The leaf it stands on; `None` before the first, and between two.
    pub(super) leaf_now: Option<WalkLeaf<'db>>,
    /// If the walk has left a leaf: the remaining entries are beyond this key.
    pub(super) passed: Option<Vec<u8>>,
    /// The remaining entries of this leaf.
    pub(super) slots: Range<usize>,
    /// Used instead of `slots` where the transaction has changed entries: the remaining entries of
    /// the leaf and of the write set, in their order.
    pub(super) merged: Option<VecDeque<EntryPosition>>,
    /// Whether no further leaf has entries in the range.
    pub(super) last_leaf: bool,
    /// Where rows are recorded, what is to be.
    pub(super) unrecorded: Option<Unrecorded>,
    /// The number of what was recorded last.
    pub(super) recorded: Option<usize>,
    /// Of which state the leaf is, if the transaction may come to see a later one.
    pub(super) seen: Option<Stamp>,
}

impl<'db> WalkState<'db> {
    /// Of a walk over this range that has not begun.
    pub(crate) fn at_beginning(range: &KeyRange) -> Self {
        Self { last_leaf: range.is_empty(), ..Self::default() }
    }

    /// Of a walk that has come to an entry of this key, and goes on behind it.
    pub(crate) fn behind(key: &[u8], direction: Direction) -> Self {
        let mut passed = key.to_vec();
        if direction == Direction::Forward {
            // The next key.
            passed.push(0);
        }
        Self { passed: Some(passed), ..Self::default() }
    }

    /// Whether the leaf it stands on is of the state that the transaction sees now.
    pub(crate) fn is_of(&self, txn: &Txn<'_>) -> bool {
        self.seen == txn.view.seen()
    }

    /// What can be kept of it until the next operation: its leaf, copied unless it is held to the
    /// end, with the entries that remain. `None` if none do.
    pub(crate) fn set_aside(self) -> Option<WalkState<'static>> {
        let has_entries =
            self.merged.as_ref().map_or(!self.slots.is_empty(), |all| !all.is_empty());
        let leaf_now = match self.leaf_now? {
            WalkLeaf::Held(held) => WalkLeaf::Held(held),
            WalkLeaf::Image(_) if !has_entries => return None,
            WalkLeaf::Image(LeafImage::Latched(guard)) => {
                WalkLeaf::Image(LeafImage::copy_of(&guard))
            }
            WalkLeaf::Image(LeafImage::Copied(leaf)) => WalkLeaf::Image(LeafImage::Copied(leaf)),
        };
        Some(WalkState {
            leaf_now: Some(leaf_now),
            passed: self.passed,
            slots: self.slots,
            merged: self.merged,
            last_leaf: self.last_leaf,
            unrecorded: self.unrecorded,
            recorded: self.recorded,
            seen: self.seen,
        })
    }
}
