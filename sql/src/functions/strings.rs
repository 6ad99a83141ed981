//! Functions of texts. Positions and lengths are counted in characters.

use std::collections::{BTreeMap, BTreeSet};

use super::CallContext;
use super::arguments::{argument, bytes, text, whole};
use super::encodings;
use super::reserved::is_reserved;
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;
use crate::types::text_format::to_string;

/// Longest text that a function makes, in bytes.
pub(crate) const MAX_BYTES: usize = 256 << 20;

pub(super) fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

pub(crate) fn too_long() -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")
}

/// Refuses what gets too long when one is put behind the other.
pub(super) fn check_length(left: usize, right: usize) -> SqlResult<()> {
    if left.saturating_add(right) > MAX_BYTES { Err(too_long()) } else { Ok(()) }
}

/// Parts one after the other, with a text between them.
fn joined(parts: impl IntoIterator<Item = String>, between: &str) -> SqlResult<Datum> {
    let mut parts = parts.into_iter();
    let mut out = parts.next().unwrap_or_default();
    for part in parts {
        check_length(out.len().saturating_add(between.len()), part.len())?;
        out.extend([between, &part]);
    }
    Ok(Datum::text(out))
}

fn count(count: usize) -> Datum {
    Datum::I32(i32::try_from(count).unwrap_or(i32::MAX))
}

/// The characters from one position, counted from 1, to before another.
fn slice(value: &str, from: i64, to: i64) -> &str {
    let skipped = usize::try_from(from.max(1) - 1).unwrap_or(usize::MAX);
    let taken = usize::try_from(to.saturating_sub(from.max(1))).unwrap_or(0);
    let byte =
        |value: &str, at: usize| value.char_indices().nth(at).map_or(value.len(), |(byte, _)| byte);
    let rest = value.get(byte(value, skipped)..).unwrap_or_default();
    rest.get(..byte(rest, taken)).unwrap_or_default()
}

fn negative_length() -> SqlError {
    SqlError::new(SqlState::SUBSTRING_ERROR, "negative substring length not allowed")
}

fn substring(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, from) = (text(values, 0)?, whole(values, 1)?);
    let to = match values.len() {
        0..=2 => i64::MAX,
        _ => {
            let length = whole(values, 2)?;
            if length < 0 {
                return Err(negative_length());
            }
            from.saturating_add(length)
        }
    };
    Ok(Datum::text(slice(value, from, to)))
}

fn substring_of_bytes(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, from) = (bytes(values, 0)?, whole(values, 1)?);
    let to = match values.len() {
        0..=2 => i64::MAX,
        _ => match whole(values, 2)? {
            length if length < 0 => return Err(negative_length()),
            length => from.saturating_add(length),
        },
    };
    let at = |position: i64| usize::try_from(position - 1).unwrap_or(0).min(value.len());
    let (from, to) = (at(from), at(to));
    Ok(Datum::Bytes(value.get(from..to.max(from)).unwrap_or_default().into()))
}

/// `left` and `right`: a negative count leaves so many out at the other end.
fn end_part(values: &[Datum], is_left: bool) -> SqlResult<Datum> {
    let (value, wanted) = (text(values, 0)?, whole(values, 1)?);
    let length = value.chars().count() as i64;
    let taken = if wanted < 0 { (length + wanted).max(0) } else { wanted.min(length) };
    Ok(Datum::text(match is_left {
        true => slice(value, 1, 1 + taken),
        false => slice(value, length - taken + 1, length + 1),
    }))
}

fn pad(values: &[Datum], is_left: bool) -> SqlResult<Datum> {
    let value = text(values, 0)?;
    let wanted = usize::try_from(whole(values, 1)?).unwrap_or(0);
    let fill: Vec<char> =
        if values.len() > 2 { text(values, 2)?.chars().collect() } else { vec![' '] };
    let length = value.chars().count();
    if wanted <= length || fill.is_empty() {
        return Ok(Datum::text(slice(value, 1, wanted as i64 + 1)));
    }
    if wanted.saturating_mul(4) > MAX_BYTES {
        return Err(too_long());
    }
    let filling: String = fill.iter().cycle().take(wanted - length).collect();
    Ok(Datum::text(if is_left { format!("{filling}{value}") } else { format!("{value}{filling}") }))
}

