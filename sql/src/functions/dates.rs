//! Arithmetic of dates, times and intervals.

use selkie_txn::Interval;

use super::CallContext;
use super::arguments::{date, float, interval, moment, whole};
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::calendar::{self, DATE_INFINITY, DATE_MINUS_INFINITY, DAY_US};
use crate::types::numeric::division_by_zero;
use crate::types::{Datum, Scalar, conversions};

fn is_finite_date(date: i32) -> bool {
    date != DATE_INFINITY && date != DATE_MINUS_INFINITY
}

fn overflow(message: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, message)
}

fn date_plus(date: i32, days: i64) -> SqlResult<Datum> {
    if !is_finite_date(date) {
        return Ok(Datum::Date(date));
    }
    calendar::checked_date(i64::from(date) + days).map(Datum::Date)
}

fn date_minus_date(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (a, b) = (date(values, 0)?, date(values, 1)?);
    if !is_finite_date(a) || !is_finite_date(b) {
        return Err(overflow("cannot subtract infinite dates"));
    }
    conversions::whole(i128::from(a) - i128::from(b), Scalar::Int4)
}

fn date_plus_interval(date: i32, interval: Interval) -> SqlResult<Datum> {
    let timestamp = calendar::date_to_timestamp(date)?;
    calendar::add_interval(timestamp, interval).map(Datum::Timestamp)
}

/// The day on which an interval is added is that of the session's zone.
pub(super) fn add_in_zone(
    timestamp: i64,
    interval: Interval,
    context: &CallContext<'_>,
) -> SqlResult<i64> {
    context.settings.time_zone.add_interval(timestamp, interval)
}

/// The time between two moments, in days and what is left.
pub(super) fn difference(a: i64, b: i64) -> SqlResult<Interval> {
    if !calendar::is_finite(a) || !calendar::is_finite(b) {
        return Err(overflow("cannot subtract infinite timestamps"));
    }
    let us = a.checked_sub(b).ok_or_else(calendar::interval_out_of_range)?;
    let days = i32::try_from(us / DAY_US).map_err(|_| calendar::interval_out_of_range())?;
    Ok(Interval { months: 0, days, microseconds: us % DAY_US })
}

fn time_plus(time: i64, us: i64) -> Datum {
    Datum::Time((time + us % DAY_US).rem_euclid(DAY_US))
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    table.add("+", "date int4 -> date", |values, _| date_plus(date(values, 0)?, whole(values, 1)?));
    table.add("+", "int4 date -> date", |values, _| date_plus(date(values, 1)?, whole(values, 0)?));
    table
        .add("-", "date int4 -> date", |values, _| date_plus(date(values, 0)?, -whole(values, 1)?));
    table.add("-", "date date -> int4", date_minus_date);
    table.add("+", "date interval -> timestamp", |values, _| {
        date_plus_interval(date(values, 0)?, interval(values, 1)?)
    });
    table.add("+", "interval date -> timestamp", |values, _| {
        date_plus_interval(date(values, 1)?, interval(values, 0)?)
    });
    table.add("-", "date interval -> timestamp", |values, _| {
        date_plus_interval(date(values, 0)?, calendar::negate(interval(values, 1)?)?)
    });
    table.add("+", "date time -> timestamp", |values, _| {
        let day = calendar::date_to_timestamp(date(values, 0)?)?;
        let microseconds = moment(values, 1)?;
        let time = Interval { microseconds, ..Interval::default() };
        calendar::add_interval(day, time).map(Datum::Timestamp)
    });
    register_timestamps(table);
    register_intervals(table);
}

