//! Periods of time: `date_bin`, which tells in which of equal ones a moment is, and `OVERLAPS`.

use std::cmp::Ordering;

use selkie_txn::Interval;

use super::CallContext;
use super::arguments::{argument, interval, moment};
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::calendar::{self, DAY_US};
use crate::types::{Datum, Scalar, SqlType};

/// The beginning of the period in which a moment is, of those of one length that begin at an
/// origin.
fn bin(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (stride, at, origin) = (interval(values, 0)?, moment(values, 1)?, moment(values, 2)?);
    if !calendar::is_finite(at) {
        return Ok(Datum::Timestamp(at));
    }
    let out_of_range = |what| SqlError::new(SqlState::DATETIME_OVERFLOW, what);
    if !calendar::is_finite(origin) {
        return Err(out_of_range("origin out of range"));
    }
    let Interval { months, days, microseconds } = stride;
    if months != 0 {
        let what = "timestamps cannot be binned into intervals containing months or years";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, what));
    }
    let stride = i128::from(days) * i128::from(DAY_US) + i128::from(microseconds);
    if i64::try_from(stride).is_err() {
        return Err(out_of_range("interval out of range"));
    }
    if stride <= 0 {
        return Err(out_of_range("stride must be greater than zero"));
    }
    let (at, origin) = (i128::from(at), i128::from(origin));
    let whole = (at - origin).div_euclid(stride) * stride;
    calendar::checked_timestamp(origin + whole).map(Datum::Timestamp)
}

/// A moment or time as it is compared.
fn at(values: &[Datum], at: usize) -> SqlResult<Option<i64>> {
    if argument(values, at).is_null() { Ok(None) } else { moment(values, at).map(Some) }
}

/// Both ends of a period that is given by them, or by its beginning and its length.
fn ends(
    types: &Types,
    values: &[Datum],
    first: usize,
    context: &CallContext<'_>,
) -> SqlResult<(Option<i64>, Option<i64>)> {
    let start = at(values, first)?;
    if types.argument(first + 1) != SqlType::INTERVAL {
        return Ok((start, at(values, first + 1)?));
    }
    let (Some(from), false) = (start, argument(values, first + 1).is_null()) else {
        return Ok((start, None));
    };
    let length = interval(values, first + 1)?;
    let end = match types.argument(first).scalar {
        Scalar::Time => from.saturating_add(length.microseconds).rem_euclid(DAY_US),
        Scalar::TimestampTz => context.settings.time_zone.add_interval(from, length)?,
        _ => calendar::add_interval(from, length)?,
    };
    Ok((start, Some(end)))
}

/// The earlier end, if either is known, and the later one if both are.
fn ordered((one, other): (Option<i64>, Option<i64>)) -> Option<(i64, Option<i64>)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.min(other), Some(one.max(other)))),
        (one, other) => one.or(other).map(|only| (only, None)),
    }
}

/// Whether two periods have a moment in common; NULL if what is not known decides.
fn overlaps(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let (one, other) = (ends(types, values, 0, context)?, ends(types, values, 2, context)?);
    let (Some(one), Some(other)) = (ordered(one), ordered(other)) else { return Ok(Datum::Null) };
    let known = |value: bool| Ok(Datum::Bool(value));
    // A period that begins later has to begin before the end of the other.
    let (early, late) = match one.0.cmp(&other.0) {
        Ordering::Equal if one.1.is_some() && other.1.is_some() => return known(true),
        Ordering::Equal => return Ok(Datum::Null),
        Ordering::Less => (one, other),
        Ordering::Greater => (other, one),
    };
    match (early.1, late.1) {
        (None, _) => Ok(Datum::Null),
        (Some(end), _) if late.0 < end => known(true),
        (Some(_), None) => Ok(Datum::Null),
        (Some(_), Some(_)) => known(false),
    }
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    table.add("date_bin", "interval timestamp timestamp -> timestamp", bin);
    table.add("date_bin", "interval timestamptz timestamptz -> timestamptz", bin);
    for signature in [
        "lax timestamp timestamp timestamp timestamp -> bool",
        "lax timestamp interval timestamp interval -> bool",
        "lax timestamp timestamp timestamp interval -> bool",
        "lax timestamp interval timestamp timestamp -> bool",
        "lax timestamptz timestamptz timestamptz timestamptz -> bool",
        "lax stable timestamptz interval timestamptz interval -> bool",
        "lax stable timestamptz timestamptz timestamptz interval -> bool",
        "lax stable timestamptz interval timestamptz timestamptz -> bool",
        "lax time time time time -> bool",
        "lax time interval time interval -> bool",
        "lax time time time interval -> bool",
        "lax time interval time time -> bool",
    ] {
        table.add_typed("overlaps", signature, overlaps);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::call;

    #[test]
    fn periods_overlap_as_in_postgresql() {
        let at = |text: &str| match text {
            "NULL" => "timestamp:NULL".to_owned(),
            day => format!("timestamp:2001-01-{day}"),
        };
        for (ends, result) in [
            (["01", "05", "04", "09"], "t"),
            (["05", "01", "04", "09"], "t"),
            (["01", "05", "05", "09"], "f"),
            (["05", "05", "05", "05"], "t"),
            (["01", "NULL", "01", "02"], "NULL"),
            (["01", "NULL", "02", "03"], "NULL"),
            (["03", "NULL", "01", "02"], "NULL"),
            (["01", "05", "02", "NULL"], "t"),
            (["NULL", "NULL", "01", "02"], "NULL"),
        ] {
            let given = ends.map(at);
            let given: Vec<&str> = given.iter().map(String::as_str).collect();
            assert_eq!(call("overlaps", &given).unwrap(), result, "{ends:?}");
        }
    }
}