/// So many characters are looked through one after the other.
const FEW_CHARS: usize = 16;

/// Which ends are trimmed.
#[derive(Clone, Copy)]
enum Ends {
    Left,
    Right,
    Both,
}

fn trim(values: &[Datum], ends: Ends) -> SqlResult<Datum> {
    let value = text(values, 0)?;
    let set: Vec<char> =
        if values.len() > 1 { text(values, 1)?.chars().collect() } else { vec![' '] };
    // Of many characters a tree: each of the text's own is looked up.
    let many: BTreeSet<char> = set.iter().copied().filter(|_| set.len() > FEW_CHARS).collect();
    let is_in = |c: char| if many.is_empty() { set.contains(&c) } else { many.contains(&c) };
    Ok(Datum::text(match ends {
        Ends::Left => value.trim_start_matches(is_in),
        Ends::Right => value.trim_end_matches(is_in),
        Ends::Both => value.trim_matches(is_in),
    }))
}

fn initcap(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut in_word = false;
    for c in value.chars() {
        if in_word {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        in_word = c.is_alphanumeric();
    }
    out
}

fn position(value: &str, wanted: &str) -> Datum {
    let found = value.find(wanted).and_then(|at| value.get(..at));
    count(found.map_or(0, |before| before.chars().count() + 1))
}

fn split_part(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, delimiter, wanted) = (text(values, 0)?, text(values, 1)?, whole(values, 2)?);
    if wanted == 0 {
        return Err(invalid("field position must not be zero"));
    }
    let at = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX) - 1;
    let part = match (delimiter, wanted > 0) {
        ("", _) => Some(value).filter(|_| at == 0),
        (_, true) => value.split(delimiter).nth(at),
        (_, false) => {
            // From the left, too: where delimiters overlap, those found from the right are others.
            let count = value.split(delimiter).count();
            count.checked_sub(at + 1).and_then(|at| value.split(delimiter).nth(at))
        }
    };
    Ok(Datum::text(part.unwrap_or_default()))
}

fn translate(value: &str, from: &str, to: &str) -> String {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    // Of a character that is there twice the first counts.
    let of = |at: usize| to.get(at).copied();
    let many: BTreeMap<char, Option<char>> = match from.len() {
        0..=FEW_CHARS => BTreeMap::new(),
        _ => from.iter().enumerate().rev().map(|(at, c)| (*c, of(at))).collect(),
    };
    let known = |c: char| match many.is_empty() {
        true => from.iter().position(|known| *known == c).map(of),
        false => many.get(&c).copied(),
    };
    value.chars().filter_map(|c| known(c).unwrap_or(Some(c))).collect()
}

fn repeat(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let value = text(values, 0)?;
    let times = usize::try_from(whole(values, 1)?).unwrap_or(0);
    if value.len().saturating_mul(times) > MAX_BYTES {
        return Err(too_long());
    }
    Ok(Datum::text(value.repeat(times)))
}

fn chr(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let failed = |message: &str| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message);
    let code = whole(values, 0)?;
    if code == 0 {
        return Err(failed("null character not permitted"));
    }
    let found = u32::try_from(code).ok().and_then(char::from_u32);
    let c = found
        .ok_or_else(|| failed(&format!("requested character not valid for encoding: {code}")))?;
    Ok(Datum::text(c.to_string()))
}

/// A value as functions of several arguments print it: `bool` as `t` and `f`.
pub(super) fn shown(
    types: &Types,
    values: &[Datum],
    at: usize,
    context: &CallContext<'_>,
) -> String {
    to_string(argument(values, at), types.argument(at), context.settings)
}

