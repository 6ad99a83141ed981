//! Time zones: how far local time is from UTC at a moment, and which moment a local time is.
//!
//! A zone is one of the tz database, which is compiled in, a specification as POSIX has it
//! (`EST5EDT,M3.2.0,M11.1.0`), a fixed distance to UTC, or an abbreviation as `MSK`.
//!
//! A local time that the clocks leave out, or show twice, is resolved as PostgreSQL does: one that
//! is left out is taken to be by the clock before the change, one that is shown twice by the clock
//! after it. Only the first change in the day before the local time and after it is looked at.
//!
//! Moments are microseconds since 2000-01-01 UTC, local times since 2000-01-01 00:00 of the zone.
//! The tz database ends with the year 9999; later years are as those 400 years, or a multiple of
//! them, before.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use jiff::tz::{self, TimeZoneDatabase};
use selkie_txn::Interval;

use super::calendar::{self, SECOND_US, UNIX_DAYS};
use super::interval_text;
use super::zone_abbreviations::{ABBREVIATIONS, Meaning, meaning};
use crate::error::{SqlError, SqlResult, SqlState};

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

const DAY_S: i64 = 86_400;
/// Seconds of 400 years, after which the calendar repeats with its days of the week.
const CYCLE_S: i64 = 146_097 * DAY_S;
/// In the year 9987, some years before the last moment of the tz database.
const LAST_S: i64 = 253_000_000_000;
/// Changes of a zone that are searched for an abbreviation, in each direction.
const MOST_CHANGES: usize = 400;
/// Longest name, as in PostgreSQL.
const LONGEST_NAME: usize = 255;
/// Furthest from UTC that a zone may be, in hours: a week but for an hour, as POSIX has it.
const MOST_HOURS: u32 = 167;
/// When clocks change where a specification has summer time without saying when.
const USUAL_CHANGES: &str = ",M3.2.0,M11.1.0";

/// A time zone.
#[derive(Clone, Debug)]
pub struct TimeZone {
    name: Arc<str>,
    rules: Rules,
}

#[derive(Clone, Debug)]
enum Rules {
    Fixed {
        offset_s: i32,
        abbreviation: Arc<str>,
    },
    Changing(tz::TimeZone),
    /// What a zone had under an abbreviation.
    Abbreviation {
        word: &'static str,
        zone: tz::TimeZone,
    },
}

impl PartialEq for TimeZone {
    /// A name means one zone, or is an abbreviation.
    fn eq(&self, other: &Self) -> bool {
        let is_abbreviation = |own: &Self| matches!(own.rules, Rules::Abbreviation { .. });
        self.name == other.name && is_abbreviation(self) == is_abbreviation(other)
    }
}

impl Eq for TimeZone {}

/// What clocks of a zone show at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalClock {
    /// Seconds east of Greenwich.
    pub(crate) offset_s: i32,
    /// What that is called in the zone.
    pub(crate) abbreviation: String,
    pub(crate) is_summer: bool,
}

/// A row of `pg_timezone_names` or `pg_timezone_abbrevs`.
pub(crate) struct ListedZone {
    pub(crate) name: String,
    pub(crate) clock: LocalClock,
}

impl TimeZone {
    /// Coordinated universal time.
    #[must_use]
    pub fn utc() -> Self {
        let name: Arc<str> = "UTC".into();
        Self { name: Arc::clone(&name), rules: Rules::Fixed { offset_s: 0, abbreviation: name } }
    }

    /// The zone so many seconds east of Greenwich, named as POSIX does: its signs are turned.
    #[must_use]
    pub fn fixed(offset_s: i32) -> Self {
        let distance = offset_s.unsigned_abs();
        let (hours, minutes, seconds) = (distance / 3600, distance / 60 % 60, distance % 60);
        let shown = match (minutes, seconds) {
            (0, 0) => format!("{hours:02}"),
            (_, 0) => format!("{hours:02}:{minutes:02}"),
            _ => format!("{hours:02}:{minutes:02}:{seconds:02}"),
        };
        let (east, west) = if offset_s < 0 { ('-', '+') } else { ('+', '-') };
        let name = format!("<{east}{shown}>{west}{shown}").into();
        let abbreviation = format!("{east}{shown}").into();
        Self { name, rules: Rules::Fixed { offset_s, abbreviation } }
    }

