//! How long reads and write-backs of pages that are not cached take, by coding and with stragglers
//! (Hydra §7.2, figure 19), what TPC-C makes of it, and how much memory the pages take.
//!
//! Workers of four compute nodes, each with pages of its own, so that nobody waits for another:
//! read a page that is not cached, give it up, write to it, give it up, which takes it home.

use std::sync::Arc;
use std::time::Duration;

use selkie::engine::{Engine, EngineError, GAddr};
use selkie::fabric::PeerId;
use selkie::fabric::env::SplitMix;
use selkie::fabric::sim::{Faults, World, WorldConfig};
use selkie::memnode::Coding;
use selkie::tpcc::{self, Network, Progress, Scale, Silent};

use super::cluster::{BOUND, Cluster, GCL_BYTES, MEMORY_NODES, NETWORK, Shape, Workers, micros};
use super::experiment::{Claim, Expected, Point};
use super::measure::{Failure, Measured, Outcome, Work};
use super::memory;
use super::table::{Plot, Row, Table};

const COMPUTE_NODES: usize = 4;
const WORKERS: usize = 2;
const SHAPE: Shape =
    Shape { compute_nodes: COMPUTE_NODES, pages: 2048, range_bytes: 1 << 20, cache_bytes: 4 << 20 };

/// What delays some of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stragglers {
    None,
    /// The adapter of one memory node is slower: others use it, or their links.
    SlowNode,
    /// Chains that take longer on their way, and hold up those behind them.
    LateChains,
}

/// How much slower the slow node is.
const SLOWER: u32 = 20;
const SLOW_NODE: PeerId = PeerId::memory(3);
/// One in so many chains is late, by so much at most.
const LATE_ONE_IN: u32 = 50;
const LATE_BY: Duration = Duration::from_micros(20);

impl Stragglers {
    const ALL: [Stragglers; 3] = [Stragglers::None, Stragglers::SlowNode, Stragglers::LateChains];

    const fn name(self) -> &'static str {
        match self {
            Stragglers::None => "undisturbed",
            Stragglers::SlowNode => "slow node",
            Stragglers::LateChains => "late chains",
        }
    }

    fn faults(self) -> Faults {
        match self {
            Stragglers::LateChains => {
                Faults { reorder_one_in: LATE_ONE_IN, reorder_by: LATE_BY, ..Faults::default() }
            }
            _ => Faults::default(),
        }
    }
}

/// The codings that are measured, and what they are called.
const CODINGS: [(&str, &str); 10] = [
    ("plain", "plain"),
    ("2 copies", "replicate=2"),
    ("2+1", "2+1,delta=1"),
    ("2+2", "2+2,delta=1"),
    ("4+2", "4+2,delta=1"),
    ("8+1", "8+1,delta=1"),
    ("8+2 Δ0", "8+2,delta=0"),
    ("8+2", "8+2,delta=1"),
    ("8+2 Δ2", "8+2,delta=2"),
    ("8+3", "8+3,delta=1"),
];
const PLAIN: &str = "plain";
const COPIES: &str = "2 copies";
const CODED: &str = "8+2";
/// Of these, those that TPC-C is run on.
const MIX: [&str; 4] = [PLAIN, COPIES, "2+1", CODED];

/// A point of the latencies.
pub(super) struct Latency {
    stragglers: Stragglers,
    coding: &'static str,
}

/// How long operations took, in microseconds: half of them, and 99 % of them, no longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Quantiles {
    pub(super) median: f64,
    pub(super) p99: f64,
}

impl Quantiles {
    pub(super) fn of(durations: &mut [Duration]) -> Self {
        Self { median: micros(durations, 0.5), p99: micros(durations, 0.99) }
    }
}

/// What a cluster took for its operations.
pub(super) struct Latencies {
    operations: usize,
    read: Quantiles,
    /// Of pages of which a word was changed.
    word: Quantiles,
    /// Of pages that were changed from end to end.
    page: Quantiles,
}

/// Durations of one worker's operations.
#[derive(Default)]
struct Taken {
    read: Vec<Duration>,
    word: Vec<Duration>,
    page: Vec<Duration>,
}

