//! Calls through a relay: what is passed on, what is refused, and calls that are dropped.

use std::sync::Arc;
use std::time::Duration;

use selkie_pool::PoolError;
use selkie_pool::control::{ControlError, ControlPlane, FilePlane, LocalPlane, PoolState};
use tempfile::TempDir;

use crate::common::{Hooked, beat, block_on, make, pool, remote, replace};
use crate::relay_server::RelayServer;

#[test]
fn ages_of_beats_are_passed_on_as_they_are() {
    let plane = pool(1);
    let hooked = Hooked { plane: Arc::clone(&plane), hook: Box::new(|_| {}) };
    let server = RelayServer::start(Arc::new(hooked), "test");
    let remote = remote(&[server.endpoint()]);
    for node in [0, 3] {
        block_on(remote.beat(beat(node))).unwrap();
    }
    assert_eq!(block_on(plane.beats()).unwrap().len(), 2, "they are where all see them");
    let expected =
        [(0, 0), (3, 21)].map(|(node, age)| (beat(node), Duration::new(age, 250_000_001)));
    assert_eq!(block_on(remote.beats()).unwrap(), expected);
}

#[test]
fn a_state_is_sent_again_only_when_it_has_changed() {
    let plane = pool(1);
    let server = RelayServer::start(Arc::clone(&plane), "test");
    let remote = remote(&[server.endpoint()]);
    let (first, again) = (block_on(remote.load()).unwrap(), block_on(remote.load()).unwrap());
    assert!(Arc::ptr_eq(&first.state, &again.state), "not sent twice");
    assert_eq!(replace(&*plane, &first, 2), Ok(Some(2)));
    let now = block_on(remote.load()).unwrap();
    assert_eq!((now.version, now.state.next_index), (2, 2));
}

#[test]
fn pools_are_not_made_through_relays() {
    let server = RelayServer::start(Arc::new(LocalPlane::default()), "test");
    let remote = remote(&[server.endpoint()]);
    let made = make(&remote, 1);
    let Err(PoolError::Control { source: ControlError::Refused { place, what } }) = made else {
        panic!("{made:?}")
    };
    assert_eq!(place, server.endpoint());
    assert!(what.contains("not through a relay"), "{what}");
    assert!(matches!(block_on(remote.load()), Err(ControlError::NoPool { .. })));
}

#[test]
fn what_the_plane_behind_a_relay_refuses_is_told_with_its_place() {
    let directory = TempDir::new().unwrap();
    let plane: Arc<dyn ControlPlane> = Arc::new(FilePlane::at(directory.path()));
    make(&*plane, 1).unwrap();
    let server = RelayServer::start(plane, "test");
    let remote = remote(&[server.endpoint()]);
    let known = block_on(remote.load()).unwrap();
    std::fs::write(directory.path().join("state.json"), "{").unwrap();
    for error in [block_on(remote.load()).unwrap_err(), replace(&remote, &known, 2).unwrap_err()] {
        assert!(matches!(error, ControlError::Damaged { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains("state.json") && said.contains(&server.endpoint()), "{said}");
    }
    assert_eq!(server.accepted(), 1, "nothing is wrong with the connection");
}

#[test]
fn states_that_are_too_long_are_refused_and_the_connection_stays() {
    let plane = pool(1);
    let server = RelayServer::start(Arc::clone(&plane), "test");
    let remote = remote(&[server.endpoint()]);
    let first = block_on(remote.load()).unwrap();
    let mut long = PoolState::clone(&first.state);
    long.labels.insert("long".to_owned(), "x".repeat(16 << 20));
    let refused = |error: ControlError| {
        assert!(matches!(error, ControlError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("16777216"), "{error}");
    };
    refused(block_on(remote.replace(1, long.clone())).unwrap_err());
    assert_eq!(block_on(plane.replace(1, long)), Ok(Some(2)));
    // On a busy machine an attempt may take too long, and is repeated on another connection.
    let is_kept = || {
        let before = server.accepted();
        refused(block_on(remote.load()).unwrap_err());
        server.accepted() == before
    };
    assert!((0..20).any(|_| is_kept()));
    let mut short = PoolState::clone(&first.state);
    short.labels.insert("long".to_owned(), "x".repeat(15 << 20));
    assert_eq!(block_on(remote.replace(2, short.clone())), Ok(Some(3)));
    assert_eq!(*block_on(remote.load()).unwrap().state, short);
}

#[test]
fn a_plane_may_be_dropped_inside_a_task_and_a_call_in_the_middle() {
    let server = RelayServer::start(pool(1), "test");
    let plane = remote(&[server.endpoint()]);
    block_on(async {
        let mut call = plane.load();
        let polled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(call.as_mut().poll(context).is_ready())
        });
        let _ = polled.await;
        drop(call);
        assert_eq!(plane.load().await.unwrap().version, 1);
        drop(plane);
    });
}
