//! The `tcp` fabric between nodes that do not share a `TcpFabric`, and against peers that do not
//! play by the rules: what conformance cannot show.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

mod certificates;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use selkie_fabric::tcp::{
    AccessKey, Admission, Invitation, MAX_CHAIN_BYTES, MAX_CHAIN_VERBS, MAX_FOREIGN_CONNECTIONS,
    Security, TcpConfig, TcpFabric, WireError,
};
use selkie_fabric::{
    Access, Buf, Chain, ChainResult, Completion, Domain, Endpoint, Fabric, FabricError, FenceScope,
    LocalRegion, PeerId, QueuePair, RealRuntime, Refusal, RemoteAddr, Rights, Stream, Verb,
};

const MEMORY: PeerId = PeerId::memory(0);
const NODE: PeerId = PeerId::compute(0);
const POOL: u64 = 0x5e1c;
const PATIENCE: Duration = Duration::from_secs(20);
/// Of nodes that wait for a silent peer to be given up.
const DEAD_AFTER: Duration = Duration::from_millis(400);
/// Of nodes that must not give up a living peer, however late the system runs its threads.
const PATIENT_DEAD_AFTER: Duration = Duration::from_secs(4);

fn dead<T>(peer: PeerId) -> Result<T, FabricError> {
    Err(FabricError::PeerDead { peer })
}

/// No peer is given up for its silence before a test fails.
fn config() -> TcpConfig {
    TcpConfig { dead_after: 12 * PATIENCE, ..TcpConfig::new(POOL) }
}

/// What a process of its own would have: a fabric with one node.
struct Process {
    fabric: Arc<TcpFabric>,
    endpoint: Arc<dyn Endpoint>,
    region: Arc<dyn LocalRegion>,
    runtime: RealRuntime,
}

impl Process {
    fn start(id: PeerId, config: TcpConfig) -> Process {
        let runtime = RealRuntime::new(1).unwrap();
        let fabric = TcpFabric::new(config, runtime.env());
        let endpoint = fabric.join(id).unwrap();
        let region = endpoint.register(1 << 16).unwrap();
        Process { fabric, endpoint, region, runtime }
    }

    fn addr(&self) -> SocketAddr {
        self.fabric.listen_addr(self.endpoint.id()).unwrap()
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr::new(self.region.key(), offset)
    }

    fn connect(&self, peer: PeerId, addr: SocketAddr) -> Arc<dyn QueuePair> {
        self.connect_with(peer, addr, None)
    }

    fn connect_with(
        &self,
        peer: PeerId,
        addr: SocketAddr,
        key: Option<AccessKey>,
    ) -> Arc<dyn QueuePair> {
        self.fabric.introduce(peer, addr, key);
        self.endpoint.connect(peer).unwrap()
    }

    /// Waits for the outcome, but not for ever.
    fn wait(&self, completion: Completion) -> ChainResult {
        let limit = self.runtime.env().sleep(PATIENCE);
        self.runtime.block_on(async {
            let (mut completion, mut limit) = (completion, limit);
            std::future::poll_fn(|context| {
                assert!(limit.as_mut().poll(context).is_pending(), "a chain hangs");
                std::pin::Pin::new(&mut completion).poll(context)
            })
            .await
        })
    }

    /// Posts one verb; the old value of an atomic.
    fn post(&self, queue_pair: &dyn QueuePair, verb: Verb) -> Result<u64, FabricError> {
        let chain = self.wait(queue_pair.post(verb.into())).map_err(|error| error.error)?;
        Ok(chain.old(0).unwrap_or_default())
    }
}

/// A memory node, and a compute node of another fabric connected to it.
fn two() -> (Process, Process, Arc<dyn QueuePair>) {
    let (memory, node) = (Process::start(MEMORY, config()), Process::start(NODE, config()));
    let queue_pair = node.connect(MEMORY, memory.addr());
    (memory, node, queue_pair)
}

fn eventually(claim: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        let waited = started.elapsed();
        assert!(waited < PATIENCE, "never: {claim}");
        // At first so often that what follows meets what has just begun.
        match waited < Duration::from_millis(20) {
            true => std::thread::yield_now(),
            false => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The hello of a node that joins no fabric.
fn hello(version: u32, pool: u64, from: PeerId, to: PeerId) -> Vec<u8> {
    let mut bytes = b"SELKTCP?".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(1_000_u32.to_le_bytes());
    bytes.extend(pool.to_le_bytes());
    bytes.extend(from.to_raw().to_le_bytes());
    bytes.extend(to.to_raw().to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(4711_u64.to_le_bytes());
    if version > 1 {
        bytes.extend([0; 24]);
    }
    bytes
}

fn reply(version: u32, verdict: u32) -> Vec<u8> {
    let mut bytes = b"SELKTCP!".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(verdict.to_le_bytes());
    bytes
}

/// Sends `bytes` and reads until the connection is closed.
fn send_and_receive(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    send_and_receive_over(dial(addr, None), bytes)
}

/// A connection to `addr`, by a node that joins no fabric.
fn dial(addr: SocketAddr, security: Option<&Security>) -> Box<dyn Stream> {
    match security {
        Some(security) => security.connect(addr, PATIENCE).unwrap(),
        None => Box::new(TcpStream::connect(addr).unwrap()),
    }
}

fn send_and_receive_over(mut stream: Box<dyn Stream>, bytes: &[u8]) -> Vec<u8> {
    stream.set_timeouts(PATIENCE).unwrap();
    let _ = stream.write_all(bytes);
    let mut received = Vec::new();
    if let Err(error) = stream.read_to_end(&mut received) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "not closed");
    }
    received
}

/// A peer that answers every hello with `answer`, and then neither reads nor writes until dropped.
struct Impostor {
    addr: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    closes: bool,
}

impl Impostor {
    fn start(answer: Vec<u8>, closes: bool) -> Impostor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::downgrade(&streams);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Some(kept), Ok(mut stream)) = (kept.upgrade(), stream) else { return };
                let mut hello = [0; 64];
                let _ = stream.read_exact(&mut hello);
                let _ = stream.write_all(&answer);
                kept.lock().unwrap().push(stream);
            }
        });
        Impostor { addr, streams, closes }
    }

    fn close(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn waits_for_connection(&self) {
        eventually("a connection", || !self.streams.lock().unwrap().is_empty());
        if self.closes {
            self.close();
        }
    }
}

#[test]
fn garbage_on_a_connection_harms_no_other_peer() {
    garbage_harms_no_other_peer(None);
}

#[test]
fn garbage_behind_tls_harms_no_other_peer() {
    garbage_harms_no_other_peer(Some(certificates::Authority::new("pool").node()));
}

