//! A statement with common table expressions that change rows.
//!
//! None of its parts sees what another changes, so nothing is changed before all of them have been
//! read to their ends. Until then a change is gathered: its rows, what they become, and what
//! RETURNING gives of them, which others may read.
//!
//! ```text
//! main is read           the common table expressions that it reads are gathered on the way
//!  -> the others are gathered
//!  -> the changes are made, in the order in which they were gathered
//!  -> constraints between tables are looked at
//!  -> the rows of main are given
//! ```
//!
//! A row that two parts change is changed by the first only, as in PostgreSQL.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use selkie_fabric::BoxFuture;
use selkie_txn::{KeyBuf, Table};

use super::build::build;
use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::insert_together::{Inserted, insert_all};
use super::memory::MemoryUse;
use super::modify::{Modify, Rekeyed, plan_change};
use super::references::{Tracked, Tracker};
use super::row_queue::{QueuedRows, RowQueue};
use super::row_write::Returned;
use super::stored_row::primary_key;
use super::txn_error::from_txn;
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult};
use crate::plan::Plan;

/// The changes of a statement before they are made.
#[derive(Default)]
pub(crate) struct Gathered {
    changes: Vec<GatheredChange>,
    /// The tables that several parts change.
    several: HashSet<Table, RandomState>,
    /// The primary keys of rows that are changed, where a part may come to one of them again.
    changed: HashMap<Table, HashSet<KeyBuf, RandomState>, RandomState>,
    used: MemoryUse,
}

/// What one part changes.
pub(super) enum GatheredChange {
    Insert(Inserted),
    /// Each row with its new values in these columns behind it; no columns to delete it.
    Modify {
        table: Arc<TableDef>,
        columns: Option<Vec<usize>>,
        rows: QueuedRows,
    },
}

/// A statement with such parts that runs.
pub(crate) struct Together {
    changes: Vec<Plan>,
    several: HashSet<Table, RandomState>,
    /// Until it has run.
    main: Option<BoxOperator>,
    rows: QueuedRows,
}

impl Together {
    pub(crate) fn new(changes: &[Plan], main: &Plan) -> Self {
        let (mut tables, mut several) = (HashSet::new(), HashSet::default());
        for table in changes.iter().chain([main]).filter_map(changed_table) {
            if !tables.insert(table) {
                several.insert(table);
            }
        }
        let (changes, main) = (changes.to_vec(), Some(build(main)));
        Self { changes, several, main, rows: QueuedRows::default() }
    }

    async fn run(
        &mut self,
        mut main: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        context.check_writes("SELECT")?;
        let several = std::mem::take(&mut self.several);
        context.gathered = Some(Gathered { several, ..Gathered::default() });
        let rows = RowQueue::of(&mut main, context).await;
        let rest = match rows {
            Ok(rows) => {
                self.rows = rows;
                self.gather_rest(context).await
            }
            Err(error) => Err(error),
        };
        let gathered = context.gathered.take().unwrap_or_default();
        rest?;
        let affected = context.affected;
        let mut trackers = Vec::new();
        for change in gathered.changes {
            trackers.push(match change {
                GatheredChange::Insert(inserted) => insert_all(inserted, context).await?,
                GatheredChange::Modify { table, columns, rows } => {
                    modify_all(&table, columns.as_deref(), rows, context).await?
                }
            });
        }
        for tracker in trackers {
            tracker.end(context).await?;
        }
        context.affected = affected;
        Ok(())
    }

    /// Gathers the changes that `main` has not read.
    async fn gather_rest(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        for change in &self.changes {
            let is_done = matches!(
                change,
                Plan::Shared { number, .. } if context.shared.complete.contains_key(number)
            );
            if !is_done {
                let mut change = build(change);
                while change.next(context).await?.is_some() {}
            }
        }
        Ok(())
    }
}

impl Operator for Together {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if let Some(main) = self.main.take() {
                self.run(main, context).await?;
            }
            self.rows.batch()
        })
    }
}

/// The table that a part of a statement changes.
fn changed_table(plan: &Plan) -> Option<Table> {
    match plan {
        Plan::Shared { plan, .. } => changed_table(plan),
        Plan::Measured { input, .. } => changed_table(input),
        Plan::Insert(insert) => Some(insert.table.table),
        Plan::Modify(modify) => Some(modify.table.table),
        _ => None,
    }
}

