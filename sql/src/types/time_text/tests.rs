//! What texts dates and times have.

use super::*;
use crate::types::settings::DateStyle;
use crate::types::time_print::{print_date, print_time_of_day, print_timestamp};

fn timestamp(text: &str, has_zone: bool) -> SqlResult<String> {
    let settings = FormatSettings::default();
    let mut out = String::new();
    print_timestamp(parse_timestamp(text, has_zone, &settings)?, has_zone, &settings, &mut out);
    Ok(out)
}

fn date(text: &str) -> SqlResult<String> {
    let settings = FormatSettings::default();
    let mut out = String::new();
    print_date(parse_date(text, &settings)?, &settings, &mut out);
    Ok(out)
}

#[test]
fn dates_are_read_in_the_forms_of_the_manual() {
    for text in [
        "1999-01-08",
        "January 8, 1999",
        "1/8/1999",
        "1999-Jan-08",
        "Jan-08-1999",
        "08-Jan-1999",
        "19990108",
        "8 Jan 1999",
        "Jan 8 1999",
        "1999-01-08 04:05:06",
        "01/08/99",
    ] {
        assert_eq!(date(text).unwrap(), "1999-01-08", "{text}");
    }
    assert_eq!(date("0044-03-15 BC").unwrap(), "0044-03-15 BC");
    assert_eq!(date("4714-11-24 BC").unwrap(), "4714-11-24 BC");
    assert_eq!(date("5874897-12-31").unwrap(), "5874897-12-31");
    assert_eq!(date("infinity").unwrap(), "infinity");
    assert_eq!(date("epoch").unwrap(), "1970-01-01");
    for (text, state) in [
        ("2001-02-29", SqlState::DATETIME_OVERFLOW),
        ("2001-13-01", SqlState::DATETIME_OVERFLOW),
        ("0000-01-01", SqlState::DATETIME_OVERFLOW),
        ("4714-11-23 BC", SqlState::DATETIME_OVERFLOW),
        ("5874898-01-01", SqlState::DATETIME_OVERFLOW),
        ("nonsense", SqlState::INVALID_DATETIME),
        ("", SqlState::INVALID_DATETIME),
        ("1999-01", SqlState::INVALID_DATETIME),
        ("+infinity", SqlState::INVALID_DATETIME),
        ("today 2024-01-01", SqlState::INVALID_DATETIME),
        ("2024-07-01 nope", SqlState::INVALID_DATETIME),
    ] {
        assert_eq!(date(text).unwrap_err().state(), state, "{text}");
    }
}

#[test]
fn timestamps_are_read_and_printed() {
    for (text, shown) in [
        ("2004-10-19 10:23:54", "2004-10-19 10:23:54"),
        ("2004-10-19T10:23:54.5Z", "2004-10-19 10:23:54.5"),
        ("2004-10-19 10:23:54.123456789", "2004-10-19 10:23:54.123457"),
        ("2004-10-19 24:00:00", "2004-10-20 00:00:00"),
        ("2004-10-19", "2004-10-19 00:00:00"),
        ("1999-01-08 04:05:06 PM", "1999-01-08 16:05:06"),
        ("Wed Dec 17 07:37:16 1997", "1997-12-17 07:37:16"),
        ("-infinity", "-infinity"),
        ("0001-01-01 00:00:00 BC", "0001-01-01 00:00:00 BC"),
    ] {
        assert_eq!(timestamp(text, false).unwrap(), shown, "{text}");
    }
    for (text, shown) in [
        ("2004-10-19 10:23:54+02", "2004-10-19 08:23:54+00"),
        ("2004-10-19 10:23:54 -05:30", "2004-10-19 15:53:54+00"),
        ("2004-10-19 10:23:54 EST", "2004-10-19 15:23:54+00"),
        ("2004-10-19T10:23:54Z", "2004-10-19 10:23:54+00"),
    ] {
        assert_eq!(timestamp(text, true).unwrap(), shown, "{text}");
    }
    for text in ["2004-10-19 25:00", "2004-10-19 10:60", "294277-01-01", "2004-10-19 x", "10:00"] {
        timestamp(text, false).unwrap_err();
    }
}

#[test]
fn times_are_read_and_printed() {
    let settings = FormatSettings::default();
    for (text, shown) in [
        ("04:05:06.789", "04:05:06.789"),
        ("04:05", "04:05:00"),
        ("040506", "04:05:06"),
        ("04:05 PM", "16:05:00"),
        ("12:00 AM", "00:00:00"),
        ("24:00", "24:00:00"),
        ("allballs", "00:00:00"),
    ] {
        let mut out = String::new();
        print_time_of_day(parse_time(text, &settings).unwrap(), &mut out);
        assert_eq!(out, shown, "{text}");
    }
    for text in ["24:00:01", "25:00", "1:2:3:4", "x", "13:30 PM x"] {
        parse_time(text, &settings).unwrap_err();
    }
}

#[test]
fn styles_are_those_of_the_manual() {
    let zone = TimeZone::parse("PST8PDT").unwrap();
    let mut settings = FormatSettings { time_zone: zone, ..FormatSettings::default() };
    let moment = parse_timestamp("1997-12-17 07:37:16-08", true, &settings).unwrap();
    for (style, shown) in [
        (DateStyle::Iso, "1997-12-17 07:37:16-08"),
        (DateStyle::Sql, "12/17/1997 07:37:16 PST"),
        (DateStyle::Postgres, "Wed Dec 17 07:37:16 1997 PST"),
        (DateStyle::German, "17.12.1997 07:37:16 PST"),
    ] {
        settings.date_style = style;
        let mut out = String::new();
        print_timestamp(moment, true, &settings, &mut out);
        assert_eq!(out, shown);
    }
}

