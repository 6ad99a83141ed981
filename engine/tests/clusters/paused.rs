//! A memory node that stands still for a while, over TCP: either it is back in time, or it is
//! declared dead and its slabs are made anew, if the pool can spare it. No compute node ends, and
//! none is stuck.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::LogTo;
use selkie_engine::{Engine, EngineConfig, GAddr, change_together};
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::tcp::{Admission, TcpConfig, TcpFabric};
use selkie_fabric::{Domain, Endpoint, Fabric, FabricError, FenceScope, PeerId};
use selkie_pool::{Pool, PoolConfig};

use crate::common::engine_config;
use crate::common::pages::coded;
use crate::common::processes::{Processes, value, write};
use crate::proxy::{Proxy, Way};

const LEASE: Duration = Duration::from_secs(2);
const VICTIM: u16 = 2;
/// How long recovery and rebuild may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The ways to memory nodes, which all processes share.
type Proxies = Arc<Mutex<HashMap<PeerId, (SocketAddr, Proxy)>>>;

/// A fabric whose connections to memory nodes go through proxies.
struct Proxied {
    inner: Arc<TcpFabric>,
    proxies: Proxies,
}

impl Fabric for Proxied {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        self.inner.join(id)
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        self.inner.fence(peer)
    }

    /// The card names the proxy in place of the peer.
    fn add_peer(
        &self,
        peer: PeerId,
        card: &str,
        within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        if !peer.is_memory() {
            return self.inner.add_peer(peer, card, within);
        }
        let (addr, key) = card.split_once(' ').unwrap();
        let addr: SocketAddr = addr.parse().unwrap();
        let mut proxies = self.proxies.lock();
        let (at, proxy) = proxies.entry(peer).or_insert_with(|| (addr, Proxy::start(addr)));
        assert_eq!(*at, addr, "a memory node does not move");
        self.inner.add_peer(peer, &format!("{} {key}", proxy.addr), within)
    }

    fn remove_peer(&self, peer: PeerId) -> bool {
        self.inner.remove_peer(peer)
    }
}

/// Adds to all pages in turn until it is told to stop.
async fn add(
    engine: Engine,
    addrs: Arc<Vec<GAddr>>,
    own: usize,
    stop: Arc<AtomicBool>,
    sum: Arc<AtomicU64>,
) {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let addr = addrs[(own * 7 + round) % addrs.len()];
        let mut page = engine.exclusive(addr).await.unwrap();
        let before = u64::from_le_bytes(page[..8].try_into().unwrap());
        page.bytes_mut(0..8).copy_from_slice(&(before + 1).to_le_bytes());
        let lsn = change_together([&mut page]).unwrap_or_default();
        drop(page);
        engine.until_durable(lsn).await.unwrap();
        sum.fetch_add(1, Ordering::Relaxed);
        engine.env().yield_now().await;
    }
}

async fn until(env: &Env, claim: &str, holds: impl Fn() -> bool) {
    let started = env.now();
    while !holds() {
        assert!(env.now() - started < PATIENCE, "never: {claim}");
        env.sleep(LEASE / 100).await;
    }
}

/// Whether the memory node lives, and nothing is left to be done for one that does not.
fn is_settled(pool: &Pool, memory: usize) -> bool {
    !pool.is_memory_dead(memory) || pool.rebuilds().is_empty()
}

/// Has a memory node of the pool stand still for each of these in turn, until it is dead.
fn paused_for(shape: &PoolConfig, log: Option<&LogTo>, pauses: &[Duration]) {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let proxies = Proxies::default();
        let fabric = || -> Arc<dyn Fabric> {
            let config = TcpConfig {
                admission: Admission::ByCard,
                // As pools between processes have it (`src/shared/network.rs`).
                silent_after: LEASE / 2,
                dead_after: LEASE * 4,
                ..TcpConfig::new(7)
            };
            let inner = TcpFabric::new(config, env.clone());
            Arc::new(Proxied { inner, proxies: Arc::clone(&proxies) })
        };
        let log = log.cloned();
        let engine = EngineConfig { request_timeout: PATIENCE, log, ..engine_config() };
        let both = (*shape, &engine);
        let cluster = Processes::start_with(&env, both, LEASE, fabric).await;
        let [one, two] = &cluster.engines;
        let mut addrs = Vec::new();
        for _ in 0..60 {
            let addr = one.allocate().await.unwrap().addr();
            write(one, addr, 0).await;
            addrs.push(addr);
        }
        let addrs = Arc::new(addrs);
        let (stop, sum) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let adders: Vec<_> = [one, two]
            .into_iter()
            .enumerate()
            .map(|(own, engine)| {
                let (addrs, stop, sum) = (Arc::clone(&addrs), Arc::clone(&stop), Arc::clone(&sum));
                env.spawn("adder", add(engine.clone(), addrs, own, stop, sum))
            })
            .collect();
        let pool = &cluster.pools[0];
        for pause in pauses {
            let before = sum.load(Ordering::Relaxed);
            until(&env, "they add", || sum.load(Ordering::Relaxed) > before + 50).await;
            let stands_still = |still: bool| {
                let proxies = proxies.lock();
                proxies[&PeerId::memory(VICTIM)].1.cut(&[Way::ToPeer, Way::FromPeer], still);
                cluster.memory_ways[usize::from(VICTIM)].cut(still);
            };
            stands_still(true);
            env.sleep(*pause).await;
            stands_still(false);
            let before = sum.load(Ordering::Relaxed);
            until(&env, "they add again", || sum.load(Ordering::Relaxed) > before + 50).await;
            until(&env, "it is back, or rebuilt", || is_settled(pool, usize::from(VICTIM))).await;
            let is_dead = pool.is_memory_dead(usize::from(VICTIM));
            println!("after {pause:?}: dead: {is_dead}");
            assert!(!is_dead || !shape.coding.is_plain(), "it has the only copy");
            if is_dead {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for adder in adders {
            adder.join().await.unwrap();
        }
        let mut all = 0;
        for addr in addrs.iter() {
            all += value(two, *addr).await.unwrap();
        }
        assert_eq!(all, sum.load(Ordering::Relaxed), "nothing is lost");
    });
}

/// The links were dead after one lease, and the plane declares later; so in between all
/// compute nodes ended, as they did not reach a memory node that lives.
#[test]
fn no_node_ends_when_a_memory_node_stands_still_for_about_a_lease() {
    let leases = [0.5, 1.02, 1.1, 1.18, 1.25];
    paused_for(&coded(5, "2+1"), None, &leases.map(|leases| LEASE.mul_f64(leases)));
}

#[test]
fn no_node_ends_when_a_memory_node_stands_still_for_long() {
    paused_for(&coded(5, "2+1"), None, &[LEASE * 3]);
}

/// Its memory is the only copy: it was lost with all that was there.
#[test]
fn a_plain_pool_loses_nothing_when_a_memory_node_stands_still_for_longer_than_a_lease() {
    let plain = PoolConfig { log_bytes: 256 << 10, ..coded(3, "plain") };
    for log in [None, Some(LogTo::Memory)] {
        paused_for(&plain, log.as_ref(), &[LEASE.mul_f64(1.2), LEASE * 2]);
    }
}