fn register_timestamps(table: &mut Table<Body>) {
    table.add("+", "timestamp interval -> timestamp", |values, _| {
        calendar::add_interval(moment(values, 0)?, interval(values, 1)?).map(Datum::Timestamp)
    });
    table.add("+", "interval timestamp -> timestamp", |values, _| {
        calendar::add_interval(moment(values, 1)?, interval(values, 0)?).map(Datum::Timestamp)
    });
    table.add("-", "timestamp interval -> timestamp", |values, _| {
        let back = calendar::negate(interval(values, 1)?)?;
        calendar::add_interval(moment(values, 0)?, back).map(Datum::Timestamp)
    });
    table.add("+", "stable timestamptz interval -> timestamptz", |values, context| {
        add_in_zone(moment(values, 0)?, interval(values, 1)?, context).map(Datum::Timestamp)
    });
    table.add("+", "stable interval timestamptz -> timestamptz", |values, context| {
        add_in_zone(moment(values, 1)?, interval(values, 0)?, context).map(Datum::Timestamp)
    });
    table.add("-", "stable timestamptz interval -> timestamptz", |values, context| {
        let back = calendar::negate(interval(values, 1)?)?;
        add_in_zone(moment(values, 0)?, back, context).map(Datum::Timestamp)
    });
    for signature in ["timestamp timestamp -> interval", "timestamptz timestamptz -> interval"] {
        table.add("-", signature, |values, _| {
            difference(moment(values, 0)?, moment(values, 1)?).map(Datum::Interval)
        });
    }
    table.add("+", "time interval -> time", |values, _| {
        Ok(time_plus(moment(values, 0)?, interval(values, 1)?.microseconds))
    });
    table.add("+", "interval time -> time", |values, _| {
        Ok(time_plus(moment(values, 1)?, interval(values, 0)?.microseconds))
    });
    table.add("-", "time interval -> time", |values, _| {
        let us = interval(values, 1)?.microseconds % DAY_US;
        Ok(time_plus(moment(values, 0)?, -us))
    });
    table.add("-", "time time -> interval", |values, _| {
        let microseconds = moment(values, 0)? - moment(values, 1)?;
        Ok(Datum::Interval(Interval { microseconds, ..Interval::default() }))
    });
}

fn register_intervals(table: &mut Table<Body>) {
    table.add("-", "interval -> interval", |values, _| {
        calendar::negate(interval(values, 0)?).map(Datum::Interval)
    });
    table.add("+", "interval interval -> interval", |values, _| {
        let sum = calendar::add_intervals(interval(values, 0)?, interval(values, 1)?);
        sum.map(Datum::Interval)
    });
    table.add("-", "interval interval -> interval", |values, _| {
        let back = calendar::negate(interval(values, 1)?)?;
        calendar::add_intervals(interval(values, 0)?, back).map(Datum::Interval)
    });
    table.add("*", "interval float8 -> interval", |values, _| {
        calendar::multiply_interval(interval(values, 0)?, float(values, 1)?).map(Datum::Interval)
    });
    table.add("*", "float8 interval -> interval", |values, _| {
        calendar::multiply_interval(interval(values, 1)?, float(values, 0)?).map(Datum::Interval)
    });
    table.add("/", "interval float8 -> interval", |values, _| {
        let divisor = float(values, 1)?;
        if divisor == 0.0 {
            return Err(division_by_zero());
        }
        let factor = 1.0 / divisor;
        calendar::multiply_interval(interval(values, 0)?, factor).map(Datum::Interval)
    });
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for name in ["now", "transaction_timestamp", "current_timestamp"] {
        table.add(name, "stable -> timestamptz", |_, context| {
            Ok(Datum::Timestamp(context.transaction_start))
        });
    }
    table.add("statement_timestamp", "stable -> timestamptz", |_, context| {
        Ok(Datum::Timestamp(context.statement_start))
    });
    table.add("clock_timestamp", "volatile -> timestamptz", |_, context| {
        Ok(Datum::Timestamp(context.now))
    });
    table.add("localtimestamp", "stable -> timestamp", |_, context| {
        local_start(context).map(Datum::Timestamp)
    });
    table.add("localtime", "stable -> time", |_, context| {
        Ok(Datum::Time(calendar::split(local_start(context)?).1))
    });
    table.add("current_date", "stable -> date", |_, context| {
        calendar::timestamp_to_date(local_start(context)?).map(Datum::Date)
    });
}

fn local_start(context: &CallContext<'_>) -> SqlResult<i64> {
    context.settings.time_zone.to_local(context.transaction_start)
}
