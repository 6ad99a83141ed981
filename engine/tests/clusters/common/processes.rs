//! A pool whose nodes are each as if in a process of its own, with a way to the control plane that
//! can be cut.

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::env::Env;
use selkie_fabric::sim::{Controls, World, WorldConfig};
use selkie_fabric::{
    BoxFuture, Endpoint, Fabric, FabricError, FenceScope, LocalRegion, PeerId, QueuePair,
};
use selkie_memnode::MemoryServer;
use selkie_pool::control::{
    Beat, Change, ControlError, ControlPlane, Identity, LocalPlane, PoolState, Timing, Version,
    Versioned,
};
use selkie_pool::{Pool, PoolConfig, create};

use super::way::Way;
use super::{PAGE, engine_config, get, id, pool_config};

/// A plane that knows how old beats are, as one between processes does.
pub struct Aged {
    plane: LocalPlane,
    env: Env,
    beaten: parking_lot::Mutex<std::collections::HashMap<PeerId, Duration>>,
}

impl Aged {
    pub fn empty(env: &Env) -> Arc<dyn ControlPlane> {
        let (plane, beaten) = (LocalPlane::default(), parking_lot::Mutex::default());
        Arc::new(Self { plane, env: env.clone(), beaten })
    }
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

/// A simulated network where nodes have to be let in, and each process fences for itself. Fences do
/// nothing: nothing but its own lease keeps a node that was declared dead from using what it has.
pub struct Carded(pub Arc<dyn Fabric>);

struct CardedEndpoint(Arc<dyn Endpoint>);

impl Fabric for Carded {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        Ok(Arc::new(CardedEndpoint(self.0.join(id)?)))
    }

    fn fence(&self, _: PeerId) -> Result<FenceScope, FabricError> {
        Ok(FenceScope::ThisProcess)
    }
}

impl Endpoint for CardedEndpoint {
    fn id(&self) -> PeerId {
        self.0.id()
    }

    fn access_card(&self) -> Option<String> {
        Some(self.id().to_string())
    }

    fn silence_of(&self, peer: PeerId) -> Duration {
        self.0.silence_of(peer)
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.0.register(bytes)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        self.0.connect(peer)
    }
}

/// Memory nodes and two compute nodes, and their ways to the plane.
pub struct Processes {
    pub memory_ways: Vec<Arc<Way>>,
    pub ways: [Arc<Way>; 2],
    pub engines: [Engine; 2],
    /// Of the compute nodes.
    pub pools: [Arc<Pool>; 2],
    /// Of a further process.
    fabric: Arc<dyn Fabric>,
    config: EngineConfig,
    _memory: Vec<Arc<MemoryServer>>,
}

impl Processes {
    /// A process's fabric is what `fabric` makes.
    pub async fn start(
        env: &Env,
        memory_nodes: usize,
        lease: Duration,
        fabric: impl Fn() -> Arc<dyn Fabric>,
    ) -> Self {
        let pool = pool_config(memory_nodes, 8 << 20);
        Self::start_with(env, (pool, &engine_config()), lease, fabric).await
    }

    /// As [`Processes::start`], with this pool and these engines.
    pub async fn start_with(
        env: &Env,
        (pool, engine): (PoolConfig, &EngineConfig),
        lease: Duration,
        fabric: impl Fn() -> Arc<dyn Fabric>,
    ) -> Self {
        let plane = Aged::empty(env);
        Self::start_on(env, &plane, (pool, engine), lease, fabric).await
    }

    /// As [`Processes::start_with`], by this control plane.
    pub async fn start_on(
        env: &Env,
        plane: &Arc<dyn ControlPlane>,
        (pool, engine): (PoolConfig, &EngineConfig),
        lease: Duration,
        fabric: impl Fn() -> Arc<dyn Fabric>,
    ) -> Self {
        let identity = Identity { name: "test", id: 7, fabric: "tcp" };
        let timing = Timing { lease, heartbeat: lease / 10 };
        create(&**plane, identity, &pool, timing).await.unwrap();
        let (mut memory, mut memory_ways) = (Vec::new(), Vec::new());
        for number in 0..pool.memory_nodes {
            let way = Way::to(plane);
            let plane = Arc::clone(&way) as Arc<dyn ControlPlane>;
            let host = 100 + number as u64;
            let lent = MemoryServer::join(&fabric(), plane, env, host, 8 << 20).await.unwrap();
            lent.follow(env);
            memory.push(lent);
            memory_ways.push(way);
        }
        let ways = [(); 2].map(|()| Way::to(plane));
        let start = async |number: usize| {
            let (fabric, way) = (fabric(), Arc::clone(&ways[number]));
            let host = 1 + number as u64;
            let pool = Pool::open(Arc::clone(&fabric), way, host).await.unwrap();
            pool.follow(env);
            let engine = Engine::start(&pool, &fabric, env, id(number), engine.clone()).await;
            (engine.unwrap(), pool)
        };
        let ((one, here), (two, there)) = (start(0).await, start(1).await);
        let (engines, pools) = ([one, two], [here, there]);
        let (fabric, config) = (fabric(), engine.clone());
        Self { memory_ways, ways, engines, pools, fabric, config, _memory: memory }
    }

    /// Starts a third compute node.
    pub async fn start_third(&self, env: &Env) -> Engine {
        let (fabric, way) = (Arc::clone(&self.fabric), Arc::clone(&self.ways[0]));
        let pool = Pool::open(Arc::clone(&fabric), way, 3).await.unwrap();
        pool.follow(env);
        Engine::start(&pool, &fabric, env, id(2), self.config.clone()).await.unwrap()
    }

    pub fn all_ways(&self) -> impl Iterator<Item = &Arc<Way>> {
        self.memory_ways.iter().chain(&self.ways)
    }

    pub async fn close(&self) {
        for engine in &self.engines {
            engine.close().await.unwrap();
        }
        let pool = &self.pools[1];
        assert!(pool.lost().is_empty() && pool.dead().is_empty());
    }
}

/// Runs a test with such a pool in virtual time; the network is in its hands.
pub fn in_virtual_time(
    memory_nodes: usize,
    lease: Duration,
    test: impl AsyncFnOnce(Processes, Env, Controls),
) {
    in_virtual_time_with(pool_config(memory_nodes, 8 << 20), lease, test);
}

/// As [`in_virtual_time`], with a pool of this shape.
pub fn in_virtual_time_with(
    config: PoolConfig,
    lease: Duration,
    test: impl AsyncFnOnce(Processes, Env, Controls),
) {
    let world = World::new(WorldConfig::new(17));
    let (env, fabric) = (world.env(), world.fabric());
    let fabric = || -> Arc<dyn Fabric> { Arc::new(Carded(Arc::clone(&fabric))) };
    let main = async {
        let processes =
            Processes::start_with(&env, (config, &engine_config()), lease, fabric).await;
        test(processes, env.clone(), world.controls()).await;
    };
    world.run(100 * lease, main).unwrap();
}

pub async fn value(engine: &Engine, addr: GAddr) -> Result<u64, EngineError> {
    Ok(get(&engine.shared(addr).await?))
}

pub async fn write(engine: &Engine, addr: GAddr, value: u64) {
    let mut page = engine.exclusive(addr).await.unwrap();
    page.bytes_mut(0..8).copy_from_slice(&value.to_le_bytes());
    page.bytes_mut(PAGE - 8..PAGE).copy_from_slice(&value.to_le_bytes());
}
