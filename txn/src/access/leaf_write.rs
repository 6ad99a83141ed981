//! Changing the entries of held leaves, and why undo always has room.
//!
//! Each change is logged in the undo log together with the change itself, without a suspension
//! point in between.
//!
//! *Why undo always has room.* Undo visits the states of the transaction backwards. As long as a
//! leaf was not split, each of these states has been in that very page, so it fits. If it was
//! split, the state before, restricted to the range of one half, must fit that half. Its entries
//! do: they are some of those that fitted together, and each takes at most the same space, because
//! a narrower range has a longer common prefix, which is not stored. But the half has another
//! fence, perhaps a longer one. So every insert and every growing update here leaves the room that
//! the longest possible fences of the tree would need ([`IndexInfo::max_key_bytes`], twice), and a
//! removal or a shrinking update splits a leaf first that lacks it; hence any part of any state
//! that undo returns to fits under any fences. The limit of rows on a page holds for a part if it
//! held for the whole.

use selkie_btree::{KeyLocation, LeafView, leaf_insert, leaf_remove, leaf_replace};

use crate::access::leaf::no_stable_leaf;
use crate::catalogue::table_info::IndexInfo;
use crate::encoding::row_mut::RowChanges;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LeafLatch;
use crate::protocol::undo_log::EntryChange;
use crate::transaction::maintenance::MaintenanceTask;
use crate::transaction::txn::Txn;

/// Splits in a row that may be needed for one entry: each halves the leaf.
const SPLITS: usize = 8;

impl Txn<'_> {
    /// Adds an entry to the held leaf that it belongs to and is not in.
    pub(crate) async fn add_at(
        &mut self,
        index: &IndexInfo,
        mut leaf: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        for _ in 0..SPLITS {
            if self.try_add(index, leaf, key, value)? {
                return Ok(());
            }
            leaf = self.split(index, leaf, key).await?;
        }
        Err(no_stable_leaf(index))
    }

    /// Adds an entry if it leaves the leaf enough room, and logs it.
    fn try_add(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, TxnError> {
        let guard = self.work.locks.exclusive_mut(leaf);
        if leaf_insert(guard, key, value).is_err() {
            return Ok(false);
        }
        let view = LeafView::new(guard)?;
        if view.len() > 1 && !has_reserve(&view, index) {
            let KeyLocation::Here(Ok(slot)) = view.where_is(key)? else {
                return Err(no_stable_leaf(index));
            };
            leaf_remove(guard, slot)?;
            return Ok(false);
        }
        self.work.undo.push(EntryChange::Inserted, leaf, key, &[]);
        Ok(true)
    }

    /// Stores a row anew that changed its length.
    pub(crate) async fn replace(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        slot: usize,
        key: &[u8],
        row: &[u8],
    ) -> Result<(), TxnError> {
        let (mut leaf, mut slot) = self.with_reserve(index, leaf, slot, key).await?;
        for _ in 0..SPLITS {
            if self.try_replace(index, leaf, slot, key, row)? {
                return Ok(());
            }
            (leaf, slot) = self.split_at(index, leaf, key).await?;
        }
        Err(no_stable_leaf(index))
    }

    fn try_replace(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        slot: usize,
        key: &[u8],
        row: &[u8],
    ) -> Result<bool, TxnError> {
        let work = &mut self.work;
        let guard = work.locks.exclusive_mut(leaf);
        let mark = work.undo.len();
        let before = LeafView::new(guard)?.value(slot)?;
        let grows = row.len() > before.len();
        work.undo.push(EntryChange::Replaced, leaf, key, before);
        if leaf_replace(guard, slot, row).is_err() {
            work.undo.pop();
            return Ok(false);
        }
        let view = LeafView::new(guard)?;
        if grows && view.len() > 1 && !has_reserve(&view, index) {
            work.undo_to(mark);
            return Ok(false);
        }
        Ok(true)
    }

    /// Overwrites the bytes of a row that changed.
    #[expect(clippy::indexing_slicing, reason = "the dirty bytes are bytes of the row")]
    pub(super) fn patch(
        &mut self,
        leaf: usize,
        slot: usize,
        key: &[u8],
        row: &[u8],
        changes: &RowChanges,
    ) -> Result<(), TxnError> {
        let work = &mut self.work;
        let guard = work.locks.exclusive_mut(leaf);
        let dirty = changes.dirty.clone();
        let after = &row[dirty.clone()];
        let start = LeafView::new(guard)?.value_range(slot)?.start + dirty.start;
        let target = guard.bytes_mut(start..start + after.len());
        work.undo.push(EntryChange::Patched { offset: dirty.start }, leaf, key, target);
        target.copy_from_slice(after);
        Ok(())
    }

    /// Removes an entry and logs it.
    pub(crate) async fn remove(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        slot: usize,
        key: &[u8],
    ) -> Result<(), TxnError> {
        let (leaf, slot) = self.with_reserve(index, leaf, slot, key).await?;
        let work = &mut self.work;
        let guard = work.locks.exclusive_mut(leaf);
        work.undo.push(EntryChange::Removed, leaf, key, LeafView::new(guard)?.value(slot)?);
        leaf_remove(guard, slot)?;
        work.has_removed = true;
        Ok(())
    }

    /// Splits the leaf until undo has room for what is about to be taken from the entry at `slot`.
    /// Leaves that were only ever changed here have it; those that absorbed a neighbour may not.
    async fn with_reserve(
        &mut self,
        index: &IndexInfo,
        mut leaf: usize,
        mut slot: usize,
        key: &[u8],
    ) -> Result<(usize, usize), TxnError> {
        for _ in 0..SPLITS {
            let view = LeafView::new(self.work.locks.bytes(leaf))?;
            if view.len() == 1 || has_reserve(&view, index) {
                return Ok((leaf, slot));
            }
            (leaf, slot) = self.split_at(index, leaf, key).await?;
        }
        Err(no_stable_leaf(index))
    }

    /// Splits a held leaf and finds `key`, which is in it, again.
    async fn split_at(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        key: &[u8],
    ) -> Result<(usize, usize), TxnError> {
        let leaf = self.split(index, leaf, key).await?;
        match LeafView::new(self.work.locks.bytes(leaf))?.where_is(key)? {
            KeyLocation::Here(Ok(slot)) => Ok((leaf, slot)),
            _ => Err(no_stable_leaf(index)),
        }
    }

    /// Splits a held leaf to make room for `key`; both halves are held then. Returns the one that
    /// `key` belongs to.
    async fn split(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        key: &[u8],
    ) -> Result<usize, TxnError> {
        let engine = &self.db.engine;
        let guard = self.work.locks.exclusive_mut(leaf);
        // Between linking the new leaf and adding it to the lock set there is no suspension point.
        let (right, post) = index.tree.split_leaf(engine, guard, key).await?;
        let addr = right.addr();
        let right = self.work.locks.add(index.number, addr, LeafLatch::Exclusive(right));
        self.work.maintenance.push(MaintenanceTask::PostSeparator(index.tree, post));
        self.count_split();
        match LeafView::new(self.work.locks.bytes(leaf))?.where_is(key)? {
            KeyLocation::Here(_) => Ok(leaf),
            _ => Ok(right),
        }
    }
}

/// Whether the leaf's free bytes suffice for the longest fences the tree can have.
fn has_reserve(leaf: &LeafView<'_>, index: &IndexInfo) -> bool {
    let fences = leaf.low_fence().len() + leaf.high_fence().map_or(0, <[u8]>::len);
    leaf.free_bytes() + fences >= 2 * index.max_key_bytes
}
