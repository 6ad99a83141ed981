//! `to_char` of moments, and `to_date` and `to_timestamp`, which read what it prints.

use std::fmt::Write;

use super::CallContext;
use super::arguments::{argument, text};
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::calendar::{self, DAY_US, Day, SECOND_US, TimeOfDay};
use crate::types::time_print::{DAYS, MONTHS};
use crate::types::{Datum, Scalar};

/// The patterns; of those that begin alike the longer come first.
const PATTERNS: [&str; 57] = [
    "A.D.", "a.d.", "B.C.", "b.c.", "A.M.", "P.M.", "a.m.", "p.m.", "SSSSS", "SSSS", "Y,YYY",
    "YYYY", "IYYY", "MONTH", "Month", "month", "HH24", "HH12", "YYY", "IYY", "IDDD", "DDD", "DAY",
    "Day", "day", "MON", "Mon", "mon", "TZH", "TZM", "tzh", "tzm", "YY", "IY", "ID", "IW", "WW",
    "MM", "MI", "MS", "US", "SS", "HH", "DD", "DY", "Dy", "dy", "AM", "PM", "am", "pm", "TZ", "tz",
    "OF", "CC", "AD", "BC",
];
/// Patterns of one character.
const SHORT_PATTERNS: [char; 6] = ['Y', 'I', 'D', 'W', 'Q', 'J'];

/// A piece of a format.
#[derive(Clone, Copy)]
enum Piece<'a> {
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
fn pieces(format: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut rest = format;
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('"') {
            let (literal, tail) = tail.split_once('"').unwrap_or((tail, ""));
            found.push(Piece::Literal(literal));
            rest = tail;
            continue;
        }
        let (is_tight, tail) = match rest.strip_prefix("FM") {
            Some(tail) => (true, tail),
            None => (false, rest),
        };
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
            "us" => (time.microsecond, 6),
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

/// What a text told by its format.
struct Told {
    day: Day,
    day_of_year: Option<i64>,
    time: TimeOfDay,
    microseconds: i64,
    is_pm: Option<bool>,
    is_bc: bool,
    zone: ToldZone,
}

/// A distance to UTC that a text told.
#[derive(Clone, Copy)]
struct ToldZone {
    is_told: bool,
    is_west: bool,
    hours: i64,
    minutes: i64,
}

impl ToldZone {
    /// The offset in seconds, if hours were told; minutes alone tell no sign.
    fn offset_s(self, whole: &str) -> SqlResult<Option<i64>> {
        if self.hours > 15 || self.minutes > 59 {
            return Err(SqlError::new(
                SqlState::DATETIME_OVERFLOW,
                format!("date/time field value out of range: \"{whole}\""),
            ));
        }
        let distance = self.hours * 3600 + self.minutes * 60;
        Ok(self.is_told.then_some(if self.is_west { -distance } else { distance }))
    }
}

fn invalid(value: &str, pattern: &str) -> SqlError {
    SqlError::new(
        SqlState::INVALID_DATETIME,
        format!("invalid value \"{value}\" for \"{pattern}\""),
    )
}

/// Takes a number of at most so many digits off the front.
fn take_number(rest: &mut &str, most: usize, pattern: &str) -> SqlResult<(i64, usize)> {
    let trimmed = rest.trim_start();
    let digits = trimmed.bytes().take(most).take_while(u8::is_ascii_digit).count();
    let (number, tail) = trimmed.split_at(digits);
    let shown: String = trimmed.chars().take(most).collect();
    let value = number.parse().map_err(|_| invalid(&shown, pattern))?;
    *rest = tail;
    Ok((value, digits))
}

fn take_name(rest: &mut &str, names: &[&str], is_short: bool, pattern: &str) -> SqlResult<i64> {
    let trimmed = rest.trim_start();
    for (name, at) in names.iter().zip(1..) {
        let name = if is_short { name.get(..3).unwrap_or_default() } else { name };
        let found = trimmed.get(..name.len()).filter(|found| found.eq_ignore_ascii_case(name));
        if found.is_some() {
            *rest = trimmed.get(name.len()..).unwrap_or_default();
            return Ok(at);
        }
    }
    Err(invalid(trimmed.split_whitespace().next().unwrap_or_default(), pattern))
}

impl Told {
    fn take(&mut self, name: &str, is_last_digit: bool, rest: &mut &str) -> SqlResult<()> {
        let lower = name.to_ascii_lowercase();
        match lower.as_str() {
            "yyyy" => {
                let most = if is_last_digit { 9 } else { 4 };
                self.day.year = take_number(rest, most, name)?.0;
            }
            "yyy" | "yy" | "y" => {
                let (year, _) = take_number(rest, name.len(), name)?;
                // The year that is nearest to 2020.
                self.day.year = match year {
                    year if year < 70 => 2000 + year,
                    year if year < 100 => 1900 + year,
                    year if year < 520 => 2000 + year,
                    year => 1000 + year,
                };
            }
            "mm" => self.day.month = take_number(rest, 2, name)?.0,
            "month" => self.day.month = take_name(rest, &MONTHS, false, name)?,
            "mon" => self.day.month = take_name(rest, &MONTHS, true, name)?,
            "day" => drop(take_name(rest, &DAYS, false, name)?),
            "dy" => drop(take_name(rest, &DAYS, true, name)?),
            "dd" => self.day.day = take_number(rest, 2, name)?.0,
            "ddd" => self.day_of_year = Some(take_number(rest, 3, name)?.0),
            "hh24" | "hh" | "hh12" => self.time.hour = take_number(rest, 2, name)?.0,
            "mi" => self.time.minute = take_number(rest, 2, name)?.0,
            "ss" => self.time.second = take_number(rest, 2, name)?.0,
            "ms" | "us" => {
                let most = if lower == "ms" { 3 } else { 6 };
                let (number, digits) = take_number(rest, most, name)?;
                // A fraction: 5 of MS is half a second.
                let power = u32::try_from(6usize.saturating_sub(digits)).unwrap_or(0);
                self.microseconds = number * 10i64.pow(power);
            }
            "am" | "pm" | "a.m." | "p.m." => {
                let names = ["am", "pm", "a.m.", "p.m."];
                self.is_pm = Some(take_name(rest, &names, false, name)? % 2 == 0);
            }
            "ad" | "bc" | "a.d." | "b.c." => {
                let names = ["ad", "bc", "a.d.", "b.c."];
                self.is_bc = take_name(rest, &names, false, name)? % 2 == 0;
            }
            "tzh" => {
                let trimmed = rest.trim_start();
                self.zone.is_told = true;
                self.zone.is_west = trimmed.starts_with('-');
                *rest = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
                self.zone.hours = take_number(rest, 2, name)?.0;
            }
            "tzm" => self.zone.minutes = take_number(rest, 2, name)?.0,
            "tz" | "of" => {
                return Err(SqlError::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("formatting field \"{name}\" is only supported in to_char"),
                ));
            }
            _ => {
                return Err(SqlError::unsupported(format!(
                    "formatting field \"{name}\" in to_date"
                )));
            }
        }
        Ok(())
    }

    /// The local time in microseconds.
    fn us(mut self, whole: &str) -> SqlResult<i128> {
        let failed = || {
            SqlError::new(
                SqlState::DATETIME_OVERFLOW,
                format!("date/time field value out of range: \"{whole}\""),
            )
        };
        if self.is_bc {
            self.day.year = 1 - self.day.year;
        }
        if let Some(pm) = self.is_pm {
            if !(1..=12).contains(&self.time.hour) {
                return Err(failed());
            }
            self.time.hour = self.time.hour % 12 + if pm { 12 } else { 0 };
        }
        let TimeOfDay { hour, minute, second, .. } = self.time;
        if !self.day.is_valid() || hour > 23 || minute > 59 || second > 59 {
            return Err(failed());
        }
        let mut day = self.day.number();
        if let Some(of_year) = self.day_of_year {
            if !(1..=366).contains(&of_year) {
                return Err(failed());
            }
            day = Day { year: self.day.year, month: 1, day: 1 }.number() + of_year - 1;
        }
        let us = i128::from(day) * i128::from(DAY_US);
        Ok(us + i128::from(self.time.us() + self.microseconds))
    }
}

