//! Cursors: scans that their callers pull, some rows at a time.
//!
//! A cursor owns its position, which is the key of the entry it has come to. Between two operations
//! it latches nothing and borrows nothing. It may keep a copy of the leaf it stands on, with the
//! entries that it has not shown. The copy is used only while it is what the transaction would read
//! again: while the transaction has begun no change, and sees the same state. Else the cursor looks
//! for the key again.
//!
//! Pages ahead are fetched early ([`read_ahead`](crate::access::read_ahead)), by a cursor as by a
//! scan.
//!
//! What is shown is what is recorded as read, as for a scan: the range up to the position. So rows
//! are recorded when they are shown, though their leaf was read before.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_btree::Direction;

use crate::access::entries::{EntryRows, told_columns};
use crate::access::own_additions::OwnAdditions;
use crate::access::read::Flow;
use crate::access::read_ahead::WalkAhead;
use crate::access::walk::Walk;
use crate::access::walk_state::WalkState;
use crate::catalogue::handles::Source;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key_range::KeyRange;
#[cfg(doc)]
use crate::encoding::row_error::RowError;
use crate::encoding::row_ref::{ALL_COLUMNS, RowRef};
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::cursor_scope::CursorId;
use crate::transaction::txn::Txn;

/// A scan of a table or an index that the caller pulls. [`Txn::cursor`] opens it.
///
/// It owns all it needs: several may be open in a transaction, between other operations of it, and
/// a server may keep one in its connection while the transaction is set aside by a
/// [`Session`](crate::Session). Dropping it closes it.
///
/// *What it sees.* The rows are those that [`scan`](Txn::scan) would show, so with the changes that
/// the transaction made before it opened the cursor. Of changes that the transaction makes
/// afterwards, with or without the cursor:
///
/// - A row that is inserted, or moved to another key of the cursor's table or index, is not shown
///   at its new key. So a statement may change the rows that its cursor shows, in whatever order,
///   and meets none twice.
/// - A row that is deleted is not shown any more, nor one that was moved.
/// - A row that is changed and keeps its key is shown as it is then.
///
/// Under [`ReadCommitted`](crate::Isolation::ReadCommitted) it shows committed rows, those of one
/// leaf as they were when it came to the leaf or later. Under the other isolations all that it
/// shows is of the state that the transaction sees, and recorded as read as for a scan: the range
/// up to the last row shown, or the whole range once it has shown that there are no more.
///
/// *When it ends.* Used with another transaction, or after a rollback to a savepoint that was made
/// before it was opened, it fails with [`TxnError::InvalidCursor`]. One that was opened before the
/// savepoint goes on from where it is. After an error that rolls the transaction back it fails as
/// every operation does.
///
/// A call that fails or is dropped leaves the position where it was.
///
/// ```
/// # use selkie_txn::{Database, Direction, KeyRange, Table, TxnError};
/// # async fn example(db: &Database, table: Table) -> Result<(), TxnError> {
/// let mut txn = db.begin();
/// let mut cursor = txn.cursor_for_update(table, KeyRange::all(), Direction::Forward)?;
/// loop {
///     let rows = cursor.fetch(&mut txn, 100).await?;
///     if rows.is_empty() {
///         break;
///     }
///     for row in &rows {
///         let key = db.key_of(table, row)?;
///         txn.update(table, &key, |row| Ok(row.set_i64(2, 0)?)).await?;
///     }
/// }
/// txn.commit().await
/// # }
/// ```
pub struct Cursor {
    way: CursorWay,
    id: CursorId,
    /// The key of the entry shown last; before the first, `is_begun` is not set.
    position: Vec<u8>,
    is_begun: bool,
    /// It has shown that there are no more.
    is_done: bool,
    /// Where the walk stands, if that can be relied on while the transaction has begun `changes`.
    state: Option<WalkState<'static>>,
    changes: u64,
    own_additions: OwnAdditions,
    ahead: WalkAhead,
    /// Buffer for a primary key.
    entry: Vec<u8>,
    rows: RowBuffer,
}

/// What a cursor goes over, and how.
struct CursorWay {
    source: Source,
    /// The definition of its table that was used last.
    table: Arc<TableInfo>,
    /// The secondary index; `None`: the primary key.
    index: Option<usize>,
    range: KeyRange,
    direction: Direction,
    mode: LatchMode,
    /// Whether the rows that the entries of the index lead to are not looked at.
    is_of_entries: bool,
}

impl CursorWay {
    fn index(&self) -> &IndexInfo {
        let index = self.index.and_then(|at| self.table.indexes.get(at));
        index.unwrap_or(&self.table.primary)
    }

    /// Whether it shows what the entries of an index tell, and no more.
    fn shows_entries(&self) -> bool {
        self.is_of_entries && self.index.is_some()
    }

    /// The columns of its rows that can be read, one bit each.
    fn columns(&self) -> u64 {
        match self.shows_entries() {
            true => told_columns(&self.table, self.index()),
            false => ALL_COLUMNS,
        }
    }

