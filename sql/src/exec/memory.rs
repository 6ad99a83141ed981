//! How much memory operators use for the rows that they keep.

use super::context::{BoxOperator, ExecContext, Row};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

/// Limits to the memory of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryLimits {
    /// Most bytes that one operator keeps: rows to be sorted, a side of a join, groups.
    pub(crate) operator_bytes: usize,
    /// Most bytes of the temporary files of one operator; 0 for none, so that it is an error to
    /// need them.
    pub(crate) spill_bytes: u64,
}

impl MemoryLimits {
    /// An error if temporary files of so many bytes are too large.
    pub(crate) fn check_spill(self, bytes: u64) -> SqlResult<()> {
        let limit = self.spill_bytes;
        if bytes <= limit {
            return Ok(());
        }
        let message = format!("temporary files of an operation exceed the limit of {limit} bytes");
        Err(SqlError::new(SqlState::CONFIGURATION_LIMIT, message))
    }
}

impl Default for MemoryLimits {
    fn default() -> Self {
        Self { operator_bytes: 64 << 20, spill_bytes: 16 << 30 }
    }
}

/// Bytes that an operator keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryUse {
    bytes: usize,
}

impl MemoryUse {
    /// Counts bytes more; an error if there are too many.
    pub(crate) fn add(&mut self, bytes: usize, limits: MemoryLimits) -> SqlResult<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= limits.operator_bytes {
            return Ok(());
        }
        let limit = limits.operator_bytes;
        let error = SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory");
        Err(error.detail(format!("An operation of the statement needs more than {limit} bytes.")))
    }

    /// Bytes that are not kept any more.
    pub(crate) fn subtract(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }
}

/// About how many bytes a row takes.
pub(crate) fn row_bytes(row: &[Datum]) -> usize {
    size_of::<Row>() + row.iter().map(datum_bytes).sum::<usize>()
}

fn datum_bytes(datum: &Datum) -> usize {
    let apart = match datum {
        Datum::Text(text) | Datum::Json(text) => text.len(),
        Datum::Bytes(bytes) => bytes.len(),
        Datum::Numeric(Some(number)) => size_of_val(&**number) + 16,
        Datum::Array(array) => array.elements.iter().map(datum_bytes).sum(),
        Datum::Record(own) => own.values.iter().map(datum_bytes).sum(),
        _ => 0,
    };
    size_of::<Datum>() + apart
}

/// All rows that an operator gives.
pub(crate) async fn drain(
    input: &mut BoxOperator,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Vec<Row>> {
    let (mut rows, mut used) = (Vec::new(), MemoryUse::default());
    while let Some(batch) = input.next(context).await? {
        used.add(batch.iter().map(|row| row_bytes(row)).sum(), context.limits)?;
        rows.extend(batch);
    }
    Ok(rows)
}
