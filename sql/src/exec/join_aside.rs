//! The rows of both sides of a join that memory does not take, divided by their keys.

use std::sync::Arc;

use super::context::{ExecContext, Row};
use super::memory::MemoryLimits;
use super::partitions::{Partition, Partitions};
use super::sort::{KeyedRow, Sorter};
use crate::error::SqlResult;
use crate::plan::{Expr, SortKey};
use crate::types::Datum;

/// Pairs of files: rows with the same key are in the two of one pair.
pub(crate) struct Aside {
    pairs: Vec<Pair>,
    /// Rows of the left of the pair that is joined.
    left: Option<Partition>,
}

/// The rows of both sides that one hash has.
pub(crate) struct Pair {
    /// How often they were divided.
    pub(crate) division: u32,
    left: Option<Partition>,
    right: Option<Partition>,
}

impl Aside {
    pub(crate) fn of(right: Partitions, left: Partitions) -> SqlResult<Self> {
        let mut aside = Self { pairs: Vec::new(), left: None };
        aside.add(right, left)?;
        Ok(aside)
    }

    fn add(&mut self, right: Partitions, left: Partitions) -> SqlResult<()> {
        let pairs = left.finish()?.into_iter().zip(right.finish()?);
        for (left, right) in pairs {
            if let Some(one) = left.as_ref().or(right.as_ref()) {
                self.pairs.push(Pair { division: one.division, left, right });
            }
        }
        Ok(())
    }

    /// Takes out a pair.
    pub(crate) fn next_pair(&mut self) -> Option<Pair> {
        self.left = None;
        self.pairs.pop()
    }

    /// Divides the left of a pair whose right was divided again.
    pub(crate) async fn divide(
        &mut self,
        right: Partitions,
        pair: &mut Pair,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let mut left = Partitions::new(pair.division);
        while let Some(row) = next(&mut pair.left)? {
            context.breathe(1).await;
            left.push(&row, context.limits)?;
        }
        self.add(right, left)
    }

    /// Gives the left of a pair from now on.
    pub(crate) fn begin(&mut self, pair: Pair) {
        self.left = pair.left;
    }

    pub(crate) fn next_left(&mut self) -> SqlResult<Option<KeyedRow>> {
        next(&mut self.left)
    }
}

impl Pair {
    pub(crate) fn next_right(&mut self) -> SqlResult<Option<KeyedRow>> {
        next(&mut self.right)
    }
}

fn next(rows: &mut Option<Partition>) -> SqlResult<Option<KeyedRow>> {
    match rows {
        Some(partition) => partition.rows.next(),
        None => Ok(None),
    }
}

/// Notes the place of a row behind its columns.
pub(crate) fn number_row(row: &mut Row, next: &mut i64) {
    row.push(Datum::I64(*next));
    *next += 1;
}

/// What brings rows in the order of such places, by which they are keyed.
pub(crate) fn ordered(limits: &MemoryLimits) -> Sorter {
    let key = SortKey { expr: Expr::Column(0), descending: false, nulls_first: false };
    Sorter::new(&Arc::from([key]), limits)
}
