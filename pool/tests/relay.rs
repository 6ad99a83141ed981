//! What relays and planes behind relays promise beyond what all planes do: see `control.rs`.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]
#![cfg(target_os = "linux")]

mod relay_server;

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use selkie_fabric::{BoxFuture, PeerId, RealRuntime};
use selkie_pool::control::{
    Beat, Change, Connect, ControlError, ControlPlane, Expectation, FilePlane, Identity,
    LocalPlane, PoolState, RELAY_MAGIC, RelayError, RemotePlane, Stream, Timing, Version,
    Versioned,
};
use selkie_pool::{Coding, PoolConfig, PoolError};
use tempfile::TempDir;

use relay_server::RelayServer;

/// Longer than anything here takes, if it ends at all.
const LONG: Duration = Duration::from_secs(60);

fn block_on<T>(future: impl Future<Output = T>) -> T {
    RealRuntime::new(1).unwrap().block_on(future)
}

/// Makes a pool of this id.
fn make(plane: &dyn ControlPlane, id: u64) -> Result<(), PoolError> {
    let config = PoolConfig {
        memory_nodes: 1,
        bytes_per_node: 2 << 20,
        gcl_bytes: 512,
        range_bytes: 1 << 19,
        max_compute_nodes: 4,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };
    let identity = Identity { name: "test", id, fabric: "mem" };
    block_on(selkie_pool::create(plane, identity, &config, Timing::default()))
}

/// A plane in this process with a pool of this id.
fn pool(id: u64) -> Arc<dyn ControlPlane> {
    let plane = LocalPlane::default();
    make(&plane, id).unwrap();
    Arc::new(plane)
}

fn beat(node: u16) -> Beat {
    Beat { node: PeerId::compute(node), host: 5, seen: 1, report: "r".to_owned() }
}

fn remote(endpoints: &[String]) -> RemotePlane {
    RemotePlane::new(endpoints, Expectation::default()).unwrap()
}

fn version_of(plane: &dyn ControlPlane) -> Version {
    block_on(plane.load()).unwrap().version
}

