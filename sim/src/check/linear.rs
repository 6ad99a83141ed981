//! Linearizability of one register: could the operations have happened one at a time, each at an
//! instant between its invocation and its return? (Herlihy and Wing, TOPLAS 1990.)
//!
//! The search is Wing and Gong's (JPDC 1993) with Lowe's memory of visited configurations (CCPE
//! 2017): a *configuration* is the set of operations that took effect and the value they left. From
//! each one, every operation that no pending operation precedes in real time may take effect next.
//!
//! *Windows.* At a quiescent point everything invoked has returned, so only the value carries over.
//! The history is cut there and the windows are searched in turn, each from every value that the
//! one before may have left. Time and memory are linear in the number of windows and exponential
//! only in the number of operations that overlap; [`MAX_CONFIGURATIONS`] bounds one window.
//!
//! *Unknown outcomes* (no return) stay available to all later windows. They are only tried where
//! they help: a chain of them must end in an operation that observes the value it left, because one
//! that no operation observes may as well not have happened. Of equal ones the first invoked goes
//! first, and of two ways to the same value the one that used fewer is kept. None of this loses a
//! verdict.

use std::collections::BTreeSet;
use std::fmt;

/// Configurations of one window after which the search gives up.
pub const MAX_CONFIGURATIONS: usize = 1 << 20;

/// What an operation did to the register, with what it observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Returned this value.
    Read(u64),
    /// Stored this value.
    Write(u64),
    /// Added `delta`, wrapping, and returned the value before.
    FetchAdd {
        /// What was added.
        delta: u64,
        /// The value before; ignored if the outcome is unknown.
        old: u64,
    },
}

/// One operation on the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The client that called; only for the report.
    pub process: usize,
    /// Virtual time of the call, in ns.
    pub invoked: u64,
    /// Virtual time of the return, in ns. `None`: outcome unknown, it may take effect at any time
    /// after the call, or never.
    pub returned: Option<u64>,
    /// What it did.
    pub action: Action,
}

/// Why a history was not accepted.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinearError {
    /// No order of the operations explains what they observed.
    #[error("not linearizable: {0}")]
    NotLinearizable(Window),
    /// The search visited `configurations` of this window without a verdict.
    #[error("no verdict after {configurations} configurations: {window}")]
    TooHard {
        /// How many configurations were visited.
        configurations: usize,
        /// Where.
        window: Window,
    },
}

/// A stretch of the history between two quiescent points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The values that the register may hold before, in ascending order.
    pub before: Vec<u64>,
    /// The operations, by invocation. What had not returned when the contradiction showed is listed
    /// without its return, and so are operations of unknown outcome from before.
    pub operations: Vec<Operation>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.returned {
            Some(returned) => write!(f, "[{:>6} .. {returned:>6}]", self.invoked)?,
            None => write!(f, "[{:>6} ..      ?]", self.invoked)?,
        }
        write!(f, " process {}: ", self.process)?;
        match (self.action, self.returned) {
            (Action::Read(_), None) => write!(f, "read"),
            (Action::Read(value), _) => write!(f, "read -> {value}"),
            (Action::Write(value), _) => write!(f, "write {value}"),
            (Action::FetchAdd { delta, .. }, None) => write!(f, "fetch-add {delta}"),
            (Action::FetchAdd { delta, old }, _) => write!(f, "fetch-add {delta} -> {old}"),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "register in {:?} before", self.before)?;
        self.operations.iter().try_for_each(|operation| write!(f, "\n  {operation}"))
    }
}

/// Whether the history of one register, which starts as `initial`, is linearizable.
///
/// # Errors
/// [`LinearError::NotLinearizable`] with the smallest window that shows it;
/// [`LinearError::TooHard`] after [`MAX_CONFIGURATIONS`] in one window.
pub fn linearizable(initial: u64, history: &[Operation]) -> Result<(), LinearError> {
    linearizable_within(initial, history, MAX_CONFIGURATIONS)
}

