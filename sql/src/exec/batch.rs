//! Rows that an operator gives at a time.

use super::context::{BATCH_ROWS, Row};
use super::memory::row_bytes;

/// Bytes of rows beyond which a batch has no more: few rows may be more than memory takes.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// A batch that is being made.
#[derive(Default)]
pub(crate) struct Batch {
    rows: Vec<Row>,
    bytes: usize,
}

impl Batch {
    /// Whether it takes one more row: the last may be of any size.
    pub(crate) fn has_room(&self) -> bool {
        self.rows.len() < BATCH_ROWS && self.bytes <= BATCH_BYTES
    }

    pub(crate) fn push(&mut self, row: Row) {
        self.bytes = self.bytes.saturating_add(row_bytes(&row));
        self.rows.push(row);
    }

    /// The rows, as an operator gives them.
    pub(crate) fn finish(self) -> Option<Vec<Row>> {
        (!self.rows.is_empty()).then_some(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Datum;

    /// How many of such rows a batch takes.
    fn rows_of_batch(text_bytes: usize) -> usize {
        let (row, mut batch) = (vec![Datum::text("x".repeat(text_bytes))], Batch::default());
        while batch.has_room() {
            batch.push(row.clone());
        }
        batch.finish().map_or(0, |rows| rows.len())
    }

    #[test]
    fn a_batch_ends_by_its_rows_or_their_bytes() {
        assert_eq!(rows_of_batch(1), BATCH_ROWS);
        assert_eq!(rows_of_batch(BATCH_BYTES / 4), 4);
        assert_eq!(rows_of_batch(2 * BATCH_BYTES), 1);
        assert!(Batch::default().finish().is_none());
    }
}
