//! Every fault must really happen, and leave the order within a queue pair intact.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::fault::{Delay, FaultFabric, FaultPlan, FaultReport, PeerDeath, Tear};
use selkie_fabric::{
    Buf, Chain, Endpoint, Env, Fabric, FabricError, LocalRegion, MemFabric, PeerId, QueuePair,
    RealRuntime, RemoteAddr, Verb,
};

const MEMORY: PeerId = PeerId::memory(0);

struct Setup {
    fabric: Arc<FaultFabric>,
    env: Env,
    region: Arc<dyn LocalRegion>,
    node: Arc<dyn Endpoint>,
    _memory: Arc<dyn Endpoint>,
    queue_pair: Arc<dyn QueuePair>,
}

impl Setup {
    fn new(plan: FaultPlan, env: Env) -> Self {
        let fabric = FaultFabric::wrap(MemFabric::new(), plan, env.clone());
        let memory = fabric.join(MEMORY).unwrap();
        let region = memory.register(64 << 10).unwrap();
        let node = fabric.join(PeerId::compute(0)).unwrap();
        let queue_pair = node.connect(MEMORY).unwrap();
        Self { fabric, env, region, node, _memory: memory, queue_pair }
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr::new(self.region.key(), offset)
    }

    fn add(&self) -> Chain {
        Verb::fetch_and_add(self.at(0), 1).into()
    }

    fn payload(words: usize, value: u64) -> Buf {
        let mut buf = Buf::zeroed(words * 8);
        buf.words_mut().fill(value);
        buf
    }
}

/// Runs `test` under `plan`.
fn run<T: Future<Output = ()>>(plan: FaultPlan, test: impl FnOnce(Setup) -> T) {
    let runtime = RealRuntime::with_seed(2, 1).unwrap();
    runtime.block_on(test(Setup::new(plan, runtime.env())));
}

fn delayed(one_in: u32, milliseconds: u64) -> FaultPlan {
    let at_least = Duration::from_millis(milliseconds);
    FaultPlan { delay: Delay { one_in, at_least, at_most: at_least }, ..FaultPlan::none(5) }
}

#[test]
fn a_delayed_chain_takes_its_time_and_is_not_lost() {
    run(delayed(1, 200), async |setup| {
        let start = setup.env.now();
        let mut completion = setup.queue_pair.post(setup.add());
        assert!(completion.try_take().is_none(), "complete at once");
        assert_eq!(completion.await.unwrap().old(0), Some(0));
        assert!(setup.env.now() - start >= Duration::from_millis(200));
        assert_eq!(setup.fabric.report(), FaultReport { delayed: 1, ..FaultReport::default() });
    });
}

#[test]
fn chains_behind_a_delayed_one_keep_their_order_and_other_queue_pairs_overtake() {
    // Of one queue pair's 200 chains some are delayed, the others must queue up behind them.
    run(delayed(20, 3), async |setup| {
        let posted: Vec<_> = (0..200).map(|_| setup.queue_pair.post(setup.add())).collect();
        let mut last_done = None;
        for (index, completion) in (0..).zip(posted) {
            assert_eq!(completion.await.unwrap().old(0), Some(index));
            last_done = Some(index);
        }
        assert_eq!(last_done, Some(199));
        assert!(setup.fabric.report().delayed >= 2, "{:?}", setup.fabric.report());
    });
    // Two queue pairs, everything delayed by different times: the later post may be first.
    let most = Duration::from_millis(40);
    let delay = Delay { one_in: 1, at_least: Duration::ZERO, at_most: most };
    run(FaultPlan { delay, ..FaultPlan::none(9) }, async |setup| {
        let mut overtook = false;
        for round in 0..50 {
            let other = setup.node.connect(MEMORY).unwrap();
            let first = setup.queue_pair.post(setup.add());
            let second = other.post(setup.add());
            overtook |= second.await.unwrap().old(0) == Some(2 * round);
            let _ = first.await.unwrap();
            if overtook {
                return;
            }
        }
        panic!("no chain was ever overtaken by one of another queue pair");
    });
}

#[test]
fn a_large_write_lands_in_two_parts() {
    let tear = Tear { one_in: 1, gap: Duration::from_millis(300) };
    run(FaultPlan { tear, ..FaultPlan::none(3) }, async |setup| {
        let write = Verb::write(setup.at(64), Setup::payload(64, u64::MAX));
        let chain = Chain::from([
            Verb::fetch_and_add(setup.at(0), 1),
            write,
            Verb::fetch_and_add(setup.at(0), 1),
        ]);
        let completion = setup.queue_pair.post(chain);
        let mut torn = false;
        let mut page = vec![0; 64 * 8];
        loop {
            let before = setup.region.load(0);
            setup.region.read(64, &mut page);
            let landed = page.iter().filter(|byte| **byte == 0xff).count();
            if landed == page.len() {
                break;
            }
            if landed > 0 {
                torn = true;
                assert!(setup.region.load(0) >= 1, "a verb before the write is not done");
                assert!(before <= 1, "a verb behind the write is done");
            }
            setup.env.yield_now().await;
        }
        assert!(torn, "no read saw the write half done");
        let chain = completion.await.unwrap();
        assert_eq!(chain.old(2), Some(1));
        assert_eq!(chain.buf(1).unwrap().len(), 64 * 8);
        assert_eq!(setup.fabric.report(), FaultReport { torn: 1, ..FaultReport::default() });
    });
}

