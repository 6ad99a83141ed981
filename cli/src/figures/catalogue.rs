//! The catalogue: for each figure its points, its claims, its tables, and the text above them.

use super::figure::{Figure, Settings};
use super::point::{Claim, Measured, Point};
use super::sweeps::{failures, latency, micro, sets, tpcc, two_phase};
use super::table::Table;

/// Says on what a figure is measured, for the page.
pub(super) fn setup(figure: Figure, settings: &Settings) -> String {
    let Settings { duration, seed, trials } = settings;
    match figure {
        Figure::Tpcc => tpcc::setup(*duration, *seed),
        Figure::TwoPhaseCommit => two_phase::setup(*duration, *seed),
        Figure::CodingSets => sets::setup(*trials, *seed),
        Figure::CodingLatency => latency::setup(*duration, *seed),
        Figure::CodingFailures => failures::setup(*duration, *seed),
        _ => format!(
            "Simulated network `paper`, {} ms a point after as many to warm up, seed {seed}.",
            duration.as_millis()
        ),
    }
}

/// The runs of a figure.
pub(super) fn points(figure: Figure) -> Vec<Point> {
    match figure {
        Figure::Scalability => micro::scalability(),
        Figure::Locality => micro::locality(),
        Figure::Skew => micro::skew(),
        Figure::Fairness => micro::fairness(),
        Figure::RemoteCpu => micro::remote_cpu(),
        Figure::GclSize => micro::gcl_size(),
        Figure::Ablation => micro::ablation(),
        Figure::Tpcc => tpcc::points(),
        Figure::TwoPhaseCommit => two_phase::points(),
        Figure::CodingSets => sets::points(),
        Figure::CodingLatency => latency::points(),
        Figure::CodingFailures => failures::points(),
    }
}

/// What was published about a figure.
pub(super) fn claims(figure: Figure) -> Vec<Claim> {
    match figure {
        Figure::Scalability => micro::scalability_claims(),
        Figure::Locality => micro::locality_claims(),
        Figure::Skew => micro::skew_claims(),
        Figure::Fairness => micro::fairness_claims(),
        Figure::RemoteCpu => micro::remote_cpu_claims(),
        Figure::GclSize | Figure::Ablation => Vec::new(),
        Figure::Tpcc => tpcc::claims(),
        Figure::TwoPhaseCommit => two_phase::claims(),
        Figure::CodingSets => sets::claims(),
        Figure::CodingLatency => latency::claims(),
        Figure::CodingFailures => failures::claims(),
    }
}

/// What is written of a figure.
pub(super) fn tables(measured: &Measured) -> Vec<Table> {
    match measured.figure {
        Figure::Tpcc => tpcc::tables(measured),
        Figure::TwoPhaseCommit => two_phase::tables(measured),
        Figure::CodingSets => sets::tables(measured),
        Figure::CodingLatency => latency::tables(measured),
        Figure::CodingFailures => failures::tables(measured),
        _ => vec![micro::table(measured)],
    }
}
