//! Connections that ask for nothing do not keep newcomers out.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use selkie_fabric::tcp::{AccessKey, MAX_FOREIGN_CONNECTIONS};
use selkie_fabric::{Stream, Verb};

use crate::common::{MEMORY, NODE, PATIENCE, Process, config, eventually, invited};

const OTHER: u64 = u64::from_le_bytes(*b"CONTROL1");
/// More than an endpoint has threads for.
const SILENT: usize = 1_300;
/// A memory node that echoes behind `OTHER`. It takes the first byte for the other side's name.
fn echoing() -> Process {
    let memory = Process::start(MEMORY, invited());
    let echo = |mut stream: Box<dyn Stream>, _: SocketAddr| {
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|count| count == 1) {
            if !stream.let_in() || stream.write_all(&byte).is_err() {
                return;
            }
        }
    };
    memory.fabric.serve_protocol(OTHER, Arc::new(echo));
    memory
}

fn connect_other(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&OTHER.to_le_bytes()).unwrap();
    stream
}

/// Whether the other side still answers.
fn echoes(mut stream: &TcpStream) -> bool {
    let mut received = [0];
    stream.write_all(b"x").is_ok()
        && matches!(stream.read(&mut received), Ok(1))
        && received == *b"x"
}

/// A member with a link, and `work` on it after `crowd` has come; then another member comes.
#[track_caller]
fn newcomers_get_in(crowd: impl FnOnce(SocketAddr) -> Vec<TcpStream>) {
    let (memory, member) = (echoing(), Process::start(NODE, config()));
    let [key, other_key] = [(); 2].map(|()| AccessKey::random().unwrap());
    let other = selkie_fabric::PeerId::compute(1);
    memory.fabric.invite(MEMORY, NODE, key).unwrap();
    memory.fabric.invite(MEMORY, other, other_key).unwrap();
    let established = member.connect_with(MEMORY, memory.addr(), Some(key));
    let add = || Verb::fetch_and_add(memory.at(0), 1);
    assert_eq!(member.post(&*established, add()), Ok(0));

    let crowd = crowd(memory.addr());
    // At most for as long as a connection has to be idle before it makes room.
    eventually("a newcomer of the other protocol is in", || echoes(&connect_other(memory.addr())));
    let newcomer = Process::start(other, config());
    let link = newcomer.connect_with(MEMORY, memory.addr(), Some(other_key));
    assert_eq!(newcomer.post(&*link, add()), Ok(1), "a newcomer of the fabric");
    assert_eq!(member.post(&*established, add()), Ok(2), "an established link is not touched");
    drop(crowd);
}

#[test]
fn idle_connections_of_another_protocol_make_room_for_newcomers() {
    newcomers_get_in(|addr| {
        let idle: Vec<_> = (0..MAX_FOREIGN_CONNECTIONS).map(|_| connect_other(addr)).collect();
        assert!(idle.iter().all(echoes));
        idle
    });
}

#[test]
fn silent_connections_make_room_for_newcomers() {
    newcomers_get_in(|addr| (0..SILENT).map(|_| TcpStream::connect(addr).unwrap()).collect());
}

#[test]
fn connections_that_say_a_word_and_no_more_make_room_for_newcomers() {
    newcomers_get_in(|addr| (0..SILENT).map(|_| connect_other(addr)).collect());
}

/// A source of connections that say nothing: as many as there can be, and for each that ends the
/// next. They come from another address.
fn flood(to: SocketAddr, is_over: &AtomicBool, count: usize) {
    let from = SocketAddr::from(([127, 0, 0, 2], 0));
    let mut open = VecDeque::new();
    while !is_over.load(Ordering::Relaxed) {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &from).unwrap();
        // The system's queue of connections may be full.
        if connect(&socket, &to).is_ok() {
            open.push_back(socket);
        }
        if open.len() > count {
            open.pop_front();
        }
    }
}

#[test]
fn a_flood_from_one_address_keeps_no_other_address_out() {
    let memory = echoing();
    let (addr, is_over) = (memory.addr(), AtomicBool::new(false));
    std::thread::scope(|threads| {
        let flooding = threads.spawn(|| flood(addr, &is_over, SILENT));
        // Until it has all places.
        std::thread::sleep(Duration::from_millis(500));
        for round in 0..20 {
            let started = Instant::now();
            let newcomer = connect_other(addr);
            let echoes = echoes(&newcomer);
            let took = started.elapsed();
            is_over.store(!echoes || took >= PATIENCE, Ordering::Relaxed);
            assert!(echoes, "round {round}");
            assert!(took < PATIENCE, "round {round}: {took:?}");
        }
        is_over.store(true, Ordering::Relaxed);
        flooding.join().unwrap();
    });
}
