//! Anomalies of a history of transactions.

use std::fmt;

use super::history::{Transaction, Txn};

/// Transactions that an explanation shows in full.
const MAX_SHOWN: usize = 12;

/// The kind of an anomaly, by Adya's names where there is one (MIT PhD thesis, 1999).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AnomalyKind {
    /// A value was written twice to the same object, or is in a list twice.
    DuplicateValue,
    /// A scan saw a key outside its range, or twice.
    BadScan,
    /// A transaction contradicts its own earlier reads and writes, or saw its own later write.
    Internal,
    /// A value was read that no transaction wrote.
    GarbageRead,
    /// G1a: a value of an aborted transaction was read.
    AbortedRead,
    /// G1b: a value was read that its own transaction replaced or appended to afterwards.
    IntermediateRead,
    /// Two reads of a list have no common order of appends, or one contradicts the order in which
    /// a transaction appended.
    IncompatibleOrder,
    /// Two transactions read the same version of an object and both wrote it.
    LostUpdate,
    /// G0: a cycle of write dependencies.
    G0,
    /// G1c: a cycle of write and read dependencies.
    G1c,
    /// A cycle with exactly one anti-dependency.
    GSingle,
    /// A cycle with several anti-dependencies.
    G2,
    /// A cycle that needs real-time order: a stale read, or a write that came too late.
    RealTime,
    /// The graph has no cycle, but no order of the blind writes explains the reads.
    NoSerialOrder,
    /// The search for an order of the blind writes gave up: no verdict.
    Undecided,
}

/// One thing that is wrong, with the transactions that show it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Anomaly {
    /// What it is.
    pub kind: AnomalyKind,
    /// Indices into the history; of a cycle, in its order.
    pub transactions: Vec<usize>,
    /// Why, in words, one step a line, and the transactions themselves.
    pub explanation: String,
}

impl Anomaly {
    pub(super) fn new(
        kind: AnomalyKind,
        history: &[Transaction],
        involved: impl IntoIterator<Item = Txn>,
        reason: impl fmt::Display,
    ) -> Self {
        let transactions: Vec<usize> = involved.into_iter().map(|txn| txn.0).collect();
        let mut explanation = reason.to_string();
        for &index in transactions.iter().take(MAX_SHOWN) {
            if let Some(transaction) = history.get(index) {
                explanation.push_str(&format!("\n  T{index} = {transaction}"));
            }
        }
        if let more @ 1.. = transactions.len().saturating_sub(MAX_SHOWN) {
            explanation.push_str(&format!("\n  and {more} more"));
        }
        Self { kind, transactions, explanation }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.explanation)
    }
}
