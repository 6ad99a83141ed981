//! LIKE, SIMILAR TO and regular expressions.
//!
//! Regular expressions are those of the crate `regex`, which have no back references and no look
//! around; what PostgreSQL's advanced expressions write otherwise is translated.

use std::cell::RefCell;
use std::collections::HashMap;

use regex::{Regex, RegexBuilder};

use super::CallContext;
use super::arguments::text;
use super::arrays::text_array;
use super::like::like;
use super::signature::{Body, Table};
use super::strings::{MAX_BYTES, too_long};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;
use crate::types::limits::check_count;

/// Most compiled expressions that a thread keeps.
const MAX_CACHED: usize = 32;
/// Most bytes that a compiled expression may take.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// Most bytes of an expression. What reads it takes hundreds of times as many.
const MAX_PATTERN_BYTES: usize = 128 << 10;
/// Bytes of a text from which a search in it may take long.
const LONG_BYTES: usize = 64 << 10;
/// Most bytes of a text times those of the compiled expression: the time of a search is at worst
/// their product.
const MOST_SEARCH: usize = 1 << 41;

thread_local! {
    /// Expressions that were compiled lately: a statement uses one for each of its rows.
    static CACHE: RefCell<HashMap<(String, String), Regex>> = RefCell::new(HashMap::new());
}

/// The expression, compiled. `flags` are PostgreSQL's: `g` is not looked at.
pub(super) fn compile(pattern: &str, flags: &str) -> SqlResult<Regex> {
    if pattern.len() > MAX_PATTERN_BYTES {
        let message = "invalid regular expression: regular expression is too complex";
        return Err(SqlError::new(SqlState::INVALID_REGEX, message));
    }
    let key = (pattern.to_owned(), flags.to_owned());
    if let Some(found) = CACHE.with_borrow(|cache| cache.get(&key).cloned()) {
        return Ok(found);
    }
    let regex = build(pattern, flags, MAX_REGEX_BYTES)?;
    CACHE.with_borrow_mut(|cache| {
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(key, regex.clone());
    });
    Ok(regex)
}

/// The expression, compiled for a text. A search counts no steps and cannot be ended: others are
/// let have the thread before a long one, and one that might take minutes is refused.
pub(super) fn compile_for(
    pattern: &str,
    flags: &str,
    value: &str,
    context: &CallContext<'_>,
) -> SqlResult<Regex> {
    if value.len() < LONG_BYTES || pattern.len() > MAX_PATTERN_BYTES {
        return compile(pattern, flags);
    }
    context.interrupts.before_long()?;
    let most_bytes = MOST_SEARCH / value.len();
    if most_bytes >= MAX_REGEX_BYTES {
        return compile(pattern, flags);
    }
    // A search is short beside the time that so long a text takes.
    build(pattern, flags, most_bytes)
}

fn build(pattern: &str, flags: &str, most_bytes: usize) -> SqlResult<Regex> {
    let mut is_literal = false;
    let mut source = pattern;
    let mut options = flags.to_owned();
    // Options may stand before the expression.
    if let Some((inner, rest)) = pattern.strip_prefix("(?").and_then(|rest| rest.split_once(')'))
        && !inner.is_empty()
        && inner.bytes().all(|byte| byte.is_ascii_lowercase())
    {
        options.push_str(inner);
        source = rest;
    }
    if let Some(rest) = pattern.strip_prefix("***=") {
        is_literal = true;
        source = rest;
    } else if let Some(rest) = pattern.strip_prefix("***:") {
        source = rest;
    }
    let (mut ignores_case, mut is_multi_line, mut dot_is_all, mut is_expanded) =
        (false, false, true, false);
    for option in options.chars() {
        match option {
            'i' => ignores_case = true,
            'c' => ignores_case = false,
            'n' | 'm' => (is_multi_line, dot_is_all) = (true, false),
            'p' => dot_is_all = false,
            'w' => is_multi_line = true,
            's' => (is_multi_line, dot_is_all) = (false, true),
            'x' => is_expanded = true,
            't' => is_expanded = false,
            'q' => is_literal = true,
            'g' | 'e' | 'b' => {}
            other => {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER,
                    format!("invalid regular expression option: \"{other}\""),
                ));
            }
        }
    }
    let translated = if is_literal { regex::escape(source) } else { translate(source) };
    RegexBuilder::new(&translated)
        .case_insensitive(ignores_case)
        .multi_line(is_multi_line)
        .dot_matches_new_line(dot_is_all)
        .ignore_whitespace(is_expanded)
        .size_limit(most_bytes)
        .build()
        .map_err(|error| not_built(&error, most_bytes))
}

