//! What committed transactions have added to the values of a database.

use std::sync::atomic::{AtomicI64, Ordering};

/// One sum for each value that transactions change. Sums wrap around, so any two values of 64 bits
/// have a difference.
#[derive(Debug)]
pub struct ChangeSums(Vec<AtomicI64>);

impl ChangeSums {
    /// So many sums, all zero; 8 bytes each.
    #[must_use]
    pub fn new(cells: usize) -> Self {
        Self(std::iter::repeat_with(AtomicI64::default).take(cells).collect())
    }

    /// Notes that a transaction that has committed added `difference` to a value. A cell that does
    /// not exist is nobody's.
    pub fn note(&self, cell: usize, difference: i64) {
        if let Some(sum) = self.0.get(cell) {
            // The check reads after all workers were waited for.
            sum.fetch_add(difference, Ordering::Relaxed);
        }
    }

    /// What was added to a value in all.
    #[must_use]
    pub fn sum(&self, cell: usize) -> i64 {
        self.0.get(cell).map_or(0, |sum| sum.load(Ordering::Relaxed))
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
        cells.note(2, 5);
        assert_eq!(values[0].wrapping_add(cells.sum(1)), 12);
        assert_eq!((cells.sum(0), cells.sum(2)), (0, 0));
    }
}
