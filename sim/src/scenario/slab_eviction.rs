//! Hosts of memory nodes run short of memory for a while: see [`super::Scenario::SlabEviction`].
//!
//! ```text
//! load, in which hosts run short and recover: slabs are evicted, and lent again
//!  -> a short host got back what it needs, or all slabs; what was given back is unowned and zero
//!  -> no host is short: all is lent again  -> pages in new ranges, load
//!  -> compute nodes leave, a fresh one reads everything
//! ```
//! Which hosts, when, and by how many slabs, is drawn. In some runs a compute node dies, any or the
//! one that moves a slab, in others as many memory nodes as the coding has parity. In some a memory
//! node joins.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::PeerId;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;
use selkie_memnode::monitor::MonitorConfig;
use selkie_pool::Pool;

use super::case::Case;
use super::clients::Clients;
use super::deaths::{LEASE, bury, check_rest, interrupt, interrupt_write_back, made_good};
use super::lost_nodes::LostNodes;
use super::outcome::OperationCounts;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::page_client::{PageLoad, Tolerance};
use super::pages::{CounterPages, FEW_PAGES, MANY_PAGES};
use super::start::Tune;
use super::start::start;
use crate::cluster::{SimCluster, SimMemory};
use crate::error::{SimError, ensure};
use crate::plan::{Plan, Trouble};

/// Streams of the seed that draw what happens to hosts, and who dies.
const SHORTAGE_STREAM: u64 = 11;
const VICTIMS_STREAM: u64 = 12;
const VARIANT_STREAM: u64 = 13;
/// Stream of the seed that draws whether a memory node joins, and when.
const JOINS_STREAM: u64 = 14;
const STEPS: usize = 100;
/// Virtual time of a load: long enough for some slabs to move.
const LOAD: Duration = Duration::from_millis(200);
/// The load on what was lent again.
const LATER_LOAD: Duration = Duration::from_millis(20);
/// How often a memory node looks at the memory of its host.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// What is to be free, in slabs.
const HEADROOM_SLABS: u64 = 8;
/// Slabs of memory that a host has beyond all that its node could lend, headroom and margin.
const SPARE_SLABS: u64 = 2;
/// Slabs that a host is short of, unless it is of all.
const MOST_SHORT: u64 = 3;
/// Until then what is under way is over.
const OVER_WITHIN: Duration = Duration::from_secs(20);
/// Looks after which nothing that is given back can change any more.
const MOST_LOOKS: usize = 100;

/// The nodes that die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DeathVariant {
    NoDeath,
    /// A compute node at any time.
    WriterDies,
    /// A compute node in the middle of a write-back.
    InWriteBack,
    /// The compute node that moves a slab.
    MoverDies,
    /// As many memory nodes as there are parity splits, or fewer.
    MemoryDies,
}

impl DeathVariant {
    fn of(case: Case) -> Self {
        match SplitMix::of_stream(case.seed, VARIANT_STREAM).below(8) {
            0 => Self::WriterDies,
            1 | 2 => Self::MoverDies,
            3 | 4 => Self::MemoryDies,
            5 => Self::InWriteBack,
            _ => Self::NoDeath,
        }
    }
}

/// Makes the plan lose the nodes that the run chooses, and no others.
pub(super) fn lose_nodes(case: Case, plan: &mut Plan) {
    plan.spare_all_nodes();
    let random = SplitMix::of_stream(case.seed, VICTIMS_STREAM);
    let at = || Duration::from_nanos(random.below(LOAD.as_nanos() as u64));
    match DeathVariant::of(case) {
        DeathVariant::WriterDies => {
            let node = random.below(u64::from(case.compute_nodes())) as u16;
            plan.troubles.push((at(), Trouble::Kill(PeerId::compute(node))));
        }
        DeathVariant::MemoryDies => {
            let mut nodes: Vec<u16> = (0..case.memory_nodes()).collect();
            for _ in 0..=random.below(case.coding().parity() as u64) {
                let node = nodes.swap_remove(random.below(nodes.len() as u64) as usize);
                plan.troubles.push((at(), Trouble::Crash(PeerId::memory(node))));
            }
        }
        DeathVariant::NoDeath | DeathVariant::InWriteBack | DeathVariant::MoverDies => {}
    }
    plan.troubles.sort_by_key(|(at, _)| *at);
}

