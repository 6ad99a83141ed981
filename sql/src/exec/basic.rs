//! Operators that need no more than the row that they are at.

use std::mem;
use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::batch::{BATCH_BYTES, Batch};
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::memory::row_bytes;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{ResolvedRows, RowIterator};
use crate::plan::Expr;
use crate::types::Datum;

/// Rows of expressions over no input row.
pub(crate) struct Values {
    rows: std::vec::IntoIter<Vec<Expr>>,
}

impl Values {
    pub(crate) fn new(rows: Vec<Vec<Expr>>) -> Self {
        Self { rows: rows.into_iter() }
    }
}

impl Operator for Values {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            context.breathe(BATCH_ROWS).await;
            let mut batch = Batch::default();
            while batch.has_room()
                && let Some(exprs) = self.rows.next()
            {
                batch.push(context.eval_all(&exprs, &[])?);
            }
            Ok(batch.finish())
        })
    }
}

/// The rows of a function.
pub(crate) struct FunctionRows {
    function: std::sync::Arc<ResolvedRows>,
    arguments: Vec<Expr>,
    ordinality: bool,
    rows: Option<RowIterator>,
    count: i64,
}

impl FunctionRows {
    pub(crate) fn new(
        function: std::sync::Arc<ResolvedRows>,
        arguments: Vec<Expr>,
        ordinality: bool,
    ) -> Self {
        Self { function, arguments, ordinality, rows: None, count: 0 }
    }

    fn batch(&mut self, context: &ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        let rows = match &mut self.rows {
            Some(rows) => rows,
            none => {
                let values = context.eval_all(&self.arguments, &[])?;
                none.insert(if values.iter().any(Datum::is_null) {
                    Box::new(std::iter::empty())
                } else {
                    (self.function.rows)(&values, &context.call)?
                })
            }
        };
        let mut batch = Vec::new();
        for row in rows.take(BATCH_ROWS) {
            let mut row = row?;
            self.count = self.count.saturating_add(1);
            if self.ordinality {
                row.push(Datum::I64(self.count));
            }
            batch.push(row);
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

impl Operator for FunctionRows {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            context.breathe(BATCH_ROWS).await;
            if let (None, Some(pause)) = (&self.rows, self.function.pause) {
                let values = context.eval_all(&self.arguments, &[])?;
                if !values.iter().any(Datum::is_null) {
                    let Some(env) = context.env else {
                        return Err(SqlError::internal("a statement that waits has no clock"));
                    };
                    env.sleep(pause(&values, &context.call)?).await;
                }
            }
            self.batch(context)
        })
    }
}

/// The rows of the input that pass.
pub(crate) struct Filter {
    pub(crate) input: BoxOperator,
    pub(crate) condition: Expr,
}

impl Operator for Filter {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            while let Some(batch) = self.input.next(context).await? {
                let mut passed = Vec::with_capacity(batch.len());
                for row in batch {
                    if context.holds(Some(&self.condition), &row)? {
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

/// Expressions over each row of the input.
pub(crate) struct Project {
    input: BoxOperator,
    exprs: Arc<[Expr]>,
    /// Rows of the input that are still to come.
    rest: std::vec::IntoIter<Row>,
}

impl Project {
    pub(crate) fn new(input: BoxOperator, exprs: &Arc<[Expr]>) -> Self {
        Self { input, exprs: Arc::clone(exprs), rest: Vec::new().into_iter() }
    }
}

impl Operator for Project {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if self.rest.as_slice().is_empty() {
                let Some(batch) = self.input.next(context).await? else { return Ok(None) };
                self.rest = batch.into_iter();
            } else {
                context.breathe(1).await;
            }
            let (mut batch, mut bytes) = (Vec::with_capacity(self.rest.len()), 0);
            while bytes <= BATCH_BYTES
                && let Some(row) = self.rest.next()
            {
                let row = context.eval_all(&self.exprs, &row)?;
                bytes += row_bytes(&row);
                batch.push(row);
            }
            Ok(Some(batch))
        })
    }
}

/// Where a [`Limit`] is.
enum LimitState {
    NotBegun,
    /// Rows to be left out, and then given: `None` are all.
    Running {
        skip: u64,
        left: Option<u64>,
    },
    Done,
}

/// Some rows of the input. It is not read beyond those.
pub(crate) struct Limit {
    input: Option<BoxOperator>,
    limit: Option<Expr>,
    offset: Option<Expr>,
    state: LimitState,
}

impl Limit {
    pub(crate) fn new(input: BoxOperator, limit: Option<Expr>, offset: Option<Expr>) -> Self {
        Self { input: Some(input), limit, offset, state: LimitState::NotBegun }
    }

