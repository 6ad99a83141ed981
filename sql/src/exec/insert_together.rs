//! An INSERT whose rows are inserted together with other changes of the statement
//! ([`together`](super::together)).
//!
//! With ON CONFLICT it is known before whether a row is inserted, as RETURNING gives only those
//! that are: the table is looked at, and the keys of the rows that this command will insert.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use selkie_txn::{KeyBuf, Source};

use super::context::{BoxOperator, ExecContext, Row};
use super::insert::{Insert, InsertRows, PlannedUpdate, changed_twice};
use super::memory::MemoryUse;
use super::modify::{Rekeyed, plan_change};
use super::references::{Tracked, Tracker};
use super::row_queue::{QueuedRows, RowQueue};
use super::row_write::{Returned, change_error, check_row, insert_row};
use super::stored_row::{key_in, primary_key};
use super::together::GatheredChange;
use super::txn_error::from_txn;
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult};
use crate::types::Datum;

/// The rows of an INSERT before they are inserted.
pub(super) struct Inserted {
    table: Arc<TableDef>,
    new: QueuedRows,
    /// Rows that are there, each with its new values behind it, of these columns.
    changed: QueuedRows,
    columns: Option<Vec<usize>>,
}

/// The keys of rows that a command will insert.
#[derive(Default)]
struct Entered {
    keys: HashSet<(Option<usize>, KeyBuf), RandomState>,
    used: MemoryUse,
}

impl Insert {
    /// Finds out which rows are inserted, and which are changed.
    pub(super) async fn gather(
        &mut self,
        mut source: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let table = Arc::clone(&self.change.table);
        // That the transaction has used the table makes its keys known.
        context.txn.row(table.table).await.map_err(|error| from_txn(error, Some(&table)))?;
        let (mut new_rows, mut changed) = (RowQueue::default(), RowQueue::default());
        let (mut returned, mut entered) = (Returned::default(), Entered::default());
        let columns = self.change.updated_columns();
        while let Some(batch) = source.next(context).await? {
            for mut row in batch {
                let rest = row.split_off(table.columns.len().min(row.len()));
                check_row(&table, &self.change.checks, &row, None, context)?;
                let mut shown = match self.change.conflict(&row, &mut entered, context).await? {
                    Conflict::None => {
                        new_rows.push(row.clone(), context.limits)?;
                        row
                    }
                    Conflict::Ignored => continue,
                    Conflict::With(old) => {
                        let planned = self.change.planned_update(old, (row, &rest), context)?;
                        let Some(PlannedUpdate { key, mut old, new, .. }) = planned else {
                            continue;
                        };
                        // Another part of the statement may have changed it.
                        if !context.note_changed(table.table, &key, true)? {
                            continue;
                        }
                        self.change.touched.insert(key);
                        let values = columns.iter().flatten().filter_map(|at| new.get(*at));
                        old.extend(values.cloned());
                        changed.push(old, context.limits)?;
                        new
                    }
                };
                context.affected += 1;
                shown.extend(rest);
                returned.add(self.change.returning.as_deref(), &shown, context)?;
            }
        }
        self.returned = returned.rows.finish()?;
        let (new, changed) = (new_rows.finish()?, changed.finish()?);
        context.gather(GatheredChange::Insert(Inserted { table, new, changed, columns }))
    }
}

/// What a row that is to be inserted meets.
enum Conflict {
    None,
    Ignored,
    /// A row that is changed instead.
    With(Row),
}

impl InsertRows {
    async fn conflict(
        &self,
        row: &[Datum],
        entered: &mut Entered,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Conflict> {
        let Some(action) = &self.on_conflict else { return Ok(Conflict::None) };
        if context.is_changed_by_several(self.table.table) {
            // The rows that it would meet are those of before the statement.
            return Err(SqlError::unsupported(
                "ON CONFLICT on a table that another part of the statement changes",
            ));
        }
        let targets = match action.target {
            Some(target) => vec![target],
            None => self.unique_keys(),
        };
        let mut keys = Vec::with_capacity(targets.len());
        for target in targets {
            let Some(key) = self.key_by(target, row, context).await? else { continue };
            if entered.keys.contains(&(target, key.clone())) {
                return match action.update {
                    Some(_) => Err(changed_twice()),
                    None => Ok(Conflict::Ignored),
                };
            }
            keys.push((target, key));
        }
        if action.update.is_some() {
            if let Some(old) = self.settle_conflict(row, context).await? {
                return Ok(Conflict::With(old));
            }
        } else {
            for (target, _) in &keys {
                if self.find_by(*target, row, true, context).await?.is_some() {
                    return Ok(Conflict::Ignored);
                }
            }
        }
        for (_, key) in &keys {
            let bytes = key.len() + size_of::<(Option<usize>, KeyBuf)>();
            entered.used.add(bytes, context.limits)?;
        }
        entered.keys.extend(keys);
        Ok(Conflict::None)
    }

    /// All that no two rows may agree in: the primary key, and unique indexes.
    fn unique_keys(&self) -> Vec<Option<usize>> {
        let indexes = self.table.indexes.iter().enumerate();
        let unique = indexes.filter(|(_, own)| own.unique).map(|(at, _)| Some(at));
        std::iter::once(None).chain(unique).collect()
    }

    /// The key of a row; `None` if no other row can have it.
    async fn key_by(
        &self,
        target: Option<usize>,
        row: &[Datum],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<KeyBuf>> {
        let table = &*self.table;
        let Some((columns, _)) = table.key(target) else {
            return Err(SqlError::internal("ON CONFLICT with an index that is not there"));
        };
        if columns.iter().any(|at| row.get(*at).is_none_or(Datum::is_null)) {
            return Ok(None);
        }
        let source: Source = match target.and_then(|at| table.indexes.get(at)) {
            None => table.table.into(),
            Some(index) => {
                let found = context.txn.index(table.table, &index.name).await;
                found.map_err(|error| from_txn(error, Some(table)))?.into()
            }
        };
        key_in(context.txn, source, table, columns, row)
    }
}

/// Inserts and changes the rows of an INSERT.
pub(super) async fn insert_all(
    inserted: Inserted,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Tracker> {
    let Inserted { table, mut new, mut changed, columns } = inserted;
    let builder = context.txn.row(table.table).await;
    let mut builder = builder.map_err(|error| from_txn(error, Some(&table)))?;
    let changes = columns.as_deref().map_or(Tracked::Insert, Tracked::Upsert);
    let mut tracker = Tracker::begin(&table, changes, context).await?;
    while let Some(batch) = new.batch()? {
        for row in batch {
            let inserted = insert_row(&mut builder, &table, &row, context.txn).await?;
            inserted.map_err(|error| change_error(error, &table, &row, &context.call))?;
            tracker.inserted(&row, context)?;
        }
        tracker.advance(context).await?;
    }
    while let Some(mut row) = changed.next()? {
        let Some(key) = primary_key(context.txn, &table, &row)? else {
            return Err(SqlError::internal("a row to be changed has no primary key"));
        };
        let values = row.split_off(table.columns.len().min(row.len()));
        let values = columns.iter().flatten().copied().zip(values).collect();
        let (new, change) = plan_change(&table, &key, &row, values, &[], context)?;
        tracker.updated(&row, &new, context)?;
        if let Some(Rekeyed { row, .. }) = change.run(&table, &key, &new, context).await? {
            Rekeyed::insert(&table, &row, context).await?;
        }
    }
    Ok(tracker)
}
