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
use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Operator, Row};
use super::memory::{MemoryLimits, MemoryUse, row_bytes};
use super::row_key::{compare_keys, sort_values};
use super::spill::{RunReader, RunWriter};
use crate::error::SqlResult;
use crate::plan::{Expr, SortKey};

/// Most rows that are kept as the first ones; for more, all are sorted.
const MAX_HEAP_ROWS: u64 = 16 << 10;

/// Most runs that are merged at a time: each is an open file.
const MAX_RUNS: usize = 64;

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
        let mut batch = Vec::new();
        while batch.len() < BATCH_ROWS
            && *left > 0
            && let Some(next) = self.next()?
        {
            batch.push(next.row);
            *left -= 1;
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// The rows of the input in order; rows that the order does not tell apart as they came. Where only
/// the first rows are needed, it keeps no more than those.
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
        Ok(Sorted::Runs(Merge::new(self.runs.runs, &self.runs.keys)?))
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
            let mut merge = Merge::new(std::mem::take(&mut self.runs), &self.keys)?;
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
}

impl Merge {
    fn new(runs: Vec<RunReader>, keys: &Arc<[SortKey]>) -> SqlResult<Self> {
        let mut merge = Self { runs, heads: BinaryHeap::new(), keys: Arc::clone(keys) };
        for run in 0..merge.runs.len() {
            merge.refill(run)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, run: usize) -> SqlResult<()> {
        let Some(reader) = self.runs.get_mut(run) else { return Ok(()) };
        if let Some(keyed) = reader.next()? {
            let order = Arc::clone(&self.keys);
            self.heads.push(Reverse(HeapRow { keyed, number: run, order }));
        }
        Ok(())
    }

    fn next(&mut self) -> SqlResult<Option<KeyedRow>> {
        let Some(Reverse(head)) = self.heads.pop() else { return Ok(None) };
        self.refill(head.number)?;
        Ok(Some(head.keyed))
    }
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
    let (mut heap, mut used, mut number) = (BinaryHeap::new(), MemoryUse::default(), 0);
    if first == 0 {
        return Ok(Sorted::none());
    }
    while let Some(batch) = input.next(context).await? {
        for row in batch {
            let keyed = KeyedRow { keys: sort_values(keys, &row, context)?, row };
            if heap.len() as u64 >= first {
                let is_beyond = heap.peek().is_some_and(|last: &HeapRow| {
                    compare_keys(&keyed.keys, &last.keyed.keys, keys).is_ge()
                });
                if is_beyond {
                    continue;
                }
                used.subtract(heap.pop().map_or(0, |last| last.keyed.bytes()));
            }
            used.add(keyed.bytes(), context.limits)?;
            heap.push(HeapRow { keyed, number, order: Arc::clone(keys) });
            number += 1;
        }
    }
    let rows: Vec<KeyedRow> = heap.into_sorted_vec().into_iter().map(|row| row.keyed).collect();
    Ok(Sorted::Rows { rows: rows.into_iter(), _used: used })
}
