//! Serializability, anomaly by anomaly.

use super::parse::{NO_SERIAL_ORDER, history};
use crate::check::serial::{Anomaly, AnomalyKind, Level, serializable};

fn check(lines: &[&str], level: Level) -> Vec<Anomaly> {
    serializable(&history(lines), level).err().unwrap_or_default()
}

#[track_caller]
fn bad(kind: AnomalyKind, lines: &[&str]) -> String {
    let anomalies = check(lines, Level::Serializable);
    let found = anomalies.iter().find(|anomaly| anomaly.kind == kind);
    found.unwrap_or_else(|| panic!("{kind:?} not in {anomalies:#?}")).explanation.clone()
}

/// The only thing wrong.
#[track_caller]
fn only(kind: AnomalyKind, lines: &[&str]) -> String {
    let kinds: Vec<AnomalyKind> =
        check(lines, Level::Serializable).iter().map(|a| a.kind).collect();
    assert_eq!(kinds, [kind]);
    bad(kind, lines)
}

#[track_caller]
fn good(lines: &[&str]) {
    assert_eq!(check(lines, Level::Serializable), []);
}

#[test]
fn aborted_read() {
    only(AnomalyKind::AbortedRead, &["0-9! w1=5", "0-9 r1=5"]);
    only(AnomalyKind::AbortedRead, &["0-9! a1=5", "0-9 l1=5"]);
    only(AnomalyKind::AbortedRead, &["0-9! a1=5", "0-9 a1=6", "0-9 l1=5,6"]);
    good(&["0-9! w1=5", "0-9 r1=-"]);
    good(&["0-9 w1=5", "0-9! r1=77", "0-9 r1=5"]);
}

#[test]
fn intermediate_read() {
    only(AnomalyKind::IntermediateRead, &["0-9 w1=5 w1=6", "0-9 r1=5"]);
    only(AnomalyKind::IntermediateRead, &["0-9 a1=5 a1=6", "0-9 l1=5"]);
    good(&["0-9 w1=5 r1=5 w1=6", "0-9 r1=6"]);
    good(&["0-9 a1=5 l1=5 a1=6", "0-9 l1=5,6"]);
}

#[test]
fn garbage_read() {
    only(AnomalyKind::GarbageRead, &["0-9 w1=5", "0-9 r1=6"]);
    only(AnomalyKind::GarbageRead, &["0-9 w2=6", "0-9 r1=6"]);
    only(AnomalyKind::GarbageRead, &["0-9 a1=5", "0-9 l1=6,5"]);
    only(AnomalyKind::GarbageRead, &["0-9 s1..3=2:6"]);
    good(&["0-9 w1=6", "0-9 r1=6"]);
}

#[test]
fn unknown_counts_once_it_was_seen() {
    // Seen in one register, so its other write cannot be missing.
    only(AnomalyKind::GSingle, &["0-? w1=5 w2=6", "0-9 r1=5 r2=-"]);
    only(AnomalyKind::GSingle, &["0-? w1=5 w2=6", "0-9 s1..3=2:6"]);
    only(AnomalyKind::GSingle, &["0-9 w1=5", "0-? r1=5 w1=6 w2=7", "0-9 s1..3=1:5,2:7"]);
    good(&["0-9 w1=5", "0-? r1=5 w1=6 w2=7", "0-9 s1..3=1:5"]);
    good(&["0-9 w1=5", "0-? r1=5 w1=6 w2=7", "0-9 s1..3=1:6,2:7"]);
    good(&["0-? w1=5 w2=6", "0-9 r1=- r2=-"]);
    good(&["0-? w1=5 w2=6", "0-9 r1=5 r2=6"]);
    // Through another one of unknown outcome.
    only(AnomalyKind::GSingle, &["0-? w1=5 w2=6", "0-? r1=5 w3=7", "0-9 r3=7 r2=-"]);
    good(&["0-? w1=5 w2=6", "0-? r1=5 w3=7", "0-9 r3=- r2=-"]);
    only(AnomalyKind::IntermediateRead, &["0-? w1=5 w1=6", "0-9 r1=5"]);
}

#[test]
fn internal() {
    only(AnomalyKind::Internal, &["0-9 w1=5", "0-9 w1=6", "0-9 r1=5 r1=6"]);
    only(AnomalyKind::Internal, &["0-9 w1=5 r1=-"]);
    only(AnomalyKind::Internal, &["0-9 r1=5 w1=5"]);
    only(AnomalyKind::Internal, &["0-9 a1=5", "0-9 l1=5 l1="]);
    only(AnomalyKind::Internal, &["0-9 a1=5", "0-9 a1=6 l1=5"]);
    only(AnomalyKind::Internal, &["0-9 l1=5 a1=5"]);
    only(AnomalyKind::Internal, &["0-9 w1=5", "0-9 r1=- s1..1=1:5"]);
    good(&["0-9 w1=5", "0-9 r1=5 r1=5 w1=6 r1=6"]);
    good(&["0-9 a1=5", "0-9 a1=6 l1=5,6 a1=7 l1=5,6,7"]);
}

