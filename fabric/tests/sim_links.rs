//! Links, processes and machines of the simulated network that fail for a while, and go on.

#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_fabric::env::TaskError;
use selkie_fabric::sim::{CostModel, World, WorldConfig};
use selkie_fabric::{
    Chain, Endpoint, Fabric, FabricError, FenceScope, LocalRegion, PeerId, RemoteAddr, Verb,
};

const BOUND: Duration = Duration::from_secs(10);
const MEMORY: PeerId = PeerId::memory(0);
const COMPUTE: PeerId = PeerId::compute(0);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Two processes: one of a memory node, one of a compute node.
struct Processes {
    world: World,
    region: Arc<dyn LocalRegion>,
    node: Arc<dyn Endpoint>,
    /// That of the memory node, and that of the compute node.
    fabrics: [Arc<dyn Fabric>; 2],
    _memory: Arc<dyn Endpoint>,
}

impl Processes {
    fn set() -> Self {
        let cost = CostModel { unreachable_after: millis(50), ..CostModel::PAPER };
        let world = World::new(WorldConfig { cost, ..WorldConfig::new(11) });
        let fabrics = [(); 2].map(|()| world.process_fabric());
        let memory = fabrics[0].join(MEMORY).unwrap();
        let region = memory.register(4096).unwrap();
        let node = fabrics[1].join(COMPUTE).unwrap();
        Self { world, region, node, fabrics, _memory: memory }
    }

    fn add(&self) -> Chain {
        Verb::fetch_and_add(RemoteAddr::new(self.region.key(), 0), 1).into()
    }

    fn added(&self) -> u64 {
        self.region.load(0)
    }
}

#[test]
fn what_waits_for_a_link_goes_on_in_its_order() {
    let processes = Processes::set();
    let (controls, env) = (processes.world.controls(), processes.world.env());
    let pair = processes.node.connect(MEMORY).unwrap();
    let olds = processes.world.run(BOUND, async {
        controls.block(COMPUTE, MEMORY);
        let posted: Vec<_> = (0..5).map(|_| pair.post(processes.add())).collect();
        env.sleep(millis(20)).await;
        assert_eq!(processes.added(), 0, "no request arrives");
        controls.unblock(COMPUTE, MEMORY);
        let mut olds = Vec::new();
        for completion in posted {
            olds.push(completion.await.unwrap().old(0).unwrap());
        }
        olds
    });
    assert_eq!(olds.unwrap(), [0, 1, 2, 3, 4]);
    assert!(processes.world.now() < millis(21), "at once");
}

#[test]
fn what_was_asked_is_done_although_no_answer_comes_through() {
    let processes = Processes::set();
    let (controls, env) = (processes.world.controls(), processes.world.env());
    let pair = processes.node.connect(MEMORY).unwrap();
    let done = processes.world.run(BOUND, async {
        controls.block(MEMORY, COMPUTE);
        let posted = pair.post(processes.add());
        env.sleep(millis(20)).await;
        assert_eq!(processes.added(), 1, "the request arrives");
        controls.at(env.now() + millis(10), |controls| controls.unblock(MEMORY, COMPUTE));
        let done = posted.await.map(|done| done.old(0));
        (done.unwrap(), env.now())
    });
    let (old, at) = done.unwrap();
    assert_eq!(old, Some(0));
    assert!(at >= millis(30), "after the link is back: {at:?}");
}

#[test]
fn a_link_that_stays_away_ends_the_queue_pair() {
    for (from, to, executed) in [(COMPUTE, MEMORY, 0), (MEMORY, COMPUTE, 1)] {
        let processes = Processes::set();
        let pair = processes.node.connect(MEMORY).unwrap();
        processes.world.controls().block(from, to);
        let error = processes
            .world
            .run(BOUND, async { pair.post(processes.add()).await.unwrap_err().error });
        assert_eq!(error.unwrap(), FabricError::PeerDead { peer: MEMORY });
        assert!(processes.world.now() >= millis(50));
        assert_eq!(processes.added(), executed);
        drop(processes.node.connect(MEMORY).unwrap());
        assert_eq!(processes.node.silence_of(MEMORY), millis(50), "whichever connects first");
    }
}

