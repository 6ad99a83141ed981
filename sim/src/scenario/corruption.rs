//! Bits of splits that change by themselves: see [`super::Scenario::Corruption`].
//!
//! At times drawn from the seed a bit of a split, or of its tag, is turned over in the memory of a
//! memory node. Of each page it is always the same split: more of them wrong at a time than the
//! coding can tell is not what it promises to notice. Headers are not touched, nothing protects
//! them. Where damage is to be corrected the load is TPC-C in a quarter of the runs. In a quarter
//! of the runs in which damage is to be corrected a compute node dies in a write-back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, GAddr};
use selkie_fabric::LocalRegion;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;
use selkie_pool::Mode;
use selkie_pool::layout::TAG_BYTES;

use super::case::Case;
use super::clients::Clients;
use super::deaths::{LEASE, interrupt_write_back, made_good};
use super::lost_nodes::LostNodes;
use super::outcome::OperationCounts;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::page_client::{PageLoad, Tolerance};
use super::pages::{CounterPages, FEW_PAGES, MANY_PAGES};
use super::start::Tune;
use super::start::start;
use super::tpcc;
use crate::cluster::{SimCluster, is_as_written};
use crate::error::{SimError, ensure};
use crate::plan::{Plan, SPAN};

/// Streams of the seed that draw how many pages there are, and whether a compute node dies, and
/// when.
const PAGES_STREAM: u64 = 11;
const DEATH_STREAM: u64 = 12;
/// Stream of the seed that draws what the load is.
const LOAD_STREAM: u64 = 13;
const STEPS: usize = 150;
/// Bits turned over during the load, at most and at least.
const MOST_FLIPS: u64 = 400;
const LEAST_FLIPS: u64 = 50;
/// Bits turned over when the load is over, so that there is something to be found at the end.
const LAST_FLIPS: u64 = 50;
/// Bits of one split that are told apart.
const MOST_OF_A_SPLIT: usize = 20;
/// Within which what was found is mended.
const MENDED_WITHIN: Duration = Duration::from_secs(5);

/// A split in the memory of a memory node, and a bit of it that is turned over, or of its tag.
struct Flip {
    region: Arc<dyn LocalRegion>,
    node: usize,
    /// Offset of the split.
    split_at: usize,
    bit: usize,
}

impl Flip {
    fn happen(&self) {
        let at = self.split_at + self.bit / 64 * 8;
        self.region.store(at, self.region.load(at) ^ 1 << (self.bit % 64));
    }
}

/// The bits that were turned over, of each split (memory node, offset), since it was last as it was
/// written.
type Damage = Arc<Mutex<BTreeMap<(usize, usize), Vec<Flip>>>>;

/// Draws bits to be turned over.
struct Decay {
    random: SplitMix,
    splits: usize,
    /// Versions are spared: by them it is known afterwards what was written again.
    spares_versions: bool,
}

