//! FOR UPDATE: locks of rows.
//!
//! A row that is gone meanwhile, or is locked by another and is to be left out, is not given. The
//! others are in their newest state, if they pass the condition of the query in that.

use selkie_fabric::BoxFuture;
use selkie_txn::LockWait;

use super::build::build;
use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::row_key::compare_with_nulls;
use super::stored_row::{primary_key, read_row, read_whole};
use super::txn_error::from_txn;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, LockRows, Locking};
use crate::types::Datum;

/// Locks the rows of its input.
pub(crate) struct Lock {
    input: BoxOperator,
    locks: Vec<Locking>,
    condition: Option<Expr>,
    is_strict: bool,
    is_for_change: bool,
    is_one_by_one: bool,
    /// Rows of the input that are still to be locked.
    pending: std::vec::IntoIter<Row>,
    /// Whether the transaction has used the tables, so that their keys are known.
    has_used: bool,
}

impl Lock {
    pub(crate) fn new(lock: &LockRows) -> Self {
        Self {
            input: build(&lock.input),
            locks: lock.locks.clone(),
            condition: lock.condition.clone(),
            is_strict: lock.is_strict,
            is_for_change: lock.is_for_change,
            is_one_by_one: lock.is_one_by_one,
            pending: Vec::new().into_iter(),
            has_used: false,
        }
    }

    /// Locks what a row is made of; `None` if it is not given.
    async fn lock(
        &mut self,
        mut row: Row,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<Row>> {
        for Locking { table, first_column, wait } in &self.locks {
            let failed = |error| from_txn(error, Some(table));
            let end = first_column.saturating_add(table.columns.len());
            let Some(own) = row.get_mut(*first_column..end) else {
                return Err(SqlError::internal("a row to be locked has too few columns"));
            };
            // Of the side of an outer join that has no row there is nothing to lock.
            let keys = table.primary_key.iter().filter_map(|at| own.get(*at));
            if keys.clone().all(crate::types::Datum::is_null) {
                continue;
            }
            let Some(key) = primary_key(context.txn, table, own)? else { return Ok(None) };
            let mut moved = Vec::new();
            let locked = context.txn.get_locked(table.table, &key, *wait).await;
            let Some(locked) = locked.map_err(failed)? else { return Ok(None) };
            let mut newest = read_row(locked, table, None, &mut moved)?;
            if !moved.is_empty() {
                match read_whole(context.txn, table, &key).await? {
                    Some(whole) => newest = whole,
                    None => return Ok(None),
                }
            }
            let is_changed = !same(own, &newest);
            own.clone_from_slice(&newest);
            if is_changed && self.is_strict {
                let message = "could not serialize access due to concurrent update";
                return Err(SqlError::new(SqlState::SERIALIZATION_FAILURE, message));
            }
            if is_changed && !context.holds(self.condition.as_ref(), &row)? {
                return Ok(None);
            }
        }
        Ok(Some(row))
    }
}

/// Whether a row is as another.
fn same(row: &[Datum], other: &[Datum]) -> bool {
    row.iter().zip(other).all(|(own, other)| compare_with_nulls(own, other, false, false).is_eq())
}

impl Operator for Lock {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if self.is_for_change && context.is_alone {
                return self.input.next(context).await;
            }
            context.check_writes("SELECT FOR UPDATE")?;
            if !self.has_used {
                if self.locks.iter().any(|lock| lock.wait != LockWait::Wait) {
                    context.txn.leave_reads_unlocked();
                }
                for Locking { table, .. } in &self.locks {
                    let used = context.txn.row(table.table).await;
                    used.map_err(|error| from_txn(error, Some(table)))?;
                }
                self.has_used = true;
            }
            loop {
                let mut locked = Vec::with_capacity(self.pending.len());
                while let Some(row) = self.pending.next() {
                    locked.extend(self.lock(row, context).await?);
                    if self.is_one_by_one && !locked.is_empty() {
                        break;
                    }
                }
                if !locked.is_empty() {
                    return Ok(Some(locked));
                }
                let Some(batch) = self.input.next(context).await? else { return Ok(None) };
                self.pending = batch.into_iter();
            }
        })
    }
}