fn garbage_harms_no_other_peer(security: Option<Arc<Security>>) {
    let config = TcpConfig { security: security.clone(), ..config() };
    let memory = Process::start(MEMORY, config.clone());
    let node = Process::start(NODE, config);
    let queue_pair = node.connect(MEMORY, memory.addr());
    let dial = || dial(memory.addr(), security.as_deref());
    let word = memory.at(0);
    let mut sent = 0;
    let hello = hello(2, POOL, PeerId::compute(9), MEMORY);
    let with_hello = |frame: &[u8]| [&hello[..], frame].concat();
    let header = |bytes: u32, verbs: u16, sequence: u8| {
        let mut frame = bytes.to_le_bytes().to_vec();
        frame.extend(verbs.to_le_bytes());
        frame.extend([0, 0, sequence, 0, 0, 0, 0, 0, 0, 0]);
        frame
    };
    // An add to the word that everybody watches, but for the number of the verb.
    let mut no_verb = header(32, 1, 0);
    no_verb.extend([99, 0, 0, 0]);
    no_verb.extend(word.region.to_raw().to_le_bytes());
    no_verb.extend([0; 8]);
    no_verb.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    no_verb.extend([0; 8]);
    let cases = [
        (vec![0x41; 100], Some(WireError::Magic { found: 0x4141_4141_4141_4141 })),
        (with_hello(&no_verb), Some(WireError::Opcode { found: 99 })),
        (with_hello(&header(8, 0, 0)), None),
        (with_hello(&[header(8, 0, 0), vec![0; 8]].concat()), Some(WireError::Length)),
        (with_hello(&header(0, 2_000, 0)), Some(WireError::ChainVerbs { verbs: 2_000 })),
        (
            with_hello(&header(u32::MAX, 1, 0)),
            Some(WireError::FrameBytes {
                bytes: u32::MAX.into(),
                limit: MAX_CHAIN_BYTES as u64 + 32,
            }),
        ),
        (with_hello(&header(0, 0, 5)), Some(WireError::Sequence { found: 5, expected: 0 })),
    ];
    for (bytes, expected) in cases {
        let before = memory.fabric.bad_connections(MEMORY);
        if expected.is_some() {
            send_and_receive_over(dial(), &bytes);
        } else {
            // Cut short, which is no crime.
            dial().write_all(&bytes).unwrap();
        }
        if let Some(expected) = expected {
            eventually("the reason is kept", || {
                memory.fabric.bad_connections(MEMORY).latest == Some(expected)
            });
            assert_eq!(memory.fabric.bad_connections(MEMORY).count, before.count + 1);
        }
        assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(word, 1)), Ok(sent));
        sent += 1;
    }
    assert_eq!(memory.region.load(0), sent);
}

#[test]
fn a_hello_that_does_not_come_in_time_is_not_waited_for() {
    let memory = Process::start(MEMORY, config());
    let mut stream = TcpStream::connect(memory.addr()).unwrap();
    let started = Instant::now();
    for byte in hello(2, POOL, NODE, MEMORY) {
        let _ = stream.write_all(&[byte]);
        if memory.fabric.bad_connections(MEMORY).count > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let waited = started.elapsed();
    let latest = memory.fabric.bad_connections(MEMORY).latest;
    assert_eq!(latest, Some(WireError::NoHello), "after {waited:?}");
}

#[test]
fn who_lives_here_cannot_be_introduced_as_another_node() {
    let memory = Process::start(MEMORY, config());
    let addr = memory.addr();
    memory.fabric.introduce(MEMORY, SocketAddr::from(([127, 0, 0, 1], 9)), None);
    assert_eq!(memory.fabric.listen_addr(MEMORY), Some(addr));
    let taken = memory.fabric.join(MEMORY).err();
    assert_eq!(taken, Some(FabricError::AlreadyJoined { peer: MEMORY }));
    memory.fabric.kill(MEMORY);
    assert_eq!(memory.endpoint.register(8).err(), dead::<()>(MEMORY).err());
}

#[test]
fn who_does_not_belong_is_told_so() {
    let (memory, node, good) = two();
    let refused = |why| Err(FabricError::Refused { peer: MEMORY, why });
    let add = || Verb::fetch_and_add(memory.at(0), 1);

    let stranger = Process::start(PeerId::compute(1), TcpConfig::new(POOL + 1));
    let queue_pair = stranger.connect(MEMORY, memory.addr());
    for _ in 0..2 {
        assert_eq!(stranger.post(&*queue_pair, add()), refused(Refusal::Pool));
    }

    let other = PeerId::memory(5);
    let queue_pair = node.connect(other, memory.addr());
    let expected = Err(FabricError::Refused { peer: other, why: Refusal::Name });
    assert_eq!(node.post(&*queue_pair, add()), expected);

    // An older node meets a newer one, from both sides.
    let newer = Impostor::start(reply(3, 1), false);
    let queue_pair = node.connect(MEMORY, newer.addr);
    let version = Refusal::Version { ours: 2, theirs: 3 };
    assert_eq!(node.post(&*queue_pair, add()), refused(version));
    assert_eq!(node.post(&*queue_pair, add()), refused(version));
    for version in [1, 3] {
        let received =
            send_and_receive(memory.addr(), &hello(version, POOL, PeerId::compute(2), MEMORY));
        assert_eq!(received, reply(2, 1));
    }

    assert_eq!(node.endpoint.connect(PeerId::memory(9)).err(), {
        Some(FabricError::UnknownPeer { peer: PeerId::memory(9) })
    });
    assert_eq!(node.post(&*good, add()), Ok(0));
    assert_eq!(memory.region.load(0), 1, "only who belongs has added");
}

#[test]
fn the_end_of_a_process_surfaces() {
    let (memory, node, queue_pair) = two();
    let (at, addr) = (memory.at(0), memory.addr());
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(at, 1)), Ok(0));
    let post = |_| {
        let verbs = [Verb::fetch_and_add(at, 1), Verb::write(memory.at(64), Buf::zeroed(2048))];
        queue_pair.post(verbs.into())
    };
    let mut posted: Vec<_> = (0..2_000).map(post).collect();
    let last = node.connect(MEMORY, addr);
    posted.push(last.post(Verb::fetch_and_add(at, 1).into()));
    drop(memory);
    let (mut done, mut lost) = (0, 0);
    for completion in posted {
        match node.wait(completion) {
            Ok(_) => done += 1,
            Err(error) => {
                assert_eq!(error.error, FabricError::PeerDead { peer: MEMORY });
                assert!(error.chain.buf(1).is_none_or(|buf| buf.len() == 2048));
                lost += 1;
            }
        }
    }
    println!("{done} chains done, {lost} lost");
    for _ in 0..2 {
        assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(at, 1)), dead(MEMORY));
    }
    // No node listens there any more.
    let again = node.connect(MEMORY, addr);
    assert_eq!(node.post(&*again, Verb::fetch_and_add(at, 1)), dead(MEMORY));
}

