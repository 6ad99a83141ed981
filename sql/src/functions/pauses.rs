//! `pg_sleep` and its kin: they wait, which expressions cannot, so they are called as functions
//! that give a row.

use std::sync::Arc;
use std::time::Duration;

use super::CallContext;
use super::arguments::{float, interval, moment};
use super::resolve::undefined_function;
use super::rows::{ResolvedRows, RowIterator};
use crate::error::SqlResult;
use crate::types::cast::{CastContext, can_cast};
use crate::types::{Datum, SqlType, calendar};

/// How long a call waits, of its arguments.
pub type PauseOf = fn(&[Datum], &CallContext<'_>) -> SqlResult<Duration>;

/// Most seconds that a call waits: some 30 years.
const MAX_SECONDS: f64 = 1e9;

fn of_seconds(seconds: f64) -> Duration {
    // NaN waits for nothing.
    Duration::try_from_secs_f64(seconds.clamp(0.0, MAX_SECONDS)).unwrap_or_default()
}

fn of_microseconds(us: i64) -> Duration {
    of_seconds(us as f64 / 1e6)
}

fn for_interval(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Duration> {
    let end = calendar::add_interval(context.now, interval(values, 0)?)?;
    Ok(of_microseconds(end.saturating_sub(context.now)))
}

/// The function of a name that waits, if it is one; `None` if it is none.
///
/// # Errors
/// It does not take such arguments.
pub(crate) fn resolve_pause(name: &str, given: &[SqlType]) -> SqlResult<Option<ResolvedRows>> {
    let (takes, pause): (SqlType, PauseOf) = match name {
        "pg_sleep" => (SqlType::FLOAT8, |values, _| float(values, 0).map(of_seconds)),
        "pg_sleep_for" => (SqlType::INTERVAL, for_interval),
        "pg_sleep_until" => (SqlType::TIMESTAMPTZ, |values, context| {
            moment(values, 0).map(|end| of_microseconds(end.saturating_sub(context.now)))
        }),
        _ => return Ok(None),
    };
    match given {
        [own] if *own == SqlType::UNKNOWN || can_cast(*own, takes, CastContext::Implicit) => {}
        _ => return Err(undefined_function(name, given)),
    }
    let rows = |_: &[Datum], _: &CallContext<'_>| {
        let row = vec![Datum::text("")];
        Ok(Box::new(std::iter::once(Ok(row))) as RowIterator)
    };
    Ok(Some(ResolvedRows {
        arguments: vec![takes],
        columns: vec![(name.to_owned(), SqlType::VOID)],
        rows: Arc::new(rows),
        pause: Some(pause),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_seconds_is_too_much() {
        for (seconds, waits) in [(0.5, 0.5), (-1.0, 0.0), (f64::NAN, 0.0), (f64::INFINITY, 1e9)] {
            assert_eq!(of_seconds(seconds).as_secs_f64(), waits, "{seconds}");
        }
        assert!(resolve_pause("pg_sleep", &[SqlType::INT4]).unwrap().is_some());
        assert!(resolve_pause("pg_sleep", &[SqlType::BOOL]).is_err());
        assert!(resolve_pause("pg_wake", &[SqlType::INT4]).unwrap().is_none());
    }
}