#[test]
fn a_process_that_stands_still_executes_no_verb() {
    let processes = Processes::set();
    let (controls, env) = (processes.world.controls(), processes.world.env());
    let pair = processes.node.connect(MEMORY).unwrap();
    let done = processes.world.run(BOUND, async {
        controls.freeze(MEMORY);
        let posted = [pair.post(processes.add()), pair.post(processes.add())];
        env.sleep(millis(20)).await;
        assert_eq!(processes.added(), 0);
        controls.thaw(MEMORY);
        let mut olds = Vec::new();
        for completion in posted {
            olds.push(completion.await.unwrap().old(0).unwrap());
        }
        olds
    });
    assert_eq!(done.unwrap(), [0, 1]);
}

/// What waits for a process that stands still fails when that is killed.
#[test]
fn a_process_that_is_killed_while_it_stands_still_leaves_nothing_waiting() {
    let processes = Processes::set();
    let controls = processes.world.controls();
    let pair = processes.node.connect(MEMORY).unwrap();
    let error = processes.world.run(BOUND, async {
        controls.freeze(MEMORY);
        let posted = pair.post(processes.add());
        controls.at(millis(5), |controls| controls.kill(MEMORY));
        posted.await.unwrap_err().error
    });
    assert_eq!(error.unwrap(), FabricError::PeerDead { peer: MEMORY });
}

#[test]
fn the_timers_of_a_suspended_machine_stand_still_and_its_clock_goes_on() {
    for (is_suspended, wakes_at) in [(true, millis(30)), (false, millis(25))] {
        let processes = Processes::set();
        let (controls, env) = (processes.world.controls(), processes.world.env_of(COMPUTE));
        let woke = Arc::new(AtomicU64::new(0));
        let (own, told) = (env.clone(), Arc::clone(&woke));
        let task = env.spawn("sleeper", async move {
            own.sleep(millis(10)).await;
            told.store(own.now().as_millis() as u64, Ordering::Relaxed);
        });
        controls.at(millis(5), move |controls| {
            if is_suspended {
                controls.suspend(COMPUTE);
            } else {
                controls.freeze(COMPUTE);
            }
        });
        controls.at(millis(25), |controls| controls.thaw(COMPUTE));
        processes.world.run(BOUND, task.join()).unwrap().unwrap();
        assert_eq!(u128::from(woke.load(Ordering::Relaxed)), wakes_at.as_millis());
    }
}

#[test]
fn a_clock_that_is_set_forward_moves_no_timer() {
    let processes = Processes::set();
    let env = processes.world.env_of(COMPUTE);
    processes.world.controls().set_clock_forward(COMPUTE, millis(100));
    assert_eq!(env.now(), millis(100));
    processes.world.run(BOUND, env.sleep(millis(1))).unwrap();
    assert_eq!(env.now(), millis(101));
    assert_eq!(processes.world.now(), millis(1), "only that of the node");
}

#[test]
fn a_clock_that_stands_still_moves_no_timer_and_catches_up_or_stays_behind() {
    for (catches_up, shown) in [(true, millis(7)), (false, millis(4))] {
        let processes = Processes::set();
        let (controls, env) = (processes.world.controls(), processes.world.env_of(COMPUTE));
        let sleep = |long: u64| processes.world.run(BOUND, env.sleep(millis(long))).unwrap();
        sleep(2);
        controls.stop_clock(COMPUTE);
        sleep(3);
        assert_eq!((env.now(), processes.world.now()), (millis(2), millis(5)));
        controls.start_clock(COMPUTE, catches_up);
        sleep(2);
        assert_eq!((env.now(), processes.world.now()), (shown, millis(7)));
    }
}

