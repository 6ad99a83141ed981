//! Which match of a regular expression, and from where on: `regexp_instr`, `regexp_substr`,
//! `regexp_count`, and `regexp_replace` with a number.

use regex::{Captures, Regex};

use super::CallContext;
use super::arguments::{text, whole};
use super::patterns::{after_match, compile_for, expand};
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

fn invalid(name: &str, value: i64) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": {value}");
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

/// A number that is given at a position, or else `missing`; at least `least`.
fn parameter(
    values: &[Datum],
    at: usize,
    name: &str,
    (least, missing): (i64, i64),
) -> SqlResult<usize> {
    let value = if values.len() > at { whole(values, at)? } else { missing };
    if value < least {
        return Err(invalid(name, value));
    }
    Ok(usize::try_from(value).unwrap_or(usize::MAX))
}

/// The options at a position. All of these functions find all matches by themselves.
fn options<'a>(values: &'a [Datum], at: usize, function: &str) -> SqlResult<&'a str> {
    let flags = if values.len() > at { text(values, at)? } else { "" };
    if flags.contains('g') {
        let message = format!("{function} does not support the \"global\" option");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    Ok(flags)
}

/// Where the character with this number, from 1, begins.
fn byte_of(value: &str, character: usize) -> usize {
    value.char_indices().nth(character.saturating_sub(1)).map_or(value.len(), |(at, _)| at)
}

/// The matches from the character with a number on. Behind a match of nothing the next is looked
/// for a character later, and behind others where they end.
fn matches_from<'t>(
    regex: &Regex,
    value: &'t str,
    character: usize,
) -> impl Iterator<Item = Captures<'t>> {
    let mut next = Some(byte_of(value, character));
    std::iter::from_fn(move || {
        let found = regex.captures_at(value, next?);
        next = found.as_ref().and_then(|found| found.get(0)).and_then(|found| {
            if !found.is_empty() {
                return Some(found.end());
            }
            let skipped = value.get(found.end()..)?.chars().next()?;
            Some(found.end() + skipped.len_utf8())
        });
        found
    })
}

/// The match with a number, from 1.
fn nth<'t>(
    regex: &Regex,
    value: &'t str,
    (from, number): (usize, usize),
    context: &CallContext<'_>,
) -> SqlResult<Option<Captures<'t>>> {
    for (found, at) in matches_from(regex, value, from).zip(1..) {
        if at >= number {
            return Ok(Some(found));
        }
        after_match(value, found.get(0), context)?;
    }
    Ok(None)
}

fn instr(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let start = parameter(values, 2, "start", (1, 1))?;
    let number = parameter(values, 3, "n", (1, 1))?;
    let end = parameter(values, 4, "endoption", (0, 0))?;
    if end > 1 {
        return Err(invalid("endoption", whole(values, 4)?));
    }
    let flags = options(values, 5, "regexp_instr()")?;
    let group = parameter(values, 6, "subexpr", (0, 0))?;
    let value = text(values, 0)?;
    let regex = compile_for(text(values, 1)?, flags, value, context)?;
    let found = nth(&regex, value, (start, number), context)?;
    let Some(part) = found.as_ref().and_then(|found| found.get(group)) else {
        return Ok(Datum::I32(0));
    };
    let at = if end == 1 { part.end() } else { part.start() };
    let before = value.get(..at).map_or(0, |before| before.chars().count());
    Ok(Datum::I32(i32::try_from(before + 1).unwrap_or(i32::MAX)))
}

fn substr(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let start = parameter(values, 2, "start", (1, 1))?;
    let number = parameter(values, 3, "n", (1, 1))?;
    let flags = options(values, 4, "regexp_substr()")?;
    let group = parameter(values, 5, "subexpr", (0, 0))?;
    let value = text(values, 0)?;
    let regex = compile_for(text(values, 1)?, flags, value, context)?;
    let found = nth(&regex, value, (start, number), context)?;
    let part = found.as_ref().and_then(|found| found.get(group));
    Ok(part.map_or(Datum::Null, |part| Datum::text(part.as_str())))
}

fn count(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let start = parameter(values, 2, "start", (1, 1))?;
    let flags = options(values, 3, "regexp_count()")?;
    let value = text(values, 0)?;
    let regex = compile_for(text(values, 1)?, flags, value, context)?;
    let mut count = 0;
    for found in matches_from(&regex, value, start) {
        after_match(value, found.get(0), context)?;
        count += 1;
    }
    Ok(Datum::I32(count))
}

