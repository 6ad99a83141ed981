//! Memory nodes of a coded pool that die: see [`super::Scenario::MemnodeLoss`] and
//! [`super::Scenario::TpccLoss`].
//!
//! ```text
//! load, in which the first die  -> all slabs are regenerated  -> look at memory
//!  -> load, in which as many die as the coding has parity  -> look at memory
//!  -> compute nodes leave, a fresh one reads everything: it is what was last committed
//! ```
//! The victims and the times are drawn. In some runs a compute node dies as well: a writer, the
//! node that rebuilds the headers of lost homes, or the node that regenerates lost slabs. In some
//! runs a memory node joins during each load, before the others die, between them, or after.

use std::collections::BTreeSet;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;
use selkie_pool::Journal;

use super::bank::{self, Bank};
use super::case::Case;
use super::choices::{LossVariant, loss_in_turn, others, subsets};
use super::clients::Clients;
use super::deaths::{LEASE, LOSS_LOAD, bury, interrupt, interrupt_write_back, look, made_good};
use super::lost_nodes::LostNodes;
use super::name::Scenario;
use super::outcome::OperationCounts;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::page_client::{PageLoad, Tolerance};
use super::pages::{CounterPages, FEW_PAGES, MANY_PAGES};
use super::start::Tune;
use super::start::start;
use super::tpcc;
use crate::cluster::SimCluster;
use crate::error::{SimError, ensure};
use crate::plan::{Plan, SPAN, Trouble};

/// Streams of the seed that draw which memory nodes die, and when others join.
const VICTIMS_STREAM: u64 = 12;
const JOINS_STREAM: u64 = 13;
const STEPS: usize = 120;
/// Time within which a second memory node dies, if not at once: while headers are rebuilt or slabs
/// regenerated.
const LATE_LOSS: Duration = Duration::from_millis(65);
/// Within which a memory node joins, in each load.
const JOIN: Duration = Duration::from_millis(20);

/// The memory nodes that die in the first load, and in the second.
fn victims(case: Case) -> (Vec<u16>, Vec<u16>) {
    if case.scenario == Scenario::TpccLoss {
        let (_, first, second) = loss_in_turn(case.seed, case.asked_coding());
        return (first, second);
    }
    let (coding, nodes) = (case.coding(), case.memory_nodes());
    let all: Vec<u16> = (0..nodes).collect();
    // No more than leave enough nodes for all slabs.
    let first = coding.parity().min(usize::from(nodes) - coding.splits());
    let random = SplitMix::of_stream(case.seed, VICTIMS_STREAM);
    let choose = |mut choices: Vec<Vec<u16>>| {
        let number = random.below(choices.len() as u64) as usize;
        choices.swap_remove(number)
    };
    let first = choose(subsets(&all, first));
    let second = choose(subsets(&others(&all, &first), coding.parity()));
    (first, second)
}

/// When the memory nodes of a load die: the first early, the others with it or after it.
fn deaths(random: &SplitMix, nodes: Vec<u16>) -> Vec<(Duration, Trouble)> {
    let within = |span: Duration| Duration::from_nanos(random.below(span.as_nanos() as u64));
    let first = within(SPAN);
    let at_once = random.below(3) == 0;
    let mut nodes = nodes;
    if random.below(2) == 0 {
        nodes.reverse();
    }
    let at = |number: usize| match number {
        0 => first,
        _ if at_once => first,
        _ if random.below(2) == 0 => first + within(2 * SPAN),
        _ => first + within(LATE_LOSS),
    };
    nodes
        .into_iter()
        .enumerate()
        .map(|(number, node)| (at(number), Trouble::Crash(PeerId::memory(node))))
        .collect()
}

/// Makes the plan lose the nodes that the run chooses, and no others.
pub(super) fn lose_nodes(case: Case, plan: &mut Plan) {
    plan.spare_all_nodes();
    let random = SplitMix::of_stream(case.seed, 8);
    let (first, second) = victims(case);
    let mut troubles = deaths(&random, first);
    plan.later = deaths(&random, second);
    if let LossVariant::WriterDies { among } = LossVariant::of(case.scenario, case.seed) {
        let node = random.below(u64::from(case.compute_nodes())) as u16;
        let at = Duration::from_nanos(random.below(SPAN.as_nanos() as u64));
        if !among {
            // The memory nodes of the first load are those of the second as well.
            troubles.clear();
        }
        troubles.push((at, Trouble::Kill(PeerId::compute(node))));
    }
    if LossVariant::of(case.scenario, case.seed) == LossVariant::InWriteBack
        && case.coding().journal() == Journal::Auto
    {
        // An unjournalled page does not survive both at once.
        troubles.clear();
    }
    plan.troubles.extend(troubles);
    plan.troubles.sort_by_key(|(at, _)| *at);
    plan.later.sort_by_key(|(at, _)| *at);
}

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    match LossVariant::of(case.scenario, case.seed) {
        LossVariant::Tpcc => tpcc::run_losing(case, plan, log),
        LossVariant::Bank => run_bank(case, plan, tune, log),
        variant => run_pages(case, plan, tune, log, variant),
    }
}

