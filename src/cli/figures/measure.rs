//! Runs the points of figures, each on a thread of its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use selkie::engine::Roster;
use selkie::tpcc::micro::{self, Config, Report};
use selkie::tpcc::{Progress, TpccError};

use super::experiment::{Figure, Point};
use crate::cli::progress::Stderr;

/// A figure's points with what came out.
pub(super) struct Measured {
    pub(super) figure: Figure,
    pub(super) points: Vec<(Point, Report)>,
}

impl Measured {
    /// Throughput of one point over that of another, each named by series and place on the axis.
    pub(super) fn ratio(&self, above: (&str, &str), below: (&str, &str)) -> Option<f64> {
        let of = |(series, x): (&str, &str)| {
            let found = self.points.iter().find(|(p, _)| p.series == series && p.x == x);
            found.map(|(_, report)| report.ops_per_second())
        };
        Some(of(above)? / of(below)?)
    }

    /// Accesses of the first node over the median of the others.
    pub(super) fn fairness(&self, series: &str) -> Option<f64> {
        let (_, report) = self.points.iter().find(|(point, _)| point.series == series)?;
        let (writer, readers) = report.accesses.split_first()?;
        let mut readers = readers.to_vec();
        readers.sort_unstable();
        Some(*writer as f64 / *readers.get(readers.len() / 2)? as f64)
    }
}

/// Runs all points of the figures.
pub(super) fn all(
    figures: &[Figure],
    duration: Duration,
    seed: u64,
    threads: usize,
) -> Result<Vec<Measured>, TpccError> {
    let points: Vec<(Figure, Point)> = figures
        .iter()
        .flat_map(|figure| figure.points().into_iter().map(|point| (*figure, point)))
        .collect();
    let progress = Stderr::new();
    progress.begin("runs", points.len() as u64);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let reports = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((_, point)) = points.get(index) else { return };
                    let config =
                        Config { duration, warmup: duration, seed, ..point.config.clone() };
                    let report = micro::run(&config, &Roster::default());
                    failed.fetch_or(report.is_err(), Ordering::Relaxed);
                    let mut reports =
                        reports.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    reports.push((index, report));
                    drop(reports);
                    progress.advance(1);
                }
            });
        }
    });
    progress.end();
    let mut reports = reports.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    reports.sort_by_key(|(index, _)| *index);
    let mut measured: Vec<Measured> = Vec::new();
    for ((figure, point), (_, report)) in points.into_iter().zip(reports) {
        let report = report?;
        match measured.last_mut().filter(|last| last.figure == figure) {
            Some(last) => last.points.push((point, report)),
            None => measured.push(Measured { figure, points: vec![(point, report)] }),
        }
    }
    Ok(measured)
}
