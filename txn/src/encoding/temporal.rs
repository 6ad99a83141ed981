//! Times of the day and intervals: what their values may be.

/// The greatest time of the day, in microseconds: 24:00, which SQL knows.
pub const MAX_TIME_US: i64 = 86_400_000_000;

/// The length of a day where lengths of intervals are compared, in microseconds.
const DAY_US: i128 = MAX_TIME_US as i128;
/// Days of a month there.
const MONTH_DAYS: i128 = 30;

/// A time span as SQL has it: the parts are kept apart, as months and days differ in length.
///
/// Two intervals are equal here if their parts are. In a key they are if their
/// [lengths](Self::length_us) are: a month and 30 days are one key.
///
/// ```
/// use selkie_txn::Interval;
/// let month = Interval { months: 1, ..Interval::default() };
/// let days = Interval { days: 30, ..Interval::default() };
/// assert_ne!(month, days);
/// assert_eq!(month.length_us(), days.length_us());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Interval {
    /// Months; a year is 12.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Microseconds; an hour is 3 600 000 000.
    pub microseconds: i64,
}

impl Interval {
    const MIN: Self = Self { months: i32::MIN, days: i32::MIN, microseconds: i64::MIN };
    const MAX: Self = Self { months: i32::MAX, days: i32::MAX, microseconds: i64::MAX };

    /// Its length in microseconds, if a month has 30 days and a day 24 hours: so SQL compares.
    #[must_use]
    pub const fn length_us(self) -> i128 {
        let days = self.months as i128 * MONTH_DAYS + self.days as i128;
        days * DAY_US + self.microseconds as i128
    }

    /// Whether an interval may have this length.
    pub(crate) const fn has_length(length_us: i128) -> bool {
        Self::MIN.length_us() <= length_us && length_us <= Self::MAX.length_us()
    }

    /// As rows store it: months, days, microseconds, little-endian.
    pub(crate) fn to_stored(self) -> [u8; 16] {
        let months = u128::from(self.months.cast_unsigned());
        let days = u128::from(self.days.cast_unsigned()) << 32;
        (months | days | u128::from(self.microseconds.cast_unsigned()) << 64).to_le_bytes()
    }

    #[expect(clippy::cast_possible_truncation, reason = "each part is cut out of the whole")]
    pub(crate) fn from_stored(bytes: [u8; 16]) -> Self {
        let all = u128::from_le_bytes(bytes);
        Self { months: all as i32, days: (all >> 32) as i32, microseconds: (all >> 64) as i64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key;

    fn interval(months: i32, days: i32, microseconds: i64) -> Interval {
        Interval { months, days, microseconds }
    }

    #[test]
    fn lengths_have_months_of_30_days_and_days_of_24_hours() {
        assert_eq!(key![interval(1, 0, 0)], key![interval(0, 30, 0)]);
        assert_eq!(key![interval(0, 1, 0)], key![interval(0, 0, MAX_TIME_US)]);
        assert_eq!(key![interval(-1, 31, 0)], key![interval(0, 1, 0)]);
        assert!(key![interval(1, -30, -1)] < key![interval(0, 0, 0)]);
        assert!(key![Interval::MIN] < key![interval(0, 0, i64::MIN)]);
        assert!(key![Interval::MAX] > key![interval(i32::MAX, 0, 0)]);
        assert!(!Interval::has_length(Interval::MAX.length_us() + 1));
    }

    #[test]
    fn parts_are_kept_apart() {
        for value in [interval(1, -2, 3), interval(-1, 2, -3), Interval::MIN, Interval::MAX] {
            assert_eq!(Interval::from_stored(value.to_stored()), value);
        }
        let stored = interval(1, 2, 3).to_stored();
        assert_eq!(stored, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    }
}
