//! All compute nodes die while the pool makes headers anew, moves slabs or recovers. The next node
//! comes in, ends what they had begun, and finds all that was durable. In virtual time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::log::LogTo;
use selkie_engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::env::Env;
use selkie_fabric::sim::{Controls, World, WorldConfig};
use selkie_fabric::{Fabric, PeerId};
use selkie_pool::control::{ControlPlane, PoolState};
use selkie_pool::{Pool, PoolConfig};

use crate::common::pages::{check, coded, fill};
use crate::common::processes::{Carded, Processes};
use crate::common::way::Way;
use crate::common::{PAGE, engine_config, id};
use crate::log::valve::Valves;

const LEASE: Duration = Duration::from_millis(200);
/// Interval at which a test looks whether the time has come, shorter than a step of a node.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// The memory node that dies, or leaves.
const VICTIM: u16 = 1;
const PAGES: usize = 60;

/// What begins the work that they leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Begin {
    /// A memory node dies.
    Loss,
    /// A memory node is to leave.
    Drain,
    /// One of the compute nodes dies.
    Death,
}

/// A pool of two compute nodes with logs in memory.
struct Test {
    processes: Processes,
    env: Env,
    network: Controls,
    fabric: Arc<dyn Fabric>,
    engine: EngineConfig,
    addrs: Vec<GAddr>,
}

impl Test {
    /// Pages of both nodes, of which each has dirty ones of its own, and shared ones.
    async fn fill(&mut self) {
        let [one, two] = &self.processes.engines;
        for number in 0..PAGES {
            let engine = [one, two][number % 2];
            let addr = engine.allocate().await.unwrap().addr();
            self.addrs.push(addr);
            self.write(engine, addr, 1).await;
            if number % 3 == 0 {
                assert_eq!(check(&two.shared(addr).await.unwrap(), addr), 1);
            }
        }
    }

    async fn write(&self, engine: &Engine, addr: GAddr, value: u64) {
        let mut page = engine.exclusive(addr).await.unwrap();
        fill(page.bytes_mut(0..PAGE), addr, value);
        let lsn = selkie_engine::change_together([&mut page]).unwrap();
        drop(page);
        engine.until_durable(lsn).await.unwrap();
    }

    async fn begin(&self, begin: Begin) {
        match begin {
            Begin::Loss => {
                self.network.crash(PeerId::memory(VICTIM));
                self.processes.memory_ways[usize::from(VICTIM)].cut(true);
            }
            Begin::Drain => drop(self.processes.pools[0].drain(VICTIM).await.unwrap()),
            Begin::Death => self.kill(1),
        }
    }

    fn kill(&self, node: usize) {
        self.network.kill(PeerId::compute(node as u16));
        self.processes.ways[node].cut(true);
    }

