//! Reads of tables: single rows by their keys, or ranges by cursors.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_fabric::BoxFuture;
use selkie_txn::{Cursor, Direction, KeyBuf, KeyRange, Source, TxnError};

use super::context::{BATCH_ROWS, ExecContext, Operator, Row};
use super::scan_target::{BoundCheck, Keys, target_of};
use super::stored_row::{fill_moved, primary_key, read_row};
use super::txn_error::from_txn;
use crate::error::{SqlError, SqlResult};
use crate::plan;

/// Rows of the first batch of a cursor: a LIMIT may need no more.
const FIRST_BATCH_ROWS: usize = 16;

/// Rows that are passed over at a time.
const PASSED_ROWS: usize = 4096;

/// What is left to read.
enum Rest {
    NotBegun,
    Points(VecDeque<KeyBuf>),
    Single(VecDeque<KeyRange>),
    Ranges(VecDeque<KeyRange>),
}

/// A read of a table.
pub(crate) struct Scan {
    scan: Arc<plan::Scan>,
    /// The columns that are needed, if they are others than the plan says.
    needed: Option<Vec<bool>>,
    rest: Rest,
    source: Source,
    direction: Direction,
    checks: Vec<BoundCheck>,
    /// Whether the entries of an index are read, and not the rows that they lead to.
    reads_entries: bool,
    cursor: Option<Box<Cursor>>,
    batch_rows: usize,
}

impl Scan {
    pub(crate) fn new(scan: &Arc<plan::Scan>) -> Self {
        Self {
            source: scan.table.table.into(),
            scan: Arc::clone(scan),
            needed: None,
            rest: Rest::NotBegun,
            direction: Direction::Forward,
            checks: Vec::new(),
            reads_entries: false,
            cursor: None,
            batch_rows: FIRST_BATCH_ROWS,
        }
    }

    fn needed(&self) -> &[bool] {
        self.needed.as_deref().unwrap_or(&self.scan.needed)
    }

    fn failed(&self, error: TxnError) -> SqlError {
        from_txn(error, Some(&self.scan.table))
    }

    /// Finds out what is to be read, if that is not known.
    async fn begin(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        let Rest::NotBegun = self.rest else { return Ok(()) };
        let target = target_of(&self.scan, context).await?;
        (self.source, self.direction) = (target.source, target.direction);
        self.checks = target.checks;
        for check in &self.checks {
            let needed = self.needed.get_or_insert_with(|| self.scan.needed.clone());
            if let Some(needed) = needed.get_mut(check.column()) {
                *needed = true;
            }
        }
        // A bound that is no key may be of a column that entries do not tell as it is.
        self.reads_entries = self.scan.index_only && self.checks.is_empty();
        self.rest = match target.keys {
            Keys::Single(ranges) if self.reads_entries => Rest::Ranges(ranges.into()),
            Keys::Points(keys) => Rest::Points(keys.into()),
            Keys::Single(ranges) => Rest::Single(ranges.into()),
            Keys::Ranges(ranges) => Rest::Ranges(ranges.into()),
        };
        Ok(())
    }