#[test]
fn a_peer_that_closes_or_answers_nonsense_is_dead() {
    let node = Process::start(NODE, config());
    let add = || Verb::fetch_and_add(node.at(0), 1);
    for (answer, closes) in
        [(vec![], true), (reply(2, 0), true), (vec![7; 64], false), (reply(2, 77), false)]
    {
        let impostor = Impostor::start(answer, closes);
        let queue_pair = node.connect(MEMORY, impostor.addr);
        let outstanding: Vec<_> = (0..5).map(|_| queue_pair.post(add().into())).collect();
        impostor.waits_for_connection();
        for completion in outstanding {
            let error = node.wait(completion).unwrap_err();
            assert_eq!((error.executed, error.chain.verbs.len()), (0, 1));
            assert_eq!(error.error, FabricError::PeerDead { peer: MEMORY });
        }
        assert_eq!(node.post(&*queue_pair, add()), dead(MEMORY));
    }
    let unasked = [reply(2, 0), vec![0; 16]].concat();
    let impostor = Impostor::start(unasked, false);
    let queue_pair = node.connect(MEMORY, impostor.addr);
    eventually("a response without a request ends a connection", || {
        node.post(&*queue_pair, add()) == dead(MEMORY)
    });
    let bad = node.fabric.bad_connections(NODE);
    assert_eq!((bad.count, bad.latest.is_some()), (3, true));
}

#[test]
fn a_silent_peer_is_given_up_and_a_living_one_is_not() {
    let patient = TcpConfig { dead_after: PATIENT_DEAD_AFTER, ..config() };
    let memory = Process::start(MEMORY, patient.clone());
    let other = Process::start(PeerId::compute(1), patient);
    let add = || Verb::fetch_and_add(memory.at(0), 1);
    let living = other.connect(MEMORY, memory.addr());
    assert_eq!(other.post(&*living, add()), Ok(0));
    let idle_since = Instant::now();

    let node = Process::start(NODE, TcpConfig { dead_after: DEAD_AFTER, ..config() });
    let mute = Impostor::start(vec![], false);
    let stopped = Impostor::start(reply(2, 0), false);
    for impostor in [mute, stopped] {
        let started = Instant::now();
        let owing = node.connect(MEMORY, impostor.addr);
        let idle = node.connect(MEMORY, impostor.addr);
        assert_eq!(node.post(&*owing, add()), dead(MEMORY));
        let waited = started.elapsed();
        assert!(waited >= DEAD_AFTER / 2, "given up after {waited:?}");
        eventually("an idle connection is given up", || {
            let mut completion = idle.post(Chain::new());
            matches!(completion.try_take(), Some(Err(_)))
        });
    }
    // Without keep-alives either side would have given the other up by then.
    std::thread::sleep((2 * PATIENT_DEAD_AFTER).saturating_sub(idle_since.elapsed()));
    assert_eq!(other.post(&*living, add()), Ok(1), "kept alive without chains");
}

#[test]
fn the_revoked_execute_nothing_more_until_they_come_back_as_another() {
    let (memory, node, queue_pair) = two();
    let other = Process::start(PeerId::compute(1), config());
    let bystander = other.connect(MEMORY, memory.addr());
    let (word, stop) = (memory.at(0), Arc::new(AtomicBool::new(false)));
    let second = node.connect(MEMORY, memory.addr());
    let adders = [queue_pair, second].map(|queue_pair| {
        // It is let in before it is revoked.
        assert!(node.post(&*queue_pair, Verb::fetch_and_add(word, 1)).is_ok());
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            let mut completions = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let add = |_| queue_pair.post(Verb::fetch_and_add(word, 1).into());
                completions.extend((0..32).map(add));
                while let Some(mut oldest) = completions.pop() {
                    while oldest.try_take().is_none() {
                        std::thread::yield_now();
                    }
                }
            }
            queue_pair
        })
    });
    eventually("they add", || memory.region.load(0) > 1_000);
    memory.fabric.revoke(MEMORY, NODE);
    let before = memory.region.load(0);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(memory.region.load(0), before, "added after it was revoked");
    stop.store(true, Ordering::Relaxed);
    for adder in adders {
        let queue_pair = adder.join().unwrap();
        assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(word, 1)), dead(MEMORY));
    }
    let again = node.endpoint.connect(MEMORY).unwrap();
    let refused = Err(FabricError::Refused { peer: MEMORY, why: Refusal::Revoked });
    assert_eq!(node.post(&*again, Verb::fetch_and_add(word, 1)), refused);
    assert_eq!(other.post(&*bystander, Verb::fetch_and_add(word, 1)), Ok(before));

    drop((again, node));
    let reborn = Process::start(NODE, config());
    let queue_pair = reborn.connect(MEMORY, memory.addr());
    assert_eq!(reborn.post(&*queue_pair, Verb::fetch_and_add(word, 1)), Ok(before + 1));
}

#[test]
fn a_fence_keeps_a_peer_out_of_all_endpoints_of_the_process() {
    let (memory, node, queue_pair) = two();
    let second = memory.fabric.join(PeerId::memory(1)).unwrap();
    let second_region = second.register(8).unwrap();
    let second_addr = memory.fabric.listen_addr(second.id()).unwrap();
    let second_at = RemoteAddr::new(second_region.key(), 0);
    let to_second = node.connect(second.id(), second_addr);
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)), Ok(0));
    assert_eq!(node.post(&*to_second, Verb::fetch_and_add(second_at, 1)), Ok(0));
    let back = memory.connect(NODE, node.addr());
    let back_word = Verb::fetch_and_add(node.at(0), 1);
    assert_eq!(memory.post(&*back, back_word), Ok(0));

    assert_eq!(memory.fabric.fence(NODE), Ok(FenceScope::ThisProcess));
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)), dead(MEMORY));
    assert_eq!(node.post(&*to_second, Verb::fetch_and_add(second_at, 1)), dead(second.id()));
    // The next of its name may come first: it is known who was meant.
    let reborn = Process::start(NODE, config());
    let of_reborn = reborn.connect(MEMORY, memory.addr());
    assert_eq!(reborn.post(&*of_reborn, Verb::fetch_and_add(memory.at(0), 1)), Ok(1));
    let refused = |peer| Err(FabricError::Refused { peer, why: Refusal::Revoked });
    let again = node.endpoint.connect(MEMORY).unwrap();
    assert_eq!(node.post(&*again, Verb::fetch_and_add(memory.at(0), 1)), refused(MEMORY));

    // Of an endpoint that joins later too.
    let third = memory.fabric.join(PeerId::memory(2)).unwrap();
    let third_at = RemoteAddr::new(third.register(8).unwrap().key(), 0);
    let third_addr = memory.fabric.listen_addr(third.id()).unwrap();
    let to_third = node.connect(third.id(), third_addr);
    assert_eq!(node.post(&*to_third, Verb::fetch_and_add(third_at, 1)), refused(third.id()));

    // And it is dead from here.
    assert_eq!(memory.post(&*back, Verb::fetch_and_add(node.at(0), 1)), dead(NODE));
    assert_eq!(memory.endpoint.connect(NODE).err(), dead::<()>(NODE).err());
    assert_eq!((memory.region.load(0), second_region.load(0), node.region.load(0)), (2, 1, 1));
    let back = memory.connect(NODE, reborn.addr());
    assert_eq!(memory.post(&*back, Verb::fetch_and_add(reborn.at(0), 1)), Ok(0));
}

