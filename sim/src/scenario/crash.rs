//! Compute nodes with logs that die: see [`super::Scenario::Crash`].
//!
//! ```text
//! load, in which one dies, or another that recovers from it, or all
//!    -> recovered
//!    -> load of those that live, or of a fresh one
//!    -> they leave, a fresh one audits
//! or, if all logs are kept on a disk:
//! load, at any time in which or after which all die
//!    -> another world: logs read, pages put into a new pool
//!    -> audit, load, in which one may die
//!    -> as above
//! ```
//! Only dead nodes meet an error, no page is lost, and every latch word is free. The history of all
//! worlds together is strictly serializable: a transaction that a dead node had begun is there as a
//! whole or not at all, and one that it had acknowledged is there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::{LogStore, LogTo, Pages, merge};
use selkie_engine::{Engine, GAddr};
use selkie_fabric::PeerId;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;
use selkie_pool::Journal;
use selkie_pool::control::PoolState;
use selkie_pool::layout::EXTENT_GCLS;
use selkie_txn::is_unlinked;

use super::bank::{self, Bank};
use super::case::Case;
use super::choices::CRASH_COMPUTE_NODES;
use super::clients::Clients;
use super::deaths::{LEASE, bury_all, look, made_good};
use super::excuses::Excuses;
use super::lost_nodes::LostNodes;
use super::outcome::OperationCounts;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::random::drawn;
use super::start::Tune;
use super::start::start;
use crate::cluster::{SimCluster, SimShape};
use crate::disk::{AppendStage, DiskConfig, SimDisk};
use crate::error::{SimError, ensure};
use crate::plan::{Plan, Trouble};

/// Streams of the seed that draw the logs, who dies first, and who dies after that.
const LOGS_STREAM: u64 = 11;
const DEATH_STREAM: u64 = 12;
const LATER_STREAM: u64 = 13;
/// Stream that draws whether a third node dies.
const THIRD_STREAM: u64 = 15;
/// Stream that draws the seed of the next world.
const WORLD_STREAM: u64 = 14;
/// Transactions of each teller, enough to truncate logs meanwhile, and after the deaths.
const STEPS: u64 = 150;
const LATER_STEPS: u64 = 25;
/// Time of a load in which a node dies.
const SPAN: Duration = Duration::from_millis(25);
/// Verbs, and appends to its log, of a node in a load, about.
const VERBS: u64 = 6_000;
const APPENDS: u64 = 120;
/// Bytes of the log of each compute node at each memory node, the least, and on a disk, at least.
const LOG_BYTES: u64 = 64 << 10;
/// Longest that a disk is full.
const OUTAGE: Duration = Duration::from_millis(150);
/// Interval at which the next victim is polled.
const LOOK_EVERY: Duration = Duration::from_micros(20);

/// The place of the logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogPlace {
    Memory,
    Disk,
    /// A disk that keeps truncated pieces as well, as the pool will be lost.
    Archive,
}

impl LogPlace {
    fn of(seed: u64) -> Self {
        let choices = [Self::Memory, Self::Memory, Self::Disk, Self::Disk, Self::Archive];
        *drawn(seed, LOGS_STREAM, &choices)
    }

    /// The disk of the logs, unless they are in memory.
    fn disk(self, random: &SplitMix) -> Option<SimDisk> {
        (self != Self::Memory).then(|| {
            let capacity = LOG_BYTES << random.below(3);
            let is_archive = self == Self::Archive;
            SimDisk::new(DiskConfig { seed: random.next_u64(), capacity, is_archive })
        })
    }
}

/// Which node dies after the first, while the pool recovers from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LaterDeath {
    NoDeath,
    /// The one that sweeps the latch words.
    Sweeper,
    /// Any of the others.
    Other,
    /// The one that sweeps, and then the next one that does.
    Sweepers,
    /// One after the other, all.
    All,
}

impl LaterDeath {
    fn of(case: Case) -> Self {
        if case.has_processes() && SplitMix::of_stream(case.seed, THIRD_STREAM).below(4) == 0 {
            return Self::Sweepers;
        }
        match SplitMix::of_stream(case.seed, LATER_STREAM).below(12) {
            0..=5 => Self::NoDeath,
            6..=7 => Self::Sweeper,
            8..=9 => Self::Other,
            _ => Self::All,
        }
    }
}

fn nanos_below(random: &SplitMix, span: Duration) -> Duration {
    Duration::from_nanos(random.below(span.as_nanos() as u64))
}

/// The plan of a case of this scenario.
fn plan_of(case: Case) -> Plan {
    let mut plan = case.draw_plan();
    lose_nodes(case, &mut plan);
    plan
}

