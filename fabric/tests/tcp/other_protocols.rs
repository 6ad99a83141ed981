//! Connections of other protocols on the ports of a fabric.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selkie_fabric::tcp::{AccessKey, MAX_FOREIGN_CONNECTIONS, TcpConfig, WireError};
use selkie_fabric::{Stream, Verb};

use crate::common::{MEMORY, NODE, PATIENCE, Process, config, eventually, invited};

const OTHER: u64 = u64::from_le_bytes(*b"CONTROL1");

/// A fabric that echoes lines behind `OTHER` and counts them.
fn echoing(config: TcpConfig) -> (Process, Arc<AtomicU64>) {
    let memory = Process::start(MEMORY, config);
    let running = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&running);
    let echo = move |mut stream: Box<dyn Stream>, from: SocketAddr| {
        counted.fetch_add(1, Ordering::SeqCst);
        assert!(from.ip().is_loopback());
        assert!(stream.let_in());
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
fn others_are_answered_while_memory_is_populated() {
    let (memory, _) = echoing(config());
    let mut answered = Vec::new();
    let mut told = |done| {
        answered.push((done, echoes(&connect_other(memory.addr(), OTHER))));
        ControlFlow::Continue(())
    };
    memory.endpoint.register_populated(128 << 20, &mut told).unwrap();
    assert_eq!(answered, [(0, true), (64 << 20, true), (128 << 20, true)]);
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