/// A host that has less memory from a time on, until it has it again, if it does in the load.
#[derive(Clone, Copy, Debug)]
struct Shortage {
    node: u16,
    from: Duration,
    until: Option<Duration>,
    slabs: u64,
}

fn shortages(case: Case) -> Vec<Shortage> {
    let random = SplitMix::of_stream(case.seed, SHORTAGE_STREAM);
    let coding = case.coding();
    let mut nodes: Vec<u16> = (0..case.memory_nodes()).collect();
    // The others are to have room for a slab of every position.
    let most = match DeathVariant::of(case) {
        DeathVariant::MemoryDies => 1,
        _ => coding.parity() + 1,
    };
    let mut all = Vec::new();
    for _ in 0..=random.below(most as u64) {
        let node = nodes.swap_remove(random.below(nodes.len() as u64) as usize);
        let mut now = Duration::ZERO;
        for _ in 0..=random.below(3) {
            let span = || Duration::from_nanos(random.below(LOAD.as_nanos() as u64 / 2));
            let from = now + span();
            let until = (random.below(4) != 0).then(|| from + span());
            let slabs = match random.below(3) {
                0 => u64::from(u32::MAX),
                _ => 1 + random.below(MOST_SHORT),
            };
            all.push(Shortage { node, from, until, slabs });
            let Some(until) = until else { break };
            now = until;
        }
    }
    // What is lent again after the load stays so.
    all.retain(|shortage| shortage.from < LOAD);
    all
}

/// The hosts of the memory nodes: how many slabs' memory others take there.
#[derive(Clone)]
struct Hosts {
    pool: Arc<Pool>,
    others: Arc<Mutex<Vec<u64>>>,
}

impl Hosts {
    fn of(cluster: &SimCluster) -> Self {
        let others = vec![0; cluster.memory.regions().len()];
        Self { pool: Arc::clone(&cluster.pool), others: Arc::new(Mutex::new(others)) }
    }

    fn slab_bytes(&self) -> u64 {
        self.pool.descriptor().geometry().slab_bytes()
    }

    fn headroom(&self) -> u64 {
        HEADROOM_SLABS * self.slab_bytes()
    }

    /// Free memory of a host, in slabs. Its node takes what lies in slabs of ranges.
    fn free_slabs(&self, node: u16) -> u64 {
        let state = self.pool.state();
        let lent = state.memory_node(node).map_or(0, |node| u64::from(node.ranges));
        let all = HEADROOM_SLABS + 1 + SPARE_SLABS + lent;
        let others = self.others.lock().get(usize::from(node)).copied().unwrap_or(0);
        all.saturating_sub(others).saturating_sub(self.pool.state().slabs_on(node) as u64)
    }

    /// Others take so much that the host is that many slabs short of its headroom.
    fn run_short(&self, node: u16, slabs: u64) {
        self.recover(node);
        let free = self.free_slabs(node);
        let others = free.saturating_sub(HEADROOM_SLABS).saturating_add(slabs);
        if let Some(own) = self.others.lock().get_mut(usize::from(node)) {
            *own = others;
        }
    }

    fn recover(&self, node: u16) {
        if let Some(own) = self.others.lock().get_mut(usize::from(node)) {
            *own = 0;
        }
    }

    /// Has the memory nodes look after their hosts.
    fn watch(&self, cluster: &SimCluster) {
        let slab_bytes = self.slab_bytes();
        for node in 0..cluster.memory.regions().len() {
            // The task of the monitor is not to keep the pool.
            let (pool, others) = (Arc::downgrade(&self.pool), Arc::clone(&self.others));
            let source = move || {
                let pool = pool.upgrade().ok_or(std::io::ErrorKind::NotFound)?;
                let hosts = Hosts { pool, others: Arc::clone(&others) };
                Ok(hosts.free_slabs(node as u16) * slab_bytes)
            };
            let config = MonitorConfig::new(self.headroom(), source);
            let config = MonitorConfig { every: LOOK_EVERY, ..config };
            cluster.memory.start_monitor(node, &cluster.world.env(), config);
        }
    }