#[test]
fn a_corrupted_read_has_exactly_one_bit_flipped_and_memory_none() {
    run(FaultPlan { corrupt_one_in: 1, ..FaultPlan::none(4) }, async |setup| {
        for round in 1..=20 {
            let read = |words: usize| Verb::read(setup.at(0), Buf::zeroed(words * 8));
            let chain = setup.queue_pair.post([read(1), read(256)].into()).await.unwrap();
            assert!(chain.buf(0).unwrap().iter().all(|byte| *byte == 0), "a word was corrupted");
            let flipped: u32 = chain.buf(1).unwrap().iter().map(|byte| byte.count_ones()).sum();
            assert_eq!(flipped, 1);
            assert_eq!(setup.fabric.report().corrupted, round);
        }
        let mut memory = vec![1; 2048];
        setup.region.read(0, &mut memory);
        assert!(memory.iter().all(|byte| *byte == 0));
    });
}

#[test]
fn a_peer_dies_after_the_planned_number_of_chains() {
    let death = PeerDeath { peer: MEMORY, after_chains: 7 };
    run(FaultPlan { deaths: vec![death], ..FaultPlan::none(0) }, async |setup| {
        for index in 0..10 {
            let result = setup.queue_pair.post(setup.add()).await;
            assert_eq!(result.is_ok(), index < 7, "chain {index}");
        }
        assert_eq!(setup.region.load(0), 7);
        assert_eq!(setup.fabric.report().refused, 3);
        let dead = FabricError::PeerDead { peer: MEMORY };
        assert_eq!(setup.node.connect(MEMORY).err(), Some(dead));
    });
}

#[test]
fn chains_outstanding_when_a_peer_is_dropped_fail_and_give_their_buffers_back() {
    run(delayed(1, 300), async |setup| {
        let write = || Chain::from([Verb::write(setup.at(0), Setup::payload(4, 1))]);
        let posted: Vec<_> = (0..10).map(|_| setup.queue_pair.post(write())).collect();
        setup.fabric.drop_peer(MEMORY);
        for completion in posted {
            let error = completion.await.unwrap_err();
            assert_eq!(error.error, FabricError::PeerDead { peer: MEMORY });
            assert_eq!(error.chain.buf(0).unwrap().len(), 32);
        }
    });
}

#[test]
fn a_chain_that_executed_but_was_not_answered_when_its_peer_died_fails() {
    run(delayed(1, 500), async |setup| {
        let mut completion = setup.queue_pair.post(setup.add());
        while setup.region.load(0) == 0 {
            setup.env.yield_now().await;
        }
        assert!(completion.try_take().is_none(), "answered at once");
        setup.fabric.drop_peer(MEMORY);
        let error = completion.await.unwrap_err();
        assert_eq!((error.executed, &error.error), (0, &FabricError::PeerDead { peer: MEMORY }));
        assert_eq!(setup.fabric.report().refused, 1);
    });
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let corrupted = |seed| {
        let runtime = RealRuntime::with_seed(1, 1).unwrap();
        let plan = FaultPlan { corrupt_one_in: 3, ..FaultPlan::none(seed) };
        let setup = Setup::new(plan, runtime.env());
        let read = || setup.queue_pair.post(Verb::read(setup.at(0), Buf::zeroed(64)).into());
        let pages = (0..60).map(|_| runtime.block_on(read()).unwrap().buf(0).unwrap().to_vec());
        pages.collect::<Vec<_>>()
    };
    assert_eq!(corrupted(1), corrupted(1));
    assert_ne!(corrupted(1), corrupted(2));
}

#[test]
fn chains_outstanding_when_the_environment_stops_end_with_an_error() {
    let runtime = RealRuntime::new(2).unwrap();
    let setup = Setup::new(delayed(1, 60_000), runtime.env());
    let posted: Vec<_> = (0..3).map(|_| setup.queue_pair.post(setup.add())).collect();
    drop(runtime);
    let late = setup.queue_pair.post(setup.add());
    let mut returned = 0;
    for mut completion in posted.into_iter().chain([late]) {
        let error = completion.try_take().expect("the chain hangs").unwrap_err();
        assert_eq!(error.error, FabricError::Stopped { peer: MEMORY });
        returned += error.chain.verbs.len();
    }
    // All but the one that the driver was about to execute come back.
    assert!(returned >= 3, "only {returned} of 4 chains came back");
    assert_eq!(setup.region.load(0), 0);
}
