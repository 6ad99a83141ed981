//! `to_date` and `to_timestamp`, which read what `to_char` prints.

use super::arguments::text;
use super::signature::{Body, Table};
use super::to_char::{Piece, pieces};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;
use crate::types::calendar::{self, DAY_US, Day, SECOND_US, TimeOfDay};
use crate::types::time_print::{DAYS, MONTHS};

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
            "hh24" => self.time.hour = take_number(rest, 2, name)?.0,
            "hh" | "hh12" => {
                self.time.hour = take_number(rest, 2, name)?.0;
                self.is_pm = self.is_pm.or(Some(false));
            }
            "mi" => self.time.minute = take_number(rest, 2, name)?.0,
            "ss" => self.time.second = take_number(rest, 2, name)?.0,
            "ms" | "us" | "ff1" | "ff2" | "ff3" | "ff4" | "ff5" | "ff6" => {
                let digits = name.bytes().last().map_or(6, |digit| digit.wrapping_sub(b'0'));
                let most = match lower.as_str() {
                    "ms" => 3,
                    "us" => 6,
                    _ => usize::from(digits),
                };
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
            let hour = self.time.hour;
            if !(1..=12).contains(&hour) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                let error = SqlError::new(SqlState::INVALID_DATETIME, message);
                return Err(error.hint("Use the 24-hour clock, or give an hour between 1 and 12."));
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
        // Without a year it is the one before the first.
        day: Day { year: 0, month: 1, day: 1 },
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
