//! What moments are rounded to, and moments made of parts.

use selkie_txn::Interval;

use super::CallContext;
use super::arguments::{argument, float, interval, moment, text, whole};
use super::dates::difference;
use super::parts::unsupported_unit;
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::calendar::{self, DAY_US, Day, SECOND_US};
use crate::types::time_text::parse_offset;
use crate::types::{Datum, IntervalStyle, Scalar, SqlType, TimeZone, interval_text};

pub(super) const HOUR_US: i64 = 3600 * SECOND_US;
pub(super) const MINUTE_US: i64 = 60 * SECOND_US;

pub(super) fn unknown_unit(unit: &str, ty: SqlType) -> SqlError {
    let ty = ty.plain().name();
    SqlError::new(
        SqlState::INVALID_PARAMETER,
        format!("unit \"{unit}\" not recognized for type {ty}"),
    )
}

/// A unit in the singular, as it is looked up.
pub(super) fn unit_of(text: &str) -> String {
    let unit = text.trim().to_ascii_lowercase();
    match unit.as_str() {
        "microsecond" | "us" | "usec" | "usecs" => "microseconds".to_owned(),
        "millisecond" | "ms" | "msec" | "msecs" => "milliseconds".to_owned(),
        "sec" | "secs" | "seconds" | "s" => "second".to_owned(),
        "min" | "mins" | "minutes" | "m" => "minute".to_owned(),
        "hr" | "hrs" | "hours" | "h" => "hour".to_owned(),
        "days" | "d" => "day".to_owned(),
        "weeks" | "w" => "week".to_owned(),
        "mon" | "mons" | "months" => "month".to_owned(),
        "qtr" | "quarters" => "quarter".to_owned(),
        "yr" | "yrs" | "years" | "y" => "year".to_owned(),
        "decades" | "dec" | "decs" => "decade".to_owned(),
        "centuries" | "c" | "cent" => "century".to_owned(),
        "millennia" | "mil" | "mils" => "millennium".to_owned(),
        _ => unit,
    }
}

/// The beginning of the unit in which a moment of local time is.
fn truncated(unit: &str, local: i64, ty: SqlType) -> SqlResult<i64> {
    if !calendar::is_finite(local) {
        return Ok(local);
    }
    let (number, us) = calendar::split(local);
    let Day { year, month, .. } = Day::of_number(number);
    let whole = |unit: i64| local - us % unit;
    let first = |year: i64, month: i64| {
        let day = Day { year, month, day: 1 }.number();
        calendar::checked_timestamp(i128::from(day) * i128::from(DAY_US))
    };
    match unit_of(unit).as_str() {
        "microseconds" => Ok(local),
        "milliseconds" => Ok(whole(1000)),
        "second" => Ok(whole(SECOND_US)),
        "minute" => Ok(whole(MINUTE_US)),
        "hour" => Ok(whole(HOUR_US)),
        "day" => Ok(local - us),
        "week" => {
            let day = number - (Day::of_number(number).day_of_week() + 6) % 7;
            calendar::checked_timestamp(i128::from(day) * i128::from(DAY_US))
        }
        "month" => first(year, month),
        "quarter" => first(year, (month - 1) / 3 * 3 + 1),
        "year" => first(year, 1),
        "decade" => first(year.div_euclid(10) * 10, 1),
        // These begin with a year that ends in 1.
        "century" => first((year - 1).div_euclid(100) * 100 + 1, 1),
        "millennium" => first((year - 1).div_euclid(1000) * 1000 + 1, 1),
        unit @ ("timezone" | "timezone_hour" | "timezone_minute") => {
            Err(unsupported_unit(unit, ty))
        }
        _ => Err(unknown_unit(unit, ty)),
    }
}

fn truncated_interval(unit: &str, value: Interval) -> SqlResult<Interval> {
    let Interval { months, days, microseconds: us } = value;
    let of_months = |size: i32| Interval { months: months / size * size, ..Interval::default() };
    let of_time = |size: i64| Interval { months, days, microseconds: us - us % size };
    Ok(match unit_of(unit).as_str() {
        "microseconds" => value,
        "milliseconds" => of_time(1000),
        "second" => of_time(SECOND_US),
        "minute" => of_time(MINUTE_US),
        "hour" => of_time(HOUR_US),
        "day" => Interval { months, days, microseconds: 0 },
        "month" => of_months(1),
        "quarter" => of_months(3),
        "year" => of_months(12),
        "decade" => of_months(120),
        "century" => of_months(1200),
        "millennium" => of_months(12_000),
        "week" => {
            let error = unsupported_unit("week", SqlType::INTERVAL);
            return Err(error.detail("Months usually have fractional weeks."));
        }
        _ => return Err(unknown_unit(unit, SqlType::INTERVAL)),
    })
}