impl ExecContext<'_, '_> {
    /// Whether more than one part of the statement changes a table.
    pub(super) fn is_changed_by_several(&self, table: Table) -> bool {
        self.gathered.as_ref().is_some_and(|gathered| gathered.several.contains(&table))
    }

    /// Adds a change to those that are made in the end.
    pub(super) fn gather(&mut self, change: GatheredChange) -> SqlResult<()> {
        let Some(gathered) = &mut self.gathered else {
            return Err(SqlError::internal("a change that is gathered by nothing"));
        };
        gathered.changes.push(change);
        Ok(())
    }

    /// Notes that a row is changed; `false` if it is already. `once` says that this part comes to
    /// no row again.
    pub(super) fn note_changed(
        &mut self,
        table: Table,
        key: &KeyBuf,
        once: bool,
    ) -> SqlResult<bool> {
        let Some(Gathered { several, changed, used, .. }) = &mut self.gathered else {
            return Ok(true);
        };
        if once && !several.contains(&table) {
            return Ok(true);
        }
        used.add(key.len() + size_of::<KeyBuf>(), self.limits)?;
        Ok(changed.entry(table).or_default().insert(key.clone()))
    }
}

impl Modify {
    /// Finds the rows, and what they become.
    pub(super) async fn gather(
        &mut self,
        mut source: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let table = Arc::clone(&self.table);
        let columns: Option<Vec<usize>> =
            self.assignments.as_ref().map(|all| all.iter().map(|(at, _)| *at).collect());
        // That the transaction has used the table makes its keys known.
        context.txn.row(table.table).await.map_err(|error| from_txn(error, Some(&table)))?;
        let (mut rows, mut returned) = (RowQueue::default(), Returned::default());
        while let Some(batch) = source.next(context).await? {
            for mut row in batch {
                let Some(key) = primary_key(context.txn, &table, &row)? else {
                    return Err(SqlError::internal("a row to be changed has no primary key"));
                };
                if !context.note_changed(table.table, &key, self.gives_each_once)? {
                    continue;
                }
                let values = self.assignments.iter().flatten();
                let values = values
                    .map(|(at, expr)| Ok((*at, context.eval(expr, &row)?)))
                    .collect::<SqlResult<Vec<_>>>()?;
                let rest = row.split_off(table.columns.len().min(row.len()));
                let mut shown = match columns {
                    None => row.clone(),
                    Some(_) => {
                        plan_change(&table, &key, &row, values.clone(), &self.checks, context)?.0
                    }
                };
                row.extend(values.into_iter().map(|(_, value)| value));
                rows.push(row, context.limits)?;
                context.affected += 1;
                shown.extend(rest);
                returned.add(self.returning.as_deref(), &shown, context)?;
            }
        }
        self.returned = returned.rows.finish()?;
        let rows = rows.finish()?;
        context.gather(GatheredChange::Modify { table, columns, rows })
    }
}

/// Changes or deletes rows that were gathered.
async fn modify_all(
    table: &Arc<TableDef>,
    columns: Option<&[usize]>,
    mut rows: QueuedRows,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Tracker> {
    context.txn.row(table.table).await.map_err(|error| from_txn(error, Some(table)))?;
    let changes = columns.map_or(Tracked::Delete, Tracked::Update);
    let mut tracker = Tracker::begin(table, changes, context).await?;
    let mut rekeyed = RowQueue::default();
    while let Some(mut row) = rows.next()? {
        let Some(key) = primary_key(context.txn, table, &row)? else {
            return Err(SqlError::internal("a row to be changed has no primary key"));
        };
        let Some(columns) = columns else {
            let deleted = context.txn.delete(table.table, &key).await;
            deleted.map_err(|error| from_txn(error, Some(table)))?;
            tracker.deleted(&row, context)?;
            continue;
        };
        let values = row.split_off(table.columns.len().min(row.len()));
        let values = columns.iter().copied().zip(values).collect();
        let (new, change) = plan_change(table, &key, &row, values, &[], context)?;
        if let Some(own) = change.run(table, &key, &new, context).await? {
            rekeyed.push(own.row, context.limits)?;
        }
        tracker.updated(&row, &new, context)?;
    }
    let mut rekeyed = rekeyed.finish()?;
    while let Some(row) = rekeyed.next()? {
        Rekeyed::insert(table, &row, context).await?;
    }
    Ok(tracker)
}