    /// The zone that the parameter `TimeZone` is set to: a name, a specification as POSIX has it,
    /// hours east of Greenwich, or `INTERVAL '...'`.
    ///
    /// # Errors
    /// [`SqlState::INVALID_PARAMETER`] if there is none.
    pub fn parse(text: &str) -> SqlResult<Self> {
        let invalid = || {
            let message = format!("invalid value for parameter \"TimeZone\": \"{text}\"");
            SqlError::new(SqlState::INVALID_PARAMETER, message)
        };
        let (word, rest) = text.split_at_checked(8).unwrap_or((text, ""));
        if word.eq_ignore_ascii_case("interval") {
            let quoted =
                rest.trim_start().strip_prefix('\'').and_then(|own| own.strip_suffix('\''));
            let interval = interval_text::parse(quoted.ok_or_else(invalid)?)?;
            let part = match interval {
                Interval { months: 1.. | ..=-1, .. } => "months",
                Interval { days: 1.. | ..=-1, .. } => "days",
                _ => return fixed_within(interval.microseconds / SECOND_US).ok_or_else(invalid),
            };
            let detail = format!("Cannot specify {part} in time zone interval.");
            return Err(invalid().detail(detail));
        }
        let is_number = text.contains(|c: char| c.is_ascii_digit())
            && text.trim_start().chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
        if let Some(hours) = is_number.then(|| text.trim_start().parse::<f64>().ok()).flatten() {
            #[expect(clippy::cast_possible_truncation, reason = "what is too large is refused")]
            let seconds = (hours * 3600.0) as i64;
            let detail = "UTC timezone offset is out of range.".to_owned();
            return fixed_within(seconds).ok_or_else(|| invalid().detail(detail));
        }
        Self::named(text).ok_or_else(invalid)
    }

