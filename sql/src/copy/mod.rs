//! The data of COPY: text, CSV and binary, as PostgreSQL writes and reads them.

mod binary;
mod csv;
#[cfg(test)]
#[allow(clippy::panic, reason = "test code")]
mod fuzz;
mod line_end;
mod reader;
mod text;
mod writer;

pub(crate) use reader::CopyReader;
pub(crate) use writer::CopyWriter;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyKind {
    Text,
    Csv,
    Binary,
}

/// Whether the first line has the names of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyHeader {
    No,
    Yes,
    /// They have to be those of the columns that are given.
    Match,
}

/// How data is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyFormat {
    pub(crate) kind: CopyKind,
    pub(crate) delimiter: u8,
    pub(crate) null: String,
    pub(crate) header: CopyHeader,
    pub(crate) quote: u8,
    pub(crate) escape: u8,
    /// Columns whose values are always in quotes.
    pub(crate) force_quote: Vec<bool>,
    /// Columns in which the text of NULL is a value.
    pub(crate) force_not_null: Vec<bool>,
    /// Columns in which the text of NULL in quotes is NULL, too.
    pub(crate) force_null: Vec<bool>,
}

impl CopyFormat {
    /// As a kind is without options.
    pub(crate) fn of(kind: CopyKind) -> Self {
        let is_csv = kind == CopyKind::Csv;
        Self {
            kind,
            delimiter: if is_csv { b',' } else { b'\t' },
            null: if is_csv { "" } else { "\\N" }.to_owned(),
            header: CopyHeader::No,
            quote: b'"',
            escape: b'"',
            force_quote: Vec::new(),
            force_not_null: Vec::new(),
            force_null: Vec::new(),
        }
    }
}

/// Whether a list of columns has one.
fn has(columns: &[bool], at: usize) -> bool {
    columns.get(at).copied().unwrap_or(false)
}

/// One value of a record as it was read; `None` for NULL.
type Field = Option<String>;
