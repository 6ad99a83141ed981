//! A short, fixed sample of seeds of every scenario, and what makes a failure worth having: that it
//! happens again.

#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use selkie_sim::{Case, Plan, Scenario, run, run_with, sweep};
use selkie_txn::Protocol;

/// Seeds of the sample. Long sweeps are for `selkie sim --seeds`.
const SAMPLE: u64 = 160;

fn of_seed(seed: u64) -> Case {
    Case::of(Scenario::of_seed(seed), seed)
}

#[test]
fn a_sample_of_all_scenarios_holds() {
    let summary =
        sweep(0..SAMPLE, &of_seed, 2, &|_| {}).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(summary.runs, SAMPLE);
    assert!(summary.operations > 50_000, "{summary:?}");
    assert!(summary.gave_up > 0, "some of the seeds lose a node: {summary:?}");
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    for scenario in Scenario::ALL {
        let first = run(Case::of(scenario, 21), None).unwrap();
        assert_eq!(first, run(Case::of(scenario, 21), None).unwrap(), "{scenario}");
        assert_ne!(
            first.trace_hash,
            run(Case::of(scenario, 22), None).unwrap().trace_hash,
            "{scenario}"
        );
    }
}

#[test]
fn threads_do_not_change_what_a_sweep_does() {
    let counter = |seed| Case::of(Scenario::Counter, seed);
    let alone = sweep(300..330, &counter, 1, &|_| {}).unwrap();
    assert_eq!(alone, sweep(300..330, &counter, 4, &|_| {}).unwrap());
}

#[test]
fn the_event_log_says_what_happened_and_changes_nothing() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let log = Box::new(move |line: &str| sink.lock().unwrap().push(line.to_owned()));
    let logged = run(Case::gentle(Scenario::Counter, 9), Some(log)).unwrap();
    assert_eq!(logged, run(Case::gentle(Scenario::Counter, 9), None).unwrap());
    let lines = lines.lock().unwrap();
    let having = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    for what in ["FAA", "CAS", "READ", "WRITE+BELL", "bell of", "crashes", "is paused", "cut off"] {
        assert!(having(what) > 0, "no line says {what}");
    }
}

#[test]
fn a_calm_network_needs_no_excuses() {
    for scenario in Scenario::ALL {
        let summary = run_with(Case::of(scenario, 3), &Plan::calm(), &|_| {}, None).unwrap();
        assert!(summary.operations > 0 && summary.gave_up == 0, "{summary:?}");
    }
}