impl Decay {
    fn draw(&self, cluster: &SimCluster, pages: &[GAddr]) -> Option<Flip> {
        let number = self.random.below(pages.len() as u64) as usize;
        let addr = pages.get(number)?.to_u64();
        // Pages follow each other, so this is another one for each of them.
        let place = cluster.split_place(addr, number / 3 % self.splits)?;
        let bytes = cluster.pool.descriptor().geometry().payload_bytes() + TAG_BYTES as usize;
        let bit = self.random.below(8 * bytes as u64) as usize;
        let version = 8 * (bytes - TAG_BYTES as usize);
        let spared = self.spares_versions && (version..version + 32).contains(&bit);
        let bit = if spared { bit + 32 } else { bit };
        let region = cluster.memory.region(place.node)?;
        Some(Flip { region, node: place.node, split_at: place.offset, bit })
    }
}

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let mode = case.coding().mode();
    let is_tpcc = SplitMix::of_stream(case.seed, LOAD_STREAM).below(4) == 0;
    if mode == Mode::Correct && is_tpcc {
        return tpcc::run_decaying(case, plan, log);
    }
    let mut cluster = start(case, plan, tune, log, |_| {})?;
    let has_many = SplitMix::of_stream(case.seed, PAGES_STREAM).below(3) == 0;
    let page_count = if has_many { MANY_PAGES } else { FEW_PAGES };
    let pages = cluster.run(CounterPages::allocate(&cluster, page_count))??;
    let decay = Decay {
        random: SplitMix::of_stream(case.seed, 8),
        splits: case.coding().splits(),
        spares_versions: mode == Mode::Detect,
    };
    let death = SplitMix::of_stream(case.seed, DEATH_STREAM);
    let dies = mode == Mode::Correct && death.below(4) == 0;
    let now = cluster.world.now();
    plan.arrange_in(&cluster);
    let load = PageLoad {
        seed: case.seed,
        steps: STEPS,
        until: now + SPAN,
        tolerance: Tolerance { lost: dies, damaged: mode == Mode::Detect },
        acknowledges: false,
        round: 0,
    };
    let damage = arrange_flips(&cluster, &decay, pages.addrs());
    let gone = LostNodes::default();
    if dies {
        let after = Duration::from_nanos(death.below(SPAN.as_nanos() as u64 / 2));
        interrupt_write_back(&cluster, &gone, &pages, after);
    }
    let mut clients = Clients::new(&cluster);
    for node in 0..cluster.engines.len() {
        pages.spawn(&mut clients, node, load)?;
    }
    let mut tally = cluster.run(clients.finish_all(&gone))??;
    pages.check_histories()?;
    tally.gave_up += pages.damaged() as u64;
    if mode == Mode::Detect {
        return after_detection(cluster, &pages, tally, &damage);
    }
    after_correction(&mut cluster, case, &pages, &gone, &decay)?;
    Ok(done(&cluster, &tally))
}

/// The check where damage is repaired: a full read finds what the load did not find, unless it is
/// in splits that no read needs.
fn after_correction(
    cluster: &mut SimCluster,
    case: Case,
    pages: &CounterPages,
    gone: &LostNodes,
    decay: &Decay,
) -> Result<(), SimError> {
    let losses = gone.end();
    if !losses.is_empty() {
        let env = cluster.world.env();
        cluster.run(env.sleep(2 * LEASE))?;
        cluster.run(made_good(&cluster.pool, &env, &[], true))??;
    } else {
        cluster.run(cluster.check_lines(pages.addrs().len() as u64))??;
    }
    // What was found during the load is mended by the nodes that found it.
    let lives = |engine: &&Engine| !gone.has_compute(engine.node().index());
    let engines: Vec<Engine> = cluster.engines.iter().filter(lives).cloned().collect();
    // Of a page that was lost afterwards that is one split.
    let lost = cluster.pool.lost_pages().len();
    cluster.run(until_mended(cluster, &engines, lost))??;
    cluster.run(cluster.close(&losses))??;
    for _ in 0..LAST_FLIPS {
        if let Some(flip) = decay.draw(cluster, pages.addrs()) {
            flip.happen();
        }
    }
    let wrong = wrong_splits(cluster)?;
    let may_be_lost = |pages: &CounterPages, page: usize| pages.may_be_lost_with(page, &losses);
    // Every page is read twice: what is found the first time is mended.
    let mut found = [0, 0];
    for found in &mut found {
        let reader = cluster.start_engine()?;
        cluster.run(pages.check_pages(&reader, may_be_lost))??;
        cluster.run(until_mended(cluster, std::slice::from_ref(&reader), 0))??;
        *found = reader.stats().corruptions;
        cluster.run(reader.close())??;
    }
    let left = wrong_splits(cluster)?;
    let lost: BTreeSet<u64> = cluster.pool.lost_pages().into_iter().collect();
    ensure(left.is_subset(&wrong), || "a split is wrong that was not".to_owned())?;
    let ([first, again], all) = (found, wrong.len() as u64);
    ensure(first + again + left.len() as u64 == all, || {
        format!(
            "of {all} wrong splits {first} and then {again} were found, {} are left",
            left.len()
        )
    })?;
    if case.coding().mode() == Mode::Correct {
        // Of each page these are read, and waited for.
        let compared = case.coding().data() + case.coding().delta();
        ensure(again == 0, || format!("{again} splits were found wrong when all had been read"))?;
        // But of those that are lost.
        ensure(left.iter().all(|(page, split)| *split >= compared || lost.contains(page)), || {
            format!("of {all} wrong splits {} are left though they were read", left.len())
        })?;
    }
    cluster.run(cluster.check_words(&lost))?
}

