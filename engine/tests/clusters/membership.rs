//! The members of a pool, as seen by engines: deaths that only some nodes know, nodes that join at
//! the wrong time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_engine::log::LogTo;
use selkie_engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::meter::Meter;
use selkie_fabric::{
    Chain, Completion, Endpoint, Fabric, FabricError, FenceScope, LocalRegion, PeerId, QueuePair,
};
use selkie_memnode::MemoryServer;
use selkie_pool::control::{ControlPlane, Identity, LocalPlane, Timing};
use selkie_pool::{Coding, ComputeIndex, Pool, PoolConfig, create, layout};

use crate::common::pages::coded;
use crate::common::way::Way;
use crate::common::{Cluster, engine_config, id, pool_config};

const PATIENCE: Duration = Duration::from_secs(20);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn index(node: u16) -> ComputeIndex {
    ComputeIndex::new(node)
}

async fn value(engine: &Engine, addr: GAddr) -> Result<u64, EngineError> {
    let page = engine.shared(addr).await?;
    Ok(u64::from_le_bytes(page[..8].try_into().unwrap()))
}

async fn write(engine: &Engine, addr: GAddr, value: u64) {
    let mut page = engine.exclusive(addr).await.unwrap();
    page.bytes_mut(0..8).copy_from_slice(&value.to_le_bytes());
}

async fn eventually(env: &Env, claim: &str, holds: impl Fn() -> bool) {
    let started = env.now();
    while !holds() {
        assert!(env.now() - started < PATIENCE, "{claim}");
        env.sleep(ms(1)).await;
    }
}

/// Starts a node whose index may still be in use for a while.
async fn start(pool: &Arc<Pool>, fabric: &Arc<dyn Fabric>, env: &Env, node: usize) -> Engine {
    let config = EngineConfig { request_timeout: ms(3000), ..engine_config() };
    loop {
        match Engine::start(pool, fabric, env, id(node), config.clone()).await {
            Err(EngineError::Fabric(FabricError::AlreadyJoined { .. })) => env.sleep(ms(1)).await,
            started => return started.unwrap(),
        }
    }
}

/// A pool of two processes, each with its own way to the plane.
struct Two {
    runtime: RealRuntime,
    fabric: Arc<dyn Fabric>,
    ways: [Arc<Way>; 2],
    pools: [Arc<Pool>; 2],
    memory: Arc<MemoryServer>,
}

impl Two {
    fn new(fabric: Arc<dyn Fabric>, lease: Duration) -> Two {
        let runtime = RealRuntime::new(3).unwrap();
        let env = runtime.env();
        let plane: Arc<dyn ControlPlane> = Arc::new(LocalPlane::default());
        let ways = [(); 2].map(|()| Way::to(&plane));
        let (pools, memory) = runtime.block_on(async {
            let identity = Identity { name: "test", id: 5, fabric: "mem" };
            let timing = Timing { lease, heartbeat: lease / 10 };
            create(&*plane, identity, &pool_config(1, 8 << 20), timing).await.unwrap();
            let memory =
                MemoryServer::join(&fabric, Arc::clone(&plane), &env, 100, 8 << 20).await.unwrap();
            let open = async |number: usize| {
                let way = Arc::clone(&ways[number]) as Arc<dyn ControlPlane>;
                Pool::open(Arc::clone(&fabric), way, 1 + number as u64).await.unwrap()
            };
            ([open(0).await, open(1).await], memory)
        });
        Two { runtime, fabric, ways, pools, memory }
    }

    fn follow(&self) {
        self.pools.iter().for_each(|pool| pool.follow(&self.runtime.env()));
    }

    async fn start(&self, process: usize, node: usize) -> Engine {
        start(&self.pools[process], &self.fabric, &self.runtime.env(), node).await
    }
}

/// A fabric on which the way of one compute node to one memory node breaks.
struct Breaks {
    inner: Arc<dyn Fabric>,
    broken: Arc<AtomicBool>,
}

struct BreaksEnd {
    inner: Arc<dyn Endpoint>,
    broken: Arc<AtomicBool>,
}

struct BreaksPair {
    inner: Arc<dyn QueuePair>,
    broken: Arc<AtomicBool>,
}

