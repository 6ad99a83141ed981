//! Window functions.
//!
//! For each call the rows are sorted by its partition and order, and its value goes behind the
//! columns that the rows have. They are given in the order of the last call.

use std::cmp::Ordering;
use std::ops::Range;

use selkie_fabric::BoxFuture;

use super::context::{BoxOperator, ExecContext, Operator, Row, take_batch};
use super::memory::{MemoryUse, drain, row_bytes};
use super::row_key::{compare_keys, compare_with_nulls, sort_values};
use super::window_call::{Partition, call_values};
use crate::error::SqlResult;
use crate::plan::WindowCall;

/// The input with the values of window functions.
pub(crate) struct Window {
    /// Until it has been read.
    input: Option<BoxOperator>,
    calls: Vec<WindowCall>,
    rows: std::vec::IntoIter<Row>,
}

/// A row with what it is sorted by.
struct Placed {
    partition: Row,
    order: Row,
    row: Row,
}

impl Window {
    pub(crate) fn new(input: BoxOperator, calls: Vec<WindowCall>) -> Self {
        Self { input: Some(input), calls, rows: Vec::new().into_iter() }
    }

    async fn run(
        &mut self,
        mut input: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let mut rows = drain(&mut input, context).await?;
        for call in &self.calls {
            rows = with_call(rows, call, context).await?;
        }
        self.rows = rows.into_iter();
        Ok(())
    }
}

impl Operator for Window {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if let Some(input) = self.input.take() {
                self.run(input, context).await?;
            }
            Ok(take_batch(&mut self.rows))
        })
    }
}

/// The rows, sorted for a call, with its values behind their columns.
async fn with_call(
    rows: Vec<Row>,
    call: &WindowCall,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Vec<Row>> {
    let (mut placed, mut used) = (Vec::with_capacity(rows.len()), MemoryUse::default());
    for row in rows {
        let partition = context.eval_all(&call.partition, &row)?;
        let order = sort_values(&call.order, &row, context)?;
        used.add(row_bytes(&partition) + row_bytes(&order) + row_bytes(&row), context.limits)?;
        placed.push(Placed { partition, order, row });
    }
    placed.sort_by(|left, right| {
        by_partition(left, right).then_with(|| compare_keys(&left.order, &right.order, &call.order))
    });
    let mut values = Vec::with_capacity(placed.len());
    for rows in placed.chunk_by(|left, right| by_partition(left, right).is_eq()) {
        let rows_of: Vec<&Row> = rows.iter().map(|placed| &placed.row).collect();
        let partition = Partition { rows: rows_of, peers: peers(rows, call) };
        values.extend(call_values(call, &partition, context).await?);
    }
    let rows = placed.into_iter().zip(values).map(|(placed, value)| {
        let mut row = placed.row;
        row.push(value);
        row
    });
    Ok(rows.collect())
}

fn by_partition(left: &Placed, right: &Placed) -> Ordering {
    let pairs = left.partition.iter().zip(&right.partition);
    pairs
        .map(|(left, right)| compare_with_nulls(left, right, false, false))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// The groups of rows that the order does not tell apart.
fn peers(rows: &[Placed], call: &WindowCall) -> Vec<Range<usize>> {
    let groups =
        rows.chunk_by(|left, right| compare_keys(&left.order, &right.order, &call.order).is_eq());
    let mut start = 0;
    groups
        .map(|group| {
            let range = start..start + group.len();
            start = range.end;
            range
        })
        .collect()
}
