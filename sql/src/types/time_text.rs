//! Dates, times and timestamps as texts.

use std::fmt::Write;

use super::calendar::{
    self, DATE_INFINITY, DATE_MINUS_INFINITY, DAY_US, Day, INFINITY, MINUS_INFINITY, SECOND_US,
    TimeOfDay,
};
use super::settings::{DateOrder, DateStyle, FormatSettings, TimeZone, parse_offset};
use crate::error::{SqlError, SqlResult, SqlState};

/// Names of months.
pub(crate) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Names of days; the week begins on Sunday.
pub(crate) const DAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Longest text that is looked at.
const MAX_TEXT: usize = 128;

/// The parts that a text has.
#[derive(Default)]
struct Parts {
    day: Option<Day>,
    time_us: Option<i64>,
    offset_s: Option<i32>,
    is_bc: bool,
    special: Option<Special>,
}

#[derive(Clone, Copy)]
enum Special {
    Infinity,
    MinusInfinity,
    Epoch,
}

/// Why a text is no date or time.
enum Problem {
    Syntax,
    Range,
    Unsupported(&'static str),
}

fn error(problem: &Problem, text: &str, ty: &str) -> SqlError {
    match problem {
        Problem::Syntax => SqlError::new(
            SqlState::INVALID_DATETIME,
            format!("invalid input syntax for type {ty}: \"{text}\""),
        ),
        Problem::Range => SqlError::new(
            SqlState::DATETIME_OVERFLOW,
            format!("date/time field value out of range: \"{text}\""),
        ),
        Problem::Unsupported(word) => {
            SqlError::unsupported(format!("the date/time input value \"{word}\""))
        }
    }
}

/// Splits a text where spaces, or a `T` between digits, separate date and time.
fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in text.split(|c: char| c.is_ascii_whitespace() || c == ',') {
        if word.is_empty() {
            continue;
        }
        let folded = word.to_ascii_lowercase();
        let separator = folded.find('t').filter(|&at| {
            let before = folded.get(..at).unwrap_or_default();
            let after = folded.get(at + 1..).unwrap_or_default();
            before.ends_with(|c: char| c.is_ascii_digit())
                && (after.starts_with(|c: char| c.is_ascii_digit()))
        });
        match separator.and_then(|at| Some((folded.get(..at)?, folded.get(at + 1..)?))) {
            Some((date, time)) => {
                found.push(date.to_owned());
                found.push(time.to_owned());
            }
            None => found.push(folded),
        }
    }
    found
}

fn month_of(word: &str) -> Option<i64> {
    let is_month = |name: &&'static str| {
        let name = name.to_ascii_lowercase();
        name == word
            || name.get(..3) == Some(word.trim_end_matches('.'))
            || (word == "sept" && name == "september")
    };
    MONTHS.iter().position(is_month).map(|at| at as i64 + 1)
}

fn is_weekday(word: &str) -> bool {
    DAYS.iter().any(|name| {
        let name = name.to_ascii_lowercase();
        name == word || (word.len() >= 3 && name.starts_with(word))
    })
}

fn number(text: &str) -> Option<i64> {
    let is_number = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// A year of two digits is one of 1970 to 2069.
fn year(text: &str) -> Option<i64> {
    let year = number(text)?;
    Some(match (text.len(), year) {
        (1 | 2, 0..70) => 2000 + year,
        (1 | 2, _) => 1900 + year,
        _ => year,
    })
}

/// A fraction of a second, in microseconds, rounded.
fn fraction_us(digits: &str) -> Option<i64> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: f64 = format!("0.{digits}0").parse().ok()?;
    #[expect(clippy::cast_possible_truncation, reason = "it is at most a million")]
    Some((value * 1e6).round() as i64)
}

/// `hh:mm[:ss[.ffffff]]`, in microseconds.
fn time_of(text: &str) -> Result<i64, Problem> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = whole.split(':').map(|part| number(part).filter(|_| part.len() <= 2));
    let mut next = || parts.next().unwrap_or(Some(0)).ok_or(Problem::Syntax);
    let (hour, minute, second) = (next()?, next()?, next()?);
    if parts.next().is_some() {
        return Err(Problem::Syntax);
    }
    let microsecond = fraction_us(fraction).ok_or(Problem::Syntax)?;
    let us = TimeOfDay { hour, minute, second, microsecond }.us();
    if hour > 24 || minute > 59 || second > 60 || us > DAY_US {
        return Err(Problem::Range);
    }
    Ok(us)
}

