//! Nodes without a control plane: who goes on, and who has to stop.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::tcp::{Admission, TcpConfig, TcpFabric};
use selkie_fabric::{BoxFuture, Fabric};
use selkie_memnode::control::{
    Beat, Change, ControlError, ControlPlane, Identity, LocalPlane, PoolState, Timing, Version,
    Versioned,
};
use selkie_memnode::{Lent, Pool, create};

use crate::common::pages::coded;
use crate::common::way::Way;
use crate::common::{PAGE, engine_config, id, pool_config};

const LEASE: Duration = Duration::from_secs(2);

/// A plane that knows how old beats are, as one between processes does.
struct Aged {
    plane: LocalPlane,
    env: Env,
    beaten: parking_lot::Mutex<std::collections::HashMap<selkie_fabric::PeerId, Duration>>,
}

impl ControlPlane for Aged {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        self.plane.load()
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        self.plane.create(state)
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        self.plane.replace_as(change, expected, state)
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        self.beaten.lock().insert(beat.node, self.env.now());
        self.plane.beat(beat)
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async {
            let (now, beaten) = (self.env.now(), self.beaten.lock().clone());
            let age = |beat: &Beat| now.saturating_sub(beaten[&beat.node]);
            let beats = self.plane.beats().await?;
            Ok(beats.into_iter().map(|(beat, _)| (age(&beat), beat)).map(|(a, b)| (b, a)).collect())
        })
    }

    fn pace(&self) -> Duration {
        self.plane.pace()
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.plane.destroy()
    }
}

/// A pool over TCP: a memory node and two compute nodes, each as if in a process of its own.
struct Cluster {
    ways: [Arc<Way>; 3],
    engines: [Engine; 2],
    pool: Arc<Pool>,
    _memory: Arc<Lent>,
}

async fn cluster(env: &Env) -> Cluster {
    let plane: Arc<dyn ControlPlane> = Arc::new(Aged {
        plane: LocalPlane::default(),
        env: env.clone(),
        beaten: parking_lot::Mutex::default(),
    });
    let identity = Identity { name: "test", id: 7, fabric: "tcp" };
    let timing = Timing { lease: LEASE, heartbeat: LEASE / 10 };
    create(&*plane, identity, &pool_config(1, 8 << 20), timing).await.unwrap();
    let fabric = || -> Arc<dyn Fabric> {
        let config = TcpConfig { admission: Admission::Met, ..TcpConfig::new(7) };
        TcpFabric::new(config, env.clone())
    };
    let ways = [(); 3].map(|()| Way::to(&plane));
    let way = |number: usize| Arc::clone(&ways[number]) as Arc<dyn ControlPlane>;
    let memory = Lent::join(&fabric(), way(0), env, 1, 8 << 20).await.unwrap();
    memory.follow(env);
    let start = async |number: usize| {
        let fabric = fabric();
        let pool = Pool::open(Arc::clone(&fabric), way(number), 1 + number as u64).await.unwrap();
        pool.follow(env);
        let engine = Engine::start(&pool, &fabric, env, id(number - 1), engine_config()).await;
        (engine.unwrap(), pool)
    };
    let ((one, _), (two, pool)) = (start(1).await, start(2).await);
    Cluster { ways, engines: [one, two], pool, _memory: memory }
}

async fn value(engine: &Engine, addr: GAddr) -> Result<u64, EngineError> {
    let page = engine.shared(addr).await?;
    Ok(u64::from_le_bytes(page[..8].try_into().unwrap()))
}

async fn write(engine: &Engine, addr: GAddr, value: u64) {
    let mut page = engine.exclusive(addr).await.unwrap();
    page.bytes_mut(0..8).copy_from_slice(&value.to_le_bytes());
    page.bytes_mut(PAGE - 8..PAGE).copy_from_slice(&value.to_le_bytes());
}

