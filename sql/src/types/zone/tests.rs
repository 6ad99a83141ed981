//! What zones there are, and how local times become moments.

use super::*;
use crate::types::settings::FormatSettings;
use crate::types::time_print::print_timestamp;
use crate::types::time_text::parse_timestamp;

fn shown(zone: &str, text: &str) -> String {
    let time_zone = TimeZone::parse(zone).unwrap();
    let settings = FormatSettings { time_zone, ..FormatSettings::default() };
    let mut out = String::new();
    print_timestamp(parse_timestamp(text, true, &settings).unwrap(), true, &settings, &mut out);
    out
}

#[test]
fn settings_are_names_specifications_and_hours() {
    let july = parse_timestamp("2024-07-01", false, &FormatSettings::default()).unwrap();
    for (text, name, offset_s) in [
        ("UTC", "UTC", 0),
        ("europe/berlin", "Europe/Berlin", 7200),
        ("cet", "CET", 7200),
        ("est5edt", "EST5EDT", -14_400),
        ("+02", "<+02>-02", 7200),
        ("3", "<+03>-03", 10_800),
        ("-7", "<-07>+07", -25_200),
        ("5.5", "<+05:30>-05:30", 19_800),
        ("0", "<+00>-00", 0),
        ("-03:30", "-03:30", 12_600),
        ("foo+3", "FOO+3", -10_800),
        ("<-03>3", "<-03>3", -10_800),
        ("UTC+3", "UTC+3", -10_800),
        ("a5", "A5", -18_000),
        ("aaa5bbb", "AAA5BBB", -14_400),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "CET-1CEST,M3.5.0,M10.5.0/3", 7200),
        ("INTERVAL '-08:00'", "<-08>+08", -28_800),
        ("interval '05:30:15'", "<+05:30:15>-05:30:15", 19_815),
    ] {
        let zone = TimeZone::parse(text).unwrap();
        assert_eq!((zone.name(), zone.offset_at(july)), (name, offset_s), "{text}");
    }
    for text in [
        "",
        "+",
        "200",
        "1e300",
        "foo",
        "CEST",
        "z",
        " UTC",
        "UTC ",
        "Mars/Olympus",
        "Etc/Unknown",
        "default",
        "+1:60",
        "+0530",
        "interval '1 day'",
        "interval '1 month'",
        "interval",
        "AAA5BBB,nothing",
    ] {
        let error = TimeZone::parse(text).unwrap_err();
        assert_eq!(error.state(), SqlState::INVALID_PARAMETER, "{text}");
        assert!(error.message().contains(&format!("\"{text}\"")), "{text}: {}", error.message());
    }
}

#[test]
fn hours_that_are_left_out_or_shown_twice_are_resolved() {
    for (zone, text, out) in [
        ("Europe/Berlin", "2024-03-31 02:30", "2024-03-31 03:30:00+02"),
        ("Europe/Berlin", "2024-03-31 01:59:59", "2024-03-31 01:59:59+01"),
        ("Europe/Berlin", "2024-10-27 02:00", "2024-10-27 02:00:00+01"),
        ("Europe/Berlin", "2024-10-27 02:30", "2024-10-27 02:30:00+01"),
        ("Europe/Berlin", "2024-10-27 01:59:59.999999", "2024-10-27 01:59:59.999999+02"),
        ("America/New_York", "2024-03-10 02:30", "2024-03-10 03:30:00-04"),
        ("America/New_York", "2024-11-03 01:30", "2024-11-03 01:30:00-05"),
        ("Australia/Lord_Howe", "2024-04-07 01:45", "2024-04-07 01:45:00+10:30"),
        ("Australia/Lord_Howe", "2024-10-06 02:15", "2024-10-06 02:45:00+11"),
        ("Europe/Moscow", "2014-10-26 01:30", "2014-10-26 01:30:00+03"),
        ("Pacific/Apia", "2011-12-30 12:00", "2011-12-31 12:00:00+14"),
    ] {
        assert_eq!(shown(zone, text), out, "{text} in {zone}");
    }
}

#[test]
fn all_years_have_an_offset() {
    for (text, out) in [
        ("4713-01-01 BC", "4713-01-01 00:00:00+00:53:28 BC"),
        ("0001-01-01", "0001-01-01 00:00:00+00:53:28"),
        ("1800-01-01", "1800-01-01 00:00:00+00:53:28"),
        ("9999-12-31 23:59", "9999-12-31 23:59:00+01"),
        ("10000-07-01", "10000-07-01 00:00:00+02"),
        ("10000-01-01", "10000-01-01 00:00:00+01"),
        ("100000-07-01", "100000-07-01 00:00:00+02"),
        ("294276-12-31 23:59", "294276-12-31 23:59:00+01"),
    ] {
        assert_eq!(shown("Europe/Berlin", text), out, "{text}");
    }
    // Infinities have one as well.
    for us in [i64::MIN, i64::MAX] {
        for zone in [TimeZone::named("Europe/Berlin"), TimeZone::abbreviated("msk")] {
            let zone = zone.unwrap();
            assert!(zone.offset_at(us).abs() < 86_400 && zone.offset_of_local(us).abs() < 86_400);
        }
    }
}

#[test]
fn abbreviations_mean_what_their_zones_had() {
    for (text, out) in [
        ("2024-07-01 12:00 MSK", "2024-07-01 09:00:00+00"),
        ("2012-07-01 12:00 MSK", "2012-07-01 08:00:00+00"),
        ("2024-07-01 12:00 LHDT", "2024-07-01 01:30:00+00"),
        ("2024-01-01 12:00 LHDT", "2024-01-01 01:00:00+00"),
        ("2024-07-01 12:00 ART", "2024-07-01 15:00:00+00"),
        ("2024-07-01 12:00 CET", "2024-07-01 11:00:00+00"),
        ("2024-07-01 12:00 CEST", "2024-07-01 10:00:00+00"),
    ] {
        assert_eq!(shown("UTC", text), out, "{text}");
    }
}

#[test]
fn all_that_is_listed_is_found() {
    let names: Vec<_> = all_names(0).collect();
    assert!(names.len() > 590, "{}", names.len());
    assert!(names.iter().all(|own| TimeZone::find(&own.name).is_ok()));
    assert_eq!(all_abbreviations(0).count(), ABBREVIATIONS.len());
}
