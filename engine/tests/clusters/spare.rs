//! All indexes of a pool are kept by nodes that died at once: the next node that comes in recovers
//! from them first, behind the limit of the pool, and finds all that was durable. In virtual time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::log::LogTo;
use selkie_engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::env::Env;
use selkie_fabric::sim::{Controls, World, WorldConfig};
use selkie_fabric::{Fabric, PeerId};
use selkie_pool::control::{ControlPlane, PoolState};
use selkie_pool::{Pool, PoolConfig, PoolError};

use crate::common::pages::{check, coded, fill};
use crate::common::processes::{Carded, Processes};
use crate::common::way::Way;
use crate::common::{PAGE, engine_config};
use crate::log::valve::Valves;

const LEASE: Duration = Duration::from_millis(200);
const LOOK_EVERY: Duration = Duration::from_micros(20);
const PAGES: usize = 40;
/// Compute nodes that the pool is made for, all of which die.
const PLACES: u16 = 2;
const CODINGS: [&str; 2] = ["plain", "2+1"];

struct Test {
    processes: Processes,
    env: Env,
    network: Controls,
    fabric: Arc<dyn Fabric>,
    engine: EngineConfig,
    addrs: Vec<GAddr>,
}

/// A process with a way to the plane of its own.
struct Newcomer {
    way: Arc<Way>,
    pool: Arc<Pool>,
}

impl Test {
    /// Dirty pages of both nodes.
    async fn fill(&mut self) {
        for number in 0..PAGES {
            let engine = &self.processes.engines[number % 2];
            let addr = engine.allocate().await.unwrap().addr();
            self.addrs.push(addr);
            write(engine, addr, 1).await;
        }
    }

    fn kill_all(&self) {
        for node in 0..PLACES {
            self.kill(node);
            self.processes.ways[usize::from(node)].cut(true);
        }
    }

    fn kill(&self, node: u16) {
        self.network.kill(PeerId::compute(node));
    }

    fn plane(&self) -> Arc<dyn ControlPlane> {
        Arc::clone(&self.processes.memory_ways[0]) as Arc<dyn ControlPlane>
    }

    async fn state(&self) -> Arc<PoolState> {
        self.plane().load().await.unwrap().state
    }

    async fn until(&self, is_time: impl Fn(&PoolState) -> bool) {
        let started = self.env.now();
        while !is_time(&*self.state().await) {
            assert!(self.env.now() - started < 20 * LEASE, "not: {:?}", self.state().await);
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    async fn newcomer(&self, host: u64) -> Newcomer {
        let way = Way::to(&self.plane());
        let plane = Arc::clone(&way) as Arc<dyn ControlPlane>;
        let pool = Pool::open(Arc::clone(&self.fabric), plane, host).await.unwrap();
        pool.follow(&self.env);
        Newcomer { way, pool }
    }

    /// Comes in as the commands do.
    async fn comes_in(
        &self,
        newcomer: &Newcomer,
        config: &EngineConfig,
    ) -> Result<Engine, EngineError> {
        let Newcomer { pool, .. } = newcomer;
        let id = Engine::free_index(pool, &self.fabric, &self.env, config).await?;
        assert!(id.index() < usize::from(PLACES), "{id:?}");
        Engine::start(pool, &self.fabric, &self.env, id, config.clone()).await
    }

    /// Finds all pages with this value, and changes them.
    async fn goes_on(&self, engine: &Engine, value: u64) {
        for addr in &self.addrs {
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), value);
            write(engine, *addr, value + 1).await;
        }
        let state = self.state().await;
        assert!(state.lost.is_empty() && state.dead.is_empty(), "{state:?}");
        assert!(state.lost_pages.is_empty() && state.abandoned_pages.is_empty(), "{state:?}");
    }
}

async fn write(engine: &Engine, addr: GAddr, value: u64) {
    let mut page = engine.exclusive(addr).await.unwrap();
    fill(page.bytes_mut(0..PAGE), addr, value);
    let lsn = selkie_engine::change_together([&mut page]).unwrap();
    drop(page);
    engine.until_durable(lsn).await.unwrap();
}

