//! DISTINCT and UNION, by hashing.

use selkie_fabric::BoxFuture;

use super::batch::Batch;
use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::memory::{MemoryUse, row_bytes};
use super::partitions::{Partition, Partitions, can_divide};
use super::row_key::{KeySet, RowKey, key_of};
use super::sort::KeyedRow;
use crate::error::SqlResult;
use crate::plan::Expr;

/// Keys that were there already, with the memory that they take. When that is all that there is,
/// rows of other keys are put aside, divided by their keys, and looked at later.
#[derive(Default)]
pub(super) struct Seen {
    keys: KeySet,
    used: MemoryUse,
    /// How often the rows were divided.
    division: u32,
    aside: Option<Partitions>,
    /// What was put aside and is done with no more.
    left: Vec<Partition>,
}

impl Seen {
    /// Begins anew, with rows that were divided so often.
    pub(super) fn begin(&mut self, division: u32) {
        *self = Self { division, ..Self::default() };
    }

    /// The row, if its key is new and it was not put aside.
    pub(super) fn insert(
        &mut self,
        key: RowKey,
        row: Row,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<Option<Row>> {
        if self.keys.contains(&key) {
            return Ok(None);
        }
        let (bytes, limits) = (row_bytes(&key.0), context.limits);
        let is_full = !self.used.has_room(bytes, limits);
        if is_full && self.aside.is_none() && can_divide(self.division, limits) {
            self.aside = Some(Partitions::new(self.division));
        }
        if let Some(aside) = &mut self.aside {
            aside.push(&KeyedRow { keys: key.0, row }, limits)?;
            return Ok(None);
        }
        self.used.add(bytes, limits)?;
        self.keys.insert(key);
        Ok(Some(row))
    }

    /// Of the rows that were put aside the next whose keys are new; after all others.
    pub(super) async fn rest(
        &mut self,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Option<Vec<Row>>> {
        let mut new = Batch::default();
        while new.has_room() {
            let next = match self.left.last_mut() {
                Some(partition) => partition.rows.next()?,
                None => None,
            };
            if let Some(KeyedRow { keys, row }) = next {
                context.breathe(1).await;
                if let Some(row) = self.insert(RowKey(keys), row, context)? {
                    new.push(row);
                }
                continue;
            }
            // The keys of other rows are others.
            self.left.pop();
            if let Some(aside) = self.aside.take() {
                self.left.extend(aside.finish()?.into_iter().flatten());
            }
            (self.keys, self.used) = (KeySet::default(), MemoryUse::default());
            let Some(partition) = self.left.last() else { break };
            self.division = partition.division;
        }
        Ok(new.finish())
    }
}

/// The first of the rows that agree in some expressions.
pub(crate) struct Distinct {
    input: BoxOperator,
    keys: Vec<Expr>,
    seen: Seen,
    /// Of rows that come in the order of the keys only the key of the last is needed.
    is_sorted: bool,
    last: Option<RowKey>,
}

impl Distinct {
    pub(crate) fn new(input: BoxOperator, keys: Vec<Expr>, is_sorted: bool) -> Self {
        Self { input, keys, seen: Seen::default(), is_sorted, last: None }
    }

    /// The row, if it is given now.
    fn take(&mut self, row: Row, context: &ExecContext<'_, '_>) -> SqlResult<Option<Row>> {
        let key = key_of(&self.keys, &row, context)?;
        if !self.is_sorted {
            return self.seen.insert(key, row, context);
        }
        let is_new = self.last.as_ref() != Some(&key);
        self.last = Some(key);
        Ok(is_new.then_some(row))
    }
}

impl Operator for Distinct {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            while let Some(batch) = self.input.next(context).await? {
                let mut new = Vec::new();
                for row in batch {
                    new.extend(self.take(row, context)?);
                }
                if !new.is_empty() {
                    return Ok(Some(new));
                }
            }
            self.seen.rest(context).await
        })
    }
}

/// UNION without ALL: the rows of the left side, then those of the right.
pub(crate) struct Union {
    left: BoxOperator,
    right: BoxOperator,
    is_left_done: bool,
    seen: Seen,
}

impl Union {
    pub(crate) fn new(left: BoxOperator, right: BoxOperator) -> Self {
        Self { left, right, is_left_done: false, seen: Seen::default() }
    }

    async fn input(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        if !self.is_left_done {
            if let Some(batch) = self.left.next(context).await? {
                return Ok(Some(batch));
            }
            self.is_left_done = true;
        }
        self.right.next(context).await
    }
}

impl Operator for Union {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            while let Some(batch) = self.input(context).await? {
                let mut new = Vec::with_capacity(batch.len());
                for row in batch {
                    new.extend(self.seen.insert(RowKey(row.clone()), row, context)?);
                }
                if !new.is_empty() {
                    return Ok(Some(new));
                }
            }
            self.seen.rest(context).await
        })
    }
}
