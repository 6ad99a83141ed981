//! Settings of a session that decide how values look.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::object_names::Names;
use super::zone::TimeZone;

/// How dates and times are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DateStyle {
    /// `1997-12-17 07:37:16-08`
    #[default]
    Iso,
    /// `12/17/1997 07:37:16.00 PST`
    Sql,
    /// `Wed Dec 17 07:37:16 1997 PST`
    Postgres,
    /// `17.12.1997 07:37:16.00 PST`
    German,
}

/// The order of the parts of a date of numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// How intervals are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IntervalStyle {
    /// `1 year 2 mons 3 days 04:05:06`
    #[default]
    Postgres,
    /// `@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs`
    PostgresVerbose,
    /// `+1-2 +3 +4:05:06`
    SqlStandard,
    /// `P1Y2M3DT4H5M6S`
    Iso8601,
}

/// How byte strings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ByteaOutput {
    /// `\xdeadbeef`
    #[default]
    Hex,
    /// `\336\255`
    Escape,
}

/// When the transaction began in which texts are read: what `now` is in them, in microseconds since
/// 2000-01-01 UTC.
///
/// All that are cloned of one are one. All are equal: what depends on the moment is no constant of
/// a plan, so plans do not depend on it.
#[derive(Clone, Debug, Default)]
pub struct ReadMoment(Arc<AtomicI64>);

impl ReadMoment {
    /// What it is.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A transaction has begun.
    pub(crate) fn set(&self, moment_us: i64) {
        self.0.store(moment_us, Ordering::Relaxed);
    }
}

impl PartialEq for ReadMoment {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ReadMoment {}

/// How values look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatSettings {
    /// How dates and times are printed.
    pub date_style: DateStyle,
    /// The order of the parts of a date of numbers alone.
    pub date_order: DateOrder,
    /// The zone in which a `timestamptz` is read and printed.
    pub time_zone: TimeZone,
    /// What `now` is in a text.
    pub now: ReadMoment,
    /// How intervals are printed.
    pub interval_style: IntervalStyle,
    /// Above 0, floats print with as few digits as tell them apart; else with 15, or 6, plus this.
    pub extra_float_digits: i32,
    /// How byte strings are printed.
    pub bytea_output: ByteaOutput,
    /// By which names of tables are read and printed.
    pub names: Names,
}

impl Default for FormatSettings {
    fn default() -> Self {
        Self {
            date_style: DateStyle::default(),
            date_order: DateOrder::default(),
            time_zone: TimeZone::utc(),
            now: ReadMoment::default(),
            interval_style: IntervalStyle::default(),
            extra_float_digits: 1,
            bytea_output: ByteaOutput::default(),
            names: Names::default(),
        }
    }
}
