//! Texts made by a form: `format`, literals in quotes, and `unistr` with its escapes.

use std::iter::Peekable;
use std::str::Chars;

use super::CallContext;
use super::arguments::{argument, text};
use super::signature::{Body, Table, Types};
use super::strings::{
    MAX_BYTES, check_length, invalid, quote_ident, quote_literal, shown, too_long,
};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

/// How wide a part of a format string is.
enum Width {
    Fixed(i64),
    /// As an argument says: that of a position, or the next.
    Argument(Option<usize>),
}

/// One `%` of a format string.
struct Directive {
    position: Option<usize>,
    is_left: bool,
    width: Width,
    kind: char,
}

fn unterminated() -> SqlError {
    invalid("unterminated format() type specifier").hint("For a single \"%\" use \"%%\".")
}

fn number(chars: &mut Peekable<Chars<'_>>) -> SqlResult<Option<i64>> {
    let mut digits = String::new();
    while let Some(digit) = chars.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    if digits.is_empty() {
        return Ok(None);
    }
    let number = digits
        .parse::<i32>()
        .map_err(|_| SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "number is out of range"))?;
    Ok(Some(i64::from(number)))
}

/// The number of an argument, which is behind its `$`.
fn position(number: i64) -> SqlResult<usize> {
    match usize::try_from(number) {
        Ok(at @ 1..) => Ok(at),
        _ => Err(invalid("format specifies argument 0, but arguments are numbered from 1")),
    }
}

fn directive(chars: &mut Peekable<Chars<'_>>) -> SqlResult<Directive> {
    let mut found = Directive { position: None, is_left: false, width: Width::Fixed(0), kind: 's' };
    let first = number(chars)?;
    match first {
        Some(first) if chars.next_if_eq(&'$').is_some() => found.position = Some(position(first)?),
        Some(first) => found.width = Width::Fixed(first),
        None => {}
    }
    if first.is_none() || found.position.is_some() {
        while chars.next_if_eq(&'-').is_some() {
            found.is_left = true;
        }
        if chars.next_if_eq(&'*').is_some() {
            let at = number(chars)?;
            if at.is_some() && chars.next_if_eq(&'$').is_none() {
                let message = "width argument position must be ended by \"$\"";
                return Err(invalid(message));
            }
            found.width = Width::Argument(at.map(position).transpose()?);
        } else {
            found.width = Width::Fixed(number(chars)?.unwrap_or(0));
        }
    }
    found.kind = chars.next().ok_or_else(unterminated)?;
    Ok(found)
}

/// The arguments of a call of `format`, which are taken one after the other, or by their numbers.
struct Given<'a> {
    types: &'a Types,
    values: &'a [Datum],
    next: usize,
}

impl Given<'_> {
    fn take(&mut self, position: Option<usize>) -> SqlResult<usize> {
        let at = position.unwrap_or(self.next);
        self.next = at + 1;
        if at >= self.values.len() {
            return Err(invalid("too few arguments for format()"));
        }
        Ok(at)
    }

    /// A width, and whether it is one to the left.
    fn width(&mut self, width: &Width, context: &CallContext<'_>) -> SqlResult<(i64, bool)> {
        let at = match width {
            Width::Fixed(width) => return Ok((*width, false)),
            Width::Argument(position) => self.take(*position)?,
        };
        let width = match argument(self.values, at) {
            Datum::Null => 0,
            Datum::I16(width) => i64::from(*width),
            Datum::I32(width) => i64::from(*width),
            _ => {
                let text = shown(self.types, self.values, at, context);
                text.trim().parse::<i32>().map(i64::from).map_err(|_| {
                    let message = format!("invalid input syntax for type integer: \"{text}\"");
                    SqlError::new(SqlState::INVALID_TEXT, message)
                })?
            }
        };
        Ok((width.abs(), width < 0))
    }
}

fn format(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    if argument(values, 0).is_null() {
        return Ok(Datum::Null);
    }
    let mut out = String::new();
    let mut given = Given { types, values, next: 1 };
    let mut chars = text(values, 0)?.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let Directive { position, is_left, width, kind } = directive(&mut chars)?;
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(invalid(format!("unrecognized format() type specifier \"{kind}\""))
                .hint("For a single \"%\" use \"%%\"."));
        }
        let (width, turns_left) = given.width(&width, context)?;
        let at = given.take(position)?;
        let is_null = argument(values, at).is_null();
        let value = shown(types, values, at, context);
        let value = match kind {
            'I' if is_null => {
                let message = "null values cannot be formatted as an SQL identifier";
                return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
            }
            'I' => quote_ident(&value),
            'L' if is_null => "NULL".to_owned(),
            'L' => quote_literal(&value),
            _ => value,
        };
        let width = usize::try_from(width).unwrap_or(0);
        if width > MAX_BYTES {
            return Err(too_long());
        }
        let filling = " ".repeat(width.saturating_sub(value.chars().count()));
        check_length(out.len(), value.len().saturating_add(filling.len()))?;
        match is_left || turns_left {
            true => out.extend([value, filling]),
            false => out.extend([filling, value]),
        }
    }
    Ok(Datum::text(out))
}

