//! The layouts of rows that were written before the columns of their table changed.

use std::sync::OnceLock;

use crate::catalogue::column_history::ColumnHistory;
use crate::catalogue::schema::TableSchema;
use crate::encoding::row_error::RowError;
use crate::encoding::row_layout::{LayoutMark, RowLayout};

/// All layouts of a definition but the last, each made when a row of it is met.
#[derive(Debug, Default)]
pub(super) struct EarlierLayouts {
    columns: Option<ColumnHistory>,
    layouts: Box<[OnceLock<Box<RowLayout>>]>,
}

impl EarlierLayouts {
    /// Of a table with these columns; `None`: it never changes.
    pub(super) fn new(columns: Option<ColumnHistory>) -> Self {
        let last = columns.as_ref().map_or(0, ColumnHistory::last);
        Self { columns, layouts: (0..last).map(|_| OnceLock::new()).collect() }
    }

    /// The layout of that number, if it is an earlier one.
    pub(super) fn numbered(&self, schema: &TableSchema, number: u16) -> Option<&RowLayout> {
        let columns = self.columns.as_ref()?;
        let layout = self.layouts.get(usize::from(number))?;
        Some(layout.get_or_init(|| Box::new(columns.layout(schema, number))))
    }

    /// The layout of a row that is not in the last one.
    #[inline(never)]
    pub(super) fn of_row(&self, schema: &TableSchema, row: &[u8]) -> Result<&RowLayout, RowError> {
        let number = LayoutMark::number_in(row).ok_or(RowError::Damaged { column: 0 })?;
        let last = self.columns.as_ref().map_or(0, ColumnHistory::last);
        self.numbered(schema, number).ok_or(RowError::UnknownLayout { number, last })
    }
}
