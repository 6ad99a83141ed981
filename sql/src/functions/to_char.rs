//! `to_char` of moments, and the patterns that its formats are made of.

use std::fmt::Write;

use super::CallContext;
use super::arguments::{argument, text};
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult};
use crate::types::calendar::{self, Day, SECOND_US, TimeOfDay};
use crate::types::time_print::{DAYS, MONTHS};
use crate::types::{Datum, Scalar};

/// The patterns; of those that begin alike the longer come first.
const PATTERNS: [&str; 65] = [
    "A.D.", "a.d.", "B.C.", "b.c.", "A.M.", "P.M.", "a.m.", "p.m.", "SSSSS", "SSSS", "Y,YYY",
    "YYYY", "IYYY", "MONTH", "Month", "month", "HH24", "HH12", "YYY", "IYY", "IDDD", "DDD", "DAY",
    "Day", "day", "MON", "Mon", "mon", "TZH", "TZM", "tzh", "tzm", "YY", "IY", "ID", "IW", "WW",
    "MM", "MI", "MS", "US", "SS", "HH", "DD", "DY", "Dy", "dy", "AM", "PM", "am", "pm", "TZ", "tz",
    "OF", "CC", "AD", "BC", "RM", "rm", "FF1", "FF2", "FF3", "FF4", "FF5", "FF6",
];
/// Patterns of one character.
const SHORT_PATTERNS: [char; 6] = ['Y', 'I', 'D', 'W', 'Q', 'J'];

/// The months in Roman numerals.
const ROMAN_MONTHS: [&str; 12] =
    ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii"];

/// A piece of a format.
#[derive(Clone, Copy)]
pub(super) enum Piece<'a> {
    Pattern {
        name: &'a str,
        /// Without padding.
        is_tight: bool,
        /// With the ending of an ordinal number.
        ordinal: Option<&'a str>,
    },
    Literal(&'a str),
}

/// Splits a format into patterns and what stands between them.
pub(super) fn pieces(format: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut rest = format;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('"') {
            let (literal, tail) = tail.split_once('"').unwrap_or((tail, ""));
            found.push(Piece::Literal(literal));
            rest = tail;
            continue;
        }
        // Words of the locale are those of "C", which are not filled up.
        let tail = rest.trim_start_matches("FM");
        let tail = tail.strip_prefix("TM").unwrap_or(tail);
        let is_tight = tail.len() < rest.len();
        let upper: String = tail.chars().take(5).collect::<String>().to_ascii_uppercase();
        let named = PATTERNS
            .iter()
            .find(|name| tail.starts_with(**name))
            .or_else(|| PATTERNS.iter().find(|name| upper.starts_with(**name) && name.len() > 1));
        let short =
            || tail.chars().next().filter(|c| SHORT_PATTERNS.contains(&c.to_ascii_uppercase()));
        let length = named.map(|name| name.len()).or_else(|| short().map(char::len_utf8));
        let Some(length) = length else {
            // What is no pattern stands for itself, an FM before it for nothing.
            let end = tail.chars().next().map_or(0, char::len_utf8);
            let (literal, after) = tail.split_at(end);
            found.push(Piece::Literal(literal));
            rest = after;
            continue;
        };
        let name = named.copied().unwrap_or_else(|| tail.get(..length).unwrap_or_default());
        rest = tail.get(length..).unwrap_or_default();
        let ordinal = ["TH", "th"].into_iter().find(|ending| rest.starts_with(*ending));
        if ordinal.is_some() {
            rest = rest.get(2..).unwrap_or_default();
        }
        found.push(Piece::Pattern { name, is_tight, ordinal });
    }
    found
}

/// What is printed.
struct Moment {
    day: Day,
    time: TimeOfDay,
    offset_s: i32,
    zone: String,
}

fn ordinal_ending(number: i64) -> &'static str {
    match (number.abs() % 100, number.abs() % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}

/// A word in the case of its pattern, filled up to a width.
fn word(name: &str, pattern: &str, width: usize, is_tight: bool) -> String {
    let cased = match pattern.chars().nth(1) {
        Some(c) if c.is_uppercase() => name.to_uppercase(),
        _ if pattern.starts_with(char::is_uppercase) => name.to_owned(),
        _ => name.to_lowercase(),
    };
    if is_tight { cased } else { format!("{cased:<width$}") }
}

impl Moment {
    fn print(&self, name: &str, is_tight: bool, ordinal: Option<&str>, out: &mut String) {
        let month = MONTHS.get(usize::try_from(self.day.month - 1).unwrap_or(0));
        let month = month.copied().unwrap_or_default();
        let weekday = DAYS.get(usize::try_from(self.day.day_of_week()).unwrap_or(0));
        let weekday = weekday.copied().unwrap_or_default();
        let short = |name: &str| name.get(..3).unwrap_or_default().to_owned();
        let lower = name.to_ascii_lowercase();
        let text = match lower.as_str() {
            "month" => Some(word(month, name, 9, is_tight)),
            "mon" => Some(word(&short(month), name, 3, is_tight)),
            "day" => Some(word(weekday, name, 9, is_tight)),
            "dy" => Some(word(&short(weekday), name, 3, is_tight)),
            "am" | "pm" | "a.m." | "p.m." => {
                let half = if self.time.hour % 24 >= 12 { "pm" } else { "am" };
                Some(of_case(half, name))
            }
            "ad" | "bc" | "a.d." | "b.c." => {
                Some(of_case(if self.day.year > 0 { "ad" } else { "bc" }, name))
            }
            "tz" => Some(match name.starts_with('t') {
                true => self.zone.to_lowercase(),
                false => self.zone.clone(),
            }),
            "of" | "tzh" | "tzm" => Some(self.offset(&lower)),
            "rm" => {
                let at = usize::try_from(self.day.month - 1).ok();
                let roman = at.and_then(|at| ROMAN_MONTHS.get(at)).copied().unwrap_or_default();
                let width = if is_tight { 0 } else { 4 };
                Some(format!("{:<width$}", of_case(roman, name)))
            }
            "y,yyy" => {
                let (year, _) = self.number("yyyy");
                Some(format!("{},{:03}", year / 1000, year % 1000))
            }
            _ => None,
        };
        if let Some(text) = text {
            return out.push_str(&text);
        }
        let (number, width) = self.number(&lower);
        let width = if is_tight { 0 } else { width };
        let _ = match number < 0 {
            true => write!(out, "-{:0width$}", -number),
            false => write!(out, "{number:0width$}"),
        };
        if let Some(ending) = ordinal {
            let text = ordinal_ending(number);
            out.push_str(&if ending == "TH" { text.to_uppercase() } else { text.to_owned() });
        }
    }