fn in_a_pool(coding: &str, test: impl AsyncFnOnce(Test)) {
    in_a_pool_with(coding, LogTo::Memory, test);
}

fn in_a_pool_with(coding: &str, log: LogTo, test: impl AsyncFnOnce(Test)) {
    in_a_world(29, coding, log, test);
}

fn in_a_world(seed: u64, coding: &str, log: LogTo, test: impl AsyncFnOnce(Test)) {
    let world = World::new(WorldConfig::new(seed));
    let (env, network) = (world.env(), world.controls());
    let inner = world.fabric();
    let fabric = || -> Arc<dyn Fabric> { Arc::new(Carded(Arc::clone(&inner) as _)) };
    let log_bytes = if matches!(log, LogTo::Memory) { 256 << 10 } else { 0 };
    let engine = EngineConfig {
        log: Some(log),
        request_timeout: 40 * LEASE,
        cache_bytes: 1 << 20,
        ..engine_config()
    };
    let main = async {
        let max_compute_nodes = usize::from(PLACES);
        let config = PoolConfig { log_bytes, max_compute_nodes, ..coded(4, coding) };
        let processes = Processes::start_with(&env, (config, &engine), LEASE, fabric).await;
        let (env, fabric, addrs) = (env.clone(), fabric(), Vec::new());
        let mut pool = Test { processes, env, network, fabric, engine, addrs };
        pool.fill().await;
        test(pool).await;
    };
    world.run(400 * LEASE, main).unwrap();
}

/// No node could ever come in: all places were those of nodes that none could recover from.
#[test]
fn a_node_comes_in_when_all_places_are_those_of_nodes_that_died() {
    for coding in CODINGS {
        in_a_pool(coding, async |test| {
            test.kill_all();
            let newcomer = test.newcomer(50).await;
            let engine = test.comes_in(&newcomer, &test.engine).await.unwrap();
            test.goes_on(&engine, 1).await;
            let members: Vec<u16> = test.state().await.compute_nodes.keys().copied().collect();
            assert_eq!(members.len(), 1, "the one that recovered has left: {members:?}");
            // Its places are as before: two may work.
            let other = test.newcomer(51).await;
            let second = test.comes_in(&other, &test.engine).await.unwrap();
            test.goes_on(&second, 2).await;
            let third = test.newcomer(52).await;
            let full = test.comes_in(&third, &test.engine).await.map(drop);
            assert!(is_full(&full, 0, 0), "{full:?}");
            engine.close().await.unwrap();
            second.close().await.unwrap();
        });
    }
}

fn is_full(result: &Result<(), EngineError>, in_recovery: usize, at_rest: usize) -> bool {
    let Err(EngineError::Pool(error)) = result else { return false };
    matches!(**error, PoolError::Full { limit: 2, lost, dead } if (lost, dead) == (in_recovery, at_rest))
}

/// Those that recover die, at any time in what they do, until one lives.
#[test]
fn a_node_comes_in_when_those_that_recovered_have_died_as_well() {
    let died = AtomicU64::new(0);
    for (number, coding) in (0..16).map(|number| (number, CODINGS[number as usize % 2])) {
        in_a_pool(coding, async |test| {
            test.kill_all();
            for before in 0..2 {
                let newcomer = test.newcomer(50 + before).await;
                let its = (Arc::clone(&newcomer.pool), Arc::clone(&test.fabric));
                let (env, config) = (test.env.clone(), test.engine.clone());
                let coming = test.env.spawn("first", async move {
                    let (pool, fabric) = its;
                    let _ended = Engine::free_index(&pool, &fabric, &env, &config).await;
                });
                // Unless the one before had recovered from all when it was killed.
                let is_free = |state: &PoolState, node: u16| {
                    let is_lost = state.lost.contains_key(&node) || state.dead.contains(&node);
                    !is_lost && !state.compute_nodes.contains_key(&node)
                };
                test.until(|state| {
                    let recovers = state.compute_nodes.keys().any(|node| *node >= PLACES);
                    recovers || (0..PLACES).any(|node| is_free(state, node))
                })
                .await;
                test.env.sleep(LEASE * number / 120).await;
                let state = test.state().await;
                let spare = state.compute_nodes.range(PLACES..).next().map(|(spare, _)| *spare);
                spare.into_iter().for_each(|spare| test.kill(spare));
                newcomer.way.cut(true);
                coming.join().await.unwrap();
                if spare.is_none() {
                    break;
                }
                died.fetch_add(1, Ordering::SeqCst);
            }
            let newcomer = test.newcomer(60).await;
            let engine = test.comes_in(&newcomer, &test.engine).await.unwrap();
            test.goes_on(&engine, 1).await;
            engine.close().await.unwrap();
        });
    }
    let died = died.load(Ordering::SeqCst);
    assert!(died >= 12, "{died} died as they recovered");
}