fn not_built(error: &regex::Error, most_bytes: usize) -> SqlError {
    if matches!(error, regex::Error::CompiledTooBig(_)) && most_bytes < MAX_REGEX_BYTES {
        let message = "regular expression is too complex for so long a text";
        return SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
    }
    let message = error.to_string();
    let reason = message.lines().last().unwrap_or_default();
    SqlError::new(
        SqlState::INVALID_REGEX,
        format!("invalid regular expression: {}", reason.trim_start_matches("error: ")),
    )
}

/// The escapes of PostgreSQL that the crate writes otherwise.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars().peekable();
    let mut in_brackets = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('m') => out.push_str("\\b{start}"),
                Some('M') => out.push_str("\\b{end}"),
                Some('y') => out.push_str("\\b"),
                Some('Y') => out.push_str("\\B"),
                Some('Z') => out.push_str("\\z"),
                Some('e') => out.push_str("\\x1b"),
                Some(next) => out.extend(['\\', next]),
                None => out.push('\\'),
            },
            '[' if in_brackets && !matches!(chars.peek(), Some(':')) => out.push_str("\\["),
            '[' if !in_brackets => {
                in_brackets = true;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                }
                // A bracket that comes first stands for itself.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            '[' => {
                // A class such as [:alpha:] up to its end.
                out.push('[');
                for inner in chars.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            ']' if in_brackets => {
                in_brackets = false;
                out.push(']');
            }
            // Set operations of the crate, which PostgreSQL does not have.
            '&' | '~' if in_brackets => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

fn like_plain(values: &[Datum], context: &CallContext<'_>) -> SqlResult<bool> {
    like(text(values, 0)?, text(values, 1)?, Some('\\'), context.interrupts)
}

fn like_folded(values: &[Datum], context: &CallContext<'_>) -> SqlResult<bool> {
    let (value, pattern) = (text(values, 0)?.to_lowercase(), text(values, 1)?.to_lowercase());
    like(&value, &pattern, Some('\\'), context.interrupts)
}