/// Changes the state of version `expected` by setting `next_index`.
fn replace(
    plane: &dyn ControlPlane,
    expected: &Versioned,
    next_index: u16,
) -> Result<Option<Version>, ControlError> {
    let state = PoolState { next_index, ..PoolState::clone(&expected.state) };
    block_on(plane.replace(expected.version, state))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CallStage {
    BeforeReplace,
    AfterReplace,
    BeforeBeats,
}

/// A plane during whose calls something happens.
struct Hooked {
    plane: Arc<dyn ControlPlane>,
    hook: Box<dyn Fn(CallStage) + Send + Sync>,
}

impl ControlPlane for Hooked {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        self.plane.load()
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        self.plane.create(state)
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        Box::pin(async move {
            (self.hook)(CallStage::BeforeReplace);
            let replaced = self.plane.replace_as(change, expected, state).await;
            (self.hook)(CallStage::AfterReplace);
            replaced
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        self.plane.beat(beat)
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async {
            (self.hook)(CallStage::BeforeBeats);
            let beats = self.plane.beats().await?;
            let age = |beat: &Beat| Duration::new(7 * u64::from(beat.node.index()), 250_000_001);
            Ok(beats.into_iter().map(|(beat, _)| (age(&beat), beat)).map(|(a, b)| (b, a)).collect())
        })
    }

    fn pace(&self) -> Duration {
        self.plane.pace()
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.plane.destroy()
    }
}

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
            && said.contains(&format!("{closed} cannot be connected to: at {closed}:"))
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

#[test]
fn what_is_no_relay_is_passed_over_and_named() {
    let magic = u64::from_le_bytes(*b"SELKCTL!").to_le_bytes();
    let ours = version_of_messages().to_le_bytes();
    let start = [&magic[..], &ours].concat();
    let welcome = [&start[..], &0_u32.to_le_bytes()].concat();
    let cases = [
        (b"HTTP/1.1 400 Bad Request".to_vec(), "not of a relay"),
        (Vec::new(), "ended in the middle"),
        (magic.to_vec(), "ended in the middle"),
        ([&start[..], &9_u32.to_le_bytes()].concat(), "a verdict 9"),
        ([&start[..], &2_u32.to_le_bytes()].concat(), "no room"),
        ([&welcome[..], &(16_u32 << 20 | 1).to_le_bytes()].concat(), "16777217 bytes"),
        ([&welcome[..], &2_u32.to_le_bytes(), b"{}"].concat(), "not understood"),
        ([&welcome[..], &9_u32.to_le_bytes(), b"{}"].concat(), "ended in the middle"),
    ];
    let servers: Vec<_> = cases.iter().map(|(says, _)| Canned::start(says.clone())).collect();
    let mut endpoints: Vec<String> = servers.iter().map(|server| server.endpoint.clone()).collect();
    let error = block_on(remote(&endpoints).load()).unwrap_err();
    assert!(matches!(error, ControlError::Unavailable { .. }), "{error}");
    for (endpoint, (_, wrong)) in endpoints.iter().zip(&cases) {
        let said = error.to_string();
        let said = said.split(": given up").nth(1).unwrap();
        let said = said.split("; ").find(|said| said.contains(endpoint)).unwrap();
        assert!(said.contains(wrong), "{said}");
    }
    let real = RelayServer::start(pool(1), "test");
    endpoints.push(real.endpoint());
    assert_eq!(block_on(remote(&endpoints).load()).unwrap().version, 1);

    let theirs = [&magic[..], &77_u32.to_le_bytes(), &1_u32.to_le_bytes()].concat();
    let other = Canned::start(theirs);
    let error = block_on(remote(std::slice::from_ref(&other.endpoint)).load()).unwrap_err();
    assert!(matches!(error, ControlError::Damaged { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains(&other.endpoint) && said.contains("version 0x4d"), "{said}");
}

/// Says the same to everybody who says hello.
struct Canned {
    endpoint: String,
}

impl Canned {
    fn start(says: Vec<u8>) -> Canned {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        // It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.set_read_timeout(Some(LONG)).unwrap();
                if stream.read_exact(&mut [0; 12]).is_ok() {
                    let _ = stream.write_all(&says);
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
        });
        Canned { endpoint }
    }
}

/// As a relay tells it to who says another one.
fn version_of_messages() -> u32 {
    let server = RelayServer::start(pool(1), "test");
    let mut stream = connect(&server);
    stream.write_all(&[&RELAY_MAGIC.to_le_bytes()[..], &[0xff; 4]].concat()).unwrap();
    let mut number = || {
        let mut number = [0; 4];
        stream.read_exact(&mut number).unwrap();
        u32::from_le_bytes(number)
    };
    let [_, _, version, verdict] = [(); 4].map(|()| number());
    assert_eq!(verdict, 1);
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the verdict and no more");
    version
}

fn connect(server: &RelayServer) -> TcpStream {
    let stream = TcpStream::connect(server.endpoint()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Reads until the other end closes the connection.
fn is_closed(mut stream: TcpStream) {
    match stream.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}"),
    }
}

/// A connection with a request at work that others must not disturb.
struct Witness {
    remote: RemotePlane,
    server: RelayServer,
    seen: Version,
}

impl Witness {
    fn new() -> Witness {
        let server = RelayServer::start(pool(1), "test");
        let remote = remote(&[server.endpoint()]);
        let seen = version_of(&remote);
        Witness { remote, server, seen }
    }

    /// With as many connections to the relay as there should be, that of the witness included.
    fn testifies(&mut self, connections: usize) {
        let known = block_on(self.remote.load()).unwrap();
        assert_eq!(known.version, self.seen);
        self.seen = replace(&self.remote, &known, 1).unwrap().unwrap();
        assert_eq!(self.server.accepted(), connections, "it is the same connection");
    }
}

#[test]
fn bytes_that_make_no_sense_close_their_connection_and_no_other() {
    let hello = [RELAY_MAGIC.to_le_bytes().to_vec(), version_of_messages().to_le_bytes().to_vec()];
    let hello = hello.concat();
    let frame = |text: &[u8]| {
        [&hello[..], &u32::try_from(text.len()).unwrap().to_le_bytes(), text].concat()
    };
    type Expected = fn(&RelayError) -> bool;
    let cases: [(Vec<u8>, Expected); 10] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), |error| matches!(error, RelayError::Magic { .. })),
        (vec![0; 64], |error| matches!(error, RelayError::Magic { found: 0 })),
        ([&hello[..8], &[9; 4]].concat(), |error| {
            matches!(error, RelayError::Version { theirs: 0x0909_0909, .. })
        }),
        ([&hello[..], &[0xff; 64]].concat(), |error| {
            matches!(error, RelayError::Length { bytes: 0xffff_ffff })
        }),
        ([&hello[..], &(16_u32 << 20 | 1).to_le_bytes()].concat(), |error| {
            matches!(error, RelayError::Length { bytes: 0x0100_0001 })
        }),
        (frame(b""), |error| matches!(error, RelayError::Content { .. })),
        (frame(b"\"Create\""), |error| matches!(error, RelayError::Content { .. })),
        (frame(b"{\"Load\":{\"known\":-1}}"), |error| matches!(error, RelayError::Content { .. })),
        (frame(b"\"Beats\" "), |_| false),
        (frame(&[b'['; 1 << 20]), |error| matches!(error, RelayError::Content { .. })),
    ];
    let mut witness = Witness::new();
    let ends = witness.server.ends();
    for (number, (bytes, expected)) in cases.iter().enumerate() {
        let mut stream = connect(&witness.server);
        // It may have been closed in the middle.
        let _ = stream.write_all(bytes);
        let is_good = bytes.ends_with(b"\"Beats\" ");
        if is_good {
            // What is right is answered, and closed by who asked.
            let mut reply = [0; 16];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply[12..], [0; 4]);
            stream.shutdown(Shutdown::Write).unwrap();
        }
        is_closed(stream);
        match ends.recv_timeout(LONG).unwrap() {
            Ok(()) => assert!(is_good, "case {number}"),
            Err(error) => assert!(expected(&error), "case {number}: {error}"),
        }
        witness.testifies(number + 2);
    }
}

