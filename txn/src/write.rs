//! Changing: insert, update, delete, with the entries of every index. What is kept aside until
//! commit is in [`crate::deferred`].
//!
//! *Order.* An operation first latches and checks, then changes, and logs each change in the same
//! breath. If it fails after some changes (a duplicate in the third index), what it did is undone
//! from the log and the transaction goes on.
//!
//! *Why undo always has room.* Undo visits the states of the transaction backwards. As long as a
//! leaf was not split, each of these states has been in that very page, so it fits. If it was
//! split, the state before, restricted to the range of one half, must fit that half. Its entries
//! do: they are some of those that fitted together, and each takes at most the same space, because
//! a narrower range has a longer common prefix, which is not stored. But the half has another
//! fence, perhaps a longer one. So every insert and every growing update here leaves the room that
//! the longest possible fences of the tree would need ([`IndexInfo::max_key_bytes`], twice), and a
//! removal or a shrinking update splits a leaf first that lacks it; hence any part of any state
//! that undo goes back to fits under any fences. The limit of rows a page holds for a part if it
//! held for the whole.

use selkie_btree::{LeafView, Whereabouts, leaf_insert, leaf_remove, leaf_replace};

use crate::database::Table;
use crate::error::TxnError;
use crate::key::KeyBuf;
use crate::latch::{Leaf, Mode, restless};
use crate::row::RowRef;
use crate::row_write::{Changes, RowMut};
use crate::structure::{IndexInfo, TableInfo};
use crate::transaction::Txn;
use crate::undo::Change;
use crate::upkeep::Upkeep;

/// Splits in a row that may be needed for one entry: each halves the leaf.
const SPLITS: usize = 8;

/// Where a row is that is to be changed.
#[derive(Clone, Copy)]
enum Place {
    /// In the slot of a leaf that is held exclusively.
    Held(usize, usize),
    /// Wherever: what it becomes is kept aside.
    Aside,
}

impl<'db> Txn<'db> {
    /// Inserts a row, made by [`Database::row`](crate::Database::row) for this table.
    ///
    /// # Errors
    /// [`TxnError::Duplicate`] if the primary key or a unique index has the key already, naming
    /// which; nothing is inserted then. [`TxnError::ReadOnly`]; [`TxnError::Conflict`] and the
    /// other errors that roll back.
    pub async fn insert(&mut self, table: Table, row: RowRef<'_>) -> Result<(), TxnError> {
        let info = self.db.table(table)?;
        if !std::ptr::eq(row.layout(), &raw const info.layout) && *row.layout() != info.layout {
            return Err(TxnError::ForeignRow { table: info.schema.name.clone() });
        }
        let mark = self.open_change()?;
        let result = self.insert_row(info, row).await;
        self.close_change(mark, result).await
    }

    /// Changes the row with this primary key; `change` sees it and sets columns. Columns of fixed
    /// width are changed in place. Returns what `change` returns.
    ///
    /// # Errors
    /// [`TxnError::NotFound`]; [`TxnError::Duplicate`] if a unique index has the new key already;
    /// what `change` returns. Nothing is changed then. [`TxnError::ReadOnly`];
    /// [`TxnError::Conflict`] and the other errors that roll back.
    pub async fn update<R, F>(&mut self, table: Table, key: &[u8], change: F) -> Result<R, TxnError>
    where
        F: FnOnce(&mut RowMut<'_>) -> Result<R, TxnError> + Send,
        R: Send,
    {
        let info = self.db.table(table)?;
        info.check_key(&info.primary, key)?;
        let mark = self.open_change()?;
        let mut row = std::mem::take(&mut self.work.row);
        let result = self.update_row(info, key, &mut row, change).await;
        self.work.row = row;
        self.close_change(mark, result).await
    }

    /// Deletes the row with this primary key.
    ///
    /// # Errors
    /// [`TxnError::NotFound`]; [`TxnError::ReadOnly`]; [`TxnError::Conflict`] and the other errors
    /// that roll back.
    pub async fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), TxnError> {
        let info = self.db.table(table)?;
        info.check_key(&info.primary, key)?;
        let mark = self.open_change()?;
        let mut row = std::mem::take(&mut self.work.row);
        let result = self.delete_row(info, key, &mut row).await;
        self.work.row = row;
        self.close_change(mark, result).await
    }

