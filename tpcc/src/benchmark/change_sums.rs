//! Sums of what committed transactions added to the values of a database.

use std::sync::atomic::{AtomicI64, Ordering};

/// One sum for each value that transactions change. Sums wrap around, so that any two 64-bit values
/// have a difference.
#[derive(Debug)]
pub struct ChangeSums(Vec<AtomicI64>);

impl ChangeSums {
    /// `cells` sums of zero, 8 bytes each.
    #[must_use]
    pub fn new(cells: usize) -> Self {
        Self(std::iter::repeat_with(AtomicI64::default).take(cells).collect())
    }

    /// Notes that a committed transaction added `difference` to a value.
    ///
    /// # Panics
    /// If there is no such cell.
    pub fn note(&self, cell: usize, difference: i64) {
        // Relaxed: the check reads after it has waited for all workers.
        self.cell(cell).fetch_add(difference, Ordering::Relaxed);
    }

    /// The sum of all changes of a value.
    ///
    /// # Panics
    /// If there is no such cell.
    #[must_use]
    pub fn sum(&self, cell: usize) -> i64 {
        self.cell(cell).load(Ordering::Relaxed)
    }

    #[expect(clippy::expect_used, reason = "a dropped change would hide a lost update")]
    fn cell(&self, cell: usize) -> &AtomicI64 {
        self.0.get(cell).expect("every value that changes has a cell")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_lead_from_the_first_value_to_the_last_in_any_order() {
        let values = [i64::MIN, 7, i64::MAX, -1, 12];
        let mut steps: Vec<_> =
            values.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
        steps.rotate_left(2);
        let cells = ChangeSums::new(2);
        steps.iter().for_each(|step| cells.note(1, *step));
        assert_eq!(values[0].wrapping_add(cells.sum(1)), 12);
        assert_eq!(cells.sum(0), 0);
    }

    #[test]
    #[should_panic(expected = "every value that changes has a cell")]
    fn a_change_of_a_value_without_a_cell_is_not_dropped() {
        ChangeSums::new(2).note(2, 5);
    }
}
