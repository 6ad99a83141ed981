//! What bounds a key for a condition that is no comparison of it. These functions have no name in
//! SQL: plans call them.

use std::sync::Arc;

use super::{CallContext, Eval, Resolved, Volatility};
use crate::error::SqlResult;
use crate::types::cast::{self, CastContext};
use crate::types::{Datum, Scalar, SqlType, calendar};

const DAY_US: i64 = 86_400_000_000;

/// What a pattern of LIKE says of the texts that are like it.
pub(crate) struct LikeParts {
    /// What they begin with.
    pub(crate) start: String,
    /// Whether they are that and nothing more.
    pub(crate) is_whole: bool,
    /// The least text above all that begin so; `None` if there is none.
    pub(crate) end: Option<String>,
}

/// What a pattern whose escape is a backslash says.
pub(crate) fn like_parts_of_key(pattern: &str) -> LikeParts {
    let (mut start, mut is_whole) = (String::new(), true);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '%' | '_' => {
                is_whole = false;
                break;
            }
            '\\' => match chars.next() {
                Some(c) => start.push(c),
                // Such a pattern is an error for each text that gets as far.
                None => {
                    is_whole = false;
                    break;
                }
            },
            c => start.push(c),
        }
    }
    let end = text_after(&start);
    LikeParts { start, is_whole, end }
}

/// The least text above all that begin with `start`, in the order of their bytes, which is that of
/// their characters.
fn text_after(start: &str) -> Option<String> {
    let mut end = start.to_owned();
    while let Some(last) = end.pop() {
        let mut after = u32::from(last).saturating_add(1)..=u32::from(char::MAX);
        // There are no characters among the surrogates.
        if let Some(next) = after.find_map(char::from_u32) {
            end.push(next);
            return Some(end);
        }
    }
    None
}

fn resolved(name: &str, argument: SqlType, returns: SqlType, eval: Eval) -> Resolved {
    Resolved {
        name: name.into(),
        arguments: vec![argument],
        returns,
        is_strict: true,
        volatility: Volatility::Stable,
        eval,
    }
}

fn of_pattern(name: &str, part: fn(LikeParts) -> Option<String>) -> Resolved {
    let eval = move |values: &[Datum], _: &CallContext<'_>| {
        let Some(Datum::Text(pattern)) = values.first() else { return Ok(Datum::Null) };
        Ok(part(like_parts_of_key(pattern)).map_or(Datum::Null, Datum::text))
    };
    resolved(name, SqlType::TEXT, SqlType::TEXT, Arc::new(eval))
}

/// What the texts begin with that are like a pattern.
pub(crate) fn like_start() -> Resolved {
    of_pattern("like_start", |parts| Some(parts.start))
}

/// The least text above all that begin so; NULL if there is none.
pub(crate) fn like_end() -> Resolved {
    of_pattern("like_end", |parts| parts.end)
}

/// The least value of `to`, a date or a timestamp, that may be at or behind a moment, or the
/// greatest that may be at or before it; NULL if it cannot be told.
pub(crate) fn moment_bound(from: SqlType, to: SqlType, is_low: bool) -> Resolved {
    let eval = move |values: &[Datum], context: &CallContext<'_>| {
        let moment = values.first().cloned().unwrap_or(Datum::Null);
        bound_of_moment(moment, from, to, is_low, context)
    };
    let name = if is_low { "moment_low" } else { "moment_high" };
    resolved(name, from, to, Arc::new(eval))
}

fn bound_of_moment(
    moment: Datum,
    from: SqlType,
    to: SqlType,
    is_low: bool,
    context: &CallContext<'_>,
) -> SqlResult<Datum> {
    let Datum::Timestamp(us) = moment else { return Ok(Datum::Null) };
    let (local, spare) = match from.scalar {
        Scalar::TimestampTz => match local_time(us, context) {
            Some(found) => found,
            None => return Ok(Datum::Null),
        },
        _ => (us, 0),
    };
    let is_date = to.scalar == Scalar::Date;
    if !calendar::is_finite(local) {
        let end = if local < 0 { i32::MIN } else { i32::MAX };
        return Ok(if is_date { Datum::Date(end) } else { Datum::Timestamp(local) });
    }
    let bound = local.saturating_add(if is_low { -spare } else { spare });
    if !is_date {
        return Ok(Datum::Timestamp(bound));
    }
    Ok(i32::try_from(bound.div_euclid(DAY_US)).map_or(Datum::Null, Datum::Date))
}

/// The time of a moment in the zone of the session, and how far behind or before it times may be
/// that stand for earlier or later moments: where the zone changes its offset nearby, a part of a
/// day may be left out or come twice. `None` if the moment is beyond the local times.
fn local_time(us: i64, context: &CallContext<'_>) -> Option<(i64, i64)> {
    let local_of = |us: i64| {
        let (zoned, local) = (SqlType::TIMESTAMPTZ, SqlType::TIMESTAMP);
        let moment = Datum::Timestamp(us);
        match cast::cast(moment, zoned, local, CastContext::Explicit, context.settings) {
            Ok(Datum::Timestamp(local)) => Some(local),
            _ => None,
        }
    };
    let local = local_of(us)?;
    if !calendar::is_finite(us) {
        return Some((local, 0));
    }
    let is_steady = [-DAY_US, DAY_US].into_iter().all(|day| {
        let other = us.checked_add(day).and_then(local_of);
        other.is_some_and(|other| local.checked_add(day) == Some(other))
    });
    Some((local, if is_steady { 0 } else { DAY_US }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_like_a_pattern_are_within_its_bounds() {
        for (pattern, start, is_whole, end) in [
            ("abc%", "abc", false, Some("abd")),
            ("abc", "abc", true, Some("abd")),
            ("%abc", "", false, None),
            ("", "", true, None),
            ("a_c", "a", false, Some("b")),
            ("a\\%b%", "a%b", false, Some("a%c")),
            ("a\\", "a", false, Some("b")),
            ("a\u{d7ff}%", "a\u{d7ff}", false, Some("a\u{e000}")),
            ("a\u{10ffff}\u{10ffff}%", "a\u{10ffff}\u{10ffff}", false, Some("b")),
            ("\u{10ffff}%", "\u{10ffff}", false, None),
        ] {
            let parts = like_parts_of_key(pattern);
            assert_eq!(parts.start, start, "{pattern}");
            assert_eq!(parts.is_whole, is_whole, "{pattern}");
            assert_eq!(parts.end.as_deref(), end, "{pattern}");
        }
    }
}