/// Kills the node that repairs a loss, in the variants in which it dies.
fn interrupt_helper(cluster: &SimCluster, gone: &LostNodes, variant: LossVariant, after: Duration) {
    match variant {
        LossVariant::RebuilderDies => interrupt(cluster, gone, after / 4, |state| {
            state.rebuilds.first().and_then(|rebuild| rebuild.by)
        }),
        LossVariant::RegeneratorDies => {
            interrupt(cluster, gone, after, |state| state.regeneration.map(|task| task.by));
        }
        _ => {}
    }
}

fn run_bank(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let mut cluster = start(case, plan, tune, log, bank::shaped)?;
    let mut branches = Bank::open(&cluster, case.seed)?;
    let env = cluster.world.env();
    let gone = LostNodes::default();
    let mut tally = OperationCounts::default();
    for round in 0..2 {
        let (controls, now) = (cluster.world.controls(), cluster.world.now());
        let troubles = if round == 0 { &plan.troubles } else { &plan.later };
        if round == 0 {
            plan.arrange(&controls, now);
        } else {
            plan.arrange_later(&controls, now);
        }
        let mut clients = Clients::new(&cluster);
        branches.spawn(&mut clients, case.seed, round)?;
        tally.add(cluster.run(clients.finish_all(&gone))??);
        cluster.run(made_good(&cluster.pool, &env, troubles, round == 0))??;
    }
    cluster.run(branches.check_trees())??;
    cluster.run(cluster.close(&[]))??;
    look(&cluster, false)?;
    cluster.start_engine()?;
    branches.open_branch(&cluster)?;
    cluster.run(branches.audit(&cluster, case.seed))??;
    cluster.run(branches.check_last_branch())??;
    branches.check_history()?;
    Ok(done(&cluster, &tally))
}

/// The pages whose headers are on memory nodes that are to die.
fn homed_on_victims(
    cluster: &SimCluster,
    pages: &CounterPages,
    troubles: &[(Duration, Trouble)],
) -> Vec<u64> {
    let dies = |node: u16| {
        let crash = Trouble::Crash(PeerId::memory(node));
        troubles.iter().any(|(_, trouble)| *trouble == crash)
    };
    let addrs = pages.addrs().iter().map(|addr| addr.to_u64());
    addrs.filter(|addr| cluster.home_of(*addr).is_some_and(dies)).collect()
}

fn run_pages(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
    variant: LossVariant,
) -> Result<RunOutcome, SimError> {
    let mut cluster = start(case, plan, tune, log, |_| {})?;
    let env = cluster.world.env();
    let nodes = cluster.engines.len();
    let random = SplitMix::of_stream(case.seed, 9);
    let joins = SplitMix::of_stream(case.seed, JOINS_STREAM);
    let grows = joins.below(4) == 0;
    // A node that joins gets slabs only where other nodes have several.
    let page_count = if random.below(4) == 0 || grows { MANY_PAGES } else { FEW_PAGES };
    let pages = cluster.run(CounterPages::allocate(&cluster, page_count))??;
    let gone = LostNodes::default();
    let after = Duration::from_nanos(random.below(2_000_000));
    interrupt_helper(&cluster, &gone, variant, after);
    let mut tally = OperationCounts::default();
    // Pages whose latch words were lost in a load in which a compute node died. It may have held
    // any of them.
    let mut in_doubt: BTreeSet<u64> = BTreeSet::new();
    for round in 0..2 {
        if grows {
            cluster.join_memory_after(Duration::from_nanos(joins.below(JOIN.as_nanos() as u64)));
        }
        let (controls, now) = (cluster.world.controls(), cluster.world.now());
        let troubles = if round == 0 { &plan.troubles } else { &plan.later };
        let (orphans, dead) = (homed_on_victims(&cluster, &pages, troubles), gone.all().len());
        if round == 0 {
            bury(&cluster, plan, &gone);
            plan.arrange(&controls, now);
            if variant == LossVariant::InWriteBack {
                interrupt_write_back(&cluster, &gone, &pages, after);
            }
        } else {
            plan.arrange_later(&controls, now);
        }
        let load = PageLoad {
            seed: case.seed,
            steps: STEPS,
            until: now + LOSS_LOAD,
            tolerance: Tolerance { lost: variant.loses_compute_nodes(), damaged: false },
            acknowledges: false,
            round,
        };
        let mut clients = Clients::new(&cluster);
        for node in (0..nodes).filter(|node| !gone.has_compute(*node)) {
            pages.spawn(&mut clients, node, load)?;
        }
        tally.add(cluster.run(clients.finish_all(&gone))??);
        pages.check_histories()?;
        cluster.run(made_good(&cluster.pool, &env, troubles, round == 0))??;
        if gone.all().len() > dead {
            in_doubt.extend(orphans);
        }
    }
    let losses = settle(&cluster, plan, &pages, &gone)?;
    let joined = cluster.memory.regions().len() - usize::from(case.memory_nodes());
    ensure(joined == if grows { 2 } else { 0 }, || format!("{joined} memory nodes joined"))?;
    tally.gave_up += check_contents(&mut cluster, &pages, &losses, &in_doubt)?;
    look(&cluster, false)?;
    Ok(done(&cluster, &tally))
}

