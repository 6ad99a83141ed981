//! UPDATE and DELETE.
//!
//! The rows are all found before the first is changed, so that no change is seen by the search. A
//! row that is found several times is changed once. Rows that get another primary key are deleted,
//! and inserted after all others have been changed: their keys may be exchanged.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use selkie_fabric::BoxFuture;
use selkie_txn::KeyBuf;

use super::build::build;
use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::memory::MemoryUse;
use super::references::{Tracked, Tracker};
use super::row_queue::{QueuedRows, RowQueue};
use super::row_write::{Returned, change_error, check_row, insert_row, update_row};
use super::stored_row::{primary_key, read_whole};
use super::txn_error::from_txn;
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult};
use crate::plan::{self, Expr, Plan};
use crate::types::Datum;

/// An UPDATE or DELETE that runs.
pub(crate) struct Modify {
    pub(super) table: Arc<TableDef>,
    /// Until it has run.
    source: Option<BoxOperator>,
    pub(super) assignments: Option<Vec<(usize, Expr)>>,
    pub(super) checks: Vec<(String, Expr)>,
    pub(super) returning: Option<Vec<Expr>>,
    /// Whether the source gives no row twice.
    pub(super) gives_each_once: bool,
    pub(super) returned: QueuedRows,
}

impl Modify {
    pub(crate) fn new(modify: &plan::Modify) -> Self {
        Self {
            table: Arc::clone(&modify.table),
            source: Some(build(&modify.source)),
            assignments: modify.assignments.clone(),
            checks: modify.checks.clone(),
            returning: modify.returning.clone(),
            gives_each_once: gives_each_once(&modify.source),
            returned: QueuedRows::default(),
        }
    }

    async fn run(
        &mut self,
        mut source: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let table = Arc::clone(&self.table);
        let mut rows = RowQueue::of(&mut source, context).await?;
        // That the transaction has used the table makes its keys known.
        context.txn.row(table.table).await.map_err(|error| from_txn(error, Some(&table)))?;
        let mut changed = HashSet::<KeyBuf, RandomState>::default();
        let (mut returned, mut used) = (Returned::default(), MemoryUse::default());
        let mut rekeyed = RowQueue::default();
        let columns: Option<Vec<usize>> =
            self.assignments.as_ref().map(|all| all.iter().map(|(at, _)| *at).collect());
        let changes = columns.as_deref().map_or(Tracked::Delete, Tracked::Update);
        let mut tracker = Tracker::begin(&table, changes, context).await?;
        while let Some(row) = rows.next()? {
            let Some(key) = primary_key(context.txn, &table, &row)? else {
                return Err(SqlError::internal("a row to be changed has no primary key"));
            };
            if !self.gives_each_once {
                used.add(key.len() + size_of::<KeyBuf>(), context.limits)?;
                if !changed.insert(key.clone()) {
                    continue;
                }
            }
            let row = match &self.assignments {
                None => {
                    let deleted = context.txn.delete(table.table, &key).await;
                    deleted.map_err(|error| from_txn(error, Some(&table)))?;
                    tracker.deleted(&row, context)?;
                    row
                }
                Some(assignments) => {
                    let values = assignments
                        .iter()
                        .map(|(at, expr)| Ok((*at, context.eval(expr, &row)?)))
                        .collect::<SqlResult<_>>()?;
                    let mut row = row;
                    let rest = row.split_off(table.columns.len().min(row.len()));
                    let (mut new, change) =
                        plan_change(&table, &key, &row, values, &self.checks, context)?;
                    if let Some(own) = change.run(&table, &key, &new, context).await? {
                        rekeyed.push(own.row, context.limits)?;
                    }
                    tracker.updated(&row, &new, context)?;
                    new.extend(rest);
                    new
                }
            };
            context.affected += 1;
            returned.add(self.returning.as_deref(), &row, context)?;
        }
        let mut rekeyed = rekeyed.finish()?;
        while let Some(row) = rekeyed.next()? {
            Rekeyed::insert(&table, &row, context).await?;
        }
        self.returned = returned.rows.finish()?;
        tracker.end(context).await
    }
}

impl Operator for Modify {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if let Some(source) = self.source.take() {
                match context.gathered {
                    Some(_) => Box::pin(self.gather(source, context)).await?,
                    None => self.run(source, context).await?,
                }
            }
            self.returned.batch()
        })
    }
}

/// Whether a plan gives each row of a table at most once.
fn gives_each_once(plan: &Plan) -> bool {
    let mut plan = plan;
    loop {
        plan = match plan {
            Plan::Scan(_) => return true,
            Plan::Lock(lock) => &lock.input,
            Plan::Filter { input, .. }
            | Plan::Project { input, .. }
            | Plan::Apply { input, .. }
            | Plan::Measured { input, .. } => input,
            _ => return false,
        };
    }
}

/// How a row is changed.
pub(crate) enum Change {
    /// These columns get other values, in place.
    InPlace(Vec<usize>),
    /// These do, and the primary key is another.
    Rekey(Vec<usize>, KeyBuf),
}

/// A row that was deleted to be inserted with another primary key.
pub(crate) struct Rekeyed {
    pub(crate) key: KeyBuf,
    pub(crate) row: Row,
}

/// The row with its new values, which pass the constraints, and how it gets them.
pub(crate) fn plan_change(
    table: &TableDef,
    key: &KeyBuf,
    old: &[Datum],
    values: Vec<(usize, Datum)>,
    checks: &[(String, Expr)],
    context: &ExecContext<'_, '_>,
) -> SqlResult<(Row, Change)> {
    let mut new = old.to_vec();
    let mut columns = Vec::with_capacity(values.len());
    for (at, value) in values {
        if let Some(own) = new.get_mut(at) {
            *own = value;
            columns.push(at);
        }
    }
    check_row(table, checks, &new, Some(&columns), context)?;
    if !columns.iter().any(|at| table.primary_key.contains(at)) {
        return Ok((new, Change::InPlace(columns)));
    }
    let new_key = primary_key(context.txn, table, &new)?
        .ok_or_else(|| SqlError::internal("a new primary key cannot be stored"))?;
    if new_key == *key {
        columns.retain(|at| !table.primary_key.contains(at));
        return Ok((new, Change::InPlace(columns)));
    }
    Ok((new, Change::Rekey(columns, new_key)))
}

impl Change {
    /// Changes the row, or deletes it, to be inserted with its new key.
    pub(crate) async fn run(
        self,
        table: &TableDef,
        key: &KeyBuf,
        new: &[Datum],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<Rekeyed>> {
        match self {
            Self::InPlace(columns) => {
                update_row(table, key, &columns, new, context).await?;
                Ok(None)
            }
            Self::Rekey(columns, new_key) => {
                // What the statement does not need of the row it has not read.
                let whole = read_whole(context.txn, table, key).await?;
                let deleted = context.txn.delete(table.table, key).await;
                deleted.map_err(|error| from_txn(error, Some(table)))?;
                let mut row = whole.unwrap_or_default();
                for at in columns {
                    if let (Some(own), Some(value)) = (row.get_mut(at), new.get(at)) {
                        *own = value.clone();
                    }
                }
                Ok(Some(Rekeyed { key: new_key, row }))
            }
        }
    }
}

impl Rekeyed {
    /// Inserts the row again.
    pub(crate) async fn insert(
        table: &TableDef,
        row: &[Datum],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let builder = context.txn.row(table.table).await;
        let mut builder = builder.map_err(|error| from_txn(error, Some(table)))?;
        let inserted = insert_row(&mut builder, table, row, context.txn).await?;
        inserted.map_err(|error| change_error(error, table, row, &context.call))
    }
}
