//! TPC-C at the smallest scale: see [`super::Scenario::Tpcc`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::PeerId;
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::sim::{Controls, TraceSink, World, WorldConfig};
use selkie_pool::Pool;
use selkie_tpcc::{
    Config, Network, Progress, Scale, Silent, TpccCluster, TpccError, TpccInterval, check, load,
    measure,
};
use selkie_txn::Protocol;

use super::case::Case;
use super::deaths::{LOSS_LOAD, made_good};
use super::name::Scenario;
use super::outcome::RunOutcome;
use crate::cluster::{RUN_BOUND, SimMemory, decay, look_at_splits};
use crate::error::{SimError, ensure};
use crate::plan::Plan;

/// Virtual time of the mix.
const DURATION: Duration = Duration::from_millis(5);
/// The longest time of the mix where another event ends it.
const LONGEST: Duration = Duration::from_secs(60);
/// Virtual time of the mix while bits flip.
const DECAY: Duration = Duration::from_millis(15);
/// How many bits are drawn. Some may be of pages that were never written.
const DRAWS: u32 = 2_000;
/// Warehouses in that run: caches do not hold all of them.
const WAREHOUSES: u32 = 6;
/// The longest time of a repair.
const MENDED_WITHIN: Duration = Duration::from_secs(5);
/// Operations after which some of what decays has been read.
const SOME_OPERATIONS: u64 = 200;
/// Capacity of each memory node where memory nodes are lost, MiB.
const MIB_OF_THE_LOST: u64 = 128;
/// Tasks of a node that verify the committed transactions.
const VERIFY_TASKS: usize = 4;

/// The cluster in its world.
struct TpccSimulation {
    world: World,
    cluster: TpccCluster,
    config: Config,
    progress: Arc<dyn Progress>,
}

impl TpccSimulation {
    /// Starts the cluster and loads it.
    fn set(
        case: Case,
        plan: &Plan,
        duration: Duration,
        log: Option<TraceSink>,
    ) -> Result<Self, SimError> {
        let Plan { cost, faults, schedule, .. } = plan.clone();
        let world = World::new(WorldConfig { seed: case.seed, cost, faults, schedule, log });
        let config = Config {
            warehouses: if duration == DECAY { WAREHOUSES } else { 1 },
            duration,
            compute_nodes: usize::from(case.compute_nodes()),
            memory_nodes: usize::from(case.memory_nodes()),
            // The remaining memory nodes must have room for all slabs.
            memory_bytes: (duration == LONGEST).then_some(MIB_OF_THE_LOST << 20),
            coding: case.coding(),
            protocol: protocol_of(case),
            workers: 3,
            network: Network::Real { threads: 1 },
            seed: case.seed,
            scale: Scale::divided_by(Scale::MAX_DIVISOR),
            ..Config::default()
        };
        let progress: Arc<dyn Progress> = Arc::new(Silent);
        let env_of = |index: usize| world.env_of(PeerId::compute(index as u16));
        // The workers are clients of their node: when a node is lost, their requests fail.
        let driver = world.env();
        let start = TpccCluster::start_on(world.fabric(), &driver, &env_of, &config);
        let cluster = world.run(RUN_BOUND, start)??;
        world.run(RUN_BOUND, load(&cluster, &config, &progress))??;
        Ok(Self { world, cluster, config, progress })
    }

    fn measure(&self) -> Result<Result<TpccInterval, TpccError>, SimError> {
        Ok(self.world.run(RUN_BOUND, measure(&self.cluster, &self.config, &self.progress))?)
    }

    fn warehouses(&self) -> i32 {
        self.config.warehouses.cast_signed()
    }

    /// Checks the consistency conditions, and that nothing was given up.
    fn check(&self, gave_up: u64) -> Result<(), SimError> {
        let facts = check::collect(&self.cluster.nodes, self.warehouses(), 1, &self.progress);
        let facts = self.world.run(RUN_BOUND, facts)??;
        let mut broken: Vec<String> =
            check::check(&facts, &self.config.scale).iter().map(ToString::to_string).collect();
        let pages = facts.lost_pages();
        if pages > 0 || gave_up > 0 {
            broken.push(format!(
                "{pages} pages are taken for lost, and {gave_up} transactions were given up, though no compute \
                 node died"
            ));
        }
        ensure(broken.is_empty(), || broken.join("\n"))
    }

    /// Verifies that every committed transaction is in the database.
    fn verify_commits(&self, interval: TpccInterval) -> Result<(), SimError> {
        let (nodes, commits) = (&self.cluster.nodes, interval.commits);
        let found =
            check::verify_commits(nodes, self.warehouses(), commits, VERIFY_TASKS, &self.progress);
        let found = self.world.run(RUN_BOUND, found)??;
        ensure(found.looked_for == found.found && found.looked_for > 0, || {
            format!("of {} transactions {} are there: {found:?}", found.looked_for, found.found)
        })
    }

    fn close(self) -> Result<World, SimError> {
        self.world.run(RUN_BOUND, self.cluster.close())??;
        Ok(self.world)
    }
}

/// The concurrency control protocol of all terminals. The scenarios about memory use two-phase
/// locking, as a faster protocol would need room for more rows.
fn protocol_of(case: Case) -> Protocol {
    match case.scenario {
        Scenario::Tpcc => case.protocol().unwrap_or(Protocol::TwoPhase),
        _ => Protocol::TwoPhase,
    }
}

fn done(world: &World, operations: u64, gave_up: u64) -> RunOutcome {
    let (trace_hash, virtual_time) = (world.trace_hash(), world.now());
    RunOutcome { trace_hash, virtual_time, operations, gave_up }
}

