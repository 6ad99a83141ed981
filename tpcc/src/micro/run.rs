//! One run: a pool, its pages, the workers, the clock, and the count of all writes at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{
    Coherence, ComputeId, DirectoryConfig, DirectoryHost, Engine, EngineStats, Entered, GAddr,
    Roster, UserCounters, UserCounts, start_directories,
};
use selkie_fabric::env::{Env, RealRuntime, yield_now};
use selkie_fabric::meter::Meter;
use selkie_fabric::sim::{AdapterBusy, Controls, CostModel, World, WorldConfig};
use selkie_fabric::{Fabric, MemFabric, PeerId};
use selkie_memnode::EmbeddedPool;

use super::config::{Config, MIB};
use super::report::{AdapterLoad, Histogram, Report, ThroughputSample};
use super::workload::{PageChooser, PageSets};
use crate::cluster::{Network, start_populated};
use crate::error::TpccError;
use crate::run::Progress;
use crate::run::tasks::{both, join_all};

/// Samples of the throughput over time.
const SAMPLES: u32 = 20;
/// Accesses after which a worker lets others run; hits alone never would.
const TURN: u64 = 32;
/// Virtual time in which even the slowest run is over.
const BOUND: Duration = Duration::from_secs(3 * 3600);

/// Runs the benchmark. Blocks until it is over; starts the threads it needs. Its compute nodes are
/// entered in the roster of the progress meanwhile, if that has one, with their accesses.
///
/// # Errors
/// [`TpccError::Config`] before anything is started; [`TpccError::Lost`] if writes were lost or
/// doubled; else what pool and engines report.
pub fn run(config: &Config, progress: &Arc<dyn Progress>) -> Result<Report, TpccError> {
    config.validate()?;
    match &config.network {
        Network::Real { threads } => {
            let runtime = RealRuntime::with_seed(*threads, config.seed)?;
            let env = runtime.env();
            let stage = MicroRun::new(config, MemFabric::new(), &env, |_| env.clone(), None);
            runtime.block_on(stage.play(progress))
        }
        Network::Simulated(cost) => {
            let mail_threads = u32::try_from(config.mail_tasks).unwrap_or(1);
            let cost = CostModel { mail_threads, ..cost.clone() };
            let world = World::new(WorldConfig { cost, ..WorldConfig::new(config.seed) });
            let env_of = |node: usize| world.env_of(PeerId::compute(node as u16));
            let controls = Some(world.controls());
            let stage = MicroRun::new(config, world.fabric(), &world.env(), env_of, controls);
            world
                .run(BOUND, stage.play(progress))
                .map_err(|error| TpccError::Stuck(error.to_string()))?
        }
    }
}

/// What is needed to start.
struct MicroRun {
    config: Config,
    meter: Arc<Meter>,
    env: Env,
    envs: Vec<Env>,
    /// Of the world, if it is simulated.
    controls: Option<Controls>,
}

/// What the workers share.
struct MicroControl {
    stop: AtomicBool,
    /// Accesses that count, which those of the warm-up do not.
    measuring: AtomicBool,
    /// Accesses of each node since the start.
    accesses: Vec<AtomicU64>,
    writes: AtomicU64,
    latency: Mutex<Histogram>,
}

/// A snapshot of the counters.
struct CounterSnapshot {
    at: Duration,
    accesses: Vec<u64>,
    engines: Vec<EngineStats>,
    traffic: selkie_fabric::meter::MeterSnapshot,
    busy: Vec<(PeerId, AdapterBusy)>,
}

impl MicroRun {
    fn new(
        config: &Config,
        fabric: Arc<dyn Fabric>,
        env: &Env,
        env_of: impl Fn(usize) -> Env,
        controls: Option<Controls>,
    ) -> Self {
        let envs = (0..config.compute_nodes).map(env_of).collect();
        let (config, env) = (config.clone(), env.clone());
        Self { config, meter: Meter::wrap(fabric), env, envs, controls }
    }

