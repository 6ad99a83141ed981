//! What transactions did: the history of a run, and the notes of one transaction until it is part
//! of that.

use std::collections::BTreeSet;

use parking_lot::Mutex;

use crate::check::serial::{Op, Status, Transaction};

/// The history of a run.
#[derive(Default)]
pub(super) struct Journal {
    history: Mutex<Vec<Transaction>>,
    /// What transactions that have committed had found that cannot be.
    claims: Mutex<Vec<String>>,
}

/// The place of a transaction in the history.
#[derive(Clone, Copy)]
pub(super) struct Entry(usize);

/// Statements of a transaction that are transactions of the history, and when they ended.
pub(super) type Statements = Vec<(Entry, u64)>;

impl Journal {
    /// Adds what filled the tables before everything else.
    pub(super) fn add_opening(&self, ops: Vec<Op>) {
        let (process, status) = (usize::MAX, Status::Committed);
        let opening = Transaction { process, invoked: 0, returned: Some(0), status, ops };
        self.history.lock().push(opening);
    }

    /// Adds a transaction before it commits: its outcome is unknown, and stays so if its node dies.
    pub(super) fn add(&self, process: usize, invoked: u64, ops: Vec<Op>) -> Entry {
        let (returned, status) = (None, Status::Unknown);
        let mut history = self.history.lock();
        history.push(Transaction { process, invoked, returned, status, ops });
        Entry(history.len() - 1)
    }

    /// Says how it has ended.
    pub(super) fn end(&self, entry: Entry, now: u64, status: Status) {
        if let Some(transaction) = self.history.lock().get_mut(entry.0) {
            transaction.status = status;
            transaction.returned = Some(now);
        }
    }

    pub(super) fn add_claims(&self, claims: Vec<String>) {
        self.claims.lock().extend(claims);
    }

    pub(super) fn history(&self) -> Vec<Transaction> {
        self.history.lock().clone()
    }

    pub(super) fn claims(&self) -> Vec<String> {
        self.claims.lock().clone()
    }
}

/// What one transaction did so far.
#[derive(Default)]
pub(super) struct Notes {
    ops: Vec<Op>,
    /// What it found that cannot be, in words: wrong only if it commits.
    claims: Vec<String>,
}

/// A place in the notes that they can go back to.
#[derive(Clone, Copy)]
pub(super) struct Mark(usize);

impl Notes {
    pub(super) fn add(&mut self, op: Op) {
        self.ops.push(op);
    }

    pub(super) fn read(&mut self, key: u64, value: Option<u64>) {
        self.add(Op::Read { key, value });
    }

    pub(super) fn claim(&mut self, claim: String) {
        self.claims.push(claim);
    }

    pub(super) fn mark(&self) -> Mark {
        Mark(self.ops.len())
    }

    /// Takes back what was written since, and with it what was read of that. What else was read
    /// stays: it was there.
    pub(super) fn take_back(&mut self, mark: Mark) {
        let (mut registers, mut lists) = (BTreeSet::new(), BTreeSet::new());
        for op in self.ops.split_off(mark.0.min(self.ops.len())) {
            let stays = match &op {
                Op::Write { key, .. } => {
                    registers.insert(*key);
                    false
                }
                Op::Append { key, .. } => {
                    lists.insert(*key);
                    false
                }
                Op::Read { key, .. } => !registers.contains(key),
                Op::ReadList { key, .. } => !lists.contains(key),
                Op::Scan { low, high, .. } => registers.range(*low..=*high).next().is_none(),
            };
            if stays {
                self.ops.push(op);
            }
        }
    }

    /// What the transaction did, and what it found that cannot be.
    pub(super) fn into_parts(self) -> (Vec<Op>, Vec<String>) {
        (self.ops, self.claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn going_back_takes_writes_and_what_was_read_of_them() {
        let mut notes = Notes::default();
        let read = |key, value| Op::Read { key, value };
        let scan = |low, high| Op::Scan { low, high, seen: Vec::new() };
        let list = |key| Op::ReadList { key, value: Vec::new() };
        let before = [Op::Write { key: 1, value: 10 }, read(2, None)];
        let stay = [read(3, Some(7)), scan(3, 5), list(1), read(1, Some(10)), scan(4, 5), list(2)];
        before.iter().for_each(|op| notes.add(op.clone()));
        let mark = notes.mark();
        stay[..3].iter().for_each(|op| notes.add(op.clone()));
        for gone in [
            Op::Write { key: 3, value: 11 },
            Op::Append { key: 1, value: 12 },
            read(3, Some(11)),
            scan(1, 3),
            list(1),
        ] {
            notes.add(gone);
        }
        stay[3..].iter().for_each(|op| notes.add(op.clone()));
        for _ in 0..2 {
            notes.take_back(mark);
            assert_eq!(notes.ops, [&before[..], &stay[..]].concat());
        }
    }
}
