//! ORDER BY.
//!
//! Rows are sorted in memory. Beyond the limit, what is there is sorted and written as a run to a
//! temporary file, and in the end the runs are merged. Of rows that the order does not tell apart
//! those of an earlier run are first: they came first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::basic::{Bound, count_of};
use super::batch::Batch;
use super::context::{BoxOperator, ExecContext, Operator, Row};
use super::memory::{MemoryLimits, MemoryUse, row_bytes};
use super::row_key::{compare_keys, sort_values};
use super::spill::{RunReader, RunWriter};
use crate::error::SqlResult;
use crate::plan::{Expr, SortKey};

/// Most rows that are kept as the first ones; for more, or where memory does not take them, all are
/// sorted.
const MAX_HEAP_ROWS: u64 = 16 << 10;

/// Most runs that are merged at a time: each is an open file.
const MAX_RUNS: usize = 64;

/// Bytes of the next row of a run that are not counted, as those of its buffer are not: so a merge
/// of rows of a common size goes on when the budget is used up.
const HEAD_BYTES: usize = 32 << 10;

/// A row with the values of its sort keys.
pub(crate) struct KeyedRow {
    pub(crate) keys: Row,
    pub(crate) row: Row,
}

impl KeyedRow {
    pub(crate) fn bytes(&self) -> usize {
        row_bytes(&self.keys) + row_bytes(&self.row)
    }
}

/// Sorted rows.
pub(crate) enum Sorted {
    /// With the memory that they take.
    Rows {
        rows: std::vec::IntoIter<KeyedRow>,
        _used: MemoryUse,
    },
    Runs(Merge),
}

impl Sorted {
    fn none() -> Self {
        Self::Rows { rows: Vec::new().into_iter(), _used: MemoryUse::default() }
    }

    pub(crate) fn next(&mut self) -> SqlResult<Option<KeyedRow>> {
        match self {
            Self::Rows { rows, .. } => Ok(rows.next()),
            Self::Runs(merge) => merge.next(),
        }
    }

    /// The next rows, as an operator gives them.
    pub(crate) fn batch(&mut self) -> SqlResult<Option<Vec<Row>>> {
        self.first(&mut { u64::MAX })
    }

    /// The same, of the first `left` rows that are left.
    fn first(&mut self, left: &mut u64) -> SqlResult<Option<Vec<Row>>> {
        let mut batch = Batch::default();
        while batch.has_room()
            && *left > 0
            && let Some(next) = self.next()?
        {
            batch.push(next.row);
            *left -= 1;
        }
        Ok(batch.finish())
    }
}

/// The rows of the input in order; rows that the order does not tell apart as they came. Where only
/// the first rows are needed, it keeps no more than those, as long as memory takes them.
pub(crate) struct Sort {
    /// Until it has been read.
    input: Option<BoxOperator>,
    keys: Arc<[SortKey]>,
    first: Option<Expr>,
    sorted: Sorted,
    /// Rows that are still to be given.
    left: u64,
}

impl Sort {
    pub(crate) fn new(input: BoxOperator, keys: Vec<SortKey>, first: Option<Expr>) -> Self {
        let sorted = Sorted::none();
        Self { input: Some(input), keys: keys.into(), first, sorted, left: u64::MAX }
    }

    async fn run(
        &mut self,
        mut input: BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let first = count_of(self.first.as_ref(), context, Bound::LIMIT)?;
        self.left = first.unwrap_or(u64::MAX);
        self.sorted = match first.filter(|first| *first <= MAX_HEAP_ROWS) {
            Some(first) => first_rows(&mut input, &self.keys, first, context).await?,
            None => all_rows(&mut input, &self.keys, context).await?,
        };
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
            self.sorted.first(&mut self.left)
        })
    }
}