/// A pattern of SIMILAR TO as a regular expression.
fn similar(pattern: &str, escape: Option<char>) -> SqlResult<String> {
    let mut out = String::from("^(?:");
    let mut chars = pattern.chars();
    let mut in_brackets = false;
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => {
                let next = chars.next().ok_or_else(|| {
                    SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string")
                })?;
                out.push_str(&regex::escape(&next.to_string()));
            }
            _ if in_brackets => {
                in_brackets = c != ']';
                out.push(c);
            }
            '[' => {
                in_brackets = true;
                out.push(c);
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '.' | '^' | '$' | '\\' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out.push_str(")$");
    Ok(out)
}

/// The character of an ESCAPE clause: none if it is empty.
fn escape_of(values: &[Datum], at: usize) -> SqlResult<Option<char>> {
    if values.len() <= at {
        return Ok(Some('\\'));
    }
    let mut chars = text(values, at)?.chars();
    let first = chars.next();
    match chars.next() {
        None => Ok(first),
        Some(_) => Err(SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string")
            .hint("Escape string must be empty or one character.")),
    }
}

fn matches(values: &[Datum], flags: &str, context: &CallContext<'_>) -> SqlResult<bool> {
    Ok(compile_for(text(values, 1)?, flags, text(values, 0)?, context)?.is_match(text(values, 0)?))
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    let signature = "text text -> bool";
    table.add("~~", signature, |v, context| like_plain(v, context).map(Datum::Bool));
    table.add("!~~", signature, |v, context| {
        like_plain(v, context).map(|found| Datum::Bool(!found))
    });
    table.add("~~*", signature, |v, context| like_folded(v, context).map(Datum::Bool));
    table.add("!~~*", signature, |v, context| {
        like_folded(v, context).map(|found| Datum::Bool(!found))
    });
    table.add("~", signature, |v, context| matches(v, "", context).map(Datum::Bool));
    table.add("~*", signature, |v, context| matches(v, "i", context).map(Datum::Bool));
    table.add("!~", signature, |v, context| {
        matches(v, "", context).map(|found| Datum::Bool(!found))
    });
    table.add("!~*", signature, |v, context| {
        matches(v, "i", context).map(|found| Datum::Bool(!found))
    });
    table.add("^@", signature, |v, _| Ok(Datum::Bool(text(v, 0)?.starts_with(text(v, 1)?))));
}

/// A pattern of LIKE with another escape, as one with a backslash.
fn like_escape(pattern: &str, escape: &str) -> SqlResult<String> {
    let mut characters = escape.chars();
    let escape = match (characters.next(), characters.next()) {
        (Some('\\'), None) => return Ok(pattern.to_owned()),
        (escape, None) => escape,
        _ => {
            let error = SqlError::new(SqlState::INVALID_ESCAPE, "invalid escape string");
            return Err(error.hint("Escape string must be empty or one character."));
        }
    };
    let (mut out, mut is_escaped) = (String::with_capacity(pattern.len()), false);
    for character in pattern.chars() {
        if Some(character) == escape && !is_escaped {
            out.push('\\');
            is_escaped = true;
            continue;
        }
        if character == '\\' && !is_escaped {
            out.push('\\');
        }
        out.push(character);
        is_escaped = false;
    }
    Ok(out)
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    table.add("like_escape", "text text -> text", |v, _| {
        like_escape(text(v, 0)?, text(v, 1)?).map(Datum::text)
    });
    // LIKE with another ESCAPE and SIMILAR TO, of which the parser makes calls of these.
    for signature in ["text text -> bool", "text text text -> bool"] {
        table.add("like", signature, |v, context| {
            like(text(v, 0)?, text(v, 1)?, escape_of(v, 2)?, context.interrupts).map(Datum::Bool)
        });
        table.add("ilike", signature, |v, context| {
            let (value, pattern) = (text(v, 0)?.to_lowercase(), text(v, 1)?.to_lowercase());
            like(&value, &pattern, escape_of(v, 2)?, context.interrupts).map(Datum::Bool)
        });
        table.add("similar_to", signature, |v, context| {
            let (value, pattern) = (text(v, 0)?, similar(text(v, 1)?, escape_of(v, 2)?)?);
            Ok(Datum::Bool(compile_for(&pattern, "", value, context)?.is_match(value)))
        });
    }
    for signature in ["text text text -> text", "text text text text -> text"] {
        table.add("regexp_replace", signature, replace);
    }
    for signature in ["text text -> text[]", "text text text -> text[]"] {
        table.add("regexp_match", signature, first_match);
        table.add("regexp_split_to_array", signature, |v, context| {
            let flags = flags_of_all(v, "regexp_split_to_array()")?;
            Ok(text_array(split(text(v, 0)?, text(v, 1)?, flags, context)?))
        });
    }
    for signature in ["text text -> bool", "text text text -> bool"] {
        table.add("regexp_like", signature, |v, context| {
            matches(v, flags_of_all(v, "regexp_like()")?, context).map(Datum::Bool)
        });
    }
    table.add("substring", "text text -> text", |v, context| {
        substring(text(v, 0)?, text(v, 1)?, context)
    });
}

/// The options of a call, the third argument, of a function that finds all matches anyway.
pub(super) fn flags_of_all<'a>(values: &'a [Datum], function: &str) -> SqlResult<&'a str> {
    let flags = if values.len() > 2 { text(values, 2)? } else { "" };
    if flags.contains('g') {
        let message = format!("{function} does not support the \"global\" option");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    Ok(flags)
}

/// The part of a text that matches: the first group if there is one.
fn substring(value: &str, pattern: &str, context: &CallContext<'_>) -> SqlResult<Datum> {
    let regex = compile_for(pattern, "", value, context)?;
    let found = regex.captures(value).and_then(|found| found.get(usize::from(found.len() > 1)));
    Ok(found.map_or(Datum::Null, |found| Datum::text(found.as_str())))
}

/// All groups of a match, or the whole if there are none.
pub(super) fn groups(found: &regex::Captures<'_>) -> Datum {
    let skipped = usize::from(found.len() > 1);
    let group = |group: Option<regex::Match<'_>>| {
        group.map_or(Datum::Null, |group| Datum::text(group.as_str()))
    };
    text_array(found.iter().skip(skipped).map(group).collect())
}