#[test]
fn two_nodes_come_in_at_the_same_time() {
    for coding in CODINGS {
        in_a_pool(coding, async |test| {
            test.kill_all();
            let (one, two) = (test.newcomer(50).await, test.newcomer(51).await);
            let both = [test.comes_in(&one, &test.engine), test.comes_in(&two, &test.engine)];
            let both = futures_util::future::join_all(both).await;
            let engines: Vec<Engine> = both.into_iter().map(Result::unwrap).collect();
            test.goes_on(&engines[0], 1).await;
            test.goes_on(&engines[1], 2).await;
            for engine in &engines {
                engine.close().await.unwrap();
            }
        });
    }
}

/// It could change nothing, and says who can.
#[test]
fn a_node_that_only_reads_does_not_recover() {
    in_a_pool("plain", async |test| {
        test.kill_all();
        test.until(|state| state.lost.len() == 2).await;
        let newcomer = test.newcomer(50).await;
        let reads = EngineConfig { reads_only: true, log: None, ..test.engine.clone() };
        let refused = test.comes_in(&newcomer, &reads).await.map(drop);
        assert!(is_full(&refused, 2, 0), "{refused:?}");
        assert!(refused.unwrap_err().to_string().contains("comes in to write"));
        assert!(test.state().await.incarnations.keys().all(|node| *node < PLACES));
        let writer = test.newcomer(51).await;
        let engine = test.comes_in(&writer, &test.engine).await.unwrap();
        test.goes_on(&engine, 1).await;
        engine.close().await.unwrap();
    });
}

/// What the first that comes in does not reach stays, until one comes in that does.
#[test]
fn pages_that_a_log_outside_of_the_pool_has_are_there_when_a_node_reaches_it() {
    let store = LogTo::Store(Arc::new(Valves((0..2).map(|_| Arc::default()).collect())));
    in_a_pool_with("2+1", store, async |test| {
        test.kill_all();
        let without = EngineConfig { log: None, ..test.engine.clone() };
        let newcomer = test.newcomer(50).await;
        let refused = test.comes_in(&newcomer, &without).await.map(drop);
        assert!(is_full(&refused, 0, 2), "{refused:?}");
        let (pool, env) = (&newcomer.pool, &test.env);
        let free = Engine::free_index(pool, &test.fabric, env, &test.engine).await.unwrap();
        let engine = Engine::start(pool, &test.fabric, env, free, without.clone()).await.unwrap();
        for addr in &test.addrs {
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1);
        }
        engine.close().await.unwrap();
    });
}