/// A time with what may follow it: a distance to UTC.
fn time_and_offset(word: &str, parts: &mut Parts) -> Result<(), Problem> {
    let end = word.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'));
    let (time, zone) = word.split_at(end.unwrap_or(word.len()));
    parts.time_us = Some(time_of(time)?);
    match zone {
        "" => Ok(()),
        "am" | "pm" => meridiem(zone, parts),
        _ => set_offset(zone, parts),
    }
}

fn set_offset(zone: &str, parts: &mut Parts) -> Result<(), Problem> {
    let parsed = parse_offset(zone).or_else(|| {
        let is_name = zone.starts_with(|c: char| c.is_ascii_alphabetic());
        is_name.then(|| TimeZone::parse(zone).ok()).flatten().map(|zone| zone.offset_s)
    });
    parts.offset_s = Some(parsed.ok_or(Problem::Syntax)?);
    Ok(())
}

fn meridiem(word: &str, parts: &mut Parts) -> Result<(), Problem> {
    let noon = DAY_US / 2;
    let us = parts.time_us.ok_or(Problem::Syntax)?;
    if us >= noon + 3600 * SECOND_US {
        return Err(Problem::Range);
    }
    parts.time_us = Some(match (word, us >= noon) {
        ("am", true) => us - noon,
        ("pm", false) => us + noon,
        _ => us,
    });
    Ok(())
}

/// A date of digits and separators.
fn date_of(word: &str, order: DateOrder) -> Result<Day, Problem> {
    if let Some(all) = number(word).filter(|_| word.len() == 8) {
        return Ok(Day { year: all / 10_000, month: all / 100 % 100, day: all % 100 });
    }
    let parts: Vec<&str> = word.split(['-', '/', '.']).collect();
    let [a, b, c] = parts.as_slice() else { return Err(Problem::Syntax) };
    let day = || -> Option<Day> {
        if let Some(month) = month_of(b) {
            return Some(if a.len() > 2 {
                Day { year: year(a)?, month, day: number(c)? }
            } else {
                Day { year: year(c)?, month, day: number(a)? }
            });
        }
        if let Some(month) = month_of(a) {
            return Some(Day { year: year(c)?, month, day: number(b)? });
        }
        Some(if a.len() > 2 || order == DateOrder::Ymd {
            Day { year: year(a)?, month: number(b)?, day: number(c)? }
        } else if order == DateOrder::Dmy {
            Day { year: year(c)?, month: number(b)?, day: number(a)? }
        } else {
            Day { year: year(c)?, month: number(a)?, day: number(b)? }
        })
    };
    day().ok_or(Problem::Syntax)
}

/// Reads all parts of a text.
fn parse(text: &str, order: DateOrder) -> Result<Parts, Problem> {
    if text.len() > MAX_TEXT {
        return Err(Problem::Syntax);
    }
    let mut parts = Parts::default();
    // A date whose month is a word comes in pieces: "January 8, 1999", "8 Jan 1999".
    let (mut month, mut numbers) = (None, Vec::new());
    let words = words(text);
    for word in &words {
        let starts_with_digit = word.starts_with(|c: char| c.is_ascii_digit());
        match word.as_str() {
            "infinity" | "+infinity" => parts.special = Some(Special::Infinity),
            "-infinity" => parts.special = Some(Special::MinusInfinity),
            "epoch" => parts.special = Some(Special::Epoch),
            "now" => return Err(Problem::Unsupported("now")),
            "today" => return Err(Problem::Unsupported("today")),
            "tomorrow" => return Err(Problem::Unsupported("tomorrow")),
            "yesterday" => return Err(Problem::Unsupported("yesterday")),
            "allballs" => {
                parts.time_us = Some(0);
                parts.offset_s = Some(0);
            }
            "bc" => parts.is_bc = true,
            "ad" | "t" => {}
            "am" | "pm" => meridiem(word, &mut parts)?,
            _ if starts_with_digit && word.contains(':') && parts.time_us.is_none() => {
                time_and_offset(word, &mut parts)?;
            }
            _ if starts_with_digit && month.is_none() && is_whole_date(word, &parts, &words) => {
                parts.day = Some(date_of(word, order)?);
            }
            _ if number(word).is_some() && parts.day.is_none() => numbers.push(word.clone()),
            _ if number(word).is_some_and(|n| n < 240_000 && word.len() > 3) => {
                parts.time_us = Some(packed_time(word).ok_or(Problem::Syntax)?);
            }
            _ if parts.day.is_none() && month.is_none() && month_of(word).is_some() => {
                month = month_of(word);
            }
            _ if parts.day.is_none()
                && month_of(word.split('-').next().unwrap_or("")).is_some() =>
            {
                parts.day = Some(date_of(word, order)?);
            }
            _ if is_weekday(word) => {}
            _ if parts.time_us.is_some() => set_offset(word, &mut parts)?,
            _ => return Err(Problem::Syntax),
        }
    }
    if let Some(month) = month {
        let [a, b] = numbers.as_slice() else { return Err(Problem::Syntax) };
        let (day, of_year) = if a.len() > 2 { (b, a) } else { (a, b) };
        let (Some(day), Some(year)) = (number(day), year(of_year)) else {
            return Err(Problem::Syntax);
        };
        parts.day = Some(Day { year, month, day });
    } else if !numbers.is_empty() {
        return Err(Problem::Syntax);
    }
    finish(parts)
}

