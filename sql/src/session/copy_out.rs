//! COPY TO: rows as data.

use std::sync::Arc;

use super::parsed::Planned;
use super::run::Run;
use crate::copy::{CopyFormat, CopyKind, CopyWriter};
use crate::error::SqlResult;
use crate::exec::{ExecContext, Operator};

impl Run {
    /// Gives rows as data. How many there were.
    pub(super) async fn copy_out(
        &self,
        operator: &mut dyn Operator,
        context: &mut ExecContext<'_, '_>,
        planned: &Planned,
        format: &Arc<CopyFormat>,
    ) -> SqlResult<usize> {
        let client = &*self.client;
        let types: Vec<_> = planned.columns.iter().map(|column| column.ty).collect();
        let names: Vec<_> = planned.columns.iter().map(|column| column.name.clone()).collect();
        client.copy_out(types.len(), format.kind == CopyKind::Binary)?;
        let mut writer = CopyWriter::new(format, &types);
        let (mut data, mut given) = (Vec::new(), 0);
        writer.begin(&names, &mut data);
        if !data.is_empty() {
            client.copy_rows(std::mem::take(&mut data)).await?;
        }
        while let Some(batch) = operator.next(context).await? {
            given += batch.len();
            for row in &batch {
                writer.row(row, &self.settings.format, &mut data)?;
                // A message a row, as clients of the binary format expect.
                client.copy_rows(std::mem::take(&mut data)).await?;
            }
        }
        writer.end(&mut data);
        if !data.is_empty() {
            client.copy_rows(data).await?;
        }
        Ok(given)
    }
}
