//! Starting the cluster of a scenario.

use std::time::Duration;

use selkie_engine::EngineConfig;
use selkie_engine::log::LogTo;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;

use super::case::Case;
use crate::cluster::{SimCluster, SimShape};
use crate::error::SimError;
use crate::plan::Plan;

/// Stream of the seed that draws the sizes of wide runs.
const SIZES_STREAM: u64 = 42;
/// The tick of engines with a lease.
const TICK: Duration = Duration::from_micros(500);
/// Longer than any trouble, and what follows from it.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(25 * 8);
/// Compute nodes that keep a log, at most.
const MOST_LOGS: u64 = 8;

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
    if case.has_processes() {
        widen(case, &mut shape);
    }
    tune(&mut shape.engine);
    SimCluster::start(case.seed, plan, &shape, log)
}

/// Makes the nodes processes of their own, with caches and logs as small as they may be.
fn widen(case: Case, shape: &mut SimShape) {
    let random = SplitMix::of_stream(case.seed, SIZES_STREAM);
    shape.processes = true;
    shape.engine.tick = TICK;
    shape.engine.request_timeout = REQUEST_TIMEOUT;
    if random.below(2) == 0 {
        let pages = random.below(8) * shape.gcl_bytes as u64;
        shape.engine.cache_bytes = EngineConfig::min_cache_bytes(shape.gcl_bytes) + pages;
    }
    if case.has_small_pool() {
        shape.bytes_per_node = small_pool(case);
    }
    if let Some(bytes) = case.log_bytes() {
        shape.bytes_per_node += bytes * MOST_LOGS;
        shape.log_bytes = bytes;
        shape.engine.log = Some(LogTo::Memory);
    }
}

/// Memory of each node of a pool that gets full, without logs. Coded ones have journals, too.
fn small_pool(case: Case) -> u64 {
    let kib = if case.coding().is_plain() { 1024 } else { 1536 };
    kib << 10
}
