//! Intervals as texts.

use std::fmt::Write;

use selkie_txn::Interval;

use super::calendar::{SECOND_US, TimeOfDay};
use super::settings::IntervalStyle;
use super::time_print::print_fraction;
use crate::error::{SqlError, SqlResult, SqlState};

/// Longest text that is looked at.
const MAX_TEXT: usize = 256;
/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

/// Sums of what a text says.
#[derive(Default)]
struct Sums {
    months: f64,
    days: f64,
    /// Microseconds, whole ones apart so that none is lost.
    whole_us: i128,
    fraction_us: f64,
}

impl Sums {
    /// Adds so much of a unit; `None` if there is no such unit. What is left of months becomes
    /// days, of days the time.
    fn add(&mut self, value: &str, unit: &str) -> Option<()> {
        let number: f64 = value.parse().ok()?;
        let months = |sums: &mut Self, months: f64| {
            sums.months += months.trunc();
            let days = (months.fract() * 30.0 * 1e6).round() / 1e6;
            sums.days += days.trunc();
            sums.fraction_us += (days.fract() * DAY_S * 1e6).round();
        };
        let days = |sums: &mut Self, days: f64| {
            sums.days += days.trunc();
            sums.fraction_us += (days.fract() * DAY_S * 1e6).round();
        };
        // A fraction of a year is a whole number of months.
        let years = |years: f64| years.trunc() * 12.0 + (years.fract() * 12.0).round();
        match unit {
            "y" | "yr" | "yrs" | "year" | "years" => months(self, years(number)),
            "mon" | "mons" | "month" | "months" => months(self, number),
            "decade" | "decades" | "dec" | "decs" => months(self, years(number * 10.0)),
            "century" | "centuries" | "cent" | "c" => months(self, years(number * 100.0)),
            "millennium" | "millennia" | "mil" | "mils" => months(self, years(number * 1000.0)),
            "w" | "week" | "weeks" => days(self, number * 7.0),
            "d" | "day" | "days" => days(self, number),
            "h" | "hr" | "hrs" | "hour" | "hours" => self.add_time(value, 3600)?,
            "m" | "min" | "mins" | "minute" | "minutes" => self.add_time(value, 60)?,
            "s" | "sec" | "secs" | "second" | "seconds" => self.add_time(value, 1)?,
            "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => {
                self.fraction_us += number * 1000.0;
            }
            "us" | "usec" | "usecs" | "microsecond" | "microseconds" => {
                self.fraction_us += number;
            }
            _ => return None,
        }
        Some(())
    }

    fn add_time(&mut self, value: &str, seconds: i64) -> Option<()> {
        let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
        let is_negative = whole.starts_with('-');
        let whole = whole.trim_start_matches(['+', '-']);
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let fraction: f64 = format!("0.{fraction}0").parse().ok()?;
        let whole = i128::from(whole) * i128::from(seconds) * i128::from(SECOND_US);
        let fraction = (fraction * seconds as f64 * 1e6).round();
        self.whole_us += if is_negative { -whole } else { whole };
        self.fraction_us += if is_negative { -fraction } else { fraction };
        Some(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "the ranges are checked before")]
    fn interval(&self, is_ago: bool) -> Option<Interval> {
        let sign = if is_ago { -1.0 } else { 1.0 };
        let part = |value: f64| {
            let value = value * sign;
            (value.abs() < 2_147_483_648.0).then_some(value as i32)
        };
        let fraction = self.fraction_us.round();
        let us = self.whole_us + (fraction.abs() < 1e19).then_some(fraction as i128)?;
        let us = if is_ago { -us } else { us };
        Some(Interval {
            months: part(self.months)?,
            days: part(self.days)?,
            microseconds: i64::try_from(us).ok()?,
        })
    }
}

