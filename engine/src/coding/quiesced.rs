//! The lines with which a node has quiesced, because their homes are lost or move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use super::unlatched::UnlatchedAccesses;

/// The lines with which a node has come to a stop.
#[derive(Default)]
pub(crate) struct QuiescedHomes {
    /// There are some: looked at first, as there are none mostly.
    pub(super) any: AtomicBool,
    /// The header tables, (range, position), of each rebuild under way, by its number.
    pub(super) tables: RwLock<BTreeMap<u64, BTreeSet<(usize, usize)>>>,
    /// The rebuilds among these for which this node takes requests again.
    pub(super) entered: RwLock<BTreeSet<u64>>,
    /// Those among them whose words have what this node has: that is done once.
    pub(super) in_words: Mutex<BTreeSet<u64>>,
    /// Memory nodes that verbs found dead, and by when they will be missed, once it was looked
    /// where they are.
    pub(super) suspects: Mutex<BTreeMap<usize, Option<Duration>>>,
    pub(crate) unlatched: UnlatchedAccesses,
}

impl QuiescedHomes {
    pub(super) fn contains(&self, table: (usize, usize)) -> bool {
        self.tables.read().values().any(|tables| tables.contains(&table))
    }

    /// Whether this node has entered what it has of a table, and waits for others to do so, or has
    /// just gone on with it.
    pub(super) fn has_entered(&self, table: (usize, usize)) -> bool {
        // In the order in which `end` takes them away.
        let tables = self.tables.read();
        let mut own = tables.iter().filter(|(_, tables)| tables.contains(&table));
        let entered = self.entered.read();
        own.all(|(number, _)| entered.contains(number))
    }

    /// A rebuild is over; the tables it was of, if this node stood still for it.
    pub(super) fn end(&self, number: u64) -> Option<BTreeSet<(usize, usize)>> {
        let mut all = self.tables.write();
        let tables = all.remove(&number)?;
        self.any.store(!all.is_empty(), Ordering::Release);
        self.entered.write().remove(&number);
        self.in_words.lock().remove(&number);
        Some(tables)
    }

    /// A verb found a memory node dead.
    pub(crate) fn suspect(&self, memory: usize) {
        self.suspects.lock().entry(memory).or_default();
    }

    /// Whether verbs found memory nodes dead that are not known to be.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.lock().is_empty()
    }

    pub(crate) fn rebuilds(&self) -> Vec<u64> {
        self.tables.read().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_as_the_node_goes_on_is_not_of_before() {
        let (quiesced, table) = (QuiescedHomes::default(), (2, 1));
        quiesced.tables.write().insert(7, BTreeSet::from([table]));
        quiesced.tables.write().insert(8, BTreeSet::from([(0, 0)]));
        quiesced.any.store(true, Ordering::Release);
        assert!(!quiesced.has_entered(table), "whoever asks will ask again");
        quiesced.entered.write().insert(7);
        assert!(quiesced.has_entered(table));
        assert_eq!(quiesced.end(7), Some(BTreeSet::from([table])));
        // Who looked just before that still takes the line for one that stands still.
        assert!(quiesced.has_entered(table));
        assert!(!quiesced.has_entered((0, 0)) && quiesced.any.load(Ordering::Acquire));
        assert_eq!(quiesced.end(7), None);
        quiesced.end(8);
        assert!(!quiesced.any.load(Ordering::Acquire));
    }
}
