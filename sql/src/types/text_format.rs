//! Values as texts, and texts as values: the input and output functions of PostgreSQL's types.

use std::fmt::{Display, Write};
use std::str::FromStr;
use std::sync::Arc;

use super::array_text;
use super::datum::Datum;
use super::interval_text;
use super::json;
use super::name_text;
use super::numeric;
use super::settings::{ByteaOutput, FormatSettings};
use super::sql_type::{Scalar, SqlType};
use super::{time_print, time_text};
use crate::error::{SqlError, SqlResult, SqlState};

/// Longest name, in bytes; what is longer is cut.
pub(crate) const MAX_NAME_BYTES: usize = 63;

/// The type that a value has if nothing else tells.
#[must_use]
pub fn natural_type(value: &Datum) -> SqlType {
    SqlType::new(match value {
        Datum::Null => Scalar::Unknown,
        Datum::Bool(_) => Scalar::Bool,
        Datum::I16(_) => Scalar::Int2,
        Datum::I32(_) => Scalar::Int4,
        Datum::I64(_) => Scalar::Int8,
        Datum::F32(_) => Scalar::Float4,
        Datum::F64(_) => Scalar::Float8,
        Datum::Numeric(_) => Scalar::Numeric,
        Datum::Text(_) => Scalar::Text,
        Datum::Bytes(_) => Scalar::Bytea,
        Datum::Json(_) => Scalar::Jsonb,
        Datum::Date(_) => Scalar::Date,
        Datum::Time(_) => Scalar::Time,
        Datum::Timestamp(_) => Scalar::Timestamp,
        Datum::Interval(_) => Scalar::Interval,
        Datum::Uuid(_) => Scalar::Uuid,
        Datum::Array(array) => return SqlType::array(array.element),
        Datum::Record(_) => Scalar::Record,
    })
}

/// Appends a value as PostgreSQL prints it. NULL has no text: nothing is appended.
pub fn to_text(value: &Datum, ty: SqlType, settings: &FormatSettings, out: &mut String) {
    let _ = match value {
        Datum::Null => Ok(()),
        Datum::Bool(value) => write!(out, "{}", if *value { 't' } else { 'f' }),
        Datum::I16(value) => write!(out, "{value}"),
        Datum::I32(value) => write!(out, "{value}"),
        Datum::I64(value) => return name_text::print(*value, ty, settings, out),
        Datum::F32(value) => return print_float4(*value, settings, out),
        Datum::F64(value) => return print_float8(*value, settings, out),
        Datum::Numeric(None) => write!(out, "NaN"),
        Datum::Numeric(Some(value)) => return numeric::print(value, out),
        Datum::Text(value) => return print_characters(value, ty, out),
        Datum::Json(value) => write!(out, "{value}"),
        Datum::Bytes(value) => return print_bytes(value, settings.bytea_output, out),
        Datum::Date(value) => return time_print::print_date(*value, settings, out),
        Datum::Time(value) => return time_print::print_time_of_day(*value, out),
        Datum::Timestamp(value) => {
            let has_zone = ty.scalar == Scalar::TimestampTz;
            return time_print::print_timestamp(*value, has_zone, settings, out);
        }
        Datum::Interval(value) => {
            return interval_text::print(*value, settings.interval_style, out);
        }
        Datum::Uuid(value) => return print_uuid(*value, out),
        Datum::Array(value) => return array_text::print(value, ty, settings, out),
        Datum::Record(own) => return array_text::print_record(own, settings, out),
    };
}

/// A value as a text of its own.
#[must_use]
pub fn to_string(value: &Datum, ty: SqlType, settings: &FormatSettings) -> String {
    let mut out = String::new();
    to_text(value, ty, settings, &mut out);
    out
}

