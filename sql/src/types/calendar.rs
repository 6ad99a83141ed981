//! Days and moments: the calendar, and intervals added to them.
//!
//! Days are counted from 2000-01-01, microseconds from its midnight. Years before 1 are counted
//! with a year 0, which is 1 BC.

use selkie_txn::Interval;

use crate::error::{SqlError, SqlResult, SqlState};

/// Microseconds of a second.
pub const SECOND_US: i64 = 1_000_000;
/// Microseconds of a day.
pub const DAY_US: i64 = 86_400 * SECOND_US;
/// Days from 1970-01-01 to 2000-01-01.
pub const UNIX_DAYS: i64 = 10_957;
/// Before all dates.
pub const DATE_MINUS_INFINITY: i32 = i32::MIN;
/// After all dates.
pub const DATE_INFINITY: i32 = i32::MAX;
/// Before all moments.
pub const MINUS_INFINITY: i64 = i64::MIN;
/// After all moments.
pub const INFINITY: i64 = i64::MAX;
/// The first day, 4714-11-24 BC.
const FIRST_DAY: i64 = -2_451_545;
/// The day after the last date, 5874898-01-01.
const END_DAY: i64 = 2_145_031_949;
/// The first moment, on the first day.
const FIRST_US: i64 = FIRST_DAY * DAY_US;
/// After the last moment: 294277-01-01.
const END_US: i64 = 9_223_371_331_200_000_000;

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Day {
    /// 0 is 1 BC.
    pub year: i64,
    /// From 1 to 12.
    pub month: i64,
    /// From 1 to 31.
    pub day: i64,
}

/// The time of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOfDay {
    /// From 0 to 24.
    pub hour: i64,
    /// From 0 to 59.
    pub minute: i64,
    /// From 0 to 59.
    pub second: i64,
    /// From 0 to 999999.
    pub microsecond: i64,
}

/// Whether a year has a 29th of February.
#[must_use]
pub const fn is_leap(year: i64) -> bool {
    year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0)
}

/// Days of a month of 1 to 12.
#[must_use]
pub const fn days_of_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + is_leap(year) as i64,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Day {
    /// Its number. The day may be any; a month beyond 12 is one of a later year.
    #[must_use]
    pub const fn number(self) -> i64 {
        let month = self.month - 1;
        let year = self.year + month.div_euclid(12);
        // Years begin in March here, so that the leap day is the last.
        let month = (month.rem_euclid(12) + 10) % 12;
        let year = if month >= 10 { year - 1 } else { year };
        let of_cycle = year.rem_euclid(400);
        let of_year = (153 * month + 2) / 5 + self.day - 1;
        let days = of_cycle * 365 + of_cycle / 4 - of_cycle / 100 + of_year;
        year.div_euclid(400) * 146_097 + days - 730_425
    }

    /// The day of this number.
    #[must_use]
    pub const fn of_number(number: i64) -> Self {
        let days = number + 730_425;
        let cycle = days.div_euclid(146_097);
        let of_cycle = days.rem_euclid(146_097);
        let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
        let of_year = of_cycle - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let year = year + cycle * 400 + (month >= 10) as i64;
        Self { year, month: (month + 2) % 12 + 1, day }
    }

    /// Whether the calendar has it.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.month >= 1
            && self.month <= 12
            && self.day >= 1
            && self.day <= days_of_month(self.year, self.month)
    }

    /// The day of the week: 0 is Sunday.
    #[must_use]
    pub const fn day_of_week(self) -> i64 {
        (self.number() + 6).rem_euclid(7)
    }

    /// The day of the year, from 1.
    #[must_use]
    pub const fn day_of_year(self) -> i64 {
        self.number() - Self { year: self.year, month: 1, day: 1 }.number() + 1
    }

    /// The year and week of ISO 8601, in which weeks begin on Monday.
    #[must_use]
    pub const fn iso_week(self) -> (i64, i64) {
        let mut year = Self::of_number(self.number()).year + 1;
        while self.number() < first_monday(year) {
            year -= 1;
        }
        (year, (self.number() - first_monday(year)) / 7 + 1)
    }
}

