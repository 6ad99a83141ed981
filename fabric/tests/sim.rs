//! What the simulated network does beyond the contract: costs, faults, nodes that stop.

#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_fabric::sim::{CostModel, Faults, RunError, World, WorldConfig};
use selkie_fabric::{
    Buf, Chain, Endpoint, FabricError, LocalRegion, PeerId, QueuePair, RemoteAddr, Verb,
};

const BOUND: Duration = Duration::from_secs(10);
const MEMORY: PeerId = PeerId::memory(0);

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

struct Stage {
    world: World,
    region: Arc<dyn LocalRegion>,
    /// Endpoints of two compute nodes.
    nodes: [Arc<dyn Endpoint>; 2],
}

impl Stage {
    fn set(faults: Faults) -> Self {
        let world = World::new(WorldConfig { faults, ..WorldConfig::new(11) });
        let fabric = world.fabric();
        let region = fabric.join(MEMORY).unwrap().register(64 << 10).unwrap();
        let nodes = [0, 1].map(|index| fabric.join(PeerId::compute(index)).unwrap());
        Self { world, region, nodes }
    }

    fn queue_pair(&self, node: usize) -> Arc<dyn QueuePair> {
        self.nodes.get(node).unwrap().connect(MEMORY).unwrap()
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr::new(self.region.key(), offset)
    }

    fn add(&self) -> Chain {
        Verb::fetch_and_add(self.at(0), 1).into()
    }
}

fn filled(words: usize, value: u64) -> Buf {
    let mut buf = Buf::zeroed(8 * words);
    buf.words_mut().fill(value);
    buf
}

#[test]
fn atomics_take_their_turn_at_the_rate_of_the_model() {
    let stage = Stage::set(Faults::default());
    let pairs = [stage.queue_pair(0), stage.queue_pair(1)];
    stage
        .world
        .run(BOUND, async {
            let posted: Vec<_> =
                (0..1000).map(|number| pairs[number % 2].post(stage.add())).collect();
            for completion in posted {
                completion.await.unwrap();
            }
        })
        .unwrap();
    let least = CostModel::PAPER.atomic * 1000;
    let took = stage.world.now();
    assert!(took >= least && took < least + micros(20), "{took:?}, at least {least:?}");
}

#[test]
fn large_payloads_take_the_time_of_their_bytes() {
    let time_of = |bytes| {
        let stage = Stage::set(Faults::default());
        let pair = stage.queue_pair(0);
        let read = Verb::read(stage.at(0), Buf::zeroed(bytes));
        stage.world.run(BOUND, async { pair.post(read.into()).await.unwrap() }).unwrap();
        stage.world.now()
    };
    // 32 KiB at 6.8 GB/s pass two adapters, one after the other.
    let extra = (time_of(32 << 10) - time_of(8)).as_nanos();
    assert!((9_000..10_500).contains(&extra), "{extra} ns");
}

#[test]
fn chains_of_different_queue_pairs_overtake_each_other_when_told_to() {
    let overtaken = |faults| {
        let stage = Stage::set(faults);
        let pairs = [stage.queue_pair(0), stage.queue_pair(1)];
        stage
            .world
            .run(BOUND, async {
                let mut overtaken = 0;
                for _ in 0..100 {
                    let first = pairs[0].post(stage.add());
                    stage.world.env().sleep(micros(1)).await;
                    let second = pairs[1].post(stage.add());
                    let (first, second) = (first.await.unwrap(), second.await.unwrap());
                    overtaken += u32::from(second.old(0) < first.old(0));
                }
                overtaken
            })
            .unwrap()
    };
    assert_eq!(overtaken(Faults::default()), 0);
    let reordered =
        overtaken(Faults { reorder_one_in: 2, reorder_by: micros(50), ..Faults::default() });
    assert!((10..60).contains(&reordered), "{reordered} of 100");
}

#[test]
fn payloads_tear_and_writes_are_late_when_told_to() {
    let faults = Faults { tear_one_in: 1, tear_by: micros(10), ..Faults::default() };
    let stage = Stage::set(faults);
    let (writer, reader) = (stage.queue_pair(0), stage.queue_pair(1));
    let torn = stage
        .world
        .run(BOUND, async {
            let mut torn = 0;
            for value in 1..200 {
                drop(writer.post(Verb::write(stage.at(512), filled(64, value)).into()));
                let read =
                    reader.post(Verb::read(stage.at(512), Buf::zeroed(512)).into()).await.unwrap();
                let words = read.buf(0).unwrap().words().to_vec();
                torn += u32::from(words.iter().any(|word| *word != words[0]));
            }
            torn
        })
        .unwrap();
    assert!(torn > 20, "{torn} of 199 reads were torn");

    let stage = Stage::set(Faults { late_one_in: 1, late_by: micros(100), ..Faults::default() });
    let writer = stage.queue_pair(0);
    stage
        .world
        .run(BOUND, async {
            writer.post(Verb::write(stage.at(0), filled(1, 7)).into()).await.unwrap();
            assert_eq!(stage.region.load(0), 0, "completed, and not in place");
            let read = writer.post(Verb::read(stage.at(0), Buf::zeroed(8)).into()).await.unwrap();
            assert_eq!(read.buf(0).unwrap().words(), [7], "the same queue pair sees it");
            assert_eq!(stage.region.load(0), 7, "and then all readers do");
        })
        .unwrap();
}