fn first_match(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let flags = if values.len() > 2 { text(values, 2)? } else { "" };
    if flags.contains('g') {
        let error = SqlError::new(
            SqlState::INVALID_PARAMETER,
            "regexp_match() does not support the \"global\" option",
        );
        return Err(error.hint("Use the regexp_matches function instead."));
    }
    let value = text(values, 0)?;
    let regex = compile_for(text(values, 1)?, flags, value, context)?;
    Ok(regex.captures(value).map_or(Datum::Null, |found| groups(&found)))
}

/// The groups of all matches, or of the first one alone.
pub(super) fn all_matches(
    value: &str,
    pattern: &str,
    flags: &str,
    context: &CallContext<'_>,
) -> SqlResult<Vec<Datum>> {
    let regex = compile_for(pattern, flags, value, context)?;
    let most = if flags.contains('g') { usize::MAX } else { 1 };
    let mut found = Vec::new();
    for captures in regex.captures_iter(value).take(most) {
        let own = groups(&captures);
        check_count(found.len())?;
        after_match(value, captures.get(0), context)?;
        found.push(own);
    }
    Ok(found)
}

/// Bytes that a search looks at in the time of a step, about.
const BYTES_OF_STEP: usize = 8;

/// Counts the steps of a search that has found something: it may have looked at all of the rest.
pub(super) fn after_match(
    value: &str,
    found: Option<regex::Match<'_>>,
    context: &CallContext<'_>,
) -> SqlResult<()> {
    let rest = value.len() - found.map_or(0, |found| found.start());
    context.interrupts.after(rest / BYTES_OF_STEP)
}

/// A replacement with `\1` to `\9`, `\&` and `\\`.
pub(super) fn expand(
    replacement: &str,
    found: &regex::Captures<'_>,
    out: &mut String,
) -> SqlResult<()> {
    let group = |at: usize| found.get(at).map_or("", |group| group.as_str());
    // Each of its parts may be the whole match, so it may get long by itself.
    let groups = replacement.matches('\\').count().saturating_mul(group(0).len());
    let length = replacement.len().saturating_add(groups).saturating_add(out.len());
    if length > MAX_BYTES {
        return Err(too_long());
    }
    let mut chars = replacement.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('&') => out.push_str(group(0)),
            Some(digit @ '0'..='9') => {
                out.push_str(group(digit.to_digit(10).unwrap_or(0) as usize));
            }
            Some('\\') => out.push('\\'),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    Ok(())
}

fn replace(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let flags = if values.len() > 3 { text(values, 3)? } else { "" };
    let (value, replacement) = (text(values, 0)?, text(values, 2)?);
    let regex = compile_for(text(values, 1)?, flags, value, context)?;
    let most = if flags.contains('g') { usize::MAX } else { 1 };
    let (mut out, mut from) = (String::new(), 0);
    for captures in regex.captures_iter(value).take(most) {
        let Some(found) = captures.get(0) else { continue };
        after_match(value, Some(found), context)?;
        out.push_str(value.get(from..found.start()).unwrap_or_default());
        expand(replacement, &captures, &mut out)?;
        from = found.end();
    }
    out.push_str(value.get(from..).unwrap_or_default());
    if out.len() > MAX_BYTES { Err(too_long()) } else { Ok(Datum::text(out)) }
}

/// The parts of a text between matches. A match of nothing at the ends or behind another match
/// splits nothing.
pub(super) fn split(
    value: &str,
    pattern: &str,
    flags: &str,
    context: &CallContext<'_>,
) -> SqlResult<Vec<Datum>> {
    let regex = compile_for(pattern, flags, value, context)?;
    let (mut parts, mut from) = (Vec::new(), 0);
    for found in regex.find_iter(value) {
        if found.is_empty() && (found.start() == from || found.start() == value.len()) {
            continue;
        }
        check_count(parts.len())?;
        after_match(value, Some(found), context)?;
        parts.push(Datum::text(value.get(from..found.start()).unwrap_or_default()));
        from = found.end();
    }
    parts.push(Datum::text(value.get(from..).unwrap_or_default()));
    Ok(parts)
}
