//! The searches: which models are checked, how many states they have, and which are rejected. Those
//! of the loss of the home together with deaths are in `home_and_deaths`.

use std::sync::atomic::Ordering;

use stateright::{Checker, HasDiscoveries, Model};

use super::omissions::{RecoveryOmission, RegenerationOmission, RelocationOmission};
use super::phases::{ALL_PHASES, PHASES, phase_tag};
use super::properties;
use super::protocol::Callers::{self, Both, Nowait, Waiting};
use super::protocol::{Latching, ProtocolModel, describe};
use crate::coherence::machine::{Phase, Rules};

/// Searches all states, or the first `limit`; returns how many there are.
pub(super) fn search<const N: usize>(protocol: ProtocolModel<N>, limit: Option<usize>) -> usize {
    searched(protocol, limit).0
}

/// As [`search`]; returns also how many states of a model with a home to lose have it.
fn searched<const N: usize>(protocol: ProtocolModel<N>, limit: Option<usize>) -> (usize, usize) {
    let mut builder = protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    if let Some(limit) = limit {
        builder = builder.target_state_count(limit);
    }
    let checker = builder.spawn_bfs().join();
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        let steps = path.into_vec().into_iter().filter_map(|(_, step)| step);
        let trace: Vec<String> = steps.map(|step| describe(&step)).collect();
        panic!("{name} fails:\n{}", trace.join("\n"));
    }
    let model = checker.model();
    let met = model.met.load(Ordering::Relaxed);
    // Only nodes with nowait callers are refused, and cancel an intent.
    let phases = if model.mortal { ALL_PHASES } else { PHASES };
    let goes_home = met & 1 << phase_tag(Phase::WriteBack) != 0;
    assert_eq!(goes_home, model.logs, "pages go home for logs: {met:#x}");
    assert!(met.count_ones() >= phases - 2, "the search met every kind of phase: {met:#x}");
    (checker.unique_state_count(), model.with_home.load(Ordering::Relaxed))
}

/// Searches the first `limit` states, whichever phases they have. Returns how many there are.
pub(super) fn first_states<const N: usize>(protocol: ProtocolModel<N>, limit: usize) -> usize {
    let builder = protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = builder.target_state_count(limit).spawn_bfs().join();
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        let steps = path.into_vec().into_iter().filter_map(|(_, step)| step);
        let trace: Vec<String> = steps.map(|step| describe(&step)).collect();
        panic!("{name} fails:\n{}", trace.join("\n"));
    }
    checker.unique_state_count()
}

fn lazy(callers: [Callers; 3]) -> usize {
    search(ProtocolModel::new(Latching::Lazy, callers), None)
}

#[test]
fn two_nodes_are_safe_and_come_to_rest() {
    assert_eq!(search(ProtocolModel::new(Latching::Explicit, [Both, Both]), None), 77_385);
    assert_eq!(search(ProtocolModel::new(Latching::Lazy, [Both, Both]), None), 15_559);
}

/// Every run of the tests searches two nodes of both kinds to the end, and three as far as that
/// takes seconds.
#[test]
fn three_nodes_that_wait_are_safe_and_come_to_rest_as_far_as_searched() {
    let protocol = ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
    assert!(search(protocol, Some(6_000_000)) > 1_000_000);
}

/// Run this and the three below when the protocol has changed, with
/// `cargo test --release -p selkie-engine safe_and_come_to_rest -- --ignored`.
#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_that_wait_are_safe_and_come_to_rest() {
    assert_eq!(lazy([Waiting, Waiting, Waiting]), 7_841_114);
}

#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_one_of_them_nowait_are_safe_and_come_to_rest() {
    assert_eq!(lazy([Waiting, Waiting, Nowait]), 28_092_048);
}

#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_two_of_them_nowait_are_safe_and_come_to_rest() {
    assert_eq!(lazy([Waiting, Nowait, Nowait]), 38_518_168);
}

#[test]
fn three_nowait_nodes_are_safe_and_come_to_rest_as_far_as_searched() {
    let protocol = ProtocolModel::new(Latching::Lazy, [Nowait, Nowait, Nowait]);
    assert!(search(protocol, Some(6_000_000)) > 1_000_000);
}

