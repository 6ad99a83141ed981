//! What a history of transactions is made of, and how it reads in a report.

use std::fmt;

/// What the history has to satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Some order of the committed transactions explains every read.
    Serializable,
    /// And that order agrees with real time: what returned before another was invoked comes first.
    StrictSerializable,
}

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It certainly took effect.
    Committed,
    /// It certainly did not.
    Aborted,
    /// It may have. It counts as committed if a transaction that counts saw a value of it.
    Unknown,
}

/// One operation of a transaction, with what it observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read of a register; `None` is the initial state, before every write.
    Read {
        /// Which register.
        key: u64,
        /// What it held.
        value: Option<u64>,
    },
    /// Write of a register. No two writes of a register store the same value.
    Write {
        /// Which register.
        key: u64,
        /// What it holds from now on.
        value: u64,
    },
    /// Read of a whole list.
    ReadList {
        /// Which list.
        key: u64,
        /// Its elements, first appended first.
        value: Vec<u64>,
    },
    /// Append to a list. No two appends to a list add the same value.
    Append {
        /// Which list.
        key: u64,
        /// The element.
        value: u64,
    },
    /// Read of all registers from `low` to `high`, both included. One that is not in `seen` was
    /// read as absent.
    Scan {
        /// The first key of the range.
        low: u64,
        /// The last key of the range.
        high: u64,
        /// Key and value of what was there, in any order.
        seen: Vec<(u64, u64)>,
    },
}

/// One transaction. Its number in reports (`T3`) is its index in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The client that ran it; only for the report.
    pub process: usize,
    /// Virtual time of its start, in ns.
    pub invoked: u64,
    /// Virtual time when its outcome was known, in ns; `None` if it never was.
    pub returned: Option<u64>,
    /// How it ended.
    pub status: Status,
    /// What it did, in order. If the outcome is unknown: every read that returned, and every write
    /// that was sent.
    pub ops: Vec<Op>,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { key, value: Some(value) } => write!(f, "read key {key} = {value}"),
            Self::Read { key, value: None } => write!(f, "read key {key} as absent"),
            Self::Write { key, value } => write!(f, "write key {key} = {value}"),
            Self::ReadList { key, value } => write!(f, "read list {key} = {value:?}"),
            Self::Append { key, value } => write!(f, "append {value} to list {key}"),
            Self::Scan { low, high, seen } => write!(f, "scan {low}..={high} = {seen:?}"),
        }
    }
}

impl fmt::Display for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops: Vec<String> = self.ops.iter().map(Op::to_string).collect();
        write!(f, "process {}, {} .. ", self.process, self.invoked)?;
        match self.returned {
            Some(returned) => write!(f, "{returned}")?,
            None => write!(f, "?")?,
        }
        write!(f, ", {:?}: {}", self.status, ops.join("; "))
    }
}

/// A register or a list: registers and lists have separate keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    Register(u64),
    List(u64),
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(key) => write!(f, "key {key}"),
            Self::List(key) => write!(f, "list {key}"),
        }
    }
}

/// A transaction by its index in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Txn(pub(super) usize);

impl fmt::Display for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}", self.0)
    }
}

/// Something for every transaction of the history.
#[derive(Clone, Debug)]
pub(super) struct PerTxn<T>(Vec<T>);

impl<T: Clone> PerTxn<T> {
    pub(super) fn new(history: &[Transaction], value: T) -> Self {
        Self(vec![value; history.len()])
    }
}

impl<T> std::ops::Index<Txn> for PerTxn<T> {
    type Output = T;

    #[expect(clippy::indexing_slicing, reason = "every Txn is an index into the one history")]
    fn index(&self, txn: Txn) -> &T {
        &self.0[txn.0]
    }
}

impl<T> std::ops::IndexMut<Txn> for PerTxn<T> {
    #[expect(clippy::indexing_slicing, reason = "every Txn is an index into the one history")]
    fn index_mut(&mut self, txn: Txn) -> &mut T {
        &mut self.0[txn.0]
    }
}
