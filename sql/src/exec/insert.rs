//! INSERT.
//!
//! All rows are inserted in the first call, also if the client reads what is returned in parts. A
//! source that reads the table itself is read to its end before, so that it sees none of the new
//! rows.

use std::collections::HashSet;
use std::sync::Arc;

use foldhash::fast::RandomState;
use selkie_fabric::BoxFuture;
use selkie_txn::{KeyBuf, KeyRange, LockOutcome, LockWait, RowBuilder, TxnError};

use super::build::build;
use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::modify::{Change, Rekeyed, plan_change};
use super::references::{Tracked, Tracker};
use super::row_queue::{QueuedRows, RowQueue};
use super::row_write::{Returned, change_error, check_row, insert_row};
use super::stored_row::{key_in, primary_key, read_row, read_whole};
use super::txn_error::{from_txn, index_of_duplicate};
use super::walk::reads_table;
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{self, ConflictAction, Expr};
use crate::types::Datum;

/// An INSERT that runs.
pub(crate) struct Insert {
    pub(super) change: InsertRows,
    /// Until it has run.
    source: Option<BoxOperator>,
    /// Whether all of the source is read before the first row is inserted.
    reads_first: bool,
    pub(super) returned: QueuedRows,
}

/// What is done with each row.
pub(super) struct InsertRows {
    pub(super) table: Arc<TableDef>,
    pub(super) checks: Vec<(String, Expr)>,
    pub(super) on_conflict: Option<ConflictAction>,
    pub(super) returning: Option<Vec<Expr>>,
    /// Rows that this command has inserted or changed, by their primary keys, where it may change
    /// rows.
    pub(super) touched: HashSet<KeyBuf, RandomState>,
    tracker: Tracker,
}

impl Insert {
    pub(crate) fn new(insert: &plan::Insert) -> Self {
        let change = InsertRows {
            table: Arc::clone(&insert.table),
            checks: insert.checks.clone(),
            on_conflict: insert.on_conflict.clone(),
            returning: insert.returning.clone(),
            touched: HashSet::default(),
            tracker: Tracker::default(),
        };
        Self {
            change,
            source: Some(build(&insert.source)),
            reads_first: reads_table(&insert.source, insert.table.table),
            returned: QueuedRows::default(),
        }
    }

    async fn run(
        &mut self,
        mut source: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let table = Arc::clone(&self.change.table);
        let builder = context.txn.row(table.table).await;
        let mut builder = builder.map_err(|error| from_txn(error, Some(&table)))?;
        let mut returned = Returned::default();
        let columns = self.change.updated_columns();
        let changes = columns.as_deref().map_or(Tracked::Insert, Tracked::Upsert);
        self.change.tracker = Tracker::begin(&table, changes, context).await?;
        let mut first = match self.reads_first {
            true => Some(RowQueue::of(&mut source, context).await?),
            false => None,
        };
        loop {
            let batch = match &mut first {
                Some(rows) => rows.batch()?,
                None => source.next(context).await?,
            };
            let Some(batch) = batch else { break };
            let count = batch.len();
            for (at, row) in batch.into_iter().enumerate() {
                let inserted = self.change.insert(row, &mut builder, &mut returned, context).await;
                inserted.map_err(|error| match context.copied.place(at, count) {
                    Some(place) => error.context(place),
                    None => error,
                })?;
            }
            self.change.tracker.advance(context).await?;
        }
        self.returned = returned.rows.finish()?;
        std::mem::take(&mut self.change.tracker).end(context).await
    }
}

impl Operator for Insert {
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

impl InsertRows {
    async fn insert(
        &mut self,
        mut row: Row,
        builder: &mut RowBuilder<'_>,
        returned: &mut Returned,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let table = Arc::clone(&self.table);
        // What subqueries of ON CONFLICT and RETURNING have given stands behind the row.
        let rest = row.split_off(table.columns.len().min(row.len()));
        check_row(&table, &self.checks, &row, None, context)?;
        if let Some(old) = self.settle_conflict(&row, context).await? {
            return self.update(old, (row, rest), returned, context).await;
        }
        match insert_row(builder, &table, &row, context.txn).await? {
            Ok(()) => {}
            Err(TxnError::Duplicate { index, .. }) if self.ignores(&index) => return Ok(()),
            Err(error) => return Err(change_error(error, &table, &row, &context.call)),
        }
        context.affected += 1;
        self.tracker.inserted(&row, context)?;
        if self.on_conflict.as_ref().is_some_and(|action| action.update.is_some()) {
            self.touched.extend(primary_key(context.txn, &table, &row)?);
        }
        row.extend(rest);
        returned.add(self.returning.as_deref(), &row, context)
    }

    /// The columns that ON CONFLICT may update.
    pub(super) fn updated_columns(&self) -> Option<Vec<usize>> {
        let (assignments, _) = self.on_conflict.as_ref()?.update.as_ref()?;
        Some(assignments.iter().map(|(at, _)| *at).collect())
    }

    /// Whether a row is left out that has the key of another in this index.
    fn ignores(&self, index: &str) -> bool {
        let Some(action) = &self.on_conflict else { return false };
        action.update.is_none()
            && (action.target.is_none() || action.target == index_of_duplicate(&self.table, index))
    }

