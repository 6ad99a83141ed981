//! What writes of a run store, and which registers they change.

use std::collections::BTreeSet;

use crate::check::serial::Op;

/// Values of a session. No two sessions share one.
const VALUES: u64 = 1_000_000;

/// Numbers that no other write of the run uses.
pub(super) struct Values {
    next: u64,
}

impl Values {
    /// Of one that writes nothing.
    pub(super) fn none() -> Self {
        Self { next: 0 }
    }

    /// Of a client of this number.
    pub(super) fn of(number: usize) -> Self {
        Self { next: (number as u64 + 1) * VALUES }
    }

    pub(super) fn take(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The registers that a transaction has changed.
pub(super) fn changed_by(ops: &[Op]) -> BTreeSet<u64> {
    let change = |op: &Op| if let Op::Write { key, .. } = op { Some(*key) } else { None };
    ops.iter().filter_map(change).collect()
}
