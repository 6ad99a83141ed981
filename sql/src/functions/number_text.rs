//! `to_char` of numbers, and `to_number`.

use bigdecimal::{BigDecimal, Signed};

use super::arguments::{argument, text};
use super::signature::{Body, Table};
use super::{CallContext, arguments};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::text_format::{natural_type, to_string};
use crate::types::{Datum, FormatSettings, numeric};

/// Where the sign goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// Before the first digit, with a space for a plus.
    Default,
    /// `S` before the digits.
    Before,
    /// `S` behind them.
    After,
    /// `MI`: a minus or a space where it stands.
    Minus,
    /// `PR`: angle brackets.
    Brackets,
}

/// A format of numbers.
struct Format {
    /// The characters before the point: digits `9` and `0`, and what stands between them.
    before: Vec<char>,
    after: Vec<char>,
    has_point: bool,
    sign: Sign,
    is_tight: bool,
    /// Whether a minus of `MI` comes first.
    minus_first: bool,
}

fn parse(format: &str) -> SqlResult<Format> {
    let mut found = Format {
        before: Vec::new(),
        after: Vec::new(),
        has_point: false,
        sign: Sign::Default,
        is_tight: false,
        minus_first: false,
    };
    let mut rest = format;
    while let Some(c) = rest.chars().next() {
        let upper = rest.get(..2).unwrap_or_default().to_ascii_uppercase();
        let is_start = found.before.is_empty() && !found.has_point;
        let mut length = c.len_utf8();
        match (upper.as_str(), c.to_ascii_uppercase()) {
            ("FM", _) => (found.is_tight, length) = (true, 2),
            ("MI", _) => {
                (found.sign, found.minus_first, length) = (Sign::Minus, is_start, 2);
            }
            ("PR", _) => (found.sign, length) = (Sign::Brackets, 2),
            ("EE" | "TH" | "RN" | "PL" | "SG", _) => {
                return Err(SqlError::unsupported(format!("the number format \"{upper}\"")));
            }
            (_, 'S') => found.sign = if is_start { Sign::Before } else { Sign::After },
            (_, '.' | 'D') if found.has_point => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "multiple decimal points"));
            }
            (_, '.' | 'D') => found.has_point = true,
            (_, 'V') => return Err(SqlError::unsupported("the number format \"V\"")),
            (_, '"') => return Err(SqlError::unsupported("a text within a number format")),
            (_, other) => {
                let shown = match other {
                    'G' => ',',
                    // The sign of the currency of the locale "C".
                    'L' => ' ',
                    _ => c,
                };
                let part = if found.has_point { &mut found.after } else { &mut found.before };
                part.push(shown);
            }
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(found)
}

fn is_digit(c: &char) -> bool {
    matches!(c, '9' | '0')
}

/// Longest format of a number, in bytes.
const LONGEST_FORMAT: usize = 8192;

fn print(value: Option<&BigDecimal>, format: &str) -> SqlResult<String> {
    if format.len() > LONGEST_FORMAT {
        let message = format!("a number format has at most {LONGEST_FORMAT} bytes");
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    let format = parse(format)?;
    let decimals = format.after.iter().filter(|c| is_digit(c)).count();
    let places = format.before.iter().filter(|c| is_digit(c)).count();
    let rounded = value.map(|value| numeric::round(value, decimals as i64)).transpose()?;
    let is_negative = rounded.as_ref().is_some_and(Signed::is_negative);
    let mut shown = String::new();
    if let Some(value) = &rounded {
        numeric::print(&value.abs(), &mut shown);
    }
    let (whole, fraction) = shown.split_once('.').unwrap_or((&shown, ""));
    // A number below 1 has no digit before its point, unless a 0 asks for it.
    let whole = if whole == "0" && decimals > 0 && format.has_point { "" } else { whole };
    let overflows = rounded.is_none() || whole.len() > places;
    let digits: Vec<char> = format!("{whole:>places$}").chars().collect();
    let first_zero = format.before.iter().filter(|c| is_digit(c)).position(|c| *c == '0');
    let mut body = String::new();
    let (mut at, mut has_begun) = (0, false);
    for c in &format.before {
        if is_digit(c) {
            let digit = digits.get(at).copied().unwrap_or(' ');
            let is_forced = first_zero.is_some_and(|zero| at >= zero);
            let digit = match digit {
                _ if overflows => '#',
                ' ' if is_forced => '0',
                digit => digit,
            };
            has_begun |= digit != ' ';
            body.push(digit);
            at += 1;
        } else {
            // A separator before the first digit is a space.
            body.push(if has_begun || *c != ',' { *c } else { ' ' });
        }
    }
    if format.has_point {
        body.push('.');
        let mut digits = fraction.chars();
        let kept = format.after.iter().rposition(|c| *c == '0').map_or(0, |at| at + 1);
        let significant = fraction.trim_end_matches('0').len();
        for (at, c) in format.after.iter().enumerate() {
            if !is_digit(c) {
                body.push(*c);
                continue;
            }
            let digit = digits.next().unwrap_or('0');
            // Without padding, zeroes at the end go that no 0 asks for.
            if !format.is_tight || at < kept.max(significant) || overflows {
                body.push(if overflows { '#' } else { digit });
            }
        }
    }
    Ok(with_sign(&format, body, is_negative))
}

fn with_sign(format: &Format, body: String, is_negative: bool) -> String {
    let trimmed = body.trim_start();
    let padding = body.len() - trimmed.len();
    let padding = if format.is_tight { 0 } else { padding };
    let sign = |plus: &'static str| if is_negative { "-" } else { plus };
    let blank = if format.is_tight { "" } else { " " };
    let spaces = " ".repeat(padding);
    match format.sign {
        Sign::Default => format!("{spaces}{}{trimmed}", sign(blank)),
        Sign::Before => format!("{spaces}{}{trimmed}", sign("+")),
        Sign::After => format!("{spaces}{trimmed}{}", sign("+")),
        Sign::Minus if format.minus_first => format!("{}{spaces}{trimmed}", sign(blank)),
        Sign::Minus => format!("{spaces}{trimmed}{}", sign(blank)),
        Sign::Brackets if is_negative => format!("{spaces}<{trimmed}>"),
        Sign::Brackets => format!("{blank}{spaces}{trimmed}{blank}"),
    }
}

/// The value as a number; a float that is not finite is none.
fn number_of(values: &[Datum]) -> Option<BigDecimal> {
    let value = argument(values, 0);
    let shown = to_string(value, natural_type(value), &FormatSettings::default());
    numeric::parse(&shown)?.ok()?
}

fn to_number(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let value = arguments::text(values, 0)?;
    parse(text(values, 1)?)?;
    let digits: String = value.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    let is_negative = value.contains('-') || value.trim_start().starts_with('<');
    let signed = if is_negative { format!("-{digits}") } else { digits };
    match numeric::parse(&signed) {
        Some(value) => Ok(value?.map_or(numeric::NAN, numeric::datum)),
        None => Err(crate::types::text_format::invalid_text("numeric", value)),
    }
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for signature in [
        "int4 text -> text",
        "int8 text -> text",
        "float4 text -> text",
        "float8 text -> text",
        "numeric text -> text",
    ] {
        table.add("to_char", signature, |v, _| {
            print(number_of(v).as_ref(), text(v, 1)?).map(Datum::text)
        });
    }
    table.add("to_number", "text text -> numeric", to_number);
}