impl Fabric for Breaks {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let inner = self.inner.join(id)?;
        if id != PeerId::compute(0) {
            return Ok(inner);
        }
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

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.inner.register(bytes)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let inner = self.inner.connect(peer)?;
        if peer != PeerId::memory(1) {
            return Ok(inner);
        }
        Ok(Arc::new(BreaksPair { inner, broken: Arc::clone(&self.broken) }))
    }
}

impl QueuePair for BreaksPair {
    fn peer(&self) -> PeerId {
        self.inner.peer()
    }

    fn post(&self, chain: Chain) -> Completion {
        if self.broken.load(Ordering::SeqCst) {
            return Completion::failed(chain, 0, FabricError::PeerDead { peer: self.peer() });
        }
        self.inner.post(chain)
    }
}

/// The holder that a latch word names.
fn holder(word: u64) -> u64 {
    word >> 58
}

#[test]
fn a_sweep_that_cannot_reach_a_memory_node_is_left_to_others() {
    let broken = Arc::new(AtomicBool::new(false));
    let fabric = |_: &Env| -> Arc<dyn Fabric> {
        Arc::new(Breaks { inner: MemFabric::new(), broken: Arc::clone(&broken) })
    };
    let plain = PoolConfig { coding: Coding::PLAIN, ..pool_config(3, 8 << 20) };
    let mut cluster = Cluster::with(2, fabric, plain, engine_config());
    let env = cluster.runtime.env();
    let victim = cluster.engines.pop().unwrap();
    cluster.run(async {
        let held = async || {
            let words = cluster.latched_words().await.into_iter();
            words.filter(|(_, _, word)| holder(*word) == 2).collect::<Vec<_>>()
        };
        while !held().await.iter().any(|(memory, ..)| *memory == 1) {
            let page = cluster.engines[0].allocate().await.unwrap().addr();
            write(&victim, page, 7).await;
        }
        let expected = held().await.len();
        broken.store(true, Ordering::SeqCst);
        cluster.pool.declare_dead(index(1)).await.unwrap();
        env.sleep(ms(200)).await;
        assert!(!cluster.pool.lost().is_empty(), "it is not over");
        // It gives its membership up, as the memory node lives.
        let survivor = &cluster.engines[0];
        let gives_up = async || {
            let accessed = survivor.shared(survivor.superblock()).await.map(drop);
            matches!(accessed, Err(EngineError::Unreachable { .. }))
        };
        let mut looks = 0;
        while !gives_up().await {
            looks += 1;
            assert!(looks < 2_000, "it goes on");
            env.sleep(ms(5)).await;
        }
        // Another one, whose way is whole, sweeps after both.
        let other = start(&cluster.pool, &cluster.fabric, &env, 2).await;
        eventually(&env, "no node sweeps", || cluster.pool.lost().is_empty()).await;
        assert!(cluster.pool.lost_pages().len() >= expected);
        assert_eq!(held().await.len(), 0, "no word names the victim any more");
        assert_eq!(cluster.pool.dead(), []);
        drop(other);
    });
}

#[test]
fn an_expelled_node_serves_no_hit_whatever_is_let_go_later() {
    let cluster = Cluster::new(2);
    let env = cluster.runtime.env();
    cluster.run(async {
        let [survivor, expelled] = &cluster.engines[..] else { panic!("two engines") };
        let page = survivor.allocate().await.unwrap().addr();
        write(survivor, page, 1).await;
        assert_eq!(value(expelled, page).await.unwrap(), 1);
        let held = survivor.shared(page).await.unwrap();
        let waits = expelled.clone();
        let waiter = env.spawn("waiter", async move {
            let got = waits.exclusive(page).await.map(drop);
            assert!(matches!(got, Err(EngineError::Expelled { .. })), "{got:?}");
        });
        env.sleep(ms(50)).await;
        cluster.pool.declare_dead(index(1)).await.unwrap();
        waiter.join().await.unwrap();
        eventually(&env, "no recovery", || cluster.pool.lost().is_empty()).await;
        drop(held);
        write(survivor, page, 2).await;
        let hit = value(expelled, page).await;
        assert!(matches!(hit, Err(EngineError::Expelled { .. })), "{hit:?}");
    });
}