    async fn play(self, progress: &Arc<dyn Progress>) -> Result<Report, TpccError> {
        let fabric: Arc<dyn Fabric> = Arc::clone(&self.meter) as Arc<dyn Fabric>;
        let memory = match self.controls {
            None => {
                let caches = self.config.cache_mib.saturating_mul(MIB * self.envs.len() as u64);
                start_populated(&fabric, self.config.pool(), caches, progress)?
            }
            // There is no memory but that of the world.
            Some(_) => EmbeddedPool::start(&fabric, self.config.pool())?,
        };
        let engines = self.start_engines(&memory, &fabric).await?;
        let allocated = self.allocate(&engines, progress).await?;
        let pages = Arc::new(PageSets::divide(&self.config, allocated));
        let control = Arc::new(MicroControl {
            stop: AtomicBool::new(false),
            measuring: AtomicBool::new(false),
            accesses: engines.iter().map(|_| AtomicU64::new(0)).collect(),
            writes: AtomicU64::new(0),
            latency: Mutex::new(Histogram::new()?),
        });
        let _entered = progress.roster().map(|roster| self.enter(roster, &engines, &control));
        let mut workers = Vec::new();
        for (node, (engine, env)) in engines.iter().zip(&self.envs).enumerate() {
            for number in 0..self.config.workers {
                let worker = Worker {
                    node,
                    engine: engine.clone(),
                    env: env.clone(),
                    access: self.config.network.access_time(),
                    choices: PageChooser::new(&self.config, Arc::clone(&pages), node, number),
                    control: Arc::clone(&control),
                };
                workers.push(worker.run());
            }
        }
        let clock = async {
            let measured = self.measure(&control, &engines, progress).await;
            control.stop.store(true, Ordering::Relaxed);
            measured
        };
        let (worked, (snapshots, samples)) =
            both(join_all(&self.env, "worker", workers), clock).await;
        worked?;
        let counted = self.count(&engines, &pages, progress).await?;
        let written = control.writes.load(Ordering::Relaxed);
        if counted != written {
            return Err(TpccError::Lost { written, counted });
        }
        for engine in &engines {
            engine.close().await?;
        }
        let [before, after] = &snapshots;
        let latency = control.latency.lock().clone();
        let stats =
            after.engines.iter().zip(&before.engines).map(|(after, before)| *after - *before);
        let accesses =
            after.accesses.iter().zip(&before.accesses).map(|(after, before)| after - before);
        Ok(Report {
            config: self.config.clone(),
            elapsed: after.at - before.at,
            accesses: accesses.collect(),
            engines: stats.collect(),
            traffic: after.traffic - before.traffic,
            latency,
            load: AdapterLoad::between(&before.busy, &after.busy, after.at - before.at),
            samples,
            writes: written,
            real: None,
        })
    }

    async fn start_engines(
        &self,
        memory: &EmbeddedPool,
        fabric: &Arc<dyn Fabric>,
    ) -> Result<Vec<Engine>, TpccError> {
        if self.config.coherence == Coherence::Rpc {
            let message = self.config.network.message_time();
            let (cores, ring_bytes) = (self.config.memnode_cores, self.config.engine().ring_bytes);
            let directories = DirectoryConfig { cores, message, ring_bytes };
            let nodes = memory.memory_nodes();
            let hosts = nodes.iter().map(|node| DirectoryHost {
                endpoint: Arc::clone(node.endpoint()),
                region: Arc::clone(node.region()),
            });
            start_directories(memory.pool(), hosts, |_| self.env.clone(), directories).await?;
        }
        let mut engines = Vec::new();
        for (node, env) in self.envs.iter().enumerate() {
            let id = ComputeId::new(node).ok_or_else(|| TpccError::Config {
                key: "compute-nodes",
                value: self.config.compute_nodes.to_string(),
                allowed: format!("must be 1 to {}", selkie_engine::MAX_COMPUTE_NODES),
            })?;
            engines
                .push(Engine::start(memory.pool(), fabric, env, id, self.config.engine()).await?);
        }
        Ok(engines)
    }

    fn enter(
        &self,
        roster: &Roster,
        engines: &[Engine],
        control: &Arc<MicroControl>,
    ) -> Vec<Entered> {
        let enter = |(node, engine): (usize, &Engine)| {
            let control = Arc::clone(control);
            let count =
                move || control.accesses.get(node).map_or(0, |count| count.load(Ordering::Relaxed));
            let accesses: UserCounts =
                Arc::new(move || UserCounters { operations: count(), ..UserCounters::default() });
            roster.enter(engine, Some(Arc::clone(&self.meter)), Some(accesses))
        };
        engines.iter().enumerate().map(enter).collect()
    }

    /// Allocates the pages, each node its share.
    async fn allocate(
        &self,
        engines: &[Engine],
        progress: &Arc<dyn Progress>,
    ) -> Result<Vec<GAddr>, TpccError> {
        progress.begin("load", self.config.gcls);
        let all = Arc::new(Mutex::new(vec![Vec::new(); engines.len()]));
        let nodes = engines.len() as u64;
        let tasks = engines.iter().zip(0..).map(|(engine, node)| {
            let (engine, all, progress) = (engine.clone(), Arc::clone(&all), Arc::clone(progress));
            let share = self.config.gcls / nodes + u64::from(node < self.config.gcls % nodes);
            async move {
                let mut pages = Vec::new();
                for _ in 0..share {
                    // Written, so that its counter starts at zero whatever the line held before.
                    let mut page = engine.allocate().await?;
                    page.bytes_mut(0..8).fill(0);
                    pages.push(page.addr());
                    progress.advance(1);
                }
                if let Some(own) = all.lock().get_mut(node as usize) {
                    *own = pages;
                }
                Ok(())
            }
        });
        let allocated = join_all(&self.env, "allocate", tasks.collect()).await;
        progress.end();
        allocated?;
        Ok(std::mem::take(&mut *all.lock()).concat())
    }