impl Latency {
    pub(super) fn run(&self, duration: Duration, seed: u64) -> Result<Latencies, Failure> {
        let coding: Coding = self.coding.parse()?;
        let cluster = Cluster::start(SHAPE, coding, self.stragglers.faults(), seed)?;
        if self.stragglers == Stragglers::SlowNode {
            cluster.world.controls().slow(SLOW_NODE, SLOWER);
        }
        let from = cluster.world.now() + duration;
        let span = (from, from + duration);
        let workers = COMPUTE_NODES * WORKERS;
        let tasks = (0..workers).zip(cluster.engines.iter().cycle()).map(|(worker, engine)| {
            let own = cluster.pages.iter().skip(worker).step_by(workers);
            let (pages, engine) = (own.copied().collect(), engine.clone());
            let random = SplitMix::of_stream(seed, 100 + worker as u64);
            (cluster.env_of(&engine), work(engine, pages, random, span))
        });
        let taken = cluster.world.run(BOUND, Workers::start(tasks).join())??;
        let mut all = Taken::default();
        for Taken { read, word, page } in taken {
            all.read.extend(read);
            all.word.extend(word);
            all.page.extend(page);
        }
        Ok(Latencies {
            operations: all.read.len(),
            read: Quantiles::of(&mut all.read),
            word: Quantiles::of(&mut all.word),
            page: Quantiles::of(&mut all.page),
        })
    }
}

/// What one worker does until the end of the span; what it took since its beginning.
async fn work(
    engine: Engine,
    pages: Vec<GAddr>,
    random: SplitMix,
    (from, to): (Duration, Duration),
) -> Result<Taken, EngineError> {
    let env = engine.env().clone();
    let mut taken = Taken::default();
    let mut whole = false;
    while env.now() < to {
        let page = pages.get(random.below(pages.len() as u64) as usize);
        let Some(page) = page.copied() else { return Ok(taken) };
        let counts = env.now() >= from;
        let started = env.now();
        drop(engine.shared(page).await?);
        let read = env.now() - started;
        env.spend(NETWORK.access).await;
        engine.evict(page).await?;
        let mut guard = engine.exclusive(page).await?;
        let changed = if whole { 0..guard.len() } else { 8..16 };
        guard.bytes_mut(changed).fill(random.next_u64() as u8);
        drop(guard);
        env.spend(NETWORK.access).await;
        let started = env.now();
        engine.evict(page).await?;
        let written = env.now() - started;
        if counts {
            taken.read.push(read);
            if whole { &mut taken.page } else { &mut taken.word }.push(written);
        }
        whole = !whole;
    }
    Ok(taken)
}

/// A point of TPC-C.
pub(super) struct Mix {
    coding: &'static str,
}

/// What TPC-C came to.
pub(super) struct Mixed {
    transactions_per_second: f64,
}

impl Mix {
    pub(super) fn run(&self, duration: Duration, seed: u64) -> Result<Mixed, Failure> {
        let world = World::new(WorldConfig { cost: NETWORK, ..WorldConfig::new(seed) });
        let config = tpcc::Config {
            warehouses: 8,
            duration,
            compute_nodes: COMPUTE_NODES,
            memory_nodes: MEMORY_NODES,
            workers: 8,
            network: Network::Real { threads: 1 },
            // The least: much is not cached.
            cache_mib: Some((1024 * GCL_BYTES as u64) >> 20),
            gcl_bytes: GCL_BYTES,
            coding: self.coding.parse()?,
            seed,
            scale: Scale::divided_by(Scale::MAX_DIVISOR),
            ..tpcc::Config::default()
        };
        let progress: Arc<dyn Progress> = Arc::new(Silent);
        let env_of = |index: usize| world.env_of(PeerId::compute(index as u16));
        let driver = world.env();
        let start = tpcc::Cluster::start_on(world.fabric(), &driver, env_of, &config);
        let cluster = world.run(BOUND, start)??;
        world.run(BOUND, tpcc::load(&cluster, &config, &progress))??;
        let interval = world.run(BOUND, tpcc::measure(&cluster, &config, &progress))??;
        let completed = interval.measurements.completed() as f64;
        Ok(Mixed { transactions_per_second: completed / interval.elapsed.as_secs_f64() })
    }
}