/// Waits until the losses of the second load are repaired. Returns all nodes that were lost.
fn settle(
    cluster: &SimCluster,
    plan: &Plan,
    pages: &CounterPages,
    gone: &LostNodes,
) -> Result<Vec<PeerId>, SimError> {
    let env = cluster.world.env();
    let losses = gone.end();
    cluster.run(env.sleep(2 * LEASE))?;
    cluster.run(made_good(&cluster.pool, &env, &plan.later, false))??;
    if losses.is_empty() {
        cluster.run(cluster.check_lines(pages.addrs().len() as u64))??;
    }
    Ok(losses)
}

/// Stops the compute nodes and reads all pages from a new node. Returns how many pages are lost
/// with compute nodes. `in_doubt` are pages that may be lost with any of them.
fn check_contents(
    cluster: &mut SimCluster,
    pages: &CounterPages,
    losses: &[PeerId],
    in_doubt: &BTreeSet<u64>,
) -> Result<u64, SimError> {
    cluster.run(cluster.close(losses))??;
    let reader = cluster.start_engine()?;
    let may_be_lost = |pages: &CounterPages, page: usize| {
        let is_in_doubt = pages.addrs().get(page).is_some_and(|a| in_doubt.contains(&a.to_u64()));
        is_in_doubt || pages.may_be_lost_with(page, losses)
    };
    let lost_contents = cluster.run(pages.check_pages(&reader, may_be_lost))??;
    cluster.run(reader.close())??;
    let lost_pages: BTreeSet<u64> = cluster.pool.lost_pages().into_iter().collect();
    cluster.run(cluster.check_words(&lost_pages))??;
    Ok(lost_contents)
}

#[cfg(test)]
mod tests {
    use super::super::choices::loss_shape;
    use super::*;

    #[test]
    fn a_sweep_goes_through_all_choices_of_victims() {
        let mut seen: BTreeSet<(&str, Vec<u16>, Vec<u16>)> = BTreeSet::new();
        for seed in 0..10_000 {
            let case = Case::of(Scenario::MemnodeLoss, seed);
            if LossVariant::of(case.scenario, case.seed) == LossVariant::Tpcc {
                continue;
            }
            let (first, second) = victims(case);
            assert!(first.iter().all(|node| !second.contains(node)), "{first:?}, {second:?}");
            assert_eq!(second.len(), case.coding().parity());
            seen.insert((loss_shape(seed).0, first, second));
        }
        // 5 * 4, (6 over 2) * (4 over 2), 7 * (6 over 2), (5 over 2) * (3 over 2).
        assert_eq!(seen.len(), 20 + 15 * 6 + 7 * 15 + 10 * 3);
    }

    #[test]
    fn tpcc_goes_through_all_choices_of_victims_in_turn() {
        let mut seen: BTreeSet<(usize, Vec<u16>, Vec<u16>)> = BTreeSet::new();
        let mut firsts = BTreeSet::new();
        // The choices of who dies first with each shape, of 5, 8, 10 and 7 memory nodes.
        let turns = 5 + 28 + 45 + 21;
        for seed in 0..28 * turns {
            let case = Case::of(Scenario::TpccLoss, seed);
            let (nodes, (first, second)) = (case.memory_nodes(), victims(case));
            assert!(first.iter().chain(&second).all(|node| *node < nodes));
            assert!(first.iter().all(|node| !second.contains(node)), "{first:?}, {second:?}");
            assert_eq!([&first, &second].map(Vec::len), [case.coding().parity(); 2]);
            firsts.insert((case.coding().splits(), nodes, first.clone()));
            assert!(firsts.len() as u64 == turns.min(seed + 1), "each in turn");
            seen.insert((case.coding().splits(), first, second));
        }
        assert_eq!(seen.len(), 5 * 4 + 28 * 15 + 45 * 28 + 21 * 10);
        let asked = Case::of(Scenario::TpccLoss, 3).coded("4+1".parse().unwrap()).unwrap();
        assert_eq!((asked.memory_nodes(), victims(asked).0), (7, vec![3]));
    }
}
