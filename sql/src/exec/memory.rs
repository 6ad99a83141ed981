//! How much memory operators use for the rows that they keep.
//!
//! An operator is bounded by itself, and all operators of all who share a [`MemoryBudget`] by that.
//! What an operator has is drawn from the budget in steps, but for a first part that each may have:
//! so those that go on in temporary files go on, if slowly, when the budget is used up.

use std::sync::Arc;

use super::context::{BoxOperator, ExecContext, Row};
use super::spill::TempFiles;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::memory_budget::MemoryBudget;
use crate::types::Datum;

/// Bytes that an operator may have whatever the budget says.
const FREE_BYTES: usize = 256 << 10;

/// Bytes that are drawn from the budget at a time, if there are so many.
const STEP_BYTES: usize = 1 << 20;

/// Limits to the memory of a statement.
#[derive(Clone, Debug)]
pub(crate) struct MemoryLimits {
    /// Most bytes that one operator keeps: rows to be sorted, a side of a join, groups.
    pub(crate) operator_bytes: usize,
    /// Most bytes of the temporary files of one operator; 0 for none, so that it is an error to
    /// need them.
    pub(crate) spill_bytes: u64,
    /// What all operators draw from.
    pub(crate) budget: Arc<MemoryBudget>,
    /// The temporary files of the session.
    pub(crate) files: Arc<TempFiles>,
}

/// Most bytes that an operator keeps, unless a session says otherwise.
pub(crate) const WORK_MEMORY_BYTES: usize = 64 << 20;

/// Most bytes of the temporary files of an operator.
const SPILL_BYTES: u64 = 16 << 30;

impl MemoryLimits {
    pub(crate) fn new(
        operator_bytes: usize,
        budget: &Arc<MemoryBudget>,
        files: &Arc<TempFiles>,
    ) -> Self {
        let (budget, files) = (Arc::clone(budget), Arc::clone(files));
        Self { operator_bytes, spill_bytes: SPILL_BYTES, budget, files }
    }

    /// An error if temporary files of so many bytes are too large.
    pub(crate) fn check_spill(&self, bytes: u64) -> SqlResult<()> {
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
        Self::new(WORK_MEMORY_BYTES, &Arc::default(), &Arc::default())
    }
}

/// Bytes that an operator keeps.
#[derive(Debug, Default)]
pub(crate) struct MemoryUse {
    bytes: usize,
    /// What is drawn from the budget for them.
    share: Option<Share>,
}

/// A part of a budget, until it is dropped.
#[derive(Debug)]
struct Share {
    budget: Arc<MemoryBudget>,
    bytes: usize,
}

impl Share {
    fn grow(&mut self, bytes: usize) -> SqlResult<()> {
        self.budget.take(bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    fn shrink_to(&mut self, bytes: usize) {
        self.budget.give_back(self.bytes.saturating_sub(bytes));
        self.bytes = self.bytes.min(bytes);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

impl MemoryUse {
    /// Counts bytes more; an error if there are too many.
    pub(crate) fn add(&mut self, bytes: usize, limits: &MemoryLimits) -> SqlResult<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > limits.operator_bytes {
            let limit = limits.operator_bytes;
            let detail = format!("An operation of the statement needs more than {limit} bytes.");
            return Err(SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory").detail(detail));
        }
        self.draw(self.bytes, limits)
    }

    /// Counts bytes more that only the budget bounds.
    pub(crate) fn add_unbounded(&mut self, bytes: usize, limits: &MemoryLimits) -> SqlResult<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.draw(self.bytes, limits)
    }

    /// Whether there is room for so many bytes more, which is kept then.
    pub(crate) fn has_room(&mut self, bytes: usize, limits: &MemoryLimits) -> bool {
        let bytes = self.bytes.saturating_add(bytes);
        bytes <= limits.operator_bytes && self.draw(bytes, limits).is_ok()
    }

    /// Draws what so many bytes in all need.
    fn draw(&mut self, bytes: usize, limits: &MemoryLimits) -> SqlResult<()> {
        let drawn = self.share.as_ref().map_or(0, |share| share.bytes);
        if bytes <= FREE_BYTES.saturating_add(drawn) {
            return Ok(());
        }
        let share = self
            .share
            .get_or_insert_with(|| Share { budget: Arc::clone(&limits.budget), bytes: 0 });
        let missing = bytes - FREE_BYTES - drawn;
        match share.grow(missing.max(STEP_BYTES)) {
            Err(_) if missing < STEP_BYTES => share.grow(missing),
            grown => grown,
        }
    }

    /// Bytes that are not kept any more.
    pub(crate) fn subtract(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// The same, of what lives longer than a statement: the budget has them again.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        self.subtract(bytes);
        let needed = self.bytes.saturating_sub(FREE_BYTES);
        self.share.iter_mut().for_each(|share| share.shrink_to(needed));
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// About how many bytes a row takes.
pub(crate) fn row_bytes(row: &[Datum]) -> usize {
    size_of::<Row>() + row.iter().map(datum_bytes).sum::<usize>()
}

/// About how many bytes a value takes.
pub(crate) fn datum_bytes(datum: &Datum) -> usize {
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

/// All rows that an operator gives, and what they take.
pub(crate) async fn drain(
    input: &mut BoxOperator,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<(Vec<Row>, MemoryUse)> {
    let (mut rows, mut used) = (Vec::new(), MemoryUse::default());
    while let Some(batch) = input.next(context).await? {
        used.add(batch.iter().map(|row| row_bytes(row)).sum(), context.limits)?;
        rows.extend(batch);
    }
    Ok((rows, used))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn operators_share_a_budget() {
        let budget = Arc::new(MemoryBudget::new(10 << 20));
        let limits = MemoryLimits { budget: Arc::clone(&budget), ..MemoryLimits::default() };
        let (mut one, mut other) = (MemoryUse::default(), MemoryUse::default());
        one.add(FREE_BYTES, &limits).unwrap();
        assert_eq!(budget.used(), 0);
        one.add(1, &limits).unwrap();
        assert_eq!(budget.used(), STEP_BYTES);
        one.add(8 << 20, &limits).unwrap();
        assert!(other.has_room(FREE_BYTES + STEP_BYTES, &limits));
        // Less than a step is left.
        assert!(other.has_room(FREE_BYTES + 2 * STEP_BYTES - 2, &limits));
        assert!(!other.has_room(FREE_BYTES + 2 * STEP_BYTES, &limits));
        let error = other.add(FREE_BYTES + 2 * STEP_BYTES, &limits).unwrap_err();
        assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
        drop(one);
        assert!(other.has_room(2 << 20, &limits));
        drop(other);
        assert_eq!(budget.used(), 0);
        // The bound of an operator is another.
        let mut wide = MemoryUse::default();
        let unbounded = MemoryLimits { operator_bytes: 1 << 20, ..MemoryLimits::default() };
        assert!(!wide.has_room((1 << 20) + 1, &unbounded));
        assert!(wide.add((1 << 20) + 1, &unbounded).is_err());
    }
}
