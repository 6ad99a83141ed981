//! Facts that need no inference: the writer of each value, the transactions that count as
//! committed, and the version that each transaction found at its first access of an object.
//!
//! Written values are unique, so a value names its writer (Elle's *recoverability*, VLDB 2020).
//! Here the anomalies show that need no graph: G1a, G1b, garbage, duplicates, and transactions that
//! contradict themselves. A read with one of these is reported and says nothing further. Time is
//! O(n log n) in the operations, a scan counting as one read of each key in its range.

use std::collections::{BTreeMap, BTreeSet};

use super::anomaly::{Anomaly, AnomalyKind};
use super::history::{Object, Op, PerTxn, Status, Transaction, Txn};

/// A register, as the transactions that count saw it.
#[derive(Default)]
pub(super) struct Register {
    /// The last write of each transaction that wrote it.
    pub(super) writes: BTreeMap<Txn, u64>,
    pub(super) reads: Vec<RegisterRead>,
}

/// The version that a transaction found: value and writer, or `None` for the initial one.
pub(super) struct RegisterRead {
    pub(super) reader: Txn,
    pub(super) version: Option<(u64, Txn)>,
}

/// A list, as the transactions that count saw it.
#[derive(Default)]
pub(super) struct List<'h> {
    /// What each transaction appended, in its order.
    pub(super) appends: BTreeMap<Txn, Vec<u64>>,
    pub(super) reads: Vec<ListRead<'h>>,
}

/// The first `found` elements were there before; the reader had appended the rest itself.
pub(super) struct ListRead<'h> {
    pub(super) reader: Txn,
    pub(super) list: &'h [u64],
    pub(super) found: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Writer {
    pub(super) txn: Txn,
    /// The last write of its transaction to the object.
    last: bool,
}

pub(super) type Writers = BTreeMap<(Object, u64), Writer>;

pub(super) struct Facts<'h> {
    pub(super) history: &'h [Transaction],
    pub(super) writers: Writers,
    pub(super) counts: PerTxn<bool>,
    pub(super) registers: BTreeMap<u64, Register>,
    pub(super) lists: BTreeMap<u64, List<'h>>,
    pub(super) anomalies: Vec<Anomaly>,
}

impl<'h> Facts<'h> {
    /// # Errors
    /// Values that were written twice: then nothing can be said about which transaction read from
    /// which.
    pub(super) fn gather(history: &'h [Transaction]) -> Result<Self, Vec<Anomaly>> {
        let writers = writers(history)?;
        let counts = counted(history, &writers);
        let mut facts = Facts {
            history,
            writers,
            counts,
            registers: registers(history),
            lists: BTreeMap::new(),
            anomalies: Vec::new(),
        };
        for (index, transaction) in history.iter().enumerate() {
            if facts.counts[Txn(index)] {
                Walk::new(Txn(index)).run(&transaction.ops, &mut facts);
            }
        }
        Ok(facts)
    }

    /// The transactions that count.
    pub(super) fn transactions(&self) -> impl Iterator<Item = (Txn, &'h Transaction)> {
        let all = self.history.iter().enumerate().map(|(index, txn)| (Txn(index), txn));
        all.filter(|(txn, _)| self.counts[*txn])
    }

    pub(super) fn report(
        &mut self,
        kind: AnomalyKind,
        involved: impl IntoIterator<Item = Txn>,
        reason: String,
    ) {
        self.anomalies.push(Anomaly::new(kind, self.history, involved, reason));
    }

