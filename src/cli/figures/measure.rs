//! Runs the points of figures, each on a thread of its own.

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use selkie::engine::Roster;
use selkie::tpcc::micro::{self, Config, Report};
use selkie::tpcc::{Config as TpccConfig, Progress, Report as TpccReport};

use super::experiment::{Figure, Point, Settings};
use super::failures::{self, Course};
use super::latency::{Latencies, Latency, Mix, Mixed};
use super::memory::{Filled, Memory};
use super::sets::{Balance, Balanced, Loss, Lost};
use super::table::Table;
use super::tpcc;
use crate::cli::progress::Stderr;

/// What is done for a point.
pub(super) enum Work {
    Micro(Box<Config>),
    Tpcc(Box<TpccConfig>),
    Loss(Loss),
    Balance(Balance),
    Latency(Latency),
    Mix(Mix),
    Memory(Memory),
    Failure(failures::Loss),
}

/// What came of it.
pub(super) enum Outcome {
    Micro(Box<Report>),
    Tpcc(Box<TpccReport>),
    Lost(Lost),
    Balanced(Balanced),
    Latencies(Latencies),
    Mixed(Mixed),
    Filled(Filled),
    Course(Course),
}

/// Why a point could not be measured.
pub(super) type Failure = Box<dyn Error + Send + Sync>;

impl Work {
    fn run(&self, settings: &Settings) -> Result<Outcome, Failure> {
        let Settings { duration, seed, trials } = *settings;
        Ok(match self {
            Self::Micro(config) => {
                let config = Config { duration, warmup: duration, seed, ..(**config).clone() };
                Outcome::Micro(Box::new(micro::run(&config, &Roster::default())?))
            }
            Self::Tpcc(config) => Outcome::Tpcc(Box::new(tpcc::run(config, duration, seed)?)),
            Self::Loss(loss) => Outcome::Lost(loss.run(trials, seed)),
            Self::Balance(balance) => Outcome::Balanced(balance.run(seed)),
            Self::Latency(latency) => Outcome::Latencies(latency.run(duration, seed)?),
            Self::Mix(mix) => Outcome::Mixed(mix.run(duration, seed)?),
            Self::Memory(memory) => Outcome::Filled(memory.run(seed)?),
            Self::Failure(loss) => Outcome::Course(loss.run(duration, seed)?),
        })
    }
}

/// A figure's points with what came out.
pub(super) struct Measured {
    pub(super) figure: Figure,
    pub(super) points: Vec<(Point, Outcome)>,
}

impl Measured {
    /// What is written of it.
    pub(super) fn tables(&self) -> Vec<Table> {
        match self.figure {
            Figure::Tpcc => tpcc::tables(self),
            Figure::TwoPhaseCommit => super::two_phase::tables(self),
            Figure::CodingSets => super::sets::tables(self),
            Figure::CodingLatency => super::latency::tables(self),
            Figure::CodingFailures => failures::tables(self),
            _ => vec![super::micro::table(self)],
        }
    }

    /// The points that were runs of the micro-benchmark.
    pub(super) fn micro(&self) -> impl Iterator<Item = (&Point, &Report)> {
        self.points.iter().filter_map(|(point, outcome)| match outcome {
            Outcome::Micro(report) => Some((point, &**report)),
            _ => None,
        })
    }

    /// Throughput of one point over that of another, each named by series and place on the axis.
    pub(super) fn ratio(&self, above: (&str, &str), below: (&str, &str)) -> Option<f64> {
        let of = |(series, x): (&str, &str)| {
            let found = self.micro().find(|(p, _)| p.series == series && p.x == x);
            found.map(|(_, report)| report.ops_per_second())
        };
        Some(of(above)? / of(below)?)
    }

    /// Accesses of the first node over the median of the others.
    pub(super) fn fairness(&self, series: &str) -> Option<f64> {
        let (_, report) = self.micro().find(|(point, _)| point.series == series)?;
        let (writer, readers) = report.accesses.split_first()?;
        let mut readers = readers.to_vec();
        readers.sort_unstable();
        Some(*writer as f64 / *readers.get(readers.len() / 2)? as f64)
    }
}

/// Runs all points of the figures.
pub(super) fn all(
    figures: &[Figure],
    settings: &Settings,
    threads: usize,
) -> Result<Vec<Measured>, Failure> {
    let points: Vec<(Figure, Point)> = figures
        .iter()
        .flat_map(|figure| figure.points().into_iter().map(|point| (*figure, point)))
        .collect();
    let progress = Stderr::new();
    progress.begin("runs", points.len() as u64);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((_, point)) = points.get(index) else { return };
                    let outcome = point.work.run(settings);
                    failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    let mut outcomes =
                        outcomes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    outcomes.push((index, outcome));
                    drop(outcomes);
                    progress.advance(1);
                }
            });
        }
    });
    progress.end();
    let mut outcomes = outcomes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    outcomes.sort_by_key(|(index, _)| *index);
    let mut measured: Vec<Measured> = Vec::new();
    for ((figure, point), (_, outcome)) in points.into_iter().zip(outcomes) {
        let outcome = outcome.map_err(|error| format!("{}, {}: {error}", point.series, point.x))?;
        match measured.last_mut().filter(|last| last.figure == figure) {
            Some(last) => last.points.push((point, outcome)),
            None => measured.push(Measured { figure, points: vec![(point, outcome)] }),
        }
    }
    Ok(measured)
}
