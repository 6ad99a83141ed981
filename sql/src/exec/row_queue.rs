//! Rows that wait, in the order in which they came.

use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::batch::Batch;
use super::context::{BoxOperator, ExecContext, Row};
use super::kept_rows::KeptRows;
use super::memory::{MemoryLimits, MemoryUse, row_bytes};
use super::sort::KeyedRow;
use super::spill::{RunReader, RunWriter};
use crate::error::SqlResult;

/// Rows in memory up to the limit of an operator, and those behind them in a temporary file.
#[derive(Default)]
pub(crate) struct RowQueue {
    rows: Vec<Row>,
    used: MemoryUse,
    file: Option<RunWriter>,
}

impl RowQueue {
    pub(crate) fn push(&mut self, row: Row, limits: &MemoryLimits) -> SqlResult<()> {
        let bytes = row_bytes(&row);
        let may_keep = self.file.is_none() && self.used.has_room(bytes, limits);
        if may_keep || limits.spill_bytes == 0 {
            self.used.add(bytes, limits)?;
            self.rows.push(row);
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(RunWriter::new(limits)?),
        };
        file.write(&KeyedRow { keys: Row::new(), row })?;
        limits.check_spill(file.bytes())
    }

    /// The rows, from the first on.
    pub(crate) fn finish(self) -> SqlResult<QueuedRows> {
        let file = self.file.map(RunWriter::finish).transpose()?;
        Ok(QueuedRows { rows: self.rows.into_iter(), _used: self.used, file })
    }

    /// The rows, for several who read them.
    pub(crate) fn keep(self) -> SqlResult<Arc<KeptRows>> {
        let run = self.file.map(RunWriter::finish_run).transpose()?;
        Ok(Arc::new(KeptRows::new(self.rows, self.used, run)))
    }

    /// All rows of an operator.
    pub(crate) fn filled<'a>(
        input: &'a mut BoxOperator,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Self>> {
        Box::pin(async move {
            let mut queue = Self::default();
            while let Some(batch) = input.next(context).await? {
                for row in batch {
                    queue.push(row, context.limits)?;
                }
            }
            Ok(queue)
        })
    }

    /// The same, from the first on.
    pub(crate) async fn of(
        input: &mut BoxOperator,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<QueuedRows> {
        Self::filled(input, context).await?.finish()
    }
}

/// Rows that waited.
#[derive(Default)]
pub(crate) struct QueuedRows {
    rows: std::vec::IntoIter<Row>,
    /// As long as it is read.
    _used: MemoryUse,
    file: Option<RunReader>,
}

impl QueuedRows {
    pub(crate) fn next(&mut self) -> SqlResult<Option<Row>> {
        if let Some(row) = self.rows.next() {
            return Ok(Some(row));
        }
        let Some(file) = &mut self.file else { return Ok(None) };
        Ok(file.next()?.map(|keyed| keyed.row))
    }

    /// The next rows, as an operator gives them.
    pub(crate) fn batch(&mut self) -> SqlResult<Option<Vec<Row>>> {
        let mut batch = Batch::default();
        while batch.has_room()
            && let Some(row) = self.next()?
        {
            batch.push(row);
        }
        Ok(batch.finish())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::super::kept_rows::KeptReader;
    use super::super::sort::Sorter;
    use super::*;
    use crate::types::Datum;

    /// Else 256 rows of any size would be read back at a time.
    #[test]
    fn large_rows_come_from_files_a_few_at_a_time() {
        let limits = MemoryLimits { operator_bytes: 1 << 20, ..MemoryLimits::default() };
        let row = || vec![Datum::text("x".repeat(1 << 20))];
        let filled = || {
            let mut queue = RowQueue::default();
            (0..6).for_each(|_| queue.push(row(), &limits).unwrap());
            queue
        };
        let mut queued = filled().finish().unwrap();
        let mut kept = KeptReader::new(filled().keep().unwrap());
        let mut sorter = Sorter::new(&Arc::from(Vec::new()), &limits);
        (0..6).for_each(|_| sorter.push(KeyedRow { keys: Row::new(), row: row() }).unwrap());
        let mut sorted = sorter.finish().unwrap();
        let count = |batch: SqlResult<Option<Vec<Row>>>| batch.unwrap().map(|rows| rows.len());
        for wanted in [Some(4), Some(2), None] {
            assert_eq!(count(queued.batch()), wanted);
            assert_eq!(count(kept.batch()), wanted);
            assert_eq!(count(sorted.batch()), wanted);
        }
    }
}