#[test]
fn a_fence_holds_at_the_nodes_of_its_process() {
    let processes = Processes::set();
    let other = processes.world.process_fabric().join(PeerId::memory(1)).unwrap();
    let region = other.register(4096).unwrap();
    let (here, there) =
        (processes.node.connect(MEMORY).unwrap(), processes.node.connect(other.id()).unwrap());
    let fence = processes.fabrics[0].fence(COMPUTE).unwrap();
    assert_eq!(fence, FenceScope::ThisProcess);
    processes
        .world
        .run(BOUND, async {
            let refused = here.post(processes.add()).await.unwrap_err().error;
            assert_eq!(refused, FabricError::PeerDead { peer: MEMORY });
            assert_eq!(processes.added(), 0);
            let elsewhere = Verb::fetch_and_add(RemoteAddr::new(region.key(), 0), 1);
            there.post(elsewhere.into()).await.unwrap();
        })
        .unwrap();
    assert!(processes.world.controls().lives(COMPUTE), "its process goes on");
}

/// Also what waits for a process that stands still.
#[test]
fn a_fence_ends_what_its_process_has_outstanding_at_the_dead() {
    let processes = Processes::set();
    let controls = processes.world.controls();
    let pair = processes.node.connect(MEMORY).unwrap();
    let fabric = Arc::clone(&processes.fabrics[1]);
    let error = processes.world.run(BOUND, async {
        controls.freeze(MEMORY);
        let posted = pair.post(processes.add());
        controls.at(millis(5), move |_| {
            let _ = fabric.fence(MEMORY).unwrap();
        });
        posted.await.unwrap_err().error
    });
    assert_eq!(error.unwrap(), FabricError::PeerDead { peer: MEMORY });
    assert!(processes.world.now() < millis(6));
    assert_eq!(processes.node.connect(MEMORY).err(), Some(FabricError::PeerDead { peer: MEMORY }));
}

/// What had arrived behind a chain that was being executed when the process stood still waited for
/// ever.
#[test]
fn a_fence_ends_what_has_arrived_behind_another_chain() {
    let mut were_cut_off = 0;
    for freezes_at in (0..200).map(|tenth| Duration::from_nanos(100 * tenth)) {
        let processes = Processes::set();
        let controls = processes.world.controls();
        let pair = processes.node.connect(MEMORY).unwrap();
        let fabric = Arc::clone(&processes.fabrics[1]);
        controls.at(freezes_at, |controls| controls.freeze(MEMORY));
        controls.at(millis(5), move |_| {
            let _ = fabric.fence(MEMORY).unwrap();
        });
        let posted: Vec<_> = (0..16).map(|_| pair.post(processes.add())).collect();
        let failed = processes.world.run(BOUND, async {
            let mut failed = 0;
            for completion in posted {
                failed += u32::from(completion.await.is_err());
            }
            failed
        });
        were_cut_off += u32::from((1..16).contains(&failed.expect("all chains end")));
    }
    assert!(were_cut_off > 5, "{were_cut_off}");
}

#[test]
fn a_task_panics_where_it_is_told_to() {
    let processes = Processes::set();
    let (controls, env) = (processes.world.controls(), processes.world.env_of(COMPUTE));
    let spawn = |name: &'static str| {
        let own = env.clone();
        env.spawn(name, async move {
            for _ in 0..10 {
                own.sleep(millis(1)).await;
            }
        })
    };
    let (spared, struck) = (spawn("spared"), spawn("struck"));
    controls.at(millis(3), |controls| controls.panic_in(COMPUTE, "struck"));
    processes
        .world
        .run(BOUND, async {
            let panicked = struck.join().await;
            assert!(matches!(panicked, Err(TaskError::Panicked { name: "struck", .. })));
            assert!((millis(3)..=millis(4)).contains(&env.now()), "{env:?}");
            spared.join().await.unwrap();
        })
        .unwrap();
    assert_eq!(processes.world.now(), millis(10));
}
