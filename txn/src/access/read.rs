//! Reads of a transaction: by key, in ranges, through indexes.

use std::ops::ControlFlow;

use selkie_btree::{Direction, LeafView};
use selkie_engine::GAddr;

use crate::access::leaf::{KeyPosition, LeafRef};
use crate::access::walk::Walk;
use crate::access::walk_state::{EntryPosition, WalkState};
use crate::catalogue::handles::{Index, Source, Table};
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key_range::KeyRange;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::protocol::write_set::WrittenEntry;
use crate::transaction::txn::Txn;

/// Whether a scan goes on.
pub(super) type Flow = Result<ControlFlow<()>, TxnError>;

/// Where a row is; valid until the next operation of the transaction.
pub(crate) enum RowPosition {
    /// In a slot of a leaf.
    Leaf(LeafRef, usize),
    /// In the write set, under this key.
    WriteSet(Box<[u8]>),
}

impl<'db> Txn<'db> {
    /// The row with this primary key. At most one descent and one leaf; nothing is allocated, and
    /// under [`Protocol::TwoPhase`](crate::Protocol::TwoPhase) nothing copied. Under
    /// [`Protocol::Optimistic`](crate::Protocol::Optimistic) it waits for a leaf that is being
    /// changed, under [`Protocol::Timestamp`](crate::Protocol::Timestamp) also for one that others
    /// read; there the first access is one round trip more.
    ///
    /// # Errors
    /// [`TxnError::Conflict`] and the other errors that roll back (see [`TxnError`]);
    /// [`TxnError::KeyMismatch`].
    pub async fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<RowRef<'_>>, TxnError> {
        self.get_in(table, key, LatchMode::Shared).await
    }

    /// As [`get`](Self::get), for a row that will be changed. Under
    /// [`Protocol::TwoPhase`](crate::Protocol::TwoPhase) the leaf is latched exclusively, which
    /// saves the conflict of two readers that both want to write; under
    /// [`Protocol::Optimistic`](crate::Protocol::Optimistic) it has to be the same at commit,
    /// whatever the isolation, and under [`Protocol::Timestamp`](crate::Protocol::Timestamp) it is
    /// stamped.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`TxnError::ReadOnly`].
    pub async fn get_for_update(
        &mut self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.get_in(table, key, LatchMode::Exclusive).await
    }

    /// Shows `visit` every row of a key range, in the order of the table's primary key or of the
    /// index, until it breaks or the range ends. Every leaf crossed stays latched, up to
    /// [a bound](crate::Database::set_latched_reads) (under
    /// [`ReadCommitted`](crate::Isolation::ReadCommitted) and
    /// [`Protocol::Optimistic`](crate::Protocol::Optimistic): one at a time; under
    /// [`Protocol::Timestamp`](crate::Protocol::Timestamp): none). An index scan fetches each row
    /// through the primary key.
    ///
    /// # Errors
    /// As [`get`](Self::get); an error of `visit` ends the scan and is passed on.
    pub async fn scan<F>(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
        direction: Direction,
        mut visit: F,
    ) -> Result<(), TxnError>
    where
        F: FnMut(RowRef<'_>) -> Result<ControlFlow<()>, TxnError> + Send,
    {
        let source = source.into();
        self.open_read()?;
        let info = self.table_info(source.table()).await?;
        let index = info.source(source)?;
        if self.row_locks.insists_to_read() {
            Box::pin(self.insist_on_range(info, index, range)).await?;
        }
        let mut entry = std::mem::take(&mut self.work.entry);
        let result = self.scan_rows(info, index, range, direction, &mut visit, &mut entry).await;
        self.work.entry = entry;
        self.close_read(result).await
    }

    /// Shows `visit` the primary keys of an index range without touching the rows.
    ///
    /// # Errors
    /// As [`scan`](Self::scan).
    pub async fn scan_keys<F>(
        &mut self,
        index: Index,
        range: &KeyRange,
        direction: Direction,
        mut visit: F,
    ) -> Result<(), TxnError>
    where
        F: FnMut(&[u8]) -> Result<ControlFlow<()>, TxnError> + Send,
    {
        self.open_read()?;
        let info = self.table_info(index.table()).await?;
        let index = info.source(index.into())?;
        if self.row_locks.insists_to_read() {
            Box::pin(self.insist_on_range(info, index, range)).await?;
        }
        let mut entry = std::mem::take(&mut self.work.entry);
        let result = self.scan_index(info, index, range, direction, &mut visit, &mut entry).await;
        self.work.entry = entry;
        self.close_read(result).await
    }

    /// The first row of a key range.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn first(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.edge(source.into(), range, Direction::Forward, LatchMode::Shared).await
    }

    /// The last row of a key range.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn last(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.edge(source.into(), range, Direction::Reverse, LatchMode::Shared).await
    }

    /// As [`first`](Self::first), with the row's leaf latched exclusively.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`TxnError::ReadOnly`].
    pub async fn first_for_update(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.edge(source.into(), range, Direction::Forward, LatchMode::Exclusive).await
    }

    /// As [`last`](Self::last), with the row's leaf latched exclusively.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`TxnError::ReadOnly`].
    pub async fn last_for_update(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.edge(source.into(), range, Direction::Reverse, LatchMode::Exclusive).await
    }

    async fn get_in(
        &mut self,
        table: Table,
        key: &[u8],
        mode: LatchMode,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.open_read_for(mode)?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        if self.row_locks.insists_to_read() {
            Box::pin(self.insist_to_read(info, key)).await?;
        }
        if mode == LatchMode::Exclusive {
            self.await_turn(&info.primary, key).await;
        }
        self.view.narrow_to_one_leaf();
        let found = self.find_row_position(info, key, mode, None).await;
        let found = found.and_then(|found| self.with_known_layout(info, found));
        let position = self.close_read(found).await?;
        self.row_if_found(info, position)
    }

    /// Where the row with this primary key is. Its leaf, if it is given, was found under a pin that
    /// the caller holds.
    pub(crate) async fn find_row_position(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        mode: LatchMode,
        leaf: Option<GAddr>,
    ) -> Result<Option<RowPosition>, TxnError> {
        if let Some(written) = self.written_position(info, key) {
            return Ok(written);
        }
        let found = self.find_from(&info.primary, key, mode, leaf).await?;
        self.record_point(&info.primary, key, &found, mode)?;
        let KeyPosition { leaf, slot } = found;
        Ok(slot.ok().map(|slot| RowPosition::Leaf(leaf, slot)))
    }

    /// Where a row is that the transaction has written, or `None` inside if it has removed it;
    /// `None` if it has done neither.
    pub(super) fn written_position(
        &self,
        info: &TableInfo,
        key: &[u8],
    ) -> Option<Option<RowPosition>> {
        match self.work.writes.get(info.primary.number, key) {
            WrittenEntry::Present(_) => Some(Some(RowPosition::WriteSet(key.into()))),
            WrittenEntry::Removed => Some(None),
            WrittenEntry::Unchanged => None,
        }
    }

    /// The first or last row of a key range, by the direction.
    async fn edge(
        &mut self,
        source: Source,
        range: &KeyRange,
        direction: Direction,
        mode: LatchMode,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.open_read_for(mode)?;
        let info = self.table_info(source.table()).await?;
        let index = info.source(source)?;
        if self.row_locks.insists_to_read() {
            Box::pin(self.insist_on_range(info, index, range)).await?;
        }
        let found = self.find_edge(info, index, range, direction, mode).await;
        let found = found.and_then(|found| self.with_known_layout(info, found));
        let position = self.close_read(found).await?;
        self.row_if_found(info, position)
    }

    async fn find_edge(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        range: &KeyRange,
        direction: Direction,
        mode: LatchMode,
    ) -> Result<Option<RowPosition>, TxnError> {
        info.check_range(index, range)?;
        let is_table = index.number == info.primary.number;
        // An index entry leads to the row but is not what will be changed.
        let index_mode = if is_table { mode } else { LatchMode::Shared };
        let mut walk =
            Walk::new(index, range, direction, index_mode, WalkState::at_beginning(range));
        while let Some(at) = walk.next(self).await? {
            if is_table {
                walk.record(self, &at)?;
                return Ok(Some(match at {
                    EntryPosition::Slot(slot) => RowPosition::Leaf(walk.into_leaf(self), slot),
                    EntryPosition::WriteSet(key) => RowPosition::WriteSet(key),
                }));
            }
            walk.record(self, &at)?;
            walk.release_latch();
            let mut entry = std::mem::take(&mut self.work.entry);
            let position = self.follow(info, index, &walk, &at, &mut entry, mode).await;
            self.work.entry = entry;
            if let Some(position) = position? {
                return Ok(Some(position));
            }
        }
        Ok(None)
    }

    pub(crate) async fn scan_rows(
        &mut self,
        info: &'db TableInfo,
        index: &'db IndexInfo,
        range: &KeyRange,
        direction: Direction,
        visit: &mut (dyn FnMut(RowRef<'_>) -> Flow + Send),
        entry: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        info.check_range(index, range)?;
        let mut walk =
            Walk::new(index, range, direction, LatchMode::Shared, WalkState::at_beginning(range));
        self.walk_rows(info, index, &mut walk, LatchMode::Shared, visit, entry).await.map(drop)
    }

    /// Shows `visit` the rows that a walk over a table or an index comes to, until it breaks.
    /// Returns the entry of the row at which it did, on which the walk stands; `None` if the walk
    /// has come to its end. Records what was read up to there. `entry` is a buffer.
    pub(crate) async fn walk_rows(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        walk: &mut Walk<'_, 'db>,
        mode: LatchMode,
        visit: &mut (dyn FnMut(RowRef<'_>) -> Flow + Send),
        entry: &mut Vec<u8>,
    ) -> Result<Option<EntryPosition>, TxnError> {
        let is_table = index.number == info.primary.number;
        while let Some(at) = walk.next(self).await? {
            let flow = if is_table {
                let flow = visit(info.row(walk.value(self, &at)?)?);
                if !matches!(flow, Ok(ControlFlow::Continue(()))) {
                    walk.record(self, &at)?;
                }
                flow?
            } else {
                walk.record(self, &at)?;
                walk.release_latch();
                walk.read_rows_ahead(self, info, mode)?;
                match self.follow(info, index, walk, &at, entry, mode).await? {
                    Some(position) => visit(self.row_at(info, position)?)?,
                    None => ControlFlow::Continue(()),
                }
            };
            if flow.is_break() {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    async fn scan_index(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        range: &KeyRange,
        direction: Direction,
        visit: &mut (dyn FnMut(&[u8]) -> Flow + Send),
        entry: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        info.check_range(index, range)?;
        let mut walk =
            Walk::new(index, range, direction, LatchMode::Shared, WalkState::at_beginning(range));
        let mut visit_entry = |key: &[u8], value: &[u8]| -> Flow {
            visit(index.primary_key(key, value).ok_or_else(|| info.inconsistent(index))?)
        };
        self.walk_entries(&mut walk, &mut visit_entry, entry).await.map(drop)
    }

    /// From an index entry to its row; `None` if the row has changed since the entry was read,
    /// which is no error where reads need not be of one state. `entry` is a buffer.
    #[expect(clippy::indexing_slicing, reason = "the primary key is the end of the entry")]
    async fn follow(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        walk: &Walk<'_, 'db>,
        at: &EntryPosition,
        entry: &mut Vec<u8>,
        mode: LatchMode,
    ) -> Result<Option<RowPosition>, TxnError> {
        self.work.last_read = None;
        let value = walk.value(self, at)?;
        let start = if index.ends_in_primary_key(value) {
            walk.key_into(self, at, entry)?;
            let primary = index.primary_key(entry, &[]).map(<[u8]>::len);
            entry.len() - primary.ok_or_else(|| info.inconsistent(index))?
        } else {
            entry.clear();
            entry.extend_from_slice(value);
            0
        };
        let found = self.find_row_position(info, &entry[start..], mode, None).await?;
        match found {
            None if self.sees_one_state() => {
                Err(self.error_of_valid_reads(info.inconsistent(index)).await)
            }
            Some(position) if !self.sees_one_state() => {
                let row = info.row(self.row_bytes(info, &position)?)?;
                let of_row = index.entry(row, &entry[start..])?.key;
                walk.key_into(self, at, entry)?;
                Ok((of_row[..] == entry[..]).then_some(position))
            }
            found => Ok(found),
        }
    }

    /// The bytes of the row at a position that the current operation has found.
    pub(crate) fn row_bytes(
        &self,
        info: &TableInfo,
        position: &RowPosition,
    ) -> Result<&[u8], TxnError> {
        match position {
            RowPosition::Leaf(leaf, slot) => {
                Ok(LeafView::new(self.leaf_bytes(*leaf))?.value(*slot)?)
            }
            RowPosition::WriteSet(key) => match self.work.writes.get(info.primary.number, key) {
                WrittenEntry::Present(value) => Ok(value),
                WrittenEntry::Removed | WrittenEntry::Unchanged => {
                    unreachable!("no operation changes the write set while another reads it")
                }
            },
        }
    }

    /// The position of a row, unless the definition is older than the row. That may be where each
    /// operation has a view of its own, which may be later than its look at the definition.
    pub(super) fn with_known_layout(
        &self,
        info: &TableInfo,
        position: Option<RowPosition>,
    ) -> Result<Option<RowPosition>, TxnError> {
        if let Some(found) = &position
            && self.view.is_of_operation()
        {
            info.row(self.row_bytes(info, found)?)?;
        }
        Ok(position)
    }

    /// The row at a position, if the current operation has found one. Where changes are deferred,
    /// an operation that finds no row releases the leaf that it read, too: no latch outlives it.
    pub(super) fn row_if_found<'a>(
        &'a mut self,
        info: &'db TableInfo,
        position: Option<RowPosition>,
    ) -> Result<Option<RowRef<'a>>, TxnError> {
        let Some(position) = position else {
            let defers_writes = self.defers_writes();
            self.work.last_read.take_if(|_| defers_writes);
            return Ok(None);
        };
        self.row_at(info, position).map(Some)
    }

    /// The row at a position that the current operation has found.
    fn row_at<'a>(
        &'a mut self,
        info: &'a TableInfo,
        position: RowPosition,
    ) -> Result<RowRef<'a>, TxnError> {
        // Where changes are deferred no latch outlives the operation: the row is copied.
        let must_copy = self.defers_writes();
        let image = self.work.last_read.take_if(|_| must_copy);
        let value = match (&position, image) {
            (RowPosition::Leaf(LeafRef::LastRead, slot), Some(image)) => {
                let leaf = LeafView::new(&image)?;
                self.work.copied_row.clear();
                self.work.copied_row.extend_from_slice(leaf.value(*slot)?);
                &self.work.copied_row
            }
            _ => self.row_bytes(info, &position)?,
        };
        Ok(info.row(value)?)
    }
}