fn is_whole_date(word: &str, parts: &Parts, words: &[String]) -> bool {
    let is_packed = number(word).is_some() && word.len() == 8;
    let has_month_word = words.iter().any(|word| month_of(word).is_some());
    parts.day.is_none()
        && (is_packed && !has_month_word
            || word.contains(['-', '/', '.']) && number(word).is_none())
}

/// `hhmm` or `hhmmss`.
fn packed_time(word: &str) -> Option<i64> {
    let all = number(word)?;
    let (hour, minute, second) = match word.len() {
        4 => (all / 100, all % 100, 0),
        6 => (all / 10_000, all / 100 % 100, all % 100),
        _ => return None,
    };
    (hour <= 23 && minute < 60 && second < 60)
        .then(|| TimeOfDay { hour, minute, second, microsecond: 0 }.us())
}

fn finish(mut parts: Parts) -> Result<Parts, Problem> {
    if let Some(day) = &mut parts.day {
        if day.year == 0 {
            return Err(Problem::Range);
        }
        if parts.is_bc {
            day.year = 1 - day.year;
        }
        if !day.is_valid() {
            return Err(Problem::Range);
        }
    } else if parts.is_bc {
        return Err(Problem::Syntax);
    }
    Ok(parts)
}

/// Reads a `date`.
pub(crate) fn parse_date(text: &str, settings: &FormatSettings) -> SqlResult<i32> {
    let failed = |problem| error(&problem, text, "date");
    let parts = parse(text, settings.date_order).map_err(failed)?;
    match (parts.special, parts.day) {
        (Some(Special::Infinity), None) => Ok(DATE_INFINITY),
        (Some(Special::MinusInfinity), None) => Ok(DATE_MINUS_INFINITY),
        (Some(Special::Epoch), None) => calendar::checked_date(-calendar::UNIX_DAYS),
        (None, Some(day)) => calendar::checked_date(day.number()).map_err(|_| {
            SqlError::new(SqlState::DATETIME_OVERFLOW, format!("date out of range: \"{text}\""))
        }),
        _ => Err(failed(Problem::Syntax)),
    }
}

/// Reads a `time`.
pub(crate) fn parse_time(text: &str, settings: &FormatSettings) -> SqlResult<i64> {
    let failed = |problem| error(&problem, text, "time");
    let mut text_of_time = text.trim();
    let packed = packed_time(text_of_time);
    if let Some(us) = packed {
        return Ok(us);
    }
    text_of_time = text_of_time.trim_start_matches(['t', 'T']);
    let parts = parse(text_of_time, settings.date_order).map_err(failed)?;
    parts.time_us.ok_or_else(|| failed(Problem::Syntax))
}

/// Reads a `timestamp`, or a `timestamptz` if `has_zone`.
pub(crate) fn parse_timestamp(
    text: &str,
    has_zone: bool,
    settings: &FormatSettings,
) -> SqlResult<i64> {
    let ty = if has_zone { "timestamp with time zone" } else { "timestamp" };
    let failed = |problem| error(&problem, text, ty);
    let parts = parse(text, settings.date_order).map_err(failed)?;
    let day = match (parts.special, parts.day) {
        (Some(Special::Infinity), None) => return Ok(INFINITY),
        (Some(Special::MinusInfinity), None) => return Ok(MINUS_INFINITY),
        (Some(Special::Epoch), None) => return Ok(-calendar::UNIX_DAYS * DAY_US),
        (None, Some(day)) => day,
        _ => return Err(failed(Problem::Syntax)),
    };
    let us = i128::from(day.number()) * i128::from(DAY_US) + i128::from(parts.time_us.unwrap_or(0));
    let offset_s = match has_zone {
        true => parts.offset_s.unwrap_or(settings.time_zone.offset_s),
        false => 0,
    };
    let us = us - i128::from(offset_s) * i128::from(SECOND_US);
    calendar::checked_timestamp(us).map_err(|_| {
        SqlError::new(SqlState::DATETIME_OVERFLOW, format!("timestamp out of range: \"{text}\""))
    })
}

