//! `count(*)` of a table: its rows are counted and not made.

use selkie_fabric::BoxFuture;

use super::context::{ExecContext, Operator, Row};
use super::scan::Scan;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{AggregateCall, Expr, Plan};
use crate::types::Datum;

/// The number of rows of a read of a table, for each call.
pub(crate) struct CountRows {
    /// Until they are counted.
    scan: Option<Scan>,
    calls: usize,
}

impl CountRows {
    /// What an aggregation is that only counts rows; `None` if it is another.
    pub(crate) fn of(input: &Plan, keys: &[Expr], calls: &[AggregateCall]) -> Option<Self> {
        let counts = |call: &AggregateCall| {
            let AggregateCall { function, arguments, filter, .. } = call;
            &*function.name == "count" && arguments.is_empty() && filter.is_none()
        };
        let Plan::Scan(scan) = input else { return None };
        let is_it = keys.is_empty() && !calls.is_empty() && calls.iter().all(counts);
        is_it.then(|| Self { scan: Some(Scan::new(scan)), calls: calls.len() })
    }

    async fn row(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<Option<Vec<Row>>> {
        let Some(mut scan) = self.scan.take() else { return Ok(None) };
        let count = i64::try_from(scan.count(context).await?)
            .map_err(|_| SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "bigint out of range"))?;
        Ok(Some(vec![vec![Datum::I64(count); self.calls]]))
    }
}

impl Operator for CountRows {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(self.row(context))
    }
}
