//! `row_number()` of all rows as they come, which needs none of them kept.

use selkie_fabric::BoxFuture;

use super::context::{BoxOperator, ExecContext, Operator, Row};
use crate::error::SqlResult;
use crate::plan::WindowCall;
use crate::types::Datum;

/// The rows of the input with their number behind them, once for each call.
pub(crate) struct NumberRows {
    input: BoxOperator,
    calls: usize,
    last: i64,
}

impl NumberRows {
    pub(crate) fn new(input: BoxOperator, calls: usize) -> Self {
        Self { input, calls, last: 0 }
    }

    /// Whether calls do no more than that.
    pub(crate) fn are_it(calls: &[WindowCall]) -> bool {
        calls.iter().all(|call| {
            let is_whole = call.partition.is_empty() && call.order.is_empty();
            call.aggregate.is_none() && call.name == "row_number" && is_whole
        })
    }
}

impl Operator for NumberRows {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            let Some(mut batch) = self.input.next(context).await? else { return Ok(None) };
            for row in &mut batch {
                self.last += 1;
                row.extend(std::iter::repeat_n(Datum::I64(self.last), self.calls));
            }
            Ok(Some(batch))
        })
    }
}
