//! Runs the points of figures on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use selkie_tpcc::{Progress, units};

use super::catalogue;
use super::figure::{Figure, Settings};
use super::point::{Measured, Point};
use super::work::cluster::RunError;
use crate::support::progress::Stderr;

/// Runs all points of the figures.
pub(super) fn all(
    figures: &[Figure],
    settings: &Settings,
    threads: usize,
) -> Result<Vec<Measured>, RunError> {
    let points: Vec<(Figure, Point)> = figures
        .iter()
        .flat_map(|figure| catalogue::points(*figure).into_iter().map(|point| (*figure, point)))
        .collect();
    let progress = Stderr::new();
    let runs = units::plural(points.len() as u64, "run");
    progress.note(&format!("{runs}, {threads} at a time; each may take some seconds"));
    progress.begin("runs", points.len() as u64);
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some((_, point)) = points.get(index) else { return };
                    let outcome = point.experiment.run(settings);
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
