//! From rows to data.

use std::sync::Arc;

use super::{CopyFormat, CopyHeader, CopyKind, binary, csv, text};
use crate::error::SqlResult;
use crate::types::text_format::to_text;
use crate::types::{Datum, FormatSettings, SqlType};

/// Writes rows as data.
pub(crate) struct CopyWriter {
    format: Arc<CopyFormat>,
    types: Vec<SqlType>,
    value: String,
}

impl CopyWriter {
    /// For rows of these columns.
    pub(crate) fn new(format: &Arc<CopyFormat>, types: &[SqlType]) -> Self {
        Self { format: Arc::clone(format), types: types.to_vec(), value: String::new() }
    }

    /// What stands before the rows.
    pub(crate) fn begin(&self, names: &[String], out: &mut Vec<u8>) {
        match self.format.kind {
            CopyKind::Binary => binary::write_header(out),
            _ if self.format.header == CopyHeader::No => {}
            _ => {
                for (at, name) in names.iter().enumerate() {
                    self.delimit(at, out);
                    self.text(name, None, out);
                }
                out.push(b'\n');
            }
        }
    }

    /// A row.
    pub(crate) fn row(
        &mut self,
        row: &[Datum],
        settings: &FormatSettings,
        out: &mut Vec<u8>,
    ) -> SqlResult<()> {
        if self.format.kind == CopyKind::Binary {
            return binary::write(row, &self.types, out);
        }
        for (at, value) in row.iter().enumerate() {
            self.delimit(at, out);
            if value.is_null() {
                out.extend(self.format.null.bytes());
                continue;
            }
            let Some(ty) = self.types.get(at) else { continue };
            let mut written = std::mem::take(&mut self.value);
            written.clear();
            to_text(value, *ty, settings, &mut written);
            self.text(&written, Some(at), out);
            self.value = written;
        }
        out.push(b'\n');
        Ok(())
    }

    /// What stands behind the rows.
    pub(crate) fn end(&self, out: &mut Vec<u8>) {
        if self.format.kind == CopyKind::Binary {
            binary::write_trailer(out);
        }
    }

    fn delimit(&self, at: usize, out: &mut Vec<u8>) {
        if at > 0 {
            out.push(self.format.delimiter);
        }
    }

    /// A value of a column, or what no quotes are forced on.
    fn text(&self, value: &str, column: Option<usize>, out: &mut Vec<u8>) {
        match self.format.kind {
            CopyKind::Csv => csv::write(value, column, self.types.len() == 1, &self.format, out),
            _ => text::write(value, &self.format, out),
        }
    }
}