    async fn insert_row(&mut self, info: &TableInfo, row: RowRef<'_>) -> Result<(), TxnError> {
        let mut primary = KeyBuf::new();
        info.primary.encode(row, &mut primary)?;
        self.add(info, &info.primary, &primary, row.as_bytes()).await?;
        for index in &info.indexes {
            let mut key = KeyBuf::new();
            index.encode(row, &mut key)?;
            self.add_entry(info, index, key, &primary).await?;
        }
        Ok(())
    }

    async fn update_row<R, F>(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
        change: F,
    ) -> Result<R, TxnError>
    where
        F: FnOnce(&mut RowMut<'_>) -> Result<R, TxnError> + Send,
        R: Send,
    {
        let place = self.find_row(info, key, row).await?;
        let is_aside = matches!(place, Place::Aside);
        let aside = (is_aside && !info.indexes.is_empty()).then(|| row.clone());
        let mut row_mut = RowMut::new(&info.layout, row);
        let returned = change(&mut row_mut)?;
        let changes = row_mut.into_changes();
        for index in info.indexes.iter().filter(|index| index.mask & changes.columns != 0) {
            let (mut old, mut new) = (KeyBuf::new(), KeyBuf::new());
            let before = match place {
                Place::Held(leaf, slot) => LeafView::new(self.held_bytes(leaf))?.value(slot)?,
                Place::Aside => aside.as_deref().unwrap_or_default(),
            };
            index.encode(RowRef::new(&info.layout, before), &mut old)?;
            index.encode(RowRef::new(&info.layout, row), &mut new)?;
            if old != new {
                self.remove_entry(info, index, old, key).await?;
                self.add_entry(info, index, new, key).await?;
            }
        }
        match place {
            Place::Aside if changes.columns != 0 => {
                self.work.overlay.set(info.primary.number, key, Some(row));
            }
            Place::Held(leaf, slot) if changes.rebuilt => {
                self.replace(&info.primary, leaf, slot, key, row).await?;
            }
            Place::Held(leaf, slot) if changes.columns != 0 => {
                self.patch(leaf, slot, key, row, &changes)?;
            }
            Place::Held(..) | Place::Aside => {}
        }
        Ok(returned)
    }

    async fn delete_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        let place = self.find_row(info, key, row).await?;
        for index in &info.indexes {
            let mut entry = KeyBuf::new();
            index.encode(RowRef::new(&info.layout, row), &mut entry)?;
            self.remove_entry(info, index, entry, key).await?;
        }
        match place {
            Place::Held(leaf, slot) => self.remove(&info.primary, leaf, slot, key).await,
            Place::Aside => {
                self.work.overlay.set(info.primary.number, key, None);
                Ok(())
            }
        }
    }

    /// Finds a row that is to be changed, and copies it.
    async fn find_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<Place, TxnError> {
        if self.defers() {
            self.copy_row(info, key, row).await?;
            return Ok(Place::Aside);
        }
        let found = self.find(&info.primary, key, Mode::Exclusive).await?;
        let (Leaf::Held(leaf), Ok(slot)) = (found.leaf, found.slot) else {
            return Err(info.not_found());
        };
        row.clear();
        row.extend_from_slice(LeafView::new(self.held_bytes(leaf))?.value(slot)?);
        Ok(Place::Held(leaf, slot))
    }

    /// Adds an entry to a secondary index; `key` has the index columns.
    async fn add_entry(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        mut key: KeyBuf,
        primary: &[u8],
    ) -> Result<(), TxnError> {
        if index.unique {
            return self.add(info, index, &key, primary).await;
        }
        key.push_encoded(primary);
        self.add(info, index, &key, &[]).await
    }

    async fn remove_entry(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        mut key: KeyBuf,
        primary: &[u8],
    ) -> Result<(), TxnError> {
        if !index.unique {
            key.push_encoded(primary);
        }
        if self.defers() {
            return self.defer_remove(info, index, &key).await;
        }
        let found = self.find(index, &key, Mode::Exclusive).await?;
        let (Leaf::Held(leaf), Ok(slot)) = (found.leaf, found.slot) else {
            return Err(info.inconsistent(index));
        };
        self.remove(index, leaf, slot, &key).await
    }