/// [`linearizable`] with a bound of the caller's.
///
/// # Errors
/// As [`linearizable`].
pub fn linearizable_within(
    initial: u64,
    history: &[Operation],
    max_configurations: usize,
) -> Result<(), LinearError> {
    let mut sorted = history.to_vec();
    sorted.sort_by_key(|operation| (operation.invoked, operation.returned));
    let (mut finished, mut unknown): (Vec<_>, Vec<_>) =
        sorted.into_iter().partition(|operation| operation.returned.is_some());
    unknown.retain_mut(without_observation);

    let mut starts = BTreeSet::from([(initial, BTreeSet::new())]);
    while !finished.is_empty() {
        let rest = finished.split_off(window_len(&finished));
        let search = Search { finished: &finished, unknown: &unknown, max_configurations };
        starts = match search.run(&starts) {
            Outcome::Ends(ends) => ends,
            Outcome::Stuck => return Err(search.smallest(&starts)),
            Outcome::GaveUp => return Err(search.too_hard(&starts)),
        };
        finished = rest;
    }
    Ok(())
}

/// Forgets the return of an operation, and what it observed; whether an effect is left.
fn without_observation(operation: &mut Operation) -> bool {
    operation.returned = None;
    if let Action::FetchAdd { old, .. } = &mut operation.action {
        *old = 0;
    }
    !matches!(operation.action, Action::Read(_))
}

/// How many of the operations lie before the first quiescent point.
fn window_len(finished: &[Operation]) -> usize {
    let mut latest = None;
    finished
        .iter()
        .position(|operation| {
            let quiescent = latest.is_some_and(|latest| latest < operation.invoked);
            latest = latest.max(operation.returned);
            quiescent
        })
        .unwrap_or(finished.len())
}

/// A value and the operations of unknown outcome that were used up to get there.
type Start = (u64, BTreeSet<usize>);

enum Outcome {
    Ends(BTreeSet<Start>),
    Stuck,
    GaveUp,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    /// All finished operations below this index took effect ...
    low: usize,
    /// ... and these above it.
    above: BTreeSet<usize>,
    used: BTreeSet<usize>,
    value: u64,
    /// The last to take effect has an unknown outcome: the next must observe or be one, too.
    must_observe: bool,
}

struct Search<'a> {
    finished: &'a [Operation],
    unknown: &'a [Operation],
    max_configurations: usize,
}