#[test]
fn a_fence_reaches_who_has_not_come_yet() {
    let memory = Process::start(MEMORY, config());
    for _ in 0..2 {
        assert_eq!(memory.fabric.fence(NODE), Ok(FenceScope::ThisProcess));
    }
    let node = Process::start(NODE, config());
    let add = || Verb::fetch_and_add(memory.at(0), 1);
    for _ in 0..2 {
        let queue_pair = node.connect(MEMORY, memory.addr());
        let refused = Err(FabricError::Refused { peer: MEMORY, why: Refusal::Revoked });
        assert_eq!(node.post(&*queue_pair, add()), refused);
    }
    let reborn = Process::start(NODE, config());
    let queue_pair = reborn.connect(MEMORY, memory.addr());
    assert_eq!(reborn.post(&*queue_pair, add()), Ok(0));
}

#[test]
fn chains_to_a_fenced_peer_end_though_it_is_silent() {
    let node = Process::start(NODE, config());
    for answer in [vec![], reply(2, 0)] {
        let mute = Impostor::start(answer, false);
        let queue_pair = node.connect(MEMORY, mute.addr);
        let add = || queue_pair.post(Verb::fetch_and_add(node.at(0), 1).into());
        let outstanding: Vec<_> = (0..5).map(|_| add()).collect();
        mute.waits_for_connection();
        assert_eq!(node.fabric.fence(MEMORY), Ok(FenceScope::ThisProcess));
        for completion in outstanding.into_iter().chain([add()]) {
            let error = node.wait(completion).unwrap_err();
            assert_eq!(error.error, FabricError::PeerDead { peer: MEMORY });
        }
    }
}

/// Admits who was invited.
fn invited() -> TcpConfig {
    TcpConfig { admission: Admission::Invited, ..config() }
}

#[test]
fn only_guests_with_their_key_come_in_and_only_where_they_are_invited() {
    let [key, other_key, second_key] = [(); 3].map(|()| AccessKey::random().unwrap());
    let memory = Process::start(MEMORY, invited());
    let second = memory.fabric.join(PeerId::memory(1)).unwrap();
    let second_at = RemoteAddr::new(second.register(8).unwrap().key(), 0);
    let second_addr = memory.fabric.listen_addr(second.id()).unwrap();
    let (node, other) =
        (Process::start(NODE, config()), Process::start(PeerId::compute(1), config()));
    memory.fabric.invite(MEMORY, NODE, key).unwrap();
    memory.fabric.invite(MEMORY, other.endpoint.id(), other_key).unwrap();
    memory.fabric.invite(second.id(), NODE, second_key).unwrap();

    let add = |process: &Process, key| {
        let queue_pair = process.connect_with(MEMORY, memory.addr(), key);
        process.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1))
    };
    let add_second = |key| {
        let queue_pair = node.connect_with(second.id(), second_addr, key);
        node.post(&*queue_pair, Verb::fetch_and_add(second_at, 1))
    };
    let refused = |peer| Err(FabricError::Refused { peer, why: Refusal::Key });
    for wrong in [None, Some(other_key), Some(second_key), Some(AccessKey::random().unwrap())] {
        assert_eq!(add(&node, wrong), refused(MEMORY));
    }
    assert_eq!(add(&other, Some(key)), refused(MEMORY));
    assert_eq!(add_second(Some(key)), refused(second.id()));
    assert_eq!(memory.region.load(0), 0);

    assert_eq!(add(&node, Some(key)), Ok(0));
    assert_eq!(add(&other, Some(other_key)), Ok(1));
    assert_eq!(add_second(Some(second_key)), Ok(0));
    // Endpoints of the same process are guests like others.
    let inside = |key| {
        memory.fabric.introduce(second.id(), second_addr, key);
        let queue_pair = memory.endpoint.connect(second.id()).unwrap();
        memory.post(&*queue_pair, Verb::fetch_and_add(second_at, 1))
    };
    assert_eq!(inside(None), refused(second.id()));
    memory.fabric.invite(second.id(), MEMORY, key).unwrap();
    assert_eq!(inside(Some(key)), Ok(1));
    let unknown = Err(FabricError::UnknownPeer { peer: PeerId::memory(9) });
    assert_eq!(memory.fabric.invite(PeerId::memory(9), NODE, key), unknown);
}

#[test]
fn a_guest_stays_until_its_invitation_is_withdrawn_or_replaced() {
    let [key, new_key] = [(); 2].map(|()| AccessKey::random().unwrap());
    let memory = Process::start(MEMORY, invited());
    let node = Process::start(NODE, config());
    let add =
        |queue_pair: &dyn QueuePair| node.post(queue_pair, Verb::fetch_and_add(memory.at(0), 1));
    let connect = |key| node.connect_with(MEMORY, memory.addr(), Some(key));
    let refused = |why| Err(FabricError::Refused { peer: MEMORY, why });
    memory.fabric.invite(MEMORY, NODE, key).unwrap();
    let queue_pair = connect(key);
    assert_eq!(add(&*queue_pair), Ok(0));
    memory.fabric.invite(MEMORY, NODE, key).unwrap();
    assert_eq!(add(&*queue_pair), Ok(1), "invited as before");

    memory.fabric.invite(MEMORY, NODE, new_key).unwrap();
    assert_eq!(add(&*queue_pair), dead(MEMORY));
    assert_eq!(add(&*connect(key)), refused(Refusal::Key));
    let queue_pair = connect(new_key);
    assert_eq!(add(&*queue_pair), Ok(2));
    memory.fabric.uninvite(MEMORY, NODE);
    assert_eq!(add(&*queue_pair), dead(MEMORY));
    assert_eq!(add(&*connect(new_key)), refused(Refusal::Key));
    memory.fabric.invite(MEMORY, NODE, new_key).unwrap();
    assert_eq!(add(&*connect(new_key)), Ok(3));

    memory.fabric.revoke(MEMORY, NODE);
    assert_eq!(add(&*connect(new_key)), refused(Refusal::Key), "withdrawn");
    memory.fabric.invite(MEMORY, NODE, key).unwrap();
    assert_eq!(add(&*connect(key)), refused(Refusal::Revoked), "as it is it stays out");
}

#[test]
fn a_fence_withdraws_invitations_and_the_next_of_the_name_comes_with_another_key() {
    let [key, new_key] = [(); 2].map(|()| AccessKey::random().unwrap());
    let memory = Process::start(MEMORY, invited());
    let second = memory.fabric.join(PeerId::memory(1)).unwrap();
    let second_at = RemoteAddr::new(second.register(8).unwrap().key(), 0);
    let second_addr = memory.fabric.listen_addr(second.id()).unwrap();
    let invite = |key| {
        memory.fabric.invite(MEMORY, NODE, key).unwrap();
        memory.fabric.invite(second.id(), NODE, key).unwrap();
    };
    let both = |node: &Process, key| {
        [(MEMORY, memory.addr(), memory.at(0)), (second.id(), second_addr, second_at)].map(
            |(peer, addr, at)| {
                let queue_pair = node.connect_with(peer, addr, Some(key));
                node.post(&*queue_pair, Verb::fetch_and_add(at, 1))
            },
        )
    };
    let refused = |why| [MEMORY, second.id()].map(|peer| Err(FabricError::Refused { peer, why }));
    invite(key);
    // It has not come before it is fenced.
    assert_eq!(memory.fabric.fence(NODE), Ok(FenceScope::ThisProcess));
    let node = Process::start(NODE, config());
    assert_eq!(both(&node, key), refused(Refusal::Key));
    invite(key);
    assert_eq!(
        both(&node, key),
        refused(Refusal::Revoked),
        "invited by a process that does not know of it"
    );

    assert_eq!(memory.fabric.fence(NODE), Ok(FenceScope::ThisProcess));
    invite(new_key);
    let reborn = Process::start(NODE, config());
    assert_eq!(both(&node, key), refused(Refusal::Key));
    assert_eq!(both(&reborn, new_key), [Ok(0), Ok(0)]);
    assert_eq!(both(&node, new_key), refused(Refusal::Revoked));
}