#[test]
fn what_a_crashed_node_has_sent_is_executed_and_what_a_killed_one_has_is_not() {
    for (kill, expected) in [(false, 1), (true, 0)] {
        let stage = Stage::set(Faults::default());
        let pair = stage.queue_pair(0);
        let controls = stage.world.controls();
        let posted = pair.post(stage.add());
        let node = PeerId::compute(0);
        if kill {
            controls.kill(node)
        } else {
            controls.crash(node)
        }
        let outcome = stage.world.run(BOUND, posted).unwrap();
        assert_eq!(stage.region.load(0), expected);
        assert_eq!(outcome.is_err(), kill);
        let late = stage.world.run(BOUND, pair.post(stage.add())).unwrap();
        assert_eq!(late.unwrap_err().error, FabricError::PeerDead { peer: node });
        assert_eq!(stage.region.load(0), expected, "the dead send nothing");
    }
}

#[test]
fn tasks_of_a_paused_node_stand_still_and_go_on() {
    let stage = Stage::set(Faults::default());
    let (node, controls) = (PeerId::compute(0), stage.world.controls());
    let env = stage.world.env_of(node);
    let ticks = Arc::new(AtomicU64::new(0));
    let (own, clock) = (Arc::clone(&ticks), env.clone());
    env.spawn("ticker", async move {
        loop {
            clock.sleep(micros(10)).await;
            own.fetch_add(1, Ordering::Relaxed);
        }
    })
    .detach();
    let run = |long| {
        let before = ticks.load(Ordering::Relaxed);
        stage.world.run(BOUND, stage.world.env().sleep(long)).unwrap();
        ticks.load(Ordering::Relaxed) - before
    };
    assert!((9..=10).contains(&run(micros(100))));
    controls.pause(node);
    assert_eq!(run(micros(100)), 0);
    controls.resume(node);
    assert!((9..=11).contains(&run(micros(100))));
    controls.crash(node);
    assert_eq!(run(micros(100)), 0);
}

#[test]
fn a_short_cut_delays_and_a_long_one_ends_the_queue_pair() {
    let node = PeerId::compute(0);
    let give_up = CostModel::PAPER.unreachable_after;
    for (long, survives) in [(give_up / 2, true), (give_up * 2, false)] {
        let stage = Stage::set(Faults::default());
        let (pair, controls) = (stage.queue_pair(0), stage.world.controls());
        let in_flight = pair.post(stage.add());
        controls.cut(node, MEMORY);
        controls.at(long, move |controls| controls.heal(node, MEMORY));
        stage
            .world
            .run(BOUND, async {
                let later: Vec<_> = (0..10).map(|_| pair.post(stage.add())).collect();
                let first = in_flight.await;
                assert_eq!(first.is_ok(), survives);
                let mut last = first.ok().and_then(|chain| chain.old(0));
                for completion in later {
                    let result = completion.await;
                    assert_eq!(result.is_ok(), survives);
                    if let Ok(chain) = result {
                        assert!(chain.old(0) > last, "chains keep their order");
                        last = chain.old(0);
                    }
                }
                stage.world.env().sleep(give_up * 3).await;
                assert_eq!(pair.post(stage.add()).await.is_ok(), survives, "given up for good");
                let fresh = stage.queue_pair(0).post(stage.add()).await;
                assert!(fresh.is_ok(), "a new queue pair finds the link healed");
            })
            .unwrap();
    }
}

#[test]
fn runs_that_do_not_end_are_told_from_each_other() {
    let stage = Stage::set(Faults::default());
    let forever = stage.world.run(BOUND, std::future::pending::<()>());
    assert!(matches!(forever, Err(RunError::Stuck { .. })), "{forever:?}");
    let env = stage.world.env();
    let spinning = stage.world.run(micros(50), async {
        loop {
            env.yield_now().await;
        }
    });
    assert_eq!(spinning, Err::<(), _>(RunError::TimeUp { bound: micros(50) }));
    env.spawn("fails", async { panic!("on purpose") }).detach();
    let panicked = stage.world.run(BOUND, env.sleep(micros(1)));
    assert!(panicked.unwrap_err().to_string().contains("on purpose"));
}

/// A task that continues a wait that another task has begun is woken, too.
#[test]
fn a_sleep_that_was_begun_elsewhere_wakes_who_waits_for_it_now() {
    let world = World::new(WorldConfig::new(11));
    let env = world.env();
    let done = world.run(BOUND, async {
        let mut sleep = env.sleep(micros(50));
        let mut no_task = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(sleep.as_mut().poll(&mut no_task).is_pending());
        let woken = Arc::new(AtomicU64::new(0));
        let (own, told) = (Arc::clone(&woken), env.clone());
        drop(env.spawn("sleeper", async move {
            sleep.await;
            own.store(told.now().as_micros() as u64, Ordering::SeqCst);
        }));
        env.sleep(micros(100)).await;
        woken.load(Ordering::SeqCst)
    });
    assert_eq!(done.unwrap(), 50);
}
