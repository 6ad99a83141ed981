//! Points of figures: what is run for each, what came of it, and what was published about it.

use std::fmt;

use selkie_tpcc::micro::Report;

use super::figure::Figure;
use super::work::experiment::{Experiment, ExperimentResult};

/// One point: a run.
pub(super) struct Point {
    pub(super) series: String,
    /// What stands at the axis.
    pub(super) x: String,
    pub(super) experiment: Experiment,
}

/// Something published or aimed at, and what it is measured to be here.
pub(super) struct Claim {
    pub(super) what: &'static str,
    pub(super) expected: Expected,
    pub(super) ours: fn(&Measured) -> Option<f64>,
    /// Why it differs, where it does.
    pub(super) why: &'static str,
}

impl Claim {
    /// One of which there is nothing to explain.
    pub(super) const fn new(
        what: &'static str,
        expected: Expected,
        ours: fn(&Measured) -> Option<f64>,
    ) -> Self {
        Self { what, expected, ours, why: "" }
    }
}

/// What a ratio should be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Expected {
    /// The value that a paper published.
    Published(f64),
    /// An aim of this project.
    AtMost(f64),
    /// As well.
    AtLeast(f64),
    /// Whatever it is.
    Unsaid,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(ratio) => write!(f, "{ratio}"),
            Self::AtMost(ratio) => write!(f, "≤ {ratio}"),
            Self::AtLeast(ratio) => write!(f, "≥ {ratio}"),
            Self::Unsaid => Ok(()),
        }
    }
}

/// A figure's points with what came out.
pub(super) struct Measured {
    pub(super) figure: Figure,
    pub(super) points: Vec<(Point, ExperimentResult)>,
    /// How many points it has: not all were measured if something ended the command.
    pub(super) planned: usize,
}

impl Measured {
    /// Whether all of its points were measured.
    pub(super) fn is_whole(&self) -> bool {
        self.points.len() == self.planned
    }

    /// The points that were runs of the micro-benchmark.
    pub(super) fn micro(&self) -> impl Iterator<Item = (&Point, &Report)> {
        self.points.iter().filter_map(|(point, outcome)| match outcome {
            ExperimentResult::Micro(report) => Some((point, &**report)),
            _ => None,
        })
    }
}