    /// The zone of a name, or of a specification as POSIX has it, in any case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if name.is_empty() || name.len() > LONGEST_NAME {
            return None;
        }
        match DATABASE.get(name) {
            Ok(zone) if zone.is_unknown() => None,
            Ok(zone) => {
                let name = zone.iana_name().unwrap_or(name).into();
                Some(Self { name, rules: Rules::Changing(zone) })
            }
            Err(_) => specified(&name.to_ascii_uppercase()),
        }
    }

    /// The zone of an abbreviation.
    #[must_use]
    pub fn abbreviated(word: &str) -> Option<Self> {
        let (word, meaning) = meaning(&word.to_ascii_lowercase())?;
        let minutes = match meaning {
            Meaning::Standard(minutes) | Meaning::Summer(minutes) => minutes,
            Meaning::Zone(name) => {
                let zone = DATABASE.get(name).ok()?;
                return Some(Self { name: word.into(), rules: Rules::Abbreviation { word, zone } });
            }
        };
        let abbreviation = word.to_ascii_uppercase().into();
        let rules = Rules::Fixed { offset_s: minutes * 60, abbreviation };
        Some(Self { name: word.into(), rules })
    }

    /// The zone that an expression names, by an abbreviation or a name.
    ///
    /// # Errors
    /// [`SqlState::INVALID_PARAMETER`] if there is none.
    pub(crate) fn find(word: &str) -> SqlResult<Self> {
        Self::abbreviated(word).or_else(|| Self::named(word)).ok_or_else(|| unknown(word))
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether its distance to UTC never changes, or is that of an abbreviation.
    pub(crate) fn is_fixed(&self) -> bool {
        match &self.rules {
            Rules::Fixed { .. } | Rules::Abbreviation { .. } => true,
            Rules::Changing(zone) => zone.following(Timestamp::MIN).next().is_none(),
        }
    }

    /// Seconds east of Greenwich at a moment.
    #[must_use]
    pub fn offset_at(&self, moment_us: i64) -> i32 {
        let at = || timestamp(unix_seconds(moment_us));
        match &self.rules {
            Rules::Fixed { offset_s, .. } => *offset_s,
            Rules::Changing(zone) => zone.to_offset(at()).seconds(),
            Rules::Abbreviation { word, zone } => {
                let found = under_abbreviation(zone, word, at());
                found.map_or_else(|| zone.to_offset(at()).seconds(), |(offset_s, _)| offset_s)
            }
        }
    }

    /// What its clocks show at a moment.
    pub(crate) fn clock_at(&self, moment_us: i64) -> LocalClock {
        let at = timestamp(unix_seconds(moment_us));
        let of_zone = |zone: &tz::TimeZone| {
            let info = zone.to_offset_info(at);
            LocalClock {
                offset_s: info.offset().seconds(),
                abbreviation: info.abbreviation().to_owned(),
                is_summer: info.dst().is_dst(),
            }
        };
        match &self.rules {
            Rules::Fixed { offset_s, abbreviation } => LocalClock {
                offset_s: *offset_s,
                abbreviation: abbreviation.as_ref().to_owned(),
                is_summer: false,
            },
            Rules::Changing(zone) => of_zone(zone),
            Rules::Abbreviation { word, zone } => match under_abbreviation(zone, word, at) {
                Some((offset_s, is_summer)) => {
                    LocalClock { offset_s, abbreviation: word.to_ascii_uppercase(), is_summer }
                }
                None => of_zone(zone),
            },
        }
    }

    /// Seconds east of Greenwich at a local time.
    #[must_use]
    pub fn offset_of_local(&self, local_us: i64) -> i32 {
        let local_s = unix_seconds(local_us);
        match &self.rules {
            Rules::Fixed { offset_s, .. } => *offset_s,
            Rules::Changing(zone) => resolve(zone, local_s),
            Rules::Abbreviation { word, zone } => {
                let offset_s = resolve(zone, local_s);
                let at = timestamp(local_s.saturating_sub(i64::from(offset_s)));
                under_abbreviation(zone, word, at).map_or(offset_s, |(offset_s, _)| offset_s)
            }
        }
    }

    /// The local time of a moment; infinities stay.
    pub(crate) fn to_local(&self, moment_us: i64) -> SqlResult<i64> {
        calendar::shift(moment_us, self.offset_at(moment_us))
    }

    /// The moment of a local time; infinities stay.
    pub(crate) fn to_moment(&self, local_us: i64) -> SqlResult<i64> {
        calendar::shift(local_us, -self.offset_of_local(local_us))
    }

    /// The moment after an interval: its months and then its days are those of the local calendar,
    /// its time is what passes.
    pub(crate) fn add_interval(&self, moment_us: i64, interval: Interval) -> SqlResult<i64> {
        if !calendar::is_finite(moment_us) {
            return Ok(moment_us);
        }
        let Interval { months, days, microseconds } = interval;
        let mut moment_us = moment_us;
        for part in
            [Interval { months, ..Interval::default() }, Interval { days, ..Interval::default() }]
        {
            if part != Interval::default() {
                let local_us = calendar::add_interval(self.to_local(moment_us)?, part)?;
                moment_us = self.to_moment(local_us)?;
            }
        }
        calendar::add_interval(moment_us, Interval { microseconds, ..Interval::default() })
    }
}

/// The error of a word that names no zone.
pub(crate) fn unknown(word: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, format!("time zone \"{word}\" not recognized"))
}

/// All zones of the tz database, and what their clocks show at a moment.
pub(crate) fn all_names(moment_us: i64) -> impl Iterator<Item = ListedZone> {
    DATABASE.available().filter_map(move |name| {
        let zone = TimeZone::named(name.as_str())?;
        Some(ListedZone { name: zone.name().to_owned(), clock: zone.clock_at(moment_us) })
    })
}

/// All abbreviations, and what they mean at a moment.
pub(crate) fn all_abbreviations(moment_us: i64) -> impl Iterator<Item = ListedZone> {
    ABBREVIATIONS.iter().filter_map(move |(word, meaning)| {
        let mut clock = TimeZone::abbreviated(word)?.clock_at(moment_us);
        clock.is_summer |= matches!(meaning, Meaning::Summer(_));
        Some(ListedZone { name: word.to_ascii_uppercase(), clock })
    })
}

/// A zone at a distance that is not too large.
fn fixed_within(seconds: i64) -> Option<TimeZone> {
    let is_near = seconds.unsigned_abs() < u64::from(MOST_HOURS + 1) * 3600;
    i32::try_from(seconds).ok().filter(|_| is_near).map(TimeZone::fixed)
}

