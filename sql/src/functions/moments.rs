//! Parts of moments, what they are rounded to, and moments made of parts.

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::BigInt;
use selkie_txn::Interval;

use super::CallContext;
use super::arguments::{argument, float, interval, moment, text, whole};
use super::dates::difference;
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::calendar::{self, DAY_US, Day, SECOND_US, TimeOfDay};
use crate::types::settings::TimeZone;
use crate::types::{Datum, Scalar, SqlType, numeric};

/// Days from the Julian day 0 to 2000-01-01.
const JULIAN_DAYS: i64 = 2_451_545;
const HOUR_US: i64 = 3600 * SECOND_US;
const MINUTE_US: i64 = 60 * SECOND_US;

fn unknown_unit(unit: &str, ty: SqlType) -> SqlError {
    let ty = ty.plain().name();
    SqlError::new(
        SqlState::INVALID_PARAMETER,
        format!("unit \"{unit}\" not recognized for type {ty}"),
    )
}

fn unsupported_unit(unit: &str, ty: SqlType) -> SqlError {
    let ty = ty.plain().name();
    SqlError::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("unit \"{unit}\" not supported for type {ty}"),
    )
}

/// A unit in the singular, as it is looked up.
fn unit_of(text: &str) -> String {
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

/// A number of microseconds as one of units, with six digits behind the point or three.
fn scaled(us: i128, scale: i64) -> BigDecimal {
    BigDecimal::new(BigInt::from(us), scale)
}

/// A part of a moment of local time; `offset_s` is that of its zone, if it has one.
fn moment_part(
    unit: &str,
    local: i64,
    offset_s: Option<i32>,
    ty: SqlType,
) -> SqlResult<BigDecimal> {
    let (number, us) = calendar::split(local);
    let (day, time) = (Day::of_number(number), TimeOfDay::of_us(us));
    // There is no year 0.
    let year = if day.year > 0 { day.year } else { day.year - 1 };
    let of_minute = i128::from(us % MINUTE_US);
    Ok(BigDecimal::from(match unit_of(unit).as_str() {
        "microseconds" => us % MINUTE_US,
        "milliseconds" => return Ok(scaled(of_minute, 3)),
        "second" => return Ok(scaled(of_minute, 6)),
        "minute" => time.minute,
        "hour" => time.hour,
        "day" => day.day,
        "month" => day.month,
        "quarter" => (day.month - 1) / 3 + 1,
        "year" => year,
        "decade" => day.year.div_euclid(10),
        "century" if day.year > 0 => (day.year + 99) / 100,
        "century" => -((100 - day.year) / 100),
        "millennium" if day.year > 0 => (day.year + 999) / 1000,
        "millennium" => -((1000 - day.year) / 1000),
        "dow" => day.day_of_week(),
        "isodow" => (day.day_of_week() + 6) % 7 + 1,
        "doy" => day.day_of_year(),
        "week" => day.iso_week().1,
        "isoyear" => match day.iso_week().0 {
            year if year > 0 => year,
            year => year - 1,
        },
        "julian" => {
            let days = scaled(i128::from(number + JULIAN_DAYS), 0);
            let fraction = numeric::divide(&BigDecimal::from(us), &BigDecimal::from(DAY_US))?;
            return numeric::add(&days, &fraction);
        }
        "epoch" => {
            let utc = i128::from(local) - i128::from(offset_s.unwrap_or(0)) * i128::from(SECOND_US);
            let since = i128::from(calendar::UNIX_DAYS) * i128::from(DAY_US);
            return Ok(scaled(utc + since, 6));
        }
        unit @ ("timezone" | "timezone_hour" | "timezone_minute") => {
            let Some(offset_s) = offset_s else { return Err(unsupported_unit(unit, ty)) };
            i64::from(match unit {
                "timezone" => offset_s,
                "timezone_hour" => offset_s / 3600,
                _ => offset_s / 60 % 60,
            })
        }
        _ => return Err(unknown_unit(unit, ty)),
    }))
}

/// A part of a date: those of its time are not to be had.
fn date_part(unit: &str, days: i32, ty: SqlType) -> SqlResult<BigDecimal> {
    match unit_of(unit).as_str() {
        found @ ("microseconds" | "milliseconds" | "second" | "minute" | "hour") => {
            Err(unsupported_unit(found, ty))
        }
        "epoch" => Ok(BigDecimal::from((i64::from(days) + calendar::UNIX_DAYS) * 86_400)),
        "julian" => Ok(BigDecimal::from(i64::from(days) + JULIAN_DAYS)),
        _ => {
            let us = i128::from(days) * i128::from(DAY_US);
            moment_part(unit, calendar::checked_timestamp(us)?, None, ty)
        }
    }
}

fn time_part(unit: &str, us: i64, ty: SqlType) -> SqlResult<BigDecimal> {
    match unit_of(unit).as_str() {
        "epoch" => Ok(scaled(i128::from(us), 6)),
        "hour" => Ok(BigDecimal::from(us / HOUR_US)),
        "microseconds" | "milliseconds" | "second" | "minute" => moment_part(unit, us, None, ty),
        "day" | "month" | "year" | "week" | "quarter" | "decade" | "century" | "millennium"
        | "dow" | "isodow" | "doy" | "isoyear" | "julian" | "timezone" | "timezone_hour"
        | "timezone_minute" => Err(unsupported_unit(&unit_of(unit), ty)),
        _ => Err(unknown_unit(unit, ty)),
    }
}

fn interval_part(unit: &str, value: Interval, ty: SqlType) -> SqlResult<BigDecimal> {
    let us = value.microseconds;
    let years = i64::from(value.months / 12);
    Ok(BigDecimal::from(match unit_of(unit).as_str() {
        "microseconds" => us % MINUTE_US,
        "milliseconds" => return Ok(scaled(i128::from(us % MINUTE_US), 3)),
        "second" => return Ok(scaled(i128::from(us % MINUTE_US), 6)),
        "minute" => us / MINUTE_US % 60,
        "hour" => us / HOUR_US,
        "day" => i64::from(value.days),
        "month" => i64::from(value.months % 12),
        "quarter" => i64::from(value.months % 12 / 3) + 1,
        "year" => years,
        "decade" => years / 10,
        "century" => years / 100,
        "millennium" => years / 1000,
        "epoch" => {
            // A year has 365.25 days here, a month that is left 30.
            let days = i128::from(value.months % 12) * 30 + i128::from(value.days);
            let quarters = i128::from(years) * 1461 + days * 4;
            return Ok(scaled(quarters * i128::from(DAY_US / 4) + i128::from(us), 6));
        }
        found @ ("week" | "dow" | "isodow" | "doy" | "isoyear" | "julian" | "timezone") => {
            return Err(unsupported_unit(found, ty));
        }
        _ => return Err(unknown_unit(unit, ty)),
    }))
}

/// `extract`: a part of a value as `numeric`.
fn extract(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let (unit, ty) = (text(values, 0)?, types.argument(1));
    let part = match argument(values, 1) {
        Datum::Timestamp(us) if !calendar::is_finite(*us) => return infinite_part(unit, *us > 0),
        Datum::Date(days) if matches!(*days, i32::MIN | i32::MAX) => {
            return infinite_part(unit, *days > 0);
        }
        Datum::Timestamp(us) if ty.scalar == Scalar::TimestampTz => {
            let offset_s = context.settings.time_zone.offset_s;
            moment_part(unit, calendar::shift(*us, offset_s)?, Some(offset_s), ty)
        }
        Datum::Timestamp(us) => moment_part(unit, *us, None, ty),
        Datum::Date(days) => date_part(unit, *days, ty),
        Datum::Time(us) => time_part(unit, *us, ty),
        Datum::Interval(value) => interval_part(unit, *value, ty),
        _ => return Err(SqlError::internal("a part of what has none")),
    };
    part.map(numeric::datum)
}

/// Parts that grow with time are infinite, which a `numeric` of ours cannot be; others are NULL.
fn infinite_part(unit: &str, _is_positive: bool) -> SqlResult<Datum> {
    match unit_of(unit).as_str() {
        "year" | "decade" | "century" | "millennium" | "isoyear" | "julian" | "epoch" => {
            Err(SqlError::unsupported("an infinite numeric"))
        }
        _ => Ok(Datum::Null),
    }
}

/// `date_part`: the same as a float.
fn part(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    use bigdecimal::ToPrimitive;
    Ok(match extract(types, values, context)? {
        Datum::Numeric(Some(value)) => Datum::F64(value.to_f64().unwrap_or(f64::NAN)),
        other => other,
    })
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
        // Days are borrowed from the month of the earlier moment, or of the later if it is turned.
        let month = if sign > 0 { early } else { late };
        days += calendar::days_of_month(month.year, month.month);
        months -= 1;
    }
    let part =
        |value: i64| i32::try_from(value * sign).map_err(|_| calendar::interval_out_of_range());
    Ok(Interval { months: part(months)?, days: part(days)?, microseconds: us * sign })
}