/// It read the epochs for ever, and made new copies of the log that others recover from.
#[test]
fn a_node_that_has_failed_accesses_no_memory_any_more() {
    let mem = MemFabric::new();
    let meter = Meter::wrap(Arc::clone(&mem) as Arc<dyn Fabric>);
    let fabric = |_: &Env| Arc::clone(&meter) as Arc<dyn Fabric>;
    let config = PoolConfig { log_bytes: 128 << 10, ..coded(4, "2+1") };
    let engine = EngineConfig { log: Some(LogTo::Memory), ..engine_config() };
    let cluster = Cluster::with(2, fabric, config, engine);
    let env = cluster.runtime.env();
    cluster.run(async {
        let failed = &cluster.engines[1];
        let page = failed.allocate().await.unwrap().addr();
        write(failed, page, 7).await;
        cluster.pool.declare_dead(index(1)).await.unwrap();
        eventually(&env, "no recovery", || cluster.pool.lost().is_empty()).await;
        let expelled = value(failed, page).await;
        assert!(matches!(expelled, Err(EngineError::Expelled { .. })), "{expelled:?}");
        // What was under way then is over.
        env.sleep(ms(200)).await;
        let before = meter.snapshot(PeerId::compute(1)).chains;
        // It had a copy of the log.
        mem.kill(PeerId::memory(1));
        cluster.pool.declare_memory_dead(1).await.unwrap();
        env.sleep(ms(500)).await;
        assert_eq!(meter.snapshot(PeerId::compute(1)).chains, before);
    });
}

#[test]
fn mail_that_comes_before_its_sender_is_known_is_answered() {
    let two = Two::new(MemFabric::new(), Duration::from_secs(2));
    let env = two.runtime.env();
    two.runtime.block_on(async {
        two.follow();
        let (one, old) = (two.start(0, 0).await, two.start(1, 1).await);
        let page = one.allocate().await.unwrap().addr();
        write(&one, page, 1).await;
        drop(old.shared(page).await.unwrap());
        write(&old, page, 2).await;
        old.close().await.unwrap();
        drop(old);
        env.sleep(ms(300)).await;
        // The other process knows the successor before the successor knows of its own entry.
        two.ways[1].delay(true);
        let (pool, fabric) = (Arc::clone(&two.pools[1]), Arc::clone(&two.fabric));
        let (started, sender) = (Arc::new(parking_lot::Mutex::new(None)), env.clone());
        let put = Arc::clone(&started);
        let starter = env.spawn("starter", async move {
            *put.lock() = Some(start(&pool, &fabric, &sender, 1).await);
        });
        eventually(&env, "it does not come", || two.pools[0].is_member(index(1))).await;
        env.sleep(ms(25)).await;
        assert_eq!(value(&one, page).await.unwrap(), 2);
        two.ways[1].delay(false);
        starter.join().await.unwrap();
        let next = started.lock().take().unwrap();
        assert_eq!(value(&one, page).await.unwrap(), 2);
        let other = next.allocate().await.unwrap().addr();
        assert_eq!(value(&one, other).await.unwrap(), 0, "the ring to the successor is in step");
    });
}

#[test]
fn a_node_that_does_not_get_in_holds_no_epoch_back() {
    let two = Two::new(MemFabric::new(), ms(100));
    let env = two.runtime.env();
    two.runtime.block_on(async {
        // No task follows the plane for it, so it never notices new nodes.
        let _deaf = two.start(0, 0).await;
        let config = engine_config();
        let refused = Engine::start(&two.pools[1], &two.fabric, &env, id(1), config).await;
        assert!(matches!(refused.map(drop), Err(EngineError::Pool(_))));
        let epoch = layout::node_epoch_offset(1) as usize;
        assert_eq!(two.memory.node().region().load(epoch), 0);
        assert!(!two.pools[1].is_member(index(1)));
    });
}

