//! How each process of a scenario must end.
//!
//! Where chance decides whether the pool takes a process for dead, several ends are right; what
//! must hold is that it ends in one of them, in time.

use std::time::Duration;

use super::file::FaultAction;
use super::plan::{Death, FaultTarget, Plan, PlannedFault};

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
    /// Chance decides.
    Open(OpenEnd),
}

/// The ends between which chance decides: an error, or another that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenEnd {
    pub(crate) error: ExpectedError,
    pub(crate) well: bool,
    pub(crate) killed: bool,
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
    /// The others have taken it for dead, or it names a process to which something happened.
    Fault,
    /// As [`ErrorCause::Fault`], or a page is lost without which the database cannot be opened.
    FaultOrLost,
}

impl ExpectedEnd {
    /// Whether it may end well.
    pub(crate) fn may_be_well(self) -> bool {
        matches!(self, Self::Well | Self::Open(OpenEnd { well: true, .. }))
    }
}

const EXPELLED: &str = "declared dead by the others";
/// Of the error for a page that is lost.
pub(super) const IS_LOST: &str = " is lost: ";

impl Plan {
    /// What an error says that has this cause: one of these.
    pub(crate) fn says(&self, cause: ErrorCause) -> Vec<String> {
        let memory = |due: &PlannedFault| {
            [Some(due.target), due.from].into_iter().flatten().find_map(|target| match target {
                FaultTarget::Memory(position) => Some(position),
                FaultTarget::Driver(_) => None,
            })
        };
        let memory = self.faults.iter().filter_map(memory);
        match cause {
            ErrorCause::Expelled => vec![EXPELLED.to_owned()],
            ErrorCause::Memory => {
                memory.map(|position| format!("peer mem{position} is dead")).collect()
            }
            ErrorCause::Fault => {
                let mut says = vec![EXPELLED.to_owned()];
                says.extend(memory.map(|position| format!("mem{position}")));
                // A node's own death may meet it as that of one it talks to.
                says.push("peer cn".to_owned());
                // Of two that do not reach each other for long, one gives its membership up.
                says.push("cannot reach cn".to_owned());
                says.dedup();
                says
            }
            ErrorCause::FaultOrLost => {
                let mut says = self.says(ErrorCause::Fault);
                says.push(IS_LOST.to_owned());
                says
            }
        }
    }

    /// How process `incarnation` of a driver must end, counted from 0.
    pub(crate) fn end_of(&self, driver: usize, incarnation: usize) -> ExpectedEnd {
        let target = FaultTarget::Driver(driver);
        let (begins, ends) = self.life_of(target, incarnation);
        let own: Vec<&PlannedFault> = self
            .faults
            .iter()
            .filter(|due| due.touches(target) && begins <= due.at && due.at < ends)
            .collect();
        let sure = own.iter().find(|due| due.death == Death::Surely);
        let sure = sure.map(|due| self.sure_end(due, &own));
        let memory = self.memory_may_be_lost();
        let is_sure = self.memory_is_lost().is_some();
        let chances = own.iter().copied().filter(|due| due.death == Death::Perhaps);
        let unreached = self.faults.iter().filter(|due| self.is_long_silence_of_memory(due));
        let chances: Vec<_> = chances.chain(memory.filter(|_| !is_sure)).chain(unreached).collect();
        let (Some(from), Some(over)) =
            (chances.iter().map(|due| due.at).min(), chances.iter().map(|due| due.over).max())
        else {
            return sure.unwrap_or_else(|| self.end_by_others(incarnation, begins));
        };
        let may_be_lost = incarnation > 0 && self.may_lose_pages();
        let error = ExpectedError {
            cause: if may_be_lost { ErrorCause::FaultOrLost } else { ErrorCause::Fault },
            from,
            by: over.max(begins) + self.patience(),
        };
        let stands = own.iter().any(|due| due.action == FaultAction::Stop);
        let to_the_end = over >= self.duration;
        let fenced = stands && (self.is_shm() || to_the_end);
        ExpectedEnd::Open(match sure {
            None => OpenEnd { error, well: !is_sure, killed: fenced },
            Some(ExpectedEnd::Error(sure) | ExpectedEnd::ErrorOrKilled(sure)) => {
                let (from, by) = (error.from.min(sure.from), error.by.max(sure.by));
                let error = ExpectedError { from, by, ..error };
                OpenEnd { error, well: false, killed: fenced }
            }
            Some(_) => OpenEnd { error, well: false, killed: true },
        })
    }

