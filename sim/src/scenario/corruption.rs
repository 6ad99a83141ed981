//! Bits of splits that change by themselves: see [`super::Scenario::Corruption`].
//!
//! At times drawn from the seed a bit of a split, or of its tag, is turned over in the memory of a memory node. Of each
//! page it is always the same split: more of them wrong at a time than the coding can tell is not what it promises to
//! notice. Headers are not touched, nothing protects them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, GAddr};
use selkie_fabric::LocalRegion;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;
use selkie_memnode::layout::TAG_BYTES;
use selkie_memnode::{Coding, Mode};

use super::pages::{HOT_PAGES, Load, Pages, Tolerance};
use super::{Case, Clients, Done, Tally, Tune, done, ensure, start};
use crate::cluster::SimCluster;
use crate::error::SimError;
use crate::plan::{Plan, SPAN};
use crate::splits::is_as_written;

/// Codings, in turn by the seed.
const CODINGS: [&str; 8] = [
    "2+3,mode=correct",
    "4+3,mode=correct",
    "2+1,mode=detect",
    "2+1",
    "1+3,mode=correct",
    "4+2,mode=detect",
    "4+2,delta=2",
    "4+2,mode=ec-only",
];
const MANY_PAGES: usize = 1200;
const FEW_PAGES: usize = 20 * HOT_PAGES;
const STEPS: usize = 150;
/// Bits turned over during the load, at most and at least.
const MOST_FLIPS: u64 = 400;
const LEAST_FLIPS: u64 = 50;
/// Bits turned over when the load is over, so that there is something to be found at the end.
const LAST_FLIPS: u64 = 50;
/// Within which what was found is mended.
const MENDED_WITHIN: Duration = Duration::from_secs(5);

/// The coding of a run that is not asked for another.
pub(super) fn usual_coding(seed: u64) -> Coding {
    let text = CODINGS.get((seed % CODINGS.len() as u64) as usize).copied().unwrap_or("2+1");
    text.parse().unwrap_or(Coding::usual_for(usize::from(super::LEAST_MEMORY_NODES)))
}

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

/// The bits that were turned over, of each split (memory node, offset), since it was last as it was written.
type Damage = Arc<Mutex<BTreeMap<(usize, usize), Vec<Flip>>>>;

/// Draws bits to be turned over.
struct Decay {
    random: SplitMix,
    splits: usize,
}

