//! Rows that several read, each from the first on: in memory up to the limit of an operator, and
//! those behind them in a temporary file.

use std::sync::Arc;

use super::batch::Batch;
use super::context::Row;
use super::memory::MemoryUse;
use super::spill::{Run, RunReader};
use crate::error::SqlResult;

/// Rows, complete.
#[derive(Debug, Default)]
pub(crate) struct KeptRows {
    rows: Vec<Row>,
    /// As long as they are kept.
    _used: MemoryUse,
    run: Option<Run>,
}

impl KeptRows {
    pub(super) fn new(rows: Vec<Row>, used: MemoryUse, run: Option<Run>) -> Self {
        Self { rows, _used: used, run }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.run.is_none()
    }
}

/// Gives rows that others have, too.
pub(crate) struct KeptReader {
    kept: Arc<KeptRows>,
    next: usize,
    /// Once those in memory were given.
    file: Option<RunReader>,
}

impl KeptReader {
    pub(crate) fn new(kept: Arc<KeptRows>) -> Self {
        Self { kept, next: 0, file: None }
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

    fn next(&mut self) -> SqlResult<Option<Row>> {
        if let Some(row) = self.kept.rows.get(self.next) {
            self.next += 1;
            return Ok(Some(row.clone()));
        }
        let Some(run) = &self.kept.run else { return Ok(None) };
        let file = self.file.get_or_insert_with(|| run.reader());
        Ok(file.next()?.map(|keyed| keyed.row))
    }
}