    /// The row that this one conflicts with. In a transaction of several statements it is locked if
    /// it is to be changed; so is the primary key that is to be inserted if there is none: others
    /// that insert or change it wait, instead of failing at their commit. What is read before the
    /// lock is held need not stay as it is, so it is not read to be changed.
    pub(super) async fn settle_conflict(
        &self,
        row: &[Datum],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<Row>> {
        let update = self.on_conflict.as_ref().filter(|action| action.update.is_some());
        if let Some(target) = update.and_then(|action| action.target)
            && !context.is_alone
        {
            let table = &*self.table;
            let key = match target {
                None => primary_key(context.txn, table, row)?,
                // Of another index there is nothing to lock if there is no row.
                Some(_) => match self.find_conflict(row, false, context).await? {
                    Some(old) => primary_key(context.txn, table, &old)?,
                    None => None,
                },
            };
            if let Some(key) = key {
                let held = context.txn.lock_row(table.table, &key, LockWait::Wait).await;
                let LockOutcome::Held = held.map_err(|error| from_txn(error, Some(table)))? else {
                    return Err(SqlError::internal("a lock that was waited for is not held"));
                };
            }
        }
        self.find_conflict(row, true, context).await
    }

    /// The row that has the key of this one in the index that ON CONFLICT names. Without a name
    /// the insertion finds it. `is_to_change` reads its newest state, which has to stay.
    async fn find_conflict(
        &self,
        row: &[Datum],
        is_to_change: bool,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<Row>> {
        match self.on_conflict.as_ref().and_then(|action| action.target) {
            Some(target) => self.find_by(target, row, is_to_change, context).await,
            None => Ok(None),
        }
    }

    /// The row that has the key of this one in an index, or in the primary key.
    pub(super) async fn find_by(
        &self,
        target: Option<usize>,
        row: &[Datum],
        is_to_change: bool,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<Row>> {
        let table = &*self.table;
        let failed = |error| from_txn(error, Some(table));
        let Some((columns, _)) = table.key(target) else {
            return Err(SqlError::internal("ON CONFLICT with an index that is not there"));
        };
        if columns.iter().any(|at| row.get(*at).is_none_or(Datum::is_null)) {
            return Ok(None);
        }
        let mut moved = Vec::new();
        let index = target.and_then(|at| table.indexes.get(at));
        let found = if let Some(index) = index {
            let index = context.txn.index(table.table, &index.name).await.map_err(failed)?;
            let Some(key) = key_in(context.txn, index.into(), table, columns, row)? else {
                return Ok(None);
            };
            let range = KeyRange::prefix(&key);
            let found = match is_to_change {
                true => context.txn.first_for_update(index, &range).await,
                false => context.txn.first(index, &range).await,
            };
            found.map_err(failed)?
        } else {
            let Some(key) = primary_key(context.txn, table, row)? else { return Ok(None) };
            context.txn.get_for_update(table.table, &key).await.map_err(failed)?
        };
        let Some(found) = found else { return Ok(None) };
        let old = read_row(found, table, None, &mut moved)?;
        if moved.is_empty() {
            return Ok(Some(old));
        }
        match primary_key(context.txn, table, &old)? {
            Some(key) => read_whole(context.txn, table, &key).await,
            None => Ok(None),
        }
    }

    /// ON CONFLICT DO UPDATE, or nothing.
    async fn update(
        &mut self,
        old: Row,
        (row, rest): (Row, Row),
        returned: &mut Returned,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let planned = self.planned_update(old, (row, &rest), context)?;
        let Some(PlannedUpdate { key, old, mut new, change }) = planned else { return Ok(()) };
        let table = Arc::clone(&self.table);
        self.tracker.updated(&old, &new, context)?;
        let rekeyed = change.run(&table, &key, &new, context).await?;
        let key = match rekeyed {
            Some(Rekeyed { key, row }) => {
                Rekeyed::insert(&table, &row, context).await?;
                key
            }
            None => key,
        };
        self.touched.insert(key);
        context.affected += 1;
        new.extend(rest);
        returned.add(self.returning.as_deref(), &new, context)
    }

    /// How ON CONFLICT DO UPDATE changes a row; `None` if it does not.
    pub(super) fn planned_update(
        &self,
        old: Row,
        (row, rest): (Row, &[Datum]),
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<Option<PlannedUpdate>> {
        let update = self.on_conflict.as_ref().and_then(|action| action.update.as_ref());
        let Some((assignments, condition)) = update else { return Ok(None) };
        let table = &*self.table;
        let Some(key) = primary_key(context.txn, table, &old)? else { return Ok(None) };
        let width = old.len();
        let mut both = old;
        both.extend(row);
        both.extend_from_slice(rest);
        if !context.holds(condition.as_ref(), &both)? {
            return Ok(None);
        }
        if self.touched.contains(&key) {
            return Err(changed_twice());
        }
        let values: Vec<(usize, Datum)> = assignments
            .iter()
            .map(|(at, expr)| Ok((*at, context.eval(expr, &both)?)))
            .collect::<SqlResult<_>>()?;
        let old: Row = both.drain(..width.min(both.len())).collect();
        let (new, change) = plan_change(table, &key, &old, values, &self.checks, context)?;
        Ok(Some(PlannedUpdate { key, old, new, change }))
    }
}

/// How a row is changed that is there already.
pub(super) struct PlannedUpdate {
    pub(super) key: KeyBuf,
    pub(super) old: Row,
    pub(super) new: Row,
    change: Change,
}

/// The error of ON CONFLICT DO UPDATE for a row that the command has inserted or changed.
pub(super) fn changed_twice() -> SqlError {
    let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
    let hint = "Ensure that no rows proposed for insertion within the same command have \
                duplicate constrained values.";
    SqlError::new(SqlState::CARDINALITY_VIOLATION, message).hint(hint)
}
