//! From the values of a sample to those of the table.

use std::collections::HashMap;

use crate::statistics::table_statistics::{ColumnStatistics, CommonValue, ValueBytes};

/// Most values that are kept as common ones.
const MOST_COMMON: usize = 50;
/// Parts into which the other values are divided.
const PARTS: usize = 100;
/// A value is common if it is found so often as the average one times this,
const ABOVE_AVERAGE: f64 = 1.25;
/// and is not longer, in bytes.
const LONGEST_COMMON: usize = 64;
/// Bytes that are kept of a bound.
const BOUND_BYTES: usize = 32;

/// The values of a column that were found in a sample.
#[derive(Default)]
pub(super) struct SampledColumn {
    counts: HashMap<Vec<u8>, u64>,
    /// Values that were not looked at, as they are long: each counts as one that no other row has.
    unread: u64,
    nulls: u64,
    bytes: u64,
}

impl SampledColumn {
    /// Counts one row, with the bytes of its value by which values are compared, if it was read,
    /// and how many bytes it takes.
    pub(super) fn add(&mut self, value: Option<Vec<u8>>, bytes: usize) {
        self.bytes += bytes as u64;
        match value {
            None => self.unread += 1,
            Some(value) => *self.counts.entry(value).or_default() += 1,
        }
    }

    /// Counts one row with NULL.
    pub(super) fn add_null(&mut self) {
        self.nulls += 1;
    }

    /// What this says of a table with so many rows, of which `sampled` were looked at.
    pub(super) fn estimate(self, name: &str, sampled: u64, rows: u64) -> ColumnStatistics {
        let present = sampled - self.nulls;
        let fraction = |count: u64| rounded(count as f64 / sampled.max(1) as f64);
        let distinct = self.distinct(present, rows as f64 * fraction(present));
        let mut counts: Vec<(Vec<u8>, u64)> = self.counts.into_iter().collect();
        // The most common first, and of equals the least.
        counts.sort_unstable_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
        let different = counts.len() as u64 + self.unread;
        let average = present as f64 / different.max(1) as f64;
        let is_common = |(value, count): &(Vec<u8>, u64)| {
            let is_often = *count > 1 && *count as f64 > average * ABOVE_AVERAGE;
            is_often && value.len() <= LONGEST_COMMON
        };
        // Where there are only a few values, which come again, all of them are.
        let are_all = self.unread == 0
            && counts.len() <= MOST_COMMON
            && counts.iter().all(|(value, count)| *count > 1 && value.len() <= LONGEST_COMMON);
        let number = match are_all {
            true => counts.len(),
            false => counts.iter().take(MOST_COMMON).take_while(|of| is_common(of)).count(),
        };
        let others = counts.split_off(number);
        let common = counts.into_iter().map(|(value, count)| CommonValue {
            value: ValueBytes(value),
            fraction: fraction(count),
        });
        ColumnStatistics {
            name: name.to_owned(),
            nulls: fraction(self.nulls),
            distinct,
            value_bytes: rounded(self.bytes as f64 / present.max(1) as f64),
            common: common.collect(),
            bounds: bounds(others),
        }
    }

    /// Different values in a table in which so many are not NULL, if `present` of these were looked
    /// at: the estimator Duj1 of Haas and Stokes.
    fn distinct(&self, present: u64, in_table: f64) -> f64 {
        let found = self.counts.len() as f64 + self.unread as f64;
        let once = self.counts.values().filter(|count| **count == 1).count() as f64;
        let once = once + self.unread as f64;
        let sampled = present as f64;
        if present == 0 || in_table <= sampled {
            return found;
        }
        let estimate = sampled * found / (sampled - once + once * sampled / in_table);
        estimate.clamp(found, in_table).round()
    }
}

/// With so few digits that a document has them all.
pub(super) fn rounded(number: f64) -> f64 {
    const PARTS: f64 = 1e9;
    (number * PARTS).round() / PARTS
}

