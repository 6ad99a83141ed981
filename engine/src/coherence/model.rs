//! model
mod properties;
mod protocol;
mod world;

use protocol::{Latching, Protocol, describe};
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

fn search<const N: usize>(protocol: Protocol<N>) -> usize {
    let start = Instant::now();
    let checker =
        protocol.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    eprintln!(
        "unique {} generated {} depth {} in {:?} met {:x}",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        start.elapsed(),
        checker.model().met.load(std::sync::atomic::Ordering::Relaxed)
    );
    for (name, path) in checker.discoveries() {
        eprintln!("FAILS {name}");
        for (_, step) in path.into_vec() {
            if let Some(step) = step {
                eprintln!("  {}", describe(&step));
            }
        }
        panic!("{name}");
    }
    checker.unique_state_count()
}

use protocol::Callers::{Both as B, Nowait as D, Waiting as W};
#[test]
fn two_explicit() {
    search(Protocol::<2>::new(Latching::Explicit, [B, B]));
}
#[test]
fn two_lazy() {
    search(Protocol::<2>::new(Latching::Lazy, [B, B]));
}
#[test]
fn three_www() {
    search(Protocol::new(Latching::Lazy, [W, W, W]));
}
#[test]
fn three_ddd() {
    search(Protocol::new(Latching::Lazy, [D, D, D]));
}
#[test]
fn three_wwd() {
    search(Protocol::new(Latching::Lazy, [W, W, D]));
}
#[test]
fn three_wdd() {
    search(Protocol::new(Latching::Lazy, [W, D, D]));
}
#[test]
fn three_bbb() {
    search(Protocol::new(Latching::Lazy, [B, B, B]));
}
#[test]
fn three_explicit() {
    search(Protocol::new(Latching::Explicit, [W, W, D]));
}
