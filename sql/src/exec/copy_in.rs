//! Rows of COPY FROM STDIN.

use std::sync::Arc;

use selkie_fabric::BoxFuture;

use super::context::{BATCH_ROWS, ExecContext, Operator, Row};
use crate::copy::{CopyFormat, CopyKind, CopyReader};
use crate::error::{SqlError, SqlResult};
use crate::types::SqlType;

/// Reads the data of the client.
pub(crate) struct CopyIn {
    reader: CopyReader,
    columns: usize,
    is_binary: bool,
    has_begun: bool,
    has_ended: bool,
}

impl CopyIn {
    pub(crate) fn new(
        table: &str,
        columns: &[(String, SqlType)],
        format: &Arc<CopyFormat>,
    ) -> Self {
        Self {
            reader: CopyReader::new(format, table, columns),
            columns: columns.len(),
            is_binary: format.kind == CopyKind::Binary,
            has_begun: false,
            has_ended: false,
        }
    }
}

impl Operator for CopyIn {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            let client = context.client.ok_or_else(|| SqlError::unsupported("COPY here"))?;
            if !self.has_begun {
                client.copy_in(self.columns, self.is_binary)?;
                context.copied.table = self.reader.table().to_owned();
                self.has_begun = true;
            }
            context.breathe(BATCH_ROWS).await;
            let mut batch = Vec::with_capacity(BATCH_ROWS);
            context.copied.lines.clear();
            while batch.len() < BATCH_ROWS {
                match self.reader.row(context.call.settings, self.has_ended)? {
                    Some(row) => {
                        context.copied.lines.push(self.reader.line());
                        batch.push(row);
                    }
                    None if self.has_ended => break,
                    None => match client.copy_data().await? {
                        Some(data) => self.reader.push(&data),
                        None => self.has_ended = true,
                    },
                }
            }
            Ok((!batch.is_empty()).then_some(batch))
        })
    }
}
