//! What a session may leave unanswered is bounded, on both sides.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use selkie_fabric::tcp::WireError;
use selkie_fabric::{Buf, Chain, Verb};

use crate::common::{
    MEMORY, NODE, PATIENCE, POOL, Process, config, dead, eventually, hello, reply,
};

/// As in `wire/limits.rs`.
const WINDOW_CHAINS: u64 = 8192;

#[test]
fn a_node_sends_no_more_than_its_window_to_a_peer_that_answers_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = Process::start(NODE, config());
    let queue_pair = node.connect(MEMORY, listener.local_addr().unwrap());
    let posted: Vec<_> = (0..3 * WINDOW_CHAINS).map(|_| queue_pair.post(Chain::new())).collect();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut [0; 80]).unwrap();
    stream.write_all(&reply(3, 0)).unwrap();
    let mut answer = |first: u64, count: u64| {
        let mut header = [0; 16];
        for expected in first..first + count {
            stream.read_exact(&mut header).unwrap();
            assert_eq!(header[8..], expected.to_le_bytes());
        }
        stream.set_nonblocking(true).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(stream.read(&mut header).is_err(), "sent beyond the window");
        stream.set_nonblocking(false).unwrap();
        for sequence in first..first + count {
            let answer = [[0; 8], sequence.to_le_bytes()].concat();
            stream.write_all(&answer).unwrap();
        }
    };
    for round in 0..3 {
        answer(round * WINDOW_CHAINS, WINDOW_CHAINS);
    }
    for completion in posted {
        node.wait(completion).unwrap();
    }
}

#[test]
fn a_host_keeps_no_more_than_the_window_for_a_node_that_acknowledges_nothing() {
    let memory = Process::start(MEMORY, config());
    let node = Process::start(NODE, config());
    let good = node.connect(MEMORY, memory.addr());
    let mut stream = TcpStream::connect(memory.addr()).unwrap();
    stream.write_all(&hello(3, POOL, NODE, MEMORY)).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let reads = std::thread::spawn(move || std::io::copy(&mut answers, &mut std::io::sink()));
    for sequence in 0..1_000_u16 {
        // A read of 16 KiB.
        let mut frame = 32_u32.to_le_bytes().to_vec();
        frame.extend(1_u16.to_le_bytes());
        frame.extend(sequence.to_le_bytes());
        frame.extend(u64::from(sequence).to_le_bytes());
        frame.extend([1, 0, 0, 0]);
        frame.extend(memory.at(0).region.to_raw().to_le_bytes());
        frame.extend(0_u64.to_le_bytes());
        frame.extend((16_u64 << 10).to_le_bytes());
        frame.extend(0_u64.to_le_bytes());
        if stream.write_all(&frame).is_err() {
            break;
        }
    }
    eventually("the session is closed", || {
        let latest = memory.fabric.bad_connections(MEMORY).latest;
        matches!(latest, Some(WireError::WindowBytes { .. }))
    });
    let received = reads.join().unwrap().unwrap_or_default();
    assert!(received < 6 << 20, "{received} bytes");
    assert_eq!(node.post(&*good, Verb::fetch_and_add(memory.at(0), 1)), Ok(0));
}

#[test]
fn long_chains_pass_through_a_window_that_is_shorter() {
    let memory = Process::start(MEMORY, config());
    let large = memory.endpoint.register(selkie_fabric::tcp::MAX_CHAIN_BYTES).unwrap();
    let node = Process::start(NODE, config());
    let queue_pair = node.connect(MEMORY, memory.addr());
    let at = selkie_fabric::RemoteAddr::new(large.key(), 0);
    let read = |_| queue_pair.post(Verb::read(at, Buf::zeroed(large.len())).into());
    let posted: Vec<_> = (0..5).map(read).collect();
    for completion in posted {
        assert_eq!(node.wait(completion).unwrap().buf(0).unwrap().len(), large.len());
    }
    memory.fabric.kill(MEMORY);
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(at, 1)), dead(MEMORY));
}
