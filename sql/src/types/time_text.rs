//! Dates, times and timestamps out of texts.

use super::calendar::{
    self, DATE_INFINITY, DATE_MINUS_INFINITY, DAY_US, Day, INFINITY, MINUS_INFINITY, SECOND_US,
    TimeOfDay,
};
use super::settings::{DateOrder, FormatSettings};
use super::time_print::{DAYS, MONTHS};
use super::zone::{self, TimeZone};
use crate::error::{SqlError, SqlResult, SqlState};

/// Longest text that is looked at.
const MAX_TEXT: usize = 128;

/// Furthest from UTC that a text may say.
const MAX_HOURS: i32 = 15;
/// Words that stand for a day, or for a moment, that is another in every transaction.
const WORDS_OF_NOW: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];

/// The parts that a text has.
#[derive(Default)]
struct Parts {
    day: Option<Day>,
    time_us: Option<i64>,
    zone: Option<Zone>,
    is_bc: bool,
    special: Option<Special>,
}

/// The zone that a text says.
enum Zone {
    /// Seconds east of Greenwich.
    Offset(i32),
    Named(TimeZone),
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
    /// Its distance to UTC is too large.
    Displacement,
    UnknownZone(String),
    Other(SqlError),
}

impl From<SqlError> for Problem {
    fn from(error: SqlError) -> Self {
        Self::Other(error)
    }
}

fn error(problem: Problem, text: &str, ty: &str) -> SqlError {
    match problem {
        Problem::Syntax => SqlError::new(
            SqlState::INVALID_DATETIME,
            format!("invalid input syntax for type {ty}: \"{text}\""),
        ),
        Problem::Range => SqlError::new(
            SqlState::DATETIME_OVERFLOW,
            format!("date/time field value out of range: \"{text}\""),
        ),
        Problem::Displacement => SqlError::new(
            SqlState::INVALID_DISPLACEMENT,
            format!("time zone displacement out of range: \"{text}\""),
        ),
        Problem::UnknownZone(word) => zone::unknown(&word),
        Problem::Other(error) => error,
    }
}

/// Whether what a text of a date or time means may depend on the moment when it is read.
pub(crate) fn depends_on_now(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphabetic())
        .any(|word| WORDS_OF_NOW.iter().any(|own| own.eq_ignore_ascii_case(word)))
}

/// A distance to UTC that is too large.
pub(crate) struct TooFar;

/// Seconds east of Greenwich of `+hh`, `+hhmm`, `+hh:mm` or `+hh:mm:ss`; the sign is needed.
pub(crate) fn parse_offset(text: &str) -> Option<Result<i32, TooFar>> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let number = |text: &str| -> Option<i32> {
        let is_number = (1..=6).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse().ok())?
    };
    let mut parts = rest.split(':');
    let first = parts.next()?;
    let all = number(first)?;
    let (hours, minutes) = match parts.next() {
        Some(minutes) => (all, number(minutes)?),
        None if first.len() > 2 => (all / 100, all % 100),
        None => (all, 0),
    };
    let seconds = parts.next().map_or(Some(0), number)?;
    if parts.next().is_some() {
        return None;
    }
    let is_near = hours <= MAX_HOURS && minutes < 60 && seconds < 60;
    Some(if is_near { Ok(sign * (hours * 3600 + minutes * 60 + seconds)) } else { Err(TooFar) })
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

/// A time, with colons or without, and what may follow it: a zone.
fn time_and_zone(word: &str, parts: &mut Parts) -> Result<(), Problem> {
    let end = word.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'));
    let (time, zone) = word.split_at(end.unwrap_or(word.len()));
    parts.time_us = Some(match time.contains(':') {
        true => time_of(time)?,
        false => packed_time(time).ok_or(Problem::Syntax)?,
    });
    match zone {
        "" => Ok(()),
        "am" | "pm" => meridiem(zone, parts),
        _ => set_zone(zone, parts),
    }
}