#[test]
fn zones_are_offsets_abbreviations_and_names() {
    for (text, shown) in [
        ("2024-07-01 12:00 Europe/Berlin", "2024-07-01 10:00:00+00"),
        ("2024-07-01 12:00 america/new_york", "2024-07-01 16:00:00+00"),
        ("2024-07-01 12:00:00Europe/Berlin", "2024-07-01 10:00:00+00"),
        ("2024-07-01 12:00 America/Port-au-Prince", "2024-07-01 16:00:00+00"),
        ("2024-07-01 12:00 PST8PDT", "2024-07-01 19:00:00+00"),
        ("2024-07-01 12:00 FOO+3", "2024-07-01 15:00:00+00"),
        ("2024-07-01 12:00 FOO-3:30", "2024-07-01 08:30:00+00"),
        ("2024-07-01 12:00 Etc/GMT+5", "2024-07-01 17:00:00+00"),
        ("2024-07-01 12:00 CET DST", "2024-07-01 10:00:00+00"),
        ("2024-07-01 12:00 Japan", "2024-07-01 03:00:00+00"),
        ("2024-07-01 Europe/Berlin", "2024-06-30 22:00:00+00"),
        ("2024-07-01 CET", "2024-06-30 23:00:00+00"),
        ("CET 2024-07-01 12:00", "2024-07-01 11:00:00+00"),
        ("2024-07-01 +03", "2024-06-30 21:00:00+00"),
        ("2024-07-01+03", "2024-06-30 21:00:00+00"),
        ("Mon Jul 01 12:00:00 2024 CEST", "2024-07-01 10:00:00+00"),
        ("Jul 1 2024 12:00 Europe/Berlin", "2024-07-01 10:00:00+00"),
        ("2024-01-01 04:05:06-08:00:30", "2024-01-01 12:05:36+00"),
        ("20240101T040506+02", "2024-01-01 02:05:06+00"),
        ("20240101T040506Z", "2024-01-01 04:05:06+00"),
        ("2024-01-01 04:05+15:59:59", "2023-12-31 12:05:01+00"),
        ("2024-01-01 04:05+530", "2023-12-31 22:35:00+00"),
    ] {
        assert_eq!(timestamp(text, true).unwrap(), shown, "{text}");
    }
    for (text, state) in [
        ("2024-07-01 12:00 Europe/Nope", SqlState::INVALID_PARAMETER),
        ("2024-07-01 12:00 nope", SqlState::INVALID_DATETIME),
        ("2024-01-01 04:05+16:00", SqlState::INVALID_DISPLACEMENT),
        ("2024-01-01 04:05+15:60", SqlState::INVALID_DISPLACEMENT),
        ("Europe/Berlin 2024-07-01 12:00", SqlState::INVALID_DATETIME),
        ("2024-07-01 12:00 +03 CET", SqlState::INVALID_DATETIME),
        ("now +3", SqlState::INVALID_DATETIME),
        ("now 10:00", SqlState::INVALID_DATETIME),
    ] {
        for has_zone in [true, false] {
            assert_eq!(timestamp(text, has_zone).unwrap_err().state(), state, "{text}");
        }
    }
    let settings = FormatSettings::default();
    for text in ["10:00 CET", "10:00 MSK", "10:00+03", "10:00 FOO+3"] {
        assert_eq!(parse_time(text, &settings).unwrap(), 36_000 * SECOND_US, "{text}");
    }
    for text in [
        "10:00 Europe/Berlin",
        "10:00 PST8PDT",
        "10:00 nope",
        "infinity",
        "today",
        "yesterday 10:00",
        "epoch",
    ] {
        let state = parse_time(text, &settings).unwrap_err().state();
        assert_eq!(state, SqlState::INVALID_DATETIME, "{text}");
    }
}

#[test]
fn now_and_days_around_it_are_those_of_the_transaction() {
    let time_zone = TimeZone::parse("Europe/Berlin").unwrap();
    let settings = FormatSettings { time_zone, ..FormatSettings::default() };
    let now = parse_timestamp("2024-10-27 02:30:00.5+02", true, &settings).unwrap();
    settings.now.set(now);
    assert_eq!(parse_timestamp(" NOW ", true, &settings).unwrap(), now);
    for (text, same) in [
        ("now", "2024-10-27 02:30:00.5"),
        ("today", "2024-10-27"),
        ("today 10:00", "2024-10-27 10:00"),
        ("tomorrow 24:00", "2024-10-29"),
        ("yesterday", "2024-10-26"),
        ("today allballs", "2024-10-27"),
    ] {
        let read = |text| parse_timestamp(text, false, &settings).unwrap();
        assert_eq!(read(text), read(same), "{text}");
    }
    let noon = parse_timestamp("tomorrow 12:00 America/New_York", true, &settings).unwrap();
    let same = parse_timestamp("2024-10-28 17:00", true, &settings).unwrap();
    assert_eq!(noon, same);
    let date = |text| parse_date(text, &settings).unwrap();
    assert_eq!(date("now"), date("2024-10-27"));
    let time = |text| parse_time(text, &settings).unwrap();
    assert_eq!(time("now"), time("02:30:00.5"));
    assert!(depends_on_now("{NOW,infinity}") && !depends_on_now("2024-01-01 nowhere"));
}
