//! Links of one node that end though their peer lives, and stay so: the node does not go on as if
//! what it sent had arrived.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::LogTo;
use selkie_engine::{EngineConfig, EngineError};
use selkie_fabric::env::Env;
use selkie_fabric::sim::{World, WorldConfig};
use selkie_fabric::{
    Chain, Completion, Endpoint, Fabric, FabricError, FenceScope, LocalRegion, PeerId, QueuePair,
};
use selkie_pool::{Coding, ComputeIndex, PoolConfig};

use super::cluster::{read, write};
use super::valve::{Valve, Valves};
use crate::common::processes::{Carded, Processes};
use crate::common::{engine_config, page, pool_config};

const LEASE: Duration = Duration::from_millis(200);
/// Longer than a node takes to give its membership up, and the others to recover from it.
const LONG: Duration = LEASE.saturating_mul(30);
const PAGES: u64 = 40;

/// The links that are broken for good, by both ends.
type Broken = Arc<Mutex<HashSet<(PeerId, PeerId)>>>;

/// A fabric of which single links break.
struct Breaks {
    inner: Arc<dyn Fabric>,
    broken: Broken,
}

struct BreaksEnd {
    inner: Arc<dyn Endpoint>,
    broken: Broken,
}

struct BreaksPair {
    inner: Arc<dyn QueuePair>,
    from: PeerId,
    broken: Broken,
}

impl Fabric for Breaks {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let inner = self.inner.join(id)?;
        Ok(Arc::new(BreaksEnd { inner, broken: Arc::clone(&self.broken) }))
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        self.inner.fence(peer)
    }
}

impl Endpoint for BreaksEnd {
    fn id(&self) -> PeerId {
        self.inner.id()
    }

    fn access_card(&self) -> Option<String> {
        self.inner.access_card()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.inner.register(bytes)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let (inner, broken) = (self.inner.connect(peer)?, Arc::clone(&self.broken));
        Ok(Arc::new(BreaksPair { inner, from: self.id(), broken }))
    }
}

impl QueuePair for BreaksPair {
    fn peer(&self) -> PeerId {
        self.inner.peer()
    }

    fn post(&self, chain: Chain) -> Completion {
        if self.broken.lock().contains(&(self.from, self.peer())) {
            return Completion::failed(chain, 0, FabricError::PeerDead { peer: self.peer() });
        }
        self.inner.post(chain)
    }
}

/// Two compute nodes with logs on a plain pool, in virtual time.
fn with_breaks(test: impl AsyncFnOnce(&Processes, &Env, &Broken)) {
    let world = World::new(WorldConfig::new(23));
    let (env, network, broken) = (world.env(), world.fabric(), Broken::default());
    let fabric = || -> Arc<dyn Fabric> {
        let inner = Arc::new(Carded(Arc::clone(&network) as Arc<dyn Fabric>));
        Arc::new(Breaks { inner, broken: Arc::clone(&broken) })
    };
    let valves = [(); 2].map(|()| Arc::new(Valve::default()));
    for valve in &valves {
        valve.forgets.store(true, Ordering::SeqCst);
        // Some dozens of pages.
        valve.capacity.store(64 << 10, Ordering::SeqCst);
    }
    let log = Some(LogTo::Store(Arc::new(Valves(valves.to_vec()))));
    let engine = EngineConfig { log, request_timeout: 2 * LONG, ..engine_config() };
    let main = async {
        let pool = PoolConfig { coding: Coding::PLAIN, ..pool_config(3, 8 << 20) };
        let processes = Processes::start_with(&env, (pool, &engine), LEASE, fabric).await;
        test(&processes, &env, &broken).await;
    };
    world.run(1_000 * LEASE, main).unwrap();
}

/// Waits until the pool has recovered from the compute node.
async fn recovered_from(processes: &Processes, env: &Env, seen_by: usize, node: u16) {
    let (pool, started) = (&processes.pools[seen_by], env.now());
    while pool.is_member(ComputeIndex::new(node)) || !pool.lost().is_empty() {
        assert!(env.now() - started < LONG, "no recovery from {node}: {:?}", pool.lost());
        env.sleep(LEASE / 20).await;
    }
}