/// All points of the figure.
pub(super) fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for stragglers in Stragglers::ALL {
        for (x, coding) in CODINGS {
            let work = Work::Latency(Latency { stragglers, coding });
            points.push(Point { series: stragglers.name().to_owned(), x: x.to_owned(), work });
        }
    }
    for (x, coding) in CODINGS.into_iter().filter(|(x, _)| MIX.contains(x)) {
        let work = Work::Mix(Mix { coding });
        points.push(Point { series: "TPC-C".to_owned(), x: x.to_owned(), work });
    }
    points.extend(memory::points());
    points
}

pub(super) fn setup(duration: Duration, seed: u64) -> String {
    let milliseconds = duration.as_millis();
    format!(
        "Simulated network `modern`, {milliseconds} ms a point after as many to warm up, seed {seed}; {COMPUTE_NODES} \
         compute nodes, {MEMORY_NODES} memory nodes, pages of {GCL_BYTES} bytes. Latencies: {WORKERS} workers a compute \
         node, each with pages of its own, none of them cached; Δ = 1 unless it says otherwise. *slow node*: the adapter \
         of one memory node is {SLOWER} times slower; *late chains*: one operation in {LATE_ONE_IN} is up to {} µs \
         later, and what follows it to the same node with it. TPC-C: 8 workers a compute node, 8 warehouses of a \
         hundredth of the standard size, caches of 4 MiB. The processor's work for coding and checksums takes no virtual \
         time. {}",
        LATE_BY.as_micros(),
        memory::setup()
    )
}

fn latencies(measured: &Measured) -> impl Iterator<Item = (&Point, &Latencies)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        Outcome::Latencies(latencies) => Some((point, latencies)),
        _ => None,
    })
}

/// Something of a coding's latencies over the same of another's.
fn over(
    measured: &Measured,
    stragglers: Stragglers,
    (above, below): (&str, &str),
    what: fn(&Latencies) -> f64,
) -> Option<f64> {
    let of = |coding: &str| {
        let mut found = latencies(measured);
        let found = found.find(|(p, _)| p.series == stragglers.name() && p.x == coding);
        found.map(|(_, latencies)| what(latencies))
    };
    Some(of(above)? / of(below)?)
}

fn mixed(measured: &Measured) -> impl Iterator<Item = (&Point, &Mixed)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        Outcome::Mixed(mixed) => Some((point, mixed)),
        _ => None,
    })
}

fn throughput_over(measured: &Measured, above: &str, below: &str) -> Option<f64> {
    let of = |coding: &str| {
        let found = mixed(measured).find(|(point, _)| point.x == coding);
        found.map(|(_, mixed)| mixed.transactions_per_second)
    };
    Some(of(above)? / of(below)?)
}

pub(super) fn claims() -> Vec<Claim> {
    vec![
        Claim::new("median read, 8+2 over plain", Expected::AtMost(1.15), |m| {
            over(m, Stragglers::None, (CODED, PLAIN), |l| l.read.median)
        }),
        Claim::new("p99 of reads with a slow node, 8+2 over plain", Expected::AtMost(1.0), |m| {
            over(m, Stragglers::SlowNode, (CODED, PLAIN), |l| l.read.p99)
        }),
        Claim {
            what: "p99 of reads with late chains, 8+2 over plain",
            expected: Expected::AtMost(1.0),
            ours: |m| over(m, Stragglers::LateChains, (CODED, PLAIN), |l| l.read.p99),
            why: "Any chain may be late here, whichever node it goes to, and holds up the next: a coded read has ten of \
                  them where a plain one has one. Those that read splits make up for each other; the one that takes the \
                  latch is late as often as that of a plain read.",
        },
        Claim::new("TPC-C, 8+2 over 2 copies", Expected::AtLeast(0.95), |m| {
            throughput_over(m, CODED, COPIES)
        }),
        Claim::new("TPC-C, 8+2 over plain", Expected::Unsaid, |m| throughput_over(m, CODED, PLAIN)),
        Claim::new("memory over pages of 4 KiB, 8+2", Expected::AtMost(1.35), |m| {
            memory::a_byte(m, "4 KiB", CODED)
        }),
        Claim::new("memory over pages of 2 KiB, 8+2", Expected::Unsaid, |m| {
            memory::a_byte(m, "2 KiB", CODED)
        }),
    ]
}