/// A text with the match of a number replaced, or all of them where that is 0.
fn replace(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let start = parameter(values, 3, "start", (1, 1))?;
    let number = parameter(values, 4, "n", (0, 1))?;
    let flags = if values.len() > 5 { text(values, 5)? } else { "" };
    // Without a number the options say whether all are meant.
    let is_all = if values.len() > 4 { number == 0 } else { flags.contains('g') };
    let (value, replacement) = (text(values, 0)?, text(values, 2)?);
    let regex = compile_for(text(values, 1)?, flags, value, context)?;
    let (mut out, mut copied, mut seen) = (String::new(), 0, 0);
    for captures in matches_from(&regex, value, start) {
        let Some(found) = captures.get(0) else { continue };
        after_match(value, Some(found), context)?;
        seen += 1;
        if is_all || seen == number {
            out.push_str(value.get(copied..found.start()).unwrap_or_default());
            expand(replacement, &captures, &mut out)?;
            copied = found.end();
        }
        if !is_all && seen >= number {
            break;
        }
    }
    out.push_str(value.get(copied..).unwrap_or_default());
    Ok(Datum::text(out))
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for signature in [
        "text text -> int4",
        "text text int4 -> int4",
        "text text int4 int4 -> int4",
        "text text int4 int4 int4 -> int4",
        "text text int4 int4 int4 text -> int4",
        "text text int4 int4 int4 text int4 -> int4",
    ] {
        table.add("regexp_instr", signature, instr);
    }
    for signature in [
        "text text -> text",
        "text text int4 -> text",
        "text text int4 int4 -> text",
        "text text int4 int4 text -> text",
        "text text int4 int4 text int4 -> text",
    ] {
        table.add("regexp_substr", signature, substr);
    }
    for signature in ["text text -> int4", "text text int4 -> int4", "text text int4 text -> int4"]
    {
        table.add("regexp_count", signature, count);
    }
    for signature in [
        "text text text int4 -> text",
        "text text text int4 int4 -> text",
        "text text text int4 int4 text -> text",
    ] {
        table.add("regexp_replace", signature, replace);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::call;
    use crate::error::SqlState;

    #[test]
    fn matches_are_counted_from_a_place() {
        for (name, arguments, result) in [
            ("regexp_instr", &["foobar", "o"][..], "2"),
            ("regexp_instr", &["foobar", "o", "int4:3"], "3"),
            ("regexp_instr", &["foobar", "o", "int4:1", "int4:2", "int4:1"], "4"),
            ("regexp_instr", &["äöäö", "ö", "int4:1", "int4:2"], "4"),
            ("regexp_instr", &["foobar", "x"], "0"),
            ("regexp_substr", &["foobar", "(o)(b)", "int4:1", "int4:1", "", "int4:2"], "b"),
            ("regexp_substr", &["foobar", "o", "int4:1", "int4:3"], "NULL"),
            ("regexp_count", &["foobar", "O", "int4:1", "i"], "2"),
            ("regexp_count", &["foobar", "o", "int4:3"], "1"),
            ("regexp_count", &["abc", ""], "4"),
            ("regexp_count", &["aaa", "aa", "int4:2"], "1"),
            ("regexp_count", &["aaa", "^a", "int4:2"], "0"),
            ("regexp_instr", &["abc", "b*", "int4:1", "int4:3"], "3"),
            ("regexp_replace", &["abc", "b*", "x", "int4:1", "int4:0"], "xaxxcx"),
            ("regexp_replace", &["foobar", "o", "x", "int4:1", "int4:2"], "foxbar"),
            ("regexp_replace", &["foobar", "o", "x", "int4:4"], "foobar"),
            ("regexp_replace", &["foobar", "O", "<\\&>", "int4:1", "int4:0", "i"], "f<o><o>bar"),
        ] {
            assert_eq!(call(name, arguments).unwrap(), result, "{name} of {arguments:?}");
        }
        let refused = call("regexp_count", &["foobar", "o", "int4:0"]).unwrap_err();
        assert_eq!(refused.state(), SqlState::INVALID_PARAMETER);
    }
}