    /// Adds an entry to any tree.
    async fn add(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        if self.defers() {
            return self.defer_add(info, index, key, value).await;
        }
        let found = self.find(index, key, Mode::Exclusive).await?;
        let (Leaf::Held(leaf), Err(_)) = (found.leaf, found.slot) else {
            return Err(info.duplicate(index));
        };
        self.add_at(index, leaf, key, value).await
    }

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
        Err(restless(index))
    }

    /// Adds an entry if it leaves the leaf enough room, and logs it.
    fn try_add(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, TxnError> {
        let Some(guard) = self.work.held.exclusive_mut(leaf) else { return Err(restless(index)) };
        if leaf_insert(guard, key, value).is_err() {
            return Ok(false);
        }
        let view = LeafView::new(guard)?;
        if view.len() > 1 && !has_reserve(&view, index) {
            let Whereabouts::Here(Ok(slot)) = view.where_is(key)? else {
                return Err(restless(index));
            };
            leaf_remove(guard, slot)?;
            return Ok(false);
        }
        self.work.undo.push(Change::Inserted, leaf, key, &[]);
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
        Err(restless(index))
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
        let Some(guard) = work.held.exclusive_mut(leaf) else { return Err(restless(index)) };
        let mark = work.undo.len();
        let before = LeafView::new(guard)?.value(slot)?;
        let grows = row.len() > before.len();
        work.undo.push(Change::Replaced, leaf, key, before);
        if leaf_replace(guard, slot, row).is_err() {
            work.undo.pop();
            return Ok(false);
        }
        let view = LeafView::new(guard)?;
        if grows && view.len() > 1 && !has_reserve(&view, index) {
            crate::rollback::undo_to(work, mark);
            return Ok(false);
        }
        Ok(true)
    }

    /// Overwrites the bytes of a row that changed.
    fn patch(
        &mut self,
        leaf: usize,
        slot: usize,
        key: &[u8],
        row: &[u8],
        changes: &Changes,
    ) -> Result<(), TxnError> {
        let work = &mut self.work;
        let dirty = changes.dirty.clone();
        let (Some(guard), Some(after)) = (work.held.exclusive_mut(leaf), row.get(dirty.clone()))
        else {
            return Ok(());
        };
        let start = LeafView::new(guard)?.value_range(slot)?.start + dirty.start;
        let target = guard.bytes_mut(start..start + after.len());
        work.undo.push(Change::Patched { offset: dirty.start }, leaf, key, target);
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
        let guard = work.held.exclusive_mut(leaf).ok_or_else(|| restless(index))?;
        work.undo.push(Change::Removed, leaf, key, LeafView::new(guard)?.value(slot)?);
        leaf_remove(guard, slot)?;
        work.removed = true;
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
            let view = LeafView::new(self.held_bytes(leaf))?;
            if view.len() == 1 || has_reserve(&view, index) {
                return Ok((leaf, slot));
            }
            (leaf, slot) = self.split_at(index, leaf, key).await?;
        }
        Err(restless(index))
    }

    /// Splits a held leaf and finds `key`, which is in it, again.
    async fn split_at(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        key: &[u8],
    ) -> Result<(usize, usize), TxnError> {
        let leaf = self.split(index, leaf, key).await?;
        match LeafView::new(self.held_bytes(leaf))?.where_is(key)? {
            Whereabouts::Here(Ok(slot)) => Ok((leaf, slot)),
            _ => Err(restless(index)),
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
        let Some(guard) = self.work.held.exclusive_mut(leaf) else { return Err(restless(index)) };
        // Linking the new leaf and handing over its guard happen without a suspension point
        // between.
        let (right, post) = index.tree.split_leaf(engine, guard, key).await?;
        let addr = right.addr();
        let right = self.work.held.add(index.number, addr, crate::held::Latch::Exclusive(right));
        self.work.upkeep.push(Upkeep::Post(index.tree, post));
        self.count_split();
        match LeafView::new(self.held_bytes(leaf))?.where_is(key)? {
            Whereabouts::Here(_) => Ok(leaf),
            _ => Ok(right),
        }
    }
}

/// Whether the leaf's free bytes suffice for the longest fences the tree can have.
fn has_reserve(leaf: &LeafView<'_>, index: &IndexInfo) -> bool {
    let fences = leaf.low_fence().len() + leaf.high_fence().map_or(0, <[u8]>::len);
    leaf.free_bytes() + fences >= 2 * index.max_key_bytes
}