#[test]
fn who_has_met_is_let_in_by_its_card_until_it_is_forgotten_or_fenced() {
    let met = || TcpConfig { admission: Admission::ByCard, ..config() };
    let memory = Process::start(MEMORY, met());
    let node = Process::start(NODE, met());
    let card_of = |process: &Process| process.endpoint.access_card().unwrap();
    let add = |node: &Process, region: &Arc<dyn LocalRegion>| {
        let queue_pair = node.endpoint.connect(MEMORY)?;
        node.post(&*queue_pair, Verb::fetch_and_add(RemoteAddr::new(region.key(), 0), 1))
    };
    let refused = || Err(FabricError::Refused { peer: MEMORY, why: Refusal::Key });
    node.fabric.add_peer(MEMORY, &card_of(&memory), None).unwrap();
    assert_eq!(add(&node, &memory.region), refused(), "memory has not met the node");
    memory.fabric.add_peer(NODE, &card_of(&node), None).unwrap();
    assert_eq!(add(&node, &memory.region), Ok(0));
    // Another process that knows the address of the memory, and claims to be the node.
    let stranger = Process::start(NODE, met());
    stranger.fabric.add_peer(MEMORY, &card_of(&memory), None).unwrap();
    assert_eq!(add(&stranger, &memory.region), refused());
    // An endpoint that joins later knows who was met before.
    let late = memory.fabric.join(PeerId::memory(1)).unwrap();
    node.fabric.add_peer(late.id(), &late.access_card().unwrap(), None).unwrap();
    let at = RemoteAddr::new(late.register(8).unwrap().key(), 0);
    let to_late = node.endpoint.connect(late.id()).unwrap();
    assert_eq!(node.post(&*to_late, Verb::fetch_and_add(at, 1)), Ok(0));

    memory.fabric.remove_peer(NODE);
    assert_eq!(add(&node, &memory.region), refused());
    memory.fabric.add_peer(NODE, &card_of(&node), None).unwrap();
    assert_eq!(add(&node, &memory.region), Ok(1));
    assert_eq!(memory.fabric.fence(NODE), Ok(FenceScope::ThisProcess));
    assert_eq!(add(&node, &memory.region), refused());

    // The next of the name: its card is met before, or after it tries.
    let next = Process::start(NODE, met());
    next.fabric.add_peer(MEMORY, &card_of(&memory), None).unwrap();
    assert_eq!(add(&next, &memory.region), refused());
    memory.fabric.add_peer(NODE, &card_of(&next), None).unwrap();
    assert_eq!(add(&next, &memory.region), Ok(2));
    assert_eq!(add(&node, &memory.region), refused(), "its predecessor");
    // Fenced where it was never seen, as by a process that has just come.
    let late = Process::start(MEMORY, met());
    assert_eq!(late.fabric.fence(NODE), Ok(FenceScope::ThisProcess));
    late.fabric.add_peer(NODE, &card_of(&next), None).unwrap();
    next.fabric.add_peer(MEMORY, &card_of(&late), None).unwrap();
    assert_eq!(add(&next, &late.region), Ok(0));
    for bad in ["", "127.0.0.1:1", "127.0.0.1:1 0f", "x 000102030405060708090a0b0c0d0e0f"] {
        let error = memory.fabric.add_peer(NODE, bad, None).unwrap_err();
        assert!(matches!(error, FabricError::Network { peer: NODE, .. }), "{error}");
    }
}

#[test]
fn a_name_that_another_process_has_now_is_reached_there() {
    let met = || TcpConfig { admission: Admission::ByCard, ..config() };
    let here = Process::start(NODE, met());
    let left = here.fabric.join(PeerId::compute(1)).unwrap();
    let next = Process::start(PeerId::compute(1), met());
    next.region.store(0, 42);
    next.fabric.add_peer(NODE, &here.endpoint.access_card().unwrap(), None).unwrap();
    here.fabric.add_peer(PeerId::compute(1), &next.endpoint.access_card().unwrap(), None).unwrap();
    let queue_pair = here.endpoint.connect(PeerId::compute(1)).unwrap();
    assert_eq!(here.post(&*queue_pair, Verb::fetch_and_add(next.at(0), 1)), Ok(42));
    assert_eq!(left.register(8).err(), Some(FabricError::PeerDead { peer: left.id() }));
}

#[test]
fn a_guest_does_what_its_domain_allows_and_its_connection_lives_on() {
    let memory = Process::start(MEMORY, invited());
    let node = Process::start(NODE, config());
    let key = AccessKey::random().unwrap();
    let domain = Domain::new([(0..u64::MAX, Rights::READ), (0..4096, Rights::ATOMIC)]).unwrap();
    memory.fabric.invite(MEMORY, NODE, Invitation::new(key).within(domain)).unwrap();
    let queue_pair = node.connect_with(MEMORY, memory.addr(), Some(key));
    memory.region.store(8, 77);
    let region = memory.region.key();
    let forbidden = |offset, what| FabricError::Forbidden { peer: MEMORY, region, offset, what };
    let post = |chain: Chain| node.wait(queue_pair.post(chain));

    for (verb, error) in [
        (Verb::write(memory.at(0), filled(1)), forbidden(0, Access::Write)),
        (Verb::write(memory.at(4096), filled(64)), forbidden(4096, Access::Write)),
        (Verb::write_with_doorbell(memory.at(8), filled(1)), forbidden(8, Access::Write)),
        (Verb::fetch_and_add(memory.at(4096), 1), forbidden(4096, Access::Atomic)),
        (Verb::compare_and_swap(memory.at(8192), 0, 1), forbidden(8192, Access::Atomic)),
    ] {
        let whole = format!("{verb:?}");
        // What stands before it is done, and nothing after.
        let chain =
            [Verb::fetch_and_add(memory.at(0), 1), verb, Verb::fetch_and_add(memory.at(16), 1)];
        let stopped = post(chain.into()).unwrap_err();
        assert_eq!((stopped.executed, &stopped.error), (1, &error), "{whole}");
        assert_eq!(format!("{:?}", stopped.chain.verbs[1]), whole, "it comes back as it was");
        assert!(!stopped.is_retryable());
    }
    let doorbell = memory.region.doorbell().count();
    assert_eq!((memory.region.load(0), memory.region.load(8), doorbell), (5, 77, 0));
    assert_eq!((memory.region.load(16), memory.region.load(4096)), (0, 0));

    let read = Verb::read(memory.at(0), Buf::zeroed(8192));
    let chain = post([Verb::fetch_and_add(memory.at(4088), 1), read].into()).unwrap();
    assert_eq!((chain.old(0), chain.buf(1).unwrap().words()[1]), (Some(0), 77));
    assert_eq!(memory.region.load(4088), 1);
    // What is wrong with an access that is allowed is still said.
    let beyond = post(Verb::read(memory.at(1 << 16), Buf::zeroed(8)).into()).unwrap_err();
    assert!(matches!(beyond.error, FabricError::OutOfBounds { .. }), "{beyond}");
    assert_eq!(memory.fabric.bad_connections(MEMORY).count, 0);

    // The domain is the invitation's, not the node's.
    memory.fabric.invite(MEMORY, NODE, key).unwrap();
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)), dead(MEMORY));
    let queue_pair = node.connect_with(MEMORY, memory.addr(), Some(key));
    assert_eq!(node.post(&*queue_pair, Verb::write(memory.at(8), filled(1))), Ok(0));
    assert_eq!(memory.region.load(8), u64::MAX);
}

