//! A serial order that explains every read: the last word on histories with blind writes.
//!
//! Serializability of blind writes is NP-complete (Papadimitriou, JACM 1979), so inference alone
//! cannot decide it. The search builds an order transaction by transaction. A transaction may come
//! next if all its predecessors in the graph are placed, and no unplaced transaction reads a
//! version that it would overwrite. The earliest to return goes first, which is near the commit
//! order of a real engine.
//!
//! *Conflicts.* If no transaction may come next, each candidate `Wi` would overwrite some `Ai` that
//! `Ri` must still read, and `Ri` waits for another candidate. So there is a circle of conflicts in
//! which not all `Ai` can come before their `Wi`. For each conflict the search restarts with an
//! edge from `Wi` to `Ai` and all that follows from it. So the search is complete: it leaves out no
//! order. After [`MAX_TRIES`] it gives up.

use std::collections::{BTreeMap, BTreeSet};

use super::anomaly::{Anomaly, AnomalyKind};
use super::facts::Facts;
use super::graph::{EdgeReason, Graph};
use super::history::{Object, PerTxn, Txn};
use super::inference::infer_all;

/// Orders that are tried before there is no verdict.
pub const MAX_TRIES: usize = 1 << 10;

/// Looks for a serial order that agrees with `graph`, which must be acyclic and closed.
pub(super) fn find(facts: &Facts<'_>, graph: &Graph<'_>, max_tries: usize) -> Option<Anomaly> {
    let mut stack: Vec<Vec<Conflict>> = vec![Vec::new()];
    let mut first = Vec::new();
    for _ in 0..max_tries {
        let Some(decided) = stack.pop() else {
            let reason = "each order of these blind writes contradicts a read";
            return Some(Anomaly::new(AnomalyKind::NoSerialOrder, facts.history, first, reason));
        };
        let mut graph = graph.clone();
        for Conflict { writer, installer, why, .. } in &decided {
            graph.add(*writer, *installer, *why);
        }
        if !decided.is_empty() && !infer_all(facts, &mut graph).is_empty() {
            continue;
        }
        let conflicts = Board::new(facts, &graph).play();
        if conflicts.is_empty() {
            return None;
        }
        if decided.is_empty() {
            let involved = conflicts.iter().flat_map(|c| [c.installer, c.reader, c.writer]);
            first = involved.collect::<BTreeSet<Txn>>().into_iter().collect();
        }
        let decide = |conflict| decided.iter().copied().chain([conflict]).collect();
        stack.extend(conflicts.into_iter().map(decide));
    }
    let reason = format!("no order of blind writes found in {max_tries} tries");
    Some(Anomaly::new(AnomalyKind::Undecided, facts.history, first, reason))
}

/// `writer` would overwrite what `reader` is still to read from `installer`.
#[derive(Clone, Copy)]
struct Conflict {
    installer: Txn,
    reader: Txn,
    writer: Txn,
    /// The reason for the edge from writer to installer.
    why: EdgeReason,
}

/// A version of a register: its writer, or `None` for the initial one.
type Version = (u64, Option<Txn>);

struct Board<'a> {
    graph: &'a Graph<'a>,
    /// Written registers and values.
    writes: PerTxn<Vec<(u64, u64)>>,
    reads: PerTxn<Vec<Version>>,
    /// Those to be placed whose predecessors were all placed, by return.
    ready: BTreeSet<(u64, Txn)>,
    returned: PerTxn<u64>,
    predecessors: PerTxn<BTreeSet<Txn>>,
    current: BTreeMap<u64, (Txn, u64)>,
    /// Those to be placed that read a version.
    readers: BTreeMap<Version, BTreeSet<Txn>>,
}

