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

#[test]
fn two_explicit() {
    search(Protocol::<2>::new(Latching::Explicit, &[false, true]));
}
#[test]
fn two_lazy() {
    search(Protocol::<2>::new(Latching::Lazy, &[false, true]));
}
#[test]
fn three_lazy_wait() {
    search(Protocol::<3>::new(Latching::Lazy, &[false]));
}
#[test]
fn three_lazy_nowait() {
    search(Protocol::<3>::new(Latching::Lazy, &[true]));
}
#[test]
fn three_lazy() {
    search(Protocol::<3>::new(Latching::Lazy, &[false, true]));
}
#[test]
fn three_explicit() {
    search(Protocol::<3>::new(Latching::Explicit, &[false, true]));
}