    /// Arranges for what happens to hosts.
    fn arrange(&self, cluster: &SimCluster, shortages: &[Shortage]) {
        let now = cluster.world.now();
        let controls = cluster.world.controls();
        for Shortage { node, from, until, slabs } in shortages.iter().copied() {
            let hosts = self.clone();
            controls.at(now + from, move |_| hosts.run_short(node, slabs));
            if let Some(until) = until {
                let hosts = self.clone();
                controls.at(now + until, move |_| hosts.recover(node));
            }
        }
    }

    /// Whether a node has given back what its host needs, or all it could.
    fn is_content(&self, node: u16) -> bool {
        let state = self.pool.state();
        self.free_slabs(node) >= HEADROOM_SLABS || state.slabs_on(node) == 0 || !state.lives(node)
    }
}

/// Waits until something is so.
async fn until(cluster: &SimCluster, what: &str, is_so: impl Fn() -> bool) -> Result<(), SimError> {
    let env = cluster.world.env();
    let started = env.now();
    while !is_so() {
        if env.now() - started > OVER_WITHIN {
            let state = cluster.pool.state();
            let nodes: Vec<_> = state.memory_nodes.iter().flatten().map(|m| &m.reclaim).collect();
            let (task, ranges) = (&state.migration, &state.ranges);
            return Err(SimError::Broken(format!(
                "{OVER_WITHIN:?} after a load {what}: {nodes:?}, migration {task:?}, ranges {ranges:?}"
            )));
        }
        env.sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Checks that what was given back is unowned and zero.
fn check_withdrawn(memory: &SimMemory) -> Result<(), SimError> {
    let pool = memory.pool();
    let (state, geometry) = (pool.state(), pool.descriptor().geometry());
    for (node, region) in (0..).zip(memory.regions()) {
        let Some(reclaim) = state.reclaim_of(node).filter(|_| state.lives(node)) else { continue };
        for slab in reclaim.withdrawn.iter() {
            let own = |other: &selkie_pool::control::Slab| (other.node, other.slab) == (node, slab);
            let in_use = state.ranges.iter().flat_map(|range| &range.slabs).any(own);
            ensure(!in_use, || format!("slab {slab} of mem{node} is withdrawn, and in use"))?;
            let mut bytes = vec![0; geometry.slab_bytes() as usize];
            region.read(geometry.slab_offset(slab) as usize, &mut bytes);
            let wrong = bytes.iter().position(|byte| *byte != 0);
            ensure(wrong.is_none(), || {
                format!(
                    "byte {wrong:?} of slab {slab} of mem{node}, which was given back, is not zero"
                )
            })?;
        }
    }
    Ok(())
}

/// A run, as far as it is.
struct EvictionRun<'c> {
    case: Case,
    cluster: &'c SimCluster,
    gone: LostNodes,
    tally: OperationCounts,
}

impl EvictionRun<'_> {
    fn load(&mut self, pages: &CounterPages, span: Duration, round: usize) -> Result<(), SimError> {
        let lost = !matches!(
            DeathVariant::of(self.case),
            DeathVariant::NoDeath | DeathVariant::MemoryDies
        );
        let load = PageLoad {
            seed: self.case.seed,
            steps: STEPS,
            until: self.cluster.world.now() + span,
            tolerance: Tolerance { lost, damaged: false },
            acknowledges: false,
            round,
        };
        let mut clients = Clients::new(self.cluster);
        let nodes = 0..self.cluster.engines.len();
        for node in nodes.filter(|node| !self.gone.has_compute(*node)) {
            pages.spawn(&mut clients, node, load)?;
        }
        let tally = self.cluster.run(clients.finish_all(&self.gone))??;
        self.tally.add(tally);
        pages.check_histories()
    }
}

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let mut cluster = start(case, plan, tune, log, |_| {})?;
    let env = cluster.world.env();
    let random = SplitMix::of_stream(case.seed, 9);
    let page_count = if random.below(2) == 0 { MANY_PAGES } else { FEW_PAGES };
    let pages = cluster.run(CounterPages::allocate(&cluster, page_count))??;
    let gone = LostNodes::default();
    if DeathVariant::of(case) == DeathVariant::MoverDies {
        let after = Duration::from_nanos(random.below(2_000_000));
        interrupt(&cluster, &gone, after, |state| state.migration.map(|task| task.by));
    }
    let hosts = Hosts::of(&cluster);
    hosts.watch(&cluster);
    let shortages = shortages(case);
    hosts.arrange(&cluster, &shortages);
    bury(&cluster, plan, &gone);
    plan.arrange_in(&cluster);
    if DeathVariant::of(case) == DeathVariant::InWriteBack {
        let after = Duration::from_nanos(random.below(LOAD.as_nanos() as u64 / 2));
        interrupt_write_back(&cluster, &gone, &pages, after);
    }
    let joins = SplitMix::of_stream(case.seed, JOINS_STREAM);
    if joins.below(4) == 0 {
        cluster.join_memory_after(Duration::from_nanos(joins.below(LOAD.as_nanos() as u64)));
    }
    let mut run = EvictionRun {
        case,
        cluster: &cluster,
        gone: gone.clone(),
        tally: OperationCounts::default(),
    };
    run.load(&pages, LOAD, 0)?;
    cluster.run(made_good(&cluster.pool, &env, &plan.troubles, true))??;
    give_back_and_lend_again(&cluster, case, &hosts)?;
    // A node that was killed at the end of a move is declared dead within this time.
    cluster.run(env.sleep(2 * LEASE))?;
    cluster.run(made_good(&cluster.pool, &env, &plan.troubles, true))??;
    let mut later = None;
    if !gone.has_compute(0) {
        let pages = cluster.run(CounterPages::allocate(&cluster, MANY_PAGES))??;
        run.load(&pages, LATER_LOAD, 1)?;
        later = Some(pages);
    }
    let EvictionRun { mut tally, .. } = run;
    let all: Vec<&CounterPages> = [Some(&pages), later.as_ref()].into_iter().flatten().collect();
    tally.gave_up += check_rest(&mut cluster, &gone, &all)?;
    Ok(done(&cluster, &tally))
}