impl Search<'_> {
    fn run(&self, starts: &BTreeSet<Start>) -> Outcome {
        let mut visited: BTreeSet<Configuration> =
            starts.iter().map(Configuration::start).collect();
        let mut stack: Vec<Configuration> = visited.iter().cloned().collect();
        let mut ends = BTreeSet::new();
        while let Some(configuration) = stack.pop() {
            if configuration.low == self.finished.len() {
                ends.insert((configuration.value, configuration.used));
                continue;
            }
            for next in self.successors(&configuration) {
                if visited.insert(next.clone()) {
                    stack.push(next);
                }
            }
            if visited.len() > self.max_configurations {
                return Outcome::GaveUp;
            }
        }
        let minimal: BTreeSet<_> =
            ends.iter().filter(|end| !dominated(end, &ends)).cloned().collect();
        if minimal.is_empty() { Outcome::Stuck } else { Outcome::Ends(minimal) }
    }

    fn successors(&self, from: &Configuration) -> Vec<Configuration> {
        // By invocation, so what is invoked after the earliest pending return cannot return
        // earlier.
        let mut deadline = None;
        let mut next = Vec::new();
        for (index, operation) in self.finished.iter().enumerate().skip(from.low) {
            if deadline.is_some_and(|at| operation.invoked > at) {
                break;
            }
            if !from.above.contains(&index) {
                deadline = deadline.into_iter().chain(operation.returned).min();
            }
        }
        let in_time = |operation: &Operation| deadline.is_none_or(|at| operation.invoked <= at);

        let pending = self.finished.iter().enumerate().skip(from.low);
        for (index, operation) in pending.take_while(|(_, operation)| in_time(operation)) {
            let observes = !matches!(operation.action, Action::Write(_));
            if let Some(value) = effect(operation.action, from.value)
                && (observes || !from.must_observe)
                && !from.above.contains(&index)
            {
                next.push(from.after_finished(index, value));
            }
        }
        let mut tried = Vec::new();
        for (index, operation) in self.unknown.iter().enumerate() {
            let blind = matches!(operation.action, Action::Write(_));
            let useless = blind && from.must_observe || tried.contains(&operation.action);
            if in_time(operation) && !from.used.contains(&index) && !useless {
                tried.push(operation.action);
                next.push(from.after_unknown(index, forced_effect(operation.action, from.value)));
            }
        }
        next
    }

    /// The shortest prefix of the window, by return, that is already stuck: linearizability is
    /// prefix-closed, so the operation that returns last in it is where the contradiction shows.
    fn smallest(&self, starts: &BTreeSet<Start>) -> LinearError {
        let mut ends: Vec<u64> = self.finished.iter().filter_map(|op| op.returned).collect();
        ends.sort_unstable();
        let harmless = ends.partition_point(|end| {
            let (finished, unknown) = self.until(*end);
            let prefix = Search { finished: &finished, unknown: &unknown, ..*self };
            !matches!(prefix.run(starts), Outcome::Stuck)
        });
        let (finished, unknown) = self.until(ends.get(harmless).copied().unwrap_or(u64::MAX));
        let prefix = Search { finished: &finished, unknown: &unknown, ..*self };
        LinearError::NotLinearizable(prefix.window(starts))
    }

    /// What had returned by `end`, and what had been invoked without returning.
    fn until(&self, end: u64) -> (Vec<Operation>, Vec<Operation>) {
        let invoked = self.finished.iter().filter(|operation| operation.invoked <= end);
        let (finished, mut open): (Vec<_>, Vec<_>) =
            invoked.copied().partition(|operation| operation.returned <= Some(end));
        open.retain_mut(without_observation);
        // These come last, so that the indices in a start keep their meaning.
        let unknown = self.unknown.iter().filter(|operation| operation.invoked <= end);
        (finished, unknown.copied().chain(open).collect())
    }

    fn too_hard(&self, starts: &BTreeSet<Start>) -> LinearError {
        LinearError::TooHard {
            configurations: self.max_configurations,
            window: self.window(starts),
        }
    }

    fn window(&self, starts: &BTreeSet<Start>) -> Window {
        let mut operations = [self.unknown, self.finished].concat();
        operations.sort_by_key(|operation| (operation.invoked, operation.returned));
        let before: BTreeSet<u64> = starts.iter().map(|(value, _)| *value).collect();
        Window { before: before.into_iter().collect(), operations }
    }
}

impl Configuration {
    fn start((value, used): &Start) -> Self {
        let (above, used) = (BTreeSet::new(), used.clone());
        Self { low: 0, above, used, value: *value, must_observe: false }
    }

    fn after_finished(&self, index: usize, value: u64) -> Self {
        let mut next = Self { value, must_observe: false, ..self.clone() };
        next.above.insert(index);
        while next.above.remove(&next.low) {
            next.low += 1;
        }
        next
    }

    fn after_unknown(&self, index: usize, value: u64) -> Self {
        let mut next = Self { value, must_observe: true, ..self.clone() };
        next.used.insert(index);
        next
    }
}

/// The value after `action`, if what it observed agrees with the value before.
fn effect(action: Action, before: u64) -> Option<u64> {
    match action {
        Action::Read(observed) | Action::FetchAdd { old: observed, .. } if observed != before => {
            None
        }
        action => Some(forced_effect(action, before)),
    }
}

/// The value after `action`, whatever it observed.
fn forced_effect(action: Action, before: u64) -> u64 {
    match action {
        Action::Read(_) => before,
        Action::Write(value) => value,
        Action::FetchAdd { delta, .. } => before.wrapping_add(delta),
    }
}

/// Whether another end has the same value and used only some of the same unknown outcomes.
fn dominated(end: &Start, ends: &BTreeSet<Start>) -> bool {
    ends.iter().any(|other| other.0 == end.0 && other.1 != end.1 && other.1.is_subset(&end.1))
}