    /// Reports what is wrong with `reader` having found `value`; its writer, if nothing is.
    /// `newest`: the value is the version itself and not an older part of it.
    fn check_found(
        &mut self,
        reader: Txn,
        object: Object,
        value: u64,
        newest: bool,
    ) -> Option<Txn> {
        let read = format!("{reader} read {object} = {value}");
        let Some(Writer { txn, last }) = self.writers.get(&(object, value)).copied() else {
            self.report(
                AnomalyKind::GarbageRead,
                [reader],
                format!("{read}, which no transaction wrote"),
            );
            return None;
        };
        if txn == reader {
            self.report(
                AnomalyKind::Internal,
                [reader],
                format!("{read} before it wrote that itself"),
            );
        } else if !self.counts[txn] {
            let reason = format!("{read} of {txn}, which aborted");
            self.report(AnomalyKind::AbortedRead, [reader, txn], reason);
        } else if newest && !last {
            let reason = format!("{read}, but {txn} went on to write {object} again");
            self.report(AnomalyKind::IntermediateRead, [reader, txn], reason);
        } else {
            return Some(txn);
        }
        None
    }
}

/// The registers that the history mentions.
fn registers(history: &[Transaction]) -> BTreeMap<u64, Register> {
    let mut keys = BTreeSet::new();
    for op in history.iter().flat_map(|transaction| &transaction.ops) {
        match op {
            Op::Read { key, .. } | Op::Write { key, .. } => keys.extend([*key]),
            Op::Scan { seen, .. } => keys.extend(seen.iter().map(|(key, _)| *key)),
            Op::ReadList { .. } | Op::Append { .. } => {}
        }
    }
    keys.into_iter().map(|key| (key, Register::default())).collect()
}

fn writers(history: &[Transaction]) -> Result<Writers, Vec<Anomaly>> {
    let mut writers = Writers::new();
    let mut duplicates = Vec::new();
    for (index, transaction) in history.iter().enumerate() {
        let txn = Txn(index);
        let mut newest = BTreeMap::new();
        for op in &transaction.ops {
            let (object, value) = match op {
                Op::Write { key, value } => (Object::Register(*key), *value),
                Op::Append { key, value } => (Object::List(*key), *value),
                Op::Read { .. } | Op::ReadList { .. } | Op::Scan { .. } => continue,
            };
            if let Some(other) = writers.insert((object, value), Writer { txn, last: true }) {
                let reason = format!("{} and {txn} both wrote {value} to {object}", other.txn);
                let involved = [other.txn, txn];
                duplicates.push(Anomaly::new(
                    AnomalyKind::DuplicateValue,
                    history,
                    involved,
                    reason,
                ));
            }
            let before = newest.insert(object, value);
            if let Some(before) = before.and_then(|value| writers.get_mut(&(object, value))) {
                before.last = false;
            }
        }
    }
    if duplicates.is_empty() { Ok(writers) } else { Err(duplicates) }
}

/// The committed transactions, and those of unknown outcome that one of these saw, and so on.
fn counted(history: &[Transaction], writers: &Writers) -> PerTxn<bool> {
    let mut counts = PerTxn::new(history, false);
    let committed = history.iter().enumerate().filter(|(_, txn)| txn.status == Status::Committed);
    let mut stack: Vec<(Txn, &Transaction)> = committed.map(|(i, txn)| (Txn(i), txn)).collect();
    stack.iter().for_each(|(txn, _)| counts[*txn] = true);
    while let Some((_, transaction)) = stack.pop() {
        for seen in transaction.ops.iter().flat_map(seen) {
            let Some(Writer { txn, .. }) = writers.get(&seen).copied() else { continue };
            let Some(writer) = history.get(txn.0) else { continue };
            if writer.status == Status::Unknown && !counts[txn] {
                counts[txn] = true;
                stack.push((txn, writer));
            }
        }
    }
    counts
}

/// The values that an operation observed.
fn seen(op: &Op) -> Vec<(Object, u64)> {
    match op {
        Op::Read { key, value } => value.iter().map(|v| (Object::Register(*key), *v)).collect(),
        Op::ReadList { key, value } => value.iter().map(|v| (Object::List(*key), *v)).collect(),
        Op::Scan { seen, .. } => seen.iter().map(|(k, v)| (Object::Register(*k), *v)).collect(),
        Op::Write { .. } | Op::Append { .. } => Vec::new(),
    }
}

