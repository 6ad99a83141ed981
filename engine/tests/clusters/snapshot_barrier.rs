//! Moments that all logs mark: what is changed behind a mark stays where it is until all have
//! marked, and backups are of one.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::backup::Backup;
use selkie_engine::log::{LogObjects, LogTo};
use selkie_engine::{Engine, EngineConfig, GAddr};
use selkie_fabric::env::{Env, TaskHandle};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::sim::{World, WorldConfig};
use selkie_fabric::{Fabric, RealRuntime};
use selkie_memnode::MemoryServer;
use selkie_pool::control::{ControlPlane, Identity, LocalPlane, Timing};
use selkie_pool::{ComputeIndex, Pool, PoolConfig, create};

use crate::common::processes::{Aged, value, write};
use crate::common::way::Way;
use crate::common::{engine_config, get, id, page, pool_config};

const LEASE: Duration = Duration::from_secs(2);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Nodes with logs, each as if in a process of its own.
struct Apart {
    env: Env,
    ways: Vec<Arc<Way>>,
    pools: Vec<Arc<Pool>>,
    engines: Vec<Engine>,
    _memory: Arc<MemoryServer>,
}

impl Apart {
    async fn start(
        env: &Env,
        fabric: &Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        nodes: usize,
    ) -> Self {
        let identity = Identity { name: "test", id: 7, fabric: "mem" };
        let timing = Timing { lease: LEASE, heartbeat: LEASE / 10 };
        let config = PoolConfig { log_bytes: 1 << 20, ..pool_config(1, 64 << 20) };
        create(&*plane, identity, &config, timing).await.unwrap();
        let memory =
            MemoryServer::join(fabric, Arc::clone(&plane), env, 100, 64 << 20).await.unwrap();
        memory.follow(env);
        let mut own = Self {
            env: env.clone(),
            ways: vec![],
            pools: vec![],
            engines: vec![],
            _memory: memory,
        };
        for number in 0..nodes {
            let way = Way::to(&plane);
            let plane = Arc::clone(&way) as Arc<dyn ControlPlane>;
            let pool = Pool::open(Arc::clone(fabric), plane, 1 + number as u64).await.unwrap();
            pool.follow(env);
            let config = EngineConfig { log: Some(LogTo::Memory), ..engine_config() };
            let engine = Engine::start(&pool, fabric, env, id(number), config).await.unwrap();
            own.ways.push(way);
            own.pools.push(pool);
            own.engines.push(engine);
        }
        own
    }

    async fn close(&self) {
        for engine in &self.engines {
            engine.close().await.unwrap();
        }
    }
}

/// A page that one node reads once, and has read when.
struct Reading {
    task: TaskHandle,
    read_at: Arc<AtomicU64>,
}

impl Reading {
    fn of(engine: &Engine, addr: GAddr, wanted: u64) -> Self {
        let (engine, env, read_at) = (engine.clone(), engine.env().clone(), Arc::default());
        let own: Arc<AtomicU64> = Arc::clone(&read_at);
        let task = env.clone().spawn("read", async move {
            assert_eq!(value(&engine, addr).await.unwrap(), wanted);
            own.store(env.now().as_nanos() as u64, Ordering::SeqCst);
        });
        Self { task, read_at }
    }

    fn is_over(&self) -> bool {
        self.read_at.load(Ordering::SeqCst) > 0
    }

    async fn at(self) -> Duration {
        self.task.join().await.unwrap();
        Duration::from_nanos(self.read_at.load(Ordering::SeqCst))
    }
}

