//! Counters in pages: see [`super::Scenario::Counter`].

use std::time::Duration;

use selkie_fabric::sim::TraceSink;

use super::case::Case;
use super::clients::Clients;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::pages::{CounterPages, HOT_PAGES, PageLoad, Tolerance};
use super::start::Tune;
use super::start::start;
use crate::cluster::RUN_BOUND;
use crate::error::SimError;
use crate::plan::Plan;

const STEPS: usize = 150;
/// Pages in all: more than a cache has frames, so that pages are evicted, in one run of four.
const MANY_PAGES: usize = 1500;

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let cluster = start(case, plan, tune, log, |_| {})?;
    let lost = case.lost_beyond(plan);
    let nodes = cluster.engines.len();
    let many = case.seed.is_multiple_of(4);
    let page_count = if many { MANY_PAGES } else { 2 * HOT_PAGES };
    let pages = cluster.run(CounterPages::allocate(&cluster, page_count))??;
    plan.arrange(&cluster.world.controls(), cluster.world.now());
    let mut clients = Clients::new(&cluster);
    let load = PageLoad {
        seed: case.seed,
        steps: if many { 4 * STEPS } else { STEPS },
        until: Duration::ZERO,
        tolerance: Tolerance::default(),
        round: 0,
    };
    for node in 0..nodes {
        pages.spawn(&mut clients, node, load)?;
    }
    let tally = cluster.run(clients.finish(&lost))??;
    pages.check_histories()?;
    // Writes of a lost node that no other node has are lost with it.
    if lost.is_empty() {
        cluster.run(pages.check_pages(cluster.engine(nodes - 1)?, |_, _| false))??;
        cluster.world.run(RUN_BOUND, cluster.close_and_check(page_count as u64))??;
    }
    Ok(done(&cluster, &tally))
}
