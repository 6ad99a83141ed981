//! Which transactions come before which, over all paths of an acyclic graph.
//!
//! One bit for every pair: n²/8 bytes, and time in edges times n/64.

use super::graph::{Dependency, Graph};
use super::history::{PerTxn, Transaction, Txn};

const WORD_BITS: usize = u64::BITS as usize;

pub(super) struct Order {
    /// A topological order, by transaction.
    pub(super) position: PerTxn<usize>,
    later: PerTxn<Vec<u64>>,
}

impl Order {
    /// The closure of `graph`, which must be acyclic.
    pub(super) fn of(graph: &Graph<'_>, history: &[Transaction]) -> Self {
        let mut position = PerTxn::new(history, 0);
        let mut later = PerTxn::new(history, Vec::new());
        let sinks_first = graph.components(Dependency::RealTime);
        assert_eq!(sinks_first.len(), history.len(), "the closure is of an acyclic graph");
        for (index, txn) in sinks_first.into_iter().flatten().enumerate() {
            position[txn] = history.len() - index;
            let mut row = vec![0; history.len().div_ceil(WORD_BITS)];
            for next in graph.successors(txn) {
                for (word, more) in row.iter_mut().zip(&later[next]) {
                    *word |= more;
                }
                if let Some(word) = row.get_mut(next.0 / WORD_BITS) {
                    *word |= 1 << (next.0 % WORD_BITS);
                }
            }
            later[txn] = row;
        }
        Self { position, later }
    }

    /// Whether `first` comes before `second`.
    pub(super) fn before(&self, first: Txn, second: Txn) -> bool {
        let word = self.later[first].get(second.0 / WORD_BITS);
        word.is_some_and(|word| word >> (second.0 % WORD_BITS) & 1 == 1)
    }
}
