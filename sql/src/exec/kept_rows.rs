//! Rows that several read, each from the first on: in memory up to the limit of an operator, and
//! those behind them in a temporary file.

use std::sync::Arc;

use super::context::{BATCH_ROWS, Row};
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
        let rest = self.kept.rows.get(self.next..).unwrap_or_default();
        let mut batch: Vec<Row> = rest.iter().take(BATCH_ROWS).cloned().collect();
        self.next += batch.len();
        let Some(run) = self.kept.run.as_ref().filter(|_| batch.is_empty()) else {
            return Ok((!batch.is_empty()).then_some(batch));
        };
        let file = self.file.get_or_insert_with(|| run.reader());
        while batch.len() < BATCH_ROWS
            && let Some(keyed) = file.next()?
        {
            batch.push(keyed.row);
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}
