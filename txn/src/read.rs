//! Reading: by key, in ranges, through indexes.

use std::ops::ControlFlow;

use selkie_btree::{Direction, LeafView};

use crate::cursor::{At, Cursor};
use crate::database::{Index, Source, Table};
use crate::error::TxnError;
use crate::key::KeyRange;
use crate::latch::{Found, Leaf, Mode};
use crate::overlay::Own;
use crate::row::RowRef;
use crate::structure::{IndexInfo, TableInfo};
use crate::transaction::Txn;

/// Where a row is: valid until the next operation of the transaction.
enum Place {
    Leaf(Leaf, usize),
    /// Kept aside by the transaction itself, under this key.
    Own(Box<[u8]>),
}

impl<'db> Txn<'db> {
    /// The row with this primary key. At most one descent and one leaf; nothing is allocated, and
    /// under [`Protocol::TwoPhase`](crate::Protocol::TwoPhase) nothing copied. Under
    /// [`Protocol::Optimistic`](crate::Protocol::Optimistic) waits for a leaf that is about to be
    /// changed, under [`Protocol::Timestamp`](crate::Protocol::Timestamp) for one that others read;
    /// there the first access is one round trip more.
    ///
    /// # Errors
    /// [`TxnError::Conflict`] and the other errors that roll back (see [`TxnError`]);
    /// [`TxnError::KeyMismatch`].
    pub async fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<RowRef<'_>>, TxnError> {
        self.get_in(table, key, Mode::Shared).await
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
        self.get_in(table, key, Mode::Exclusive).await
    }

    /// Shows `visit` every row of a key range, in the order of the table's primary key or of the
    /// index, until it breaks or the range ends. Every leaf crossed stays latched (under
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
        visit: F,
    ) -> Result<(), TxnError>
    where
        F: FnMut(&[u8]) -> Result<ControlFlow<()>, TxnError> + Send,
    {
        self.open_read()?;
        let mut entry = std::mem::take(&mut self.work.entry);
        let result = self.scan_index(index, range, direction, visit, &mut entry).await;
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
    /// As [`get`](Self::get); [`TxnError::ReadOnly`].
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
    /// As [`get`](Self::get); [`TxnError::ReadOnly`].
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
        self.open_read_for(mode)?;
        info.check_key(&info.primary, key)?;
        let found = self.place_of(info, key, mode).await;
        let place = self.close_read(found).await?;
        self.row_at(info, place)
    }

    /// Where the row with this primary key is.
    async fn place_of(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        mode: Mode,
    ) -> Result<Option<Place>, TxnError> {
        match self.work.overlay.get(info.primary.number, key) {
            Own::Is(_) => return Ok(Some(Place::Own(key.into()))),
            Own::Removed => return Ok(None),
            Own::Unchanged => {}
        }
        let Found { leaf, slot } = self.find(&info.primary, key, mode).await?;
        Ok(slot.ok().map(|slot| Place::Leaf(leaf, slot)))
    }

    async fn edge(
        &mut self,
        source: Source,
        range: &KeyRange,
        direction: Direction,
        mode: Mode,
    ) -> Result<Option<RowRef<'_>>, TxnError> {
        let (info, index) = self.db.source(source)?;
        self.open_read_for(mode)?;
        let place = self.find_edge(info, index, range, direction, mode).await;
        let place = self.close_read(place).await?;
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
        let Some(at) = cursor.next(self).await? else { return Ok(None) };
        if is_table {
            return Ok(match at {
                At::Slot(slot) => cursor.into_leaf(self).map(|leaf| Place::Leaf(leaf, slot)),
                At::Own(key) => Some(Place::Own(key)),
            });
        }
        cursor.let_go(self);
        let mut entry = std::mem::take(&mut self.work.entry);
        let place = self.follow(info, index, &cursor, &at, &mut entry, mode).await;
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
        while let Some(at) = cursor.next(self).await? {
            let flow = if is_table {
                visit(RowRef::new(&info.layout, cursor.value(self, &at)?))?
            } else {
                cursor.let_go(self);
                let place = self.follow(info, index, &cursor, &at, entry, Mode::Shared).await?;
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
        while let Some(at) = cursor.next(self).await? {
            cursor.key_into(self, &at, entry)?;
            let primary = index.primary_key(entry, cursor.value(self, &at)?);
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
        at: &At,
        entry: &mut Vec<u8>,
        mode: Mode,
    ) -> Result<Place, TxnError> {
        self.work.transient = None;
        let start = if index.unique {
            entry.clear();
            entry.extend_from_slice(cursor.value(self, at)?);
            0
        } else {
            cursor.key_into(self, at, entry)?;
            let primary = index.primary_key(entry, &[]).map(<[u8]>::len);
            entry.len() - primary.ok_or_else(|| info.inconsistent(index))?
        };
        match self.place_of(info, entry.get(start..).unwrap_or_default(), mode).await? {
            Some(place) => Ok(place),
            None => Err(self.if_as_read(info.inconsistent(index)).await),
        }
    }

    fn row_at<'a>(
        &'a mut self,
        info: &'db TableInfo,
        place: Option<Place>,
    ) -> Result<Option<RowRef<'a>>, TxnError> {
        let shows_copies = self.defers();
        let transient = self.work.transient.take_if(|_| shows_copies);
        let value = match place {
            None => return Ok(None),
            // Shown as a copy: no latch outlives the operation.
            Some(Place::Leaf(Leaf::Transient, slot)) if transient.is_some() => {
                let leaf = LeafView::new(transient.as_deref().unwrap_or_default())?;
                self.work.shown.clear();
                self.work.shown.extend_from_slice(leaf.value(slot)?);
                &self.work.shown
            }
            Some(Place::Leaf(leaf, slot)) => LeafView::new(self.leaf_bytes(leaf))?.value(slot)?,
            Some(Place::Own(key)) => match self.work.overlay.get(info.primary.number, &key) {
                Own::Is(value) => value,
                Own::Removed | Own::Unchanged => return Ok(None),
            },
        };
        Ok(Some(RowRef::new(&info.layout, value)))
    }
}
