//! Numbers of records that are known to be there.
//!
//! Inserts take numbers in order and commit in any. A reader that wants the latest records must not
//! be told of one that has not committed, nor skip those between: so there is a limit below which
//! all are there, and it passes a number once all before it have committed (YCSB 0.17:
//! AcknowledgedCounterGenerator, whose window has a fixed size).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// The numbers of records.
#[derive(Debug)]
pub(super) struct Acknowledged {
    /// The number of the next insert.
    next: AtomicU64,
    /// All below are there.
    limit: AtomicU64,
    /// Those above that are, too: at most as many as there are inserts under way.
    beyond: Mutex<BTreeSet<u64>>,
}

impl Acknowledged {
    /// The numbers below this are there.
    pub(super) fn new(records: u64) -> Self {
        let (next, limit) = (AtomicU64::new(records), AtomicU64::new(records));
        Self { next, limit, beyond: Mutex::default() }
    }

    /// A number for an insert, which no other gets.
    pub(super) fn take(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The record of that number has committed.
    pub(super) fn acknowledge(&self, number: u64) {
        let mut beyond = self.beyond.lock();
        beyond.insert(number);
        let mut limit = self.limit.load(Ordering::Relaxed);
        while beyond.remove(&limit) {
            limit += 1;
        }
        // Pairs with `limit`: the commits of all below happened before.
        self.limit.store(limit, Ordering::Release);
    }

    /// The first number that is not known to be there.
    pub(super) fn limit(&self) -> u64 {
        // Pairs with `acknowledge`.
        self.limit.load(Ordering::Acquire)
    }

    /// Whether the record of that number is known to be there.
    pub(super) fn has(&self, number: u64) -> bool {
        number < self.limit() || self.beyond.lock().contains(&number) || number < self.limit()
    }

    /// How many records there are beyond the first so many.
    pub(super) fn beyond(&self, records: u64) -> u64 {
        let beyond = self.beyond.lock();
        self.limit().saturating_sub(records) + beyond.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_waits_for_those_before_it() {
        let numbers = Acknowledged::new(10);
        assert_eq!([(); 4].map(|()| numbers.take()), [10, 11, 12, 13]);
        assert!(numbers.has(9) && !numbers.has(10));
        numbers.acknowledge(12);
        numbers.acknowledge(11);
        assert_eq!((numbers.limit(), numbers.beyond(10)), (10, 2));
        assert!(!numbers.has(10) && numbers.has(11) && numbers.has(12) && !numbers.has(13));
        numbers.acknowledge(10);
        assert_eq!((numbers.limit(), numbers.beyond(10)), (13, 3));
        assert_eq!(numbers.beyond(5), 8);
        assert!(numbers.beyond.lock().is_empty());
    }
}
