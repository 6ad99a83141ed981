//! What a peer that was let in may access: its domain, and regions whose keys it was told.

use selkie_fabric::tcp::{AccessKey, Invitation};
use selkie_fabric::{Access, Buf, Chain, Domain, FabricError, PeerId, RemoteAddr, Rights, Verb};

use crate::common::{MEMORY, NODE, Process, config, dead, invited};

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
