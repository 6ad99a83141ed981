//! Revoked and fenced peers: none of their verbs executes afterwards, and a new process of the same
//! name is let in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_fabric::tcp::TcpFabric;
use selkie_fabric::{
    Fabric, FabricError, FenceScope, PeerId, RealRuntime, Refusal, RemoteAddr, Verb,
};

use crate::common::{
    Impostor, MEMORY, NODE, Process, config, dead, eventually, long_chain, reply, two,
};

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
    // The next of its name may come first: it is known which was meant.
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
    for answer in [vec![], reply(3, 0)] {
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