/// Makes the plan lose the nodes that the run chooses, and no others.
pub(super) fn lose_nodes(case: Case, plan: &mut Plan) {
    plan.spare_all_nodes();
    let random = SplitMix::of_stream(case.seed, DEATH_STREAM);
    let victim = PeerId::compute(random.below(u64::from(CRASH_COMPUTE_NODES)) as u16);
    let stages = [AppendStage::Before, AppendStage::Amid, AppendStage::After];
    let stage = stages.get(random.below(3) as usize).copied().unwrap_or(AppendStage::Amid);
    let is_on_disk = LogPlace::of(case.seed) != LogPlace::Memory;
    let death = match random.below(3) {
        0 => (nanos_below(&random, SPAN), Trouble::Kill(victim)),
        1 if is_on_disk => {
            (Duration::ZERO, Trouble::KillInAppend(victim, 1 + random.below(APPENDS), stage))
        }
        _ => (Duration::ZERO, Trouble::KillAtVerb(victim, 1 + random.below(VERBS))),
    };
    plan.troubles.push(death);
    // An unjournalled page does not survive the loss of its writer and of memory at once, and a
    // surviving compute node must rebuild the headers.
    let survives = case.coding().journal() == Journal::Always
        && !matches!(LaterDeath::of(case), LaterDeath::All | LaterDeath::Sweepers);
    if survives && random.below(2) == 0 {
        let memory = PeerId::memory(random.below(u64::from(case.memory_nodes())) as u16);
        plan.troubles.push((nanos_below(&random, SPAN), Trouble::Crash(memory)));
    }
    plan.troubles.sort_by_key(|(at, _)| *at);
}

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let logs = LogPlace::of(case.seed);
    let random = SplitMix::of_stream(case.seed, LOGS_STREAM + 100);
    let disk = logs.disk(&random);
    let tune = |config: &mut selkie_engine::EngineConfig| {
        if disk.is_none() {
            config.log = Some(LogTo::Memory);
        }
        tune(config);
    };
    let shaped = |shape: &mut SimShape| {
        bank::shaped(shape);
        shape.disk.clone_from(&disk);
        shape.log_bytes = if disk.is_none() { LOG_BYTES } else { 0 };
    };
    let sink = log.map(|log| Arc::new(Mutex::new(log)));
    let sink = || -> Option<TraceSink> {
        let sink = Arc::clone(sink.as_ref()?);
        Some(Box::new(move |line: &str| (sink.lock())(line)))
    };
    let mut cluster = start(case, plan, &tune, sink(), shaped)?;
    let mut bank = Bank::open(&cluster, case.seed)?;
    bank.log_may_be_late = disk.is_some();
    bank.set_steps(STEPS, Duration::ZERO);
    let mut deaths = Deaths::arrange(case, &cluster, plan, disk.as_ref(), &random);
    let Some(disk) = disk.as_ref().filter(|_| logs == LogPlace::Archive) else {
        deaths.go_on(&cluster, &random, LaterDeath::of(case));
        let tally = Loads { case, plan, round: 0 }.run(&mut cluster, &mut bank, &deaths)?;
        bank.check_history()?;
        return Ok(done(&cluster, &tally));
    };
    let mut tally = load_until_all_die(case, &cluster, &mut bank, &deaths, &random)?;
    let (first, ended) = (done(&cluster, &tally), cluster.world.now());
    drop(cluster);
    disk.spare_all();
    // In the next world.
    let seed = SplitMix::of_stream(case.seed, WORLD_STREAM).next_u64();
    let next = Case::of(case.scenario, seed).within(case.envelope());
    let is_calm = plan.lost().is_empty();
    let plan = if is_calm { plan.clone() } else { plan_of(next) };
    let after = disk.incarnations();
    let mut cluster = start(next, &plan, &tune, sink(), |shape| {
        shaped(shape);
        shape.after.clone_from(&after);
        shape.memory_nodes = usize::from(next.memory_nodes()).max(shape.memory_nodes);
    })?;
    let lines = cluster.run(lines_of(disk, cluster.gcl_bytes()))??;
    cluster.run(cluster.engine(0)?.restore(&lines, selkie_txn::written_at))??;
    let mut bank = bank.reopened(&cluster, ended)?;
    cluster.run(bank.audit(&cluster, case.seed))??;
    cluster.run(bank.check_trees())??;
    bank.set_steps(LATER_STEPS, Duration::ZERO);
    let plan = if random.below(2) == 0 { plan } else { plan.without_losses() };
    let deaths = Deaths::arrange(next, &cluster, &plan, Some(disk), &random);
    let loads = Loads { case: next, plan: &plan, round: 2 };
    tally.add(loads.run(&mut cluster, &mut bank, &deaths)?);
    bank.check_history()?;
    let second = done(&cluster, &tally);
    let trace_hash = first.trace_hash.rotate_left(1) ^ second.trace_hash;
    Ok(RunOutcome { trace_hash, virtual_time: ended + second.virtual_time, ..second })
}