/// Bounds between which there are equally many of these values.
fn bounds(mut others: Vec<(Vec<u8>, u64)>) -> Vec<ValueBytes> {
    others.sort_unstable();
    let total: u64 = others.iter().map(|(_, count)| count).sum();
    let parts = (PARTS as u64).min(total.saturating_sub(1));
    let mut bounds: Vec<ValueBytes> = Vec::new();
    let (mut before, mut part) = (0, 0);
    for (mut value, count) in others {
        before += count;
        // The values at the positions 0, (total - 1) / parts and so on are bounds.
        while part <= parts && part * (total - 1) < before * parts.max(1) {
            part += 1;
            value.truncate(BOUND_BYTES);
            bounds.push(ValueBytes(value.clone()));
        }
    }
    bounds.dedup();
    bounds
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the numbers have few digits")]
mod tests {
    use super::*;

    fn sampled(values: impl IntoIterator<Item = u32>) -> SampledColumn {
        let mut column = SampledColumn::default();
        for value in values {
            column.add(Some(value.to_be_bytes().to_vec()), 4);
        }
        column
    }

    fn number(value: &ValueBytes) -> u32 {
        u32::from_be_bytes(value.0[..].try_into().unwrap())
    }

    #[test]
    fn keys_are_all_different_and_flags_are_few() {
        let keys = sampled(0..1_000).estimate("key", 1_000, 1_000_000);
        assert_eq!((keys.distinct, keys.common.len()), (1_000_000.0, 0));
        assert_eq!((number(&keys.bounds[0]), number(&keys.bounds[PARTS])), (0, 999));
        assert_eq!(keys.bounds.len(), PARTS + 1);
        for pair in keys.bounds.windows(2) {
            let width = number(&pair[1]) - number(&pair[0]);
            assert!((9..=10).contains(&width), "{width}");
        }

        let flags = sampled((0..1_000).map(|row| u32::from(row % 10 == 0)));
        let flags = flags.estimate("flag", 1_000, 1_000_000);
        assert_eq!((flags.distinct, flags.bounds.len()), (2.0, 0));
        let common: Vec<_> =
            flags.common.iter().map(|common| (number(&common.value), common.fraction)).collect();
        assert_eq!(common, [(0, 0.9), (1, 0.1)]);
    }

    #[test]
    fn a_value_that_is_common_is_told_from_the_others() {
        let mut column = sampled((0..300).map(|row| if row % 3 == 0 { 7 } else { 1_000 + row }));
        (0..100).for_each(|_| column.add_null());
        let column = column.estimate("n", 400, 4_000);
        assert_eq!((column.nulls, column.value_bytes), (0.25, 4.0));
        assert_eq!((number(&column.common[0].value), column.common[0].fraction), (7, 0.25));
        assert_eq!((column.common.len(), number(&column.bounds[0])), (1, 1_001));
        // 201 were found in a tenth of the table, 200 of them once: there are more.
        assert_eq!(column.distinct, (300.0 * 201.0 / (300.0 - 200.0 + 200.0 / 10.0_f64)).round());
    }

    #[test]
    fn a_sample_of_all_is_exact_and_one_of_nothing_says_nothing() {
        let all = sampled((0..90).map(|row| row % 60)).estimate("n", 90, 90);
        assert_eq!(all.distinct, 60.0);
        let none = SampledColumn::default().estimate("n", 0, 0);
        assert_eq!((none.distinct, none.nulls, none.value_bytes), (0.0, 0.0, 0.0));
        assert!(none.common.is_empty() && none.bounds.is_empty());
        let mut nulls = SampledColumn::default();
        nulls.add_null();
        assert_eq!(nulls.estimate("n", 1, 1).nulls, 1.0);
        let one = sampled([5]).estimate("n", 1, 1);
        assert_eq!((one.bounds.len(), one.distinct), (1, 1.0));
    }

    #[test]
    fn long_values_are_counted_whole_and_kept_in_part() {
        let mut column = SampledColumn::default();
        for row in 0..100_u8 {
            let value = [vec![3; 2 * LONGEST_COMMON], vec![row % 50]].concat();
            column.add(Some(value), 129);
        }
        let column = column.estimate("text", 100, 100);
        assert_eq!((column.distinct, column.common.len()), (50.0, 0));
        assert_eq!(column.bounds, [ValueBytes(vec![3; BOUND_BYTES])]);
    }

    #[test]
    fn values_that_were_not_read_differ_from_all_others() {
        let mut column = sampled((0..80).map(|row| row % 2));
        (0..20).for_each(|_| column.add(None, 1_000));
        let column = column.estimate("text", 100, 100);
        assert_eq!((column.distinct, column.value_bytes), (22.0, 203.2));
        let common: f64 = column.common.iter().map(|common| common.fraction).sum();
        assert!(common < 1.0 && column.nulls == 0.0);
    }
}