/// A page that both nodes change while they die.
#[derive(Default)]
struct Tracked {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

/// Counts pages up, one after the other, until it fails.
async fn count_up(engine: Engine, addrs: Vec<GAddr>, all: Arc<Vec<Tracked>>, first: usize) {
    let mut at = first;
    loop {
        at = (at + 7) % addrs.len();
        let tracked = &all[at];
        let counted = async {
            let mut page = engine.exclusive(addrs[at]).await?;
            let value = check(&page, addrs[at]) + 1;
            tracked.begun.fetch_max(value, Ordering::SeqCst);
            fill(page.bytes_mut(0..PAGE), addrs[at], value);
            let lsn = selkie_engine::change_together([&mut page]).unwrap();
            drop(page);
            engine.until_durable(lsn).await?;
            tracked.acknowledged.fetch_max(value, Ordering::SeqCst);
            Ok::<(), EngineError>(())
        };
        if counted.await.is_err() {
            return;
        }
    }
}

/// All die at any time in what they do, then some that come in to recover, and maybe a memory node.
fn all_die_in(seed: u64) {
    let coding = ["plain", "2+1", "2+1,journal=always"][(seed % 3) as usize];
    println!("seed {seed}, {coding}");
    in_a_world(seed, coding, LogTo::Memory, async |test| {
        let env = test.env.clone();
        let below = |most: u64| env.random_u64() % most;
        let within = |span: Duration| Duration::from_nanos(below(span.as_nanos() as u64));
        let all: Vec<Tracked> = test.addrs.iter().map(|_| Tracked::default()).collect();
        let all = Arc::new(all);
        for (number, engine) in test.processes.engines.iter().enumerate() {
            let work = count_up(engine.clone(), test.addrs.clone(), Arc::clone(&all), 3 * number);
            drop(env.spawn("count", work));
        }
        if coding.ends_with("always") && below(2) == 0 {
            let (victim, network) = (1 + below(3) as u16, test.network.clone());
            let way = Arc::clone(&test.processes.memory_ways[usize::from(victim)]);
            let (after, own) = (within(4 * LEASE), env.clone());
            drop(env.spawn("assassin", async move {
                own.sleep(after).await;
                network.crash(PeerId::memory(victim));
                way.cut(true);
            }));
        }
        env.sleep(within(LEASE)).await;
        test.kill_all();
        for before in 0..below(4) {
            let newcomer = test.newcomer(50 + before).await;
            let its = (Arc::clone(&newcomer.pool), Arc::clone(&test.fabric));
            let (own, config) = (env.clone(), test.engine.clone());
            let coming = env.spawn("first", async move {
                let (pool, fabric) = its;
                // It may be through before it dies.
                if let Ok(id) = Engine::free_index(&pool, &fabric, &own, &config).await {
                    let _ = Engine::start(&pool, &fabric, &own, id, config).await;
                }
            });
            let seen = test.state().await.incarnations.clone();
            test.until(|state| state.incarnations != seen).await;
            env.sleep(within([LEASE / 20, LEASE / 4, LEASE][below(3) as usize])).await;
            let state = test.state().await;
            state.compute_nodes.keys().for_each(|node| test.kill(*node));
            newcomer.way.cut(true);
            coming.join().await.unwrap();
            // Its process ends.
            (0..PLACES).for_each(|node| test.kill(node));
        }
        let newcomer = test.newcomer(60).await;
        let engine = test.comes_in(&newcomer, &test.engine).await.unwrap();
        for (addr, tracked) in test.addrs.iter().zip(all.iter()) {
            let found = check(&engine.shared(*addr).await.unwrap(), *addr);
            let begun = tracked.begun.load(Ordering::SeqCst).max(1);
            let acknowledged = tracked.acknowledged.load(Ordering::SeqCst).max(1);
            assert!((acknowledged..=begun).contains(&found), "{acknowledged} {found} {begun}");
            write(&engine, *addr, found + 1).await;
        }
        engine.close().await.unwrap();
        let state = test.state().await;
        assert!(state.lost.is_empty() && state.dead.is_empty(), "{state:?}");
    });
}

#[test]
fn a_node_comes_in_whenever_all_have_died() {
    (0..18).for_each(all_die_in);
}

/// A node that had just come in, and a memory node, died at the same time: it was taken for one
/// that had held all pages whose words were lost.
#[test]
fn a_node_that_dies_before_its_log_is_open_takes_no_page_along() {
    [62, 110].into_iter().for_each(all_die_in);
}

#[test]
#[ignore = "takes a minute"]
fn a_node_comes_in_whenever_all_have_died_in_many_runs() {
    (18..218).for_each(all_die_in);
}
