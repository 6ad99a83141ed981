//! Memory nodes that are slow for a while: see [`super::Scenario::Straggler`]. In a quarter of the
//! runs a compute node dies in a write-back.

use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;

use super::case::Case;
use super::clients::Clients;
use super::counter;
use super::deaths::{check_rest, interrupt_write_back};
use super::lost_nodes::LostNodes;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::page_client::{PageLoad, Tolerance};
use super::pages::{CounterPages, FEW_PAGES, MANY_PAGES};
use super::start::Tune;
use super::start::start;
use crate::error::SimError;
use crate::plan::{Plan, SPAN, Trouble};

/// Stream of the seed that draws how many pages there are.
const PAGES_STREAM: u64 = 11;
/// Stream of the seed that draws whether a compute node dies, and when.
const DEATH_STREAM: u64 = 12;
const STEPS: usize = 150;
/// Times that a node is slow, at most.
const MOST_TIMES: u64 = 4;
/// How many times slower it is, at most.
const MOST_SLOWNESS: u64 = 100;

/// Has the plan lose no node, and slow one memory node down now and then.
pub(super) fn slow_down(case: Case, plan: &mut Plan) {
    plan.spare_all_nodes();
    let random = SplitMix::of_stream(case.seed, 8);
    let node = PeerId::memory(random.below(u64::from(case.memory_nodes())) as u16);
    let within = |span: Duration| Duration::from_nanos(random.below(span.as_nanos() as u64));
    for _ in 0..=random.below(MOST_TIMES) {
        let (at, times) = (within(SPAN), 2 + random.below(MOST_SLOWNESS - 1) as u32);
        plan.troubles.push((at, Trouble::Slow(node, times)));
        plan.troubles.push((at + within(SPAN / 2), Trouble::Slow(node, 1)));
    }
    plan.troubles.sort_by_key(|(at, _)| *at);
}

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let has_many = SplitMix::of_stream(case.seed, PAGES_STREAM).below(4) == 0;
    let page_count = if has_many { MANY_PAGES } else { FEW_PAGES };
    if case.has_processes() {
        // Who dies there is the plan's.
        return counter::run_on(case, plan, tune, log, (page_count, STEPS));
    }
    let mut cluster = start(case, plan, tune, log, |_| {})?;
    let pages = cluster.run(CounterPages::allocate(&cluster, page_count))??;
    let now = cluster.world.now();
    plan.arrange_in(&cluster);
    let gone = LostNodes::default();
    let death = SplitMix::of_stream(case.seed, DEATH_STREAM);
    let dies = death.below(4) == 0;
    if dies {
        let after = Duration::from_nanos(death.below(SPAN.as_nanos() as u64 / 2));
        interrupt_write_back(&cluster, &gone, &pages, after);
    }
    let mut clients = Clients::new(&cluster);
    let load = PageLoad {
        seed: case.seed,
        steps: STEPS,
        until: now + SPAN,
        tolerance: Tolerance { lost: dies, damaged: false },
        acknowledges: false,
        round: 0,
    };
    for node in 0..cluster.engines.len() {
        pages.spawn(&mut clients, node, load)?;
    }
    let mut tally = cluster.run(clients.finish_all(&gone))??;
    pages.check_histories()?;
    tally.gave_up += check_rest(&mut cluster, &gone, &[&pages])?;
    Ok(done(&cluster, &tally))
}