fn concat(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    joined((0..values.len()).map(|at| shown(types, values, at, context)), "")
}

fn concat_ws(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    if argument(values, 0).is_null() {
        return Ok(Datum::Null);
    }
    let parts = (1..values.len())
        .filter(|at| !argument(values, *at).is_null())
        .map(|at| shown(types, values, at, context));
    joined(parts, text(values, 0)?)
}

/// A name in quotes, if it needs them.
pub(super) fn quote_ident(name: &str) -> String {
    let is_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if is_plain && !is_reserved(name) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in single quotes; with a backslash it is one of the form `E'..'`.
pub(super) fn quote_literal(value: &str) -> String {
    let prefix = if value.contains('\\') { "E" } else { "" };
    format!("{prefix}'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    table.add("||", "text text -> text", |v, _| {
        check_length(text(v, 0)?.len(), text(v, 1)?.len())?;
        Ok(Datum::text([text(v, 0)?, text(v, 1)?].concat()))
    });
    for signature in ["stable anynonarray text -> text", "stable text anynonarray -> text"] {
        table.add_typed("||", signature, |types, v, context| {
            // As the cast to text: true is not t.
            let part = |at: usize| match argument(v, at) {
                Datum::Bool(value) => value.to_string(),
                _ => shown(types, v, at, context),
            };
            joined([part(0), part(1)], "")
        });
    }
    table.add("||", "bytea bytea -> bytea", |v, _| {
        check_length(bytes(v, 0)?.len(), bytes(v, 1)?.len())?;
        Ok(Datum::Bytes([bytes(v, 0)?, bytes(v, 1)?].concat().into()))
    });
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for name in ["length", "char_length", "character_length"] {
        for signature in ["text -> int4", "bpchar -> int4"] {
            table.add(name, signature, |v, _| Ok(count(text(v, 0)?.chars().count())));
        }
    }
    table.add("length", "bytea -> int4", |v, _| Ok(count(bytes(v, 0)?.len())));
    table.add("octet_length", "text -> int4", |v, _| Ok(count(text(v, 0)?.len())));
    table.add("octet_length", "bytea -> int4", |v, _| Ok(count(bytes(v, 0)?.len())));
    table.add("bit_length", "text -> int4", |v, _| Ok(count(8 * text(v, 0)?.len())));
    table.add("bit_length", "bytea -> int4", |v, _| Ok(count(8 * bytes(v, 0)?.len())));
    table.add("upper", "text -> text", |v, _| Ok(Datum::text(text(v, 0)?.to_uppercase())));
    table.add("lower", "text -> text", |v, _| Ok(Datum::text(text(v, 0)?.to_lowercase())));
    table.add("initcap", "text -> text", |v, _| Ok(Datum::text(initcap(text(v, 0)?))));
    for name in ["substring", "substr"] {
        for signature in ["text int4 -> text", "text int4 int4 -> text"] {
            table.add(name, signature, substring);
        }
        for signature in ["bytea int4 -> bytea", "bytea int4 int4 -> bytea"] {
            table.add(name, signature, substring_of_bytes);
        }
    }
    table.add("left", "text int4 -> text", |v, _| end_part(v, true));
    table.add("right", "text int4 -> text", |v, _| end_part(v, false));
    for signature in ["text int4 -> text", "text int4 text -> text"] {
        table.add("lpad", signature, |v, _| pad(v, true));
        table.add("rpad", signature, |v, _| pad(v, false));
    }
    for signature in ["text -> text", "text text -> text"] {
        table.add("ltrim", signature, |v, _| trim(v, Ends::Left));
        table.add("rtrim", signature, |v, _| trim(v, Ends::Right));
        table.add("btrim", signature, |v, _| trim(v, Ends::Both));
    }
    table.add("replace", "text text text -> text", |v, _| {
        let (value, from, to) = (text(v, 0)?, text(v, 1)?, text(v, 2)?);
        let times = if from.is_empty() { 0 } else { value.matches(from).count() };
        check_length(times.saturating_mul(to.len()), value.len() - times * from.len())?;
        Ok(Datum::text(if times == 0 { value.to_owned() } else { value.replace(from, to) }))
    });
    table.add("translate", "text text text -> text", |v, _| {
        Ok(Datum::text(translate(text(v, 0)?, text(v, 1)?, text(v, 2)?)))
    });
    for name in ["strpos", "position"] {
        table.add(name, "text text -> int4", |v, _| Ok(position(text(v, 0)?, text(v, 1)?)));
    }
    table.add("split_part", "text text int4 -> text", split_part);
    table.add("repeat", "text int4 -> text", repeat);
    table.add("reverse", "text -> text", |v, _| {
        Ok(Datum::text(text(v, 0)?.chars().rev().collect::<String>()))
    });
    table.add("ascii", "text -> int4", |v, _| {
        let code = text(v, 0)?.chars().next().map_or(0, u32::from);
        Ok(Datum::I32(i32::try_from(code).unwrap_or(0)))
    });
    table.add("chr", "int4 -> text", chr);
    table.add("starts_with", "text text -> bool", |v, _| {
        Ok(Datum::Bool(text(v, 0)?.starts_with(text(v, 1)?)))
    });
    register_several(table);
    register_encodings(table);
}

