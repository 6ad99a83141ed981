//! Changing the entries of held leaves, and why undo always has room.
//!
//! Each change is logged in the undo log together with the change itself, without a suspension
//! point in between.
//!
//! *Why undo always has room.* Undo visits the states of the transaction backwards, splits
//! included, and each of these states has been in that very page, so it fits.

use selkie_btree::{KeyLocation, LeafView, MAX_SPLITS, leaf_insert, leaf_remove, leaf_replace};

use crate::access::leaf::no_stable_leaf;
use crate::catalogue::table_info::IndexInfo;
use crate::encoding::row_mut::RowChanges;
use crate::error::TxnError;
use crate::protocol::undo_log::EntryChange;
use crate::transaction::txn::Txn;

impl Txn<'_> {
    /// Adds an entry to the held leaf that it belongs to and is not in.
    pub(crate) async fn add_at(
        &mut self,
        index: &IndexInfo,
        mut leaf: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        for _ in 0..=MAX_SPLITS {
            self.admit_change()?;
            if leaf_insert(self.work.locks.exclusive_mut(leaf), key, value).is_ok() {
                self.work.locks.note_change(leaf);
                self.work.undo.push(EntryChange::Inserted, leaf, key, &[]);
                return Ok(());
            }
            leaf = self.split(index, leaf, (key, value.len())).await?;
        }
        Err(no_stable_leaf(index))
    }

    /// Stores a row anew that changed its length.
    pub(crate) async fn replace(
        &mut self,
        index: &IndexInfo,
        mut leaf: usize,
        mut slot: usize,
        key: &[u8],
        row: &[u8],
    ) -> Result<(), TxnError> {
        for _ in 0..=MAX_SPLITS {
            self.admit_change()?;
            if self.try_replace(leaf, slot, key, row)? {
                return Ok(());
            }
            leaf = self.split(index, leaf, (key, row.len())).await?;
            let bytes = self.work.locks.bytes(leaf);
            let KeyLocation::Here(Ok(found)) = LeafView::new(bytes)?.where_is(key)? else {
                return Err(no_stable_leaf(index));
            };
            slot = found;
        }
        Err(no_stable_leaf(index))
    }

    fn try_replace(
        &mut self,
        leaf: usize,
        slot: usize,
        key: &[u8],
        row: &[u8],
    ) -> Result<bool, TxnError> {
        let (locks, work) = self.work.parts();
        let guard = locks.exclusive_mut(leaf);
        let view = LeafView::new(guard)?;
        let before = view.underfill();
        work.undo.push(EntryChange::Replaced, leaf, key, view.value(slot)?);
        let is_replaced = leaf_replace(guard, slot, row).is_ok();
        if is_replaced {
            work.has_emptied |= LeafView::new(guard)?.underfill() > before;
            locks.note_shrinking_change(leaf);
        } else {
            work.undo.pop();
        }
        Ok(is_replaced)
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
        self.admit_change()?;
        let (locks, work) = self.work.parts();
        let guard = locks.exclusive_mut(leaf);
        let dirty = changes.dirty.clone();
        let after = &row[dirty.clone()];
        let start = LeafView::new(guard)?.value_range(slot)?.start + dirty.start;
        let target = guard.bytes_mut(start..start + after.len());
        work.undo.push(EntryChange::Patched { offset: dirty.start }, leaf, key, target);
        target.copy_from_slice(after);
        locks.note_change(leaf);
        Ok(())
    }

    /// Removes an entry and logs it.
    pub(crate) fn remove(&mut self, leaf: usize, slot: usize, key: &[u8]) -> Result<(), TxnError> {
        self.admit_change()?;
        let (locks, work) = self.work.parts();
        let guard = locks.exclusive_mut(leaf);
        let view = LeafView::new(guard)?;
        let before = view.underfill();
        work.undo.push(EntryChange::Removed, leaf, key, view.value(slot)?);
        leaf_remove(guard, slot)?;
        work.has_emptied |= LeafView::new(guard)?.underfill() > before;
        locks.note_shrinking_change(leaf);
        Ok(())
    }

    /// Splits a held leaf to make room for a key and its value; both halves are held then. Returns
    /// the one that the key belongs to.
    async fn split(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        (key, value_bytes): (&[u8], usize),
    ) -> Result<usize, TxnError> {
        let engine = &self.db.engine;
        let guard = self.work.locks.exclusive_mut(leaf);
        let image = guard.to_vec();
        // Between the split and its undo record there is no suspension point.
        let (right, post) = index.tree.split_leaf(engine, guard, key, value_bytes).await?;
        let right = self.work.locks.add_made(index.number, right)?;
        self.work.undo.push_split(leaf, right, &image, (index.known, post));
        self.work.locks.note_change(leaf);
        self.work.locks.note_change(right);
        self.count_split();
        self.fit_leaves()?;
        match LeafView::new(self.work.locks.bytes(leaf))?.where_is(key)? {
            KeyLocation::Here(_) => Ok(leaf),
            _ => Ok(right),
        }
    }
}
