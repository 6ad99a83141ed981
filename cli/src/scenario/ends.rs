//! How each process of a scenario must end.

use std::time::Duration;

use super::file::{FabricKind, FaultAction};
use super::plan::{FaultTarget, Plan, PlannedFault};

/// How a process must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedEnd {
    /// With exit code 0.
    Well,
    /// By the signal that the scenario sent.
    Killed,
    /// With an error of its own.
    Error(ExpectedError),
    /// Either of these: on shared memory a process that stands still in the middle of a verb can
    /// only be fenced by ending it.
    ErrorOrKilled(ExpectedError),
}

/// An error with which a driver must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExpectedError {
    pub(crate) cause: ErrorCause,
    /// Not sooner.
    pub(crate) from: Duration,
    /// Not later.
    pub(crate) by: Duration,
}

/// What the error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorCause {
    /// A memory node is dead.
    Memory,
    /// The others have taken it for dead.
    Expelled,
}

impl Plan {
    /// What an error says that has this cause; with several memory nodes that die, one of these.
    pub(crate) fn says(&self, cause: ErrorCause) -> Vec<String> {
        let ErrorCause::Memory = cause else {
            return vec!["declared dead by the others".to_owned()];
        };
        let dead = self.faults.iter().filter_map(|due| match due.target {
            FaultTarget::Memory(position) => Some(format!("peer mem{position} is dead")),
            FaultTarget::Driver(_) => None,
        });
        dead.collect()
    }

    /// How process `incarnation` of a driver must end, counted from 0.
    pub(crate) fn end_of(&self, driver: usize, incarnation: usize) -> ExpectedEnd {
        let lease = self.file.pool.lease.0.0;
        let margin = self.file.expect.fails_within.0.0;
        let own = self.faults.iter().filter(|due| due.target == FaultTarget::Driver(driver));
        let killing: Vec<&PlannedFault> = own.clone().filter(|due| due.kills).collect();
        if let Some(due) = killing.get(incarnation) {
            let over = |end: FaultAction| {
                let mut own = own.clone();
                own.find(|later| later.at >= due.at && later.action == end).map(|later| later.at)
            };
            return match due.action {
                // It notices its death when it continues. If it never does, the run kills it.
                FaultAction::Stop => match over(FaultAction::Continue) {
                    None => ExpectedEnd::Killed,
                    Some(from) => {
                        let failure =
                            ExpectedError { cause: ErrorCause::Expelled, from, by: from + margin };
                        let is_shm = self.file.fabric == FabricKind::Shm;
                        if is_shm {
                            ExpectedEnd::ErrorOrKilled(failure)
                        } else {
                            ExpectedEnd::Error(failure)
                        }
                    }
                },
                FaultAction::Cut => {
                    let (from, by) = (due.at, due.at + lease + margin);
                    ExpectedEnd::Error(ExpectedError { cause: ErrorCause::Expelled, from, by })
                }
                _ => ExpectedEnd::Killed,
            };
        }
        match self.memory_is_lost() {
            Some(from) => {
                let by = from + lease + margin;
                ExpectedEnd::Error(ExpectedError { cause: ErrorCause::Memory, from, by })
            }
            None => ExpectedEnd::Well,
        }
    }
}
