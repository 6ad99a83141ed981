//! Rows that wait, in the order in which they came.

use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::context::{BATCH_ROWS, BoxOperator, ExecContext, Row};
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
        let mut batch = Vec::new();
        while batch.len() < BATCH_ROWS
            && let Some(row) = self.next()?
        {
            batch.push(row);
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}
