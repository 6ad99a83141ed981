//! Window functions.
//!
//! For each call the rows are sorted by its partition and order, and its value goes behind the
//! columns that the rows have. They are given in the order of the last call. A partition has to fit
//! in memory; the rows of all need not.

use std::ops::Range;
use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::memory::MemoryUse;
use super::row_key::{compare_keys, sort_values};
use super::row_queue::{QueuedRows, RowQueue};
use super::sort::{KeyedRow, Sorter};
use super::window_call::{Partition, call_values};
use crate::error::SqlResult;
use crate::plan::{SortKey, WindowCall};
use crate::types::Datum;

/// The input with the values of window functions.
pub(crate) struct Window {
    /// Until it has been read.
    input: Option<BoxOperator>,
    calls: Vec<WindowCall>,
    rows: QueuedRows,
}

impl Window {
    pub(crate) fn new(input: BoxOperator, calls: Vec<WindowCall>) -> Self {
        Self { input: Some(input), calls, rows: QueuedRows::default() }
    }

    async fn run(
        &mut self,
        mut input: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let mut rows = RowQueue::of(&mut input, context).await?;
        for call in &self.calls {
            rows = with_call(rows, call, context).await?;
        }
        self.rows = rows;
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
            self.rows.batch()
        })
    }
}

/// The rows, sorted for a call, with its values behind their columns.
async fn with_call(
    mut rows: QueuedRows,
    call: &WindowCall,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<QueuedRows> {
    let partition = call.partition.iter().map(|expr| SortKey {
        expr: expr.clone(),
        descending: false,
        nulls_first: false,
    });
    let keys: Arc<[SortKey]> = partition.chain(call.order.iter().cloned()).collect();
    let mut sorter = Sorter::new(&keys, context.limits);
    while let Some(row) = rows.next()? {
        context.breathe(1).await;
        sorter.push(KeyedRow { keys: sort_values(&keys, &row, context)?, row })?;
    }
    // Their memory is for those that are sorted.
    drop(rows);
    let (mut sorted, mut out) = (sorter.finish()?, RowQueue::default());
    let (of_partition, _) = keys.split_at_checked(call.partition.len()).unwrap_or_default();
    let (mut partition, mut used) = (Vec::<KeyedRow>::new(), MemoryUse::default());
    loop {
        let next = sorted.next()?;
        let is_new = match (&next, partition.last()) {
            (Some(next), Some(last)) => compare_keys(&next.keys, &last.keys, of_partition).is_ne(),
            (None, last) => last.is_some(),
            (Some(_), None) => false,
        };
        if is_new {
            let rows = std::mem::take(&mut partition);
            used = MemoryUse::default();
            for row in with_values(rows, call, context).await? {
                out.push(row, context.limits)?;
            }
        }
        let Some(next) = next else { return out.finish() };
        used.add(next.bytes(), context.limits)?;
        partition.push(next);
    }
}

/// The rows of a partition with the values of a call.
async fn with_values(
    rows: Vec<KeyedRow>,
    call: &WindowCall,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Vec<Row>> {
    let partition = Partition {
        rows: rows.iter().map(|keyed| &keyed.row).collect(),
        peers: peers(&rows, call),
    };
    let values = call_values(call, &partition, context).await?;
    let rows = rows.into_iter().zip(values).map(|(keyed, value)| {
        let mut row = keyed.row;
        row.push(value);
        row
    });
    Ok(rows.collect())
}

/// The groups of rows that the order does not tell apart. Their keys begin with the partition's.
fn peers(rows: &[KeyedRow], call: &WindowCall) -> Vec<Range<usize>> {
    let groups = rows.chunk_by(|left, right| {
        compare_keys(of_order(left, call), of_order(right, call), &call.order).is_eq()
    });
    let mut start = 0;
    groups
        .map(|group| {
            let range = start..start + group.len();
            start = range.end;
            range
        })
        .collect()
}

fn of_order<'k>(keyed: &'k KeyedRow, call: &WindowCall) -> &'k [Datum] {
    keyed.keys.get(call.partition.len()..).unwrap_or_default()
}