/// The page was dropped, the log cut short at it, and the old page was served later.
#[test]
fn a_dirty_page_that_does_not_get_home_is_in_the_log_when_its_node_ends() {
    with_breaks(async |processes, env, broken| {
        let [one, two] = &processes.engines;
        let mut addrs = Vec::new();
        for value in 0..PAGES {
            let addr = page(two).await;
            write(two, addr, 1_000 + value).await;
            addrs.push(addr);
        }
        let lsn = two.shared(addrs[PAGES as usize - 1]).await.unwrap().lsn();
        two.until_durable(lsn).await.unwrap();
        broken.lock().insert((PeerId::compute(1), PeerId::memory(1)));
        // Until the pages have left the cache, and the log has been cut short many times.
        let started = env.now();
        let mut ended = None;
        while ended.is_none() && env.now() - started < LONG {
            match two.allocate().await {
                Ok(mut fresh) => {
                    fresh.bytes_mut(16..24).fill(1);
                    let lsn = fresh.lsn();
                    drop(fresh);
                    ended = two.until_durable(lsn).await.err();
                }
                // Its lines are at the memory node that it does not reach.
                Err(EngineError::Fabric(_)) => {}
                Err(error) => ended = Some(error),
            }
            env.sleep(LEASE / 100).await;
        }
        if ended.is_none() {
            processes.pools[0].declare_dead(ComputeIndex::new(1)).await.unwrap();
        }
        recovered_from(processes, env, 0, 1).await;
        for (value, addr) in (0..).zip(&addrs) {
            assert_eq!(read(one, *addr).await, 1_000 + value, "page {value}");
        }
        let lives = PeerId::memory(1);
        let reason = matches!(&ended, Some(EngineError::Unreachable { peer }) if *peer == lives);
        assert!(reason, "{ended:?}");
        one.close().await.unwrap();
    });
}

/// A node that leaves before it is known whether the memory node lives does not leave its changes
/// behind.
#[test]
fn a_node_does_not_leave_with_a_page_that_did_not_get_home() {
    with_breaks(async |processes, env, broken| {
        let [one, two] = &processes.engines;
        let mut addrs = Vec::new();
        for value in 0..PAGES {
            let addr = page(two).await;
            write(two, addr, 1_000 + value).await;
            addrs.push(addr);
        }
        broken.lock().insert((PeerId::compute(1), PeerId::memory(1)));
        let closed = two.close().await;
        assert!(matches!(closed, Err(EngineError::Unreachable { .. })), "{closed:?}");
        recovered_from(processes, env, 0, 1).await;
        for (value, addr) in (0..).zip(&addrs) {
            assert_eq!(read(one, *addr).await, 1_000 + value, "page {value}");
        }
        one.close().await.unwrap();
    });
}

/// Breaks links between two compute nodes that both need a page of the other one. `stays` is the
/// one that is to stay.
fn one_of_two_ends(links: &[(u16, u16)], stays: usize) {
    with_breaks(async |processes, env, broken| {
        // Each has a page that the other one wants.
        let mut addrs = Vec::new();
        for engine in &processes.engines {
            let addr = page(engine).await;
            addrs.push(addr);
            for value in 1..6 {
                write(&processes.engines[value as usize % 2], addr, value).await;
            }
            write(engine, addr, 6).await;
        }
        for (from, to) in links {
            broken.lock().insert((PeerId::compute(*from), PeerId::compute(*to)));
        }
        let started = env.now();
        let tries = [0, 1].map(|number: usize| {
            let (engine, env) = (processes.engines[number].clone(), env.clone());
            let addr = addrs[1 - number];
            let done = Arc::new(Mutex::new(None));
            let result = Arc::clone(&done);
            let waiter = env.clone().spawn("writer", async move {
                let error = loop {
                    let got = engine.exclusive(addr).await.map(drop);
                    if got.is_err() || env.now() - started > LONG {
                        break got.err();
                    }
                    env.sleep(LEASE / 100).await;
                };
                *result.lock() = Some(error);
            });
            (waiter, done)
        });
        let mut errors = Vec::new();
        for (waiter, done) in tries {
            waiter.join().await.unwrap();
            errors.push(done.lock().take().unwrap());
        }
        let other = 1 - stays;
        assert!(errors[stays].is_none(), "{errors:?}");
        let unreached = PeerId::compute(stays as u16);
        let reason = matches!(
            &errors[other],
            Some(EngineError::Unreachable { peer }) if *peer == unreached
        );
        assert!(reason, "{errors:?}");
        recovered_from(processes, env, stays, other as u16).await;
        for addr in addrs {
            assert_eq!(read(&processes.engines[stays], addr).await, 6, "nothing is lost");
        }
        processes.engines[stays].close().await.unwrap();
    });
}

/// Grants to the peer were dropped while the word named it, for good.
#[test]
fn of_two_nodes_that_do_not_reach_each_other_the_lower_one_stays() {
    one_of_two_ends(&[(0, 1), (1, 0)], 0);
    one_of_two_ends(&[(1, 0)], 0);
}

#[test]
fn a_node_ends_that_alone_does_not_reach_another() {
    one_of_two_ends(&[(0, 1)], 1);
}
