//! Model check of the coherence machine: N nodes, one line, one home, driving [`super::machine`]'s
//! own `Line::step` by `stateright`.
//!
//! Every verb of a chain is a step of its own at home, completion another; messages are FIFO per
//! ordered pair of nodes and arbitrarily slow otherwise; callers want to read or write, with or
//! without waiting and with any hint, latch, write and evict whenever the state allows. See
//! `protocol` for what can happen, `properties` for what is checked, `world` for the state.
//!
//! Exhaustive searches (nodes of a kind are interchangeable; W: callers wait, D: callers are
//! `nowait`, B: both):
//!
//! | nodes | states |
//! | --- | --- |
//! | B B, latches as steps of their own | 72,225 |
//! | B B | 14,499 |
//! | W W W | 5,960,314 |
//! | W W D, behind an ignored test | 28,092,048 |
//! | W D D, behind an ignored test | 38,518,168 |
//! | D D D | 15,407,258 |
//! | B B, one of which may die at any moment | 38,474 |
//! | W W W, one of which, or two at once, may die at any moment, behind an ignored test | 27,696,884 |
//! | B B with logs, one of which may die at any moment | 39,697 |
//! | the same, the page coded, a split of which may be lost at any moment | 230,374 |
//! | B B with logs, whose home may be lost at any moment | 93,548 |
//! | the same, the page coded | 494,850 |
//! | B B, whose home may be lost at any moment | 68,599 |
//! | W W W, whose home may be lost at any moment | 12,493,722 |
//! | B B, the page coded, a split of which may be lost at any moment | 74,915 |
//! | the same, and one of the nodes may die at any moment, in a write-back too | 214,622 |
//! | B B, the page coded, whose home may be lost at any moment | 352,865 |
//!
//! Not exhaustive: four nodes, a bounded search behind an ignored test; of three nodes that may
//! die, what each run of the tests searches. Not checked: liveness under unfair scheduling (from
//! every reachable state some way leads to rest, and no caller is left asleep at rest, is what is
//! checked). Priorities are abstracted: a deferred request may overtake any others, so every order
//! that priorities could make is searched. Of two that die, the survivor hears at the same time,
//! and nobody dies while a recovery is under way.

mod coded;
mod death;
mod home;
mod properties;
mod protocol;
mod world;

use coded::Careless;
use death::Skipped;
use home::Omitted;
use protocol::Callers::{Both, Nowait, Waiting};
use protocol::{Latching, Protocol, describe};
use stateright::{Checker, HasDiscoveries, Model};
use world::{ALL_PHASES, PHASES, phase_tag};

use super::machine::{Phase, Rules};

/// Searches everything, or the first `limit` states; the states seen.
fn search<const N: usize>(protocol: Protocol<N>, limit: Option<usize>) -> usize {
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
    let met = checker.model().met.load(std::sync::atomic::Ordering::Relaxed);
    // Only nodes with nowait callers are ever refused, and cancel an intent.
    let model = checker.model();
    let phases = if model.mortal { ALL_PHASES } else { PHASES };
    let goes_home = met & 1 << phase_tag(Phase::WriteBack) != 0;
    assert_eq!(goes_home, model.logs, "pages go home for logs: {met:#x}");
    assert!(met.count_ones() >= phases - 2, "the search met every kind of phase: {met:#x}");
    checker.unique_state_count()
}

fn lazy(callers: [protocol::Callers; 3]) -> usize {
    search(Protocol::new(Latching::Lazy, callers), None)
}

#[test]
fn two_nodes_are_safe_and_come_to_rest() {
    assert_eq!(search(Protocol::new(Latching::Explicit, [Both, Both]), None), 72_225);
    assert_eq!(search(Protocol::new(Latching::Lazy, [Both, Both]), None), 14_499);
}

#[test]
fn three_nodes_that_wait_are_safe_and_come_to_rest() {
    assert_eq!(lazy([Waiting, Waiting, Waiting]), 5_960_314);
}

/// Run this and the next with `cargo test --release -p selkie-engine nowait_are_safe -- --ignored`.
/// What nodes that wait and nodes that do not meet among themselves, and two nodes of both kinds,
/// is searched with every run of the tests.
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
fn three_nowait_nodes_are_safe_and_come_to_rest() {
    assert_eq!(lazy([Nowait, Nowait, Nowait]), 15_407_258);
}

#[test]
fn two_nodes_survive_the_death_of_one() {
    let mut protocol = Protocol::new(Latching::Lazy, [Both, Both]);
    protocol.mortal = true;
    assert_eq!(search(protocol, None), 38_474);
}

fn three_mortal_nodes() -> Protocol<3> {
    let mut protocol = Protocol::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
    protocol.mortal = true;
    protocol
}

#[test]
fn three_nodes_survive_the_death_of_one_or_two_as_far_as_searched() {
    // The limit is of states that are met, most of them again.
    assert!(search(three_mortal_nodes(), Some(12_000_000)) > 1_000_000);
}

/// Run with `cargo test --release -p selkie-engine death_of_one_or_two -- --ignored`.
#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_survive_the_death_of_one_or_two() {
    assert_eq!(search(three_mortal_nodes(), None), 27_696_884);
}

#[test]
fn two_nodes_survive_the_loss_of_the_home() {
    let mut protocol = Protocol::new(Latching::Lazy, [Both, Both]);
    protocol.homeless = true;
    assert_eq!(search(protocol, None), 68_599);
}