/// Prints a text; a `char(n)` gets the spaces back that it is kept without.
fn print_characters(value: &str, ty: SqlType, out: &mut String) {
    out.push_str(value);
    if ty.scalar == Scalar::Char {
        let missing = ty.max_characters().unwrap_or(0).saturating_sub(value.chars().count());
        out.extend(std::iter::repeat_n(' ', missing));
    }
}

/// Prints digits and an exponent as PostgreSQL does: as a plain number while the exponent is from
/// -4 to below `most`.
fn print_scientific(shown: &str, most: i32, out: &mut String) {
    let (mantissa, exponent) = shown.split_once('e').unwrap_or((shown, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    out.push_str(sign);
    if !(-4..most).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
        return;
    }
    let digits: String = mantissa.chars().filter(|c| *c != '.').collect();
    if exponent < 0 {
        let zeroes = "0".repeat(usize::try_from(-exponent - 1).unwrap_or(0));
        let _ = write!(out, "0.{zeroes}{digits}");
        return;
    }
    let before = usize::try_from(exponent + 1).unwrap_or(1);
    match digits.split_at_checked(before).filter(|(_, fraction)| !fraction.is_empty()) {
        Some((whole, fraction)) => {
            let _ = write!(out, "{whole}.{fraction}");
        }
        None => {
            let _ = write!(out, "{digits}{}", "0".repeat(before - digits.len()));
        }
    }
}

fn print_special(value: f64, out: &mut String) -> bool {
    let special = match value {
        _ if value.is_nan() => "NaN",
        _ if value == f64::INFINITY => "Infinity",
        _ if value == f64::NEG_INFINITY => "-Infinity",
        _ => return false,
    };
    out.push_str(special);
    true
}

/// Prints a float with so many digits, as `%.*g` does.
fn print_digits(value: f64, digits: i32, out: &mut String) {
    let digits = digits.max(1);
    let shown = format!("{value:.*e}", usize::try_from(digits - 1).unwrap_or(0));
    let (mantissa, exponent) = shown.split_once('e').unwrap_or((&shown, "0"));
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    print_scientific(&format!("{mantissa}e{exponent}"), digits, out);
}

fn print_float8(value: f64, settings: &FormatSettings, out: &mut String) {
    if print_special(value, out) {
        return;
    }
    if settings.extra_float_digits > 0 {
        print_scientific(&format!("{value:e}"), 15, out);
    } else {
        print_digits(value, 15 + settings.extra_float_digits, out);
    }
}

fn print_float4(value: f32, settings: &FormatSettings, out: &mut String) {
    if print_special(f64::from(value), out) {
        return;
    }
    if settings.extra_float_digits > 0 {
        print_scientific(&format!("{value:e}"), 6, out);
    } else {
        print_digits(f64::from(value), 6 + settings.extra_float_digits, out);
    }
}

fn print_bytes(bytes: &[u8], style: ByteaOutput, out: &mut String) {
    if style == ByteaOutput::Hex {
        out.push_str("\\x");
        return print_hex(bytes, out);
    }
    for byte in bytes {
        let _ = match byte {
            b'\\' => write!(out, "\\\\"),
            b' '..=b'~' => write!(out, "{}", char::from(*byte)),
            _ => write!(out, "\\{byte:03o}"),
        };
    }
}

/// Prints two digits for each byte.
pub(crate) fn print_hex(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
}

fn print_uuid(bytes: [u8; 16], out: &mut String) {
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
}

/// The error of a text that is no value of its type.
pub(crate) fn invalid_text(ty: &str, text: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, format!("invalid input syntax for type {ty}: \"{text}\""))
}

