//! What a memory node's death does to readers and writers, until what it had has been made
//! again elsewhere and after that (Hydra §7.3), against copies and against no redundancy.
//!
//! ```text
//! before | kill --> frozen --> [slab by slab: regenerating | waiting] --> after
//! ```
//! Workers of four compute nodes read and write pages that all share and of which the caches hold a
//! part. An access counts for the phase in which it began, and all that began before the death and
//! ended after it, or waited for the headers of the lost node, are *frozen*.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use selkie::engine::{Engine, EngineError, GAddr};
use selkie::fabric::PeerId;
use selkie::fabric::env::SplitMix;
use selkie::fabric::sim::Faults;
use selkie::pool::{Coding, Pool};

use super::cluster::{BOUND, Cluster, ClusterShape, NETWORK, RunError, Workers};
use super::quantiles::Quantiles;

pub(in crate::figures) const COMPUTE_NODES: usize = 4;
pub(in crate::figures) const WORKERS: usize = 4;
pub(in crate::figures) const SHAPE: ClusterShape = ClusterShape {
    compute_nodes: COMPUTE_NODES,
    pages: 8192,
    range_bytes: 4 << 20,
    cache_bytes: 4 << 20,
};
/// One access in so many writes.
const WRITES_ONE_IN: u64 = 2;
const VICTIM: u16 = 3;
/// How often it is looked how far things are.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// Stretch of time of a point of the plot.
const STRETCH: Duration = Duration::from_millis(5);
/// Virtual time by which all slabs are regenerated.
const WHOLE_WITHIN: Duration = Duration::from_secs(20);

/// How far things are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::figures) enum FailurePhase {
    Before,
    /// From the death until all headers have homes again.
    Frozen,
    /// A slab is being regenerated.
    Regenerating,
    /// Slabs wait for their regeneration to begin.
    Waiting,
    After,
}

impl FailurePhase {
    const ALL: [FailurePhase; 5] = [
        FailurePhase::Before,
        FailurePhase::Frozen,
        FailurePhase::Regenerating,
        FailurePhase::Waiting,
        FailurePhase::After,
    ];

    pub(in crate::figures) const fn name(self) -> &'static str {
        match self {
            FailurePhase::Before => "before",
            FailurePhase::Frozen => "frozen",
            FailurePhase::Regenerating => "regenerating",
            FailurePhase::Waiting => "waiting",
            FailurePhase::After => "after",
        }
    }

    /// The phase of a pool whose node is killed.
    fn of(pool: &Pool) -> Self {
        let state = pool.state();
        if state.coding.is_plain() {
            return Self::After;
        }
        if !pool.is_memory_dead(usize::from(VICTIM)) || !state.rebuilds.is_empty() {
            return Self::Frozen;
        }
        if state.regeneration.is_some() {
            return Self::Regenerating;
        }
        let mut slabs = state.ranges.iter().flat_map(|range| &range.slabs);
        let lost = slabs.any(|slab| slab.node == VICTIM);
        if lost { Self::Waiting } else { Self::After }
    }
}

/// A point.
pub(in crate::figures) struct NodeFailure {
    pub(in crate::figures) coding: &'static str,
}

/// What was seen of a run.
pub(in crate::figures) struct FailureCourse {
    pub(in crate::figures) phases: Vec<PhaseStats>,
    /// Since the death, in milliseconds, and million accesses a second.
    pub(in crate::figures) rates: Vec<(f64, f64)>,
}

/// What was seen of one phase.
pub(in crate::figures) struct PhaseStats {
    pub(in crate::figures) phase: FailurePhase,
    pub(in crate::figures) lasted: Duration,
    /// Accesses that ended well in it, hits too.
    pub(in crate::figures) accesses: usize,
    /// Accesses that did not.
    pub(in crate::figures) errors: usize,
    /// Of what was not cached.
    pub(in crate::figures) reads: Quantiles,
    pub(in crate::figures) writes: Quantiles,
    pub(in crate::figures) longest: Duration,
}

impl PhaseStats {
    pub(in crate::figures) fn per_second(&self) -> f64 {
        self.accesses as f64 / self.lasted.as_secs_f64()
    }
}

/// What the workers share.
struct RunControl {
    phase: AtomicUsize,
    stop: AtomicBool,
}

impl RunControl {
    fn phase(&self) -> FailurePhase {
        let now = self.phase.load(Ordering::Relaxed);
        FailurePhase::ALL.into_iter().nth(now).unwrap_or(FailurePhase::After)
    }

    fn enter(&self, phase: FailurePhase) {
        self.phase.store(phase as usize, Ordering::Relaxed);
    }
}

