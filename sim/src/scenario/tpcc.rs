//! TPC-C at the smallest scale: see [`super::Scenario::Tpcc`].

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::sim::{TraceSink, World, WorldConfig};
use selkie_tpcc::{
    Cluster, Config, Interval, Progress, Scale, Silent, TpccError, check, load, measure,
};

use super::memnode_loss::made_good;
use super::{Case, Done, ensure};
use crate::cluster::RUN_BOUND;
use crate::error::SimError;
use crate::plan::Plan;

/// Virtual time of the mix.
const DURATION: Duration = Duration::from_millis(5);
/// As above, where memory nodes die, and what they had is made again meanwhile.
const LONG_DURATION: Duration = Duration::from_millis(40);
/// Tasks of a node that look for what was committed.
const LOOK_UP_TASKS: usize = 4;

/// The cluster in its world.
struct Stage {
    world: World,
    cluster: Cluster,
    config: Config,
    progress: Arc<dyn Progress>,
}

impl Stage {
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
            warehouses: 1,
            duration,
            compute_nodes: usize::from(case.compute_nodes()),
            memory_nodes: usize::from(case.memory_nodes()),
            coding: case.coding(),
            workers: 3,
            threads: 1,
            seed: case.seed,
            scale: Scale::divided_by(Scale::MAX_DIVISOR),
            ..Config::default()
        };
        let progress: Arc<dyn Progress> = Arc::new(Silent);
        let env_of = |index: usize| world.env_of(PeerId::compute(index as u16));
        // The workers are clients of their node, not part of it: a lost node fails what they ask of it.
        let driver = world.env();
        let start = Cluster::start_on(world.fabric(), &driver, env_of, &config);
        let cluster = world.run(RUN_BOUND, start)??;
        world.run(RUN_BOUND, load(&cluster, &config, &progress))??;
        Ok(Self { world, cluster, config, progress })
    }

    fn measure(&self) -> Result<Result<Interval, TpccError>, SimError> {
        Ok(self.world.run(RUN_BOUND, measure(&self.cluster, &self.config, &self.progress))?)
    }

    /// Checks the consistency conditions, and that nothing was given up.
    fn check(&self, gave_up: u64) -> Result<(), SimError> {
        let facts = check::collect(&self.cluster.nodes, 1, 1, &self.progress);
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

    fn close(self) -> Result<World, SimError> {
        self.world.run(RUN_BOUND, self.cluster.close())??;
        Ok(self.world)
    }
}

fn done(world: &World, operations: u64, gave_up: u64) -> Done {
    let (trace_hash, virtual_time) = (world.trace_hash(), world.now());
    Done { trace_hash, virtual_time, operations, gave_up }
}

pub(super) fn run(case: Case, plan: &Plan, log: Option<TraceSink>) -> Result<Done, SimError> {
    let stage = Stage::set(case, plan, DURATION, log)?;
    plan.arrange(&stage.world.controls(), stage.world.now());
    let lost = !case.lost_beyond(plan).is_empty();
    let (operations, gave_up) = match stage.measure()? {
        Ok(interval) => (interval.measurements.completed(), interval.measurements.lost()),
        Err(_) if lost => (0, 1),
        Err(error) => return Err(error.into()),
    };
    if lost {
        return Ok(done(&stage.world, operations, gave_up));
    }
    stage.check(gave_up)?;
    Ok(done(&stage.close()?, operations, gave_up))
}

/// The mix while memory nodes die, and again while others do: no client notices, and all that was committed is there.
pub(super) fn run_losing(
    case: Case,
    plan: &Plan,
    log: Option<TraceSink>,
) -> Result<Done, SimError> {
    let stage = Stage::set(case, plan, LONG_DURATION, log)?;
    let (mut operations, mut given_up) = (0, 0);
    let mut journals = Vec::new();
    for (troubles, whole) in [(&plan.troubles, true), (&plan.later, false)] {
        let (controls, now) = (stage.world.controls(), stage.world.now());
        if whole {
            plan.arrange(&controls, now);
        } else {
            plan.arrange_later(&controls, now);
        }
        let interval = stage.measure()??;
        operations += interval.measurements.completed();
        given_up += interval.measurements.lost();
        journals.push(interval.journal);
        let env = stage.world.env();
        let made_good = made_good(stage.cluster.pool(), &env, troubles, whole);
        stage.world.run(RUN_BOUND, made_good)??;
    }
    stage.check(given_up)?;
    for journal in journals {
        let found = check::look_up(&stage.cluster.nodes, journal, LOOK_UP_TASKS, &stage.progress);
        let found = stage.world.run(RUN_BOUND, found)??;
        ensure(found.looked_for == found.found && found.looked_for > 0, || {
            format!("of {} transactions {} are there: {found:?}", found.looked_for, found.found)
        })?;
    }
    Ok(done(&stage.close()?, operations, given_up))
}