pub(super) fn run(case: Case, plan: &Plan, log: Option<TraceSink>) -> Result<RunOutcome, SimError> {
    let simulation = TpccSimulation::set(case, plan, DURATION, log)?;
    plan.arrange(&simulation.world.controls(), simulation.world.now());
    let lost = !case.lost_beyond(plan).is_empty();
    let (operations, gave_up) = match simulation.measure()? {
        Ok(interval) => (interval.measurements.completed(), interval.measurements.lost()),
        Err(_) if lost => (0, 1),
        Err(error) => return Err(error.into()),
    };
    if lost {
        return Ok(done(&simulation.world, operations, gave_up));
    }
    simulation.check(gave_up)?;
    Ok(done(&simulation.close()?, operations, gave_up))
}

/// Runs the mix while memory nodes die, their slabs are rebuilt, and other memory nodes die. No
/// client notices, and every committed transaction is there.
pub(super) fn run_losing(
    case: Case,
    plan: &Plan,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let told = Arc::new(UntilTold::default());
    let mut simulation = TpccSimulation::set(case, plan, LONGEST, log)?;
    simulation.progress = Arc::clone(&told) as Arc<dyn Progress>;
    plan.arrange(&simulation.world.controls(), simulation.world.now());
    let directed = Arc::new(Mutex::new(Ok(())));
    let (outcome, director, controls) =
        (Arc::clone(&directed), simulation.world.env(), simulation.world.controls());
    let (pool, plan) = (Arc::clone(simulation.cluster.pool()), plan.clone());
    drop(simulation.world.env().spawn("director", async move {
        *outcome.lock() = direct(&pool, &director, &controls, &plan).await;
        told.0.store(true, Ordering::Relaxed);
    }));
    let interval = simulation.measure()??;
    std::mem::replace(&mut *directed.lock(), Ok(()))?;
    let (operations, given_up) = (interval.measurements.completed(), interval.measurements.lost());
    simulation.check(given_up)?;
    simulation.verify_commits(interval)?;
    Ok(done(&simulation.close()?, operations, given_up))
}

/// Starts the later troubles when the first losses are repaired; waits until the later losses are
/// repaired.
async fn direct(pool: &Pool, env: &Env, controls: &Controls, plan: &Plan) -> Result<(), SimError> {
    env.sleep(LOSS_LOAD).await;
    made_good(pool, env, &plan.troubles, true).await?;
    plan.arrange_later(controls, env.now());
    env.sleep(LOSS_LOAD).await;
    made_good(pool, env, &plan.later, false).await
}

/// The memory nodes, which all run in the world of the scenario.
fn memory_of(simulation: &TpccSimulation) -> Result<SimMemory, SimError> {
    let missing = || SimError::Broken("the cluster has no memory nodes of its own".to_owned());
    simulation.cluster.memory().cloned().map(SimMemory::from).ok_or_else(missing)
}

/// Runs the mix while bits in memory flip. Every read returns what was written, and every split
/// that was found wrong is repaired.
pub(super) fn run_decaying(
    case: Case,
    plan: &Plan,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let simulation = TpccSimulation::set(case, plan, DECAY, log)?;
    plan.arrange(&simulation.world.controls(), simulation.world.now());
    let flipped: Arc<Mutex<BTreeSet<(u64, usize)>>> = Arc::default();
    let (memory, env) = (memory_of(&simulation)?, simulation.world.env());
    let (turned, own) = (Arc::clone(&flipped), env.clone());
    let random = SplitMix::of_stream(case.seed, 8);
    drop(env.spawn("decay", async move {
        for _ in 0..DRAWS {
            own.sleep(DECAY / DRAWS).await;
            turned.lock().extend(decay(&memory, &random));
        }
    }));
    let interval = simulation.measure()??;
    let (operations, given_up) = (interval.measurements.completed(), interval.measurements.lost());
    simulation.check(given_up)?;
    simulation.verify_commits(interval)?;
    let counts = || {
        let stats = simulation.cluster.nodes.iter().map(|node| node.engine.stats());
        stats.fold((0, 0), |sum, own| (sum.0 + own.corruptions, sum.1 + own.repairs))
    };
    let started = env.now();
    while counts().0 != counts().1 {
        let (found, repaired) = counts();
        ensure(env.now() - started < MENDED_WITHIN, || {
            format!("of {found} splits found wrong {repaired} are mended after {MENDED_WITHIN:?}")
        })?;
        simulation.world.run(RUN_BOUND, env.sleep(Duration::from_millis(1)))?;
    }
    let changed = flipped.lock().len();
    // In a short run, all of them may be on pages that no transaction has read since.
    let is_found = counts().0 > 0 || operations < SOME_OPERATIONS;
    ensure(is_found, || format!("of {changed} splits that changed none was found"))?;
    let memory = memory_of(&simulation)?;
    let world = simulation.close()?;
    let wrong = look_at_splits(&memory)?.wrong.into_iter();
    let others = wrong.filter(|own| !flipped.lock().contains(&(own.addr, own.split))).count();
    ensure(others == 0, || format!("{others} splits are wrong that no client has touched"))?;
    Ok(done(&world, operations, given_up))
}

/// Ends a measurement on request.
#[derive(Default)]
struct UntilTold(AtomicBool);

impl Progress for UntilTold {
    fn begin(&self, _stage: &'static str, _total: u64) {}
    fn advance(&self, _steps: u64) {}
    fn end(&self) {}
    fn note(&self, _line: &str) {}

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