/// Reads a text by a format: the local time, and the offset if the text told one.
fn read(value: &str, format: &str) -> SqlResult<(i128, Option<i64>)> {
    let mut told = Told {
        day: Day { year: 1, month: 1, day: 1 },
        day_of_year: None,
        time: TimeOfDay::of_us(0),
        microseconds: 0,
        is_pm: None,
        is_bc: false,
        zone: ToldZone { is_told: false, is_west: false, hours: 0, minutes: 0 },
    };
    let mut rest = value;
    let pieces = pieces(format);
    let mut pieces = pieces.iter().peekable();
    while let Some(piece) = pieces.next() {
        match piece {
            Piece::Literal(literal) => {
                // Any separator stands for any other; spaces are skipped before numbers anyway.
                for c in literal.chars() {
                    let next = rest.chars().next();
                    let is_skipped = match c.is_alphanumeric() {
                        true => next.is_some(),
                        false => next.is_some_and(|next| !next.is_alphanumeric()),
                    };
                    if is_skipped {
                        rest = rest.get(next.map_or(0, char::len_utf8)..).unwrap_or_default();
                    }
                }
            }
            Piece::Pattern { name, ordinal, .. } => {
                // A year before another number has four digits, else as many as there are.
                let is_last_digit = !matches!(pieces.peek(), Some(Piece::Pattern { .. }));
                told.take(name, is_last_digit, &mut rest)?;
                if ordinal.is_some() {
                    rest = rest.get(2..).unwrap_or_default();
                }
            }
        }
    }
    let offset_s = told.zone.offset_s(value)?;
    Ok((told.us(value)?, offset_s))
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for signature in [
        "stable timestamp text -> text",
        "stable timestamptz text -> text",
        "interval text -> text",
    ] {
        table.add_typed("to_char", signature, print);
    }
    table.add("to_date", "text text -> date", |v, _| {
        let (us, _) = read(text(v, 0)?, text(v, 1)?)?;
        let days = i64::try_from(us.div_euclid(i128::from(DAY_US)));
        calendar::checked_date(days.map_err(|_| calendar::date_out_of_range())?).map(Datum::Date)
    });
    table.add("to_timestamp", "stable text text -> timestamptz", |v, context| {
        let (us, offset_s) = read(text(v, 0)?, text(v, 1)?)?;
        let moment = match offset_s {
            Some(offset_s) => {
                calendar::checked_timestamp(us - i128::from(offset_s) * i128::from(SECOND_US))?
            }
            None => context.settings.time_zone.to_moment(calendar::checked_timestamp(us)?)?,
        };
        Ok(Datum::Timestamp(moment))
    });
}
