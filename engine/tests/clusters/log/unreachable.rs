//! Links of one node that end though their peer lives, and stay so: the node does not go on as if
//! what it sent had arrived.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::LogTo;
use selkie_engine::{Engine, EngineConfig, EngineError};
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
    with_breaks_in(PoolConfig { coding: Coding::PLAIN, ..pool_config(3, 8 << 20) }, test);
}

fn with_breaks_in(pool: PoolConfig, test: impl AsyncFnOnce(&Processes, &Env, &Broken)) {
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

/// Writes new pages, to memory nodes of their own each, until then or until the node ends.
async fn writes_until(engine: &Engine, env: &Env, until: Duration) -> Option<EngineError> {
    let fresh = async || {
        let mut fresh = engine.allocate().await?;
        fresh.bytes_mut(16..24).fill(1);
        let (addr, lsn) = (fresh.addr(), fresh.lsn());
        drop(fresh);
        engine.until_durable(lsn).await?;
        engine.free(engine.exclusive(addr).await?);
        Ok(())
    };
    while env.now() < until {
        if let Err(error @ (EngineError::Unreachable { .. } | EngineError::Closed)) = fresh().await
        {
            return Some(error);
        }
        env.sleep(LEASE / 50).await;
    }
    None
}

/// What becomes of a 2+1 pool when the links of these compute nodes to these memory nodes break,
/// while these compute nodes write. Returns the errors of the two compute nodes, and which memory
/// nodes are dead.
fn after_breaks(
    links: &[(u16, u16)],
    writers: &[usize],
) -> ([Option<EngineError>; 2], BTreeSet<usize>) {
    let coding = Coding::new(2, 1).unwrap();
    let mut found = ([None, None], BTreeSet::new());
    with_breaks_in(
        PoolConfig { coding, ..pool_config(5, 8 << 20) },
        async |processes, env, broken| {
            let mut addrs = Vec::new();
            for engine in &processes.engines {
                addrs.push(page(engine).await);
            }
            for (engine, addr) in processes.engines.iter().zip(&addrs) {
                write(engine, *addr, 1).await;
            }
            for (from, to) in links {
                broken.lock().insert((PeerId::compute(*from), PeerId::memory(*to)));
            }
            let until = env.now() + LONG;
            let tasks = writers.iter().map(|number| {
                let (engine, env) = (processes.engines[*number].clone(), env.clone());
                let ended = Arc::new(Mutex::new(None));
                let told = Arc::clone(&ended);
                let task = env.clone().spawn("writer", async move {
                    *told.lock() = writes_until(&engine, &env, until).await;
                });
                (*number, task, ended)
            });
            for (number, task, ended) in tasks.collect::<Vec<_>>() {
                task.join().await.unwrap();
                found.0[number] = ended.lock().take();
            }
            let pool = &processes.pools[0];
            found.1.extend((0..5).filter(|memory| pool.is_memory_dead(*memory)));
            for (number, engine) in processes.engines.iter().enumerate() {
                if found.0[number].is_none() {
                    assert_eq!(read(engine, addrs[number]).await, 1);
                    write(engine, addrs[number], 2).await;
                    engine.close().await.unwrap();
                }
            }
        },
    );
    found
}

/// A cut between the compute nodes and one memory node ended all of them, though 2+1 makes up for
/// its loss.
#[test]
fn a_memory_node_that_no_compute_node_reaches_is_given_up() {
    let (errors, dead) = after_breaks(&[(0, 1), (1, 1)], &[0, 1]);
    assert!(matches!(errors, [None, None]), "{errors:?}");
    assert_eq!(dead, BTreeSet::from([1]));
}

#[test]
fn a_node_that_does_not_use_a_memory_node_finds_out_that_it_does_not_reach_it() {
    let (errors, dead) = after_breaks(&[(0, 1), (1, 1)], &[1]);
    assert!(matches!(errors, [None, None]), "{errors:?}");
    assert_eq!(dead, BTreeSet::from([1]));
}

#[test]
fn a_memory_node_that_one_of_two_does_not_reach_stays() {
    let (errors, dead) = after_breaks(&[(1, 1)], &[0, 1]);
    let unreached = PeerId::memory(1);
    assert!(
        matches!(errors, [None, Some(EngineError::Unreachable { peer })] if peer == unreached),
        "{errors:?}"
    );
    assert_eq!(dead, BTreeSet::new());
}

#[test]
fn of_more_memory_nodes_that_are_not_reached_than_the_coding_spares_none_is_given_up() {
    let (errors, dead) = after_breaks(&[(0, 1), (0, 2), (1, 1), (1, 2)], &[0, 1]);
    assert!(errors.iter().any(Option::is_some), "{errors:?}");
    assert_eq!(dead, BTreeSet::new());
}
