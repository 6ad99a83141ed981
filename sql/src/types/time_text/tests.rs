//! What texts dates and times have.

use super::*;

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
        ("today", SqlState::FEATURE_NOT_SUPPORTED),
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
    let zone = TimeZone::parse("PST").unwrap();
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