/// Reads a value as PostgreSQL's input function of the type does. A modifier is applied as by an
/// assignment, except that nothing is too long for a `char(n)` by its spaces.
///
/// # Errors
/// [`SqlState::INVALID_TEXT`] or [`SqlState::INVALID_DATETIME`] if it is none, others if it is out
/// of range.
pub fn from_text(text: &str, ty: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    if ty.is_array {
        return array_text::parse(text, ty, settings);
    }
    let value = match ty.scalar {
        Scalar::Bool => Datum::Bool(parse_bool(text)?),
        Scalar::Int2 => Datum::I16(parse_int(text, "smallint")?),
        Scalar::Int4 => Datum::I32(parse_int(text, "integer")?),
        Scalar::Int8 => Datum::I64(parse_int(text, "bigint")?),
        Scalar::Oid => Datum::I64(parse_oid(text, "oid")?),
        Scalar::Regclass
        | Scalar::Regtype
        | Scalar::Regproc
        | Scalar::Regprocedure
        | Scalar::Regoper
        | Scalar::Regoperator
        | Scalar::Regcollation
        | Scalar::Regnamespace
        | Scalar::Regrole => name_text::parse(text, ty, settings)?,
        Scalar::Float4 => Datum::F32(parse_float4(text)?),
        Scalar::Float8 => Datum::F64(parse_float8(text)?),
        Scalar::Numeric => match numeric::parse(text) {
            Some(value) => Datum::Numeric(value?.map(Arc::new)),
            None => return Err(invalid_text("numeric", text)),
        },
        Scalar::Text | Scalar::Varchar | Scalar::Unknown => Datum::text(text),
        Scalar::Char => Datum::text(text.trim_end_matches(' ')),
        Scalar::Name => Datum::text(cut_name(text)),
        Scalar::SingleChar => {
            Datum::text(text.chars().next().map(String::from).unwrap_or_default())
        }
        Scalar::Bytea => Datum::Bytes(parse_bytes(text)?.into()),
        Scalar::Date => Datum::Date(time_text::parse_date(text, settings)?),
        Scalar::Time => Datum::Time(time_text::parse_time(text, settings)?),
        Scalar::Timestamp => Datum::Timestamp(time_text::parse_timestamp(text, false, settings)?),
        Scalar::TimestampTz => Datum::Timestamp(time_text::parse_timestamp(text, true, settings)?),
        Scalar::Interval => Datum::Interval(interval_text::parse(text)?),
        Scalar::Uuid => Datum::Uuid(parse_uuid(text)?),
        Scalar::Json => {
            json::parse(text)?;
            Datum::Json(text.into())
        }
        Scalar::Jsonb => Datum::Json(json::canonical(text)?.into()),
        Scalar::Record => return Err(SqlError::unsupported("input of anonymous composite types")),
        Scalar::Void => Datum::text(""),
    };
    super::conversions::apply_modifier(value, ty, false)
}

/// The beginning of a text that fits in a name.
pub(crate) fn cut_name(text: &str) -> &str {
    let end = (0..=MAX_NAME_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

fn parse_bool(text: &str) -> SqlResult<bool> {
    let folded = text.trim_matches(|c: char| c.is_ascii_whitespace()).to_ascii_lowercase();
    let is_start = |word: &str, least: usize| folded.len() >= least && word.starts_with(&folded);
    if is_start("true", 1) || is_start("yes", 1) || folded == "on" || folded == "1" {
        Ok(true)
    } else if is_start("false", 1) || is_start("no", 1) || is_start("off", 2) || folded == "0" {
        Ok(false)
    } else {
        Err(invalid_text("boolean", text))
    }
}

fn parse_int<T: FromStr>(text: &str, ty: &str) -> SqlResult<T> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid_text(ty, text));
    }
    trimmed.parse().map_err(|_| out_of_range(text, ty))
}

fn out_of_range(text: impl Display, ty: &str) -> SqlError {
    SqlError::new(
        SqlState::NUMERIC_OUT_OF_RANGE,
        format!("value \"{text}\" is out of range for type {ty}"),
    )
}

/// Reads an oid.
pub(crate) fn parse_oid(text: &str, ty: &str) -> SqlResult<i64> {
    let value: i64 = parse_int(text, ty)?;
    // As strtoul does, negative numbers of 32 bits are taken for what they wrap to.
    let is_valid = (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&value);
    is_valid.then_some(value & 0xffff_ffff).ok_or_else(|| out_of_range(text, ty))
}

