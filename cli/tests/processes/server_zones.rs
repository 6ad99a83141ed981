//! Time zones that clients ask for when they connect.

use crate::server::{answer, frame, start};

/// What the JDBC driver sends first, in a zone.
fn startup_of_jdbc(zone: &str) -> Vec<u8> {
    let parameters = [
        ("user", "tester"),
        ("database", "selkie"),
        ("client_encoding", "UTF8"),
        ("DateStyle", "ISO"),
        ("TimeZone", zone),
        ("extra_float_digits", "2"),
    ];
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for text in parameters.iter().flat_map(|(name, value)| [name, value]) {
        body.extend(text.bytes().chain([0]));
    }
    body.push(0);
    [&u32::try_from(body.len() + 4).unwrap().to_be_bytes()[..], &body].concat()
}

#[test]
fn clients_are_in_the_zone_that_they_begin_with() {
    let (_server, addr) = start("embedded:");
    let contains = |answer: &[u8], what: &str| String::from_utf8_lossy(answer).contains(what);
    // All ask the same, so they share the plan.
    let query = frame(b'Q', b"select timestamptz '2024-01-01', timestamptz '2024-07-01'\0");
    for (zone, name, winter, summer) in [
        ("Europe/Berlin", "Europe/Berlin", "2024-01-01 00:00:00+01", "2024-07-01 00:00:00+02"),
        ("america/new_york", "America/New_York", "00:00:00-05", "00:00:00-04"),
        ("Asia/Kolkata", "Asia/Kolkata", "00:00:00+05:30", "00:00:00+05:30"),
        ("UTC", "UTC", "00:00:00+00", "00:00:00+00"),
        ("GMT+02:00", "GMT+02:00", "00:00:00-02", "00:00:00-02"),
    ] {
        let bytes = [startup_of_jdbc(zone), query.clone(), frame(b'X', b"")].concat();
        let answer = answer(addr, &bytes);
        for what in [&format!("TimeZone\0{name}\0"), winter, summer] {
            assert!(contains(&answer, what), "{what}: {}", String::from_utf8_lossy(&answer));
        }
    }
    let answer = answer(addr, &startup_of_jdbc("Mars/Olympus"));
    for what in ["FATAL", "22023", "invalid value for parameter \"TimeZone\": \"Mars/Olympus\""] {
        assert!(contains(&answer, what), "{what}: {}", String::from_utf8_lossy(&answer));
    }
}
