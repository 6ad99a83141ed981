//! The direct serialization graph: which transaction must come before which, and why.
//!
//! Adya's dependencies between committed transactions: `ww`, the next version of an object was
//! installed; `wr`, a version was read; `rw`, a version was read that the other replaced; and real
//! time. Components are Tarjan's (linear); the shortest cycle of a component takes one
//! breadth-first search from each of at most [`MAX_STARTS`] members.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use super::anomaly::{Anomaly, AnomalyKind};
use super::history::{Object, PerTxn, Transaction, Txn};

/// Members of a component from which the shortest cycle is looked for.
const MAX_STARTS: usize = 256;

/// The class of an edge, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Dependency {
    Write,
    Read,
    Anti,
    RealTime,
}

/// Why an edge is there.
#[derive(Clone, Copy, Debug)]
pub(super) enum EdgeReason {
    /// `to` replaced the version of `from`, or appended after it.
    Overwrote { object: Object, first: u64, second: u64 },
    /// `from` had written before `to` did, because `reader` saw the write of `to` despite coming
    /// after `from`.
    Hidden { object: Object, first: u64, second: u64, reader: Txn },
    /// `to` read what `from` wrote.
    ReadFrom { object: Object, value: u64 },
    /// `from` read a version (`None`: the initial one) that `to` replaced.
    ReadBefore { object: Object, read: Option<u64>, wrote: u64 },
    /// `from` returned before `to` was invoked.
    RealTime { returned: u64, invoked: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: Txn,
    pub(super) to: Txn,
    pub(super) why: EdgeReason,
}

impl EdgeReason {
    fn dependency(self) -> Dependency {
        match self {
            Self::Overwrote { .. } | Self::Hidden { .. } => Dependency::Write,
            Self::ReadFrom { .. } => Dependency::Read,
            Self::ReadBefore { .. } => Dependency::Anti,
            Self::RealTime { .. } => Dependency::RealTime,
        }
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, why } = self;
        match *why {
            EdgeReason::Overwrote { object: object @ Object::Register(_), first, second } => {
                write!(f, "{from} wrote {object} = {first}, which {to} overwrote with {second}")
            }
            EdgeReason::Overwrote { object, first, second } => {
                write!(f, "{from} appended {first} to {object} before {to} appended {second}")
            }
            EdgeReason::Hidden { object, first, second, reader } => write!(
                f,
                "{from} wrote {object} = {first} before {to} wrote {second}, which {reader} read \
                 although it comes after {from}"
            ),
            EdgeReason::ReadFrom { object, value } => {
                write!(f, "{from} wrote {value} to {object}, which {to} read")
            }
            EdgeReason::ReadBefore {
                object: object @ Object::Register(_),
                read: Some(read),
                wrote,
            } => {
                write!(f, "{from} read {object} = {read}, which {to} overwrote with {wrote}")
            }
            EdgeReason::ReadBefore { object: object @ Object::Register(_), read: None, wrote } => {
                write!(f, "{from} read {object} as absent, and {to} wrote {wrote}")
            }
            EdgeReason::ReadBefore { object, wrote, .. } => {
                write!(f, "{from} read {object} without {wrote}, which {to} appended")
            }
            EdgeReason::RealTime { returned, invoked } => {
                write!(f, "{from} returned at {returned}, before {to} was invoked at {invoked}")
            }
        }
    }
}

#[derive(Clone)]
pub(super) struct Graph<'h> {
    history: &'h [Transaction],
    out: PerTxn<Vec<Edge>>,
    known: BTreeSet<(Txn, Txn, Dependency)>,
}

impl<'h> Graph<'h> {
    pub(super) fn new(history: &'h [Transaction]) -> Self {
        Self { history, out: PerTxn::new(history, Vec::new()), known: BTreeSet::new() }
    }

    /// Adds an edge, unless there is one of this class already or it is a loop.
    pub(super) fn add(&mut self, from: Txn, to: Txn, why: EdgeReason) {
        if from != to && self.known.insert((from, to, why.dependency())) {
            self.out[from].push(Edge { from, to, why });
        }
    }

    pub(super) fn successors(&self, from: Txn) -> impl Iterator<Item = Txn> {
        self.out[from].iter().map(|edge| edge.to)
    }

    /// The cycles of the strongest class that has any: of each component the shortest one.
    pub(super) fn cycles(&self) -> Vec<Anomaly> {
        [Dependency::Write, Dependency::Read, Dependency::Anti, Dependency::RealTime]
            .into_iter()
            .map(|weakest| {
                let components = self.components(weakest);
                let cyclic = components.iter().filter(|component| component.len() > 1);
                cyclic.map(|component| self.explain(&self.shortest(component, weakest))).collect()
            })
            .find(|cycles: &Vec<_>| !cycles.is_empty())
            .unwrap_or_default()
    }