    /// How the leaves of the walk are latched. An index entry leads to the row but is not what will
    /// be changed.
    fn walk_mode(&self) -> LatchMode {
        if self.index.is_some() { LatchMode::Shared } else { self.mode }
    }

    /// Whether a key lies ahead of a position; `None` is before the first.
    fn is_ahead(&self, key: &[u8], position: Option<&[u8]>) -> bool {
        let is_ahead = position.is_none_or(|position| match self.direction {
            Direction::Forward => key > position,
            Direction::Reverse => key < position,
        });
        is_ahead && self.range.contains(key)
    }
}

/// Rows that were copied.
#[derive(Default)]
struct RowBuffer {
    bytes: Vec<u8>,
    /// Where each row ends.
    ends: Vec<usize>,
}

impl RowBuffer {
    fn push(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn get(&self, at: usize) -> Option<&[u8]> {
        let end = *self.ends.get(at)?;
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before));
        self.bytes.get(start.copied().unwrap_or(0)..end)
    }
}

/// Rows that a [`Cursor`] has fetched, in its order.
#[derive(Clone, Copy)]
pub struct Rows<'c> {
    table: &'c TableInfo,
    rows: &'c RowBuffer,
    /// The columns that can be read, one bit each.
    columns: u64,
}

impl<'c> Rows<'c> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.ends.len()
    }

    /// Whether there are none: the cursor is at its end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row at this position, from 0.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<RowRef<'c>> {
        // Its layout was known when it was fetched.
        let row = self.rows.get(at).and_then(|bytes| self.table.row(bytes).ok())?;
        Some(row.only(self.columns))
    }

    /// The rows one by one.
    #[must_use]
    pub fn iter(&self) -> RowIter<'c> {
        RowIter { rows: *self, next: 0 }
    }
}

impl<'c> IntoIterator for &Rows<'c> {
    type Item = RowRef<'c>;
    type IntoIter = RowIter<'c>;

    fn into_iter(self) -> RowIter<'c> {
        self.iter()
    }
}

/// The rows of [`Rows`], one by one.
pub struct RowIter<'c> {
    rows: Rows<'c>,
    next: usize,
}

impl<'c> Iterator for RowIter<'c> {
    type Item = RowRef<'c>;

    fn next(&mut self) -> Option<RowRef<'c>> {
        let row = self.rows.get(self.next)?;
        self.next += 1;
        Some(row)
    }
}

