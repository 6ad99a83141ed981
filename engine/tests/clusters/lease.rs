//! Nodes without a control plane: which ones serve, and which must stop.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::{Engine, EngineConfig, EngineError};
use selkie_fabric::Fabric;
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::tcp::{Admission, TcpConfig, TcpFabric};
use selkie_memnode::MemoryServer;
use selkie_pool::control::{Identity, Timing};
use selkie_pool::{ComputeIndex, Pool, create};

use crate::common::pages::coded;
use crate::common::processes::{Aged, Processes, value, write};
use crate::common::{engine_config, id};

const LEASE: Duration = Duration::from_secs(2);

/// Over TCP, where time is real.
async fn processes(env: &Env) -> Processes {
    let fabric = || -> Arc<dyn Fabric> {
        let config = TcpConfig { admission: Admission::ByCard, ..TcpConfig::new(7) };
        TcpFabric::new(config, env.clone())
    };
    Processes::start(env, 1, LEASE, fabric).await
}

#[test]
fn the_plane_may_be_away_from_all_for_long() {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let cluster = processes(&env).await;
        let [one, two] = &cluster.engines;
        let addr = one.allocate().await.unwrap().addr();
        cluster.all_ways().for_each(|way| way.cut(true));
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
        cluster.all_ways().for_each(|way| way.cut(false));
        env.sleep(2 * LEASE).await;
        for engine in &cluster.engines {
            assert_eq!(value(engine, addr).await.unwrap(), 2 * round + 1);
        }
        cluster.close().await;
    });
}

#[test]
fn a_node_that_alone_is_cut_off_stops_before_others_write_what_it_caches() {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let cluster = processes(&env).await;
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
        cluster.ways[0].cut(true);
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
        assert!(matches!(error, EngineError::Expelled { .. }), "{error}");
        assert!(reads > 100);
        let (gone, pool) = (ComputeIndex::new(0), &cluster.pools[1]);
        while pool.is_member(gone) || !pool.lost().is_empty() {
            assert!(env.now() - started < 20 * LEASE, "no node recovers");
            env.sleep(Duration::from_millis(1)).await;
        }
        written.store(u64::MAX, Ordering::SeqCst);
        writer.join().await.unwrap();
        assert!(value(two, addr).await.unwrap() > 1, "the other serves");
        two.close().await.unwrap();
    });
}

#[test]
fn waits_are_not_over_before_a_memory_node_is_missed() {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let plane = Aged::empty(&env);
        let identity = Identity { name: "test", id: 8, fabric: "tcp" };
        let timing = Timing { lease: LEASE, heartbeat: LEASE / 10 };
        create(&*plane, identity, &coded(2, "replicate=2"), timing).await.unwrap();
        let fabric = || -> Arc<dyn Fabric> {
            let config = TcpConfig { admission: Admission::ByCard, ..TcpConfig::new(8) };
            TcpFabric::new(config, env.clone())
        };
        let mut memory = Vec::new();
        for host in 1..3 {
            let way = Arc::clone(&plane);
            let lent = MemoryServer::join(&fabric(), way, &env, host, 8 << 20).await.unwrap();
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