/// What is written of the figure.
pub(super) fn tables(measured: &Measured) -> Vec<Table> {
    let caption = "Median and p99, µs:";
    vec![
        latency(
            measured,
            ("coding-latency-read", "Reads of pages that are not cached"),
            caption,
            |l| l.read,
        ),
        latency(
            measured,
            ("coding-latency-word", "Write-backs of pages of which a word was changed"),
            caption,
            |l| l.word,
        ),
        latency(
            measured,
            ("coding-latency-page", "Write-backs of pages that were changed from end to end"),
            caption,
            |l| l.page,
        ),
        mix(measured),
        memory::table(measured),
    ]
}

fn latency(
    measured: &Measured,
    (stem, title): (&'static str, &'static str),
    caption: &'static str,
    of: fn(&Latencies) -> Quantiles,
) -> Table {
    let rows = latencies(measured).map(|(point, latencies)| {
        let Quantiles { median, p99 } = of(latencies);
        Row {
            series: point.series.clone(),
            x: point.x.clone(),
            values: format!("{},{median:.3},{p99:.3}", latencies.operations),
            cell: Some(format!("{median:.2}, {p99:.2}")),
        }
    });
    let points: Vec<(String, &str, f64)> = latencies(measured)
        .flat_map(|(p, l)| {
            let Quantiles { median, p99 } = of(l);
            let line = |what: &str, y: f64| (format!("{what}, {}", p.series), &*p.x, y);
            [line("median", median), line("p99", p99)]
        })
        .collect();
    let points = points.iter().map(|(series, x, y)| (&**series, *x, *y));
    Table {
        stem,
        title,
        caption,
        x_label: "coding",
        columns: "operations,median_us,p99_us",
        rows: rows.collect(),
        plot: Some(Plot::new("µs", points)),
    }
}

fn mix(measured: &Measured) -> Table {
    let rows = mixed(measured).map(|(point, mixed)| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: format!("{:.0}", mixed.transactions_per_second),
        cell: Some(format!("{:.1}", mixed.transactions_per_second / 1e3)),
    });
    let points =
        mixed(measured).map(|(p, mixed)| (&*p.series, &*p.x, mixed.transactions_per_second / 1e3));
    let y_label = "thousand transactions a second";
    Table {
        stem: "coding-latency-tpcc",
        title: "TPC-C",
        caption: "Thousand transactions a second:",
        x_label: "coding",
        columns: "transactions_per_second",
        rows: rows.collect(),
        plot: Some(Plot::new(y_label, points)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(300);

    fn of(stragglers: Stragglers, coding: &'static str) -> Latencies {
        let latencies = Latency { stragglers, coding }.run(SHORT, 1).unwrap();
        assert!(latencies.operations > 100, "{}", latencies.operations);
        latencies
    }

    #[test]
    fn a_coded_read_is_one_round_trip_and_a_write_back_one_more_than_without() {
        let round_trip = 2.0 * NETWORK.one_way.as_secs_f64() * 1e6;
        let [plain, coded] = ["plain", "8+2"].map(|coding| of(Stragglers::None, coding));
        for latencies in [&plain, &coded] {
            let read = latencies.read.median;
            assert!((round_trip..1.9 * round_trip).contains(&read), "{read} µs");
        }
        assert!(plain.word.median < 1.9 * round_trip, "{}", plain.word.median);
        // Parity, then the data, then the header.
        let stages = coded.word.median / round_trip;
        assert!((3.0..4.0).contains(&stages), "{stages} round trips");
    }

    #[test]
    fn stragglers_are_in_the_tail_of_plain_reads() {
        let [none, slow, late] = Stragglers::ALL.map(|stragglers| of(stragglers, "plain").read);
        assert!(
            slow.p99 > 2.0 * none.p99 && late.p99 > 2.0 * none.p99,
            "{none:?} {slow:?} {late:?}"
        );
        assert!(slow.median < 1.2 * none.median && late.median < 1.2 * none.median);
    }

    #[test]
    fn every_coding_fits_the_pool() {
        for (_, coding) in CODINGS {
            let coding: Coding = coding.parse().unwrap();
            coding.validate_for(GCL_BYTES, MEMORY_NODES).unwrap();
        }
        assert!(MIX.iter().all(|mix| CODINGS.iter().any(|(name, _)| name == mix)));
    }
}
