//! Searches of the loss of the home together with deaths (`home`, `death`): in any order, a death
//! also between the steps of the other's recovery, and before the node has entered its copy.
//!
//! What the new word says of several dead nodes shows where two die. Two nodes that share a line
//! and a third that only dies suffice for that, and have few states.

use super::omissions::RelocationOmission;
use super::properties;
use super::protocol::Callers::{Absent, Both, Waiting};
use super::protocol::{Latching, ProtocolModel};
use super::searches::{first_failure, first_states, logged, search, three_mortal_nodes};

/// A home to lose, and nodes that may die.
fn with_home_to_lose<const N: usize>(mut protocol: ProtocolModel<N>) -> ProtocolModel<N> {
    (protocol.mortal, protocol.homeless) = (true, true);
    protocol
}

fn two_nodes() -> ProtocolModel<2> {
    with_home_to_lose(ProtocolModel::new(Latching::Lazy, [Both, Both]))
}

/// Two nodes, and a third that has no copy, and dies alone or with one of them.
fn two_nodes_and_another_that_dies() -> ProtocolModel<3> {
    with_home_to_lose(ProtocolModel::new(Latching::Lazy, [Waiting, Waiting, Absent]))
}

/// All states of the searches of either, and those after both.
#[test]
fn two_nodes_survive_the_loss_of_the_home_and_a_death() {
    assert!(search(two_nodes(), None) > 98_160);
}

#[test]
fn two_nodes_with_logs_survive_the_loss_of_the_home_and_a_death() {
    assert!(search(logged(two_nodes()), None) > 42_323);
}

#[test]
fn two_nodes_survive_the_loss_of_the_home_and_two_deaths() {
    assert!(first_states(two_nodes_and_another_that_dies(), 3_000_000) > 20_000);
}

/// The other dies first, and one of the two at any step of the recovery from that.
#[test]
fn two_nodes_survive_the_loss_of_the_home_and_a_death_during_recovery() {
    let mut protocol = two_nodes_and_another_that_dies();
    protocol.twice = true;
    assert!(first_states(protocol, 3_000_000) > 20_000);
}

/// Run with `cargo test --release -p selkie-engine home_and_deaths -- --ignored`.
#[test]
#[ignore = "minutes and gigabytes; a bounded search to be run by hand"]
fn three_nodes_survive_the_loss_of_the_home_and_deaths_as_far_as_searched() {
    let protocol = with_home_to_lose(three_mortal_nodes());
    assert!(first_states(protocol, 60_000_000) > 4_000_000);
}

#[test]
#[ignore = "minutes and gigabytes; a bounded search to be run by hand"]
fn three_nodes_survive_the_loss_of_the_home_and_a_death_during_recovery_as_far_as_searched() {
    let mut protocol = with_home_to_lose(three_mortal_nodes());
    protocol.twice = true;
    assert!(first_states(protocol, 60_000_000) > 4_000_000);
}

/// The sweep of the node that the word names frees the line, and home lacks what the grantor wrote.
#[test]
fn a_new_word_that_names_another_dead_node_than_the_grantor_is_rejected() {
    let mut protocol = two_nodes_and_another_that_dies();
    protocol.omitted = Some(RelocationOmission::Grantors);
    must_judge_wrongly(protocol);
}

#[test]
fn a_copy_that_is_taken_for_home_when_its_way_there_was_cut_short_is_rejected() {
    let mut protocol = two_nodes();
    protocol.omitted = Some(RelocationOmission::Rejoins);
    must_judge_wrongly(protocol);
}

/// The search must find that home is taken for what it is not.
fn must_judge_wrongly<const N: usize>(protocol: ProtocolModel<N>) {
    let (property, trace) = first_failure(protocol);
    println!("{property} fails:\n{}", trace.join("\n"));
    assert!([properties::JUDGED, properties::STALE_READ].contains(&property), "{property}");
    assert!(trace.iter().any(|step| step.contains("HomeLost")), "a trace that shows how");
}