#[test]
fn a_domain_holds_for_every_region_and_one_guest() {
    let memory = Process::start(MEMORY, invited());
    let second = memory.endpoint.register(8192).unwrap();
    let other = Process::start(PeerId::compute(1), config());
    let node = Process::start(NODE, config());
    let [key, other_key] = [(); 2].map(|()| AccessKey::random().unwrap());
    let domain = Domain::new([(4096..8192, Rights::ALL)]).unwrap();
    memory.fabric.invite(MEMORY, NODE, Invitation::new(key).within(domain)).unwrap();
    memory.fabric.invite(MEMORY, other.endpoint.id(), other_key).unwrap();
    let queue_pair = node.connect_with(MEMORY, memory.addr(), Some(key));
    let whole = other.connect_with(MEMORY, memory.addr(), Some(other_key));
    for region in [memory.region.key(), second.key()] {
        let at = |offset| RemoteAddr::new(region, offset);
        let error =
            FabricError::Forbidden { peer: MEMORY, region, offset: 4088, what: Access::Atomic };
        assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(at(4088), 1)), Err(error));
        assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(at(4096), 1)), Ok(0));
        assert_eq!(other.post(&*whole, Verb::fetch_and_add(at(4088), 1)), Ok(0));
    }
}

/// A buffer of so many words, every bit set.
fn filled(words: usize) -> Buf {
    let mut buf = Buf::zeroed(8 * words);
    buf.words_mut().fill(u64::MAX);
    buf
}

/// A chain that executes for milliseconds, between adding to one word and to another.
fn long_chain(first: RemoteAddr, last: RemoteAddr) -> Chain {
    let mut chain = Chain::from(Verb::fetch_and_add(first, 1));
    for _ in 0..MAX_CHAIN_VERBS - 2 {
        chain.push(Verb::read(RemoteAddr::new(first.region, 0), Buf::zeroed(1 << 14)));
    }
    chain.push(Verb::fetch_and_add(last, 1));
    chain
}

#[test]
fn no_verb_executes_behind_a_revocation_or_a_death_that_returned() {
    for round in 0..12 {
        let runtime = RealRuntime::new(1).unwrap();
        let fabric = TcpFabric::new(config(), runtime.env());
        let memory = fabric.join(MEMORY).unwrap();
        let region = memory.register(1 << 16).unwrap();
        let node = fabric.join(NODE).unwrap();
        let queue_pair = node.connect(MEMORY).unwrap();
        let at = |offset| RemoteAddr::new(region.key(), offset);
        let chains = [(); 3].map(|()| queue_pair.post(long_chain(at(0), at(8))));
        eventually("the chain begins", || region.load(0) > 0);
        match round % 4 {
            0 => fabric.revoke(MEMORY, NODE),
            1 => fabric.kill(NODE),
            2 => assert_eq!(fabric.fence(NODE), Ok(FenceScope::ThisProcess)),
            _ => fabric.kill(MEMORY),
        }
        let before = (region.load(0), region.load(8));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((region.load(0), region.load(8)), before, "executed later");
        drop(chains);
    }
}

#[test]
fn death_closes_connections_and_the_door() {
    let memory = Process::start(MEMORY, config());
    let addr = memory.addr();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&hello(2, POOL, NODE, MEMORY)).unwrap();
    let mut received = [0; 16];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(received[..], reply(2, 0));
    memory.fabric.kill(MEMORY);
    assert_eq!(stream.read(&mut received).unwrap(), 0, "the connection is closed");
    assert!(TcpStream::connect(addr).is_err(), "no node listens");
}

#[test]
fn an_answer_that_comes_after_the_poll_gave_up_is_received() {
    let (memory, node, queue_pair) = two();
    for round in 0..20 {
        assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)), Ok(2 * round));
        let chain = node.wait(queue_pair.post(long_chain(memory.at(0), memory.at(8)))).unwrap();
        assert_eq!(chain.old(MAX_CHAIN_VERBS - 1), Some(round));
    }
}

#[test]
fn many_outstanding_chains_complete_in_order_with_their_own_results() {
    let (memory, node, queue_pair) = two();
    for round in 0..50 {
        let chain = |index: u64| {
            let read = Verb::read(memory.at(1024), Buf::zeroed(2048));
            let second = match index % 8 {
                5 => Verb::fetch_and_add(memory.at(3), 1),
                _ => read,
            };
            [Verb::fetch_and_add(memory.at(0), 1), second].into()
        };
        memory.region.store(1024 + 2040, round);
        let mut posted: Vec<_> = (0..64).map(|index| queue_pair.post(chain(index))).collect();
        // The last one first: the others must be done by then.
        let last = node.wait(posted.pop().unwrap()).unwrap();
        assert_eq!(last.old(0), Some(64 * round + 63));
        for (index, mut completion) in (0..).zip(posted) {
            let result = completion.try_take().unwrap();
            match (index % 8, result) {
                (5, Err(error)) => {
                    assert_eq!(error.executed, 1);
                    assert_eq!(error.error, FabricError::Misaligned { at: memory.at(3) });
                    assert_eq!(error.chain.old(0), Some(64 * round + index));
                }
                (_, result) => {
                    let chain = result.unwrap();
                    assert_eq!(chain.old(0), Some(64 * round + index));
                    assert_eq!(chain.buf(1).unwrap().words()[255], round);
                }
            }
        }
    }
}

