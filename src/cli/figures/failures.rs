//! What a memory node's death does to those who read and write, until what it had has been made
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
use selkie::memnode::{Coding, Pool};

use super::cluster::{BOUND, Cluster, GCL_BYTES, MEMORY_NODES, NETWORK, Shape, Workers};
use super::experiment::{Claim, Expected, Point};
use super::latency::Quantiles;
use super::measure::{Failure, Measured, Outcome, Work};
use super::table::{Line, Plot, Row, Table};

const COMPUTE_NODES: usize = 4;
const WORKERS: usize = 4;
const SHAPE: Shape =
    Shape { compute_nodes: COMPUTE_NODES, pages: 8192, range_bytes: 4 << 20, cache_bytes: 4 << 20 };
/// One access in so many writes.
const WRITES_ONE_IN: u64 = 2;
const VICTIM: u16 = 3;
/// How often it is looked how far things are.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// Stretch of time of a point of the plot.
const STRETCH: Duration = Duration::from_millis(5);
/// Virtual time by which all has been made again.
const WHOLE_WITHIN: Duration = Duration::from_secs(20);

const CODINGS: [(&str, &str); 4] =
    [("plain", "plain"), ("2 copies", "replicate=2"), ("2+1", "2+1"), (CODED, "8+2")];
const CODED: &str = "8+2";

/// How far things are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Before,
    /// From the death until all headers have homes again.
    Frozen,
    /// A slab is being made again.
    Regenerating,
    /// There are slabs to be made again, and nobody does it yet.
    Waiting,
    After,
}

impl Phase {
    const ALL: [Phase; 5] =
        [Phase::Before, Phase::Frozen, Phase::Regenerating, Phase::Waiting, Phase::After];

