//! ORDER BY.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::basic::{Bound, count_of};
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::memory::{MemoryUse, row_bytes};
use super::row_key::{compare_keys, sort_values};
use crate::error::SqlResult;
use crate::plan::{Expr, SortKey};

/// A row with the values of its sort keys.
pub(crate) struct KeyedRow {
    pub(crate) keys: Row,
    pub(crate) row: Row,
}

/// The rows of the input in order; rows that the order does not tell apart as they came. Where only
/// the first rows are needed, it keeps no more than those.
pub(crate) struct Sort {
    input: Option<BoxOperator>,
    keys: Arc<[SortKey]>,
    first: Option<Expr>,
    sorted: std::vec::IntoIter<KeyedRow>,
}

impl Sort {
    pub(crate) fn new(input: BoxOperator, keys: Vec<SortKey>, first: Option<Expr>) -> Self {
        Self { input: Some(input), keys: keys.into(), first, sorted: Vec::new().into_iter() }
    }

    async fn run(
        &mut self,
        mut input: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let first = count_of(self.first.as_ref(), context, Bound::LIMIT)?;
        let rows = match first.map(usize::try_from) {
            Some(Ok(first)) => first_rows(&mut input, &self.keys, first, context).await?,
            _ => all_rows(&mut input, &self.keys, context).await?,
        };
        self.sorted = rows.into_iter();
        Ok(())
    }
}

impl Operator for Sort {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            if let Some(input) = self.input.take() {
                self.run(input, context).await?;
            }
            let batch: Vec<Row> =
                self.sorted.by_ref().take(BATCH_ROWS).map(|sorted| sorted.row).collect();
            Ok((!batch.is_empty()).then_some(batch))
        })
    }
}

async fn all_rows(
    input: &mut BoxOperator,
    keys: &[SortKey],
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Vec<KeyedRow>> {
    let (mut rows, mut used) = (Vec::new(), MemoryUse::default());
    while let Some(batch) = input.next(context).await? {
        for row in batch {
            let values = sort_values(keys, &row, context)?;
            used.add(row_bytes(&row) + row_bytes(&values), context.limits)?;
            rows.push(KeyedRow { keys: values, row });
        }
    }
    rows.sort_by(|left, right| compare_keys(&left.keys, &right.keys, keys));
    Ok(rows)
}

/// A row in the heap, whose greatest is the last in the order.
struct HeapRow {
    keyed: KeyedRow,
    /// How many rows came before it.
    number: u64,
    order: Arc<[SortKey]>,
}

impl Ord for HeapRow {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = compare_keys(&self.keyed.keys, &other.keyed.keys, &self.order);
        order.then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for HeapRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for HeapRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for HeapRow {}

async fn first_rows(
    input: &mut BoxOperator,
    keys: &Arc<[SortKey]>,
    first: usize,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Vec<KeyedRow>> {
    let (mut heap, mut used, mut number) = (BinaryHeap::new(), MemoryUse::default(), 0);
    let bytes = |keyed: &KeyedRow| row_bytes(&keyed.row) + row_bytes(&keyed.keys);
    if first == 0 {
        return Ok(Vec::new());
    }
    while let Some(batch) = input.next(context).await? {
        for row in batch {
            let keyed = KeyedRow { keys: sort_values(keys, &row, context)?, row };
            if heap.len() >= first {
                let is_beyond = heap.peek().is_some_and(|last: &HeapRow| {
                    compare_keys(&keyed.keys, &last.keyed.keys, keys).is_ge()
                });
                if is_beyond {
                    continue;
                }
                used.subtract(heap.pop().map_or(0, |last| bytes(&last.keyed)));
            }
            used.add(bytes(&keyed), context.limits)?;
            heap.push(HeapRow { keyed, number, order: Arc::clone(keys) });
            number += 1;
        }
    }
    Ok(heap.into_sorted_vec().into_iter().map(|row| row.keyed).collect())
}