fn unix_seconds(us: i64) -> i64 {
    us.div_euclid(SECOND_US) + UNIX_DAYS * DAY_S
}

/// Seconds that the tz database has: those after its end are brought back by whole cycles.
fn within_database(seconds: i64) -> i64 {
    let beyond = seconds.saturating_sub(LAST_S).max(0);
    seconds - (beyond + CYCLE_S - 1) / CYCLE_S * CYCLE_S
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(within_database(seconds)).unwrap_or(Timestamp::MIN)
}

/// The offset of a local time, in seconds since 1970 of the zone.
fn resolve(zone: &tz::TimeZone, local_s: i64) -> i32 {
    let local_s = within_database(local_s);
    // Offsets are less than a day.
    let from = timestamp(local_s - DAY_S);
    let before_s = zone.to_offset(from).seconds();
    let Some(change) = zone.following(from).next().filter(|change| change.timestamp() > from)
    else {
        return before_s;
    };
    let (changes_at, after_s) = (change.timestamp().as_second(), change.offset().seconds());
    let by_before = local_s - i64::from(before_s);
    let by_after = local_s - i64::from(after_s);
    if by_before < changes_at && by_after < changes_at {
        before_s
    } else if by_before > changes_at && by_after >= changes_at {
        after_s
    } else if by_before > by_after {
        // The clocks leave it out.
        before_s
    } else {
        after_s
    }
}

/// What a zone had under an abbreviation, last before a moment or else first after it: the offset,
/// and whether that is summer time.
fn under_abbreviation(zone: &tz::TimeZone, word: &str, at: Timestamp) -> Option<(i32, bool)> {
    let now = zone.to_offset_info(at);
    if now.abbreviation().eq_ignore_ascii_case(word) {
        return Some((now.offset().seconds(), now.dst().is_dst()));
    }
    let before = zone.preceding(at).take(MOST_CHANGES);
    let after = zone.following(at).take(MOST_CHANGES);
    before
        .chain(after)
        .find(|change| change.abbreviation().eq_ignore_ascii_case(word))
        .map(|change| (change.offset().seconds(), change.dst().is_dst()))
}

/// A zone as POSIX specifies it, in upper case: a name and hours west of Greenwich, then those of
/// summer time and when that is.
fn specified(text: &str) -> Option<TimeZone> {
    let (abbreviation, rest) = abbreviation_of(text)?;
    let (west_s, rest) = west_of(rest)?;
    if rest.is_empty() {
        let rules = Rules::Fixed { offset_s: -west_s, abbreviation: abbreviation.into() };
        return Some(TimeZone { name: text.into(), rules });
    }
    let (summer, _) = abbreviation_of(rest).filter(|(summer, _)| !summer.is_empty())?;
    let has_changes = rest.contains(',') && !summer.contains(',');
    let changes = if has_changes { "" } else { USUAL_CHANGES };
    let zone = tz::TimeZone::posix(&format!("{text}{changes}")).ok()?;
    Some(TimeZone { name: text.into(), rules: Rules::Changing(zone) })
}

/// Takes the name off the front of a specification; it may be between `<` and `>`.
fn abbreviation_of(text: &str) -> Option<(&str, &str)> {
    if let Some(quoted) = text.strip_prefix('<') {
        return quoted.split_once('>');
    }
    let end = text.find(|c: char| c.is_ascii_digit() || ",+-".contains(c));
    Some(text.split_at(end.unwrap_or(text.len())))
}

/// Takes `[+-]hh[:mm[:ss]]` off the front, as seconds.
fn west_of(text: &str) -> Option<(i32, &str)> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut seconds = 0;
    for (unit_s, most) in [(3600, MOST_HOURS), (60, 59), (1, 60)] {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let number = digits.parse::<u32>().ok().filter(|number| *number <= most)?;
        seconds += i32::try_from(number).ok()? * unit_s;
        match after.strip_prefix(':') {
            Some(after) if unit_s != 1 => rest = after,
            _ => return Some((sign * seconds, after)),
        }
    }
    None
}

#[cfg(test)]
mod tests;
