//! What was seen while a scenario ran.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::ends::ExpectedEnd;
use super::plan::PlannedFault;
use super::series::ThroughputTrack;

/// All of it. Times are since the drivers without a delay had all begun to run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    pub(crate) drivers: Vec<ObservedDriver>,
    pub(crate) memory: Vec<ObservedMemoryNode>,
    /// What was found of what drivers had committed that may have died, if it could be looked for.
    pub(crate) verified: Option<ObservedVerification>,
    /// Faults as they were done.
    pub(crate) faults: Vec<ObservedFault>,
    /// The pool when all drivers had ended, if it is one of several processes.
    pub(crate) pool: Option<PoolStatus>,
    /// Segments, sockets, namespaces that were left at the end.
    pub(crate) leftovers: Vec<String>,
    /// What could not be looked at or removed, and why.
    pub(crate) troubles: Vec<String>,
}

/// What `selkie pool status --json` says, as far as it matters here.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PoolStatus {
    pub(crate) compute_nodes: Vec<PoolNode>,
    pub(crate) recovering_from: Vec<u64>,
    /// Those with whom pages are lost.
    pub(crate) dead_compute_nodes: Vec<u64>,
    pub(crate) lost_pages: Vec<u64>,
}

/// A compute node in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct PoolNode {
    pub(crate) node: u64,
}

impl PoolStatus {
    pub(crate) fn of_status(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("pool status: {error}"))
    }

    /// Of the segments of compute nodes that are there, those that are no mark of a node that is in
    /// the pool or has died. A node that died without taking a page with it leaves a mark too, of
    /// which the pool does not know: there may be as many of these as nodes died that it does not
    /// know of.
    pub(crate) fn leaked(&self, mut segments: Vec<u64>, died: usize) -> Vec<u64> {
        let dead = self.recovering_from.iter().chain(&self.dead_compute_nodes);
        let unknown = died.saturating_sub(dead.clone().count());
        let in_pool = self.compute_nodes.iter().map(|node| &node.node);
        let known: Vec<u64> = dead.chain(in_pool).copied().collect();
        segments.retain(|segment| !known.contains(segment));
        if segments.len() > unknown { segments } else { Vec::new() }
    }
}

/// A process of a driver.
#[derive(Clone, Debug)]
pub(crate) struct ObservedDriver {
    /// Position of the driver in the plan.
    pub(crate) driver: usize,
    /// The driver's name; with a number if it is not the first process of it.
    pub(crate) name: String,
    pub(crate) expected: ExpectedEnd,
    pub(crate) ended: ProcessEnd,
    pub(crate) ended_at: Duration,
    /// The last error it told.
    pub(crate) error: Option<String>,
    /// Where it panicked, as it told.
    pub(crate) panic: Option<String>,
    pub(crate) report: Option<Value>,
    pub(crate) track: Option<ThroughputTrack>,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Code(i32),
    Signal(i32),
    /// It hung, and was killed in the end.
    Not,
}

/// The process of a memory node.
#[derive(Clone, Debug)]
pub(crate) struct ObservedMemoryNode {
    pub(crate) name: String,
    pub(crate) ended: ProcessEnd,
    /// The last error it told.
    pub(crate) error: Option<String>,
    /// Where it panicked, as it told.
    pub(crate) panic: Option<String>,
}

/// The process that looked for what others had committed.
#[derive(Clone, Debug)]
pub(crate) struct ObservedVerification {
    pub(crate) ended: ProcessEnd,
    /// The last error it told.
    pub(crate) error: Option<String>,
    pub(crate) report: Option<Value>,
}

/// A fault that was done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObservedFault {
    pub(crate) due: PlannedFault,
    pub(crate) done_at: Duration,
    /// Its target had ended before.
    pub(crate) missed: bool,
}

impl ObservedFault {
    /// When it was over.
    pub(crate) fn over(&self) -> Duration {
        self.done_at + self.due.over.saturating_sub(self.due.at)
    }
}

impl ObservedDriver {
    /// A number of its report.
    pub(crate) fn number(&self, pointer: &str) -> Option<u64> {
        self.report.as_ref()?.pointer(pointer)?.as_u64()
    }
}

impl std::fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Not => f.write_str("it hung"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = r#"{"pool":"x","compute_nodes":[{"node":3,"lives":true}],"recovering_from":[4],
        "dead_compute_nodes":[1],"lost_pages":[4096,8192]}"#;

    #[test]
    fn a_status_that_is_not_understood_is_an_error() {
        let seen = PoolStatus::of_status(STATUS).unwrap();
        assert_eq!(seen.compute_nodes, [PoolNode { node: 3 }]);
        assert_eq!((&seen.recovering_from[..], &seen.dead_compute_nodes[..]), (&[4][..], &[1][..]));
        assert_eq!(seen.lost_pages.len(), 2);
        let without = |key: &str| STATUS.replace(&format!("\"{key}\""), "\"x\"");
        for key in ["compute_nodes", "recovering_from", "dead_compute_nodes", "lost_pages", "node"]
        {
            let error = PoolStatus::of_status(&without(key)).unwrap_err();
            assert!(error.contains(&format!("missing field `{key}`")), "{error}");
        }
        for bad in ["", "pool x", &STATUS.replace("[1]", "1")] {
            assert!(PoolStatus::of_status(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_the_dead_leave_segments() {
        let seen = PoolStatus::of_status(STATUS).unwrap();
        assert_eq!(seen.leaked(vec![1, 3, 4], 2), [0; 0]);
        assert_eq!(seen.leaked(vec![1, 2], 2), [2], "both that died are known");
        assert_eq!(seen.leaked(vec![1, 2], 3), [0; 0], "one died with nothing");
        assert_eq!(seen.leaked(vec![0, 2], 3), [0, 2]);
        assert_eq!(PoolStatus::default().leaked(vec![0], 0), [0]);
    }
}