/// A zone: its distance to UTC, an abbreviation, or a name behind a date.
fn set_zone(word: &str, parts: &mut Parts) -> Result<(), Problem> {
    if parts.zone.is_some() {
        return Err(Problem::Syntax);
    }
    if word.starts_with(['+', '-']) {
        let is_late = parts.day.is_some() || parts.time_us.is_some();
        let offset = parse_offset(word).filter(|_| is_late).ok_or(Problem::Syntax)?;
        parts.zone = Some(Zone::Offset(offset.map_err(|TooFar| Problem::Displacement)?));
        return Ok(());
    }
    if !word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '<') {
        return Err(Problem::Syntax);
    }
    let is_word = word.bytes().all(|b| b.is_ascii_alphabetic());
    let found = TimeZone::abbreviated(word).or_else(|| {
        // Without a date only a zone whose distance to UTC never changes says something.
        let has_day = parts.day.is_some();
        let may_be = has_day || parts.time_us.is_some();
        let named = may_be.then(|| TimeZone::named(word)).flatten();
        named.filter(|zone| has_day || zone.is_fixed())
    });
    match found {
        Some(zone) => parts.zone = Some(Zone::Named(zone)),
        None if !is_word && parts.day.is_some() => {
            return Err(Problem::UnknownZone(word.to_owned()));
        }
        None => return Err(Problem::Syntax),
    }
    Ok(())
}

/// `DST` behind a zone: an hour further east.
fn set_summer(parts: &mut Parts) -> Result<(), Problem> {
    let offset_s = match &parts.zone {
        Some(Zone::Offset(offset_s)) => *offset_s,
        Some(Zone::Named(zone)) if zone.is_fixed() => zone.offset_at(0),
        _ => return Err(Problem::Syntax),
    };
    parts.zone = Some(Zone::Offset(offset_s + 3600));
    Ok(())
}