/// What a worker, or all, did.
#[derive(Default)]
struct WorkerCounts {
    /// By phase.
    phases: [PhaseCounts; FailurePhase::ALL.len()],
    /// Accesses that ended well in each stretch since the beginning.
    stretches: Vec<usize>,
}

#[derive(Default)]
struct PhaseCounts {
    well: usize,
    errors: usize,
    reads: Vec<Duration>,
    writes: Vec<Duration>,
}

impl WorkerCounts {
    fn note(
        &mut self,
        phase: FailurePhase,
        write: bool,
        took: Duration,
        failed: bool,
        now: Duration,
    ) {
        let Some(own) = self.phases.get_mut(phase as usize) else { return };
        if failed {
            own.errors += 1;
            return;
        }
        own.well += 1;
        // Hits take no time.
        if !took.is_zero() {
            if write { &mut own.writes } else { &mut own.reads }.push(took);
        }
        let stretch = (now.as_nanos() / STRETCH.as_nanos()) as usize;
        if self.stretches.len() <= stretch {
            self.stretches.resize(stretch + 1, 0);
        }
        if let Some(count) = self.stretches.get_mut(stretch) {
            *count += 1;
        }
    }

    fn add(&mut self, other: Self) {
        for (own, other) in self.phases.iter_mut().zip(other.phases) {
            own.well += other.well;
            own.errors += other.errors;
            own.reads.extend(other.reads);
            own.writes.extend(other.writes);
        }
        self.stretches.resize(self.stretches.len().max(other.stretches.len()), 0);
        self.stretches.iter_mut().zip(other.stretches).for_each(|(own, other)| *own += other);
    }
}

impl NodeFailure {
    pub(in crate::figures) fn run(
        &self,
        duration: Duration,
        seed: u64,
    ) -> Result<FailureCourse, RunError> {
        let coding: Coding = self.coding.parse()?;
        let cluster = Cluster::start(SHAPE, coding, Faults::default(), seed)?;
        let control = RunControl { phase: AtomicUsize::new(0), stop: AtomicBool::new(false) };
        let control = Arc::new(control);
        let (env, pages) = (cluster.world.env(), Arc::new(cluster.pages.clone()));
        let all = async {
            // The caches fill meanwhile.
            let measured_from = env.now() + duration;
            let workers = (0..COMPUTE_NODES * WORKERS).zip(cluster.engines.iter().cycle());
            let workers = Workers::start(workers.map(|(worker, engine)| {
                let random = SplitMix::of_stream(seed, 100 + worker as u64);
                let (pages, control) = (Arc::clone(&pages), Arc::clone(&control));
                (
                    cluster.env_of(engine),
                    work(engine.clone(), pages, random, control, measured_from),
                )
            }));
            env.sleep(duration).await;
            let course = watch(&cluster, &control, duration).await;
            control.stop.store(true, Ordering::Relaxed);
            (workers.join().await, course)
        };
        let (done, lasted) = cluster.world.run(BOUND, all)?;
        let (done, lasted) = (done?, lasted?);
        let mut all = WorkerCounts::default();
        done.into_iter().for_each(|done| all.add(done));
        Ok(FailureCourse::of(all, &lasted, duration))
    }
}

/// Kills the node, and follows what becomes of it; how long each phase lasted.
async fn watch(
    cluster: &Cluster,
    control: &RunControl,
    duration: Duration,
) -> Result<[Duration; FailurePhase::ALL.len()], RunError> {
    let env = cluster.world.env();
    let mut lasted = [Duration::ZERO; FailurePhase::ALL.len()];
    env.sleep(duration).await;
    if let Some(before) = lasted.get_mut(FailurePhase::Before as usize) {
        *before = duration;
    }
    cluster.world.controls().kill(PeerId::memory(VICTIM));
    control.enter(FailurePhase::Frozen);
    let died = env.now();
    let mut last = died;
    loop {
        env.sleep(LOOK_EVERY).await;
        let (phase, now) = (FailurePhase::of(&cluster.pool), env.now());
        if let Some(own) = lasted.get_mut(control.phase() as usize) {
            *own += now - last;
        }
        last = now;
        control.enter(phase);
        if lasted.get(FailurePhase::After as usize).is_some_and(|after| *after >= duration) {
            return Ok(lasted);
        }
        if phase != FailurePhase::After && now - died > WHOLE_WITHIN {
            let state = cluster.pool.state();
            return Err(format!(
                "after {WHOLE_WITHIN:?} what memory node {VICTIM} had is not there again: {state:?}"
            )
            .into());
        }
    }
}

