//! Large values that expressions make.
//!
//! One text may have 256 MiB, and a call has a hundred arguments. What the expressions of a row
//! make is drawn from the budget of the session until those of the next row begin: what is kept
//! longer is counted by the operator that keeps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::SqlResult;
use crate::memory_budget::MemoryBudget;

/// Bytes from which a value is counted.
const LARGE_BYTES: usize = 1 << 20;

/// What the large values of a row take.
#[derive(Debug, Default)]
pub struct LargeValues {
    budget: Arc<MemoryBudget>,
    /// All is counted by the one thread that computes, so that Relaxed loads and stores do.
    bytes: AtomicUsize,
}

impl LargeValues {
    pub(crate) fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self { budget: Arc::clone(budget), bytes: AtomicUsize::new(0) }
    }

    /// Counts a value of so many bytes, if that is large.
    ///
    /// # Errors
    /// 53200 if there is no memory for it.
    pub(crate) fn made(&self, bytes: usize) -> SqlResult<()> {
        if bytes < LARGE_BYTES {
            return Ok(());
        }
        self.budget.take(bytes)?;
        let all = self.bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.bytes.store(all, Ordering::Relaxed);
        Ok(())
    }

    /// Those that were made are gone, or counted elsewhere.
    pub(crate) fn forget(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        if bytes > 0 {
            self.bytes.store(0, Ordering::Relaxed);
            self.budget.give_back(bytes);
        }
    }
}

impl Drop for LargeValues {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_row_are_bounded_together() {
        let budget = Arc::new(MemoryBudget::new(5 * LARGE_BYTES));
        let values = LargeValues::new(&budget);
        (0..100).for_each(|_| values.made(LARGE_BYTES - 1).unwrap());
        (0..5).for_each(|_| values.made(LARGE_BYTES).unwrap());
        assert_eq!(values.made(LARGE_BYTES).unwrap_err().state().code(), "53200");
        values.forget();
        assert_eq!(budget.used(), 0);
        values.made(2 * LARGE_BYTES).unwrap();
        drop(values);
        assert_eq!(budget.used(), 0);
    }
}