/// Has bits turned over during the load.
fn arrange_flips(cluster: &SimCluster, decay: &Decay, pages: &[GAddr]) -> Damage {
    let damage = Damage::default();
    let bytes = cluster.pool.descriptor().geometry().payload_bytes();
    let count = LEAST_FLIPS + decay.random.below(MOST_FLIPS - LEAST_FLIPS);
    for _ in 0..count {
        let at = Duration::from_nanos(decay.random.below(SPAN.as_nanos() as u64));
        let Some(flip) = decay.draw(cluster, pages) else { continue };
        let damage = Arc::clone(&damage);
        cluster.world.controls().at(cluster.world.now() + at, move |controls| {
            controls.note("a bit is turned over");
            let mut damage = damage.lock();
            let own = damage.entry((flip.node, flip.split_at)).or_default();
            if is_as_written(&*flip.region, flip.split_at, bytes) {
                // It was written again.
                own.clear();
            }
            flip.happen();
            own.push(flip);
        });
    }
    damage
}

/// Splits that are not what was written: page and number.
fn wrong_splits(cluster: &SimCluster) -> Result<BTreeSet<(u64, usize)>, SimError> {
    let found = cluster.look_at_splits()?;
    Ok(found.wrong.into_iter().map(|wrong| (wrong.addr, wrong.split)).collect())
}

/// Waits until what these nodes found wrong is mended, but for so many.
async fn until_mended(
    cluster: &SimCluster,
    engines: &[Engine],
    excused: usize,
) -> Result<(), SimError> {
    let env = cluster.world.env();
    let started = env.now();
    loop {
        let stats = engines.iter().map(Engine::stats);
        let (found, mended) =
            stats.fold((0, 0), |sum, own| (sum.0 + own.corruptions, sum.1 + own.repairs));
        if mended + excused as u64 >= found {
            return Ok(());
        }
        ensure(env.now() - started < MENDED_WITHIN, || {
            format!("of {found} splits found wrong {mended} are mended after {MENDED_WITHIN:?}")
        })?;
        env.sleep(Duration::from_millis(1)).await;
    }
}

/// The check where damage is only detected: after the scenario flips the bits back, all pages hold
/// what was committed.
fn after_detection(
    mut cluster: SimCluster,
    pages: &CounterPages,
    tally: OperationCounts,
    damage: &Damage,
) -> Result<RunOutcome, SimError> {
    cluster.run(cluster.close(&[]))??;
    let bytes = cluster.pool.descriptor().geometry().payload_bytes();
    for ((_, split_at), flips) in &*damage.lock() {
        let is_right = || {
            let first = flips.first();
            first.is_none_or(|flip| is_as_written(&*flip.region, *split_at, bytes))
        };
        // Some of them have been written over, perhaps while others came: the rest is turned back,
        // whichever it is.
        let count = flips.len().min(MOST_OF_A_SPLIT);
        for chosen in 0_u32..1 << count {
            let turn = || {
                let chosen = (0..).zip(flips).filter(|(at, _)| chosen >> at & 1 == 1);
                chosen.for_each(|(_, flip)| flip.happen());
            };
            if is_right() {
                break;
            }
            turn();
            if !is_right() {
                turn();
            }
        }
    }
    cluster.look_at_splits()?.is_right()?;
    let reader = cluster.start_engine()?;
    cluster.run(pages.check_pages(&reader, |_, _| false))??;
    cluster.run(reader.close())??;
    cluster.run(cluster.check_words(&BTreeSet::new()))??;
    Ok(done(&cluster, &tally))
}