/// One transaction, operation by operation, with what it must find because of what it did before.
struct Walk<'h> {
    txn: Txn,
    registers: BTreeMap<u64, Option<u64>>,
    /// What was there before the transaction, if it looked, and what it appended.
    lists: BTreeMap<u64, (Option<&'h [u64]>, Vec<u64>)>,
}

impl<'h> Walk<'h> {
    fn new(txn: Txn) -> Self {
        Self { txn, registers: BTreeMap::new(), lists: BTreeMap::new() }
    }

    fn run(mut self, ops: &'h [Op], facts: &mut Facts<'h>) {
        for op in ops {
            match op {
                Op::Read { key, value } => self.read(*key, *value, facts),
                Op::Write { key, value } => {
                    self.registers.insert(*key, Some(*value));
                    facts.registers.entry(*key).or_default().writes.insert(self.txn, *value);
                }
                Op::ReadList { key, value } => self.read_list(*key, value, facts),
                Op::Append { key, value } => {
                    self.lists.entry(*key).or_default().1.push(*value);
                    let list = facts.lists.entry(*key).or_default();
                    list.appends.entry(self.txn).or_default().push(*value);
                }
                Op::Scan { low, high, seen } => self.scan(*low..=*high, seen, facts),
            }
        }
    }

    fn read(&mut self, key: u64, value: Option<u64>, facts: &mut Facts<'h>) {
        let (txn, object) = (self.txn, Object::Register(key));
        if let Some(known) = self.registers.get(&key) {
            if *known != value {
                let reason =
                    format!("{txn} read {object} as {value:?} when it knew it as {known:?}");
                facts.report(AnomalyKind::Internal, [txn], reason);
            }
            return;
        }
        self.registers.insert(key, value);
        let version = match value {
            None => None,
            Some(value) => match facts.check_found(txn, object, value, true) {
                Some(writer) => Some((value, writer)),
                None => return,
            },
        };
        let read = RegisterRead { reader: txn, version };
        facts.registers.entry(key).or_default().reads.push(read);
    }

    fn scan(
        &mut self,
        range: std::ops::RangeInclusive<u64>,
        seen: &[(u64, u64)],
        facts: &mut Facts<'h>,
    ) {
        let found: BTreeMap<u64, u64> = seen.iter().copied().collect();
        if found.len() < seen.len() || found.keys().any(|key| !range.contains(key)) {
            let reason = format!("a scan of {} saw keys twice or beyond its range", self.txn);
            facts.report(AnomalyKind::BadScan, [self.txn], reason);
            return;
        }
        if range.is_empty() {
            return; // An empty range is no range to BTreeMap.
        }
        let inside: Vec<u64> = facts.registers.range(range).map(|(key, _)| *key).collect();
        for key in inside {
            self.read(key, found.get(&key).copied(), facts);
        }
    }

    fn read_list(&mut self, key: u64, list: &'h [u64], facts: &mut Facts<'h>) {
        let (txn, object) = (self.txn, Object::List(key));
        let (known, own) = self.lists.entry(key).or_default();
        let found = match (list.strip_suffix(own.as_slice()), *known) {
            (Some(found), None) => found,
            (Some(found), Some(known)) if found == known => return,
            _ => {
                let before = known.map_or("...".into(), |known| format!("{known:?}"));
                let reason = format!("{txn} read {object} = {list:?}, not {before} then {own:?}");
                return facts.report(AnomalyKind::Internal, [txn], reason);
            }
        };
        *known = Some(found);
        let before = facts.anomalies.len();
        let distinct: BTreeSet<u64> = list.iter().copied().collect();
        if distinct.len() < list.len() {
            let reason = format!("{txn} read {object} = {list:?} with an element twice");
            facts.report(AnomalyKind::DuplicateValue, [txn], reason);
        }
        for value in found {
            facts.check_found(txn, object, *value, Some(value) == found.last());
        }
        if facts.anomalies.len() == before {
            let read = ListRead { reader: txn, list, found: found.len() };
            facts.lists.entry(key).or_default().reads.push(read);
        }
    }
}