    fn offset(&self, pattern: &str) -> String {
        let sign = if self.offset_s < 0 { '-' } else { '+' };
        let (hours, minutes) = (self.offset_s.abs() / 3600, self.offset_s.abs() / 60 % 60);
        match pattern {
            "tzm" => format!("{minutes:02}"),
            "of" if minutes != 0 => format!("{sign}{hours:02}:{minutes:02}"),
            _ => format!("{sign}{hours:02}"),
        }
    }

    /// The number of a pattern, and how many digits it has at least.
    fn number(&self, pattern: &str) -> (i64, usize) {
        let Self { day, time, .. } = *self;
        let year = if day.year > 0 { day.year } else { 1 - day.year };
        let (iso_year, iso_week) = day.iso_week();
        match pattern {
            "hh24" => (time.hour, 2),
            "hh" | "hh12" => ((time.hour + 11) % 12 + 1, 2),
            "mi" => (time.minute, 2),
            "ss" => (time.second, 2),
            "ms" => (time.microsecond / 1000, 3),
            "us" | "ff6" => (time.microsecond, 6),
            "ff1" => (time.microsecond / 100_000, 1),
            "ff2" => (time.microsecond / 10_000, 2),
            "ff3" => (time.microsecond / 1000, 3),
            "ff4" => (time.microsecond / 100, 4),
            "ff5" => (time.microsecond / 10, 5),
            "ssss" | "sssss" => (time.us() / SECOND_US, 0),
            "yyyy" => (year, 4),
            "yyy" => (year % 1000, 3),
            "yy" => (year % 100, 2),
            "y" => (year % 10, 1),
            "iyyy" => (iso_year, 4),
            "iyy" => (iso_year % 1000, 3),
            "iy" => (iso_year % 100, 2),
            "i" => (iso_year % 10, 1),
            "mm" => (day.month, 2),
            "ddd" => (day.day_of_year(), 3),
            "iddd" => ((iso_week - 1) * 7 + (day.day_of_week() + 6) % 7 + 1, 3),
            "dd" => (day.day, 2),
            "d" => (day.day_of_week() + 1, 1),
            "id" => ((day.day_of_week() + 6) % 7 + 1, 1),
            "w" => ((day.day - 1) / 7 + 1, 1),
            "ww" => ((day.day_of_year() - 1) / 7 + 1, 2),
            "iw" => (iso_week, 2),
            "q" => ((day.month - 1) / 3 + 1, 1),
            "cc" => ((year + 99) / 100, 2),
            "j" => (day.number() + 2_451_545, 1),
            _ => (year, 1),
        }
    }
}

/// `am` as `A.M.`, `PM` or another of its kind.
fn of_case(text: &str, pattern: &str) -> String {
    let dotted: String = match pattern.contains('.') {
        true => text.chars().flat_map(|c| [c, '.']).collect(),
        false => text.to_owned(),
    };
    if pattern.starts_with(char::is_uppercase) { dotted.to_uppercase() } else { dotted }
}

fn print(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let mut moment = Moment {
        day: Day { year: 0, month: 1, day: 1 },
        time: TimeOfDay::of_us(0),
        offset_s: 0,
        zone: String::new(),
    };
    let value = argument(values, 0);
    if let Datum::Timestamp(us) = value
        && types.argument(0).scalar == Scalar::TimestampTz
    {
        let clock = context.settings.time_zone.clock_at(*us);
        (moment.offset_s, moment.zone) = (clock.offset_s, clock.abbreviation);
    }
    match value {
        Datum::Timestamp(us) if !calendar::is_finite(*us) => return Ok(Datum::Null),
        Datum::Timestamp(us) => {
            let (number, of_day) = calendar::split(calendar::shift(*us, moment.offset_s)?);
            moment.day = Day::of_number(number);
            moment.time = TimeOfDay::of_us(of_day);
        }
        Datum::Interval(value) => {
            let months = i64::from(value.months);
            moment.day = Day { year: months / 12, month: months % 12, day: i64::from(value.days) };
            moment.time = TimeOfDay::of_us(value.microseconds);
        }
        _ => return Err(SqlError::internal("to_char of what is no moment")),
    }
    let mut out = String::new();
    for piece in pieces(text(values, 1)?) {
        match piece {
            Piece::Literal(literal) => out.push_str(literal),
            Piece::Pattern { name, is_tight, ordinal } => {
                moment.print(name, is_tight, ordinal, &mut out);
            }
        }
    }
    Ok(Datum::text(out))
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for signature in [
        "stable timestamp text -> text",
        "stable timestamptz text -> text",
        "interval text -> text",
    ] {
        table.add_typed("to_char", signature, print);
    }
}