#[test]
fn chains_that_no_thread_polls_execute_and_long_ones_pass() {
    let (memory, node, queue_pair) = two();
    // Once it is connected, a chain that is alone is received by its poll, and then by no other
    // thread.
    for _ in 0..2 {
        assert!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(8), 1)).is_ok());
    }
    // More than the buffers of the system hold, in both directions.
    let post = |_| {
        let read = Verb::read(memory.at(0), Buf::zeroed(1 << 16));
        queue_pair.post([read, Verb::fetch_and_add(memory.at(0), 1)].into())
    };
    let kept: Vec<_> = (0..400).map(post).collect();
    eventually("all execute", || memory.region.load(0) == 400);
    drop(queue_pair);
    for completion in kept {
        assert!(node.wait(completion).is_ok());
    }

    let large = memory.endpoint.register(MAX_CHAIN_BYTES).unwrap();
    let queue_pair = node.endpoint.connect(MEMORY).unwrap();
    let at = RemoteAddr::new(large.key(), 0);
    let mut from = Buf::zeroed(MAX_CHAIN_BYTES);
    from.words_mut().iter_mut().zip(0..).for_each(|(word, value)| *word = value);
    let written = node.wait(queue_pair.post(Verb::write(at, from).into())).unwrap();
    let read = Verb::read(at, Buf::zeroed(MAX_CHAIN_BYTES));
    let read = node.wait(queue_pair.post(read.into())).unwrap();
    assert!(written.buf(0).unwrap().words() == read.buf(0).unwrap().words());
    let longer = Verb::read(at, Buf::zeroed(MAX_CHAIN_BYTES + 8));
    let error = node.wait(queue_pair.post(longer.into())).unwrap_err().error;
    assert!(matches!(error, FabricError::ChainTooLong { verbs: 1, .. }), "{error}");
}

#[test]
fn a_peer_that_reads_nothing_blocks_no_post() {
    let node = Process::start(NODE, config());
    let impostor = Impostor::start(reply(2, 0), false);
    let queue_pair = node.connect(MEMORY, impostor.addr);
    let at = node.at(0);
    // A post that blocks returns only when the peer reads, which it never does.
    let poster = std::thread::spawn(move || {
        let post = |_| queue_pair.post(Verb::write(at, Buf::zeroed(1 << 20)).into());
        let posted: Vec<_> = (0..64).map(post).collect();
        (posted, queue_pair)
    });
    eventually("all posts return", || poster.is_finished());
    let (posted, _queue_pair) = poster.join().unwrap();
    impostor.waits_for_connection();
    impostor.close();
    for completion in posted {
        let error = node.wait(completion).unwrap_err();
        assert_eq!(error.error, FabricError::PeerDead { peer: MEMORY });
        assert_eq!(error.chain.buf(0).unwrap().len(), 1 << 20);
    }
}

/// Posts, takes and drops completions inside `wake`.
struct Busy {
    queue_pair: Arc<dyn QueuePair>,
    at: RemoteAddr,
    woken: AtomicU64,
    posted: Mutex<Vec<Completion>>,
}

impl Wake for Busy {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        let mut other = self.queue_pair.post(Verb::fetch_and_add(self.at, 1).into());
        let _ = other.try_take();
        self.posted.lock().unwrap().clear();
    }
}

/// Holds the thread that wakes it until it is opened.
#[derive(Default)]
struct Door(Mutex<bool>, Condvar);