/// The load of the first world. In one run of two, all nodes die during it.
fn load_until_all_die(
    case: Case,
    cluster: &SimCluster,
    bank: &mut Bank,
    deaths: &Deaths<'_>,
    random: &SplitMix,
) -> Result<OperationCounts, SimError> {
    let mut tally = OperationCounts::default();
    if random.below(2) == 0 {
        deaths.kill_all_within(cluster, random);
    }
    let mut clients = Clients::new(cluster);
    bank.spawn(&mut clients, case.seed, 0)?;
    tally.add(deaths.excuses.finish(clients)?);
    Ok(tally)
}

/// All pages that are in logs.
async fn lines_of(
    disk: &SimDisk,
    line_bytes: usize,
) -> Result<BTreeMap<GAddr, Box<[u8]>>, SimError> {
    let mut pages = Pages::new(line_bytes);
    merge(disk, &disk.owners().await?, &mut pages, false).await?;
    pages.retain(|page| !is_unlinked(page));
    Ok(pages.into_lines())
}

/// The deaths of a load.
struct Deaths<'d> {
    gone: LostNodes,
    excuses: Excuses,
    disk: Option<&'d SimDisk>,
    /// When the plan has no more troubles.
    over: Duration,
}

impl<'d> Deaths<'d> {
    /// Arranges for the plan's troubles, and now and then for a full disk.
    fn arrange(
        case: Case,
        cluster: &SimCluster,
        plan: &Plan,
        disk: Option<&'d SimDisk>,
        random: &SplitMix,
    ) -> Self {
        let (gone, now) = (LostNodes::default(), cluster.world.now());
        let excuses = Excuses::of(case, plan, cluster).losing(&gone);
        bury_all(cluster, &gone);
        plan.arrange_in(cluster);
        if let Some(disk) = disk {
            for (_, trouble) in &plan.troubles {
                if let Trouble::KillInAppend(peer, number, stage) = *trouble {
                    disk.kill_in_append(peer.index(), number, stage);
                }
            }
            if random.below(4) == 0 {
                let (node, from) =
                    (random.below(u64::from(CRASH_COMPUTE_NODES)), now + nanos_below(random, SPAN));
                disk.fill_up(node as u16, from..from + nanos_below(random, OUTAGE));
            }
        }
        let last = plan.troubles.iter().map(|(at, _)| *at).max().unwrap_or_default();
        Self { gone, excuses, disk, over: now + last }
    }

    /// Kills other nodes while the pool recovers from the first.
    fn go_on(&mut self, cluster: &SimCluster, random: &SplitMix, later: LaterDeath) {
        let other = random.below(u64::from(CRASH_COMPUTE_NODES)) as u16;
        let spans = [SPAN, LEASE, LEASE / 20];
        let span = spans.get(random.below(3) as usize).copied().unwrap_or(SPAN);
        let after = nanos_below(random, span);
        match later {
            LaterDeath::NoDeath => {}
            LaterDeath::Sweeper => self.strike(cluster, after / 10, |state| {
                state.lost.values().find_map(|lost| lost.sweeper)
            }),
            LaterDeath::Sweepers => {
                for nth in 0..2 {
                    let mut left = nth;
                    let mut before = None;
                    self.strike(cluster, after / 10, move |state| {
                        let now = state.lost.values().find_map(|lost| lost.sweeper);
                        if now.is_some() && now != before {
                            before = now;
                            if left == 0 {
                                return now;
                            }
                            left -= 1;
                        }
                        None
                    });
                }
            }
            LaterDeath::Other => {
                self.strike(cluster, after, move |state| (!state.lost.is_empty()).then_some(other))
            }
            LaterDeath::All => {
                for node in 0..CRASH_COMPUTE_NODES {
                    let after = nanos_below(random, SPAN / 2);
                    self.strike(cluster, after, move |state| {
                        (!state.lost.is_empty()).then_some(node)
                    });
                }
            }
        }
    }

    /// Kills the first compute node that `who` finds in the state of the pool.
    fn strike(
        &self,
        cluster: &SimCluster,
        after: Duration,
        mut who: impl FnMut(&PoolState) -> Option<u16> + Send + 'static,
    ) {
        let (pool, controls, env) =
            (Arc::clone(&cluster.pool), cluster.world.controls(), cluster.world.env());
        let gone = self.gone.clone();
        drop(env.clone().spawn("assassin", async move {
            let node = loop {
                if let Some(node) = who(&pool.state()) {
                    break node;
                }
                env.sleep(LOOK_EVERY).await;
            };
            env.sleep(after).await;
            if gone.add(PeerId::compute(node)) {
                controls.kill(PeerId::compute(node));
            }
        }));
    }