/// What it had published before it was a member held all freed lines of the pool back.
#[test]
fn the_epoch_of_a_node_that_never_came_in_is_cleared() {
    let two = Two::new(MemFabric::new(), ms(400));
    let env = two.runtime.env();
    two.runtime.block_on(async {
        two.follow();
        let (node, other) = (two.start(0, 0).await, two.start(1, 1).await);
        let region = two.memory.node().region();
        let free = async || {
            let freed = node.allocate().await.unwrap();
            node.free(freed);
        };
        // A member that follows an address for long is waited for.
        let pin = other.pin();
        let word = || region.load(layout::node_epoch_offset(1) as usize);
        free().await;
        env.sleep(ms(3_000)).await;
        assert_eq!((node.unused_lines().1, word() > 0), (0, true));
        drop(pin);
        eventually(&env, "a freed line does not ripen", || node.unused_lines().1 > 0).await;
        let never_came = layout::node_epoch_offset(7) as usize;
        region.store(never_came, 1);
        free().await;
        let is_over = || region.load(never_came) == 0 && node.unused_lines().2 == 0;
        eventually(&env, "the epoch is not cleared", is_over).await;
    });
}

#[test]
fn an_engine_that_is_dropped_without_leaving_is_recovered_from() {
    let two = Two::new(MemFabric::new(), ms(400));
    let env = two.runtime.env();
    two.runtime.block_on(async {
        two.follow();
        let (survivor, dropped) = (two.start(0, 0).await, two.start(1, 1).await);
        let page = survivor.allocate().await.unwrap().addr();
        write(&dropped, page, 2).await;
        drop(dropped);
        let over = || !two.pools[0].is_member(index(1)) && two.pools[0].lost().is_empty();
        eventually(&env, "no node recovers", over).await;
        let lost = value(&survivor, page).await;
        assert!(matches!(lost, Err(EngineError::PageLost { node: None, .. })), "{lost:?}");
    });
}

#[test]
fn a_node_that_comes_in_a_recovery_knows_of_it_at_once() {
    let meter = Meter::wrap(MemFabric::new());
    let two = Two::new(Arc::clone(&meter) as Arc<dyn Fabric>, Duration::from_secs(2));
    let env = two.runtime.env();
    // So that the test makes the steps of the recovery.
    let by_hand =
        EngineConfig { request_timeout: ms(300), tick: Duration::from_secs(60), ..engine_config() };
    two.runtime.block_on(async {
        let start = async |process: usize, node| {
            let pool = &two.pools[process];
            Engine::start(pool, &two.fabric, &env, id(node), by_hand.clone()).await.unwrap()
        };
        let (survivor, victim) = (start(0, 0).await, start(0, 1).await);
        two.follow();
        let page = survivor.allocate().await.unwrap().addr();
        write(&victim, page, 2).await;
        let pool = &two.pools[0];
        pool.declare_dead(index(1)).await.unwrap();
        assert!(pool.fence(index(1)).await.unwrap());
        pool.acknowledge(index(1), index(0)).await.unwrap();
        assert!(pool.claim_sweep(index(1), index(0)).await.unwrap());
        let late = start(1, 2).await;
        let before = meter.snapshot(PeerId::compute(2)).atomics;
        let got = late.try_shared(page).await.map(drop);
        assert!(matches!(got, Err(EngineError::Busy { .. })), "{got:?}");
        let after = meter.snapshot(PeerId::compute(2)).atomics;
        assert_eq!(after, before, "no bit was put into the word of a line that a dead node holds");
    });
}

/// A fabric that cannot be sure of any fence.
struct NoFence(Arc<dyn Fabric>);

impl Fabric for NoFence {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        self.0.join(id)
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        Err(FabricError::StillExecuting { peer, process: 1 })
    }
}

#[test]
fn a_fence_that_fails_ends_no_other_node() {
    let two = Two::new(Arc::new(NoFence(MemFabric::new())), ms(400));
    let env = two.runtime.env();
    two.runtime.block_on(async {
        two.follow();
        let (survivor, _victim) = (two.start(0, 0).await, two.start(1, 1).await);
        let page = survivor.allocate().await.unwrap().addr();
        write(&survivor, page, 2).await;
        two.pools[0].declare_dead(index(1)).await.unwrap();
        env.sleep(ms(1200)).await;
        assert_eq!(value(&survivor, page).await.unwrap(), 2);
        assert_eq!(two.pools[0].lost().len(), 1, "what is not fenced is not over");
    });
}
