//! Values that Rust has no type for: days, times, moments, unique ids.
//!
//! Each is the number that is stored, with its text as SQL writes it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use selkie_sql::types::calendar::{
    DATE_INFINITY, DATE_MINUS_INFINITY, Day, INFINITY, MINUS_INFINITY, checked_date,
    checked_timestamp, is_finite,
};
use selkie_sql::types::text_format::{from_text, to_string};
use selkie_sql::types::{Datum, FormatSettings, SqlType};
use selkie_sql::{SqlError, SqlResult};

/// From 1970-01-01 to 2000-01-01.
const EPOCH: Duration = Duration::from_secs(946_684_800);

/// A `date`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    days: i32,
}

/// A `time`, which has no time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    us: i64,
}

/// A `timestamp` or a `timestamptz`. The second is in UTC here, whatever the time zone of the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    us: i64,
}

/// A `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(
    /// Its bytes, as they are written.
    pub [u8; 16],
);

impl Date {
    /// After all days.
    pub const INFINITY: Self = Self { days: DATE_INFINITY };
    /// Before all days.
    pub const MINUS_INFINITY: Self = Self { days: DATE_MINUS_INFINITY };

    /// A day of the calendar; year 0 is 1 BC. `None` if the calendar does not have it, or if it is
    /// before 4714-11-24 BC or after 5874897-12-31, as SQL has no such dates.
    #[must_use]
    pub fn new(year: i32, month: u8, day: u8) -> Option<Self> {
        let day = Day { year: year.into(), month: month.into(), day: day.into() };
        let days = day.is_valid().then(|| day.number())?;
        Some(Self { days: checked_date(days).ok()? })
    }

    /// So many days after 2000-01-01. One that SQL does not have is refused as a parameter.
    #[must_use]
    pub const fn of_days(days: i32) -> Self {
        Self { days }
    }

    /// Days since 2000-01-01.
    #[must_use]
    pub const fn days(self) -> i32 {
        self.days
    }

    /// The same, if it is a date of SQL; else 22008.
    pub(super) fn checked(self) -> SqlResult<i32> {
        if self == Self::INFINITY || self == Self::MINUS_INFINITY {
            return Ok(self.days);
        }
        checked_date(self.days.into())
    }

    /// Year, month and day; `None` of an infinity.
    #[must_use]
    pub fn parts(self) -> Option<(i32, u8, u8)> {
        if self == Self::INFINITY || self == Self::MINUS_INFINITY {
            return None;
        }
        let Day { year, month, day } = Day::of_number(self.days.into());
        Some((year.try_into().ok()?, month.try_into().ok()?, day.try_into().ok()?))
    }
}

impl Time {
    /// So many microseconds after midnight; `None` if a day has fewer.
    #[must_use]
    pub fn of_microseconds(us: i64) -> Option<Self> {
        (0..=86_400_000_000).contains(&us).then_some(Self { us })
    }

    /// Microseconds since midnight.
    #[must_use]
    pub const fn microseconds(self) -> i64 {
        self.us
    }
}

impl Timestamp {
    /// After all moments.
    pub const INFINITY: Self = Self { us: INFINITY };
    /// Before all moments.
    pub const MINUS_INFINITY: Self = Self { us: MINUS_INFINITY };

    /// So many microseconds after 2000-01-01 00:00. A moment that SQL does not have, before
    /// 4714-11-24 BC or after the year 294276, is refused as a parameter.
    #[must_use]
    pub const fn of_microseconds(us: i64) -> Self {
        Self { us }
    }

    /// Microseconds since 2000-01-01 00:00.
    #[must_use]
    pub const fn microseconds(self) -> i64 {
        self.us
    }

    /// The same, if it is a moment of SQL; else 22008.
    pub(super) fn checked(self) -> SqlResult<i64> {
        if is_finite(self.us) { checked_timestamp(self.us.into()) } else { Ok(self.us) }
    }