#[test]
fn duplicate_values() {
    only(AnomalyKind::DuplicateValue, &["0-9 w1=5", "0-9 w1=5"]);
    only(AnomalyKind::DuplicateValue, &["0-9 a1=5 a1=5"]);
    only(AnomalyKind::DuplicateValue, &["0-9 w1=5", "0-9! w1=5"]);
    only(AnomalyKind::DuplicateValue, &["0-9 a1=5", "0-9 l1=5,5"]);
    good(&["0-9 w1=5", "0-9 w2=5", "0-9 a1=5", "0-9 a2=5"]);
}

#[test]
fn incompatible_lists() {
    only(AnomalyKind::IncompatibleOrder, &["0-9 a1=5", "0-9 a1=6", "0-9 l1=5,6", "0-9 l1=6"]);
    only(AnomalyKind::IncompatibleOrder, &["0-9 a1=5 a1=6", "0-9 a1=7", "0-9 l1=6,5,7"]);
    only(AnomalyKind::IncompatibleOrder, &["0-9 a1=5 a1=6", "0-9 l1=6"]);
    good(&["0-9 a1=5", "0-9 a1=6", "0-9 l1=5,6", "0-9 l1=5"]);
}

#[test]
fn lost_update() {
    bad(AnomalyKind::LostUpdate, &["0-9 w1=5", "0-9 r1=5 w1=6", "0-9 r1=5 w1=7"]);
    bad(AnomalyKind::LostUpdate, &["0-9 r1=- w1=6", "0-9 r1=- w1=7"]);
    bad(AnomalyKind::LostUpdate, &["0-9 l1= a1=6", "0-9 l1= a1=7"]);
    good(&["0-9 w1=5", "0-9 r1=5 w1=6", "0-9 r1=6 w1=7"]);
    good(&["0-9 w1=5", "0-9 r1=5 w2=6", "0-9 r1=5 w2=7"]);
    good(&["0-9 l1= a1=6", "0-9 l1=6 a1=7"]);
}

#[test]
fn g0() {
    // Two transactions wrote two lists, in different orders.
    only(AnomalyKind::G0, &["0-9 a1=5 a2=6", "0-9 a1=7 a2=8", "0-9 l1=5,7", "0-9 l2=8,6"]);
    only(AnomalyKind::G0, &["0-9 r1=5 w1=6 w2=7", "0-9 w1=5 r2=7 w2=8"]);
    good(&["0-9 a1=5 a2=6", "0-9 a1=7 a2=8", "0-9 l1=5,7", "0-9 l2=6,8"]);
}

#[test]
fn g1c() {
    let explanation = only(AnomalyKind::G1c, &["0-9 w1=5 r2=6", "0-9 r1=5 w2=6"]);
    assert!(explanation.contains("T0 wrote 5 to key 1, which T1 read"), "{explanation}");
    only(AnomalyKind::G1c, &["0-9 a1=5 l2=6", "0-9 l1=5 a2=6"]);
    good(&["0-9 w1=5 r2=-", "0-9 r1=5 w2=6"]);
}

#[test]
fn g_single() {
    // Read skew: T2 saw T1's write of one key and not of the other.
    let skew = ["0-9 w1=1 w2=2", "0-9 r1=1 w1=3 r2=2 w2=4", "0-9 r1=1 r2=4"];
    let explanation = only(AnomalyKind::GSingle, &skew);
    assert!(explanation.contains("T2 read key 1 = 1, which T1 overwrote with 3"), "{explanation}");
    assert!(explanation.contains("T1 wrote 4 to key 2, which T2 read"), "{explanation}");
    assert!(explanation.contains("T2 = process 2, 0 .. 9, Committed: read key 1"), "{explanation}");
    only(AnomalyKind::GSingle, &["0-9 a1=1 a2=2", "0-9 l1=1 l2="]);
    good(&["0-9 w1=1 w2=2", "0-9 r1=1 w1=3 r2=2 w2=4", "0-9 r1=1 r2=2"]);
}

#[test]
fn g2() {
    only(AnomalyKind::G2, &["0-9 r1=- w2=5", "0-9 r2=- w1=6"]);
    only(AnomalyKind::G2, &["0-9 l1= a2=5", "0-9 l2= a1=6"]);
    good(&["0-9 r1=- w2=5", "0-9 r2=5 w1=6"]);
}

#[test]
fn the_shortest_cycle_is_reported() {
    // T0 and T1 are a write skew; T1, T2 and T3 are a longer one in the same component.
    let skews = ["0-9 r1=- w2=5", "0-9 r2=- w1=5 r3=- w5=5", "0-9 w3=5 r4=-", "0-9 w4=5 r5=-"];
    let anomalies = check(&skews, Level::Serializable);
    assert_eq!(anomalies.len(), 1);
    assert_eq!(anomalies[0].transactions, [0, 1]);
    assert_eq!(check(&skews[1..], Level::Serializable)[0].transactions.len(), 3);
}

