//! Arguments of calls: the caller has cast them, so another type is an error of ours.

use std::sync::Arc;

use bigdecimal::BigDecimal;
use selkie_txn::Interval;

use crate::error::{SqlError, SqlResult};
use crate::types::{Array, Datum};

static NULL: Datum = Datum::Null;

fn wrong(at: usize, wanted: &str) -> SqlError {
    SqlError::internal(format!("argument {} of a function is not {wanted}", at + 1))
}

/// An argument; NULL if it is not given.
pub(super) fn argument(arguments: &[Datum], at: usize) -> &Datum {
    arguments.get(at).unwrap_or(&NULL)
}

/// A whole number of any width.
pub(super) fn whole(arguments: &[Datum], at: usize) -> SqlResult<i64> {
    match argument(arguments, at) {
        Datum::I16(value) => Ok(i64::from(*value)),
        Datum::I32(value) => Ok(i64::from(*value)),
        Datum::I64(value) => Ok(*value),
        _ => Err(wrong(at, "a whole number")),
    }
}

/// A number as a float.
pub(super) fn float(arguments: &[Datum], at: usize) -> SqlResult<f64> {
    match argument(arguments, at) {
        Datum::F32(value) => Ok(f64::from(*value)),
        Datum::F64(value) => Ok(*value),
        _ => Err(wrong(at, "a float")),
    }
}

/// A `numeric`; `None` is NaN.
pub(super) fn number(arguments: &[Datum], at: usize) -> SqlResult<Option<&BigDecimal>> {
    match argument(arguments, at) {
        Datum::Numeric(value) => Ok(value.as_deref()),
        _ => Err(wrong(at, "numeric")),
    }
}

/// A text.
pub(super) fn text(arguments: &[Datum], at: usize) -> SqlResult<&str> {
    match argument(arguments, at) {
        Datum::Text(value) | Datum::Json(value) => Ok(value),
        _ => Err(wrong(at, "a text")),
    }
}

/// A `bytea`.
pub(super) fn bytes(arguments: &[Datum], at: usize) -> SqlResult<&[u8]> {
    match argument(arguments, at) {
        Datum::Bytes(value) => Ok(value),
        _ => Err(wrong(at, "bytea")),
    }
}

/// A `boolean`.
pub(super) fn boolean(arguments: &[Datum], at: usize) -> SqlResult<bool> {
    match argument(arguments, at) {
        Datum::Bool(value) => Ok(*value),
        _ => Err(wrong(at, "a boolean")),
    }
}

/// A date.
pub(super) fn date(arguments: &[Datum], at: usize) -> SqlResult<i32> {
    match argument(arguments, at) {
        Datum::Date(value) => Ok(*value),
        _ => Err(wrong(at, "a date")),
    }
}

/// The microseconds of a time or a timestamp.
pub(super) fn moment(arguments: &[Datum], at: usize) -> SqlResult<i64> {
    match argument(arguments, at) {
        Datum::Time(value) | Datum::Timestamp(value) => Ok(*value),
        _ => Err(wrong(at, "a time")),
    }
}

/// An interval.
pub(super) fn interval(arguments: &[Datum], at: usize) -> SqlResult<Interval> {
    match argument(arguments, at) {
        Datum::Interval(value) => Ok(*value),
        _ => Err(wrong(at, "an interval")),
    }
}

/// An array.
pub(super) fn array(arguments: &[Datum], at: usize) -> SqlResult<&Arc<Array>> {
    match argument(arguments, at) {
        Datum::Array(value) => Ok(value),
        _ => Err(wrong(at, "an array")),
    }
}
