//! DISTINCT, UNION, INTERSECT and EXCEPT, by hashing.

use selkie_fabric::BoxFuture;

use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::memory::{MemoryUse, row_bytes};
use super::partitions::{Partition, Partitions, can_divide};
use super::row_key::{KeyMap, KeySet, RowKey, key_of};
use super::sort::KeyedRow;
use crate::error::SqlResult;
use crate::plan::{Expr, SetOperator};

/// Keys that were there already, with the memory that they take. When that is all that there is,
/// rows of other keys are put aside, divided by their keys, and looked at later.
#[derive(Default)]
struct Seen {
    keys: KeySet,
    used: MemoryUse,
    /// How often the rows were divided.
    division: u32,
    aside: Option<Partitions>,
    /// What was put aside and is done with no more.
    left: Vec<Partition>,
}

impl Seen {
    /// The row, if its key is new and it was not put aside.
    fn insert(
        &mut self,
        key: RowKey,
        row: Row,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<Option<Row>> {
        if self.keys.contains(&key) {
            return Ok(None);
        }
        let (bytes, limits) = (row_bytes(&key.0), context.limits);
        let is_full = self.used.bytes().saturating_add(bytes) > limits.operator_bytes;
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
    async fn rest(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        let mut new = Vec::new();
        while new.len() < BATCH_ROWS {
            let next = match self.left.last_mut() {
                Some(partition) => partition.rows.next()?,
                None => None,
            };
            if let Some(KeyedRow { keys, row }) = next {
                context.breathe(1).await;
                new.extend(self.insert(RowKey(keys), row, context)?);
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
        Ok((!new.is_empty()).then_some(new))
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

/// An operation on two sets of rows. UNION reads the left side, then the right; the others count
/// the rows of the right side before they read the left.
pub(crate) struct SetOperation {
    operator: SetOperator,
    all: bool,
    left: BoxOperator,
    right: BoxOperator,
    is_left_done: bool,
    is_right_counted: bool,
    seen: Seen,
    counts: KeyMap<u64>,
    used: MemoryUse,
}

impl SetOperation {
    pub(crate) fn new(
        operator: SetOperator,
        all: bool,
        left: BoxOperator,
        right: BoxOperator,
    ) -> Self {
        Self {
            operator,
            all,
            left,
            right,
            is_left_done: false,
            is_right_counted: false,
            seen: Seen::default(),
            counts: KeyMap::default(),
            used: MemoryUse::default(),
        }
    }

    async fn input(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        if !self.is_left_done {
            if let Some(batch) = self.left.next(context).await? {
                return Ok(Some(batch));
            }
            self.is_left_done = true;
        }
        match self.operator {
            SetOperator::Union => self.right.next(context).await,
            SetOperator::Intersect | SetOperator::Except => Ok(None),
        }
    }

    async fn count_right(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        while let Some(batch) = self.right.next(context).await? {
            for row in batch {
                let bytes = row_bytes(&row);
                let count = self.counts.entry(RowKey(row)).or_insert(0);
                if *count == 0 {
                    self.used.add(bytes, context.limits)?;
                }
                *count += 1;
            }
        }
        self.is_right_counted = true;
        Ok(())
    }

    /// The row, if it is given now. With ALL each row of the right side stands for one of the left.
    fn take(&mut self, row: Row, context: &ExecContext<'_, '_>) -> SqlResult<Option<Row>> {
        if self.operator == SetOperator::Union && self.all {
            return Ok(Some(row));
        }
        let key = RowKey(row.clone());
        if self.operator == SetOperator::Union {
            return self.seen.insert(key, row, context);
        }
        let is_in_right = match self.counts.get_mut(&key) {
            Some(count) if self.all => {
                let is_left = *count > 0;
                *count = count.saturating_sub(1);
                is_left
            }
            Some(_) => true,
            None => false,
        };
        if is_in_right != (self.operator == SetOperator::Intersect) {
            return Ok(None);
        }
        if self.all { Ok(Some(row)) } else { self.seen.insert(key, row, context) }
    }
}

impl Operator for SetOperation {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if self.operator != SetOperator::Union && !self.is_right_counted {
                self.count_right(context).await?;
            }
            while let Some(batch) = self.input(context).await? {
                let mut kept = Vec::with_capacity(batch.len());
                for row in batch {
                    kept.extend(self.take(row, context)?);
                }
                if !kept.is_empty() {
                    return Ok(Some(kept));
                }
            }
            self.seen.rest(context).await
        })
    }
}