    /// Strongly connected components over the edges up to `weakest`, sinks first (Tarjan, 1972).
    pub(super) fn components(&self, weakest: Dependency) -> Vec<Vec<Txn>> {
        let mut visit: PerTxn<Option<usize>> = PerTxn::new(self.history, None);
        let mut low = PerTxn::new(self.history, usize::MAX);
        let mut open = Vec::new();
        let mut components = Vec::new();
        let mut visited = 0;
        for root in (0..self.history.len()).map(Txn) {
            // A transaction and how many of its edges were followed.
            let mut path = if visit[root].is_none() { vec![(root, 0)] } else { Vec::new() };
            while let Some((txn, followed)) = path.pop() {
                if followed == 0 {
                    visit[txn] = Some(visited);
                    low[txn] = visited;
                    visited += 1;
                    open.push(txn);
                }
                let edge = self.out[txn].get(followed);
                if let Some(edge) = edge {
                    path.push((txn, followed + 1));
                    if edge.why.dependency() > weakest {
                        continue;
                    }
                    match visit[edge.to] {
                        None => path.push((edge.to, 0)),
                        Some(at) if low[edge.to] != usize::MAX => low[txn] = low[txn].min(at),
                        Some(_) => {}
                    }
                    continue;
                }
                if visit[txn] == Some(low[txn]) {
                    let first = open.iter().rposition(|other| *other == txn).unwrap_or(0);
                    let component = open.split_off(first);
                    // MAX marks what is in a finished component.
                    component.iter().for_each(|member| low[*member] = usize::MAX);
                    components.push(component);
                } else if let Some((parent, _)) = path.last() {
                    low[*parent] = low[*parent].min(low[txn]);
                }
            }
        }
        components
    }

    fn shortest(&self, component: &[Txn], weakest: Dependency) -> Vec<Edge> {
        let mut members = PerTxn::new(self.history, false);
        component.iter().for_each(|txn| members[*txn] = true);
        let mut starts = component.to_vec();
        starts.sort_unstable();
        let cycles = starts.iter().take(MAX_STARTS).map(|s| self.cycle_at(*s, &members, weakest));
        cycles.min_by_key(Vec::len).unwrap_or_default()
    }

    /// The shortest cycle through `start`: breadth first, back along the edges that got there
    /// first.
    fn cycle_at(&self, start: Txn, members: &PerTxn<bool>, weakest: Dependency) -> Vec<Edge> {
        let mut reached: PerTxn<Option<Edge>> = PerTxn::new(self.history, None);
        let mut queue = VecDeque::from([start]);
        while let Some(txn) = queue.pop_front() {
            for edge in &self.out[txn] {
                let usable = edge.why.dependency() <= weakest && members[edge.to];
                if usable && reached[edge.to].is_none() {
                    reached[edge.to] = Some(*edge);
                    queue.push_back(edge.to);
                }
            }
            if reached[start].is_some() {
                break;
            }
        }
        let mut cycle = Vec::new();
        let mut at = start;
        while let Some(edge) = reached[at] {
            cycle.push(edge);
            at = edge.from;
            if at == start {
                break;
            }
        }
        cycle.reverse();
        cycle
    }

    fn explain(&self, cycle: &[Edge]) -> Anomaly {
        let count = |class| cycle.iter().filter(|edge| edge.why.dependency() == class).count();
        let kind = match (count(Dependency::Anti), count(Dependency::Read)) {
            (0, 0) => AnomalyKind::G0,
            (0, _) => AnomalyKind::G1c,
            (1, _) => AnomalyKind::GSingle,
            _ => AnomalyKind::G2,
        };
        let cycle = without_detours(cycle);
        let steps: Vec<String> = cycle.iter().map(Edge::to_string).collect();
        let involved = cycle.iter().map(|edge| edge.from);
        Anomaly::new(kind, self.history, involved, steps.join(";\n  but "))
    }
}

/// The cycle with each run of real-time edges as the one edge that it amounts to.
fn without_detours(cycle: &[Edge]) -> Vec<Edge> {
    let first = cycle.iter().position(|edge| edge.why.dependency() != Dependency::RealTime);
    let (head, tail) = cycle.split_at(first.unwrap_or(0));
    let mut steps: Vec<Edge> = Vec::new();
    for edge in tail.iter().chain(head) {
        match (steps.last_mut(), edge.why) {
            (
                Some(Edge { to, why: EdgeReason::RealTime { invoked, .. }, .. }),
                EdgeReason::RealTime { invoked: later, .. },
            ) => (*to, *invoked) = (edge.to, later),
            _ => steps.push(*edge),
        }
    }
    steps
}
