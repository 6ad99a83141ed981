//! Peers that end, close the connection, fall silent or are killed: who notices, and what becomes
//! of chains and ports.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use selkie_fabric::tcp::{TcpConfig, TcpFabric};
use selkie_fabric::{Buf, Chain, Fabric, FabricError, PeerId, RealRuntime, Verb};

use crate::common::{
    Impostor, MEMORY, NODE, PATIENCE, POOL, Process, config, dead, eventually, hello, reply, two,
};

/// Of nodes that wait for a silent peer to be given up.
const DEAD_AFTER: Duration = Duration::from_millis(400);
/// Of nodes that must not give up a living peer, however late the system runs its threads.
const PATIENT_DEAD_AFTER: Duration = Duration::from_secs(4);

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
fn a_peer_to_which_there_is_no_way_is_not_dead() {
    let node = Process::start(NODE, config());
    // The system connects to no broadcast address, as to one without a route.
    node.fabric.introduce(MEMORY, "255.255.255.255:9".parse().unwrap(), None);
    let Err(error) = node.endpoint.connect(MEMORY) else {
        panic!("connects to a broadcast address")
    };
    let FabricError::Network { what, .. } = error else { panic!("{error:?}") };
    assert!(what.contains("no way to 255.255.255.255:9"), "{what}");
}

#[test]
fn a_peer_that_ends_or_answers_nonsense_is_dead() {
    let node = Process::start(NODE, config());
    let add = || Verb::fetch_and_add(node.at(0), 1);
    for (answer, ends) in
        [(vec![], true), (reply(3, 0), true), (vec![7; 64], false), (reply(3, 77), false)]
    {
        let impostor = Impostor::start(answer, ends);
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
    let unasked = [reply(3, 0), vec![0; 16]].concat();
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
    let stopped = Impostor::start(reply(3, 0), false);
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
        assert_eq!(node.endpoint.silence_of(MEMORY), DEAD_AFTER);
        node.connect(MEMORY, impostor.addr);
        assert_eq!(node.endpoint.silence_of(MEMORY), DEAD_AFTER, "to connect takes it from none");
        let answers = Impostor::start(vec![7; 64], false);
        let confused = node.connect(MEMORY, answers.addr);
        assert_eq!(node.post(&*confused, add()), dead(MEMORY));
        assert_eq!(node.endpoint.silence_of(MEMORY), Duration::ZERO, "not by silence");
    }
    // Without keep-alives either side would have given the other up by then.
    std::thread::sleep((2 * PATIENT_DEAD_AFTER).saturating_sub(idle_since.elapsed()));
    assert_eq!(other.post(&*living, add()), Ok(1), "kept alive without chains");
}

#[test]
fn death_closes_connections_and_the_door() {
    let memory = Process::start(MEMORY, config());
    let addr = memory.addr();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&hello(3, POOL, NODE, MEMORY)).unwrap();
    let mut received = [0; 24];
    stream.read_exact(&mut received).unwrap();
    assert_eq!(received[..], reply(3, 0));
    memory.fabric.kill(MEMORY);
    assert_eq!(stream.read(&mut received).unwrap(), 0, "the connection is closed");
    assert!(TcpStream::connect(addr).is_err(), "no node listens");
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
