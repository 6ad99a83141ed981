//! The header tables whose lines a node has quiesced, because their homes are lost or move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::unlatched::UnlatchedAccesses;

/// The header tables whose lines this node has quiesced, and the memory nodes that it suspects.
#[derive(Default)]
pub(crate) struct QuiescedHomes {
    /// Some line is quiesced. Read first, because mostly none is.
    pub(super) any: AtomicBool,
    /// The header tables, (range, position), of each current rebuild, by its number.
    pub(super) tables: RwLock<BTreeMap<u64, BTreeSet<(usize, usize)>>>,
    /// The rebuilds for which this node takes requests again.
    pub(super) entered: RwLock<BTreeSet<u64>>,
    /// The rebuilds for which this node has entered its lines in the words: that is done once.
    pub(super) in_words: Mutex<BTreeSet<u64>>,
    /// Memory nodes that verbs found dead.
    pub(super) suspects: Mutex<BTreeMap<usize, Suspect>>,
    /// A task looks what becomes of them.
    pub(super) is_declaring: AtomicBool,
    /// Memory nodes that are being read from, as others do not reach them.
    pub(super) asked: Mutex<BTreeSet<usize>>,
    pub(crate) unlatched: UnlatchedAccesses,
}

/// What is known of a memory node that a verb found dead: `rebuild/suspects.rs`.
#[derive(Clone, Copy, Default)]
pub(super) enum Suspect {
    #[default]
    Found,
    /// This node can connect: others miss it by then, if it is dead.
    Awaited { by: Duration },
    /// It lives, and the pool knows that this node does not reach it. Others say so until then, if
    /// they do not reach it either.
    Told { until: Duration },
}

impl QuiescedHomes {
    pub(super) fn contains(&self, table: (usize, usize)) -> bool {
        self.tables.read().values().any(|tables| tables.contains(&table))
    }

    /// Whether this node has entered its lines of a table and waits for the others, or has just
    /// resumed.
    pub(super) fn has_entered(&self, table: (usize, usize)) -> bool {
        // In the order in which `end` removes them.
        let tables = self.tables.read();
        let mut own = tables.iter().filter(|(_, tables)| tables.contains(&table));
        let entered = self.entered.read();
        own.all(|(number, _)| entered.contains(number))
    }

    /// Ends a rebuild. Returns its tables, if this node had quiesced them.
    pub(super) fn end(&self, number: u64) -> Option<BTreeSet<(usize, usize)>> {
        let mut all = self.tables.write();
        let tables = all.remove(&number)?;
        self.any.store(!all.is_empty(), Ordering::Release);
        self.entered.write().remove(&number);
        self.in_words.lock().remove(&number);
        Some(tables)
    }

    /// Notes that a verb found a memory node dead.
    pub(crate) fn suspect(&self, memory: usize) {
        self.suspects.lock().entry(memory).or_default();
    }

    /// Whether this memory node is suspected, and not yet declared dead.
    pub(crate) fn is_suspect(&self, memory: usize) -> bool {
        self.suspects.lock().contains_key(&memory)
    }

    /// Whether a suspected memory node is not yet declared dead.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.lock().is_empty()
    }

    /// The header tables of a rebuild for which this node has quiesced.
    ///
    /// # Panics
    /// If it has not.
    pub(super) fn tables_of(&self, number: u64) -> BTreeSet<(usize, usize)> {
        let Some(tables) = self.tables.read().get(&number).cloned() else {
            panic!("rebuild {number} takes a step that follows quiesce, before it");
        };
        tables
    }

    /// The rebuilds for which this node has quiesced.
    pub(crate) fn rebuilds(&self) -> Vec<u64> {
        self.tables.read().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_as_the_node_resumes_is_taken() {
        let (quiesced, table) = (QuiescedHomes::default(), (2, 1));
        quiesced.tables.write().insert(7, BTreeSet::from([table]));
        quiesced.tables.write().insert(8, BTreeSet::from([(0, 0)]));
        quiesced.any.store(true, Ordering::Release);
        assert!(!quiesced.has_entered(table), "the requester asks again");
        quiesced.entered.write().insert(7);
        assert!(quiesced.has_entered(table));
        assert_eq!(quiesced.end(7), Some(BTreeSet::from([table])));
        // A task that looked just before that still takes the line for quiesced.
        assert!(quiesced.has_entered(table));
        assert!(!quiesced.has_entered((0, 0)) && quiesced.any.load(Ordering::Acquire));
        assert_eq!(quiesced.end(7), None);
        quiesced.end(8);
        assert!(!quiesced.any.load(Ordering::Acquire));
    }
}