    async fn batch(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        loop {
            let (skip, left) = match &mut self.state {
                LimitState::NotBegun => {
                    let left = count_of(self.limit.as_ref(), context, Bound::LIMIT)?;
                    let skip = count_of(self.offset.as_ref(), context, Bound::OFFSET)?;
                    self.state = LimitState::Running { skip: skip.unwrap_or(0), left };
                    continue;
                }
                LimitState::Running { skip, left } => (skip, left),
                LimitState::Done => return Ok(None),
            };
            let input = self.input.as_mut().filter(|_| *left != Some(0));
            let batch = match input {
                Some(input) => input.next(context).await?,
                None => None,
            };
            let Some(mut batch) = batch else {
                self.state = LimitState::Done;
                self.input = None;
                return Ok(None);
            };
            let skipped = usize::try_from(*skip).unwrap_or(usize::MAX).min(batch.len());
            batch.drain(..skipped);
            *skip -= skipped as u64;
            if let Some(left) = left {
                batch.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= batch.len() as u64;
            }
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
    }
}

impl Operator for Limit {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(self.batch(context))
    }
}

/// What a number of rows is called, and the error if it is negative.
#[derive(Clone, Copy)]
pub(crate) struct Bound(&'static str, SqlState);

impl Bound {
    pub(crate) const LIMIT: Self = Self("LIMIT", SqlState::INVALID_LIMIT);
    pub(crate) const OFFSET: Self = Self("OFFSET", SqlState::INVALID_OFFSET);
}

/// A number of rows; `None` if it is NULL or not there.
pub(crate) fn count_of(
    expr: Option<&Expr>,
    context: &ExecContext<'_, '_>,
    Bound(name, state): Bound,
) -> SqlResult<Option<u64>> {
    let Some(expr) = expr else { return Ok(None) };
    let count = match context.eval(expr, &[])? {
        Datum::Null => return Ok(None),
        Datum::I64(count) => count,
        Datum::I32(count) => count.into(),
        other => return Err(SqlError::internal(format!("{name} is no bigint: {other:?}"))),
    };
    let negative = |_| SqlError::new(state, format!("{name} must not be negative"));
    u64::try_from(count).map(Some).map_err(negative)
}

/// Rows one at a time.
pub(crate) struct OneByOne {
    input: BoxOperator,
    batch: std::vec::IntoIter<Row>,
}

impl OneByOne {
    pub(crate) fn new(input: BoxOperator) -> Self {
        Self { input, batch: Vec::new().into_iter() }
    }
}

impl Operator for OneByOne {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            loop {
                if let Some(row) = self.batch.next() {
                    return Ok(Some(vec![row]));
                }
                match self.input.next(context).await? {
                    Some(batch) => self.batch = batch.into_iter(),
                    None => return Ok(None),
                }
            }
        })
    }
}

/// Rows that are there already.
pub(crate) struct Ready {
    rows: Vec<Row>,
}

impl Ready {
    pub(crate) const fn new(rows: Vec<Row>) -> Self {
        Self { rows }
    }
}

impl Operator for Ready {
    fn next<'a>(
        &'a mut self,
        _: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        let rows = mem::take(&mut self.rows);
        Box::pin(std::future::ready(Ok((!rows.is_empty()).then_some(rows))))
    }
}