    /// How many rows it gives that were not given before. Rows are passed over where nothing of
    /// them has to be looked at.
    pub(super) async fn count(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<u64> {
        self.begin(context).await?;
        let is_any = self.checks.is_empty() && self.scan.filter.is_none();
        let mut count = 0;
        if is_any && matches!(self.rest, Rest::Ranges(_)) {
            while let Some(cursor) = self.open(context)? {
                let passed = cursor.pass(context.txn, PASSED_ROWS).await;
                let passed = passed.map_err(|error| self.failed(error))?;
                count += passed as u64;
                context.breathe(passed).await;
                if passed < PASSED_ROWS {
                    self.cursor = None;
                }
            }
        }
        while let Some(rows) = self.next(context).await? {
            count += rows.len() as u64;
        }
        Ok(count)
    }

    /// Some rows before the filter; `None` after the last.
    async fn read(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        self.begin(context).await?;
        match &mut self.rest {
            Rest::NotBegun => Ok(None),
            Rest::Points(keys) => {
                let few = keys.len().min(BATCH_ROWS);
                let keys: Vec<KeyBuf> = keys.drain(..few).collect();
                match keys.as_slice() {
                    [] => Ok(None),
                    [key] => self.read_point(key, context).await.map(Some),
                    keys if self.scan.for_update && context.is_alone => {
                        let mut rows = Vec::with_capacity(keys.len());
                        for key in keys {
                            rows.extend(self.read_point(key, context).await?);
                        }
                        Ok(Some(rows))
                    }
                    keys => Box::pin(self.read_many(keys, context)).await.map(Some),
                }
            }
            Rest::Single(ranges) => match ranges.pop_front() {
                Some(range) => Box::pin(self.read_single(&range, context)).await.map(Some),
                None => Ok(None),
            },
            Rest::Ranges(_) => Box::pin(self.read_ranges(context)).await,
        }
    }

    async fn read_point(
        &self,
        key: &[u8],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Vec<Row>> {
        let (table, mut moved) = (&*self.scan.table, Vec::new());
        let found = if self.scan.for_update && context.is_alone {
            context.txn.get_for_update(table.table, key).await
        } else {
            context.txn.get(table.table, key).await
        };
        let Some(row) = found.map_err(|error| self.failed(error))? else { return Ok(Vec::new()) };
        let mut row = read_row(row, table, Some(self.needed()), &mut moved)?;
        self.load_moved(&mut row, key, &moved, context).await?;
        Ok(vec![row])
    }

    async fn read_many(
        &self,
        keys: &[KeyBuf],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Vec<Row>> {
        let table = &*self.scan.table;
        let (mut rows, mut failure) = (Vec::with_capacity(keys.len()), None);
        let visited = context.txn.get_many(table.table, keys, |at, row| {
            let Some(row) = row else { return Ok(ControlFlow::Continue(())) };
            let mut moved = Vec::new();
            match read_row(row, table, Some(self.needed()), &mut moved) {
                Ok(row) => rows.push((at, row, moved)),
                Err(error) => {
                    failure = Some(error);
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        });
        visited.await.map_err(|error| self.failed(error))?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let mut whole = Vec::with_capacity(rows.len());
        for (at, mut row, moved) in rows {
            if let Some(key) = keys.get(at) {
                self.load_moved(&mut row, key, &moved, context).await?;
            }
            whole.push(row);
        }
        Ok(whole)
    }

    async fn read_single(
        &self,
        range: &KeyRange,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Vec<Row>> {
        let (table, mut moved) = (&*self.scan.table, Vec::new());
        let found = if self.scan.for_update && context.is_alone {
            context.txn.first_for_update(self.source, range).await
        } else {
            context.txn.first(self.source, range).await
        };
        let Some(row) = found.map_err(|error| self.failed(error))? else { return Ok(Vec::new()) };
        let row_ref = row;
        let mut row = read_row(row_ref, table, Some(self.needed()), &mut moved)?;
        if !moved.is_empty() {
            // Columns of the key are never stored apart from their row.
            let values = read_row(row_ref, table, None, &mut Vec::new())?;
            if let Some(key) = primary_key(context.txn, table, &values)? {
                self.load_moved(&mut row, &key, &moved, context).await?;
            }
        }
        Ok(vec![row])
    }

    async fn load_moved(
        &self,
        row: &mut Row,
        key: &[u8],
        moved: &[usize],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        if moved.is_empty() {
            return Ok(());
        }
        let table = &*self.scan.table;
        let whole = context.txn.get_whole(table.table, key).await;
        match whole.map_err(|error| self.failed(error))? {
            Some(whole) => fill_moved(row, &whole, table, moved),
            None => Err(SqlError::internal("a row is gone between two reads of a statement")),
        }
    }

    /// The cursor over the range that is read, or the next one; `None` if there is none.
    fn open(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<&mut Cursor>> {
        if self.cursor.is_none() {
            let Rest::Ranges(ranges) = &mut self.rest else { return Ok(None) };
            let Some(range) = ranges.pop_front() else { return Ok(None) };
            let (source, direction) = (self.source, self.direction);
            let opened = if self.scan.for_update && context.is_alone {
                context.txn.cursor_for_update(source, range, direction)
            } else if self.reads_entries {
                context.txn.cursor_of_entries(source, range, direction)
            } else {
                context.txn.cursor(source, range, direction)
            };
            self.cursor = Some(Box::new(opened.map_err(|error| self.failed(error))?));
        }
        Ok(self.cursor.as_deref_mut())
    }

    async fn read_ranges(
        &mut self,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<Vec<Row>>> {
        if self.open(context)?.is_none() {
            return Ok(None);
        }
        let Self { scan, needed, cursor, batch_rows, .. } = self;
        let needed = needed.as_deref().unwrap_or(&scan.needed);
        let failed = |error| from_txn(error, Some(&scan.table));
        let Some(cursor) = cursor else { return Ok(None) };
        let wanted = *batch_rows;
        *batch_rows = BATCH_ROWS.min(2 * wanted);
        let fetched = cursor.fetch(context.txn, wanted).await.map_err(failed)?;
        let (mut rows, mut moved) = (Vec::with_capacity(fetched.len()), Vec::new());
        for stored in &fetched {
            let mut row = read_row(stored, &scan.table, Some(needed), &mut moved)?;
            if !moved.is_empty() {
                let whole = context.txn.load_values(scan.table.table, stored, &moved).await;
                fill_moved(&mut row, &whole.map_err(failed)?, &scan.table, &moved)?;
                moved.clear();
            }
            rows.push(row);
        }
        if rows.len() < wanted {
            self.cursor = None;
        }
        Ok(Some(rows))
    }
}

impl Operator for Scan {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            while let Some(rows) = self.read(context).await? {
                context.breathe(rows.len()).await;
                let mut passed = Vec::with_capacity(rows.len());
                for row in rows {
                    let is_within = self.checks.iter().all(|check| check.holds(&row));
                    if is_within && context.holds(self.scan.filter.as_ref(), &row)? {
                        passed.push(row);
                    }
                }
                if !passed.is_empty() {
                    return Ok(Some(passed));
                }
            }
            Ok(None)
        })
    }
}
