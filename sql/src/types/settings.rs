//! Settings of a session that decide how values look.

use std::sync::Arc;

use super::object_names::Names;
use crate::error::{SqlError, SqlResult, SqlState};

/// How dates and times are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DateStyle {
    /// `1997-12-17 07:37:16-08`
    #[default]
    Iso,
    /// `12/17/1997 07:37:16.00 PST`
    Sql,
    /// `Wed Dec 17 07:37:16 1997 PST`
    Postgres,
    /// `17.12.1997 07:37:16.00 PST`
    German,
}

/// The order of the parts of a date of numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DateOrder {
    /// Month, day, year.
    #[default]
    Mdy,
    /// Day, month, year.
    Dmy,
    /// Year, month, day.
    Ymd,
}

/// How intervals are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum IntervalStyle {
    /// `1 year 2 mons 3 days 04:05:06`
    #[default]
    Postgres,
    /// `@ 1 year 2 mons 3 days 4 hours 5 mins 6 secs`
    PostgresVerbose,
    /// `+1-2 +3 +4:05:06`
    SqlStandard,
    /// `P1Y2M3DT4H5M6S`
    Iso8601,
}

/// How byte strings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ByteaOutput {
    /// `\xdeadbeef`
    #[default]
    Hex,
    /// `\336\255`
    Escape,
}

/// A time zone: a fixed distance to UTC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeZone {
    /// What it is called.
    pub name: Arc<str>,
    /// Seconds east of Greenwich.
    pub offset_s: i32,
}

/// Furthest from UTC that a zone may be.
const MAX_OFFSET_S: i32 = 16 * 3600 - 1;

/// Abbreviations that PostgreSQL knows, and the hours that they are east of Greenwich.
const ABBREVIATIONS: [(&str, i32); 22] = [
    ("utc", 0),
    ("gmt", 0),
    ("z", 0),
    ("zulu", 0),
    ("uct", 0),
    ("universal", 0),
    ("etc/utc", 0),
    ("etc/gmt", 0),
    ("wet", 0),
    ("cet", 1),
    ("cest", 2),
    ("eet", 2),
    ("eest", 3),
    ("msk", 3),
    ("jst", 9),
    ("est", -5),
    ("edt", -4),
    ("cst", -6),
    ("cdt", -5),
    ("mst", -7),
    ("pst", -8),
    ("pdt", -7),
];

impl TimeZone {
    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".into(), offset_s: 0 }
    }

    /// The zone of this name or distance (`+02`, `-3:30`), of which the sign is as in ISO: east is
    /// positive.
    ///
    /// # Errors
    /// [`SqlState::INVALID_PARAMETER`] if there is none, or if its distance changes with the year.
    pub fn parse(name: &str) -> SqlResult<Self> {
        let trimmed = name.trim();
        let folded = trimmed.to_lowercase();
        let known = ABBREVIATIONS.iter().find(|(known, _)| *known == folded);
        let offset_s = known.map(|(_, hours)| hours * 3600).or_else(|| parse_offset(&folded));
        match offset_s {
            Some(offset_s) => Ok(Self { name: trimmed.into(), offset_s }),
            None => Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                format!("time zone \"{name}\" not recognized"),
            )),
        }
    }
}

/// Seconds of `+hh`, `+hhmm`, `+hh:mm` or `+hh:mm:ss`; the sign is needed.
pub(crate) fn parse_offset(text: &str) -> Option<i32> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+')?),
    };
    let number = |text: &str| -> Option<i32> {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse().ok())?
    };
    let mut parts = rest.split(':');
    let first = parts.next()?;
    let (hours, minutes) = match (first.len(), first.get(..2), first.get(2..)) {
        (4, Some(hours), Some(minutes)) => (number(hours)?, number(minutes)?),
        _ => (number(first)?, parts.next().map_or(Some(0), number)?),
    };
    let seconds = parts.next().map_or(Some(0), number)?;
    let offset = hours * 3600 + minutes * 60 + seconds;
    let is_valid = parts.next().is_none() && minutes < 60 && seconds < 60;
    (is_valid && offset <= MAX_OFFSET_S).then_some(sign * offset)
}

/// How values look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatSettings {
    /// How dates and times are printed.
    pub date_style: DateStyle,
    /// The order of the parts of a date of numbers alone.
    pub date_order: DateOrder,
    /// The zone in which a `timestamptz` is read and printed.
    pub time_zone: TimeZone,
    /// How intervals are printed.
    pub interval_style: IntervalStyle,
    /// Above 0, floats print with as few digits as tell them apart; else with 15, or 6, plus this.
    pub extra_float_digits: i32,
    /// How byte strings are printed.
    pub bytea_output: ByteaOutput,
    /// By which names of tables are read and printed.
    pub names: Names,
}

impl Default for FormatSettings {
    fn default() -> Self {
        Self {
            date_style: DateStyle::default(),
            date_order: DateOrder::default(),
            time_zone: TimeZone::utc(),
            interval_style: IntervalStyle::default(),
            extra_float_digits: 1,
            bytea_output: ByteaOutput::default(),
            names: Names::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_names_and_distances() {
        for (name, offset_s) in
            [("UTC", 0), ("+02", 7200), ("-03:30", -12600), ("+0530", 19800), ("EST", -18000)]
        {
            assert_eq!(TimeZone::parse(name).unwrap().offset_s, offset_s, "{name}");
        }
        for name in ["", "+", "+99", "+1:60", "Mars/Olympus"] {
            TimeZone::parse(name).unwrap_err();
        }
    }
}