#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nowait_nodes_are_safe_and_come_to_rest() {
    assert_eq!(lazy([Nowait, Nowait, Nowait]), 15_407_258);
}

#[test]
fn two_nodes_survive_the_death_of_one() {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Both, Both]);
    protocol.mortal = true;
    assert_eq!(search(protocol, None), 40_880);
}

/// A node that has failed says that it does not hold what the word says that it holds, and leaves
/// the bits of others there that it was to clear.
#[test]
fn two_nodes_survive_one_that_fails_before_it_dies() {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Both, Both]);
    (protocol.mortal, protocol.fails) = (true, true);
    assert_eq!(search(protocol, None), 54_327);
}

#[test]
fn three_nodes_survive_one_that_fails_before_it_dies_as_far_as_searched() {
    let mut protocol = three_mortal_nodes();
    protocol.fails = true;
    assert!(search(protocol, Some(4_000_000)) > 400_000);
}

pub(super) fn three_mortal_nodes() -> ProtocolModel<3> {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
    protocol.mortal = true;
    protocol
}

#[test]
fn three_nodes_survive_the_death_of_one_or_two_as_far_as_searched() {
    // The limit is of states that are met, most of them again.
    assert!(search(three_mortal_nodes(), Some(6_000_000)) > 500_000);
}

/// Run with `cargo test --release -p selkie-engine death_of_one_or_two -- --ignored`.
#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_survive_the_death_of_one_or_two() {
    assert_eq!(search(three_mortal_nodes(), None), 27_696_884);
}

fn three_nodes_of_which_two_may_die() -> ProtocolModel<3> {
    let mut protocol = three_mortal_nodes();
    protocol.twice = true;
    protocol
}

#[test]
fn three_nodes_survive_a_death_during_recovery_as_far_as_searched() {
    assert!(search(three_nodes_of_which_two_may_die(), Some(3_000_000)) > 250_000);
}

/// Run with `cargo test --release -p selkie-engine death_during_recovery -- --ignored`.
#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_survive_a_death_during_recovery() {
    assert!(search(three_nodes_of_which_two_may_die(), None) > 10_000_000);
}

#[test]
fn three_nodes_with_logs_survive_a_death_during_recovery_as_far_as_searched() {
    assert!(search(logged(three_nodes_of_which_two_may_die()), Some(2_000_000)) > 200_000);
}

fn four_nodes_of_which_two_may_die() -> ProtocolModel<4> {
    let callers = [Waiting, Waiting, Waiting, Waiting];
    let mut protocol = ProtocolModel::new(Latching::Lazy, callers);
    (protocol.mortal, protocol.twice) = (true, true);
    protocol
}

/// Two are left to recover from both. The search is by breadth: it ends before every phase is met.
#[test]
fn four_nodes_survive_a_death_during_recovery_as_far_as_searched() {
    assert!(first_states(four_nodes_of_which_two_may_die(), 1_000_000) > 200_000);
}

#[test]
#[ignore = "minutes and gigabytes; a bounded search to be run by hand"]
fn four_nodes_survive_a_death_during_recovery_as_far_as_searched_for_long() {
    assert!(first_states(four_nodes_of_which_two_may_die(), 20_000_000) > 2_000_000);
}

#[test]
fn a_coded_page_survives_a_death_during_recovery_as_far_as_searched() {
    let mut protocol = coded([Waiting, Waiting, Waiting]);
    (protocol.mortal, protocol.twice) = (true, true);
    assert!(first_states(protocol, 1_000_000) > 150_000);
}

/// A sweep that relies on acknowledgements of another death must fail.
#[test]
fn acknowledgements_of_another_death_are_rejected() {
    let mut protocol = three_nodes_of_which_two_may_die();
    protocol.skipped = Some(RecoveryOmission::OtherDeaths);
    let (property, trace) = first_failure(protocol);
    println!("{property} fails:\n{}", trace.join("\n"));
    assert!(trace.len() > 5, "a trace that shows how");
}

#[test]
fn two_nodes_survive_the_loss_of_the_home() {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Both, Both]);
    protocol.homeless = true;
    assert_eq!(search(protocol, None), 72_839);
}

