//! What was seen while a scenario ran.

use std::time::Duration;

use serde_json::Value;

use super::plan::{Due, End};
use super::series::Track;

/// All of it. Times are since the drivers without a delay had all begun to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) drivers: Vec<DriverSeen>,
    pub(crate) memory: Vec<MemorySeen>,
    /// Faults as they were done.
    pub(crate) faults: Vec<FaultSeen>,
    /// Compute nodes that were in the pool when all drivers had ended.
    pub(crate) left_in_pool: Vec<u64>,
    /// Pages that the pool knows to be lost.
    pub(crate) lost_pages: usize,
    /// Segments, processes, sockets, namespaces that were left at the end.
    pub(crate) leftovers: Vec<String>,
}

/// A process of a driver.
#[derive(Clone, Debug)]
pub(crate) struct DriverSeen {
    /// Position of the driver in the plan.
    pub(crate) driver: usize,
    /// The driver's name; with a number if it is not the first process of it.
    pub(crate) name: String,
    pub(crate) expected: End,
    pub(crate) ended: Ended,
    pub(crate) ended_at: Duration,
    /// The last error it told.
    pub(crate) error: Option<String>,
    /// Whether it panicked.
    pub(crate) panicked: bool,
    pub(crate) report: Option<Value>,
    pub(crate) track: Option<Track>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(i32),
    Signal(i32),
    /// It hung, and was killed in the end.
    Not,
}

/// The process of a memory node.
#[derive(Clone, Debug)]
pub(crate) struct MemorySeen {
    pub(crate) name: String,
    pub(crate) ended: Ended,
    /// The scenario killed it.
    pub(crate) was_killed: bool,
}

/// A fault that was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultSeen {
    pub(crate) due: Due,
    pub(crate) done_at: Duration,
}

impl DriverSeen {
    /// A number of its report.
    pub(crate) fn number(&self, pointer: &str) -> Option<u64> {
        self.report.as_ref()?.pointer(pointer)?.as_u64()
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Not => f.write_str("it hung"),
        }
    }
}
