//! The ledger: how often each record was updated, which were inserted, and what was read that
//! cannot be.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use super::acknowledged::Acknowledged;
use crate::benchmark::Findings;

/// What committed operations did, and what they found; 4 bytes a record.
#[derive(Debug)]
pub struct RecordLedger {
    /// Updates of each loaded record. No workload updates what it has inserted.
    updates: Vec<AtomicU32>,
    /// The numbers of records.
    pub(super) numbers: Acknowledged,
    /// Of operations. Locked only when something is wrong.
    wrong: Mutex<Findings>,
}

impl RecordLedger {
    pub(super) fn new(records: u32) -> Self {
        let updates = std::iter::repeat_with(AtomicU32::default).take(records as usize).collect();
        let numbers = Acknowledged::new(records.into());
        Self { updates, numbers, wrong: Mutex::default() }
    }

    /// A record was updated.
    pub(super) fn note_update(&self, number: u64) {
        if let Some(count) = self.cell(number) {
            // Relaxed: the check reads after it has waited for all workers.
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often it was.
    pub(super) fn updates(&self, number: u64) -> u32 {
        self.cell(number).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn cell(&self, number: u64) -> Option<&AtomicU32> {
        self.updates.get(usize::try_from(number).ok()?)
    }

    /// Notes what an operation found.
    pub(super) fn note_wrong(&self, rule: &'static str, example: impl FnOnce() -> String) {
        self.wrong.lock().expect(false, rule, example);
    }

    /// Everything that operations found.
    pub(super) fn wrong(&self) -> Findings {
        self.wrong.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_has_a_count_of_its_own() {
        let ledger = RecordLedger::new(3);
        for number in [0, 2, 2] {
            ledger.note_update(number);
        }
        assert_eq!([0, 1, 2, 3].map(|number| ledger.updates(number)), [1, 0, 2, 0]);
        assert!(ledger.wrong().hold());
        ledger.note_wrong("a rule", || "an example".to_owned());
        assert!(!ledger.wrong().hold());
    }
}
