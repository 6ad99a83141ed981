//! The whole transition table of the machine, state by event, as text: the golden file
//! `transitions.golden` beside this one, rejections included.
//!
//! After an intended change, check the difference that the failing test prints, and write the new
//! table with `SELKIE_BLESS=1 cargo test -p selkie-engine --lib transition`.

use std::fmt::Write;

use super::machine::{
    Action, Atomic, Event, Inquiry, LatchOperation, Line, LocalUse, Message, Phase, Request,
    RequestKind, Rules, WordAccess,
};
use super::word::{ComputeId, LatchDelta, LatchWord, NodeSet};

const GOLDEN: &str = include_str!("transitions.golden");

fn node(index: usize) -> ComputeId {
    ComputeId::new(index).unwrap()
}

/// The word in which only nodes 1 and 2 read.
fn readers() -> LatchWord {
    LatchWord::read_by(node(1)).add(LatchDelta::add_reader(node(2)))
}

fn phases() -> Vec<Phase> {
    let (holder, to) = (node(1), node(1));
    let pending = NodeSet::EMPTY.with(node(1)).with(node(2));
    vec![
        Phase::Invalid,
        Phase::AcquireShared,
        Phase::ResetShared { holder },
        Phase::WaitRead { holder },
        Phase::Shared,
        Phase::Join { expected: readers() },
        Phase::AcquireExclusive,
        Phase::Intent { expected: readers() },
        Phase::WaitSharers { pending, refused: false },
        Phase::WaitSharers { pending: NodeSet::EMPTY.with(node(1)), refused: true },
        Phase::WaitWrite { holder },
        Phase::Modified,
        Phase::Upgrade,
        Phase::UpgradeIntent { expected: readers() },
        Phase::Downgrade { to: pending },
        Phase::HandOver { to },
        Phase::ReleaseShared,
        Phase::ReleaseModified,
        Phase::WriteBack,
        Phase::CancelIntent,
        Phase::Lapsed,
        Phase::Refetch,
        Phase::Ceded { to },
        Phase::Look { exclusive: false },
        Phase::Look { exclusive: true },
        Phase::CededLook { to, exclusive: false },
        Phase::CededLook { to, exclusive: true },
        Phase::UpgradeLook,
        Phase::Inquire { of: Inquiry::Ceded, dead: to },
        Phase::Inquire { of: Inquiry::Shared, dead: to },
        Phase::Inquire { of: Inquiry::Modified, dead: to },
        Phase::Claim { dead: to, expected: LatchWord::held_by(to) },
        Phase::Disclaim { dead: to, expected: LatchWord::held_by(node(0)) },
        Phase::Rejoin { dead: to },
    ]
}

fn events() -> Vec<Event> {
    let mut events = vec![Event::Evict, Event::WriteBack, Event::Leave, Event::LocalFree];
    events.push(Event::Lost { node: node(1) });
    for (exclusive, nowait) in [(false, false), (true, false), (true, true)] {
        for look in [false, true] {
            events.push(Event::Want { exclusive, nowait, look });
        }
    }
    for old in [
        LatchWord::FREE,
        LatchWord::read_by(node(0)),
        readers(),
        LatchWord::held_by(node(0)),
        LatchWord::held_by(node(1)),
        LatchWord::held_by(node(1)).add(LatchDelta::add_reader(node(0))),
        LatchWord::from_bits(u64::MAX),
    ] {
        events.push(Event::Completed { old });
    }
    let request = |kind, nowait| Message::Request(Request { kind, nowait, priority: 0 });
    for message in [
        request(RequestKind::Read, false),
        request(RequestKind::Write, false),
        request(RequestKind::Release, false),
        request(RequestKind::Release, true),
        Message::GrantShared,
        Message::GrantModified,
        Message::Released,
        Message::NotHeld { holder: None },
        Message::NotHeld { holder: Some(node(2)) },
        Message::Busy,
        Message::Confirm,
    ] {
        events.push(Event::Received { from: node(1), message });
    }
    events
}

fn atomic(atomic: Atomic) -> String {
    match atomic {
        Atomic::Add(delta) => format!("add {:#x}", delta.bits()),
        Atomic::Swap { expected, desired } => {
            format!("swap {:#x} for {:#x}", expected.bits(), desired.bits())
        }
    }
}

fn action(action: Action) -> String {
    match action {
        Action::Post(LatchOperation { write_back, word, read }) => {
            let before = if write_back { "write, " } else { "" };
            let after = if read { ", read" } else { "" };
            let change = match word {
                WordAccess::Change(change) => atomic(change),
                WordAccess::Look => "look".into(),
                WordAccess::Skip => "skip".into(),
            };
            format!("[{before}{change}{after}]")
        }
        Action::Send { to, message } => format!("{message:?} to {to}"),
        Action::Wake => "wake".into(),
        Action::Refuse => "refuse".into(),
        Action::BackOff { dead } => format!("back off from {dead}"),
    }
}

/// One row: the transition of a line in `phase` without deferred requests.
fn row(table: &mut String, phase: Phase, event: Event, local: LocalUse, confirmed: bool) {
    let mut line = Line::new();
    line.phase = phase;
    line.grantor = (!confirmed).then_some(node(1));
    let outcome = match line.step(&Rules::DESIGNED, node(0), event, local) {
        Err(_) => "VIOLATION".to_string(),
        Ok(actions) => {
            let actions: Vec<String> = actions.into_iter().map(action).collect();
            let deferred = if line.deferred.is_empty() { "" } else { ", deferred" };
            format!("{:?}{deferred}; {}", line.phase, actions.join("; "))
        }
    };
    let unconfirmed = if confirmed { "" } else { ", unconfirmed" };
    writeln!(table, "{phase:?}{unconfirmed} | {event:?} | {local:?} => {outcome}").unwrap();
}

fn table() -> String {
    let mut table = String::new();
    for phase in phases() {
        for event in events() {
            row(&mut table, phase, event, LocalUse::Idle, true);
        }
    }
    // Where the use of the local copy, or a missing Confirm, makes a difference.
    let uses = [LocalUse::Readers, LocalUse::Writer, LocalUse::ReaderNext, LocalUse::WriterNext];
    for phase in [Phase::Shared, Phase::Modified] {
        for event in events() {
            if matches!(
                event,
                Event::Received { message: Message::Request(_), .. }
                    | Event::Evict
                    | Event::WriteBack
                    | Event::Leave
            ) {
                for local in uses {
                    row(&mut table, phase, event, local, true);
                }
            }
            row(&mut table, phase, event, LocalUse::Idle, false);
        }
    }
    table
}

#[test]
fn every_transition_is_the_golden_one() {
    let table = table();
    if std::env::var_os("SELKIE_BLESS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/coherence/transitions.golden");
        std::fs::write(path, &table).unwrap();
        return;
    }
    for (number, (now, golden)) in table.lines().zip(GOLDEN.lines()).enumerate() {
        assert_eq!(now, golden, "line {} of the table", number + 1);
    }
    assert_eq!(table.lines().count(), GOLDEN.lines().count(), "rows of the table");
}