/// The time from one moment to another in years, months, days and time.
fn age(a: i64, b: i64) -> SqlResult<Interval> {
    if !calendar::is_finite(a) || !calendar::is_finite(b) {
        return difference(a, b);
    }
    let (late, early, sign) = if a >= b { (a, b, 1) } else { (b, a, -1) };
    let ((late_day, late_us), (early_day, early_us)) =
        (calendar::split(late), calendar::split(early));
    let (late, early) = (Day::of_number(late_day), Day::of_number(early_day));
    let mut us = late_us - early_us;
    let mut days = late.day - early.day;
    let mut months = (late.year - early.year) * 12 + late.month - early.month;
    if us < 0 {
        us += DAY_US;
        days -= 1;
    }
    if days < 0 {
        // Days are borrowed from the month of the earlier moment.
        days += calendar::days_of_month(early.year, early.month);
        months -= 1;
    }
    let part =
        |value: i64| i32::try_from(value * sign).map_err(|_| calendar::interval_out_of_range());
    Ok(Interval { months: part(months)?, days: part(days)?, microseconds: us * sign })
}

/// The zone that a call names.
fn zone(values: &[Datum], at: usize) -> SqlResult<TimeZone> {
    let Datum::Interval(value) = argument(values, at) else {
        return TimeZone::find(text(values, at)?);
    };
    let seconds = i32::try_from(value.microseconds / SECOND_US).ok();
    match seconds.filter(|_| value.months == 0 && value.days == 0) {
        Some(seconds) => Ok(TimeZone::fixed(seconds)),
        None => {
            let mut shown = String::new();
            interval_text::print(*value, IntervalStyle::Postgres, &mut shown);
            Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("interval time zone \"{shown}\" must not include months or days"),
            ))
        }
    }
}

/// The zone that `make_timestamptz` is given: the sign of a number is as in ISO, east is positive.
fn zone_to_make(text: &str) -> SqlResult<TimeZone> {
    let invalid = |message| SqlError::new(SqlState::INVALID_PARAMETER, message);
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        let hint = "Numeric time zones must have \"-\" or \"+\" as first character.".to_owned();
        let message = format!("invalid input syntax for type numeric time zone: \"{text}\"");
        return Err(invalid(message).hint(hint));
    }
    match parse_offset(text) {
        Some(Ok(offset_s)) => Ok(TimeZone::fixed(offset_s)),
        Some(Err(_)) => Err(invalid(format!("numeric time zone \"{text}\" out of range"))),
        None => TimeZone::find(text),
    }
}

/// The beginning of the unit in which a moment is by the clocks of a zone.
fn truncated_in(zone: &TimeZone, unit: &str, moment_us: i64) -> SqlResult<Datum> {
    let local = zone.to_local(moment_us)?;
    let cut = truncated(unit, local, SqlType::TIMESTAMPTZ)?;
    let is_of_day = matches!(
        unit_of(unit).as_str(),
        "microseconds" | "milliseconds" | "second" | "minute" | "hour"
    );
    // In an hour that clocks show twice, a part of it stays in the same one.
    let moment = match is_of_day && calendar::is_finite(moment_us) {
        true => calendar::shift(cut, -zone.offset_at(moment_us))?,
        false => zone.to_moment(cut)?,
    };
    Ok(Datum::Timestamp(moment))
}

fn out_of_range(what: String) -> SqlError {
    SqlError::new(SqlState::DATETIME_OVERFLOW, what)
}

fn make_day(values: &[Datum]) -> SqlResult<i64> {
    let (year, month, day) = (whole(values, 0)?, whole(values, 1)?, whole(values, 2)?);
    // Negative years are BC.
    let counted = if year < 0 { year + 1 } else { year };
    let made = Day { year: counted, month, day };
    if year == 0 || !made.is_valid() {
        return Err(out_of_range(format!(
            "date field value out of range: {year}-{month:02}-{day:02}"
        )));
    }
    Ok(made.number())
}