    /// Whether a memory node that lives is silent for about as long as after which compute nodes
    /// give their membership up: four leases.
    pub(super) fn is_long_silence_of_memory(&self, due: &PlannedFault) -> bool {
        let is_of_memory = matches!(due.target, FaultTarget::Memory(_)) && due.from.is_none();
        let is_silent = match due.action {
            FaultAction::Cut => true,
            FaultAction::Stop => !self.is_shm(),
            _ => false,
        };
        let silence = due.over.saturating_sub(due.at);
        is_of_memory && is_silent && silence > self.file.pool.lease.0.0 * 7 / 2
    }

    /// From when to when a process of a target may run: from a restart to the next.
    fn life_of(&self, target: FaultTarget, incarnation: usize) -> (Duration, Duration) {
        let restarts = self
            .faults
            .iter()
            .filter(|due| due.target == target && due.action == FaultAction::Restart);
        let mut bounds = vec![Duration::ZERO];
        bounds.extend(restarts.map(|due| due.at));
        let bound = |number: usize| bounds.get(number).copied().unwrap_or(Duration::MAX);
        (bound(incarnation), bound(incarnation + 1))
    }

    fn sure_end(&self, due: &PlannedFault, own: &[&PlannedFault]) -> ExpectedEnd {
        let (lease, margin) = (self.file.pool.lease.0.0, self.file.expect.fails_within.0.0);
        let over = |end: FaultAction| {
            own.iter().find(|later| later.at >= due.at && later.action == end).map(|later| later.at)
        };
        match due.action {
            // It notices its death when it continues. If it never does, the run kills it.
            FaultAction::Stop => match over(FaultAction::Continue) {
                None => ExpectedEnd::Killed,
                Some(from) => {
                    let failure =
                        ExpectedError { cause: ErrorCause::Expelled, from, by: from + margin };
                    if self.is_shm() {
                        ExpectedEnd::ErrorOrKilled(failure)
                    } else {
                        ExpectedEnd::Error(failure)
                    }
                }
            },
            FaultAction::Cut => {
                let (from, alone) = (due.at, due.at + lease + margin);
                // Still cut off it ends by itself. Healed before, it may wait for what TCP sends
                // again, and for as long as the cut has lasted TCP need not try.
                let by = match due.over < alone {
                    true => alone.max(due.over + self.patience()),
                    false => alone,
                };
                ExpectedEnd::Error(ExpectedError { cause: ErrorCause::Expelled, from, by })
            }
            _ => ExpectedEnd::Killed,
        }
    }

    /// How one ends to whom nothing happens. One that begins again may not find all pages that it
    /// needs to open the database.
    fn end_by_others(&self, incarnation: usize, begins: Duration) -> ExpectedEnd {
        match self.end_by_memory() {
            ExpectedEnd::Well if incarnation > 0 && self.may_lose_pages() => {
                let (cause, by) = (ErrorCause::FaultOrLost, begins + self.patience());
                let error = ExpectedError { cause, from: begins, by };
                ExpectedEnd::Open(OpenEnd { error, well: true, killed: false })
            }
            end => end,
        }
    }

    fn end_by_memory(&self) -> ExpectedEnd {
        match self.memory_is_lost() {
            Some(from) => {
                let by = from + self.file.pool.lease.0.0 + self.file.expect.fails_within.0.0;
                ExpectedEnd::Error(ExpectedError { cause: ErrorCause::Memory, from, by })
            }
            None => ExpectedEnd::Well,
        }
    }
}