    /// The moment that it is in UTC; `None` of an infinity, and of what the system cannot say.
    #[must_use]
    pub fn system_time(self) -> Option<SystemTime> {
        if self == Self::INFINITY || self == Self::MINUS_INFINITY {
            return None;
        }
        let distance = Duration::from_micros(self.us.unsigned_abs());
        let epoch = UNIX_EPOCH + EPOCH;
        if self.us < 0 { epoch.checked_sub(distance) } else { epoch.checked_add(distance) }
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = SqlError;

    /// # Errors
    /// 22008 if it is out of range.
    fn try_from(time: SystemTime) -> SqlResult<Self> {
        let (distance, is_before) = match time.duration_since(UNIX_EPOCH + EPOCH) {
            Ok(after) => (after, false),
            Err(before) => (before.duration(), true),
        };
        // Rounded down, also before the epoch.
        let (us, cut) = (distance.as_micros(), distance.subsec_nanos() % 1000);
        let us = i128::try_from(us + u128::from(is_before && cut > 0)).unwrap_or(i128::MAX);
        checked_timestamp(if is_before { -us } else { us }).map(|us| Self { us })
    }
}

/// Text of a type: as SQL writes it, whatever the settings of a connection are.
macro_rules! text {
    ($name:ident, $ty:expr, $own:ident => $datum:expr, $from:pat => $value:expr) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $own = *self;
                f.write_str(&to_string(&$datum, $ty, &FormatSettings::default()))
            }
        }

        impl FromStr for $name {
            type Err = SqlError;

            /// # Errors
            /// 22007, 22008 or 22P02 if the text is none.
            fn from_str(text: &str) -> SqlResult<Self> {
                match from_text(text, $ty, &FormatSettings::default())? {
                    $from => Ok($value),
                    other => Err(SqlError::internal(format!("{other:?} was read"))),
                }
            }
        }
    };
}

text!(Date, SqlType::DATE, own => Datum::Date(own.days), Datum::Date(days) => Self { days });
text!(Time, SqlType::TIME, own => Datum::Time(own.us), Datum::Time(us) => Self { us });
text!(
    Timestamp,
    SqlType::TIMESTAMP,
    own => Datum::Timestamp(own.us),
    Datum::Timestamp(us) => Self { us }
);
text!(Uuid, SqlType::UUID, own => Datum::Uuid(own.0), Datum::Uuid(bytes) => Self(bytes));

/// Microseconds since 2000-01-01 00:00 UTC, by the clock of the system: what a session of SQL takes
/// as its clock.
#[must_use]
pub fn clock() -> i64 {
    Timestamp::try_from(SystemTime::now()).map_or(0, Timestamp::microseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_moments_are_those_of_the_calendar() {
        let day = Date::new(2024, 2, 29).unwrap();
        assert_eq!((day.to_string().as_str(), day.parts()), ("2024-02-29", Some((2024, 2, 29))));
        assert_eq!("2024-02-29".parse::<Date>().unwrap(), day);
        assert_eq!(Date::new(2023, 2, 29), None);
        assert_eq!(Date::INFINITY.parts(), None);
        let first = Date::new(-4713, 11, 24).unwrap();
        assert_eq!(first.to_string(), "4714-11-24 BC");
        assert_eq!((Date::new(-4713, 11, 23), Date::new(5_874_898, 1, 1)), (None, None));
        assert!("2023-02-29".parse::<Date>().is_err());

        let before = UNIX_EPOCH + EPOCH - Duration::from_nanos(1);
        let moment = Timestamp::try_from(before).unwrap();
        assert_eq!(moment.to_string(), "1999-12-31 23:59:59.999999");
        let back = moment.system_time().unwrap();
        assert_eq!(back, UNIX_EPOCH + EPOCH - Duration::from_micros(1));
        assert_eq!(Timestamp::INFINITY.system_time(), None);
        let time = Time::of_microseconds(3_600_000_000).unwrap();
        assert_eq!(time.to_string(), "01:00:00");
        assert_eq!(Time::of_microseconds(-1), None);
        let id = "00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(id.parse::<Uuid>().unwrap().to_string(), id);
    }
}