#[test]
fn half_a_frame_and_silence_close_their_connection_and_no_other() {
    let hello = [&RELAY_MAGIC.to_le_bytes()[..], &version_of_messages().to_le_bytes()].concat();
    let mut witness = Witness::new();
    let ends = witness.server.ends();
    let halves = [&hello[..5], &hello[..11], &[&hello[..], &[9, 0]].concat()];
    let streams = halves.map(|half| {
        let mut stream = connect(&witness.server);
        stream.write_all(half).unwrap();
        stream
    });
    streams.into_iter().for_each(is_closed);
    for _ in halves {
        let end = ends.recv_timeout(LONG).unwrap();
        assert!(matches!(end, Err(RelayError::Silent)), "{end:?}");
    }
    witness.testifies(4);
}

#[test]
fn random_bytes_close_their_connection_and_no_other() {
    const CONNECTIONS: usize = 200;
    let hello = [&RELAY_MAGIC.to_le_bytes()[..], &version_of_messages().to_le_bytes()].concat();
    let mut witness = Witness::new();
    let ends = witness.server.ends();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 16) % below
    };
    for number in 0..CONNECTIONS {
        let mut bytes = hello[..[0, 8, 12][number % 3]].to_vec();
        if number % 2 == 0 {
            // A length that is allowed.
            bytes.extend(u32::try_from(draw(64)).unwrap().to_le_bytes());
        }
        for _ in 0..draw(300) {
            bytes.push(u8::try_from(draw(256)).unwrap());
        }
        let mut stream = connect(&witness.server);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        is_closed(stream);
    }
    let refused = (0..CONNECTIONS).filter(|_| ends.recv_timeout(LONG).unwrap().is_err()).count();
    assert!(refused > CONNECTIONS * 9 / 10, "{refused}");
    witness.testifies(CONNECTIONS + 1);
}

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
fn a_pool_of_another_name_or_id_is_refused_and_passed_over() {
    let [ours, other] =
        [(1, "ours"), (2, "other")].map(|(id, name)| RelayServer::start(pool(id), name));
    let expect = |name: Option<&str>, id| Expectation { name: name.map(str::to_owned), id };
    let load = |endpoints: &[String], expected: Expectation| {
        block_on(RemotePlane::new(endpoints, expected).unwrap().load())
    };
    for (expected, names) in [
        (expect(Some("ours"), None), "pool \"ours\""),
        (expect(Some("ours"), Some(1)), "pool \"ours\" of id 0x1"),
        (expect(Some("other"), Some(1)), "pool \"other\" of id 0x1"),
        (expect(None, Some(1)), "a pool of id 0x1"),
    ] {
        let error = load(&[other.endpoint()], expected).unwrap_err();
        let ControlError::OtherPool { place, expected, found } = &error else { panic!("{error}") };
        assert!(place.contains(&other.endpoint()), "{place}");
        assert_eq!((&expected[..], &found[..]), (names, "pool \"other\" of id 0x2"));
        assert!(!error.is_retryable());
    }
    let expected = || expect(Some("ours"), Some(1));
    assert_eq!(load(&[ours.endpoint()], expected()).unwrap().state.id, 1);
    assert_eq!(load(&[other.endpoint(), ours.endpoint()], expected()).unwrap().state.id, 1);

    // A client without an expectation stays with the first pool.
    let moved = Arc::new(AtomicBool::new(false));
    let addresses = [&ours, &other].map(|server| server.endpoint().parse().unwrap());
    let connect: Connect = {
        let moved = Arc::clone(&moved);
        Arc::new(move |_, _, limit| {
            let [ours, other] = &addresses;
            let address = if moved.load(Ordering::SeqCst) { other } else { ours };
            Ok(Box::new(TcpStream::connect_timeout(address, limit)?))
        })
    };
    let remote = RemotePlane::over(&["10.0.0.1:1"], Expectation::default(), connect).unwrap();
    assert_eq!(block_on(remote.load()).unwrap().state.id, 1);
    moved.store(true, Ordering::SeqCst);
    drop(ours);
    let error = block_on(remote.load()).unwrap_err();
    let ControlError::OtherPool { expected, found, .. } = &error else { panic!("{error}") };
    assert_eq!(expected, "pool \"ours\" of id 0x1");
    assert_eq!(found, "pool \"other\" of id 0x2");
}