#[test]
fn what_is_changed_after_a_moment_stays_until_it_is_over() {
    let world = World::new(WorldConfig::new(3));
    let (env, fabric) = (world.env(), world.fabric());
    let main = async {
        let fabric = fabric as Arc<dyn Fabric>;
        let apart = Apart::start(&env, &fabric, Aged::empty(&env), 3).await;
        let [one, two, _] = &apart.engines[..] else { panic!("three nodes") };
        let addrs = [page(two).await, page(two).await, page(two).await, page(two).await];
        for addr in addrs {
            write(two, addr, 1).await;
        }
        let by = ComputeIndex::new(2);
        // The first node does not hear of it.
        apart.ways[0].cut(true);
        let (first, _) = apart.pools[2].begin_barrier(by).await.unwrap().unwrap();
        assert_eq!(first, 1);
        assert!(apart.pools[1].begin_barrier(ComputeIndex::new(1)).await.unwrap().is_none());
        env.sleep(ms(100)).await;
        write(two, addrs[0], 2).await;
        let lsn = two.shared(addrs[0]).await.unwrap().lsn();
        two.until_durable(lsn).await.unwrap();
        let reading = Reading::of(one, addrs[0], 2);
        assert_eq!(value(one, addrs[1]).await.unwrap(), 1, "what was before may go");
        env.sleep(ms(200)).await;
        assert!(!reading.is_over(), "the first node has not marked");
        assert_eq!(value(two, addrs[0]).await.unwrap(), 2, "the node that changed it goes on");
        write(two, addrs[0], 3).await;
        apart.ways[0].cut(false);
        env.sleep(ms(50)).await;
        assert!(!reading.is_over(), "no node has said that all have marked");
        write(two, addrs[0], 2).await;
        let ended = env.now();
        assert!(apart.pools[2].end_barrier(first).await.unwrap());
        assert!(!apart.pools[2].end_barrier(first).await.unwrap(), "it is over");
        assert!(reading.at().await - ended < ms(100));

        // No node ends it.
        let (second, _) = apart.pools[2].begin_barrier(by).await.unwrap().unwrap();
        let begun = env.now();
        env.sleep(ms(100)).await;
        write(two, addrs[2], 2).await;
        let reading = Reading::of(one, addrs[2], 2);
        let waited = reading.at().await - begun;
        assert!((LEASE / 4..LEASE / 4 + ms(100)).contains(&waited), "{waited:?}");
        // The node that wanted it leaves.
        let (third, _) = apart.pools[2].begin_barrier(by).await.unwrap().unwrap();
        assert_eq!((second, third), (2, 3));
        env.sleep(ms(100)).await;
        write(two, addrs[3], 2).await;
        let reading = Reading::of(one, addrs[3], 2);
        env.sleep(ms(100)).await;
        assert!(!reading.is_over());
        let left = env.now();
        apart.engines[2].close().await.unwrap();
        assert!(reading.at().await - left < ms(500));
        assert_eq!(apart.pools[0].state().barrier, None);
        apart.close().await;
    };
    world.run(60 * LEASE, main).unwrap();
}

/// Each node writes to its own page what it has read in that of the one before it; the first
/// counts.
fn relay(apart: &Apart, addrs: &[GAddr], stop: &Arc<AtomicBool>) -> Vec<TaskHandle> {
    let nodes = apart.engines.iter().zip(addrs).enumerate();
    let spawned = nodes.map(|(number, (engine, addr))| {
        let (engine, addr, stop) = (engine.clone(), *addr, Arc::clone(stop));
        let before = number.checked_sub(1).map(|before| addrs[before]);
        apart.env.spawn("relay", async move {
            while !stop.load(Ordering::SeqCst) {
                let next = match before {
                    Some(before) => value(&engine, before).await.unwrap(),
                    None => value(&engine, addr).await.unwrap() + 1,
                };
                write(&engine, addr, next).await;
                engine.env().sleep(Duration::from_micros(50)).await;
            }
        })
    });
    spawned.collect()
}

/// Nodes hear of what is new later than others, now one and now another.
fn keep_late(apart: &Apart, stop: &Arc<AtomicBool>) -> TaskHandle {
    let (env, ways, stop) = (apart.env.clone(), apart.ways.clone(), Arc::clone(stop));
    apart.env.spawn("late", async move {
        let relays = &ways[..ways.len() - 1];
        for way in relays.iter().cycle() {
            if stop.load(Ordering::SeqCst) {
                return;
            }
            way.cut(true);
            env.sleep(ms(60)).await;
            way.cut(false);
            env.sleep(ms(20)).await;
        }
    })
}