/// The Monday of the first week of a year, which is that of January the 4th.
#[must_use]
pub const fn first_monday(year: i64) -> i64 {
    let fourth = Day { year, month: 1, day: 4 };
    fourth.number() - (fourth.day_of_week() + 6) % 7
}

impl TimeOfDay {
    /// Of the microseconds since midnight.
    #[must_use]
    pub const fn of_us(us: i64) -> Self {
        let seconds = us / SECOND_US;
        Self {
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            microsecond: us % SECOND_US,
        }
    }

    /// Microseconds since midnight.
    #[must_use]
    pub const fn us(self) -> i64 {
        ((self.hour * 60 + self.minute) * 60 + self.second) * SECOND_US + self.microsecond
    }
}

/// The error of a moment that is out of range.
pub(crate) fn timestamp_out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "timestamp out of range")
}

/// The error of a date that is out of range.
pub(crate) fn date_out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range")
}

/// The error of an interval that is out of range.
pub(crate) fn interval_out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, "interval out of range")
}

/// A finite date of this number.
///
/// # Errors
/// 22008 if SQL does not have it.
pub fn checked_date(number: i64) -> SqlResult<i32> {
    if !(FIRST_DAY..END_DAY).contains(&number) {
        return Err(date_out_of_range());
    }
    i32::try_from(number).map_err(|_| date_out_of_range())
}

/// A finite moment of these microseconds.
///
/// # Errors
/// 22008 if SQL does not have it.
pub fn checked_timestamp(us: i128) -> SqlResult<i64> {
    let us = i64::try_from(us).map_err(|_| timestamp_out_of_range())?;
    if (FIRST_US..END_US).contains(&us) { Ok(us) } else { Err(timestamp_out_of_range()) }
}

/// Whether a moment is neither infinity.
#[must_use]
pub const fn is_finite(timestamp: i64) -> bool {
    timestamp != INFINITY && timestamp != MINUS_INFINITY
}

/// The day of a finite moment and the microseconds since its midnight.
#[must_use]
pub const fn split(timestamp: i64) -> (i64, i64) {
    (timestamp.div_euclid(DAY_US), timestamp.rem_euclid(DAY_US))
}

/// The moment at the beginning of a date; infinities stay.
pub(crate) fn date_to_timestamp(date: i32) -> SqlResult<i64> {
    match date {
        DATE_INFINITY => Ok(INFINITY),
        DATE_MINUS_INFINITY => Ok(MINUS_INFINITY),
        _ => {
            let us = i128::from(date) * i128::from(DAY_US);
            checked_timestamp(us).map_err(|_| {
                SqlError::new(SqlState::DATETIME_OVERFLOW, "date out of range for timestamp")
            })
        }
    }
}

/// The date of a moment; infinities stay.
pub(crate) fn timestamp_to_date(timestamp: i64) -> SqlResult<i32> {
    match timestamp {
        INFINITY => Ok(DATE_INFINITY),
        MINUS_INFINITY => Ok(DATE_MINUS_INFINITY),
        _ => checked_date(split(timestamp).0),
    }
}

/// The moment moved by this many seconds; infinities stay.
pub(crate) fn shift(timestamp: i64, seconds: i32) -> SqlResult<i64> {
    if !is_finite(timestamp) {
        return Ok(timestamp);
    }
    checked_timestamp(i128::from(timestamp) + i128::from(seconds) * i128::from(SECOND_US))
}

/// The moment after an interval: months first, then days, then the time. A day that the month does
/// not have becomes its last.
pub(crate) fn add_interval(timestamp: i64, interval: Interval) -> SqlResult<i64> {
    if !is_finite(timestamp) {
        return Ok(timestamp);
    }
    let (mut day, time) = split(timestamp);
    if interval.months != 0 {
        let Day { year, month, day: of_month } = Day::of_number(day);
        let months = year * 12 + month - 1 + i64::from(interval.months);
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
        day = Day { year, month, day: of_month.min(days_of_month(year, month)) }.number();
    }
    let days = i128::from(day) + i128::from(interval.days);
    checked_timestamp(
        days * i128::from(DAY_US) + i128::from(time) + i128::from(interval.microseconds),
    )
}