/// A value as its cast to text is.
fn as_text(types: &Types, values: &[Datum], context: &CallContext<'_>) -> String {
    match argument(values, 0) {
        Datum::Bool(value) => value.to_string(),
        _ => shown(types, values, 0, context),
    }
}

fn invalid_escape() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "invalid Unicode escape")
        .hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
}

/// The number of an escape, behind its backslash.
fn escaped(chars: &mut Peekable<Chars<'_>>) -> SqlResult<u32> {
    let digits = if chars.next_if_eq(&'+').is_some() {
        6
    } else if chars.next_if_eq(&'u').is_some() {
        4
    } else if chars.next_if_eq(&'U').is_some() {
        8
    } else {
        4
    };
    let mut code = 0u32;
    for _ in 0..digits {
        let digit = chars.next().and_then(|digit| digit.to_digit(16)).ok_or_else(invalid_escape)?;
        code = (code << 4) | digit;
    }
    if !(1..=0x0010_FFFF).contains(&code) {
        let message = format!("invalid Unicode code point: {code:04X}");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    Ok(code)
}

/// A text without its escapes.
fn unescaped(value: &str) -> SqlResult<String> {
    let lone = || SqlError::new(SqlState::SYNTAX_ERROR, "invalid Unicode surrogate pair");
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars().peekable();
    // The first half of a pair of UTF-16.
    let mut first: Option<u32> = None;
    while let Some(c) = chars.next() {
        if c != '\\' || chars.next_if_eq(&'\\').is_some() {
            if first.is_some() {
                return Err(lone());
            }
            out.push(c);
            continue;
        }
        let code = match (first.take(), escaped(&mut chars)?) {
            (None, code @ 0xD800..=0xDBFF) => {
                first = Some(code);
                continue;
            }
            (Some(high), low @ 0xDC00..=0xDFFF) => {
                0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00)
            }
            (Some(_), _) => return Err(lone()),
            (None, code) => code,
        };
        out.push(char::from_u32(code).ok_or_else(lone)?);
    }
    if first.is_some() { Err(lone()) } else { Ok(out) }
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    table.add_typed("format", "lax stable text -> text", format);
    table.add_typed("format", "lax stable text variadic any -> text", format);
    for signature in ["text -> text", "stable anyelement -> text"] {
        table.add_typed("quote_literal", signature, |types, v, context| {
            Ok(Datum::text(quote_literal(&as_text(types, v, context))))
        });
    }
    for signature in ["lax text -> text", "lax stable anyelement -> text"] {
        table.add_typed("quote_nullable", signature, |types, v, context| {
            Ok(Datum::text(match argument(v, 0) {
                Datum::Null => "NULL".to_owned(),
                _ => quote_literal(&as_text(types, v, context)),
            }))
        });
    }
    table.add("unistr", "text -> text", |v, _| unescaped(text(v, 0)?).map(Datum::text));
}

#[cfg(test)]
mod tests {
    use super::super::testing::call;
    use super::unescaped;
    use crate::error::SqlState;

    #[test]
    fn widths_are_taken_from_arguments() {
        for (arguments, result) in [
            (&["%*s|", "int4:5", "text:a"][..], "    a|"),
            (&["%*s|", "int4:-5", "text:a"], "a    |"),
            (&["%-*s|", "int4:5", "text:a"], "a    |"),
            (&["%2$*1$s|", "int4:3", "text:a"], "  a|"),
            (&["%*s|", "int4:NULL", "text:a"], "a|"),
            (&["%5s|%-5s|", "text:a", "text:b"], "    a|b    |"),
            (&["%1$s %1$L %s", "text:a", "text:b"], "a 'a' b"),
        ] {
            assert_eq!(call("format", arguments).unwrap(), result, "{arguments:?}");
        }
        for (arguments, state) in [
            (&["%*x$s", "int4:5"][..], SqlState::INVALID_PARAMETER),
            (&["%I", "text:NULL"], SqlState::NULL_VALUE_NOT_ALLOWED),
            (&["%", "int4:5"], SqlState::INVALID_PARAMETER),
            (&["%*s", "text:x", "text:y"], SqlState::INVALID_TEXT),
            (&["%3$s", "text:x"], SqlState::INVALID_PARAMETER),
        ] {
            assert_eq!(call("format", arguments).unwrap_err().state(), state, "{arguments:?}");
        }
    }

    #[test]
    fn escapes_of_characters_are_read() {
        assert_eq!(unescaped(r"\0441\+000441 \\ \u0441").unwrap(), "сс \\ с");
        assert_eq!(unescaped(r"\d83d\de00\U0001F600").unwrap(), "😀😀");
        for wrong in [r"\d83dx", r"\d83d", r"\de00", r"\zz", r"a\", r"\+110000", r"\0000"] {
            assert!(unescaped(wrong).is_err(), "{wrong}");
        }
    }
}