fn make_us(values: &[Datum], at: usize) -> SqlResult<i64> {
    let (hour, minute, second) =
        (whole(values, at)?, whole(values, at + 1)?, float(values, at + 2)?);
    let is_valid =
        (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60.0).contains(&second);
    #[expect(clippy::cast_possible_truncation, reason = "it was checked")]
    let us = (hour.clamp(0, 24) * 60 + minute.clamp(0, 60)) * MINUTE_US
        + (second.clamp(0.0, 60.0) * 1e6).round() as i64;
    if !is_valid || us > DAY_US {
        return Err(out_of_range(format!(
            "time field value out of range: {hour}:{minute:02}:{second:02}"
        )));
    }
    Ok(us)
}

fn make_timestamp(values: &[Datum]) -> SqlResult<i64> {
    let day = i128::from(make_day(values)?) * i128::from(DAY_US);
    calendar::checked_timestamp(day + i128::from(make_us(values, 3)?))
}

/// Years, months, weeks, days, hours, minutes, seconds; those that are not given are 0.
fn make_interval(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let part = |at: usize| if values.len() > at { whole(values, at) } else { Ok(0) };
    let failed = calendar::interval_out_of_range;
    let months = part(0)? * 12 + part(1)?;
    let days = part(2)? * 7 + part(3)?;
    let seconds = if values.len() > 6 { float(values, 6)? } else { 0.0 };
    if seconds.is_nan() || seconds.abs() > 9e12 {
        return Err(failed());
    }
    #[expect(clippy::cast_possible_truncation, reason = "it was checked")]
    let fraction = (seconds * 1e6).round() as i64;
    let us = (part(4)? * 60 + part(5)?).checked_mul(MINUTE_US);
    Ok(Datum::Interval(Interval {
        months: i32::try_from(months).map_err(|_| failed())?,
        days: i32::try_from(days).map_err(|_| failed())?,
        microseconds: us.and_then(|us| us.checked_add(fraction)).ok_or_else(failed)?,
    }))
}

/// Moves what is more than a day, or than a month of 30 days, up.
fn justify(value: Interval, hours: bool, days: bool) -> SqlResult<Interval> {
    let failed = |_| calendar::interval_out_of_range();
    let (mut months, mut all_days, mut us) =
        (i64::from(value.months), i64::from(value.days), value.microseconds);
    if hours {
        all_days += us / DAY_US;
        us %= DAY_US;
    }
    if days {
        months += all_days / 30;
        all_days %= 30;
    }
    // Signs that differ are made one, months first: what is borrowed may be borrowed from again.
    let below = |days: i64| days < 0 || (hours && days == 0 && us < 0);
    let above = |days: i64| days > 0 || (hours && days == 0 && us > 0);
    if days && months > 0 && below(all_days) {
        (months, all_days) = (months - 1, all_days + 30);
    } else if days && months < 0 && above(all_days) {
        (months, all_days) = (months + 1, all_days - 30);
    }
    if hours && all_days > 0 && us < 0 {
        (all_days, us) = (all_days - 1, us + DAY_US);
    } else if hours && all_days < 0 && us > 0 {
        (all_days, us) = (all_days + 1, us - DAY_US);
    }
    Ok(Interval {
        months: i32::try_from(months).map_err(failed)?,
        days: i32::try_from(all_days).map_err(failed)?,
        microseconds: us,
    })
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    table.add("date_trunc", "text timestamp -> timestamp", |v, _| {
        truncated(text(v, 0)?, moment(v, 1)?, SqlType::TIMESTAMP).map(Datum::Timestamp)
    });
    table.add("date_trunc", "stable text timestamptz -> timestamptz", |v, context| {
        truncated_in(&context.settings.time_zone, text(v, 0)?, moment(v, 1)?)
    });
    table.add("date_trunc", "text timestamptz text -> timestamptz", |v, _| {
        let moment_us = moment(v, 1)?;
        if !calendar::is_finite(moment_us) {
            return Ok(Datum::Timestamp(moment_us));
        }
        truncated_in(&TimeZone::find(text(v, 2)?)?, text(v, 0)?, moment_us)
    });
    table.add("date_trunc", "text interval -> interval", |v, _| {
        truncated_interval(text(v, 0)?, interval(v, 1)?).map(Datum::Interval)
    });
    table.add("age", "timestamp timestamp -> interval", |v, _| {
        age(moment(v, 0)?, moment(v, 1)?).map(Datum::Interval)
    });
    table.add("age", "stable timestamptz timestamptz -> interval", |v, context| {
        let local = |at| context.settings.time_zone.to_local(moment(v, at)?);
        age(local(0)?, local(1)?).map(Datum::Interval)
    });
    for signature in ["stable timestamp -> interval", "stable timestamptz -> interval"] {
        table.add_typed("age", signature, |types, v, context| {
            let zone = &context.settings.time_zone;
            let now = zone.to_local(context.transaction_start)?;
            let has_zone = types.argument(0).scalar == Scalar::TimestampTz;
            let then = moment(v, 0)?;
            let then = if has_zone { zone.to_local(then)? } else { then };
            age(calendar::split(now).0 * DAY_US, then).map(Datum::Interval)
        });
    }
    for signature in ["text timestamp -> timestamptz", "interval timestamp -> timestamptz"] {
        table.add("timezone", signature, |v, _| {
            let local = moment(v, 1)?;
            let is_finite = calendar::is_finite(local);
            Ok(Datum::Timestamp(if is_finite { zone(v, 0)?.to_moment(local)? } else { local }))
        });
    }
    for signature in ["text timestamptz -> timestamp", "interval timestamptz -> timestamp"] {
        table.add("timezone", signature, |v, _| {
            let moment_us = moment(v, 1)?;
            let is_finite = calendar::is_finite(moment_us);
            Ok(Datum::Timestamp(match is_finite {
                true => zone(v, 0)?.to_local(moment_us)?,
                false => moment_us,
            }))
        });
    }
    register_made(table);
}

