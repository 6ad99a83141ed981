//! Histories of transactions by every protocol, as nodes really ran them, before two judges: our
//! checker, and the crate `adya` on what that can express: registers with scans taken for reads of
//! each key, and lists.

#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

mod common;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use adya::{Valid, Workload};
use selkie_engine::Planted;
use selkie_sim::check::serial::{Level, Op, Status, Transaction, serializable};
use selkie_sim::{Case, RecordedHistory, Scenario, history};
use selkie_txn::Protocol;

/// Seeds of each protocol in the sample, and in the sweep.
const SAMPLE: Range<u64> = 0..60;
const SWEEP: Range<u64> = 0..1_000;
/// Seeds of the protocol that databases of SQL have.
const LONG_SWEEP: Range<u64> = 0..10_000;

const WORKLOADS: [Workload; 2] = [Workload::RwRegister, Workload::ListAppend];

fn case_of(protocol: Protocol, seed: u64) -> Case {
    Case::gentle(Scenario::History, seed).protocolled(protocol).unwrap()
}

/// The part of a history that is of a workload. To Elle an unknown outcome has no reads.
fn part(history: &[Transaction], workload: Workload) -> Vec<Transaction> {
    let part_of = |transaction: &Transaction| {
        let ops = transaction.ops.iter().flat_map(|op| part_of_op(op, workload));
        let is_known = transaction.status != Status::Unknown;
        let stays = |op: &Op| is_known || matches!(op, Op::Write { .. } | Op::Append { .. });
        Transaction { ops: ops.filter(stays).collect(), ..transaction.clone() }
    };
    history.iter().map(part_of).collect()
}

fn part_of_op(op: &Op, workload: Workload) -> Vec<Op> {
    let is_list = matches!(op, Op::ReadList { .. } | Op::Append { .. });
    match op {
        _ if is_list != (workload == Workload::ListAppend) => Vec::new(),
        Op::Scan { low, high, seen } => {
            let value =
                |key: u64| seen.iter().find(|(own, _)| *own == key).map(|(_, value)| *value);
            (*low..=*high).map(|key| Op::Read { key, value: value(key) }).collect()
        }
        op => vec![op.clone()],
    }
}

/// Whether `adya` takes a history for strictly serializable; else why not.
fn adya_accepts(history: &[Transaction]) -> Result<(), String> {
    for workload in WORKLOADS {
        let report = common::adya(&part(history, workload), workload, "strict-serializable");
        if report.valid != Valid::True {
            return Err(format!("{workload:?} {:?}: {:#?}", report.valid, report.anomalies));
        }
    }
    Ok(())
}

/// How much of what there was.
#[derive(Debug, Default)]
struct Counts {
    committed: AtomicU64,
    aborted: AtomicU64,
    unknown: AtomicU64,
    writes: AtomicU64,
    appends: AtomicU64,
    scans: AtomicU64,
    lists: AtomicU64,
}

impl Counts {
    fn add(&self, history: &[Transaction]) {
        let one = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        for transaction in history {
            let counter = match transaction.status {
                Status::Committed => &self.committed,
                Status::Aborted => &self.aborted,
                Status::Unknown => &self.unknown,
            };
            one(counter);
            for op in transaction.ops.iter().filter(|_| transaction.status == Status::Committed) {
                match op {
                    Op::Write { .. } => one(&self.writes),
                    Op::Append { .. } => one(&self.appends),
                    Op::Scan { .. } => one(&self.scans),
                    Op::ReadList { .. } => one(&self.lists),
                    Op::Read { .. } => continue,
                };
            }
        }
    }
}

/// Both judges accept what a protocol does with all of these seeds.
fn both_accept(protocol: Protocol, seeds: Range<u64>) -> Counts {
    let (next, counts) = (AtomicU64::new(seeds.start), Counts::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let case = case_of(protocol, seed);
                    let RecordedHistory { history, error } =
                        history(case, &|_| {}).unwrap_or_else(|error| panic!("{error}"));
                    assert!(error.is_none(), "{protocol}, seed {seed}: {error:?}");
                    counts.add(&history);
                    let ours = serializable(&history, Level::StrictSerializable);
                    assert_eq!(ours, Ok(()), "{protocol}, seed {seed}");
                    let theirs = adya_accepts(&history);
                    assert_eq!(theirs, Ok(()), "{protocol}, seed {seed}");
                }
            });
        }
    });
    counts
}

#[test]
fn what_every_protocol_does_is_strictly_serializable_to_both_judges() {
    let mut all_unknown = 0;
    for protocol in Protocol::ALL {
        let counts = both_accept(protocol, SAMPLE);
        println!("{protocol}: {counts:?}");
        // Enough of everything that a fault would have something to show in.
        let Counts { committed, aborted, unknown, writes, appends, scans, lists } = counts;
        let least = [(committed, 3_000), (aborted, 3_000), (writes, 1_000), (appends, 300)];
        for (at, (count, least)) in
            least.into_iter().chain([(scans, 1_000), (lists, 500)]).enumerate()
        {
            let count = count.into_inner();
            assert!(count >= least, "{protocol}, count {at}: {count} of {least}");
        }
        all_unknown += unknown.into_inner();
    }
    assert!(all_unknown > 0, "some nodes die with a transaction about to commit");
}

/// The bugs that show in the histories of a protocol.
const BUGS: [(Planted, Protocol); 11] = [
    (Planted::EarlyUnlock, Protocol::TwoPhase),
    (Planted::UnguardedGaps, Protocol::TwoPhase),
    (Planted::UncheckedReads, Protocol::Optimistic),
    (Planted::UnguardedGaps, Protocol::Optimistic),
    (Planted::ReadStampsGoBack, Protocol::Timestamp),
    (Planted::UncheckedOrder, Protocol::Timestamp),
    (Planted::EarlyRelease, Protocol::Timestamp),
    (Planted::UnguardedGaps, Protocol::Timestamp),
    (Planted::UncheckedReads, Protocol::Snapshot),
    (Planted::UncheckedRanges, Protocol::Snapshot),
    (Planted::StaleSnapshot, Protocol::Snapshot),
];

/// Both judges refuse a history of each bug, the same one, within 200 seeds.
#[test]
fn both_judges_find_what_the_protocols_must_not_do() {
    for (planted, protocol) in BUGS {
        let refused = (0..200).find_map(|seed| {
            let history = history(case_of(protocol, seed), &|config| config.planted = planted);
            let history = history.ok()?.history;
            let ours = serializable(&history, Level::StrictSerializable).err()?;
            adya_accepts(&history).err()?;
            Some((seed, ours))
        });
        let (seed, ours) = refused.unwrap_or_else(|| panic!("{planted:?} of {protocol}"));
        let kinds: Vec<_> = ours.iter().map(|anomaly| anomaly.kind).collect();
        println!("{planted:?} of {protocol}: seed {seed}, {kinds:?}");
    }
}

/// Long: `cargo test --release -p selkie-sim --test history -- --ignored`.
#[test]
#[ignore = "a thousand seeds of each protocol"]
fn a_thousand_seeds_of_every_protocol_are_strictly_serializable_to_both_judges() {
    for protocol in Protocol::ALL {
        println!("{protocol}: {:?}", both_accept(protocol, SWEEP));
    }
}

/// Long: as above, with `ten_thousand` behind it for this one alone.
#[test]
#[ignore = "ten thousand seeds"]
fn ten_thousand_seeds_of_snapshots_are_strictly_serializable_to_both_judges() {
    println!("{:?}", both_accept(Protocol::Snapshot, LONG_SWEEP));
}