    async fn until(&self, is_time: impl Fn(&PoolState) -> bool) {
        let started = self.env.now();
        loop {
            let state = self.processes.memory_ways[0].load().await.unwrap().state;
            if is_time(&state) {
                return;
            }
            assert!(self.env.now() - started < 20 * LEASE, "not: {:?}", state.rebuilds);
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    /// The way to the plane of a node that comes in.
    fn new_way(&self) -> Arc<Way> {
        Way::to(&(Arc::clone(&self.processes.memory_ways[0]) as Arc<dyn ControlPlane>))
    }

    /// A node that comes in when all are dead.
    async fn newcomer(&self, index: usize) -> (Engine, Arc<Pool>) {
        let started = (&self.env, &self.fabric, self.engine.clone());
        start(started, self.new_way(), index).await.unwrap()
    }

    /// The newcomer finds all pages as they were, changes them, and leaves nothing behind.
    async fn goes_on(&self, engine: &Engine, pool: &Pool) {
        for addr in &self.addrs {
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1);
            self.write(engine, *addr, 2).await;
        }
        let started = self.env.now();
        let is_over = |state: &PoolState| {
            let tasks = state.regeneration.is_none() && state.migration.is_none();
            state.rebuilds.is_empty() && state.lost.is_empty() && tasks
        };
        while !is_over(&pool.state()) {
            assert!(self.env.now() - started < 50 * LEASE, "{:?}", pool.state());
            self.env.sleep(LOOK_EVERY).await;
        }
        assert!(pool.dead().is_empty() && pool.lost_pages().is_empty());
        let another = engine.allocate().await.unwrap().addr();
        self.write(engine, another, 2).await;
        engine.close().await.unwrap();
    }
}

async fn start(
    (env, fabric, engine): (&Env, &Arc<dyn Fabric>, EngineConfig),
    way: Arc<Way>,
    index: usize,
) -> Result<(Engine, Arc<Pool>), EngineError> {
    let pool = Pool::open(Arc::clone(fabric), way, 50 + index as u64).await?;
    pool.follow(env);
    let engine = Engine::start(&pool, fabric, env, id(index), engine).await?;
    Ok((engine, pool))
}

fn in_a_pool(test: impl AsyncFnOnce(Test)) {
    in_a_pool_with(LogTo::Memory, test);
}

fn in_a_pool_with(log: LogTo, test: impl AsyncFnOnce(Test)) {
    let world = World::new(WorldConfig::new(23));
    let (env, network) = (world.env(), world.controls());
    let inner = world.fabric();
    let fabric = || -> Arc<dyn Fabric> { Arc::new(Carded(Arc::clone(&inner) as _)) };
    let engine = EngineConfig {
        log: Some(log),
        request_timeout: 40 * LEASE,
        cache_bytes: 1 << 20,
        ..engine_config()
    };
    let main = async {
        let config = PoolConfig { log_bytes: 256 << 10, ..coded(4, "2+1,journal=always") };
        let processes = Processes::start_with(&env, (config, &engine), LEASE, fabric).await;
        let (env, fabric, addrs) = (env.clone(), fabric(), Vec::new());
        let mut pool = Test { processes, env, network, fabric, engine, addrs };
        pool.fill().await;
        test(pool).await;
    };
    world.run(400 * LEASE, main).unwrap();
}

/// All compute nodes die at the first time at which `is_time` says so.
#[track_caller]
fn all_die(begin: Begin, is_time: impl Fn(&PoolState) -> bool) {
    in_a_pool(async |pool| {
        // One of them is slower than the other.
        pool.processes.ways[1].delay(true);
        pool.begin(begin).await;
        pool.until(is_time).await;
        (0..2).for_each(|node| pool.kill(node));
        let (engine, view) = pool.newcomer(2).await;
        pool.goes_on(&engine, &view).await;
    });
}

/// Whether homes have moved, and so many nodes have entered their copies.
fn entered(count: usize) -> impl Fn(&PoolState) -> bool {
    move |state| state.rebuilds.first().is_some_and(|own| own.moved && own.entered.len() == count)
}

/// No node could come in any more: those that were to enter their copies had died.
#[test]
fn a_node_comes_in_when_all_have_died_after_headers_moved() {
    all_die(Begin::Loss, entered(0));
    all_die(Begin::Drain, entered(0));
}

/// What comes in may use pages before its first step for the rebuild.
#[test]
fn a_node_that_comes_in_takes_no_line_whose_word_is_being_made() {
    let logs = Valves((0..4).map(|_| Arc::default()).collect());
    // Those in memory are opened when the rebuild is over.
    in_a_pool_with(LogTo::Store(Arc::new(logs)), async |mut pool| {
        pool.begin(Begin::Loss).await;
        pool.until(entered(0)).await;
        (0..2).for_each(|node| pool.kill(node));
        pool.engine.tick = LEASE / 4;
        let (engine, view) = pool.newcomer(2).await;
        assert!(view.rebuilds()[0].quiet.len() == 2, "it has taken no step");
        pool.goes_on(&engine, &view).await;
    });
}

#[test]
fn a_node_comes_in_when_all_have_died_after_some_entered_their_copies() {
    for (begin, count) in [(Begin::Loss, 1), (Begin::Loss, 2), (Begin::Drain, 2)] {
        println!("{begin:?}, {count} have entered");
        all_die(begin, entered(count));
    }
}

#[test]
fn a_node_comes_in_when_all_have_died_before_headers_moved() {
    for (begin, quiet) in [(Begin::Loss, 0), (Begin::Loss, 1), (Begin::Drain, 1), (Begin::Loss, 2)]
    {
        println!("{begin:?}, {quiet} are quiet");
        all_die(begin, move |state| {
            state.rebuilds.first().is_some_and(|own| !own.moved && own.quiet.len() == quiet)
        });
    }
}

/// The one that comes in dies as well, at the same stage.
#[test]
fn a_node_comes_in_when_the_one_before_it_has_died_as_all_others() {
    in_a_pool(async |pool| {
        pool.begin(Begin::Loss).await;
        pool.until(entered(0)).await;
        (0..2).for_each(|node| pool.kill(node));
        let way = pool.new_way();
        let (env, fabric, engine) = (pool.env.clone(), pool.fabric.clone(), pool.engine.clone());
        let its = Arc::clone(&way);
        let first = pool.env.spawn("first", async move {
            let _ended = start((&env, &fabric, engine), its, 2).await;
        });
        pool.until(|state| state.compute_nodes.contains_key(&2)).await;
        pool.network.kill(PeerId::compute(2));
        way.cut(true);
        pool.until(|state| entered(0)(state) && state.lost.contains_key(&2)).await;
        let (engine, view) = pool.newcomer(3).await;
        pool.goes_on(&engine, &view).await;
        first.join().await.unwrap();
    });
}

/// All die at any time after a memory node has died, or was to leave, or one of them has died.
#[test]
fn a_node_comes_in_whenever_all_have_died() {
    for begin in [Begin::Loss, Begin::Drain, Begin::Death] {
        for step in 0..12_u32 {
            in_a_pool(async |pool| {
                pool.begin(begin).await;
                // Closer together at first.
                pool.env.sleep(LEASE * step * step / 24).await;
                (0..2).for_each(|node| pool.kill(node));
                let (engine, view) = pool.newcomer(2).await;
                pool.goes_on(&engine, &view).await;
            });
        }
    }
}