    const fn name(self) -> &'static str {
        match self {
            Phase::Before => "before",
            Phase::Frozen => "frozen",
            Phase::Regenerating => "regenerating",
            Phase::Waiting => "waiting",
            Phase::After => "after",
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
pub(super) struct Loss {
    coding: &'static str,
}

/// What was seen of a run.
pub(super) struct Course {
    phases: Vec<Seen>,
    /// Since the death, in milliseconds, and million accesses a second.
    rates: Vec<(f64, f64)>,
}

/// What was seen of one phase.
pub(super) struct Seen {
    phase: Phase,
    lasted: Duration,
    /// Accesses that ended well in it, hits too.
    accesses: usize,
    /// Accesses that did not.
    errors: usize,
    /// Of what was not cached.
    reads: Quantiles,
    writes: Quantiles,
    longest: Duration,
}

impl Seen {
    fn per_second(&self) -> f64 {
        self.accesses as f64 / self.lasted.as_secs_f64()
    }
}

/// What the workers share.
struct Control {
    phase: AtomicUsize,
    stop: AtomicBool,
}

impl Control {
    fn phase(&self) -> Phase {
        let now = self.phase.load(Ordering::Relaxed);
        Phase::ALL.into_iter().nth(now).unwrap_or(Phase::After)
    }

    fn enter(&self, phase: Phase) {
        self.phase.store(phase as usize, Ordering::Relaxed);
    }
}

/// What a worker, or all, did.
#[derive(Default)]
struct Done {
    /// By phase.
    phases: [Accesses; Phase::ALL.len()],
    /// Accesses that ended well in each stretch since the beginning.
    stretches: Vec<usize>,
}

#[derive(Default)]
struct Accesses {
    well: usize,
    errors: usize,
    reads: Vec<Duration>,
    writes: Vec<Duration>,
}

impl Done {
    fn note(&mut self, phase: Phase, write: bool, took: Duration, failed: bool, now: Duration) {
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

impl Loss {
    pub(super) fn run(&self, duration: Duration, seed: u64) -> Result<Course, Failure> {
        let coding: Coding = self.coding.parse()?;
        let cluster = Cluster::start(SHAPE, coding, Faults::default(), seed)?;
        let control = Control { phase: AtomicUsize::new(0), stop: AtomicBool::new(false) };
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
        let mut all = Done::default();
        done.into_iter().for_each(|done| all.add(done));
        Ok(Course::of(all, &lasted, duration))
    }
}

/// Kills the node, and follows what becomes of it; how long each phase lasted.
async fn watch(
    cluster: &Cluster,
    control: &Control,
    duration: Duration,
) -> Result<[Duration; Phase::ALL.len()], Failure> {
    let env = cluster.world.env();
    let mut lasted = [Duration::ZERO; Phase::ALL.len()];
    env.sleep(duration).await;
    if let Some(before) = lasted.get_mut(Phase::Before as usize) {
        *before = duration;
    }
    cluster.world.controls().kill(PeerId::memory(VICTIM));
    control.enter(Phase::Frozen);
    let died = env.now();
    let mut last = died;
    loop {
        env.sleep(LOOK_EVERY).await;
        let (phase, now) = (Phase::of(&cluster.pool), env.now());
        if let Some(own) = lasted.get_mut(control.phase() as usize) {
            *own += now - last;
        }
        last = now;
        control.enter(phase);
        if lasted.get(Phase::After as usize).is_some_and(|after| *after >= duration) {
            return Ok(lasted);
        }
        if phase != Phase::After && now - died > WHOLE_WITHIN {
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
    control: Arc<Control>,
    from: Duration,
) -> Result<Done, EngineError> {
    let env = engine.env().clone();
    let mut done = Done::default();
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
            let stood = phase == Phase::Before && control.phase() != Phase::Before;
            let phase = if stood { Phase::Frozen } else { phase };
            done.note(phase, write, took, result.is_err(), env.now() - from);
        }
        env.spend(NETWORK.access).await;
    }
    Ok(done)
}

impl Course {
    fn of(done: Done, lasted: &[Duration], before: Duration) -> Self {
        let phases = Phase::ALL.into_iter().zip(done.phases).zip(lasted);
        let phases =
            phases.filter(|(_, lasted)| !lasted.is_zero()).map(|((phase, own), lasted)| {
                let Accesses { well, errors, mut reads, mut writes } = own;
                let longest = reads.iter().chain(&writes).max().copied().unwrap_or_default();
                Seen {
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

    fn seen(&self, phase: Phase) -> Option<&Seen> {
        self.phases.iter().find(|seen| seen.phase == phase)
    }

    /// Something while slabs were made again over the same before.
    fn ratio(&self, what: fn(&Seen) -> f64) -> Option<f64> {
        Some(what(self.seen(Phase::Regenerating)?) / what(self.seen(Phase::Before)?))
    }
}

/// All points of the figure.
pub(super) fn points() -> Vec<Point> {
    let point = |(series, coding): (&str, _)| {
        let work = Work::Failure(Loss { coding });
        Point { series: series.to_owned(), x: String::new(), work }
    };
    CODINGS.into_iter().map(point).collect()
}

pub(super) fn setup(duration: Duration, seed: u64) -> String {
    format!(
        "Simulated network `modern`, {} ms before a memory node is killed, and as many from when all it had is there \
         again, seed {seed}; {COMPUTE_NODES} compute nodes of {WORKERS} workers, {MEMORY_NODES} memory nodes, {} pages \
         of {GCL_BYTES} bytes that all nodes read and write, half and half; each cache holds an eighth of them. \
         *frozen*: from the death until the headers that were lost are in place again; *regenerating*: a slab is being \
         made again; *waiting*: the next one is not begun yet. Latencies are of accesses that were not cached. The \
         processor's work for coding and checksums takes no virtual time.",
        duration.as_millis(),
        SHAPE.pages
    )
}

fn courses(measured: &Measured) -> impl Iterator<Item = (&Point, &Course)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        Outcome::Course(course) => Some((point, course)),
        _ => None,
    })
}

pub(super) fn claims() -> Vec<Claim> {
    fn coded(measured: &Measured) -> Option<&Course> {
        courses(measured).find(|(point, _)| point.series == CODED).map(|(_, course)| course)
    }
    vec![
        Claim::new("8+2, median read while regenerating over before", Expected::AtMost(1.1), |m| {
            coded(m)?.ratio(|seen| seen.reads.median)
        }),
        Claim::new(
            "8+2, median write while regenerating over before",
            Expected::AtMost(1.1),
            |m| coded(m)?.ratio(|seen| seen.writes.median),
        ),
        Claim::new("8+2, p99 of reads while regenerating over before", Expected::Unsaid, |m| {
            coded(m)?.ratio(|seen| seen.reads.p99)
        }),
        Claim::new("8+2, p99 of writes while regenerating over before", Expected::Unsaid, |m| {
            coded(m)?.ratio(|seen| seen.writes.p99)
        }),
        Claim::new("8+2, throughput while regenerating over before", Expected::AtLeast(0.9), |m| {
            coded(m)?.ratio(Seen::per_second)
        }),
    ]
}

/// What is written of the figure.
pub(super) fn tables(measured: &Measured) -> Vec<Table> {
    vec![phases(measured), over_time(measured)]
}

fn phases(measured: &Measured) -> Table {
    let rows = courses(measured).flat_map(|(point, course)| {
        course.phases.iter().map(|seen| {
            let Seen { phase, lasted, accesses, errors, reads, writes, longest } = seen;
            let milliseconds = |duration: &Duration| duration.as_secs_f64() * 1e3;
            let lasted = milliseconds(lasted);
            let rate = seen.per_second();
            let failed = if *errors > 0 {
                let share = 100.0 * *errors as f64 / (accesses + errors) as f64;
                format!(", {share:.1} % failed")
            } else {
                String::new()
            };
            Row {
                series: point.series.clone(),
                x: phase.name().to_owned(),
                values: format!(
                    "{lasted:.3},{accesses},{errors},{rate:.0},{:.3},{:.3},{:.3},{:.3},{:.3}",
                    reads.median,
                    reads.p99,
                    writes.median,
                    writes.p99,
                    milliseconds(longest)
                ),
                cell: Some(format!(
                    "{lasted:.1} ms: {:.2}; {:.2}, {:.2}; {:.2}, {:.2}{failed}",
                    rate / 1e6,
                    reads.median,
                    reads.p99,
                    writes.median,
                    writes.p99
                )),
            }
        })
    });
    Table {
        stem: "coding-failures",
        title: "Phases",
        caption: "How long it lasted: million accesses a second; median and p99 of reads, µs; of writes, µs:",
        x_label: "phase",
        columns: "lasted_ms,accesses,errors,accesses_per_second,read_median_us,read_p99_us,write_median_us,\
                  write_p99_us,longest_ms",
        rows: rows.collect(),
        plot: None,
    }
}

fn over_time(measured: &Measured) -> Table {
    let rows = courses(measured).flat_map(|(point, course)| {
        course.rates.iter().map(|(at, rate)| Row {
            series: point.series.clone(),
            x: format!("{at:.1}"),
            values: format!("{:.0}", rate * 1e6),
            cell: None,
        })
    });
    // The axis begins with the measurement.
    let first = courses(measured).filter_map(|(_, course)| course.rates.first()).map(|(at, _)| *at);
    let begin = first.fold(0.0, f64::min);
    let lines = courses(measured).map(|(point, course)| Line {
        name: point.series.clone(),
        points: course.rates.iter().map(|(at, rate)| (at - begin, *rate)).collect(),
    });
    Table {
        stem: "coding-failures-time",
        title: "Throughput over time",
        caption: "",
        x_label: "time, ms",
        columns: "accesses_per_second",
        rows: rows.collect(),
        plot: Some(Plot {
            y_label: "million accesses a second",
            lines: lines.collect(),
            labels: Vec::new(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(2);

    #[test]
    fn without_redundancy_pages_are_lost_and_the_others_are_used_on() {
        let course = Loss { coding: "plain" }.run(SHORT, 1).unwrap();
        let seen = |phase| course.seen(phase).unwrap();
        let (before, after) = (seen(Phase::Before), seen(Phase::After));
        assert_eq!(before.errors, 0);
        let lost = after.errors as f64 / (after.errors + after.accesses) as f64;
        let share = 1.0 / MEMORY_NODES as f64;
        assert!((0.5 * share..1.5 * share).contains(&lost), "{lost} of what is asked for");
        assert!(course.seen(Phase::Regenerating).is_none());
    }

    #[test]
    fn a_coded_pool_loses_nothing_and_becomes_whole() {
        let course = Loss { coding: "2+1" }.run(SHORT, 1).unwrap();
        assert!(course.phases.iter().all(|seen| seen.errors == 0));
        let names: Vec<_> = course.phases.iter().map(|seen| seen.phase).collect();
        assert_eq!(names, Phase::ALL, "each of them is met");
        let seen = |phase| course.seen(phase).unwrap();
        assert!(seen(Phase::Frozen).longest > seen(Phase::Before).longest);
        assert!(course.ratio(Seen::per_second).is_some_and(|ratio| ratio > 0.3));
        let counted: usize = course.phases.iter().map(|seen| seen.accesses).sum();
        let drawn: f64 = course.rates.iter().map(|(_, rate)| rate).sum();
        let drawn = drawn * 1e6 * STRETCH.as_secs_f64();
        assert!((0.95..1.01).contains(&(drawn / counted as f64)), "{drawn} of {counted}");
    }
}