#[test]
fn a_pool_that_replaces_another_behind_a_relay_is_another_pool() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("pool");
    let plane: Arc<dyn ControlPlane> = Arc::new(FilePlane::at(&path));
    make(&*plane, 1).unwrap();
    let server = RelayServer::start(Arc::clone(&plane), "test");
    let (one, two) = (remote(&[server.endpoint()]), remote(&[server.endpoint()]));
    let known = [&one, &two].map(|remote| block_on(remote.load()).unwrap())[0].clone();
    std::fs::remove_dir_all(&path).unwrap();
    let gone = block_on(one.load());
    assert!(matches!(gone, Err(ControlError::NoPool { .. })), "what is known does not stand in");
    make(&*plane, 2).unwrap();
    let replaced = replace(&two, &known, 9);
    assert!(matches!(replaced, Err(ControlError::OtherPool { .. })), "{replaced:?}");
    assert_eq!(block_on(plane.load()).unwrap().state.next_index, 0);
    for remote in [one, two] {
        let loaded = block_on(remote.load());
        assert!(matches!(loaded, Err(ControlError::OtherPool { .. })), "{loaded:?}");
    }
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

/// Stands for encryption: nothing is on the wire as it was written.
struct Masked(TcpStream);

impl Read for Masked {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(bytes)?;
        bytes.iter_mut().take(read).for_each(|byte| *byte ^= 0x5a);
        Ok(read)
    }
}

impl Write for Masked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(&bytes.iter().map(|byte| byte ^ 0x5a).collect::<Vec<_>>())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Stream for Masked {
    fn set_timeouts(&mut self, limit: Duration) -> io::Result<()> {
        self.0.set_timeouts(limit)
    }
}

#[test]
fn both_ends_talk_over_any_stream_and_names_are_looked_up() {
    let serve =
        |relay: &selkie_pool::control::Relay, stream| relay.serve_from_start(Masked(stream));
    let server = RelayServer::start_with(pool(1), "test", serve);
    let port = server.endpoint().rsplit_once(':').unwrap().1.to_owned();
    let hosts: Arc<Mutex<Vec<String>>> = Arc::default();
    let connect: Connect = {
        let hosts = Arc::clone(&hosts);
        Arc::new(move |host, address, limit| {
            hosts.lock().unwrap().push(host.to_owned());
            Ok(Box::new(Masked(TcpStream::connect_timeout(&address, limit)?)))
        })
    };
    let endpoints = [format!("localhost:{port}")];
    let masked = RemotePlane::over(&endpoints, Expectation::default(), connect).unwrap();
    let known = block_on(masked.load()).unwrap();
    assert_eq!(replace(&masked, &known, 2), Ok(Some(2)));
    assert!(hosts.lock().unwrap().iter().all(|host| host == "localhost"));
    let plain = block_on(remote(&[server.endpoint()]).load());
    assert!(matches!(plain, Err(ControlError::Unavailable { .. })), "{plain:?}");
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

#[test]
fn planes_without_a_relay_to_ask_are_refused() {
    let refused = RemotePlane::new(&[""; 0], Expectation::default()).err().unwrap();
    assert!(matches!(refused, PoolError::Config { key: "endpoints", .. }), "{refused}");
    let refused = RemotePlane::new(&["h:1", "h"], Expectation::default()).err().unwrap();
    assert!(matches!(refused, PoolError::Config { key: "endpoints", .. }), "{refused}");
}