/// The offset of a zone that a call names.
fn zone(values: &[Datum], at: usize) -> SqlResult<i32> {
    match argument(values, at) {
        Datum::Interval(value) => i32::try_from(value.microseconds / SECOND_US)
            .ok()
            .filter(|_| value.months == 0 && value.days == 0)
            .ok_or_else(|| {
                SqlError::new(
                    SqlState::INVALID_PARAMETER,
                    "interval time zone must not include months or days",
                )
            }),
        _ => TimeZone::parse(text(values, at)?).map(|zone| zone.offset_s),
    }
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
    if hours && all_days > 0 && us < 0 {
        (all_days, us) = (all_days - 1, us + DAY_US);
    } else if hours && all_days < 0 && us > 0 {
        (all_days, us) = (all_days + 1, us - DAY_US);
    }
    if days && months > 0 && all_days < 0 {
        (months, all_days) = (months - 1, all_days + 30);
    } else if days && months < 0 && all_days > 0 {
        (months, all_days) = (months + 1, all_days - 30);
    }
    Ok(Interval {
        months: i32::try_from(months).map_err(failed)?,
        days: i32::try_from(all_days).map_err(failed)?,
        microseconds: us,
    })
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for (signature, float_signature) in [
        ("text timestamp -> numeric", "text timestamp -> float8"),
        ("stable text timestamptz -> numeric", "stable text timestamptz -> float8"),
        ("text date -> numeric", "text date -> float8"),
        ("text time -> numeric", "text time -> float8"),
        ("text interval -> numeric", "text interval -> float8"),
    ] {
        table.add_typed("extract", signature, extract);
        table.add_typed("date_part", float_signature, part);
    }
    table.add("date_trunc", "text timestamp -> timestamp", |v, _| {
        truncated(text(v, 0)?, moment(v, 1)?, SqlType::TIMESTAMP).map(Datum::Timestamp)
    });
    table.add("date_trunc", "stable text timestamptz -> timestamptz", |v, context| {
        let offset_s = context.settings.time_zone.offset_s;
        let local = calendar::shift(moment(v, 1)?, offset_s)?;
        let cut = truncated(text(v, 0)?, local, SqlType::TIMESTAMPTZ)?;
        calendar::shift(cut, -offset_s).map(Datum::Timestamp)
    });
    table.add("date_trunc", "text timestamptz text -> timestamptz", |v, _| {
        let offset_s = zone(v, 2)?;
        let local = calendar::shift(moment(v, 1)?, offset_s)?;
        let cut = truncated(text(v, 0)?, local, SqlType::TIMESTAMPTZ)?;
        calendar::shift(cut, -offset_s).map(Datum::Timestamp)
    });
    table.add("date_trunc", "text interval -> interval", |v, _| {
        truncated_interval(text(v, 0)?, interval(v, 1)?).map(Datum::Interval)
    });
    table.add("age", "timestamp timestamp -> interval", |v, _| {
        age(moment(v, 0)?, moment(v, 1)?).map(Datum::Interval)
    });
    table.add("age", "stable timestamptz timestamptz -> interval", |v, context| {
        let offset_s = context.settings.time_zone.offset_s;
        let local = |at| calendar::shift(moment(v, at)?, offset_s);
        age(local(0)?, local(1)?).map(Datum::Interval)
    });
    for signature in ["stable timestamp -> interval", "stable timestamptz -> interval"] {
        table.add_typed("age", signature, |types, v, context| {
            let offset_s = context.settings.time_zone.offset_s;
            let now = calendar::shift(context.transaction_start, offset_s)?;
            let has_zone = types.argument(0).scalar == Scalar::TimestampTz;
            let then = calendar::shift(moment(v, 0)?, if has_zone { offset_s } else { 0 })?;
            age(calendar::split(now).0 * DAY_US, then).map(Datum::Interval)
        });
    }
    for signature in ["text timestamp -> timestamptz", "interval timestamp -> timestamptz"] {
        table.add("timezone", signature, |v, _| {
            calendar::shift(moment(v, 1)?, -zone(v, 0)?).map(Datum::Timestamp)
        });
    }
    for signature in ["text timestamptz -> timestamp", "interval timestamptz -> timestamp"] {
        table.add("timezone", signature, |v, _| {
            calendar::shift(moment(v, 1)?, zone(v, 0)?).map(Datum::Timestamp)
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
        |v, context| {
            let local = make_timestamp(v)?;
            calendar::shift(local, -context.settings.time_zone.offset_s).map(Datum::Timestamp)
        },
    );
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