impl<'a> Board<'a> {
    fn new(facts: &Facts<'_>, graph: &'a Graph<'a>) -> Self {
        let history = facts.history;
        let mut board = Self {
            graph,
            writes: PerTxn::new(history, Vec::new()),
            reads: PerTxn::new(history, Vec::new()),
            ready: BTreeSet::new(),
            returned: PerTxn::new(history, u64::MAX),
            predecessors: PerTxn::new(history, BTreeSet::new()),
            current: BTreeMap::new(),
            readers: BTreeMap::new(),
        };
        for (key, register) in &facts.registers {
            for (writer, value) in &register.writes {
                board.writes[*writer].push((*key, *value));
            }
            for read in &register.reads {
                let version = (*key, read.version.map(|(_, writer)| writer));
                board.reads[read.reader].push(version);
                board.readers.entry(version).or_default().insert(read.reader);
            }
        }
        for (txn, transaction) in facts.transactions() {
            board.returned[txn] = transaction.returned.unwrap_or(u64::MAX);
            for next in graph.successors(txn) {
                board.predecessors[next].insert(txn);
            }
        }
        let first = facts.transactions().filter(|(txn, _)| board.predecessors[*txn].is_empty());
        board.ready = first.map(|(txn, _)| (board.returned[txn], txn)).collect();
        board
    }

    /// Places transactions until all are placed or none may come next; the circle of conflicts.
    fn play(mut self) -> Vec<Conflict> {
        while let Some((_, first)) = self.ready.first().copied() {
            let mut candidates = self.ready.iter().map(|(_, txn)| *txn);
            match candidates.find(|txn| self.conflict(*txn).is_none()) {
                Some(txn) => self.place(txn),
                None => return self.circle(first),
            }
        }
        Vec::new()
    }

    /// Another that is still to read what `writer` would overwrite.
    fn conflict(&self, writer: Txn) -> Option<Conflict> {
        self.writes[writer].iter().find_map(|(key, first)| {
            let (installer, second) = *self.current.get(key)?;
            let mut readers = self.readers.get(&(*key, Some(installer)))?.iter();
            let reader = *readers.find(|reader| **reader != writer)?;
            let object = Object::Register(*key);
            let why = EdgeReason::Hidden { object, first: *first, second, reader };
            Some(Conflict { installer, reader, writer, why })
        })
    }

    /// From one candidate to the reader it waits for, to the candidate that the reader waits for,
    /// until one comes again.
    fn circle(&self, start: Txn) -> Vec<Conflict> {
        let mut conflicts: Vec<Conflict> = Vec::new();
        let mut writer = start;
        loop {
            if let Some(again) = conflicts.iter().position(|conflict| conflict.writer == writer) {
                return conflicts.split_off(again);
            }
            let Some(conflict) = self.conflict(writer) else { return conflicts };
            conflicts.push(conflict);
            writer = conflict.reader;
            while let Some(before) = self.predecessors[writer].first() {
                writer = *before;
            }
        }
    }

    fn place(&mut self, txn: Txn) {
        self.ready.remove(&(self.returned[txn], txn));
        for next in self.graph.successors(txn) {
            if self.predecessors[next].remove(&txn) && self.predecessors[next].is_empty() {
                self.ready.insert((self.returned[next], next));
            }
        }
        for version in &self.reads[txn] {
            let (key, from) = *version;
            let current = self.current.get(&key).map(|(writer, _)| *writer);
            assert_eq!(current, from, "what {txn} read of key {key} is not overwritten");
            self.readers.entry(*version).or_default().remove(&txn);
        }
        for (key, value) in &self.writes[txn] {
            self.current.insert(*key, (txn, *value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::registers;
    use super::*;
    use crate::check::tests::parse;

    #[test]
    fn a_bound_that_is_too_low_gives_no_verdict() {
        let history = parse::history(&parse::NO_SERIAL_ORDER);
        let mut facts = Facts::gather(&history).unwrap();
        let mut graph = Graph::new(&history);
        registers::add_dependencies(&mut facts, &mut graph);
        assert_eq!(infer_all(&facts, &mut graph), []);
        let kind = |max_tries| find(&facts, &graph, max_tries).map(|anomaly| anomaly.kind);
        assert_eq!(kind(MAX_TRIES), Some(AnomalyKind::NoSerialOrder));
        assert_eq!(kind(1), Some(AnomalyKind::Undecided));
    }
}