impl Txn<'_> {
    /// Opens a cursor over the rows of a key range, in the order of the table's primary key or of
    /// the index. No round trip, no waiting; nothing is read.
    ///
    /// # Errors
    /// [`TxnError::KeyMismatch`] if a bound is no key of the first columns of the table or index;
    /// [`TxnError::RolledBack`].
    pub fn cursor(
        &mut self,
        source: impl Into<Source>,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor, TxnError> {
        self.open_cursor(source.into(), range, direction, LatchMode::Shared, false)
    }

    /// As [`cursor`](Self::cursor), which of an index shows what its entries tell, and reads no
    /// rows: of each row only the columns of the index and of the primary key can be read whose
    /// types [have exact keys](crate::ColumnType::has_exact_keys), and reading another is
    /// [`RowError::NotRead`]. What is recorded as read is the range of the index, so others may
    /// change the other columns meanwhile.
    ///
    /// # Errors
    /// As [`cursor`](Self::cursor).
    pub fn cursor_of_entries(
        &mut self,
        source: impl Into<Source>,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor, TxnError> {
        self.open_cursor(source.into(), range, direction, LatchMode::Shared, true)
    }

    /// As [`cursor`](Self::cursor), for rows that will be changed: each row that is shown is read
    /// as by [`get_for_update`](Self::get_for_update).
    ///
    /// # Errors
    /// As [`cursor`](Self::cursor); [`TxnError::ReadOnly`].
    pub fn cursor_for_update(
        &mut self,
        source: impl Into<Source>,
        range: KeyRange,
        direction: Direction,
    ) -> Result<Cursor, TxnError> {
        self.open_cursor(source.into(), range, direction, LatchMode::Exclusive, false)
    }

    fn open_cursor(
        &mut self,
        source: Source,
        range: KeyRange,
        direction: Direction,
        mode: LatchMode,
        is_of_entries: bool,
    ) -> Result<Cursor, TxnError> {
        let info = self.known_table(source.table())?;
        let index = info.source(source)?;
        info.check_range(index, &range)?;
        self.open_read_for(mode)?;
        let table = Arc::clone(info);
        let index = info.indexes.iter().position(|own| own.number == index.number);
        let db = self.db;
        Ok(Cursor {
            way: CursorWay { source, table, index, range, direction, mode, is_of_entries },
            id: self.cursors.open(|| db.unique_number()),
            position: Vec::new(),
            is_begun: false,
            is_done: false,
            state: None,
            changes: self.changes_begun,
            own_additions: OwnAdditions::since_now(self),
            ahead: WalkAhead::NONE,
            entry: Vec::new(),
            rows: RowBuffer::default(),
        })
    }
}

impl Cursor {
    /// What it goes over.
    pub(crate) fn source_and_range(&self) -> (Source, KeyRange) {
        (self.way.source, self.way.range.clone())
    }

    /// The next row, `None` after the last. It is in the cursor's own memory: the transaction can
    /// be used while the caller has it.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn next(&mut self, txn: &mut Txn<'_>) -> Result<Option<RowRef<'_>>, TxnError> {
        Ok(self.fetch(txn, 1).await?.get(0))
    }

    /// The next rows: `most`, or fewer if there are no more. None are left if there are fewer, and
    /// later calls give none either.
    ///
    /// # Errors
    /// [`TxnError::InvalidCursor`] if it is not one of this transaction; those of
    /// [`Txn::scan`].
    pub async fn fetch(&mut self, txn: &mut Txn<'_>, most: usize) -> Result<Rows<'_>, TxnError> {
        self.read(txn, most, true).await?;
        Ok(Rows { table: &self.way.table, rows: &self.rows, columns: self.way.columns() })
    }

    /// Goes on over so many rows, or fewer if there are no more, as [`fetch`](Self::fetch) does,
    /// and copies none. Returns how many.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub async fn pass(&mut self, txn: &mut Txn<'_>, most: usize) -> Result<usize, TxnError> {
        self.read(txn, most, false).await?;
        Ok(self.rows.ends.len())
    }

    /// Fetches the next rows; without their bytes, unless it copies them.
    async fn read(&mut self, txn: &mut Txn<'_>, most: usize, copies: bool) -> Result<(), TxnError> {
        if !txn.cursors.has(self.id) {
            return Err(self.way.table.invalid_cursor(self.way.index()));
        }
        txn.open_read_for(self.way.mode)?;
        let table = txn.table_info(self.way.source.table()).await?;
        self.follow(table)?;
        self.rows.clear();
        if txn.row_locks.insists_to_read() && !self.is_begun && !self.is_done {
            let (way, index) = (&self.way, self.way.index());
            Box::pin(txn.insist_on_range(&way.table, index, &way.range)).await?;
        }
        if most > 0 && !self.is_done {
            let filled = self.fill(txn, most, copies).await;
            txn.close_read(filled).await?;
        }
        Ok(())
    }

    /// Goes on by the definition of its table that is in force now, as its range and position are
    /// keys, which no change of a table changes.
    fn follow(&mut self, table: &Arc<TableInfo>) -> Result<(), TxnError> {
        if Arc::ptr_eq(table, &self.way.table) {
            return Ok(());
        }
        let index = table.source(self.way.source)?;
        self.way.index = table.indexes.iter().position(|own| own.number == index.number);
        self.way.table = Arc::clone(table);
        self.state = None;
        Ok(())
    }

    /// Fetches rows into the buffer.
    async fn fill<'db>(
        &mut self,
        txn: &mut Txn<'db>,
        most: usize,
        copies: bool,
    ) -> Result<(), TxnError> {
        let state: WalkState<'db> = self.take_state(txn);
        let Self { way, own_additions, ahead, rows, entry, position, .. } = self;
        let (info, index) = (&*way.table, way.index());
        let mut walk = Walk::new(index, &way.range, way.direction, way.walk_mode(), state);
        walk.hide(own_additions);
        walk.ahead = *ahead;
        let mut take = |row: &[u8]| {
            rows.push(if copies { row } else { &[] });
            let is_full = rows.ends.len() == most;
            if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let stopped = if way.shows_entries() {
            let mut made = EntryRows::new(info, index);
            let mut visit = |key: &[u8], value: &[u8]| -> Flow {
                Ok(take(if copies { made.row(key, value)? } else { &[] }))
            };
            txn.walk_entries(&mut walk, &mut visit, entry).await?
        } else {
            let mut visit = |row: RowRef<'_>| Ok(take(row.as_bytes()));
            txn.walk_rows(info, index, &mut walk, way.mode, &mut visit, entry).await?
        };
        *ahead = walk.ahead;
        match stopped {
            Some(at) => {
                walk.key_into(txn, &at, position)?;
                self.state = walk.into_state().set_aside();
                self.is_begun = true;
            }
            None => self.is_done = true,
        }
        Ok(())
    }

    /// Where the walk goes on.
    fn take_state(&mut self, txn: &Txn<'_>) -> WalkState<'static> {
        let Self { way, position, .. } = self;
        let index = way.index();
        let has_changed = mem::replace(&mut self.changes, txn.changes_begun) != txn.changes_begun;
        if has_changed {
            let position = self.is_begun.then_some(&**position);
            let is_ahead = |key: &[u8]| way.is_ahead(key, position);
            self.own_additions.follow(txn, index.number, is_ahead);
        }
        // Where each operation has a snapshot, an entry of an earlier one may lead to no row.
        let follows = way.index.is_some() && !way.is_of_entries;
        let is_over = follows && txn.has_snapshot_each_operation();
        let kept = self.state.take().filter(|state| !has_changed && !is_over && state.is_of(txn));
        kept.unwrap_or_else(|| match self.is_begun {
            true => WalkState::behind(position, way.direction),
            false => WalkState::at_beginning(&way.range),
        })
    }
}