#[test]
fn three_nodes_survive_the_loss_of_the_home() {
    let mut protocol = Protocol::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
    protocol.homeless = true;
    assert_eq!(search(protocol, None), 12_493_722);
}

/// Lines that are handed over go home: a dead node's log, and those of others that died with it,
/// say what home lacks.
fn logged<const N: usize>(mut protocol: Protocol<N>) -> Protocol<N> {
    protocol.rules.home_first = true;
    protocol.logs = true;
    protocol.mortal = true;
    protocol
}

#[test]
fn two_nodes_with_logs_survive_the_death_of_one() {
    let protocol = logged(Protocol::new(Latching::Lazy, [Both, Both]));
    assert_eq!(search(protocol, None), 39_697);
}

#[test]
fn three_nodes_with_logs_survive_the_death_of_one_or_two_as_far_as_searched() {
    assert!(search(logged(three_mortal_nodes()), Some(2_000_000)) > 200_000);
}

#[test]
fn two_nodes_with_logs_survive_the_loss_of_the_home() {
    let mut protocol = Protocol::new(Latching::Lazy, [Both, Both]);
    (protocol.rules.home_first, protocol.logs, protocol.homeless) = (true, true, true);
    assert_eq!(search(protocol, None), 93_548);
}

#[test]
fn two_nodes_with_logs_keep_a_coded_page_that_loses_its_home() {
    let mut protocol = coded([Both, Both]);
    (protocol.rules.home_first, protocol.logs, protocol.homeless) = (true, true, true);
    assert_eq!(search(protocol, None), 494_850);
}

#[test]
fn two_nodes_with_logs_keep_a_coded_page_that_loses_a_split_and_a_writer() {
    assert_eq!(search(logged(coded([Both, Both])), None), 230_374);
}

/// Without one of the parts that logs rely on, something is neither home nor in a log.
#[test]
fn logs_without_any_of_what_they_rely_on_are_rejected() {
    let (mut grants, mut claims) = (logged(three_mortal_nodes()), logged(three_mortal_nodes()));
    grants.rules.home_first = false;
    claims.hoards = true;
    for protocol in [grants, claims] {
        let (property, trace) = first_failure(protocol);
        println!("{property} fails:\n{}", trace.join("\n"));
        assert_eq!(property, "can be redone");
    }
}

fn coded<const N: usize>(callers: [protocol::Callers; N]) -> Protocol<N> {
    let mut protocol = Protocol::new(Latching::Lazy, callers);
    protocol.coded = true;
    protocol
}

#[test]
fn two_nodes_keep_a_coded_page_that_loses_a_split() {
    assert_eq!(search(coded([Both, Both]), None), 74_915);
}

#[test]
fn two_nodes_keep_a_coded_page_that_loses_a_split_and_a_writer() {
    let mut protocol = coded([Both, Both]);
    protocol.mortal = true;
    assert_eq!(search(protocol, None), 214_622);
}

#[test]
fn two_nodes_keep_a_coded_page_that_loses_its_home() {
    let mut protocol = coded([Both, Both]);
    protocol.homeless = true;
    assert_eq!(search(protocol, None), 352_865);
}

/// Run with `cargo test --release -p selkie-engine three_nodes_keep -- --ignored`.
#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_keep_a_coded_page_that_loses_a_split() {
    assert!(search(coded([Waiting, Waiting, Waiting]), None) > 5_960_314);
}

/// Carelessness with splits must fail.
#[test]
fn a_coded_page_without_any_of_its_parts_is_rejected() {
    for careless in Careless::ALL {
        let mut protocol = coded([Both, Both]);
        protocol.mortal = true;
        protocol.careless = Some(careless);
        let (property, trace) = first_failure(protocol);
        println!("{careless:?}: {property} fails:\n{}", trace.join("\n"));
        assert_eq!(property, properties::TORN);
    }
}

/// Making the word anew without one of its parts must fail.
#[test]
fn a_new_home_without_any_of_its_parts_is_rejected() {
    for omitted in Omitted::ALL {
        let mut protocol = Protocol::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
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
    for skipped in Skipped::ALL {
        let mut protocol = Protocol::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
        protocol.mortal = true;
        protocol.skipped = Some(skipped);
        let (property, trace) = first_failure(protocol);
        println!("without {skipped:?}, {property} fails:\n{}", trace.join("\n"));
        assert!(trace.len() > 5, "a trace that shows how");
    }
}

/// A survivor that clears the bit of a dead node may do so when the sweep has.
#[test]
fn clearing_the_bits_of_the_dead_is_rejected() {
    let mut protocol = Protocol::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
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
    let protocol = Protocol::new(Latching::Lazy, [Waiting, Waiting, Waiting, Nowait]);
    assert!(search(protocol, Some(20_000_000)) > 1_000_000);
}

/// The published rules must fail the safety properties; returns which, with the trace.
fn rejected(rules: Rules) -> (&'static str, Vec<String>) {
    let mut protocol = Protocol::new(Latching::Lazy, [Waiting, Waiting, Waiting]);
    protocol.rules = Rules { max_priority: 0, follow_hints: false, ..rules };
    first_failure(protocol)
}

fn first_failure<const N: usize>(protocol: Protocol<N>) -> (&'static str, Vec<String>) {
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

/// The baseline without a cache: whoever meets another node tries again.
#[test]
fn two_nodes_without_asking_are_safe_and_come_to_rest() {
    let mut protocol = Protocol::new(Latching::Lazy, [Both, Both]);
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