fn three_nodes_with_a_home_to_lose() -> ProtocolModel<3> {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
    protocol.homeless = true;
    protocol
}

#[test]
fn three_nodes_survive_the_loss_of_the_home_as_far_as_searched() {
    let (states, with_home) = searched(three_nodes_with_a_home_to_lose(), Some(6_000_000));
    assert!(states > 1_000_000 && states - with_home > 100_000, "{states}, {with_home}");
}

/// Run with `cargo test --release -p selkie-engine loss_of_the_home -- --ignored`.
#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_survive_the_loss_of_the_home() {
    assert_eq!(searched(three_nodes_with_a_home_to_lose(), None), (12_493_722, 7_841_114));
}

/// Lines go home when they are handed over: the logs of the dead nodes have what home lacks.
pub(super) fn logged<const N: usize>(mut protocol: ProtocolModel<N>) -> ProtocolModel<N> {
    protocol.rules.home_first = true;
    protocol.logs = true;
    protocol.mortal = true;
    protocol
}

#[test]
fn two_nodes_with_logs_survive_the_death_of_one() {
    let protocol = logged(ProtocolModel::new(Latching::Lazy, [Both, Both]));
    assert_eq!(search(protocol, None), 42_323);
}

#[test]
fn three_nodes_with_logs_survive_the_death_of_one_or_two_as_far_as_searched() {
    assert!(search(logged(three_mortal_nodes()), Some(2_000_000)) > 200_000);
}

#[test]
fn two_nodes_with_logs_survive_the_loss_of_the_home() {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Both, Both]);
    (protocol.rules.home_first, protocol.logs, protocol.homeless) = (true, true, true);
    assert_eq!(search(protocol, None), 98_028);
}

#[test]
fn two_nodes_with_logs_keep_a_coded_page_that_loses_its_home() {
    let mut protocol = coded([Both, Both]);
    (protocol.rules.home_first, protocol.logs, protocol.homeless) = (true, true, true);
    assert_eq!(search(protocol, None), 520_450);
}

#[test]
fn two_nodes_with_logs_keep_a_coded_page_that_loses_a_split_and_a_writer() {
    assert_eq!(search(logged(coded([Both, Both])), None), 248_004);
}

/// Without a part that logs rely on, a change is neither at home nor in a log.
#[test]
fn logs_without_any_of_what_they_rely_on_are_rejected() {
    let (mut grants, mut claims) = (logged(three_mortal_nodes()), logged(three_mortal_nodes()));
    grants.rules.home_first = false;
    claims.keeps_claimed = true;
    for protocol in [grants, claims] {
        let (property, trace) = first_failure(protocol);
        println!("{property} fails:\n{}", trace.join("\n"));
        assert_eq!(property, "can be redone");
    }
}

fn coded<const N: usize>(callers: [Callers; N]) -> ProtocolModel<N> {
    let mut protocol = ProtocolModel::new(Latching::Lazy, callers);
    protocol.coded = true;
    protocol
}

#[test]
fn two_nodes_keep_a_coded_page_that_loses_a_split() {
    assert_eq!(search(coded([Both, Both]), None), 80_615);
}

#[test]
fn two_nodes_keep_a_coded_page_that_loses_a_split_and_a_writer() {
    let mut protocol = coded([Both, Both]);
    protocol.mortal = true;
    assert_eq!(search(protocol, None), 230_252);
}

#[test]
fn two_nodes_keep_a_coded_page_that_loses_its_home() {
    let mut protocol = coded([Both, Both]);
    protocol.homeless = true;
    assert_eq!(search(protocol, None), 375_665);
}

/// Run with `cargo test --release -p selkie-engine three_nodes_keep -- --ignored`.
#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_keep_a_coded_page_that_loses_a_split() {
    assert!(search(coded([Waiting, Waiting, Waiting]), None) > 7_841_114);
}

/// A regeneration that leaves out a part must fail.
#[test]
fn a_coded_page_without_any_of_its_parts_is_rejected() {
    for careless in RegenerationOmission::ALL {
        let mut protocol = coded([Both, Both]);
        protocol.mortal = true;
        protocol.careless = Some(careless);
        let (property, trace) = first_failure(protocol);
        println!("{careless:?}: {property} fails:\n{}", trace.join("\n"));
        assert_eq!(property, properties::TORN);
    }
}

