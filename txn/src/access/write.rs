//! Changes of rows: insert, update, delete, with the entries of every index.
//!
//! An operation first latches and checks, then changes. If it fails after some changes (a duplicate
//! in the third index), its changes are undone and the transaction continues. Under two-phase
//! locking a change is made in its leaf at once ([`leaf_write`](crate::access::leaf_write)); where
//! changes are deferred it is entered in the write set ([`deferred`](crate::access::deferred)).

use selkie_btree::LeafView;

use crate::access::leaf::LeafRef;
use crate::access::row_size::Pointers;
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::{IndexEntry, IndexInfo, TableInfo};
use crate::encoding::key::KeyBuf;
use crate::encoding::moved_values::{MovedValues, ValuePointer};
use crate::encoding::named_row_error::NamedRowError;
#[cfg(doc)]
use crate::encoding::row_error::RowError;
use crate::encoding::row_mut::{RowChanges, RowMut};
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;

/// Where a row is that is to be changed.
#[derive(Clone, Copy)]
enum ChangedRow {
    /// In a slot of the leaf at this position of the lock set.
    Held(usize, usize),
    /// In the write set, or about to be; then with the number of the read that has found it, where
    /// reads are recorded.
    Deferred(Option<usize>),
}

/// A row that is to be changed, as it was found.
struct OpenedRow {
    position: ChangedRow,
    /// To its values that are stored apart.
    pointers: Vec<ValuePointer>,
    moved: MovedValues,
    /// The columns whose values were stored apart and have been read.
    brought_in: u64,
    /// The row itself, if its change is deferred and there are indexes.
    before: Option<Vec<u8>>,
}