fn register_made(table: &mut Table<Body>) {
    table.add("make_date", "int4 int4 int4 -> date", |v, _| {
        calendar::checked_date(make_day(v)?).map(Datum::Date)
    });
    table.add("make_time", "int4 int4 float8 -> time", |v, _| make_us(v, 0).map(Datum::Time));
    table.add("make_timestamp", "int4 int4 int4 int4 int4 float8 -> timestamp", |v, _| {
        make_timestamp(v).map(Datum::Timestamp)
    });
    table.add(
        "make_timestamptz",
        "stable int4 int4 int4 int4 int4 float8 -> timestamptz",
        |v, context| context.settings.time_zone.to_moment(make_timestamp(v)?).map(Datum::Timestamp),
    );
    table.add("make_timestamptz", "int4 int4 int4 int4 int4 float8 text -> timestamptz", |v, _| {
        let local = make_timestamp(v)?;
        zone_to_make(text(v, 6)?)?.to_moment(local).map(Datum::Timestamp)
    });
    for signature in [
        "-> interval",
        "int4 -> interval",
        "int4 int4 -> interval",
        "int4 int4 int4 -> interval",
        "int4 int4 int4 int4 -> interval",
        "int4 int4 int4 int4 int4 -> interval",
        "int4 int4 int4 int4 int4 int4 -> interval",
        "int4 int4 int4 int4 int4 int4 float8 -> interval",
    ] {
        table.add("make_interval", signature, make_interval);
    }
    table.add("to_timestamp", "float8 -> timestamptz", |v, _| {
        let seconds = float(v, 0)?;
        if seconds.is_infinite() {
            return Ok(Datum::Timestamp(match seconds > 0.0 {
                true => calendar::INFINITY,
                false => calendar::MINUS_INFINITY,
            }));
        }
        if seconds.is_nan() || seconds.abs() > 1e13 {
            return Err(calendar::timestamp_out_of_range());
        }
        #[expect(clippy::cast_possible_truncation, reason = "it was checked")]
        let us = (seconds * 1e6).round() as i128;
        let since = i128::from(calendar::UNIX_DAYS) * i128::from(DAY_US);
        calendar::checked_timestamp(us - since).map(Datum::Timestamp)
    });
    table.add("justify_hours", "interval -> interval", |v, _| {
        justify(interval(v, 0)?, true, false).map(Datum::Interval)
    });
    table.add("justify_days", "interval -> interval", |v, _| {
        justify(interval(v, 0)?, false, true).map(Datum::Interval)
    });
    table.add("justify_interval", "interval -> interval", |v, _| {
        justify(interval(v, 0)?, true, true).map(Datum::Interval)
    });
    for signature in
        ["date -> bool", "timestamp -> bool", "timestamptz -> bool", "interval -> bool"]
    {
        table.add("isfinite", signature, |v, _| {
            Ok(Datum::Bool(match argument(v, 0) {
                Datum::Date(days) => !matches!(*days, i32::MIN | i32::MAX),
                Datum::Timestamp(us) => calendar::is_finite(*us),
                _ => true,
            }))
        });
    }
}