    /// Kills all nodes at a random time.
    fn kill_all_within(&self, cluster: &SimCluster, random: &SplitMix) {
        let at = cluster.world.now() + nanos_below(random, SPAN);
        cluster.world.controls().at(at, |controls| {
            for node in 0..CRASH_COMPUTE_NODES {
                controls.kill(PeerId::compute(node));
            }
        });
    }

    /// Ends the deaths; waits until the pool has recovered from all of them.
    fn end(&self, cluster: &SimCluster) -> Result<Vec<PeerId>, SimError> {
        let controls = cluster.world.controls();
        (0..CRASH_COMPUTE_NODES)
            .for_each(|node| controls.kill_after_verbs(PeerId::compute(node), None));
        self.disk.into_iter().for_each(SimDisk::spare_all);
        let env = cluster.world.env();
        // Loads may be over before.
        let left = self.over.saturating_sub(cluster.world.now());
        cluster.run(env.sleep(left + 2 * LOOK_EVERY))?;
        let losses = self.excuses.end(cluster, &self.gone)?;
        cluster.run(env.sleep(2 * LEASE))?;
        Ok(losses)
    }
}

/// Loads on one cluster.
struct Loads<'p> {
    case: Case,
    plan: &'p Plan,
    /// Of the first of them.
    round: usize,
}

impl Loads<'_> {
    /// Runs a load in which nodes die, then a load of the survivors or of a new node; then checks
    /// everything from another new node.
    fn run(
        &self,
        cluster: &mut SimCluster,
        bank: &mut Bank,
        deaths: &Deaths<'_>,
    ) -> Result<OperationCounts, SimError> {
        let Self { case, plan, round } = *self;
        let mut tally = OperationCounts::default();
        let mut clients = Clients::new(cluster);
        bank.spawn(&mut clients, case.seed, round)?;
        tally.add(deaths.excuses.finish(clients)?);
        let losses = deaths.end(cluster)?;
        if deaths.excuses.loses_data {
            return Ok(tally);
        }
        bank.close_branches(&deaths.gone);
        if bank.has_no_branch() {
            cluster.start_engine()?;
            bank.open_branch(cluster)?;
        }
        bank.set_steps(LATER_STEPS, Duration::ZERO);
        let mut clients = Clients::new(cluster);
        bank.spawn(&mut clients, case.seed, round + 1)?;
        tally.add(cluster.run(clients.finish_all(&LostNodes::default()))??);
        let env = cluster.world.env();
        cluster.run(made_good(&cluster.pool, &env, &plan.troubles, true))??;
        nothing_is_lost(cluster)?;
        cluster.run(bank.check_trees())??;
        cluster.run(cluster.close(&losses))??;
        look_at(cluster)?;
        let reader = cluster.start_engine()?;
        bank.open_branch(cluster)?;
        cluster.run(bank.audit(cluster, case.seed))??;
        cluster.run(bank.check_last_branch())??;
        cluster.run(lines_are_free(cluster, bank, &reader, &deaths.gone))??;
        cluster.run(reader.close())??;
        nothing_is_lost(cluster)?;
        cluster.run(cluster.check_words(&BTreeSet::new()))??;
        Ok(tally)
    }
}

/// Checks memory, if the pool is coded.
fn look_at(cluster: &SimCluster) -> Result<(), SimError> {
    if cluster.pool.descriptor().coding.is_plain() { Ok(()) } else { look(cluster, true) }
}

/// Checks, at the only node in the pool, that it can use what others had that are gone. A death may
/// cut the lease of an extent short, and the notes of lines that were freed just before; a memory
/// node takes the notes of all with it that died.
async fn lines_are_free(
    cluster: &SimCluster,
    bank: &Bank,
    reader: &Engine,
    gone: &LostNodes,
) -> Result<(), SimError> {
    let used = bank.pages(reader).await?;
    let census = reader.repair_lines(&used, true).await?;
    let (fresh, reusable, held) = reader.unused_lines();
    let free = reader.lines_for_all().await?.len() as u64 + fresh + reusable + held;
    let missing = census.leased.saturating_sub(census.in_use + free);
    let dead = gone.all().into_iter().filter(|peer| !peer.is_memory()).count() as u64;
    let is_memory_lost = cluster.pool.state().memory_nodes.iter().flatten().any(|node| node.dead);
    let lost = if is_memory_lost && dead > 0 { census.leased / 2 } else { 0 };
    ensure(missing <= 2 * EXTENT_GCLS * dead + lost, || {
        format!("{missing} lines are neither in use nor free: {census:?}, free {free}, {dead} dead")
    })
}

fn nothing_is_lost(cluster: &SimCluster) -> Result<(), SimError> {
    let (pages, dead) = (cluster.pool.lost_pages(), cluster.pool.dead());
    let claim = || format!("pages {pages:x?} are lost with {dead:?}");
    ensure(pages.is_empty() && dead.is_empty(), claim)
}
