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
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

/// Most compiled expressions that a thread keeps.
const MAX_CACHED: usize = 32;
/// Most bytes that a compiled expression may take.
const MAX_REGEX_BYTES: usize = 1 << 20;

thread_local! {
    /// Expressions that were compiled lately: a statement uses one for each of its rows.
    static CACHE: RefCell<HashMap<(String, String), Regex>> = RefCell::new(HashMap::new());
}

/// The expression, compiled. `flags` are PostgreSQL's: `g` is not looked at.
pub(super) fn compile(pattern: &str, flags: &str) -> SqlResult<Regex> {
    let key = (pattern.to_owned(), flags.to_owned());
    if let Some(found) = CACHE.with_borrow(|cache| cache.get(&key).cloned()) {
        return Ok(found);
    }
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
    let regex = RegexBuilder::new(&translated)
        .case_insensitive(ignores_case)
        .multi_line(is_multi_line)
        .dot_matches_new_line(dot_is_all)
        .ignore_whitespace(is_expanded)
        .size_limit(MAX_REGEX_BYTES)
        .build()
        .map_err(|error| {
            let message = error.to_string();
            let reason = message.lines().last().unwrap_or_default();
            SqlError::new(
                SqlState::INVALID_REGEX,
                format!("invalid regular expression: {}", reason.trim_start_matches("error: ")),
            )
        })?;
    CACHE.with_borrow_mut(|cache| {
        if cache.len() >= MAX_CACHED {
            cache.clear();
        }
        cache.insert(key, regex.clone());
    });
    Ok(regex)
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

/// What a pattern of LIKE is made of.
enum Part {
    /// `%`
    Any,
    /// `_`
    One,
    Char(char),
}

fn like_parts(pattern: &str, escape: Option<char>) -> SqlResult<Vec<Part>> {
    let mut parts = Vec::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        parts.push(match c {
            c if Some(c) == escape => Part::Char(chars.next().ok_or_else(|| {
                SqlError::new(
                    SqlState::INVALID_ESCAPE,
                    "LIKE pattern must not end with escape character",
                )
            })?),
            '%' => Part::Any,
            '_' => Part::One,
            c => Part::Char(c),
        });
    }
    Ok(parts)
}

/// Whether a text is like a pattern. Time is bounded by the product of both lengths: only the last
/// `%` is ever gone back to.
pub(super) fn like(text: &str, pattern: &str, escape: Option<char>) -> SqlResult<bool> {
    let parts = like_parts(pattern, escape)?;
    let chars: Vec<char> = text.chars().collect();
    let (mut at, mut part, mut back) = (0, 0, None);
    while at < chars.len() {
        let matches = match parts.get(part) {
            Some(Part::Any) => {
                back = Some((part, at));
                part += 1;
                continue;
            }
            Some(Part::One) => true,
            Some(Part::Char(c)) => chars.get(at) == Some(c),
            None => false,
        };
        if matches {
            (at, part) = (at + 1, part + 1);
        } else if let Some((any, from)) = back {
            back = Some((any, from + 1));
            (at, part) = (from + 1, any + 1);
        } else {
            return Ok(false);
        }
    }
    let rest = parts.get(part..).unwrap_or_default();
    Ok(rest.iter().all(|part| matches!(part, Part::Any)))
}