impl Door {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

impl Wake for Door {
    fn wake(self: Arc<Self>) {
        let open = self.0.lock().unwrap();
        let _ = self.1.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap();
    }
}

#[test]
fn wakers_may_post_take_and_drop() {
    let (memory, _node, queue_pair) = two();
    let (woken, posted) = (AtomicU64::new(0), Mutex::default());
    let busy = Busy { queue_pair: Arc::clone(&queue_pair), at: memory.at(0), woken, posted };
    let busy = Arc::new(busy);
    let waker = Waker::from(Arc::clone(&busy));
    // Holds up the thread that executes, so that nothing is done when it is first polled.
    let door = Arc::new(Door::default());
    let doorbell = memory.region.doorbell();
    let mut rung = std::pin::pin!(doorbell.wait_past(doorbell.count()));
    let opened = Waker::from(Arc::clone(&door));
    assert!(rung.as_mut().poll(&mut Context::from_waker(&opened)).is_pending());
    let ring = Verb::write_with_doorbell(memory.at(16), Buf::zeroed(8));
    let mut completions = vec![queue_pair.post(ring.into())];
    let add = |_| queue_pair.post(Verb::fetch_and_add(memory.at(8), 1).into());
    completions.extend((0..50).map(add));
    busy.posted.lock().unwrap().extend((0..50).map(add));
    let mut pending: Vec<_> = completions.iter_mut().map(std::pin::Pin::new).collect();
    for _ in 0..2 {
        // The first poll may just wake; after the second only an outcome does.
        for completion in &mut pending {
            assert!(completion.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    let before = busy.woken.load(Ordering::SeqCst);
    door.open();
    eventually("all are done", || {
        let mut context = Context::from_waker(&waker);
        pending.retain_mut(|completion| {
            matches!(completion.as_mut().poll(&mut context), Poll::Pending)
        });
        pending.is_empty()
    });
    let woken = || busy.woken.load(Ordering::SeqCst);
    eventually("each outcome wakes", || woken() >= before + 51);
    eventually("all are executed", || memory.region.load(8) == 100);
    eventually("those of the wakers too", || memory.region.load(0) == woken());
}

#[test]
fn who_asks_for_an_outcome_may_wait_for_it_as_well() {
    struct Counts(AtomicU64);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (memory, node, queue_pair) = two();
    let add = || Verb::fetch_and_add(memory.at(0), 1);
    for polls_first in [false, true] {
        // Alone, it is received by the thread that asks, and by no other.
        for _ in 0..2 {
            assert!(node.post(&*queue_pair, add()).is_ok());
        }
        let door = Arc::new(Door::default());
        let doorbell = memory.region.doorbell();
        let mut rung = std::pin::pin!(doorbell.wait_past(doorbell.count()));
        let opened = Waker::from(Arc::clone(&door));
        assert!(rung.as_mut().poll(&mut Context::from_waker(&opened)).is_pending());
        let ring = Verb::write_with_doorbell(memory.at(16), Buf::zeroed(8));
        let mut completion = queue_pair.post(ring.into());
        let woken = Arc::new(Counts(AtomicU64::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut poll = |completion: &mut Completion| {
            for _ in 0..2 {
                assert!(std::pin::Pin::new(&mut *completion).poll(&mut context).is_pending());
            }
        };
        if polls_first {
            poll(&mut completion);
        }
        for _ in 0..10 {
            assert!(completion.try_take().is_none());
        }
        if !polls_first {
            poll(&mut completion);
        }
        let before = woken.0.load(Ordering::SeqCst);
        door.open();
        eventually("the outcome wakes", || woken.0.load(Ordering::SeqCst) > before);
        assert!(completion.try_take().is_some_and(|result| result.is_ok()));
    }
}

/// Kills a node inside `wake`.
struct Killer {
    fabric: Arc<TcpFabric>,
    node: PeerId,
    has_killed: AtomicBool,
}

impl Killer {
    fn of(process: &Process) -> Arc<Killer> {
        let (fabric, node) = (Arc::clone(&process.fabric), process.endpoint.id());
        Arc::new(Killer { fabric, node, has_killed: AtomicBool::new(false) })
    }
}

impl Wake for Killer {
    fn wake(self: Arc<Self>) {
        self.fabric.kill(self.node);
        self.has_killed.store(true, Ordering::SeqCst);
    }
}

#[test]
fn wakers_may_kill_the_node_whose_thread_wakes_them() {
    let (memory, node, queue_pair) = two();
    let ring = || Verb::write_with_doorbell(memory.at(0), Buf::zeroed(8));
    node.post(&*queue_pair, ring()).unwrap();

    // Holds up the thread that executes, so that the chain is pending when it is polled.
    let door = Arc::new(Door::default());
    let doorbell = memory.region.doorbell();
    let mut rung = std::pin::pin!(doorbell.wait_past(doorbell.count()));
    let opened = Waker::from(Arc::clone(&door));
    assert!(rung.as_mut().poll(&mut Context::from_waker(&opened)).is_pending());
    let mut completion = std::pin::pin!(queue_pair.post(ring().into()));
    let killer = Killer::of(&node);
    let waker = Waker::from(Arc::clone(&killer));
    // The first poll wakes at once; the second registers the waker until there is an outcome.
    let _ = completion.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let polled = completion.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "the door is shut");
    door.open();
    eventually("the driver's waker kills its node", || killer.has_killed.load(Ordering::SeqCst));
    assert_eq!(node.post(&*queue_pair, ring()), dead(NODE));
    assert_eq!(node.endpoint.register(8).err(), dead::<()>(NODE).err());

    let waker = Waker::from(Killer::of(&memory));
    let mut rung = std::pin::pin!(doorbell.wait_past(doorbell.count()));
    assert!(rung.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let other = Process::start(PeerId::compute(1), config());
    let queue_pair = other.connect(MEMORY, memory.addr());
    eventually("the host's waker kills its node", || {
        other.post(&*queue_pair, ring()) == dead(MEMORY)
    });
    assert_eq!(memory.endpoint.register(8).err(), dead::<()>(MEMORY).err());
}

/// Fences a node inside `wake`, and counts.
struct Fencer(Arc<TcpFabric>, PeerId, AtomicU64);

impl Wake for Fencer {
    fn wake(self: Arc<Self>) {
        let _reach = self.0.fence(self.1);
        self.2.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn wakers_of_a_fence_may_fence() {
    let node = Process::start(NODE, config());
    let mute = Impostor::start(reply(2, 0), false);
    let queue_pair = node.connect(MEMORY, mute.addr);
    let fencer = Arc::new(Fencer(Arc::clone(&node.fabric), NODE, AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&fencer));
    let mut completion = queue_pair.post(Verb::fetch_and_add(node.at(0), 1).into());
    let _ = std::pin::Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop()));
    let polled = std::pin::Pin::new(&mut completion).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "the peer does not answer");
    let fabric = Arc::clone(&node.fabric);
    let fences = std::thread::spawn(move || fabric.fence(MEMORY));
    eventually("both fences return", || {
        fences.is_finished() && fencer.2.load(Ordering::SeqCst) == 1
    });
    assert_eq!(completion.try_take().unwrap().unwrap_err().error, {
        FabricError::PeerDead { peer: MEMORY }
    });
    assert_eq!(node.endpoint.register(8).err(), dead::<()>(NODE).err());
}

#[test]
fn keys_cannot_be_guessed_from_others() {
    let memory = Process::start(MEMORY, config());
    let keys: Vec<u32> =
        (0..8).map(|_| memory.endpoint.register(8).unwrap().key().to_raw()).collect();
    assert!(keys.iter().all(|key| key >> 16 != 0), "{keys:x?}");
    let mut secrets: Vec<u32> = keys.iter().map(|key| key >> 16).collect();
    secrets.sort_unstable();
    secrets.dedup();
    assert!(secrets.len() > 4, "{keys:x?}");
}

#[test]
fn a_port_can_be_had_once_and_again_after_a_death() {
    let memory = Process::start(MEMORY, config());
    let fixed = TcpConfig { listen: memory.addr(), ..config() };
    let runtime = RealRuntime::new(1).unwrap();
    let fabric = TcpFabric::new(fixed, runtime.env());
    let error = fabric.join(NODE).err().unwrap();
    assert!(matches!(error, FabricError::Network { peer: NODE, .. }), "{error}");
    memory.fabric.kill(MEMORY);
    assert!(fabric.join(NODE).is_ok());
}

const OTHER: u64 = u64::from_le_bytes(*b"CONTROL1");

/// A fabric that echoes lines behind `OTHER` and counts who does.
fn echoing(config: TcpConfig) -> (Process, Arc<AtomicU64>) {
    let memory = Process::start(MEMORY, config);
    let running = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&running);
    let echo = move |mut stream: Box<dyn Stream>, from: SocketAddr| {
        counted.fetch_add(1, Ordering::SeqCst);
        assert!(from.ip().is_loopback());
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|count| count == 1) {
            stream.write_all(&byte).unwrap();
        }
        counted.fetch_sub(1, Ordering::SeqCst);
    };
    memory.fabric.serve_protocol(OTHER, Arc::new(echo));
    (memory, running)
}

fn connect_other(addr: SocketAddr, magic: u64) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&magic.to_le_bytes()).unwrap();
    stream
}

/// Whether the other side still answers.
fn echoes(mut stream: &TcpStream) -> bool {
    let mut received = [0];
    stream.write_all(b"x").is_ok()
        && matches!(stream.read(&mut received), Ok(1))
        && received == *b"x"
}

#[test]
fn what_is_not_the_fabrics_is_handed_over_without_a_key_and_ends_with_the_endpoint() {
    let (memory, running) = echoing(invited());
    let node = Process::start(NODE, config());
    let key = AccessKey::random().unwrap();
    memory.fabric.invite(MEMORY, NODE, key).unwrap();
    let queue_pair = node.connect_with(MEMORY, memory.addr(), Some(key));

    let others: Vec<_> =
        (0..MAX_FOREIGN_CONNECTIONS).map(|_| connect_other(memory.addr(), OTHER)).collect();
    assert!(others.iter().all(echoes));
    let most = MAX_FOREIGN_CONNECTIONS as u64;
    assert_eq!(running.load(Ordering::SeqCst), most);
    assert!(!echoes(&connect_other(memory.addr(), OTHER)), "one too many");
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)), Ok(0));
    assert_eq!(memory.fabric.bad_connections(MEMORY).count, 0);

    drop(others);
    eventually("the handlers return", || running.load(Ordering::SeqCst) == 0);
    let mut last = connect_other(memory.addr(), OTHER);
    eventually("there is room again", || {
        let has_room = echoes(&last);
        if !has_room {
            last = connect_other(memory.addr(), OTHER);
        }
        has_room
    });
    memory.fabric.kill(MEMORY);
    assert!(!echoes(&last), "shut down");
    eventually("the handlers return", || running.load(Ordering::SeqCst) == 0);
}

#[test]
fn other_words_and_the_hello_are_not_handed_over() {
    let (memory, running) = echoing(config());
    memory
        .fabric
        .serve_protocol(u64::from_le_bytes(*b"SELKTCP?"), Arc::new(|_, _| panic!("a hello")));
    let node = Process::start(NODE, config());
    let queue_pair = node.connect(MEMORY, memory.addr());
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)), Ok(0));
    let stranger = connect_other(memory.addr(), OTHER + 1);
    assert!(!echoes(&stranger));
    let latest = memory.fabric.bad_connections(MEMORY).latest;
    assert_eq!(latest, Some(WireError::Magic { found: OTHER + 1 }));
    assert_eq!(running.load(Ordering::SeqCst), 0);
}