#[test]
fn the_plane_may_be_away_from_all_for_long() {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let cluster = cluster(&env).await;
        let [one, two] = &cluster.engines;
        let addr = one.allocate().await.unwrap().addr();
        cluster.ways.iter().for_each(|way| way.cut(true));
        let until = env.now() + 4 * LEASE;
        let mut round = 0;
        while env.now() < until {
            round += 1;
            write(one, addr, 2 * round).await;
            assert_eq!(value(two, addr).await.unwrap(), 2 * round);
            write(two, addr, 2 * round + 1).await;
            assert_eq!(value(one, addr).await.unwrap(), 2 * round + 1);
            env.sleep(Duration::from_millis(1)).await;
        }
        assert!(round > 100);
        cluster.ways.iter().for_each(|way| way.cut(false));
        env.sleep(2 * LEASE).await;
        for engine in &cluster.engines {
            assert_eq!(value(engine, addr).await.unwrap(), 2 * round + 1);
            engine.close().await.unwrap();
        }
        assert!(cluster.pool.lost().is_empty() && cluster.pool.dead().is_empty());
    });
}

#[test]
fn who_alone_is_cut_off_stops_before_others_write_what_it_caches() {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let cluster = cluster(&env).await;
        let [one, two] = &cluster.engines;
        let addr = two.allocate().await.unwrap().addr();
        write(two, addr, 1).await;
        let written = Arc::new(AtomicU64::new(1));
        let writer = {
            let (two, env, written) = (two.clone(), env.clone(), Arc::clone(&written));
            env.clone().spawn("writer", async move {
                for next in 2.. {
                    if written.load(Ordering::SeqCst) == u64::MAX {
                        return;
                    }
                    write(&two, addr, next).await;
                    if written.fetch_max(next, Ordering::SeqCst) == u64::MAX {
                        return;
                    }
                    env.sleep(Duration::from_millis(1)).await;
                }
            })
        };
        cluster.ways[1].cut(true);
        let (started, mut reads) = (env.now(), 0);
        let error = loop {
            let floor = written.load(Ordering::SeqCst);
            match value(one, addr).await {
                Ok(value) => assert!(value >= floor, "a stale hit: {value} after {floor}"),
                Err(error) => break error,
            }
            reads += 1;
            assert!(env.now() - started < 10 * LEASE, "it does not stop");
            env.sleep(Duration::from_micros(200)).await;
        };
        assert!(matches!(error, EngineError::Expelled), "{error}");
        assert!(reads > 100);
        let gone = selkie_memnode::ComputeIndex::new(0);
        while cluster.pool.is_member(gone) || !cluster.pool.lost().is_empty() {
            assert!(env.now() - started < 20 * LEASE, "nobody recovers");
            env.sleep(Duration::from_millis(1)).await;
        }
        written.store(u64::MAX, Ordering::SeqCst);
        writer.join().await.unwrap();
        assert!(value(two, addr).await.unwrap() > 1, "the other goes on");
        two.close().await.unwrap();
    });
}

#[test]
fn waits_are_not_over_before_a_memory_node_is_missed() {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let beaten = parking_lot::Mutex::default();
        let plane = Aged { plane: LocalPlane::default(), env: env.clone(), beaten };
        let plane: Arc<dyn ControlPlane> = Arc::new(plane);
        let identity = Identity { name: "test", id: 8, fabric: "tcp" };
        let timing = Timing { lease: LEASE, heartbeat: LEASE / 10 };
        create(&*plane, identity, &coded(2, "replicate=2"), timing).await.unwrap();
        let fabric = || -> Arc<dyn Fabric> {
            let config = TcpConfig { admission: Admission::Met, ..TcpConfig::new(8) };
            TcpFabric::new(config, env.clone())
        };
        let mut memory = Vec::new();
        for host in 1..3 {
            let way = Arc::clone(&plane);
            let lent = Lent::join(&fabric(), way, &env, host, 8 << 20).await.unwrap();
            lent.follow(&env);
            memory.push(lent);
        }
        let fabric = fabric();
        let pool = Pool::open(Arc::clone(&fabric), Arc::clone(&plane), 3).await.unwrap();
        let start = async |request_timeout| {
            let config = EngineConfig { request_timeout, ..engine_config() };
            Engine::start(&pool, &fabric, &env, id(0), config).await
        };
        let refused = start(3 * LEASE).await.map(drop).unwrap_err().to_string();
        let says = "request_timeout = 6: must be more than the 6s within which a lost memory node of this pool \
                    is missed";
        assert_eq!(refused, says);
        start(3 * LEASE + Duration::from_millis(1)).await.unwrap().close().await.unwrap();
    });
}
