//! Engines with logs on one pool, and what the tests do with them.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::log::{LogOwner, LogTo};
use selkie_engine::{Engine, EngineConfig, GAddr};
use selkie_fabric::Fabric;
use selkie_fabric::mem::MemFabric;
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Pool, PoolConfig};

use super::valve::{Valve, Valves};
use crate::common::pages::coded;
use crate::common::{GCL, engine_config, id};

/// Engines, each with a log, on a pool of that coding.
pub(super) struct Logged {
    pub(super) runtime: selkie_fabric::RealRuntime,
    pub(super) engines: Vec<Engine>,
    pub(super) fabric: Arc<MemFabric>,
    pub(super) pool: Arc<Pool>,
    pub(super) _memory: Arc<EmbeddedPool>,
}

pub(super) fn logged(nodes: usize, log: LogTo, coding: &str) -> Logged {
    // Room for some dozens of pages.
    logged_with(nodes, log, coding, 128 << 10)
}

pub(super) fn logged_with(nodes: usize, log: LogTo, coding: &str, log_bytes: u64) -> Logged {
    let config = EngineConfig { log: Some(log), ..engine_config() };
    logged_as(nodes, config, coding, log_bytes)
}

/// As [`logged`], for tests that wait until a wait for the log is over.
pub(super) fn impatient(nodes: usize, log: LogTo) -> Logged {
    impatient_as(nodes, log, engine_config())
}

/// As [`impatient`], with caches from which no page has to leave.
pub(super) fn roomy(nodes: usize, log: LogTo) -> Logged {
    let config = EngineConfig { cache_bytes: 4096 * GCL as u64, ..engine_config() };
    impatient_as(nodes, log, config)
}

fn impatient_as(nodes: usize, log: LogTo, config: EngineConfig) -> Logged {
    let request_timeout = Duration::from_secs(3);
    let config = EngineConfig { log: Some(log), request_timeout, ..config };
    logged_as(nodes, config, "plain", 128 << 10)
}

fn logged_as(nodes: usize, engine: EngineConfig, coding: &str, log_bytes: u64) -> Logged {
    let runtime = selkie_fabric::RealRuntime::new(2).unwrap();
    let mem = MemFabric::new();
    let fabric: Arc<dyn Fabric> = Arc::clone(&mem) as Arc<dyn Fabric>;
    let config = PoolConfig { log_bytes, ..coded(4, coding) };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    let pool = Arc::clone(memory.pool());
    let env = runtime.env();
    let engines = (0..nodes).map(|node| {
        let start = Engine::start(&pool, &fabric, &env, id(node), engine.clone());
        runtime.block_on(start).unwrap()
    });
    let engines = engines.collect();
    Logged { runtime, engines, fabric: mem, pool, _memory: memory }
}

pub(super) fn valves(count: usize, coding: &str) -> (Vec<Arc<Valve>>, Logged) {
    let (valves, log) = valves_alone(count);
    (valves, logged(count, log, coding))
}

/// One for the log of each node.
pub(super) fn valves_alone(count: usize) -> (Vec<Arc<Valve>>, LogTo) {
    let valves: Vec<Arc<Valve>> = (0..count).map(|_| Arc::default()).collect();
    let store = Valves(valves.clone());
    (valves, LogTo::Store(Arc::new(store)))
}

pub(super) async fn write(engine: &Engine, addr: GAddr, value: u64) {
    let mut page = engine.exclusive(addr).await.unwrap();
    page.bytes_mut(16..24).copy_from_slice(&value.to_le_bytes());
}

pub(super) async fn read(engine: &Engine, addr: GAddr) -> u64 {
    let page = engine.shared(addr).await.unwrap();
    u64::from_le_bytes(page[16..24].try_into().unwrap())
}

/// The logs of the first nodes of a pool.
pub(super) fn owners(pool: &Pool, nodes: u16) -> Vec<LogOwner> {
    let (pool, line_bytes) = (pool.state().id, GCL as u32);
    (0..nodes).map(|node| LogOwner { pool, node, incarnation: 1, line_bytes }).collect()
}

/// Waits until what died is recovered from.
pub(super) async fn recovered(engine: &Engine, pool: &Pool) {
    let env = engine.env();
    let started = env.now();
    while !pool.lost().is_empty() || pool.members().len() > 1 {
        assert!(env.now() - started < Duration::from_secs(30), "{:?}", pool.lost());
        env.sleep(Duration::from_millis(1)).await;
    }
}

/// The value in a line.
pub(super) fn value(line: &[u8]) -> u64 {
    u64::from_le_bytes(line[24..32].try_into().unwrap())
}
