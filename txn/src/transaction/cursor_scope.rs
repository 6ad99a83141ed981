//! Which cursors are a transaction's: those that were opened in it, and have not ended with a
//! savepoint. A cursor owns its position and nothing of its transaction, so it has to be told apart
//! from those of others.

use std::ops::Range;

/// Which transaction a cursor is of, and which of its cursors it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CursorId {
    txn: u64,
    cursor: u64,
}

/// The cursors of one transaction.
#[derive(Debug, Default)]
pub(crate) struct CursorScope {
    /// The number of the transaction; `None` before its first cursor.
    txn: Option<u64>,
    /// How many were opened.
    opened: u64,
    /// Those that have ended, in order.
    ended: Vec<Range<u64>>,
    /// Rollbacks to savepoints.
    rollbacks: u64,
}

impl CursorScope {
    /// Opens a cursor; `number` gives the transaction one that no other has.
    pub(crate) fn open(&mut self, number: impl FnOnce() -> u64) -> CursorId {
        let txn = *self.txn.get_or_insert_with(number);
        let cursor = self.opened;
        self.opened += 1;
        CursorId { txn, cursor }
    }

    /// Whether a cursor is one of these, and has not ended.
    pub(crate) fn has(&self, id: CursorId) -> bool {
        let is_own = self.txn == Some(id.txn);
        is_own && !self.ended.iter().any(|ended| ended.contains(&id.cursor))
    }

    /// How many cursors were opened: a mark to go back to.
    pub(super) fn mark(&self) -> u64 {
        self.opened
    }

    /// Ends those that were opened since there were so many: what they were opened in is undone.
    pub(super) fn roll_back_to(&mut self, mark: u64) {
        self.rollbacks += 1;
        self.ended.retain(|ended| ended.start < mark);
        if mark < self.opened {
            self.ended.push(mark..self.opened);
        }
    }

    /// How often the transaction has rolled back to a savepoint.
    pub(crate) fn rollbacks(&self) -> u64 {
        self.rollbacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_end_with_what_they_were_opened_in() {
        let mut scope = CursorScope::default();
        let outer = scope.open(|| 7);
        let first = scope.mark();
        let inner = scope.open(|| 8);
        scope.roll_back_to(first);
        assert!(scope.has(outer) && !scope.has(inner));
        let second = scope.mark();
        let later = scope.open(|| 9);
        scope.roll_back_to(second);
        let last = scope.open(|| 9);
        assert!(scope.has(outer) && scope.has(last) && !scope.has(later) && !scope.has(inner));
        scope.roll_back_to(0);
        assert!(![outer, inner, later, last].into_iter().any(|cursor| scope.has(cursor)));
        assert_eq!((scope.ended.len(), scope.rollbacks()), (1, 3));
        let other = CursorScope::default().open(|| 8);
        assert!(!scope.has(other) && !CursorScope::default().has(outer));
    }
}
