//! Nodes that admit only guests with a key, or peers whose access card they know.

use std::sync::Arc;

use selkie_fabric::tcp::{AccessKey, Admission, TcpConfig};
use selkie_fabric::{
    Fabric, FabricError, FenceScope, LocalRegion, PeerId, QueuePair, Refusal, RemoteAddr, Verb,
};

use crate::common::{MEMORY, NODE, Process, config, dead, invited};

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
    // An endpoint that joins later knows which nodes were met before.
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