fn register_several(table: &mut Table<Body>) {
    table.add_typed("concat", "lax stable variadic any -> text", concat);
    table.add_typed("concat_ws", "lax stable text variadic any -> text", concat_ws);
    table.add("quote_ident", "text -> text", |v, _| Ok(Datum::text(quote_ident(text(v, 0)?))));
    for signature in ["text text int4 -> text", "text text int4 int4 -> text"] {
        table.add("overlay", signature, overlay);
    }
}

fn overlay(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, new, from) = (text(values, 0)?, text(values, 1)?, whole(values, 2)?);
    let length = match values.len() {
        0..=3 => new.chars().count() as i64,
        _ => whole(values, 3)?,
    };
    if from <= 0 {
        return Err(negative_length());
    }
    let (start, rest) =
        (slice(value, 1, from), slice(value, from.saturating_add(length), i64::MAX));
    check_length(start.len().saturating_add(new.len()), rest.len())?;
    Ok(Datum::text([start, new, rest].concat()))
}

fn register_encodings(table: &mut Table<Body>) {
    table
        .add("md5", "text -> text", |v, _| Ok(Datum::text(encodings::md5(text(v, 0)?.as_bytes()))));
    table.add("md5", "bytea -> text", |v, _| Ok(Datum::text(encodings::md5(bytes(v, 0)?))));
    table.add("encode", "bytea text -> text", |v, _| {
        encodings::encode(bytes(v, 0)?, text(v, 1)?).map(Datum::text)
    });
    table.add("decode", "text text -> bytea", |v, _| {
        encodings::decode(text(v, 0)?, text(v, 1)?).map(|bytes| Datum::Bytes(bytes.into()))
    });
    table.add("to_hex", "int4 -> text", |v, _| {
        #[expect(clippy::cast_possible_truncation, reason = "an integer has 32 bits")]
        let value = whole(v, 0)? as i32;
        Ok(Datum::text(format!("{value:x}")))
    });
    table.add("to_hex", "int8 -> text", |v, _| Ok(Datum::text(format!("{:x}", whole(v, 0)?))));
    table.add("convert_to", "text text -> bytea", |v, _| {
        encodings::check_utf8(text(v, 1)?)?;
        Ok(Datum::Bytes(text(v, 0)?.as_bytes().into()))
    });
    table.add("convert_from", "bytea text -> text", |v, _| {
        encodings::check_utf8(text(v, 1)?)?;
        super::byte_strings::decoded(bytes(v, 0)?).map(Datum::text)
    });
}