#[test]
fn backups_have_what_others_have_read() {
    const RELAYS: usize = 4;
    let place = tempfile::tempdir().unwrap();
    let runtime = RealRuntime::new(2).unwrap();
    let (env, fabric) = (runtime.env(), MemFabric::new() as Arc<dyn Fabric>);
    runtime.block_on(async {
        let plane: Arc<dyn ControlPlane> = Arc::new(LocalPlane::default());
        let apart = Apart::start(&env, &fabric, plane, RELAYS + 1).await;
        let mut addrs = Vec::new();
        for engine in &apart.engines[..RELAYS] {
            addrs.push(page(engine).await);
        }
        let stop = Arc::<AtomicBool>::default();
        let mut tasks = relay(&apart, &addrs, &stop);
        tasks.push(keep_late(&apart, &stop));
        let mut last = 0;
        for number in 0..10 {
            let to = place.path().join(number.to_string());
            let to = LogObjects::at(to.to_str().unwrap(), 0).unwrap();
            apart.engines[RELAYS].backup(&to, &|_, _| ()).await.unwrap();
            let backup = Backup::open(&to).await.unwrap();
            let value = |addr| {
                let line = backup.lines().get(addr)?;
                Some(u64::from_le_bytes(line[8..16].try_into().unwrap()))
            };
            let values: Vec<u64> = addrs.iter().map(|addr| value(addr).unwrap_or(0)).collect();
            assert!(values.is_sorted_by(|before, after| before >= after), "{values:?}");
            assert!(values[0] > last, "{values:?}: {last} was known before");
            last = now(&apart.engines[0], addrs[0]).await;
        }
        stop.store(true, Ordering::SeqCst);
        for task in tasks {
            task.join().await.unwrap();
        }
        apart.close().await;
    });
}

#[test]
fn a_moment_that_is_not_marked_in_time_is_followed_by_another() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| LogObjects::at(place.path().join(name).to_str().unwrap(), 0).unwrap();
    let runtime = RealRuntime::new(2).unwrap();
    let (env, fabric) = (runtime.env(), MemFabric::new() as Arc<dyn Fabric>);
    runtime.block_on(async {
        let plane: Arc<dyn ControlPlane> = Arc::new(LocalPlane::default());
        let apart = Apart::start(&env, &fabric, plane, 3).await;
        let addrs = [page(&apart.engines[0]).await, page(&apart.engines[1]).await];
        let stop = Arc::<AtomicBool>::default();
        let relays = relay(&apart, &addrs, &stop);
        let (maker, pool) = (&apart.engines[2], &apart.pools[2]);
        // On a busy machine a backup may announce its first barrier only after the cut.
        let mut tries = 0;
        let to = loop {
            let begun = pool.state().barriers_begun;
            apart.ways[1].cut(true);
            let way = Arc::clone(&apart.ways[1]);
            let heals = env.spawn("heals", {
                let env = env.clone();
                async move {
                    env.sleep(LEASE / 2).await;
                    way.cut(false);
                }
            });
            tries += 1;
            let to = at(&format!("late-{tries}"));
            maker.backup(&to, &|_, _| ()).await.unwrap();
            heals.join().await.unwrap();
            assert!(pool.state().barrier.is_none(), "{:?}", pool.state());
            if pool.state().barriers_begun > begun + 1 {
                break to;
            }
            assert!(tries < 10, "no barrier was late: {:?}", pool.state());
        };
        let backup = Backup::open(&to).await.unwrap();
        let value = |addr| u64::from_le_bytes(backup.lines()[addr][8..16].try_into().unwrap());
        let values = [value(&addrs[0]), value(&addrs[1])];
        assert!(values[0] >= values[1] && values[1] > 0, "{values:?}");

        // The node that wants it goes away.
        apart.ways[1].cut(true);
        let to = at("dropped");
        let made = maker.backup(&to, &|_, _| ());
        let is_announced = async {
            while apart.pools[0].state().barrier.is_none() {
                env.sleep(ms(1)).await;
            }
        };
        let ended = futures_util::future::select(Box::pin(made), Box::pin(is_announced)).await;
        assert!(matches!(ended, futures_util::future::Either::Right(_)), "it was announced");
        drop(ended);
        apart.ways[1].cut(false);
        let started = env.now();
        while apart.pools[0].state().barrier.is_some() {
            assert!(env.now() - started < Duration::from_secs(10), "it is over");
            env.sleep(ms(1)).await;
        }
        stop.store(true, Ordering::SeqCst);
        for relay in relays {
            relay.join().await.unwrap();
        }
        apart.close().await;
    });
}

/// What is in a page, which is durable then.
async fn now(engine: &Engine, addr: GAddr) -> u64 {
    let page = engine.shared(addr).await.unwrap();
    let (now, lsn) = (get(&page), page.lsn());
    drop(page);
    engine.until_durable(lsn).await.unwrap();
    now
}