impl Txn<'_> {
    /// Inserts a row, made for this table by [`row`](Self::row), or by
    /// [`Database::row`](crate::Database::row) where its columns do not change.
    ///
    /// # Errors
    /// [`TxnError::Duplicate`] if the primary key or a unique index has the key already, naming
    /// which; [`TxnError::RowTooLarge`], [`TxnError::KeyTooLong`]; nothing is inserted then.
    /// [`RowError::Moved`] if the row was read, and has values that were not read with it.
    /// [`TxnError::ForeignRow`] if it was made for another table, or before the columns of this one
    /// were changed; [`TxnError::ReadOnly`]; [`TxnError::Conflict`] and the other errors that roll
    /// back.
    pub async fn insert(&mut self, table: Table, row: RowRef<'_>) -> Result<(), TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        let info = self.table_info(table).await?;
        info.check_whole_row(row)?;
        let mark = self.begin_change();
        let result = self.insert_row(info, row).await;
        self.close_change(mark, result).await
    }

    /// Changes the row with this primary key; `change` sees it and sets columns. Columns of fixed
    /// width are changed in position. Values that are stored apart from the row are not read, and
    /// stay as they are if they are not set. Returns what `change` returns.
    ///
    /// # Errors
    /// [`TxnError::NotFound`]; [`TxnError::Duplicate`] if a unique index has the new key already;
    /// [`TxnError::RowTooLarge`], [`TxnError::KeyTooLong`]; what `change` returns. Nothing is
    /// changed then. [`TxnError::ReadOnly`]; [`TxnError::Conflict`] and the other errors that roll
    /// back.
    pub async fn update<R, F>(&mut self, table: Table, key: &[u8], change: F) -> Result<R, TxnError>
    where
        F: FnOnce(&mut RowMut<'_>) -> Result<R, TxnError> + Send,
        R: Send,
    {
        self.open_read_for(LatchMode::Exclusive)?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        let mark = self.begin_change();
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
        self.open_read_for(LatchMode::Exclusive)?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        let mark = self.begin_change();
        let mut row = std::mem::take(&mut self.work.row);
        let result = self.delete_row(info, key, &mut row).await;
        self.work.row = row;
        self.close_change(mark, result).await
    }

    pub(crate) async fn insert_row(
        &mut self,
        info: &TableInfo,
        row: RowRef<'_>,
    ) -> Result<(), TxnError> {
        let mut primary = KeyBuf::new();
        info.primary.encode(row, &mut primary)?;
        if self.row_locks.insists {
            Box::pin(self.insist_on_row(info, &primary)).await?;
        }
        self.check_key_bytes(info, &info.primary, &primary)?;
        if self.is_in_line(info, &primary, row) {
            self.add(info, &info.primary, &primary, row.as_bytes()).await?;
        } else {
            let stored = Box::pin(self.move_out(info, &primary, row, Pointers::Copied)).await?;
            self.add(info, &info.primary, &primary, &stored).await?;
        }
        for index in &info.indexes {
            let entry = index.entry(row, &primary)?;
            self.check_key_bytes(info, index, &entry.key)?;
            self.add(info, index, &entry.key, entry.value).await?;
        }
        Ok(())
    }

    pub(crate) async fn update_row<R, F>(
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
        let mut opened = self.open_row(info, key, row).await?;
        let moved = std::mem::take(&mut opened.moved);
        let mut row_mut = RowMut::with_moved(&info.layout, row, moved);
        let returned = change(&mut row_mut)?;
        let changed = row_mut.into_changes();
        self.close_row(info, key, row, (opened, changed)).await?;
        Ok(returned)
    }

    /// Finds a row that is to be changed. Of no type parameter, as [`Txn::close_row`]: the two are
    /// compiled once, not for each change that a program makes.
    async fn open_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<OpenedRow, TxnError> {
        if self.row_locks.insists {
            Box::pin(self.insist_on_row(info, key)).await?;
        }
        self.await_turn(&info.primary, key).await;
        let position = self.find_row(info, key, row).await?;
        let pointers = pointers_of(info, row)?;
        let mut moved = info.write_in_last_layout(row)?;
        let mut brought_in = 0;
        if !pointers.is_empty() {
            brought_in = Box::pin(self.bring_in(info, row, &mut moved)).await?;
        }
        // Index entries are made from the row before and after the change.
        let is_deferred = matches!(position, ChangedRow::Deferred(_));
        let before = (is_deferred && !info.indexes.is_empty()).then(|| row.clone());
        Ok(OpenedRow { position, pointers, moved, brought_in, before })
    }

    /// Stores a row that was changed, and removes what it points to no more.
    async fn close_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
        (opened, (mut changes, moved)): (OpenedRow, (RowChanges, MovedValues)),
    ) -> Result<(), TxnError> {
        let OpenedRow { position, pointers, brought_in, before, .. } = opened;
        changes.columns |= brought_in;
        changes.rebuilt |= brought_in != 0;
        let is_stored_anew = changes.columns != 0;
        self.store(info, key, position, before.as_deref(), row, &(changes, moved)).await?;
        if is_stored_anew && !pointers.is_empty() {
            Box::pin(self.remove_unused(info, &pointers, Some(row))).await?;
        }
        Ok(())
    }

    /// Writes a changed row and its index entries. `row` has what was stored then. `before` is the
    /// row as it was, if the change is deferred and there are indexes.
    async fn store(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        position: ChangedRow,
        before: Option<&[u8]>,
        row: &mut Vec<u8>,
        (changes, moved): &(RowChanges, MovedValues),
    ) -> Result<(), TxnError> {
        for index in info.indexes.iter().filter(|index| index.mask & changes.columns != 0) {
            let before = match (position, before) {
                (ChangedRow::Held(leaf, slot), _) => {
                    LeafView::new(self.work.locks.bytes(leaf))?.value(slot)?
                }
                (ChangedRow::Deferred(_), Some(before)) => before,
                (ChangedRow::Deferred(_), None) => unreachable!("the table has an index"),
            };
            let old = index.entry(RowRef::new(&info.layout, before), key)?;
            let new = index.entry(RowRef::with_moved(&info.layout, row, moved), key)?;
            if old.key != new.key {
                self.check_key_bytes(info, index, &new.key)?;
                self.remove_entry(info, index, &old).await?;
                self.add(info, index, &new.key, new.value).await?;
            }
        }
        let changed = RowRef::with_moved(&info.layout, row, moved);
        if changes.columns != 0 && !self.is_in_line(info, key, changed) {
            *row = Box::pin(self.move_out(info, key, changed, Pointers::Kept)).await?;
        }
        match position {
            ChangedRow::Deferred(read) if changes.columns != 0 => {
                self.work.writes.set(info.primary.number, key, Some(row), read);
                Ok(())
            }
            ChangedRow::Held(leaf, slot) if changes.rebuilt => {
                self.replace(&info.primary, leaf, slot, key, row).await
            }
            ChangedRow::Held(leaf, slot) if changes.columns != 0 => {
                self.patch(leaf, slot, key, row, changes)
            }
            ChangedRow::Held(..) | ChangedRow::Deferred(_) => Ok(()),
        }
    }

    pub(crate) async fn delete_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        if self.row_locks.insists {
            Box::pin(self.insist_on_row(info, key)).await?;
        }
        self.await_turn(&info.primary, key).await;
        let position = self.find_row(info, key, row).await?;
        let pointers = pointers_of(info, row)?;
        if !pointers.is_empty() {
            let mut moved = info.write_in_last_layout(row)?;
            Box::pin(self.bring_in(info, row, &mut moved)).await?;
            Box::pin(self.remove_unused(info, &pointers, None)).await?;
        }
        for index in &info.indexes {
            let entry = index.entry(info.row(row)?, key)?;
            self.remove_entry(info, index, &entry).await?;
        }
        match position {
            ChangedRow::Held(leaf, slot) => self.remove(leaf, slot, key),
            ChangedRow::Deferred(read) => {
                self.work.writes.set(info.primary.number, key, None, read);
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
    ) -> Result<ChangedRow, TxnError> {
        if self.defers_writes() {
            return Ok(ChangedRow::Deferred(self.copy_row(info, key, row).await?));
        }
        let found = self.find(&info.primary, key, LatchMode::Exclusive).await?;
        let (LeafRef::Held(leaf), Ok(slot)) = (found.leaf, found.slot) else {
            return Err(self.error_of_valid_reads(info.not_found(key)).await);
        };
        row.clear();
        row.extend_from_slice(LeafView::new(self.work.locks.bytes(leaf))?.value(slot)?);
        Ok(ChangedRow::Held(leaf, slot))
    }

    /// Removes an entry of a secondary index.
    async fn remove_entry(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        entry: &IndexEntry<'_>,
    ) -> Result<(), TxnError> {
        let key = &entry.key;
        if self.defers_writes() {
            return self.defer_remove(info, index, key, entry.value).await;
        }
        let found = self.find(index, key, LatchMode::Exclusive).await?;
        let (LeafRef::Held(leaf), Ok(slot)) = (found.leaf, found.slot) else {
            return Err(self.error_of_valid_reads(info.inconsistent(index)).await);
        };
        self.remove(leaf, slot, key)
    }

    /// Adds an entry to any tree.
    async fn add(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        if self.defers_writes() {
            return self.defer_add(info, index, key, value).await;
        }
        let found = self.find(index, key, LatchMode::Exclusive).await?;
        let (LeafRef::Held(leaf), Err(_)) = (found.leaf, found.slot) else {
            return Err(self.error_of_valid_reads(info.duplicate(index, key)).await);
        };
        self.add_at(index, leaf, key, value).await
    }
}

/// The pointers of a stored row, if it can have any.
#[inline]
fn pointers_of(info: &TableInfo, row: &[u8]) -> Result<Vec<ValuePointer>, NamedRowError> {
    if info.values.is_none() {
        return Ok(Vec::new());
    }
    let layout = info.row(row)?.layout();
    Ok(if layout.has_pointers(row) { layout.pointers(row).collect() } else { Vec::new() })
}