/// `[+-]hh:mm[:ss[.f]]`; of two parts the second is minutes.
fn clock(text: &str, sums: &mut Sums) -> Option<()> {
    let is_negative = text.starts_with('-');
    let sign = if is_negative { "-" } else { "" };
    let parts: Vec<&str> = text.trim_start_matches(['+', '-']).split(':').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let (hours, minutes, seconds) = match parts.as_slice() {
        [minutes, seconds] if seconds.contains('.') => (&"0", minutes, seconds),
        [hours, minutes] => (hours, minutes, &"0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return None,
    };
    let minute: i64 = minutes.parse().ok()?;
    let second: f64 = seconds.parse().ok()?;
    if !is_number(hours) || !is_number(minutes) || minute > 59 || second >= 61.0 {
        return None;
    }
    sums.add_time(&format!("{sign}{hours}"), 3600)?;
    sums.add_time(&format!("{sign}{minutes}"), 60)?;
    sums.add_time(&format!("{sign}{seconds}"), 1)
}

/// `P1Y2M3DT4H5M6S`, or `P0001-02-03T04:05:06`.
fn iso(text: &str, sums: &mut Sums) -> Option<()> {
    let (date, time) = match text.split_once('t') {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let parts: Vec<&str> = date.split('-').collect();
    if let ([years, months, days], true) = (parts.as_slice(), !date.contains(['y', 'm', 'd'])) {
        sums.add(years, "year")?;
        sums.add(months, "month")?;
        sums.add(days, "day")?;
    } else {
        designators(date, &[('y', "year"), ('m', "month"), ('w', "week"), ('d', "day")], sums)?;
    }
    match time {
        Some(time) if time.contains(':') => clock(time, sums),
        Some(time) => designators(time, &[('h', "hour"), ('m', "minute"), ('s', "second")], sums),
        None => Some(()),
    }
}

fn designators(text: &str, units: &[(char, &str)], sums: &mut Sums) -> Option<()> {
    let mut rest = text;
    while !rest.is_empty() {
        let at = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (value, tail) = rest.split_at(at);
        let letter = tail.chars().next()?;
        let (_, unit) = units.iter().find(|(known, _)| *known == letter)?;
        sums.add(value, unit)?;
        rest = tail.get(letter.len_utf8()..)?;
    }
    Some(())
}

fn parse_parts(text: &str) -> Option<Option<Interval>> {
    let folded = text.trim().to_ascii_lowercase();
    let mut sums = Sums::default();
    if let Some(rest) = folded.strip_prefix('p').filter(|rest| !rest.is_empty()) {
        iso(rest, &mut sums)?;
        return Some(sums.interval(false));
    }
    let (mut is_ago, mut pending, mut is_empty) = (false, None::<String>, true);
    for word in folded.split_ascii_whitespace() {
        if is_ago {
            return None;
        }
        match word {
            "@" => continue,
            "ago" => {
                is_ago = true;
                continue;
            }
            _ => {}
        }
        is_empty = false;
        if let Some(value) = pending.take() {
            if sums.add(&value, word).is_some() {
                continue;
            }
            // A number before a clock is days: "3 04:05:06".
            let is_days = word.contains(':');
            is_days.then(|| sums.add(&value, "day"))??;
        }
        let unsigned = word.trim_start_matches(['+', '-']);
        let unit_at = unsigned.find(|c: char| c.is_ascii_alphabetic());
        if word.contains(':') {
            clock(word, &mut sums)?;
        } else if let (Some((years, months)), None) = (unsigned.split_once('-'), unit_at) {
            let sign = if word.starts_with('-') { "-" } else { "" };
            sums.add(&format!("{sign}{years}"), "year")?;
            sums.add(&format!("{sign}{months}"), "month")?;
        } else if let Some(at) = unit_at {
            let (value, unit) = word.split_at(at + word.len() - unsigned.len());
            sums.add(value, unit)?;
        } else {
            word.parse::<f64>().ok()?;
            pending = Some(word.to_owned());
        }
    }
    if let Some(value) = pending {
        sums.add(&value, "second")?;
    }
    (!is_empty).then(|| sums.interval(is_ago))
}

/// Reads an `interval`.
pub(crate) fn parse(text: &str) -> SqlResult<Interval> {
    let parsed = (text.len() <= MAX_TEXT).then(|| parse_parts(text)).flatten();
    match parsed {
        Some(Some(interval)) => Ok(interval),
        Some(None) => Err(SqlError::new(
            SqlState::DATETIME_OVERFLOW,
            format!("interval field value out of range: \"{text}\""),
        )),
        None => Err(SqlError::new(
            SqlState::INVALID_DATETIME,
            format!("invalid input syntax for type interval: \"{text}\""),
        )),
    }
}

/// The parts of an interval as they are shown; all of time have its sign.
struct Shown {
    years: i64,
    months: i64,
    days: i64,
    is_negative: bool,
    /// Without its sign.
    time: TimeOfDay,
}

impl Shown {
    fn of(interval: Interval) -> Self {
        let us = interval.microseconds;
        // The least value has no opposite: a microsecond of 292 thousand years is no loss.
        let time = TimeOfDay::of_us(us.checked_abs().unwrap_or(i64::MAX));
        Self {
            years: i64::from(interval.months / 12),
            months: i64::from(interval.months % 12),
            days: i64::from(interval.days),
            is_negative: us < 0,
            time,
        }
    }
}

/// Prints an `interval`.
pub(crate) fn print(interval: Interval, style: IntervalStyle, out: &mut String) {
    let shown = Shown::of(interval);
    match style {
        IntervalStyle::Postgres => print_postgres(&shown, interval, out),
        IntervalStyle::PostgresVerbose => print_verbose(&shown, interval, out),
        IntervalStyle::SqlStandard => print_sql(&shown, interval, out),
        IntervalStyle::Iso8601 => print_iso(&shown, interval, out),
    }
}

fn print_postgres(shown: &Shown, interval: Interval, out: &mut String) {
    let start = out.len();
    let mut is_after_negative = false;
    for (value, unit) in [(shown.years, "year"), (shown.months, "mon"), (shown.days, "day")] {
        if value == 0 {
            continue;
        }
        let space = if out.len() > start { " " } else { "" };
        let sign = if is_after_negative && value > 0 { "+" } else { "" };
        let plural = if value == 1 { "" } else { "s" };
        let _ = write!(out, "{space}{sign}{value} {unit}{plural}");
        is_after_negative = value < 0;
    }
    if interval.microseconds == 0 && out.len() > start {
        return;
    }
    let space = if out.len() > start { " " } else { "" };
    let sign = match (shown.is_negative, is_after_negative) {
        (true, _) => "-",
        (false, true) => "+",
        _ => "",
    };
    let TimeOfDay { hour, minute, second, microsecond } = shown.time;
    let _ = write!(out, "{space}{sign}{hour:02}:{minute:02}:{second:02}");
    print_fraction(microsecond, out);
}

fn print_verbose(shown: &Shown, interval: Interval, out: &mut String) {
    let sign = if shown.is_negative { -1 } else { 1 };
    let parts = [
        (shown.years, "year"),
        (shown.months, "mon"),
        (shown.days, "day"),
        (sign * shown.time.hour, "hour"),
        (sign * shown.time.minute, "min"),
    ];
    let seconds = interval.microseconds % (60 * SECOND_US);
    // The first part that is not 0 tells whether the whole is "ago"; the others are as seen
    // from it.
    let first = parts.iter().map(|(value, _)| *value).find(|value| *value != 0);
    let is_ago = first.unwrap_or(seconds) < 0;
    let turned = if is_ago { -1 } else { 1 };
    out.push('@');
    for (value, unit) in parts.iter().filter(|(value, _)| *value != 0) {
        let value = value * turned;
        let plural = if value == 1 { "" } else { "s" };
        let _ = write!(out, " {value} {unit}{plural}");
    }
    if seconds != 0 {
        let seconds = seconds * turned;
        let sign = if seconds < 0 { "-" } else { "" };
        let _ = write!(out, " {sign}{}", seconds.abs() / SECOND_US);
        print_fraction(seconds.abs() % SECOND_US, out);
        out.push_str(if seconds == SECOND_US { " sec" } else { " secs" });
    } else if first.is_none() {
        out.push_str(" 0");
    }
    if is_ago {
        out.push_str(" ago");
    }
}

fn print_sql(shown: &Shown, interval: Interval, out: &mut String) {
    let us = interval.microseconds;
    let (has_months, has_days, has_time) = (interval.months != 0, interval.days != 0, us != 0);
    let signs = [i64::from(interval.months).signum(), shown.days.signum(), us.signum()];
    let is_mixed = signs.contains(&1) && signs.contains(&-1);
    let TimeOfDay { hour, minute, second, microsecond } = shown.time;
    let sign = |value: i64| if value < 0 { "-" } else { "+" };
    if is_mixed || (has_months && (has_days || has_time)) {
        let [months, days, time] = signs.map(sign);
        let _ = write!(
            out,
            "{months}{}-{} {days}{} {time}{hour}:{minute:02}:{second:02}",
            shown.years.abs(),
            shown.months.abs(),
            shown.days.abs()
        );
        return print_fraction(microsecond, out);
    }
    if signs.contains(&-1) {
        out.push('-');
    }
    if has_months {
        let _ = write!(out, "{}-{}", shown.years.abs(), shown.months.abs());
    } else if has_days || has_time {
        if has_days {
            let _ = write!(out, "{} ", shown.days.abs());
        }
        let _ = write!(out, "{hour}:{minute:02}:{second:02}");
        print_fraction(microsecond, out);
    } else {
        out.push('0');
    }
}

fn print_iso(shown: &Shown, interval: Interval, out: &mut String) {
    if interval == Interval::default() {
        return out.push_str("PT0S");
    }
    out.push('P');
    for (value, unit) in [(shown.years, 'Y'), (shown.months, 'M'), (shown.days, 'D')] {
        if value != 0 {
            let _ = write!(out, "{value}{unit}");
        }
    }
    if interval.microseconds != 0 {
        out.push('T');
    }
    let sign = if shown.is_negative { "-" } else { "" };
    let TimeOfDay { hour, minute, second, microsecond } = shown.time;
    for (value, unit) in [(hour, 'H'), (minute, 'M')] {
        if value != 0 {
            let _ = write!(out, "{sign}{value}{unit}");
        }
    }
    if second != 0 || microsecond != 0 {
        let _ = write!(out, "{sign}{second}");
        print_fraction(microsecond, out);
        out.push('S');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, style: IntervalStyle) -> String {
        let mut out = String::new();
        print(parse(text).unwrap(), style, &mut out);
        out
    }

    #[test]
    fn intervals_are_read_and_printed() {
        for (text, out) in [
            ("1 year 2 months 3 days 4 hours 5 minutes 6 seconds", "1 year 2 mons 3 days 04:05:06"),
            ("1-2", "1 year 2 mons"),
            ("3 4:05:06", "3 days 04:05:06"),
            ("P1Y2M3DT4H5M6S", "1 year 2 mons 3 days 04:05:06"),
            ("P0001-02-03T04:05:06", "1 year 2 mons 3 days 04:05:06"),
            ("1.5 days", "1 day 12:00:00"),
            ("1.5 months", "1 mon 15 days"),
            ("1.5 years", "1 year 6 mons"),
            ("2 weeks", "14 days"),
            ("1 day ago", "-1 days"),
            ("-1 day +01:00", "-1 days +01:00:00"),
            ("1 mon -1 hour", "1 mon -01:00:00"),
            ("0", "00:00:00"),
            ("90", "00:01:30"),
            ("1.000001 sec", "00:00:01.000001"),
            ("100 hours", "100:00:00"),
            ("@ 1 minute", "00:01:00"),
            ("5 ms", "00:00:00.005"),
            ("-00:00:01.5", "-00:00:01.5"),
        ] {
            assert_eq!(shown(text, IntervalStyle::Postgres), out, "{text}");
        }
        for text in ["", "x", "1 parsec", "ago", "1:60", "1 ago day"] {
            assert_eq!(parse(text).unwrap_err().state(), SqlState::INVALID_DATETIME, "{text}");
        }
        assert_eq!(parse("2147483648 days").unwrap_err().state(), SqlState::DATETIME_OVERFLOW);
    }

    #[test]
    fn styles_are_those_of_the_manual() {
        let text = "-1 year -2 mons +3 days -04:05:06";
        for (style, out) in [
            (IntervalStyle::SqlStandard, "-1-2 +3 -4:05:06"),
            (IntervalStyle::Postgres, "-1 years -2 mons +3 days -04:05:06"),
            (IntervalStyle::PostgresVerbose, "@ 1 year 2 mons -3 days 4 hours 5 mins 6 secs ago"),
            (IntervalStyle::Iso8601, "P-1Y-2M3DT-4H-5M-6S"),
        ] {
            assert_eq!(shown(text, style), out);
        }
        assert_eq!(shown("1-2", IntervalStyle::SqlStandard), "1-2");
        assert_eq!(shown("3 4:05:06", IntervalStyle::SqlStandard), "3 4:05:06");
    }
}
