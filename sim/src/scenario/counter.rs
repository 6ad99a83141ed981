//! Counters in pages: see [`super::Scenario::Counter`].

use selkie_fabric::sim::TraceSink;

use super::case::Case;
use super::clients::Clients;
use super::excuses::Excuses;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::page_client::{HOT_PAGES, PageLoad, Tolerance};
use super::pages::CounterPages;
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
    let many = case.seed.is_multiple_of(4);
    let page_count = if many { MANY_PAGES } else { 2 * HOT_PAGES };
    let steps = if many { 4 * STEPS } else { STEPS };
    run_on(case, plan, tune, log, (page_count, steps))
}

/// Runs clients on so many pages, each for so many steps.
pub(super) fn run_on(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
    (page_count, steps): (usize, usize),
) -> Result<RunOutcome, SimError> {
    let mut cluster = start(case, plan, tune, log, |_| {})?;
    let nodes = cluster.engines.len();
    let pages = cluster.run(CounterPages::allocate(&cluster, page_count))??;
    let excuses = Excuses::of(case, plan, &cluster);
    plan.arrange_in(&cluster);
    let mut clients = Clients::new(&cluster);
    let load = PageLoad {
        seed: case.seed,
        steps,
        until: excuses.load_until(&cluster),
        tolerance: Tolerance { lost: case.has_processes(), damaged: false },
        acknowledges: case.has_processes(),
        round: 0,
    };
    for node in 0..nodes {
        pages.spawn(&mut clients, node, load)?;
    }
    let tally = excuses.finish(clients)?;
    pages.check_histories()?;
    // Writes of a lost node that no other node has are lost with it.
    if !excuses.loses_data && case.has_processes() {
        let living = excuses.settle(&mut cluster)?;
        let exposed = excuses.exposed();
        let may_be_lost =
            |pages: &CounterPages, page: usize| pages.may_be_lost_with(page, &exposed);
        let reader = cluster.engine(cluster.engines.len() - 1)?;
        cluster.run(pages.check_pages(reader, may_be_lost))??;
        excuses.close(&cluster, &living)?;
    } else if !excuses.loses_data {
        cluster.run(pages.check_pages(cluster.engine(nodes - 1)?, |_, _| false))??;
        cluster.world.run(RUN_BOUND, cluster.close_and_check(page_count as u64))??;
    }
    Ok(done(&cluster, &tally))
}
