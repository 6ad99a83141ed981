//! Functions of dates and times.

use crate::error::SqlState;
use crate::functions::testing::{call, operate};

#[test]
fn moments_are_taken_apart_and_made() {
    let moment = "timestamp:2001-02-16 20:38:40.12";
    for (name, arguments, result) in [
        ("extract", &["hour", moment][..], "20"),
        ("extract", &["second", moment], "40.120000"),
        ("extract", &["milliseconds", moment], "40120.000"),
        ("extract", &["microseconds", moment], "40120000"),
        ("extract", &["century", "timestamp:2000-12-16 12:21:13"], "20"),
        ("extract", &["century", moment], "21"),
        ("extract", &["millennium", moment], "3"),
        ("extract", &["decade", moment], "200"),
        ("extract", &["dow", moment], "5"),
        ("extract", &["isodow", "timestamp:2001-02-18 20:38:40"], "7"),
        ("extract", &["doy", moment], "47"),
        ("extract", &["week", moment], "7"),
        ("extract", &["isoyear", "date:2006-01-01"], "2005"),
        ("extract", &["quarter", moment], "1"),
        ("extract", &["epoch", moment], "982355920.120000"),
        ("extract", &["epoch", "timestamptz:2001-02-16 20:38:40.12-08"], "982384720.120000"),
        ("extract", &["epoch", "interval:5 days 3 hours"], "442800.000000"),
        ("extract", &["epoch", "date:1970-01-02"], "86400"),
        ("extract", &["month", "interval:2 years 13 months"], "1"),
        ("extract", &["timezone", "timestamptz:2001-02-16 20:38:40"], "7200"),
        ("extract", &["julian", "date:2006-01-01"], "2453737"),
        ("extract", &["year", "date:0044-03-15 BC"], "-44"),
        ("date_part", &["minute", "interval:4 hours 3 minutes"], "3"),
        ("date_part", &["second", moment], "40.12"),
        ("date_trunc", &["hour", moment], "2001-02-16 20:00:00"),
        ("date_trunc", &["year", moment], "2001-01-01 00:00:00"),
        ("date_trunc", &["week", moment], "2001-02-12 00:00:00"),
        ("date_trunc", &["day", "timestamptz:2001-02-16 20:38:40+00"], "2001-02-16 00:00:00+02"),
        ("date_trunc", &["hour", "interval:3 days 02:47:33"], "3 days 02:00:00"),
        ("age", &["timestamp:2001-04-10", "timestamp:1957-06-13"], "43 years 9 mons 27 days"),
        ("age", &["timestamp:1957-06-13", "timestamp:2001-04-10"], "-43 years -9 mons -27 days"),
        ("age", &["timestamp:2001-01-31", "timestamp:2001-03-01"], "-1 mons -1 days"),
        ("make_date", &["int4:2013", "int4:7", "int4:15"], "2013-07-15"),
        ("make_time", &["int4:8", "int4:15", "float8:23.5"], "08:15:23.5"),
        (
            "make_timestamp",
            &["int4:2013", "int4:7", "int4:15", "int4:8", "int4:15", "float8:23.5"],
            "2013-07-15 08:15:23.5",
        ),
        ("make_interval", &["int4:0", "int4:0", "int4:0", "int4:10"], "10 days"),
        ("to_timestamp", &["float8:1284352323"], "2010-09-13 06:32:03+02"),
        ("timezone", &["-08", "timestamp:2001-02-16 20:38:40"], "2001-02-16 14:38:40+02"),
        ("timezone", &["UTC", "timestamptz:2001-02-16 20:38:40-05"], "2001-02-17 01:38:40"),
        ("justify_hours", &["interval:27 hours"], "1 day 03:00:00"),
        ("justify_days", &["interval:35 days"], "1 mon 5 days"),
        ("justify_interval", &["interval:1 mon -1 hour"], "29 days 23:00:00"),
        ("isfinite", &["date:infinity"], "f"),
    ] {
        let given = call(name, arguments);
        assert_eq!(given.unwrap(), result, "{name}({})", arguments.join(", "));
    }
    for (name, arguments, state) in [
        ("extract", &["fortnight", moment][..], SqlState::INVALID_PARAMETER),
        ("extract", &["hour", "date:2001-01-01"], SqlState::FEATURE_NOT_SUPPORTED),
        ("make_date", &["int4:2013", "int4:2", "int4:30"], SqlState::DATETIME_OVERFLOW),
        ("to_timestamp", &["float8:1e15"], SqlState::DATETIME_OVERFLOW),
    ] {
        assert_eq!(call(name, arguments).unwrap_err().state(), state, "{name}");
    }
    let sum = operate("timestamptz:2001-01-31 23:00+00", "+", "interval:1 month").unwrap();
    assert_eq!(sum, "2001-03-01 01:00:00+02");
}

#[test]
fn moments_and_numbers_are_formatted() {
    let moment = "timestamp:2002-04-20 17:31:12.66";
    for (name, arguments, result) in [
        ("to_char", &[moment, "HH12:MI:SS"][..], "05:31:12"),
        ("to_char", &[moment, "YYYY-MM-DD HH24:MI:SS.MS"], "2002-04-20 17:31:12.660"),
        ("to_char", &[moment, "FMMonth FMDDth, YYYY"], "April 20th, 2002"),
        ("to_char", &[moment, "Day|DY|Mon|MONTH|"], "Saturday |SAT|Apr|APRIL    |"),
        ("to_char", &[moment, "DDD IW Q AM \"quoted YYYY\""], "110 16 2 PM quoted YYYY"),
        ("to_char", &["interval:15:02:12", "HH24:MI:SS"], "15:02:12"),
        ("to_char", &["timestamptz:2000-01-01 00:00:00+00", "HH24 OF"], "02 +02"),
        ("to_char", &["int4:125", "999"], " 125"),
        ("to_char", &["int4:-125", "999"], "-125"),
        ("to_char", &["numeric:-125.8", "999D99S"], "125.80-"),
        ("to_char", &["numeric:-0.1", "99.99"], "  -.10"),
        ("to_char", &["numeric:-0.1", "FM9.99"], "-.1"),
        ("to_char", &["numeric:0.1", "0.9"], " 0.1"),
        ("to_char", &["int4:12", "9990999.9"], "    0012.0"),
        ("to_char", &["int4:12", "FM9990999.9"], "0012."),
        ("to_char", &["int4:485", "999"], " 485"),
        ("to_char", &["int4:1485", "9,999"], " 1,485"),
        ("to_char", &["int4:1485", "999"], " ###"),
        ("to_char", &["int4:485", "FM000000"], "000485"),
        ("to_char", &["int4:-485", "999PR"], "<485>"),
        ("to_char", &["numeric:148.5", "FM999.990"], "148.500"),
        ("to_date", &["05 Dec 2000", "DD Mon YYYY"], "2000-12-05"),
        ("to_date", &["20010203", "YYYYMMDD"], "2001-02-03"),
        (
            "to_timestamp",
            &["2000-12-05 13:14:15", "YYYY-MM-DD HH24:MI:SS"],
            "2000-12-05 13:14:15+02",
        ),
        ("to_number", &["12,454.8-", "99G999D9S"], "-12454.8"),
    ] {
        let given = call(name, arguments);
        assert_eq!(given.unwrap(), result, "{name}({})", arguments.join(", "));
    }
    call("to_date", &["x", "YYYY"]).unwrap_err();
    call("to_date", &["2001-02-30", "YYYY-MM-DD"]).unwrap_err();
}
