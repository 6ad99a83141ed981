//! DISTINCT, UNION, INTERSECT and EXCEPT, by hashing.

use selkie_fabric::BoxFuture;

use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::memory::{MemoryUse, row_bytes};
use super::row_key::{KeyMap, KeySet, RowKey, key_of};
use crate::error::SqlResult;
use crate::plan::{Expr, SetOperator};

/// Keys that were there already, with the memory that they take.
#[derive(Default)]
struct Seen {
    keys: KeySet,
    used: MemoryUse,
}

impl Seen {
    /// Whether a key is new.
    fn insert(&mut self, key: RowKey, context: &ExecContext<'_, '_>) -> SqlResult<bool> {
        let bytes = row_bytes(&key.0);
        if !self.keys.insert(key) {
            return Ok(false);
        }
        self.used.add(bytes, context.limits)?;
        Ok(true)
    }
}

/// The first of the rows that agree in some expressions.
pub(crate) struct Distinct {
    input: BoxOperator,
    keys: Vec<Expr>,
    seen: Seen,
}

impl Distinct {
    pub(crate) fn new(input: BoxOperator, keys: Vec<Expr>) -> Self {
        Self { input, keys, seen: Seen::default() }
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
                    if self.seen.insert(key_of(&self.keys, &row, context)?, context)? {
                        new.push(row);
                    }
                }
                if !new.is_empty() {
                    return Ok(Some(new));
                }
            }
            Ok(None)
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

    /// Whether a row is given. With ALL each row of the right side stands for one of the left.
    fn keeps(&mut self, row: &Row, context: &ExecContext<'_, '_>) -> SqlResult<bool> {
        if self.operator == SetOperator::Union {
            return Ok(self.all || self.seen.insert(RowKey(row.clone()), context)?);
        }
        let key = RowKey(row.clone());
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
            return Ok(false);
        }
        Ok(self.all || self.seen.insert(key, context)?)
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
                    if self.keeps(&row, context)? {
                        kept.push(row);
                    }
                }
                if !kept.is_empty() {
                    return Ok(Some(kept));
                }
            }
            Ok(None)
        })
    }
}
