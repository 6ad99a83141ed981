//! Relays that go away, hang or are not there: the next one is asked, and no change is made twice.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use selkie_pool::control::{ControlError, ControlPlane, PoolState};

use crate::common::{CallStage, Hooked, LONG, beat, block_on, pool, remote, replace, version_of};
use crate::relay_server::RelayServer;

/// A relay to `plane` that does something at `stage`, for which it is given a way to make the
/// relay go away.
fn relay_that_stops(
    plane: &Arc<dyn ControlPlane>,
    stage: CallStage,
    act: impl Fn(&dyn Fn()) + Send + Sync + 'static,
) -> RelayServer {
    let stop: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>> = Arc::default();
    let hook = {
        let stop = Arc::clone(&stop);
        move |now| {
            if now == stage {
                act(&**stop.get().unwrap());
            }
        }
    };
    let hooked = Hooked { plane: Arc::clone(plane), hook: Box::new(hook) };
    let server = RelayServer::start(Arc::new(hooked), "test");
    assert!(stop.set(Box::new(server.stopper())).is_ok());
    server
}

#[test]
fn a_relay_that_goes_away_during_a_call_is_followed_by_the_next_one() {
    let plane = pool(1);
    block_on(plane.beat(beat(3))).unwrap();
    let first = relay_that_stops(&plane, CallStage::BeforeBeats, |stop| stop());
    let second = RelayServer::start(Arc::clone(&plane), "test");
    let remote = remote(&[first.endpoint(), second.endpoint()]);
    assert_eq!(block_on(remote.load()).unwrap().version, 1);
    assert_eq!((first.accepted(), second.accepted()), (1, 0), "the first that answers is kept");
    assert_eq!(block_on(remote.beats()).unwrap()[0].0, beat(3));
    assert_eq!(block_on(remote.load()).unwrap().version, 1);
    assert_eq!((first.accepted(), second.accepted()), (1, 1), "the second is kept");
}

#[test]
fn a_relay_that_hangs_is_followed_by_the_next_one() {
    let plane = pool(1);
    let (end, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let hook = move |stage| {
        if stage == CallStage::BeforeBeats {
            let _ = wait.lock().unwrap().recv_timeout(LONG);
        }
    };
    let hanging = Hooked { plane: Arc::clone(&plane), hook: Box::new(hook) };
    let first = RelayServer::start(Arc::new(hanging), "test");
    let second = RelayServer::start(plane, "test");
    let remote = remote(&[first.endpoint(), second.endpoint()]);
    assert_eq!(block_on(remote.beats()), Ok(Vec::new()));
    assert_eq!((first.accepted(), second.accepted()), (1, 1));
    drop(end);
}

#[test]
fn a_change_whose_answer_is_lost_is_made_once_or_told_to_be_unknown() {
    for others in [false, true] {
        let plane = pool(1);
        let act = {
            let plane = Arc::clone(&plane);
            move |stop: &dyn Fn()| {
                if others {
                    let made = block_on(plane.load()).unwrap();
                    assert_eq!(made.state.next_index, 2, "it is the answer that is lost");
                    assert_eq!(replace(&*plane, &made, 3), Ok(Some(3)));
                }
                stop();
            }
        };
        let first = relay_that_stops(&plane, CallStage::AfterReplace, act);
        let second = RelayServer::start(Arc::clone(&plane), "test");
        let remote = remote(&[first.endpoint(), second.endpoint()]);
        let known = block_on(remote.load()).unwrap();
        let replaced = replace(&remote, &known, 2);
        match (others, &replaced) {
            (false, Ok(Some(2))) => assert_eq!(version_of(&*plane), 2, "made once"),
            (true, Err(ControlError::Unavailable { what, .. })) if what.contains("may have") => {}
            _ => panic!("others {others}: {replaced:?}"),
        }
        assert_eq!(second.accepted(), 1);
        let now = block_on(remote.load()).unwrap();
        assert_eq!(replace(&remote, &known, 4), Ok(None), "nothing was lost of this one");
        assert!(replace(&remote, &now, 4).unwrap().is_some());
    }
}

#[test]
fn an_attempt_at_a_change_that_is_made_late_does_no_harm() {
    let plane = pool(1);
    let act = {
        let plane = Arc::clone(&plane);
        move |stop: &dyn Fn()| {
            stop();
            let until = Instant::now() + LONG;
            while version_of(&*plane) == 1 && Instant::now() < until {
                thread::sleep(Duration::from_millis(1));
            }
        }
    };
    let first = relay_that_stops(&plane, CallStage::BeforeReplace, act);
    let second = RelayServer::start(Arc::clone(&plane), "test");
    let remote = remote(&[first.endpoint(), second.endpoint()]);
    let known = block_on(remote.load()).unwrap();
    assert_eq!(replace(&remote, &known, 2), Ok(Some(2)));
    assert!(first.ends().recv_timeout(LONG).unwrap().is_err(), "the late one was made");
    assert_eq!(version_of(&*plane), 2);
}

/// Accepts no connection, but the system lets connections be made.
fn silent_listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    (listener, endpoint)
}

fn closed_endpoint() -> String {
    silent_listener().1
}

#[test]
fn calls_end_in_time_and_say_what_every_relay_said_if_none_is_there() {
    let ((_listener, silent), closed) = (silent_listener(), closed_endpoint());
    let remote = remote(&[silent.clone(), closed.clone()]);
    let state = PoolState::clone(&block_on(pool(1).load()).unwrap().state);
    let started = Instant::now();
    // They wait for each other, but that does not add up.
    let check = |call: &str, error: ControlError| {
        let took = started.elapsed();
        assert!(took < Duration::from_secs(12), "{call}: {took:?}");
        assert!(matches!(error, ControlError::Unavailable { .. }), "{call}: {error}");
        assert!(error.is_retryable(), "{call}");
        let said = error.to_string();
        assert!(said.contains(&silent) && said.contains(&closed), "{call}: {said}");
        said.contains(&format!("{silent} does not let in: the other end is silent"))
            && said.contains(&format!("{closed} cannot be connected to: "))
    };
    let told = thread::scope(|calls| {
        let calls = [
            calls.spawn(|| check("load", block_on(remote.load()).unwrap_err())),
            calls.spawn(|| check("beat", block_on(remote.beat(beat(1))).unwrap_err())),
            calls.spawn(|| check("beats", block_on(remote.beats()).unwrap_err())),
            calls.spawn(|| check("replace", block_on(remote.replace(1, state)).unwrap_err())),
        ];
        calls.map(|call| call.join().unwrap())
    });
    assert!(told.contains(&true), "whose turn it was says why");
}