async fn all_rows(
    input: &mut BoxOperator,
    keys: &Arc<[SortKey]>,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Sorted> {
    let mut sorter = Sorter::new(keys, context.limits);
    while let Some(batch) = input.next(context).await? {
        for row in batch {
            sorter.push(KeyedRow { keys: sort_values(keys, &row, context)?, row })?;
        }
    }
    sorter.finish()
}

/// Sorts rows: in memory, and beyond the limit in temporary files.
pub(crate) struct Sorter {
    rows: Vec<KeyedRow>,
    used: MemoryUse,
    runs: Runs,
}

impl Sorter {
    pub(crate) fn new(keys: &Arc<[SortKey]>, limits: &MemoryLimits) -> Self {
        let runs = Runs { keys: Arc::clone(keys), runs: Vec::new(), limits: limits.clone() };
        Self { rows: Vec::new(), used: MemoryUse::default(), runs }
    }

    pub(crate) fn push(&mut self, keyed: KeyedRow) -> SqlResult<()> {
        let (bytes, can_spill) = (keyed.bytes(), self.runs.limits.spill_bytes > 0);
        let is_full = !self.used.has_room(bytes, &self.runs.limits);
        if can_spill && is_full && !self.rows.is_empty() {
            sort(&mut self.rows, &self.runs.keys);
            self.runs.add(self.rows.drain(..).map(Ok))?;
            self.used = MemoryUse::default();
        }
        match can_spill && self.rows.is_empty() {
            // One row may be larger than what an operator keeps.
            true => self.used.add_unbounded(bytes, &self.runs.limits)?,
            false => self.used.add(bytes, &self.runs.limits)?,
        }
        self.rows.push(keyed);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> SqlResult<Sorted> {
        sort(&mut self.rows, &self.runs.keys);
        if self.runs.runs.is_empty() {
            return Ok(Sorted::Rows { rows: self.rows.into_iter(), _used: self.used });
        }
        self.runs.add(self.rows.drain(..).map(Ok))?;
        self.used = MemoryUse::default();
        Ok(Sorted::Runs(Merge::new(self.runs.runs, &self.runs.keys, &self.runs.limits)?))
    }
}

fn sort(rows: &mut [KeyedRow], keys: &[SortKey]) {
    rows.sort_by(|left, right| compare_keys(&left.keys, &right.keys, keys));
}

/// Sorted runs, in the order in which their rows came.
struct Runs {
    keys: Arc<[SortKey]>,
    runs: Vec<RunReader>,
    limits: MemoryLimits,
}

impl Runs {
    /// Writes a run. When there are too many, they become one before.
    fn add(&mut self, rows: impl Iterator<Item = SqlResult<KeyedRow>>) -> SqlResult<()> {
        if self.runs.len() >= MAX_RUNS {
            let runs = std::mem::take(&mut self.runs);
            let mut merge = Merge::new(runs, &self.keys, &self.limits)?;
            self.write(std::iter::from_fn(|| merge.next().transpose()))?;
        }
        self.write(rows)
    }

    fn write(&mut self, rows: impl Iterator<Item = SqlResult<KeyedRow>>) -> SqlResult<()> {
        let before: u64 = self.runs.iter().map(RunReader::bytes).sum();
        let mut writer = RunWriter::new(&self.limits)?;
        for row in rows {
            writer.write(&row?)?;
            self.limits.check_spill(before + writer.bytes())?;
        }
        self.runs.push(writer.finish()?);
        Ok(())
    }
}

/// The rows of sorted runs in order.
pub(crate) struct Merge {
    runs: Vec<RunReader>,
    /// The next row of each run that has one, the first of them on top.
    heads: BinaryHeap<Reverse<HeapRow>>,
    keys: Arc<[SortKey]>,
    /// What the heads take beyond [`HEAD_BYTES`] each.
    used: MemoryUse,
    limits: MemoryLimits,
}

impl Merge {
    fn new(runs: Vec<RunReader>, keys: &Arc<[SortKey]>, limits: &MemoryLimits) -> SqlResult<Self> {
        let (heads, used) = (BinaryHeap::new(), MemoryUse::default());
        let mut merge = Self { runs, heads, keys: Arc::clone(keys), used, limits: limits.clone() };
        for run in 0..merge.runs.len() {
            merge.refill(run)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, run: usize) -> SqlResult<()> {
        let Some(reader) = self.runs.get_mut(run) else { return Ok(()) };
        if let Some(keyed) = reader.next()? {
            // One value may be larger than what an operator keeps.
            self.used.add_unbounded(bytes_of_head(&keyed), &self.limits)?;
            let order = Arc::clone(&self.keys);
            self.heads.push(Reverse(HeapRow { keyed, number: run, order }));
        }
        Ok(())
    }

    fn next(&mut self) -> SqlResult<Option<KeyedRow>> {
        let Some(Reverse(head)) = self.heads.pop() else { return Ok(None) };
        self.used.subtract(bytes_of_head(&head.keyed));
        self.refill(head.number)?;
        Ok(Some(head.keyed))
    }
}

/// What a row of a merge counts for.
fn bytes_of_head(keyed: &KeyedRow) -> usize {
    keyed.bytes().saturating_sub(HEAD_BYTES)
}

/// A row in a heap, whose greatest is the last in the order.
struct HeapRow {
    keyed: KeyedRow,
    /// Tells apart rows that the order does not.
    number: usize,
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
    first: u64,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Sorted> {
    if first == 0 {
        return Ok(Sorted::none());
    }
    let (mut kept, mut sorter) = (FirstRows::new(keys, first), None);
    while let Some(batch) = input.next(context).await? {
        for row in batch {
            let keyed = KeyedRow { keys: sort_values(keys, &row, context)?, row };
            let left = match sorter {
                Some(_) => Some(keyed),
                None => kept.push(keyed, context.limits)?,
            };
            let Some(keyed) = left else { continue };
            let all = match &mut sorter {
                Some(all) => all,
                none => none.insert(kept.take_sorter(context.limits)?),
            };
            all.push(keyed)?;
        }
    }
    sorter.map_or_else(|| Ok(kept.finish()), Sorter::finish)
}

/// The first rows of those that have come.
struct FirstRows {
    heap: BinaryHeap<HeapRow>,
    first: u64,
    used: MemoryUse,
    next_number: usize,
    keys: Arc<[SortKey]>,
}

impl FirstRows {
    fn new(keys: &Arc<[SortKey]>, first: u64) -> Self {
        let (heap, used) = (BinaryHeap::new(), MemoryUse::default());
        Self { heap, first, used, next_number: 0, keys: Arc::clone(keys) }
    }

    /// Keeps a row if it is one of the first. It is given back if memory has no room for it, and
    /// temporary files may have.
    fn push(&mut self, keyed: KeyedRow, limits: &MemoryLimits) -> SqlResult<Option<KeyedRow>> {
        if self.heap.len() as u64 >= self.first {
            let is_beyond = self.heap.peek().is_some_and(|last| {
                compare_keys(&keyed.keys, &last.keyed.keys, &self.keys).is_ge()
            });
            if is_beyond {
                return Ok(None);
            }
            self.used.subtract(self.heap.pop().map_or(0, |last| last.keyed.bytes()));
        }
        let bytes = keyed.bytes();
        if limits.spill_bytes > 0 && !self.used.has_room(bytes, limits) {
            return Ok(Some(keyed));
        }
        self.used.add(bytes, limits)?;
        let (number, order) = (self.next_number, Arc::clone(&self.keys));
        self.heap.push(HeapRow { keyed, number, order });
        self.next_number += 1;
        Ok(None)
    }

    /// Takes the rows, for what sorts them with all that are still to come.
    fn take_sorter(&mut self, limits: &MemoryLimits) -> SqlResult<Sorter> {
        // What they take is counted by who has them now.
        self.used = MemoryUse::default();
        let mut sorter = Sorter::new(&self.keys, limits);
        let rows = std::mem::take(&mut self.heap).into_sorted_vec();
        rows.into_iter().try_for_each(|row| sorter.push(row.keyed))?;
        Ok(sorter)
    }

    fn finish(self) -> Sorted {
        let rows = self.heap.into_sorted_vec().into_iter().map(|row| row.keyed);
        Sorted::Rows { rows: rows.collect::<Vec<_>>().into_iter(), _used: self.used }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::memory_budget::MemoryBudget;
    use crate::types::Datum;

    /// So many rows of a size, each of which is a run.
    fn merged(rows: i32, text_bytes: usize, budget: &Arc<MemoryBudget>) -> SqlResult<Vec<i32>> {
        let limits = MemoryLimits {
            operator_bytes: text_bytes,
            budget: Arc::clone(budget),
            ..MemoryLimits::default()
        };
        let key = SortKey { expr: Expr::Column(0), descending: false, nulls_first: false };
        let mut sorter = Sorter::new(&Arc::from([key]), &limits);
        for number in (0..rows).rev() {
            let row = vec![Datum::text("x".repeat(text_bytes))];
            sorter.push(KeyedRow { keys: vec![Datum::I32(number)], row })?;
        }
        let (mut sorted, mut numbers) = (sorter.finish()?, Vec::new());
        while let Some(keyed) = sorted.next()? {
            if let Some(Datum::I32(number)) = keyed.keys.first() {
                numbers.push(*number);
            }
        }
        Ok(numbers)
    }

    /// A merge has a row of each run.
    #[test]
    fn rows_that_are_merged_are_counted() {
        let budget = Arc::new(MemoryBudget::new(8 << 20));
        let numbers = |count: i32| (0..count).collect::<Vec<_>>();
        assert_eq!(merged(4, 1 << 20, &budget).unwrap(), numbers(4));
        let error = merged(16, 1 << 20, &budget).unwrap_err();
        assert_eq!(error.state().code(), "53200");
        assert_eq!(budget.used(), 0);
        // What is small goes on without a budget.
        let none = Arc::new(MemoryBudget::new(0));
        assert_eq!(merged(100, 16 << 10, &none).unwrap(), numbers(100));
    }
}
