//! Subqueries of expressions: a value for each row of the input.

use selkie_fabric::BoxFuture;

use super::build::build;
use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::eval::make_array;
use super::memory::{MemoryUse, drain};
use super::walk::shared_to_forget;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{ApplyKind, Plan};
use crate::types::Datum;

/// What a subquery gave.
enum Outcome {
    Value(Datum),
    /// Rows that are compared with each row of the input, and the memory that they take.
    Rows {
        rows: Vec<Row>,
        _used: MemoryUse,
    },
}

/// The input with a column more. A subquery that does not depend on the row is run for the first
/// row only.
pub(crate) struct Apply {
    input: BoxOperator,
    query: Box<Plan>,
    kind: ApplyKind,
    is_correlated: bool,
    kept: Option<Outcome>,
    /// Common table expressions in the subquery that depend on its outer rows.
    forget: Vec<usize>,
    /// Rows of the input that are given one by one: what locks something does so for no row more
    /// than is wanted.
    waiting: Option<std::vec::IntoIter<Row>>,
}

impl Apply {
    pub(crate) fn new(
        input: BoxOperator,
        query: &Plan,
        kind: ApplyKind,
        is_correlated: bool,
    ) -> Self {
        let forget = shared_to_forget(query);
        let waiting = matches!(query, Plan::Advisory(_)).then(|| Vec::new().into_iter());
        let query = Box::new(query.clone());
        Self { input, query, kind, is_correlated, kept: None, forget, waiting }
    }

    /// Runs the subquery.
    async fn run(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Outcome> {
        for number in &self.forget {
            context.shared.complete.remove(number);
        }
        let mut query = build(&self.query);
        Ok(match &self.kind {
            ApplyKind::Scalar => Outcome::Value(scalar(&mut query, context).await?),
            ApplyKind::Exists => Outcome::Value(Datum::Bool(query.next(context).await?.is_some())),
            ApplyKind::Array { element } => {
                let (rows, _used) = drain(&mut query, context).await?;
                let values = rows.into_iter().map(first_value).collect::<SqlResult<_>>()?;
                Outcome::Value(make_array(values, *element)?)
            }
            ApplyKind::Compare { .. } => {
                let (rows, used) = drain(&mut query, context).await?;
                Outcome::Rows { rows, _used: used }
            }
        })
    }

    /// The row with the value of the subquery behind it.
    async fn extend(&mut self, row: Row, context: &mut ExecContext<'_, '_>) -> SqlResult<Row> {
        let mut row = row;
        let outcome = match self.kept.take().filter(|_| !self.is_correlated) {
            Some(kept) => kept,
            None => {
                context.outer.push(row);
                let outcome = self.run(context).await;
                row = context.outer.pop().unwrap_or_default();
                outcome?
            }
        };
        context
            .breathe(if let Outcome::Rows { rows, .. } = &outcome { rows.len() } else { 1 })
            .await;
        let value = match (&outcome, &self.kind) {
            (Outcome::Value(value), _) => value.clone(),
            (Outcome::Rows { rows, .. }, ApplyKind::Compare { comparison, all }) => {
                let width = row.len();
                let mut value = Datum::Bool(*all);
                for other in rows {
                    row.extend_from_slice(other);
                    let holds = context.eval(comparison, &row);
                    row.truncate(width);
                    match holds? {
                        Datum::Bool(holds) if holds != *all => {
                            value = Datum::Bool(holds);
                            break;
                        }
                        Datum::Null => value = Datum::Null,
                        _ => {}
                    }
                }
                value
            }
            (Outcome::Rows { .. }, _) => return Err(SqlError::internal("rows of a subquery")),
        };
        self.kept = Some(outcome).filter(|_| !self.is_correlated);
        row.push(value);
        Ok(row)
    }
}

impl Operator for Apply {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if let Some(row) = self.waiting.as_mut().and_then(Iterator::next) {
                return Ok(Some(vec![self.extend(row, context).await?]));
            }
            let Some(batch) = self.input.next(context).await? else { return Ok(None) };
            if let Some(waiting) = &mut self.waiting {
                let mut batch = batch.into_iter();
                let first = batch.next();
                *waiting = batch;
                let Some(row) = first else { return Ok(None) };
                return Ok(Some(vec![self.extend(row, context).await?]));
            }
            let mut rows = Vec::with_capacity(batch.len());
            for row in batch {
                rows.push(self.extend(row, context).await?);
            }
            Ok(Some(rows))
        })
    }
}

/// The only value of a subquery.
async fn scalar(query: &mut BoxOperator, context: &mut ExecContext<'_, '_>) -> SqlResult<Datum> {
    let Some(batch) = query.next(context).await? else { return Ok(Datum::Null) };
    if batch.len() > 1 || query.next(context).await?.is_some() {
        let message = "more than one row returned by a subquery used as an expression";
        return Err(SqlError::new(SqlState::CARDINALITY_VIOLATION, message));
    }
    batch.into_iter().next().map_or(Ok(Datum::Null), first_value)
}

fn first_value(row: Row) -> SqlResult<Datum> {
    row.into_iter().next().ok_or_else(|| SqlError::internal("a subquery without columns"))
}