/// Prints the seconds of a time with their fraction, without zeroes at its end.
fn print_time(time: TimeOfDay, out: &mut String) {
    let TimeOfDay { hour, minute, second, microsecond } = time;
    let _ = write!(out, "{hour:02}:{minute:02}:{second:02}");
    print_fraction(microsecond, out);
}

/// Prints a fraction of a second, if there is one.
pub(crate) fn print_fraction(microsecond: i64, out: &mut String) {
    if microsecond != 0 {
        let digits = format!("{microsecond:06}");
        let _ = write!(out, ".{}", digits.trim_end_matches('0'));
    }
}

/// The year as it is shown, and whether it is before the first.
const fn shown_year(year: i64) -> (i64, bool) {
    if year > 0 { (year, false) } else { (1 - year, true) }
}

fn print_day(day: Day, settings: &FormatSettings, out: &mut String) {
    let Day { month, day: of_month, .. } = day;
    let (year, _) = shown_year(day.year);
    let day_first = settings.date_order == DateOrder::Dmy;
    let (first, second) = if day_first { (of_month, month) } else { (month, of_month) };
    let _ = match settings.date_style {
        DateStyle::Iso => write!(out, "{year:04}-{month:02}-{of_month:02}"),
        DateStyle::Sql => write!(out, "{first:02}/{second:02}/{year:04}"),
        DateStyle::German => write!(out, "{of_month:02}.{month:02}.{year:04}"),
        DateStyle::Postgres => write!(out, "{first:02}-{second:02}-{year:04}"),
    };
}

/// Prints a `date`.
pub(crate) fn print_date(date: i32, settings: &FormatSettings, out: &mut String) {
    match date {
        DATE_INFINITY => out.push_str("infinity"),
        DATE_MINUS_INFINITY => out.push_str("-infinity"),
        _ => {
            let day = Day::of_number(i64::from(date));
            print_day(day, settings, out);
            if shown_year(day.year).1 {
                out.push_str(" BC");
            }
        }
    }
}

/// Prints a `time`.
pub(crate) fn print_time_of_day(us: i64, out: &mut String) {
    print_time(TimeOfDay::of_us(us), out);
}

fn print_offset(offset_s: i32, out: &mut String) {
    let sign = if offset_s < 0 { '-' } else { '+' };
    let offset = offset_s.abs();
    let _ = write!(out, "{sign}{:02}", offset / 3600);
    if offset % 3600 != 0 {
        let _ = write!(out, ":{:02}", offset / 60 % 60);
    }
    if offset % 60 != 0 {
        let _ = write!(out, ":{:02}", offset % 60);
    }
}

/// Prints a `timestamp`, or a `timestamptz` if `has_zone`.
pub(crate) fn print_timestamp(
    timestamp: i64,
    has_zone: bool,
    settings: &FormatSettings,
    out: &mut String,
) {
    match timestamp {
        INFINITY => return out.push_str("infinity"),
        MINUS_INFINITY => return out.push_str("-infinity"),
        _ => {}
    }
    let offset_s = if has_zone { settings.time_zone.offset_s } else { 0 };
    let local = timestamp.saturating_add(i64::from(offset_s) * SECOND_US);
    let (number, time) = calendar::split(local);
    let (day, time) = (Day::of_number(number), TimeOfDay::of_us(time));
    let (year, is_bc) = shown_year(day.year);
    if settings.date_style == DateStyle::Postgres {
        let weekday = DAYS.get(day.day_of_week() as usize).and_then(|name| name.get(..3));
        let month = MONTHS.get(day.month as usize - 1).and_then(|name| name.get(..3));
        let (weekday, month) = (weekday.unwrap_or_default(), month.unwrap_or_default());
        let _ = match settings.date_order {
            DateOrder::Dmy => write!(out, "{weekday} {:02} {month} ", day.day),
            _ => write!(out, "{weekday} {month} {:02} ", day.day),
        };
        print_time(time, out);
        let _ = write!(out, " {year:04}");
    } else {
        print_day(day, settings, out);
        out.push(' ');
        print_time(time, out);
    }
    if has_zone {
        let name = &settings.time_zone.name;
        if settings.date_style == DateStyle::Iso || name.starts_with(['+', '-']) {
            if settings.date_style != DateStyle::Iso {
                out.push(' ');
            }
            print_offset(offset_s, out);
        } else {
            let _ = write!(out, " {name}");
        }
    }
    if is_bc {
        out.push_str(" BC");
    }
}

#[cfg(test)]
mod tests;