/// `now`, `today` and their like, by the clocks of the session.
fn set_now(word: &str, settings: &FormatSettings, parts: &mut Parts) -> Result<(), Problem> {
    if parts.day.is_some() || (word == "now" && (parts.time_us.is_some() || parts.zone.is_some())) {
        return Err(Problem::Syntax);
    }
    let now = settings.now.get();
    let (day, time_us) = calendar::split(settings.time_zone.to_local(now)?);
    parts.day = Some(Day::of_number(match word {
        "tomorrow" => day + 1,
        "yesterday" => day - 1,
        _ => day,
    }));
    if word == "now" {
        parts.time_us = Some(time_us);
        parts.zone = Some(Zone::Offset(settings.time_zone.offset_at(now)));
    }
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
fn parse(text: &str, settings: &FormatSettings) -> Result<Parts, Problem> {
    if text.len() > MAX_TEXT {
        return Err(Problem::Syntax);
    }
    let order = settings.date_order;
    let mut parts = Parts::default();
    // A date whose month is a word comes in pieces: "January 8, 1999", "8 Jan 1999".
    let (mut month, mut numbers) = (None, Vec::new());
    let words = words(text);
    for word in &words {
        let starts_with_digit = word.starts_with(|c: char| c.is_ascii_digit());
        match word.as_str() {
            "infinity" => parts.special = Some(Special::Infinity),
            "-infinity" => parts.special = Some(Special::MinusInfinity),
            "epoch" => parts.special = Some(Special::Epoch),
            "now" | "today" | "tomorrow" | "yesterday" => set_now(word, settings, &mut parts)?,
            "allballs" => {
                parts.time_us = Some(0);
                parts.zone = Some(Zone::Offset(0));
            }
            "bc" => parts.is_bc = true,
            "ad" | "t" => {}
            "am" | "pm" => meridiem(word, &mut parts)?,
            "dst" => set_summer(&mut parts)?,
            _ if starts_with_digit && word.contains(':') && parts.time_us.is_none() => {
                time_and_zone(word, &mut parts)?;
            }
            _ if starts_with_digit && month.is_none() && is_whole_date(word, &parts, &words) => {
                let (date, zone) = word.split_at(word.find('+').unwrap_or(word.len()));
                parts.day = Some(date_of(date, order)?);
                if !zone.is_empty() {
                    set_zone(zone, &mut parts)?;
                }
            }
            _ if number(word).is_some() && parts.day.is_none() => numbers.push(word.clone()),
            _ if starts_with_digit && parts.day.is_some() && parts.time_us.is_none() => {
                time_and_zone(word, &mut parts)?;
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
            _ => set_zone(word, &mut parts)?,
        }
        if let (Some(of_year), [a, b]) = (month, numbers.as_slice()) {
            parts.day = Some(pieced_day(of_year, a, b).ok_or(Problem::Syntax)?);
            month = None;
            numbers.clear();
        }
    }
    if month.is_some() || !numbers.is_empty() {
        return Err(Problem::Syntax);
    }
    finish(parts)
}

/// A day of a month, of which day and year are in either order.
fn pieced_day(month: i64, a: &str, b: &str) -> Option<Day> {
    let (day, of_year) = if a.len() > 2 { (b, a) } else { (a, b) };
    Some(Day { year: year(of_year)?, month, day: number(day)? })
}

fn is_whole_date(word: &str, parts: &Parts, words: &[String]) -> bool {
    let is_packed = number(word).is_some() && word.len() == 8;
    let has_month_word = words.iter().any(|word| month_of(word).is_some());
    parts.day.is_none()
        && (is_packed && !has_month_word
            || word.contains(['-', '/', '.']) && number(word).is_none())
}

/// `hhmm` or `hhmmss[.ffffff]`.
fn packed_time(word: &str) -> Option<i64> {
    let (whole, fraction) = word.split_once('.').unwrap_or((word, ""));
    let all = number(whole)?;
    let (hour, minute, second) = match (whole.len(), fraction) {
        (4, "") => (all / 100, all % 100, 0),
        (6, _) => (all / 10_000, all / 100 % 100, all % 100),
        _ => return None,
    };
    let microsecond = fraction_us(fraction)?;
    (hour <= 23 && minute < 60 && second < 60)
        .then(|| TimeOfDay { hour, minute, second, microsecond }.us())
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
    let failed = |problem| error(problem, text, "date");
    let parts = parse(text, settings).map_err(failed)?;
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
    let failed = |problem| error(problem, text, "time");
    let mut text_of_time = text.trim();
    let packed = packed_time(text_of_time);
    if let Some(us) = packed {
        return Ok(us);
    }
    text_of_time = text_of_time.trim_start_matches(['t', 'T']);
    let parts = parse(text_of_time, settings).map_err(failed)?;
    // A day may be written out before it, but not be a word.
    let says_day = |own: &String| own != "now" && WORDS_OF_NOW.contains(&own.as_str());
    let time_us = parts.time_us.filter(|_| !words(text_of_time).iter().any(says_day));
    time_us.ok_or_else(|| failed(Problem::Syntax))
}

/// Reads a `timestamp`, or a `timestamptz` if `has_zone`.
pub(crate) fn parse_timestamp(
    text: &str,
    has_zone: bool,
    settings: &FormatSettings,
) -> SqlResult<i64> {
    let ty = if has_zone { "timestamp with time zone" } else { "timestamp" };
    let failed = |problem| error(problem, text, ty);
    let parts = parse(text, settings).map_err(failed)?;
    let day = match (parts.special, parts.day) {
        (Some(Special::Infinity), None) => return Ok(INFINITY),
        (Some(Special::MinusInfinity), None) => return Ok(MINUS_INFINITY),
        (Some(Special::Epoch), None) => return Ok(-calendar::UNIX_DAYS * DAY_US),
        (None, Some(day)) => day,
        _ => return Err(failed(Problem::Syntax)),
    };
    let us = i128::from(day.number()) * i128::from(DAY_US) + i128::from(parts.time_us.unwrap_or(0));
    let out_of_range = || {
        SqlError::new(SqlState::DATETIME_OVERFLOW, format!("timestamp out of range: \"{text}\""))
    };
    let local_us = i64::try_from(us).map_err(|_| out_of_range())?;
    let offset_s = match (has_zone, &parts.zone) {
        (false, _) => 0,
        (true, None) => settings.time_zone.offset_of_local(local_us),
        (true, Some(Zone::Offset(offset_s))) => *offset_s,
        (true, Some(Zone::Named(zone))) => zone.offset_of_local(local_us),
    };
    let us = us - i128::from(offset_s) * i128::from(SECOND_US);
    calendar::checked_timestamp(us).map_err(|_| out_of_range())
}

#[cfg(test)]
mod tests;
