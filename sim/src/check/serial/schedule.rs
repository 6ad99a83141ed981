//! A serial order that explains every read: the last word on histories with blind writes.
//!
//! Serializability of blind writes is NP-complete (Papadimitriou, JACM 1979), so inference alone
//! cannot decide it. Here an order is built transaction by transaction. One may come next if all
//! its predecessors in the graph came, and nobody is still to read what it would overwrite. A
//! transaction is *harmless* if placing it now loses no order: if of each register that it writes
//! it read the version before, or nobody reads what it writes. Harmless ones are placed at once, so
//! only blind writes branch; the earliest to return goes first, and after [`MAX_BACKTRACKS`] dead
//! ends the search gives up.

use std::collections::{BTreeMap, BTreeSet};

use super::anomaly::{Anomaly, Kind};
use super::facts::Facts;
use super::graph::Graph;
use super::history::{PerTxn, Txn};

/// Dead ends after which there is no verdict.
pub const MAX_BACKTRACKS: usize = 1 << 16;

/// Looks for a serial order that agrees with `graph`, which must be acyclic and closed.
pub(super) fn find(facts: &Facts<'_>, graph: &Graph<'_>) -> Option<Anomaly> {
    let mut board = Board::new(facts, graph);
    let mut stack = vec![Frame { choices: board.choices(), placed: None }];
    let (mut dead_ends, mut stuck) = (0, board.unplaced.clone());
    while let Some(frame) = stack.last_mut() {
        if let Some(placed) = frame.placed.take() {
            board.take_back(placed);
        }
        let Some(txn) = frame.choices.pop() else {
            stack.pop();
            dead_ends += 1;
            if dead_ends > MAX_BACKTRACKS {
                let reason = format!("no order of blind writes after {MAX_BACKTRACKS} dead ends");
                return Some(Anomaly::new(Kind::Undecided, facts.history, stuck, reason));
            }
            continue;
        };
        frame.placed = Some(board.place(txn));
        if board.unplaced.len() < stuck.len() {
            stuck.clone_from(&board.unplaced);
        }
        let choices = board.choices();
        stack.push(Frame { choices, placed: None });
        if board.unplaced.is_empty() {
            return None;
        }
    }
    let reason = "each order of the blind writes contradicts a read; the best left over";
    (!stuck.is_empty()).then(|| Anomaly::new(Kind::NoSerialOrder, facts.history, stuck, reason))
}

struct Frame {
    /// What may come next, best last.
    choices: Vec<Txn>,
    placed: Option<Placed>,
}

/// A transaction that was placed, and the versions it replaced.
struct Placed {
    txn: Txn,
    replaced: Vec<(u64, Option<Txn>)>,
}

/// A version of a register: its writer, or `None` for the initial one.
type Version = (u64, Option<Txn>);

struct Board<'a> {
    graph: &'a Graph<'a>,
    writes: PerTxn<Vec<u64>>,
    reads: PerTxn<Vec<Version>>,
    unplaced: BTreeSet<Txn>,
    /// Unplaced transactions whose predecessors were all placed, by return.
    ready: BTreeSet<(u64, Txn)>,
    returned: PerTxn<u64>,
    predecessors: PerTxn<usize>,
    current: BTreeMap<u64, Option<Txn>>,
    /// Unplaced readers of each version.
    readers: BTreeMap<Version, BTreeSet<Txn>>,
}

impl<'a> Board<'a> {
    fn new(facts: &Facts<'_>, graph: &'a Graph<'a>) -> Self {
        let history = facts.history;
        let mut board = Self {
            graph,
            writes: PerTxn::new(history, Vec::new()),
            reads: PerTxn::new(history, Vec::new()),
            unplaced: facts.transactions().map(|(txn, _)| txn).collect(),
            ready: BTreeSet::new(),
            returned: PerTxn::new(history, u64::MAX),
            predecessors: PerTxn::new(history, 0),
            current: BTreeMap::new(),
            readers: BTreeMap::new(),
        };
        for (key, register) in &facts.registers {
            for writer in register.writes.keys() {
                board.writes[*writer].push(*key);
            }
            for read in &register.reads {
                let version = (*key, read.version.map(|(_, writer)| writer));
                board.reads[read.reader].push(version);
                board.readers.entry(version).or_default().insert(read.reader);
            }
        }
        for (txn, transaction) in facts.transactions() {
            board.returned[txn] = transaction.returned.unwrap_or(u64::MAX);
            graph.successors(txn).for_each(|next| board.predecessors[next] += 1);
        }
        let unplaced = board.unplaced.iter();
        let ready = unplaced.filter(|txn| board.predecessors[**txn] == 0);
        board.ready = ready.map(|txn| (board.returned[*txn], *txn)).collect();
        board
    }

    /// What may come next, best last: a harmless one alone, or all.
    fn choices(&self) -> Vec<Txn> {
        let mut choices = Vec::new();
        for (_, txn) in self.ready.iter().filter(|(_, txn)| !self.blocked(*txn)) {
            if self.harmless(*txn) {
                return vec![*txn];
            }
            choices.push(*txn);
        }
        choices.reverse();
        choices
    }

    /// Whether another is still to read what `txn` would overwrite.
    fn blocked(&self, txn: Txn) -> bool {
        self.writes[txn].iter().any(|key| {
            let current = self.current.get(key).copied().flatten();
            let readers = self.readers.get(&(*key, current));
            readers.is_some_and(|readers| readers.iter().any(|reader| *reader != txn))
        })
    }

    fn harmless(&self, txn: Txn) -> bool {
        self.writes[txn].iter().all(|key| {
            let update = self.reads[txn].iter().any(|(read, _)| read == key);
            update || self.readers.get(&(*key, Some(txn))).is_none_or(BTreeSet::is_empty)
        })
    }

    fn place(&mut self, txn: Txn) -> Placed {
        self.unplaced.remove(&txn);
        self.ready.remove(&(self.returned[txn], txn));
        for next in self.graph.successors(txn) {
            self.predecessors[next] -= 1;
            if self.predecessors[next] == 0 {
                self.ready.insert((self.returned[next], next));
            }
        }
        for version in &self.reads[txn] {
            let (key, from) = *version;
            let current = self.current.get(&key).copied().flatten();
            assert_eq!(current, from, "what {txn} read of key {key} is not overwritten");
            self.readers.entry(*version).or_default().remove(&txn);
        }
        let keys = self.writes[txn].iter();
        let replaced =
            keys.map(|key| (*key, self.current.insert(*key, Some(txn)).flatten())).collect();
        Placed { txn, replaced }
    }

    fn take_back(&mut self, Placed { txn, replaced }: Placed) {
        self.current.extend(replaced);
        for version in &self.reads[txn] {
            self.readers.entry(*version).or_default().insert(txn);
        }
        for next in self.graph.successors(txn) {
            self.ready.remove(&(self.returned[next], next));
            self.predecessors[next] += 1;
        }
        self.ready.insert((self.returned[txn], txn));
        self.unplaced.insert(txn);
    }
}
