//! Dates, times and timestamps as texts.

use std::fmt::Write;

use super::calendar::{
    self, DATE_INFINITY, DATE_MINUS_INFINITY, Day, INFINITY, MINUS_INFINITY, SECOND_US, TimeOfDay,
};
use super::settings::{DateOrder, DateStyle, FormatSettings};

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
/// Characters that are shown of the abbreviation of a zone.
const LONGEST_SHOWN: usize = 10;

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
    let zone = &settings.time_zone;
    let offset_s = if has_zone { zone.offset_at(timestamp) } else { 0 };
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
    if has_zone && settings.date_style == DateStyle::Iso {
        print_offset(offset_s, out);
    } else if has_zone {
        let abbreviation = zone.clock_at(timestamp).abbreviation;
        let shown: String = abbreviation.chars().take(LONGEST_SHOWN).collect();
        let _ = write!(out, " {shown}");
    }
    if is_bc {
        out.push_str(" BC");
    }
}
