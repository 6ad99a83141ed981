//! The ledger: sums of what committed transactions changed, by subscriber.

use std::sync::atomic::{AtomicI64, Ordering};

use smallvec::SmallVec;

use super::rows::{START_TIMES, TYPES};
use crate::benchmark::ChangeSums;

/// Cells of a subscriber: location, bit, data of each facility, forwardings of each facility by
/// hour.
const LOCATION: usize = 0;
const BIT_1: usize = 1;
const DATA_A: usize = 2;
const FORWARDINGS: usize = DATA_A + TYPES as usize;
const CELLS: usize = FORWARDINGS + TYPES as usize * START_TIMES.len();

/// A value of a subscriber that transactions change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriberValue {
    /// `vlr_location`.
    Location,
    /// `bit_1`.
    Bit1,
    /// `data_a` of the facility of this type.
    DataA(i32),
    /// The [`destination`](super::rows::destination) of the call_forwarding row of this facility
    /// that begins at this hour; zero where there is none, so a difference above zero is an insert
    /// and one below zero a delete.
    Forwarding(i32, i32),
}

/// What a committed transaction did: to which value of a subscriber it added how much.
pub(super) type CommittedChanges = SmallVec<[(i32, SubscriberValue, i64); 2]>;

/// What committed transactions did; 144 bytes a subscriber.
#[derive(Debug)]
pub struct SubscriberLedger {
    cells: ChangeSums,
    inserted: AtomicI64,
    deleted: AtomicI64,
}

impl SubscriberLedger {
    pub(super) fn new(subscribers: i32) -> Self {
        assert!(subscribers >= 0, "{subscribers} subscribers");
        let cells = ChangeSums::new(CELLS * subscribers as usize);
        Self { cells, inserted: AtomicI64::new(0), deleted: AtomicI64::new(0) }
    }

    /// Notes what a committed transaction did.
    pub(super) fn note(&self, done: &CommittedChanges) {
        for (s_id, value, difference) in done {
            self.change(*s_id, *value, *difference);
        }
    }

    /// Notes by how much a value changed.
    fn change(&self, s_id: i32, value: SubscriberValue, difference: i64) {
        if let SubscriberValue::Forwarding(..) = value {
            let count = if difference > 0 { &self.inserted } else { &self.deleted };
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.cells.note(existing_cell(s_id, value), difference);
    }

    /// By how much a value changed in all.
    pub(super) fn sum(&self, s_id: i32, value: SubscriberValue) -> i64 {
        self.cells.sum(existing_cell(s_id, value))
    }

    /// Rows of call_forwarding that were inserted.
    #[must_use]
    pub fn inserted(&self) -> i64 {
        self.inserted.load(Ordering::Relaxed)
    }

    /// Rows of call_forwarding that were deleted.
    #[must_use]
    pub fn deleted(&self) -> i64 {
        self.deleted.load(Ordering::Relaxed)
    }
}

/// The cell of a value's sum.
#[expect(clippy::expect_used, reason = "a dropped change would hide a lost update")]
fn existing_cell(s_id: i32, value: SubscriberValue) -> usize {
    cell(s_id, value).expect("the ledger has a cell for every value of a subscriber")
}

/// The cell of a value's sum, if there is such a value.
fn cell(s_id: i32, value: SubscriberValue) -> Option<usize> {
    let of_type = |sf_type: i32| usize::try_from(sf_type.checked_sub(1)?).ok();
    let place = match value {
        SubscriberValue::Location => LOCATION,
        SubscriberValue::Bit1 => BIT_1,
        SubscriberValue::DataA(sf_type) => DATA_A + of_type(sf_type)?,
        SubscriberValue::Forwarding(sf_type, start_time) => {
            let hour = START_TIMES.iter().position(|start| *start == start_time)?;
            FORWARDINGS + of_type(sf_type)? * START_TIMES.len() + hour
        }
    };
    Some(CELLS * usize::try_from(s_id.checked_sub(1)?).ok()? + place)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_values_share_a_cell() {
        let mut values = vec![SubscriberValue::Location, SubscriberValue::Bit1];
        for sf_type in 1..=TYPES {
            values.push(SubscriberValue::DataA(sf_type));
            values.extend(
                START_TIMES.map(|start_time| SubscriberValue::Forwarding(sf_type, start_time)),
            );
        }
        let cells = (1..=3).flat_map(|s_id| values.iter().map(move |value| cell(s_id, *value)));
        let cells: BTreeSet<_> = cells.map(Option::unwrap).collect();
        assert_eq!(cells, (0..3 * CELLS).collect());
        assert_eq!(CELLS * size_of::<i64>(), 144);
        assert_eq!(cell(0, SubscriberValue::Location), None);
        assert_eq!(cell(1, SubscriberValue::Forwarding(1, 7)), None);
    }

    #[test]
    fn inserts_and_deletes_are_counted() {
        let ledger = SubscriberLedger::new(2);
        ledger.change(2, SubscriberValue::Forwarding(4, 16), 70);
        ledger.change(2, SubscriberValue::Forwarding(4, 16), -70);
        ledger.change(2, SubscriberValue::Forwarding(3, 0), 50);
        ledger.change(1, SubscriberValue::Location, -17);
        assert_eq!((ledger.inserted(), ledger.deleted()), (2, 1));
        assert_eq!(ledger.sum(2, SubscriberValue::Forwarding(4, 16)), 0);
        assert_eq!(ledger.sum(2, SubscriberValue::Forwarding(3, 0)), 50);
        assert_eq!(
            (ledger.sum(1, SubscriberValue::Location), ledger.sum(2, SubscriberValue::Location)),
            (-17, 0)
        );
    }
}
