//! Connections that are refused or closed: wrong bytes, a late hello, a wrong pool, name, version.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use selkie_fabric::tcp::{MAX_CHAIN_BYTES, Security, TcpConfig, WireError};
use selkie_fabric::{Fabric, FabricError, PeerId, Refusal, Stream, Verb};

use crate::certificates;
use crate::common::{
    Impostor, MEMORY, NODE, PATIENCE, POOL, Process, config, dead, eventually, hello, reply, two,
};

/// Where the number of the session is in a hello.
const SESSION_AT: usize = 56;

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
    let hello = hello(3, POOL, PeerId::compute(9), MEMORY);
    let sessions = std::cell::Cell::new(0);
    let with_hello = |frame: &[u8]| {
        let mut hello = hello.clone();
        // Each is a session of its own.
        sessions.set(sessions.get() + 1);
        hello.splice(SESSION_AT..=SESSION_AT, [sessions.get()]);
        [&hello[..], frame].concat()
    };
    let header = |bytes: u32, verbs: u16, sequence: u8| {
        let mut frame = bytes.to_le_bytes().to_vec();
        frame.extend(verbs.to_le_bytes());
        frame.extend([0, 0, sequence, 0, 0, 0, 0, 0, 0, 0]);
        frame
    };
    // An add to the word that all watch, but for the number of the verb.
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
    for byte in hello(3, POOL, NODE, MEMORY) {
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
    let newer = Impostor::start(reply(4, 1), false);
    let queue_pair = node.connect(MEMORY, newer.addr);
    let version = Refusal::Version { ours: 3, theirs: 4 };
    assert_eq!(node.post(&*queue_pair, add()), refused(version));
    assert_eq!(node.post(&*queue_pair, add()), refused(version));
    for version in [1, 2, 4] {
        let received =
            send_and_receive(memory.addr(), &hello(version, POOL, PeerId::compute(2), MEMORY));
        assert_eq!(received, reply(3, 1));
    }

    assert_eq!(node.endpoint.connect(PeerId::memory(9)).err(), {
        Some(FabricError::UnknownPeer { peer: PeerId::memory(9) })
    });
    assert_eq!(node.post(&*good, add()), Ok(0));
    assert_eq!(memory.region.load(0), 1, "only the member has added");
}