/// What one worker does until it is told to stop; what it did since `from`.
async fn work(
    engine: Engine,
    pages: Arc<Vec<GAddr>>,
    random: SplitMix,
    control: Arc<RunControl>,
    from: Duration,
) -> Result<WorkerCounts, EngineError> {
    let env = engine.env().clone();
    let mut done = WorkerCounts::default();
    while !control.stop.load(Ordering::Relaxed) {
        let page = pages.get(random.below(pages.len() as u64) as usize);
        let Some(page) = page.copied() else { break };
        let write = random.below(WRITES_ONE_IN) == 0;
        let (started, phase) = (env.now(), control.phase());
        let result = if write {
            engine.exclusive(page).await.map(|mut guard| {
                let at = 8 * random.below(guard.len() as u64 / 8) as usize;
                guard.bytes_mut(at..at + 8).fill(random.next_u64() as u8);
            })
        } else {
            engine.shared(page).await.map(drop)
        };
        let took = env.now() - started;
        if started >= from {
            // What waited for the headers did so from the death on.
            let stood = phase == FailurePhase::Before && control.phase() != FailurePhase::Before;
            let phase = if stood { FailurePhase::Frozen } else { phase };
            done.note(phase, write, took, result.is_err(), env.now() - from);
        }
        env.spend(NETWORK.access).await;
    }
    Ok(done)
}

impl FailureCourse {
    fn of(done: WorkerCounts, lasted: &[Duration], before: Duration) -> Self {
        let phases = FailurePhase::ALL.into_iter().zip(done.phases).zip(lasted);
        let phases =
            phases.filter(|(_, lasted)| !lasted.is_zero()).map(|((phase, own), lasted)| {
                let PhaseCounts { well, errors, mut reads, mut writes } = own;
                let longest = reads.iter().chain(&writes).max().copied().unwrap_or_default();
                PhaseStats {
                    phase,
                    lasted: *lasted,
                    accesses: well,
                    errors,
                    reads: Quantiles::of(&mut reads),
                    writes: Quantiles::of(&mut writes),
                    longest,
                }
            });
        let all: Duration = lasted.iter().sum();
        // The last stretch is not over.
        let whole = (all.as_nanos() / STRETCH.as_nanos()) as usize;
        let rates = (0_u32..).zip(done.stretches).take(whole).map(|(number, count)| {
            let middle = STRETCH * number + STRETCH / 2;
            let since = middle.as_secs_f64() - before.as_secs_f64();
            (since * 1e3, count as f64 / STRETCH.as_secs_f64() / 1e6)
        });
        Self { phases: phases.collect(), rates: rates.collect() }
    }

    fn seen(&self, phase: FailurePhase) -> Option<&PhaseStats> {
        self.phases.iter().find(|seen| seen.phase == phase)
    }

    /// Something while slabs were made again over the same before.
    pub(in crate::figures) fn ratio(&self, what: fn(&PhaseStats) -> f64) -> Option<f64> {
        Some(what(self.seen(FailurePhase::Regenerating)?) / what(self.seen(FailurePhase::Before)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::work::cluster::MEMORY_NODES;

    const SHORT: Duration = Duration::from_millis(2);

    #[test]
    fn without_redundancy_pages_are_lost_and_the_others_are_used_on() {
        let course = NodeFailure { coding: "plain" }.run(SHORT, 1).unwrap();
        let seen = |phase| course.seen(phase).unwrap();
        let (before, after) = (seen(FailurePhase::Before), seen(FailurePhase::After));
        assert_eq!(before.errors, 0);
        let lost = after.errors as f64 / (after.errors + after.accesses) as f64;
        let share = 1.0 / MEMORY_NODES as f64;
        assert!((0.5 * share..1.5 * share).contains(&lost), "{lost} of what is asked for");
        assert!(course.seen(FailurePhase::Regenerating).is_none());
    }

    #[test]
    fn a_coded_pool_loses_nothing_and_becomes_whole() {
        let course = NodeFailure { coding: "2+1" }.run(SHORT, 1).unwrap();
        assert!(course.phases.iter().all(|seen| seen.errors == 0));
        let names: Vec<_> = course.phases.iter().map(|seen| seen.phase).collect();
        assert_eq!(names, FailurePhase::ALL, "each of them is met");
        let seen = |phase| course.seen(phase).unwrap();
        assert!(seen(FailurePhase::Frozen).longest > seen(FailurePhase::Before).longest);
        assert!(course.ratio(PhaseStats::per_second).is_some_and(|ratio| ratio > 0.3));
        let counted: usize = course.phases.iter().map(|seen| seen.accesses).sum();
        let drawn: f64 = course.rates.iter().map(|(_, rate)| rate).sum();
        let drawn = drawn * 1e6 * STRETCH.as_secs_f64();
        assert!((0.95..1.01).contains(&(drawn / counted as f64)), "{drawn} of {counted}");
    }
}