    fn snapshot(&self, control: &MicroControl, engines: &[Engine]) -> CounterSnapshot {
        let of_node = |node: usize| self.meter.snapshot(PeerId::compute(node as u16));
        CounterSnapshot {
            at: self.env.now(),
            accesses: control.accesses.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            engines: engines.iter().map(Engine::stats).collect(),
            traffic: (0..engines.len()).map(of_node).fold(Default::default(), |sum, one| sum + one),
            busy: self.controls.as_ref().map(Controls::busy).unwrap_or_default(),
        }
    }

    /// Lets the warm-up pass, then the measurement; the counters at both of its ends.
    async fn measure(
        &self,
        control: &MicroControl,
        engines: &[Engine],
        progress: &Arc<dyn Progress>,
    ) -> ([CounterSnapshot; 2], Vec<ThroughputSample>) {
        progress.begin("run", SAMPLES.into());
        self.env.sleep(self.config.warmup).await;
        control.measuring.store(true, Ordering::Relaxed);
        let before = self.snapshot(control, engines);
        let mut samples = Vec::new();
        let mut last = before.accesses.clone();
        for sample in 1..=SAMPLES {
            let due = before.at + self.config.duration * sample / SAMPLES;
            self.env.sleep(due.saturating_sub(self.env.now())).await;
            if control.stop.load(Ordering::Relaxed) {
                break;
            }
            let now: Vec<u64> =
                control.accesses.iter().map(|c| c.load(Ordering::Relaxed)).collect();
            let by_node = now.iter().zip(&last).map(|(now, last)| now - last).collect();
            samples.push(ThroughputSample { at: self.env.now() - before.at, accesses: by_node });
            last = now;
            progress.advance(1);
        }
        progress.end();
        let after = self.snapshot(control, engines);
        control.measuring.store(false, Ordering::Relaxed);
        ([before, after], samples)
    }

    /// Adds up the counters of all pages, read through the nodes in turn.
    async fn count(
        &self,
        engines: &[Engine],
        pages: &Arc<PageSets>,
        progress: &Arc<dyn Progress>,
    ) -> Result<u64, TpccError> {
        progress.begin("check", self.config.gcls);
        let total = Arc::new(AtomicU64::new(0));
        let nodes = engines.len();
        let tasks = engines.iter().enumerate().map(|(node, engine)| {
            let (engine, pages, total) = (engine.clone(), Arc::clone(pages), Arc::clone(&total));
            let progress = Arc::clone(progress);
            async move {
                for page in pages.all().skip(node).step_by(nodes) {
                    let guard = engine.shared(page).await?;
                    let counter = counter_of(&guard);
                    total.fetch_add(counter, Ordering::Relaxed);
                    progress.advance(1);
                }
                Ok(())
            }
        });
        let counted = join_all(&self.env, "count", tasks.collect()).await;
        progress.end();
        counted?;
        Ok(total.load(Ordering::Relaxed))
    }
}

/// The write counter of a page, in its first word.
#[expect(clippy::expect_used, reason = "zero for a missing word would hide lost writes")]
fn counter_of(page: &[u8]) -> u64 {
    u64::from_le_bytes(*page.first_chunk().expect("a page has a first word"))
}

struct Worker {
    node: usize,
    engine: Engine,
    env: Env,
    /// Processor time of an access, in virtual time.
    access: Duration,
    choices: PageChooser,
    control: Arc<MicroControl>,
}

impl Worker {
    async fn run(mut self) -> Result<(), TpccError> {
        let result = self.work().await;
        if result.is_err() {
            self.control.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    async fn work(&mut self) -> Result<(), TpccError> {
        let mut latency = Histogram::new()?;
        let (mut accesses, mut writes) = (0_u64, 0_u64);
        while !self.control.stop.load(Ordering::Relaxed) {
            let (page, write) = self.choices.next();
            let started = self.env.now();
            if write {
                let mut guard = self.engine.exclusive(page).await?;
                let counter = counter_of(&guard);
                guard.bytes_mut(0..8).copy_from_slice(&(counter + 1).to_le_bytes());
                writes += 1;
            } else {
                let guard = self.engine.shared(page).await?;
                std::hint::black_box(guard.first_chunk::<8>());
            }
            self.env.spend(self.access).await;
            if let Some(count) = self.control.accesses.get(self.node) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            if self.control.measuring.load(Ordering::Relaxed) {
                latency.record(self.env.now() - started);
            }
            accesses += 1;
            if accesses.is_multiple_of(TURN) && self.access.is_zero() {
                yield_now().await;
            }
        }
        self.control.writes.fetch_add(writes, Ordering::Relaxed);
        self.control.latency.lock().add(&latency)
    }
}