/// Waits until no host is short of memory, looks at what they got back, and waits until all is lent
/// again.
fn give_back_and_lend_again(
    cluster: &SimCluster,
    case: Case,
    hosts: &Hosts,
) -> Result<(), SimError> {
    let env = cluster.world.env();
    let all = 0..case.memory_nodes();
    let content = || all.clone().all(|node| hosts.is_content(node));
    let quiet = || cluster.pool.state().migration.is_none();
    let reclaims = || {
        let state = cluster.pool.state();
        all.clone().map(|node| state.reclaim_of(node).cloned()).collect::<Vec<_>>()
    };
    let mut rests = false;
    for _ in 0..MOST_LOOKS {
        cluster.run(until(cluster, "a host is short of memory", || content() && quiet()))??;
        // The monitors take note of it, unless something else happens meanwhile.
        let before = reclaims();
        cluster.run(env.sleep(2 * LOOK_EVERY))?;
        rests = before == reclaims();
        if rests {
            break;
        }
    }
    ensure(rests, || "what is given back changes all the time".to_owned())?;
    check_withdrawn(&cluster.memory)?;
    all.clone().for_each(|node| hosts.recover(node));
    let is_lent = |node| {
        let state = cluster.pool.state();
        let reclaim = state.reclaim_of(node);
        !state.lives(node)
            || reclaim.is_some_and(|own| own.withdrawn.is_empty() && own.evicting.is_empty())
    };
    let lent = || all.clone().all(is_lent);
    cluster.run(until(cluster, "not all is lent again", lent))?
}