#[test]
fn phantoms() {
    // Each scanned for what the other was about to insert.
    only(AnomalyKind::G2, &["0-9 s1..9= w3=5", "0-9 s1..9= w4=6"]);
    only(AnomalyKind::GSingle, &["0-9 w3=5 w4=6", "0-9 s1..9=3:5"]);
    good(&["0-9 s1..9= w3=5", "0-9 s1..9=3:5 w4=6"]);
    good(&["0-9 s1..2= w3=5", "0-9 s1..9=3:5 w4=6"]);
    good(&["0-9 s5..1= w3=5", "0-9 s1..9= w4=6"]);
    only(AnomalyKind::BadScan, &["0-9 w3=5", "0-9 s1..2=3:5"]);
    only(AnomalyKind::BadScan, &["0-9 w3=5", "0-9 s1..9=3:5,3:5"]);
    good(&["0-9 w3=5", "0-9 s3..3=3:5"]);
}

#[test]
fn blind_writes() {
    // T1 and T2 both saw both writers of key 1, in opposite orders.
    let reads = ["0-9 w1=1", "0-9 w1=2", "0-9 r1=1 w2=3", "0-9 r1=2 w3=4"];
    let crossed = [&reads[..], &["0-9 r2=3 r1=2", "0-9 r3=4 r1=1"]].concat();
    only(AnomalyKind::G0, &crossed);
    good(&[&reads[..], &["0-9 r2=3 r1=2", "0-9 r3=4 r1=2"]].concat());
}

#[test]
fn no_serial_order() {
    only(AnomalyKind::NoSerialOrder, &NO_SERIAL_ORDER);
    // Without one of the reads there is an order, wherever the search begins.
    for read in 4..8 {
        let mut rest = [&NO_SERIAL_ORDER[..read], &NO_SERIAL_ORDER[read + 1..]].concat();
        permute(&mut rest, 0);
    }
}

#[test]
fn every_conflict_is_tried() {
    // The first conflict that the search meets cannot be resolved; the second one can.
    good(&[
        "0-9 w2=1",
        "0-9 w1=3",
        "0-9 r1=3 w1=4 w2=5",
        "0-9 r3=12 r1=4",
        "0-9 r3=10 r2=1",
        "0-9 w1=9 w3=10",
        "0-9 r2=11 r1=9",
        "0-9 w2=11 w3=12",
    ]);
}

fn permute(lines: &mut [&str], from: usize) {
    if from == lines.len() {
        good(lines);
    }
    for other in from..lines.len() {
        lines.swap(from, other);
        permute(lines, from + 1);
        lines.swap(from, other);
    }
}

#[test]
fn real_time() {
    let strict = |lines: &[&str]| -> Vec<AnomalyKind> {
        check(lines, Level::StrictSerializable).iter().map(|anomaly| anomaly.kind).collect()
    };
    // A stale read, directly and through a third transaction.
    let stale = ["0-9 w1=5", "10-19 r1=-"];
    assert_eq!(strict(&stale), [AnomalyKind::RealTime]);
    good(&stale);
    assert_eq!(strict(&["0-9 w1=5", "9-19 r1=-"]), []);
    assert_eq!(strict(&["0-9 w1=5", "10-19", "20-29", "30-39 r1=-"]), [AnomalyKind::RealTime]);
    let through = check(&["0-9 w1=5", "10-19", "20-29", "30-39 r1=-"], Level::StrictSerializable);
    assert_eq!(through[0].transactions, [3, 0], "{through:#?}");
    // What the frontier forgets still follows.
    assert_eq!(
        strict(&["0-9 w1=5", "0-30", "10-19 w2=6", "20-29 r1=- r2=6"]),
        [AnomalyKind::RealTime]
    );
    // The version order follows from real time.
    assert_eq!(strict(&["0-9 w1=5", "10-19 w1=6", "20-29 r1=5"]), [AnomalyKind::RealTime]);
    assert_eq!(strict(&["0-9 w1=5", "10-19 w1=6", "20-29 r1=6"]), []);
    assert_eq!(strict(&["0-9 w1=5", "10-19 w1=6", "15-29 r1=5"]), []);
    // An unknown outcome may come at any time after its invocation, but not before.
    assert_eq!(strict(&["0-? w1=5", "10-19 r1=-", "20-29 r1=5"]), []);
    assert_eq!(strict(&["0-9 r1=5", "10-? w1=5"]), [AnomalyKind::RealTime]);
    let explanation = &check(&stale, Level::StrictSerializable)[0].explanation;
    assert!(explanation.contains("T0 returned at 9, before T1 was invoked at 10"), "{explanation}");
}
