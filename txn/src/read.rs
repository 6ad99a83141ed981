//! Reading: by key, in ranges, through indexes.

use std::ops::ControlFlow;

use selkie_btree::{Direction, LeafView};

use crate::cursor::Cursor;
use crate::database::{Index, Source, Table};
use crate::error::TxnError;
use crate::key::KeyRange;
use crate::latch::{Found, Leaf, Mode};
use crate::row::RowRef;
use crate::structure::{IndexInfo, TableInfo};
use crate::transaction::Txn;

/// Where a row is: valid until the next operation of the transaction.
type Place = (Leaf, usize);

impl<'db> Txn<'db> {
    /// The row with this primary key. At most one descent and one leaf; nothing is copied or allocated.
    ///
    /// # Errors
    /// [`TxnError::Conflict`] and the other errors that roll back (see [`TxnError`]);
    /// [`TxnError::KeyMismatch`].
    pub async fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<RowRef<'_>>, TxnError> {
        self.get_in(table, key, Mode::Shared).await
    }

    /// As [`get`](Self::get), with the leaf latched exclusively: for a row that will be changed. Saves
    /// the conflict of two readers that both want to write.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn get_for_update(
        &mut self,
        table: Table,
        key: &[u8],
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.get_in(table, key, Mode::Exclusive).await
    }

    /// Shows `visit` every row of a key range, in the order of the table's primary key or of the index,
    /// until it breaks or the range ends. Every leaf crossed stays latched (under
    /// [`ReadCommitted`](crate::Isolation::ReadCommitted): one at a time). An index scan fetches each
    /// row through the primary key.
    ///
    /// # Errors
    /// As [`get`](Self::get); an error of `visit` ends the scan and is passed on.
    pub async fn scan<F>(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
        direction: Direction,
        visit: F,
    ) -> Result<(), TxnError>
    where
        F: FnMut(RowRef<'_>) -> Result<ControlFlow<()>, TxnError> + Send,
    {
        let source = source.into();
        self.open_read()?;
        let mut entry = std::mem::take(&mut self.work.entry);
        let result = self.scan_rows(source, range, direction, visit, &mut entry).await;
        self.work.entry = entry;
        self.close_read(result)
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
        visit: F,
    ) -> Result<(), TxnError>
    where
        F: FnMut(&[u8]) -> Result<ControlFlow<()>, TxnError> + Send,
    {
        self.open_read()?;
        let mut entry = std::mem::take(&mut self.work.entry);
        let result = self.scan_index(index, range, direction, visit, &mut entry).await;
        self.work.entry = entry;
        self.close_read(result)
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
        self.edge(source.into(), range, Direction::Forward, Mode::Shared).await
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
        self.edge(source.into(), range, Direction::Reverse, Mode::Shared).await
    }

    /// As [`first`](Self::first), with the row's leaf latched exclusively.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn first_for_update(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.edge(source.into(), range, Direction::Forward, Mode::Exclusive).await
    }

    /// As [`last`](Self::last), with the row's leaf latched exclusively.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub async fn last_for_update(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        self.edge(source.into(), range, Direction::Reverse, Mode::Exclusive).await
    }

    async fn get_in(
        &mut self,
        table: Table,
        key: &[u8],
        mode: Mode,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        let info = self.db.table(table)?;
        self.open_read()?;
        info.check_key(&info.primary, key)?;
        let found = self.find(&info.primary, key, mode).await;
        let Found { leaf, slot } = self.close_read(found)?;
        self.row_at(info, slot.ok().map(|slot| (leaf, slot)))
    }

    async fn edge(
        &mut self,
        source: Source,
        range: &KeyRange,
        direction: Direction,
        mode: Mode,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        let (info, index) = self.db.source(source)?;
        self.open_read()?;
        let place = self.find_edge(info, index, range, direction, mode).await;
        let place = self.close_read(place)?;
        self.row_at(info, place)
    }

    async fn find_edge(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        range: &KeyRange,
        direction: Direction,
        mode: Mode,
    ) -> Result<Option<Place>, TxnError> {
        info.check_prefix(index, range.low())?;
        let is_table = index.number == info.primary.number;
        // An index entry leads to the row but is not what will be changed.
        let index_mode = if is_table { mode } else { Mode::Shared };
        let mut cursor = Cursor::new(index, range, direction, index_mode);
        let Some(slot) = cursor.next(self).await? else { return Ok(None) };
        if is_table {
            return Ok(cursor.into_leaf(self).map(|leaf| (leaf, slot)));
        }
        let mut entry = std::mem::take(&mut self.work.entry);
        let place = self.follow(info, index, &cursor, slot, &mut entry, mode).await;
        self.work.entry = entry;
        place.map(Some)
    }

    async fn scan_rows(
        &mut self,
        source: Source,
        range: &KeyRange,
        direction: Direction,
        mut visit: impl FnMut(RowRef<'_>) -> Result<ControlFlow<()>, TxnError> + Send,
        entry: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        let (info, index) = self.db.source(source)?;
        info.check_prefix(index, range.low())?;
        let is_table = index.number == info.primary.number;
        let mut cursor = Cursor::new(index, range, direction, Mode::Shared);
        while let Some(slot) = cursor.next(self).await? {
            let flow = if is_table {
                let value = LeafView::new(cursor.bytes(self))?.value(slot)?;
                visit(RowRef::new(&info.layout, value))?
            } else {
                let place = self.follow(info, index, &cursor, slot, entry, Mode::Shared).await?;
                match self.row_at(info, Some(place))? {
                    Some(row) => visit(row)?,
                    None => ControlFlow::Continue(()),
                }
            };
            if flow.is_break() {
                break;
            }
        }
        Ok(())
    }

    async fn scan_index(
        &mut self,
        index: Index,
        range: &KeyRange,
        direction: Direction,
        mut visit: impl FnMut(&[u8]) -> Result<ControlFlow<()>, TxnError> + Send,
        entry: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        let (info, index) = self.db.source(index.into())?;
        info.check_prefix(index, range.low())?;
        let mut cursor = Cursor::new(index, range, direction, Mode::Shared);
        while let Some(slot) = cursor.next(self).await? {
            let leaf = LeafView::new(cursor.bytes(self))?;
            leaf.key_into(slot, entry)?;
            let primary = index.primary_key(entry, leaf.value(slot)?);
            if visit(primary.ok_or_else(|| info.inconsistent(index))?)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// From an index entry to its row. `entry` is scratch memory.
    async fn follow(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        cursor: &Cursor<'_, 'db>,
        slot: usize,
        entry: &mut Vec<u8>,
        mode: Mode,
    ) -> Result<Place, TxnError> {
        self.work.transient = None;
        let leaf = LeafView::new(cursor.bytes(self))?;
        let at = if index.unique {
            entry.clear();
            entry.extend_from_slice(leaf.value(slot)?);
            0
        } else {
            leaf.key_into(slot, entry)?;
            let primary = index.primary_key(entry, &[]).map(<[u8]>::len);
            entry.len() - primary.ok_or_else(|| info.inconsistent(index))?
        };
        let found = self.find(&info.primary, entry.get(at..).unwrap_or_default(), mode).await?;
        let slot = found.slot.map_err(|_| info.inconsistent(index))?;
        Ok((found.leaf, slot))
    }

    fn row_at<'a>(
        &'a self,
        info: &'db TableInfo,
        place: Option<Place>,
    ) -> Result<Option<RowRef<'a>>, TxnError> {
        let Some((leaf, slot)) = place else { return Ok(None) };
        let value = LeafView::new(self.leaf_bytes(leaf))?.value(slot)?;
        Ok(Some(RowRef::new(&info.layout, value)))
    }
}
