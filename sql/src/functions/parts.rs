//! Parts of dates, times and intervals: `extract` and `date_part`.

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, ToPrimitive};
use selkie_txn::Interval;

use super::CallContext;
use super::arguments::{argument, text};
use super::moments::{HOUR_US, MINUTE_US, unit_of, unknown_unit};
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::calendar::{self, DAY_US, Day, SECOND_US, TimeOfDay};
use crate::types::{Datum, Scalar, SqlType, numeric};

/// Days from the Julian day 0 to 2000-01-01.
const JULIAN_DAYS: i64 = 2_451_545;

pub(super) fn unsupported_unit(unit: &str, ty: SqlType) -> SqlError {
    let ty = ty.plain().name();
    SqlError::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("unit \"{unit}\" not supported for type {ty}"),
    )
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
        // A `numeric` of ours cannot be infinite.
        value if infinite(value).is_some() && is_growing(unit) => {
            return Err(SqlError::unsupported("an infinite numeric"));
        }
        value if infinite(value).is_some() => return recurring_part(unit, ty),
        Datum::Timestamp(us) if ty.scalar == Scalar::TimestampTz => {
            let offset_s = context.settings.time_zone.offset_at(*us);
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

/// The infinity that a moment or date is, if it is one.
fn infinite(value: &Datum) -> Option<f64> {
    let is_late = match value {
        Datum::Timestamp(us) if !calendar::is_finite(*us) => *us > 0,
        Datum::Date(days) if matches!(*days, i32::MIN | i32::MAX) => *days > 0,
        _ => return None,
    };
    Some(if is_late { f64::INFINITY } else { f64::NEG_INFINITY })
}

/// Whether a part grows with time, and does not come again.
fn is_growing(unit: &str) -> bool {
    matches!(
        unit_of(unit).as_str(),
        "year" | "decade" | "century" | "millennium" | "isoyear" | "julian" | "epoch"
    )
}

/// The part of an infinite moment that does not grow: NULL, if there is such a part.
fn recurring_part(unit: &str, ty: SqlType) -> SqlResult<Datum> {
    match unit_of(unit).as_str() {
        "microseconds" | "milliseconds" | "second" | "minute" | "hour" | "day" | "month"
        | "quarter" | "week" | "dow" | "isodow" | "doy" | "timezone" | "timezone_hour"
        | "timezone_minute" => Ok(Datum::Null),
        _ => Err(unknown_unit(unit, ty)),
    }
}

/// `date_part`: the same as a float. A date has the parts of its midnight.
fn part(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let unit = text(values, 0)?;
    if let Some(infinity) = infinite(argument(values, 1)) {
        return match is_growing(unit) {
            true => Ok(Datum::F64(infinity)),
            false => recurring_part(unit, types.argument(1)),
        };
    }
    let found = match argument(values, 1) {
        Datum::Date(days) => {
            let midnight = calendar::date_to_timestamp(*days)?;
            numeric::datum(moment_part(unit, midnight, None, SqlType::TIMESTAMP)?)
        }
        _ => extract(types, values, context)?,
    };
    Ok(match found {
        Datum::Numeric(Some(value)) => Datum::F64(value.to_f64().unwrap_or(f64::NAN)),
        other => other,
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
}