/// An interval with all signs turned.
pub(crate) fn negate(interval: Interval) -> SqlResult<Interval> {
    let negated = || {
        Some(Interval {
            months: interval.months.checked_neg()?,
            days: interval.days.checked_neg()?,
            microseconds: interval.microseconds.checked_neg()?,
        })
    };
    negated().ok_or_else(interval_out_of_range)
}

/// The sum of two intervals.
pub(crate) fn add_intervals(a: Interval, b: Interval) -> SqlResult<Interval> {
    let sum = || {
        Some(Interval {
            months: a.months.checked_add(b.months)?,
            days: a.days.checked_add(b.days)?,
            microseconds: a.microseconds.checked_add(b.microseconds)?,
        })
    };
    sum().ok_or_else(interval_out_of_range)
}

/// An interval times a number: what is left of months becomes days, of days the time.
pub(crate) fn multiply_interval(interval: Interval, factor: f64) -> SqlResult<Interval> {
    let whole = |value: f64, limit: f64| -> SqlResult<f64> {
        if value.is_nan() || value.abs() >= limit {
            return Err(interval_out_of_range());
        }
        Ok(value.trunc())
    };
    // As PostgreSQL does, parts are rounded to microseconds before they are carried on.
    let rounded = |value: f64| (value * 1e6).round() / 1e6;
    let (all_months, all_days) =
        (f64::from(interval.months) * factor, f64::from(interval.days) * factor);
    let months = whole(all_months, 2_147_483_648.0)?;
    let mut days = whole(all_days, 2_147_483_648.0)?;
    let month_days = rounded((all_months - months) * 30.0);
    let mut seconds = rounded((all_days - days + month_days - month_days.trunc()) * 86_400.0);
    if seconds.abs() >= 86_400.0 {
        days += (seconds / 86_400.0).trunc();
        seconds -= (seconds / 86_400.0).trunc() * 86_400.0;
    }
    days = whole(days + month_days.trunc(), 2_147_483_648.0)?;
    let time = interval.microseconds as f64 * factor + seconds * 1e6;
    let time = whole(time.round(), 9_223_372_036_854_775_808.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "the ranges were checked")]
    Ok(Interval { months: months as i32, days: days as i32, microseconds: time as i64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_numbers_and_numbers_days() {
        for (year, month, day, number) in [
            (2000, 1, 1, 0),
            (1999, 12, 31, -1),
            (1970, 1, 1, -10_957),
            (2000, 2, 29, 59),
            (2000, 3, 1, 60),
            (2024, 2, 29, 8825),
            (-4713, 11, 24, FIRST_DAY),
            (5_874_898, 1, 1, END_DAY),
        ] {
            let found = Day { year, month, day };
            assert_eq!(found.number(), number, "{found:?}");
            assert_eq!(Day::of_number(number), found);
        }
        for number in (-800_000..800_000).step_by(37) {
            assert_eq!(Day::of_number(number).number(), number);
            assert!(Day::of_number(number).is_valid());
        }
    }

    #[test]
    fn weeks_are_those_of_iso() {
        for (year, month, day, week) in [
            (2005, 1, 1, (2004, 53)),
            (2012, 12, 31, (2013, 1)),
            (2006, 1, 1, (2005, 52)),
            (2024, 7, 4, (2024, 27)),
        ] {
            assert_eq!(Day { year, month, day }.iso_week(), week);
        }
        assert_eq!(Day { year: 2001, month: 2, day: 16 }.day_of_week(), 5);
        assert_eq!(Day { year: 2001, month: 2, day: 16 }.day_of_year(), 47);
    }

    #[test]
    fn months_end_where_they_are_shorter() {
        let january = Day { year: 2001, month: 1, day: 31 }.number() * DAY_US;
        let month = Interval { months: 1, ..Interval::default() };
        let february = Day { year: 2001, month: 2, day: 28 }.number() * DAY_US;
        assert_eq!(add_interval(january, month).unwrap(), february);
        let half = multiply_interval(month, 1.5).unwrap();
        assert_eq!(half, Interval { months: 1, days: 15, microseconds: 0 });
    }
}
