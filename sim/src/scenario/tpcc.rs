//! TPC-C at the smallest scale: see [`super::Scenario::Tpcc`].

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::sim::{TraceSink, World, WorldConfig};
use selkie_tpcc::{Cluster, Config, Progress, Scale, Silent, check, load, measure};

use super::{Done, MEMORY_NODES, Scenario};
use crate::cluster::RUN_BOUND;
use crate::error::SimError;
use crate::plan::Plan;

/// Virtual time of the mix.
const DURATION: Duration = Duration::from_millis(5);

pub(super) fn run(seed: u64, plan: &Plan, log: Option<TraceSink>) -> Result<Done, SimError> {
    let nodes = usize::from(Scenario::Tpcc.compute_nodes(seed));
    let Plan { cost, faults, schedule, .. } = plan.clone();
    let world = World::new(WorldConfig { seed, cost, faults, schedule, log });
    let config = Config {
        warehouses: 1,
        duration: DURATION,
        compute_nodes: nodes,
        memory_nodes: usize::from(MEMORY_NODES),
        workers: 3,
        threads: 1,
        seed,
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
    plan.arrange(&world.controls(), world.now());
    let measured = world.run(RUN_BOUND, measure(&cluster, &config, &progress))?;
    let lost = !plan.lost().is_empty();
    let (operations, gave_up) = match measured {
        Ok(interval) => (interval.measurements.completed(), interval.measurements.lost()),
        Err(_) if lost => (0, 1),
        Err(error) => return Err(error.into()),
    };
    if !lost {
        let facts = check::collect(&cluster.nodes, 1, 1, &progress);
        let facts = world.run(RUN_BOUND, facts)??;
        let mut broken: Vec<String> =
            check::check(&facts, &config.scale).iter().map(ToString::to_string).collect();
        let pages = facts.lost_pages();
        if pages > 0 || gave_up > 0 {
            broken.push(format!(
                "{pages} pages are taken for lost, and {gave_up} transactions were given up, though no node died"
            ));
        }
        if !broken.is_empty() {
            return Err(SimError::Broken(broken.join("\n")));
        }
        world.run(RUN_BOUND, cluster.close())??;
    }
    let (trace_hash, virtual_time) = (world.trace_hash(), world.now());
    Ok(Done { trace_hash, virtual_time, operations, gave_up })
}