fn like_folded(text: &str, pattern: &str) -> SqlResult<bool> {
    like(&text.to_lowercase(), &pattern.to_lowercase(), Some('\\'))
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

fn matches(values: &[Datum], flags: &str) -> SqlResult<bool> {
    Ok(compile(text(values, 1)?, flags)?.is_match(text(values, 0)?))
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    let signature = "text text -> bool";
    table.add("~~", signature, |v, _| like(text(v, 0)?, text(v, 1)?, Some('\\')).map(Datum::Bool));
    table.add("!~~", signature, |v, _| {
        like(text(v, 0)?, text(v, 1)?, Some('\\')).map(|found| Datum::Bool(!found))
    });
    table.add("~~*", signature, |v, _| like_folded(text(v, 0)?, text(v, 1)?).map(Datum::Bool));
    table.add("!~~*", signature, |v, _| {
        like_folded(text(v, 0)?, text(v, 1)?).map(|found| Datum::Bool(!found))
    });
    table.add("~", signature, |v, _| matches(v, "").map(Datum::Bool));
    table.add("~*", signature, |v, _| matches(v, "i").map(Datum::Bool));
    table.add("!~", signature, |v, _| matches(v, "").map(|found| Datum::Bool(!found)));
    table.add("!~*", signature, |v, _| matches(v, "i").map(|found| Datum::Bool(!found)));
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
        table.add("like", signature, |v, _| {
            like(text(v, 0)?, text(v, 1)?, escape_of(v, 2)?).map(Datum::Bool)
        });
        table.add("ilike", signature, |v, _| {
            let (value, pattern) = (text(v, 0)?.to_lowercase(), text(v, 1)?.to_lowercase());
            like(&value, &pattern, escape_of(v, 2)?).map(Datum::Bool)
        });
        table.add("similar_to", signature, |v, _| {
            let pattern = similar(text(v, 1)?, escape_of(v, 2)?)?;
            Ok(Datum::Bool(compile(&pattern, "")?.is_match(text(v, 0)?)))
        });
    }
    for signature in ["text text text -> text", "text text text text -> text"] {
        table.add("regexp_replace", signature, replace);
    }
    for signature in ["text text -> text[]", "text text text -> text[]"] {
        table.add("regexp_match", signature, first_match);
        table.add("regexp_split_to_array", signature, |v, _| {
            let flags = flags_of_all(v, "regexp_split_to_array()")?;
            let parts = split(text(v, 0)?, text(v, 1)?, flags)?;
            Ok(text_array(parts.into_iter().map(Datum::text).collect()))
        });
    }
    for signature in ["text text -> bool", "text text text -> bool"] {
        table.add("regexp_like", signature, |v, _| {
            matches(v, flags_of_all(v, "regexp_like()")?).map(Datum::Bool)
        });
    }
    table.add("substring", "text text -> text", |v, _| substring(text(v, 0)?, text(v, 1)?));
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
fn substring(value: &str, pattern: &str) -> SqlResult<Datum> {
    let regex = compile(pattern, "")?;
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

fn first_match(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let flags = if values.len() > 2 { text(values, 2)? } else { "" };
    if flags.contains('g') {
        let error = SqlError::new(
            SqlState::INVALID_PARAMETER,
            "regexp_match() does not support the \"global\" option",
        );
        return Err(error.hint("Use the regexp_matches function instead."));
    }
    let regex = compile(text(values, 1)?, flags)?;
    Ok(regex.captures(text(values, 0)?).map_or(Datum::Null, |found| groups(&found)))
}

/// The groups of all matches, or of the first one alone.
pub(super) fn all_matches(value: &str, pattern: &str, flags: &str) -> SqlResult<Vec<Datum>> {
    let regex = compile(pattern, flags)?;
    let most = if flags.contains('g') { usize::MAX } else { 1 };
    Ok(regex.captures_iter(value).take(most).map(|found| groups(&found)).collect())
}

/// A replacement with `\1` to `\9`, `\&` and `\\`.
pub(super) fn expand(replacement: &str, found: &regex::Captures<'_>, out: &mut String) {
    let group = |at: usize| found.get(at).map_or("", |group| group.as_str());
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
}

fn replace(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let flags = if values.len() > 3 { text(values, 3)? } else { "" };
    let regex = compile(text(values, 1)?, flags)?;
    let (value, replacement) = (text(values, 0)?, text(values, 2)?);
    let most = usize::from(!flags.contains('g'));
    let replaced = regex.replacen(value, most, |found: &regex::Captures<'_>| {
        let mut out = String::new();
        expand(replacement, found, &mut out);
        out
    });
    Ok(Datum::text(replaced))
}

/// The parts of a text between matches. A match of nothing at the ends or behind another match
/// splits nothing.
pub(super) fn split(value: &str, pattern: &str, flags: &str) -> SqlResult<Vec<String>> {
    let regex = compile(pattern, flags)?;
    let (mut parts, mut from) = (Vec::new(), 0);
    for found in regex.find_iter(value) {
        if found.is_empty() && (found.start() == from || found.start() == value.len()) {
            continue;
        }
        parts.push(value.get(from..found.start()).unwrap_or_default().to_owned());
        from = found.end();
    }
    parts.push(value.get(from..).unwrap_or_default().to_owned());
    Ok(parts)
}
