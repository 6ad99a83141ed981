//! Starting the cluster of a scenario.

use selkie_engine::EngineConfig;
use selkie_fabric::sim::TraceSink;

use super::case::Case;
use crate::cluster::{SimCluster, SimShape};
use crate::error::SimError;
use crate::plan::Plan;

/// Changes the configuration of a scenario's engines.
pub type Tune<'t> = dyn Fn(&mut EngineConfig) + 't;

/// Starts the scenario's cluster as `shaped`, on top of what is usual.
pub(super) fn start(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
    shaped: impl FnOnce(&mut SimShape),
) -> Result<SimCluster, SimError> {
    let nodes = usize::from(case.compute_nodes());
    let mut shape = SimShape::small(usize::from(case.memory_nodes()), nodes);
    shape.coding = case.coding();
    shape.engine.mail_tasks = plan.cost.mail_threads as usize;
    shaped(&mut shape);
    tune(&mut shape.engine);
    SimCluster::start(case.seed, plan, &shape, log)
}