fn is_float(text: &str) -> bool {
    let word = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
    matches!(word.as_str(), "inf" | "infinity" | "nan")
        || word.starts_with(|c: char| c.is_ascii_digit() || c == '.')
}

fn is_zero_text(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    !mantissa.contains(|c: char| ('1'..='9').contains(&c))
}

fn parse_float8(text: &str) -> SqlResult<f64> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let parsed = is_float(trimmed).then(|| trimmed.parse::<f64>().ok()).flatten();
    let value = parsed.ok_or_else(|| invalid_text("double precision", text))?;
    let is_word = !trimmed.contains(|c: char| c.is_ascii_digit());
    if (value.is_infinite() && !is_word) || (value == 0.0 && !is_zero_text(trimmed)) {
        return Err(SqlError::new(
            SqlState::NUMERIC_OUT_OF_RANGE,
            format!("\"{trimmed}\" is out of range for type double precision"),
        ));
    }
    Ok(value)
}

fn parse_float4(text: &str) -> SqlResult<f32> {
    let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace());
    let parsed = is_float(trimmed).then(|| trimmed.parse::<f32>().ok()).flatten();
    let value = parsed.ok_or_else(|| invalid_text("real", text))?;
    let is_word = !trimmed.contains(|c: char| c.is_ascii_digit());
    if (value.is_infinite() && !is_word) || (value == 0.0 && !is_zero_text(trimmed)) {
        return Err(SqlError::new(
            SqlState::NUMERIC_OUT_OF_RANGE,
            format!("\"{trimmed}\" is out of range for type real"),
        ));
    }
    Ok(value)
}

/// Reads pairs of hexadecimal digits, between which spaces may stand.
pub(crate) fn parse_hex(text: &str) -> SqlResult<Vec<u8>> {
    let invalid = |what: String| SqlError::new(SqlState::INVALID_PARAMETER, what);
    let mut out = Vec::with_capacity(text.len() / 2);
    let mut first = None;
    for c in text.chars() {
        if first.is_none() && c.is_ascii_whitespace() {
            continue;
        }
        let digit = c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digit = digit.ok_or_else(|| invalid(format!("invalid hexadecimal digit: \"{c}\"")))?;
        match first.take() {
            Some(high) => out.push(16 * high + digit),
            None => first = Some(digit),
        }
    }
    match first {
        None => Ok(out),
        Some(_) => Err(invalid("invalid hexadecimal data: odd number of digits".to_owned())),
    }
}

/// Reads a `bytea`: digits after `\x`, or characters with `\\` and `\ooo`.
pub(crate) fn parse_bytes(text: &str) -> SqlResult<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("\\x") {
        return parse_hex(digits);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match tail {
            [b'\\', tail @ ..] => {
                out.push(b'\\');
                rest = tail;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                out.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = tail;
            }
            _ => {
                return Err(SqlError::new(
                    SqlState::INVALID_TEXT,
                    "invalid input syntax for type bytea",
                ));
            }
        }
    }
    Ok(out)
}

/// Reads a `uuid`: digits, with hyphens after any group of four, in braces if need be.
fn parse_uuid(text: &str) -> SqlResult<[u8; 16]> {
    let inner = text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(text);
    let invalid = || invalid_text("uuid", text);
    let mut value: u128 = 0;
    let (mut digits, mut was_hyphen) = (0, true);
    for c in inner.chars() {
        if c == '-' {
            if was_hyphen || digits % 4 != 0 {
                return Err(invalid());
            }
            was_hyphen = true;
            continue;
        }
        was_hyphen = false;
        digits += 1;
        let digit = c.to_digit(16).filter(|_| digits <= 32).ok_or_else(invalid)?;
        value = value << 4 | u128::from(digit);
    }
    if digits == 32 && !was_hyphen { Ok(value.to_be_bytes()) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests;