impl Decay {
    fn draw(&self, cluster: &SimCluster, pages: &[GAddr]) -> Option<Flip> {
        let number = self.random.below(pages.len() as u64) as usize;
        let addr = pages.get(number)?.to_u64();
        // Pages follow each other, so this is another one for each of them.
        let place = cluster.split_place(addr, number / 3 % self.splits)?;
        let bytes = cluster.pool.descriptor().geometry().payload_bytes() + TAG_BYTES as usize;
        let bit = self.random.below(8 * bytes as u64) as usize;
        let region = Arc::clone(cluster.pool.memory_nodes().get(place.node)?.region());
        Some(Flip { region, node: place.node, split_at: place.offset, bit })
    }
}

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<Done, SimError> {
    let mut cluster = start(case, plan, tune, log, |_| {})?;
    let mode = case.coding().mode();
    let page_count = if case.seed.is_multiple_of(3) { MANY_PAGES } else { FEW_PAGES };
    let pages = cluster.run(Pages::allocate(&cluster, page_count))??;
    let decay = Decay { random: SplitMix::of_stream(case.seed, 8), splits: case.coding().splits() };
    let now = cluster.world.now();
    plan.arrange(&cluster.world.controls(), now);
    let load = Load {
        seed: case.seed,
        steps: STEPS,
        until: now + SPAN,
        tolerance: Tolerance { lost: false, damaged: mode == Mode::Detect },
        round: 0,
    };
    let damage = arrange_flips(&cluster, &decay, pages.addrs());
    let mut clients = Clients::new(&cluster);
    for node in 0..cluster.engines.len() {
        pages.spawn(&mut clients, node, load)?;
    }
    let mut tally = cluster.run(clients.finish(&[]))??;
    pages.check_histories()?;
    tally.gave_up += pages.damaged() as u64;
    if mode == Mode::Detect {
        return after_detection(cluster, &pages, tally, &damage);
    }
    cluster.run(cluster.check_lines(page_count as u64))??;
    // What was found during the load is mended by the nodes that found it.
    let engines = cluster.engines.clone();
    cluster.run(until_mended(&cluster, &engines))??;
    cluster.run(cluster.close(&[]))??;
    for _ in 0..LAST_FLIPS {
        if let Some(flip) = decay.draw(&cluster, pages.addrs()) {
            flip.happen();
        }
    }
    let wrong = wrong_splits(&cluster)?;
    // Every page is read twice: what is found the first time is mended, and then there is nothing to be found.
    let first = cluster.start_engine()?;
    cluster.run(pages.check_pages(&first, |_, _| false))??;
    cluster.run(until_mended(&cluster, std::slice::from_ref(&first)))??;
    cluster.run(first.close())??;
    let second = cluster.start_engine()?;
    cluster.run(pages.check_pages(&second, |_, _| false))??;
    let (found, again) = (first.stats().corruptions, second.stats().corruptions);
    cluster.run(second.close())??;
    ensure(again == 0, || format!("of {found} splits found wrong {again} were found again"))?;
    let left = wrong_splits(&cluster)?;
    if mode == Mode::Correct {
        let expected = wrong.len() as u64;
        ensure(found == expected, || format!("of {expected} wrong splits {found} were found"))?;
        ensure(left.is_empty(), || format!("{} wrong splits were not mended", left.len()))?;
    } else {
        // Splits that no read has asked for, nobody has looked at.
        ensure(left.is_subset(&wrong), || "a split is wrong that was not".to_owned())?;
        ensure(left.len() as u64 + found == wrong.len() as u64, || {
            format!(
                "of {} wrong splits {found} were found and {} are left",
                wrong.len(),
                left.len()
            )
        })?;
    }
    cluster.run(cluster.check_words(&BTreeSet::new()))??;
    Ok(done(&cluster, &tally))
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

/// Waits until what these nodes found wrong is mended.
async fn until_mended(cluster: &SimCluster, engines: &[Engine]) -> Result<(), SimError> {
    let env = cluster.world.env();
    let started = env.now();
    loop {
        let stats = engines.iter().map(Engine::stats);
        let (found, mended) =
            stats.fold((0, 0), |sum, own| (sum.0 + own.corruptions, sum.1 + own.repairs));
        if mended >= found {
            return Ok(());
        }
        ensure(env.now() - started < MENDED_WITHIN, || {
            format!("of {found} splits found wrong {mended} are mended after {MENDED_WITHIN:?}")
        })?;
        env.sleep(Duration::from_millis(1)).await;
    }
}

/// Where damage is only noticed: when it is undone, here by whoever has done it, all pages are what was committed.
fn after_detection(
    mut cluster: SimCluster,
    pages: &Pages,
    tally: Tally,
    damage: &Damage,
) -> Result<Done, SimError> {
    cluster.run(cluster.close(&[]))??;
    let bytes = cluster.pool.descriptor().geometry().payload_bytes();
    for ((_, split_at), flips) in &*damage.lock() {
        let written = |flip: &&Flip| !is_as_written(&*flip.region, *split_at, bytes);
        if flips.first().filter(written).is_some() {
            flips.iter().for_each(Flip::happen);
        }
    }
    cluster.look_at_splits()?.is_right()?;
    let reader = cluster.start_engine()?;
    cluster.run(pages.check_pages(&reader, |_, _| false))??;
    cluster.run(reader.close())??;
    cluster.run(cluster.check_words(&BTreeSet::new()))??;
    Ok(done(&cluster, &tally))
}