/// A relocation that leaves out a part must fail.
#[test]
fn a_new_home_without_any_of_its_parts_is_rejected() {
    for omitted in RelocationOmission::ALL {
        let mut protocol = ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
        protocol.homeless = true;
        protocol.omitted = Some(omitted);
        let (property, trace) = first_failure(protocol);
        println!("without {omitted:?}, {property} fails:\n{}", trace.join("\n"));
        assert!(trace.len() > 2, "a trace that shows how");
    }
}

/// A recovery that leaves out a part must fail.
#[test]
fn a_recovery_without_any_of_its_parts_is_rejected() {
    for skipped in RecoveryOmission::ALL {
        let mut protocol = ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
        protocol.mortal = true;
        protocol.skipped = Some(skipped);
        let (property, trace) = first_failure(protocol);
        println!("without {skipped:?}, {property} fails:\n{}", trace.join("\n"));
        assert!(trace.len() > 5, "a trace that shows how");
    }
}

/// A survivor that clears the bit of a dead node may clear it after the sweep did.
#[test]
fn clearing_the_bits_of_the_dead_is_rejected() {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
    protocol.mortal = true;
    protocol.rules.leave_dead_bits = false;
    let (property, trace) = first_failure(protocol);
    println!("{property} fails:\n{}", trace.join("\n"));
    assert!(trace.len() > 5, "a trace that shows how");
}

/// Run with `cargo test --release -p selkie-engine four_nodes -- --ignored`; takes some GiB.
#[test]
#[ignore = "minutes and gigabytes; a bounded search to be run by hand"]
fn four_nodes_are_safe_as_far_as_searched() {
    let protocol = ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Waiting, Nowait]);
    assert!(search(protocol, Some(20_000_000)) > 1_000_000);
}

/// The published rules must fail the safety properties; returns which, with the trace.
fn rejected(rules: Rules) -> (&'static str, Vec<String>) {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
    protocol.rules = Rules { max_priority: 0, follow_hints: false, ..rules };
    first_failure(protocol)
}

pub(super) fn first_failure<const N: usize>(
    protocol: ProtocolModel<N>,
) -> (&'static str, Vec<String>) {
    let checker = protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let (name, path) = checker.discoveries().into_iter().next().expect("must be rejected");
    let steps = path.into_vec().into_iter().filter_map(|(_, step)| step);
    (name, steps.map(|step| describe(&step)).collect())
}

#[test]
fn the_published_hand_over_without_confirm_is_rejected() {
    let (property, trace) = rejected(Rules { confirm: false, ..Rules::DESIGNED });
    println!("{property} fails:\n{}", trace.join("\n"));
    assert!([properties::STALE_READ, properties::TWO_WRITERS].contains(&property), "{property}");
    assert!(trace.len() > 5, "a trace that shows how");
}

#[test]
fn asking_before_the_reset_completed_is_rejected() {
    let (property, trace) = rejected(Rules { wait_for_reset: false, ..Rules::DESIGNED });
    println!("{property} fails:\n{}", trace.join("\n"));
    assert!([properties::STALE_READ, properties::TWO_WRITERS].contains(&property), "{property}");
    assert!(trace.len() > 5, "a trace that shows how");
}

/// The baseline without a cache: a caller that finds another node in the word tries again.
#[test]
fn two_nodes_without_asking_are_safe_and_come_to_rest() {
    let mut protocol = ProtocolModel::new(Latching::Lazy, [Both, Both]);
    protocol.rules.ask_holders = false;
    protocol.rules.sticky_bits = false;
    let checker = protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    if let Some((name, path)) = checker.discoveries().into_iter().next() {
        let steps = path.into_vec().into_iter().filter_map(|(_, step)| step);
        let trace: Vec<String> = steps.map(|step| describe(&step)).collect();
        panic!("{name} fails:\n{}", trace.join("\n"));
    }
    assert!(checker.unique_state_count() > 100);
}