/// Seeds of the gentle envelope that once found something.
#[test]
fn seeds_that_found_something_hold() {
    for (scenario, seed, _found) in [
        (Scenario::Counter, 420, "a node left before the words of lines without a frame were free"),
        (Scenario::Counter, 12, "chains held up by a cut link overtook each other"),
        (Scenario::Bank, 41, "a client tried again for ever what a lost node would not give"),
        (Scenario::MemnodeLoss, 162, "a split made again was not known to who held its page"),
        (Scenario::Crash, 72, "no node could recover: the null address was lost with a dead node"),
        (Scenario::Crash, 86, "a page was lost that a node had from one that died before it"),
        (Scenario::Crash, 227, "the same page was taken for whole"),
        (
            Scenario::Crash,
            615,
            "a page that others asked for was to go home, and that went round for ever",
        ),
        (Scenario::Crash, 782, "a copy that no node could change held the log back for ever"),
        (Scenario::Crash, 7410, "pages stayed lost that one made again who died over it"),
        (Scenario::Crash, 9818, "the log of one was forgotten whose lines were in doubt"),
        (Scenario::SlabEviction, 9695, "a word moved without its dead holder, who had granted it"),
        (Scenario::SlabEviction, 2426, "the last node left before it had ended a rebuild"),
        (Scenario::SlabEviction, 6287, "a grant at rest was not doubted when its grantor died"),
    ] {
        run(Case::gentle(scenario, seed), None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// A node left its bit in a word to a node that had failed, and left the pool. Found where a queue
/// pair ends after half a lease without an answer, also between nodes that live.
#[test]
fn a_seed_of_links_that_end_soon_that_found_something_holds() {
    let case = Case::of(Scenario::Tree, 237).with_memory_nodes(3);
    let mut plan = case.plan();
    plan.cost.unreachable_after = Duration::from_millis(4);
    run_with(case, &plan, &|_| {}, None).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Seeds of the wide envelope that once found something.
#[test]
fn seeds_of_the_wide_envelope_that_found_something_hold() {
    for (scenario, seed, _found) in [
        (Scenario::Crash, 143, "a node that recovers from all others before it serves was silent"),
        (Scenario::Crash, 895, "a node swept for ever that did not reach a memory node any more"),
        (Scenario::Tree, 2373, "a node left with pages for which its callers had waited"),
        (Scenario::Tree, 3133, "the same"),
        (Scenario::Counter, 3621, "a bit that its node could not take back was taken for a copy"),
        (Scenario::Tree, 8590, "a caller waited for free lines while its node closed"),
        (Scenario::Tree, 8833, "the same"),
        (Scenario::Tree, 3352, "clients waited on for a page that no fence could free"),
        (Scenario::Tree, 6410, "the same, of a node that others had declared dead"),
        (Scenario::Tree, 6291, "a granted page was given up as the plane did not say who was dead"),
        (Scenario::Crash, 3605, "a page that memory could not keep was given up, its word was not"),
        (
            Scenario::History,
            8189,
            "a commit held a page that the recovery needed, and waited for it",
        ),
        (Scenario::Crash, 3851, "the journal of one was not read whose own recovery was over"),
        (Scenario::Crash, 3409, "a client that met a full disk gave up in its wait for a page"),
        (Scenario::Tree, 60331, "a node used a range of which others did not know yet"),
        (Scenario::Crash, 62264, "memory was given up that had the only copy of a log in use"),
        (Scenario::Crash, 67556, "a death was not acknowledged while a caller tried to upgrade"),
        (Scenario::Crash, 92383, "a journal's image was not taken, as parity was lost since"),
        (Scenario::Tree, 83635, "a recovery waited for a caller, and that for another recovery"),
        (Scenario::Counter, 23792, "a new word named another dead node than the grantor of a copy"),
    ] {
        run(Case::of(scenario, seed), None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Seeds of coded pools of the wide envelope that once found something. They draw memory nodes to
/// spare now, which they did not have.
#[test]
fn seeds_of_pools_without_memory_to_spare_that_found_something_hold() {
    let with_snapshots = |seed| {
        let case = Case::of(Scenario::History, seed);
        case.protocolled(Protocol::Snapshot).unwrap()
    };
    for (case, memory_nodes, _found) in [
        (
            Case::of(Scenario::History, 90),
            4,
            "a coded pool did not grow while the control plane was away",
        ),
        (
            Case::of(Scenario::History, 376),
            3,
            "chains waited for ever behind one that a fence had ended",
        ),
        (
            Case::of(Scenario::Counter, 1683),
            3,
            "a node left over a page that it had from a node that died",
        ),
        (
            Case::of(Scenario::Counter, 5201),
            6,
            "fault of the scenario: two nodes died, one with the other's page",
        ),
        (
            Case::of(Scenario::Tree, 5873),
            3,
            "a split held a page that the recovery needed, and waited for it",
        ),
        (
            with_snapshots(4746),
            3,
            "a node was quiet that had not reached memory with a page of which others had copies",
        ),
    ] {
        let case = case.with_memory_nodes(memory_nodes);
        run(case, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Seeds of transactions with snapshots that once found something.
#[test]
fn seeds_of_snapshots_that_found_something_hold() {
    for (seed, _found) in [
        (191, "a commit held a page that the recovery needed, and waited for it"),
        (2757, "an allocation waited for those who waited for its caller"),
        (9598, "a node was refused that had left, as the control plane had not said so"),
        (1104, "a commit gave its row locks back for ever to memory that was gone"),
        (131, "a commit that held leaves searched a tree that was dropped while it waited"),
        (3730, "a deadlock that came late was looked for once a second"),
    ] {
        let case = Case::of(Scenario::History, seed).protocolled(Protocol::Snapshot).unwrap();
        run(case, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Seeds of coded pools that once found something, by a coding that is not drawn by default.
#[test]
fn seeds_of_coded_pools_that_found_something_hold() {
    let full = "a pool of k + r memory nodes could not grow once one had died";
    let epochs = "a node left while the memory node with the epochs was dying";
    for (scenario, coding, seed, _found) in [
        (Scenario::Bank, "2+1", 76, full),
        (Scenario::Bank, "2+1", 108, epochs),
        (Scenario::Bank, "2+1", 394, epochs),
        (Scenario::Bank, "2+1", 910_089, epochs),
        (Scenario::Counter, "2+1", 145, epochs),
        (Scenario::Tree, "4+2", 910_089, epochs),
    ] {
        let case = Case::gentle(scenario, seed).coded(coding.parse().unwrap()).unwrap();
        run(case, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
