//! Chains that are many, long or not polled, and answers that come late or never.

use selkie_fabric::tcp::{MAX_CHAIN_BYTES, MAX_CHAIN_VERBS};
use selkie_fabric::{Buf, FabricError, RemoteAddr, Verb};

use crate::common::{Impostor, MEMORY, NODE, Process, config, eventually, long_chain, reply, two};

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
    let impostor = Impostor::start(reply(3, 0), true);
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
    for completion in posted {
        let error = node.wait(completion).unwrap_err();
        assert_eq!(error.error, FabricError::PeerDead { peer: MEMORY });
        assert_eq!(error.chain.buf(0).unwrap().len(), 1 << 20);
    }
}
