//! Points in a transaction to which it can roll back without ending.
//!
//! A savepoint records how many changes there were. Rolling back to it undoes the changes made
//! since: in place, where every changed leaf is held exclusively, or in the write set. What was
//! latched or read since stays so: it may have decided what the transaction does next. Cursors that
//! were opened since end, and those from before go on.

use crate::error::TxnError;

/// A point in one transaction, made by [`Txn::savepoint`](crate::Txn::savepoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Savepoint(u64);

/// A savepoint, and where in the transaction it was made.
#[derive(Debug)]
struct SavepointMark {
    savepoint: Savepoint,
    at: SavepointPosition,
}

/// How far a transaction had come.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavepointPosition {
    /// How many changes there were.
    pub(super) changes: usize,
    /// How many cursors were opened.
    pub(super) cursors: u64,
}

/// The savepoints of a transaction that can be rolled back to, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Savepoints(Vec<SavepointMark>);

impl Savepoints {
    /// Makes the savepoint of that number.
    pub(super) fn add(&mut self, number: u64, at: SavepointPosition) -> Savepoint {
        let savepoint = Savepoint(number);
        self.0.push(SavepointMark { savepoint, at });
        savepoint
    }

    /// Forgets the savepoints made after this one; where it was made.
    pub(super) fn truncate_after(
        &mut self,
        savepoint: Savepoint,
    ) -> Result<SavepointPosition, TxnError> {
        let (position, at) = self.find(savepoint)?;
        self.0.truncate(position + 1);
        Ok(at)
    }

    /// Forgets this savepoint and those made after it.
    pub(crate) fn release(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        let (position, _) = self.find(savepoint)?;
        self.0.truncate(position);
        Ok(())
    }

    /// How many changes there were when the last one was made that can be rolled back to.
    pub(super) fn last_changes(&self) -> Option<usize> {
        self.0.iter().map(|mark| mark.at.changes).max()
    }

    /// The position of a savepoint, and where it was made.
    fn find(&self, savepoint: Savepoint) -> Result<(usize, SavepointPosition), TxnError> {
        let marks = self.0.iter().enumerate().rev();
        let mut found = marks.filter(|(_, mark)| mark.savepoint == savepoint);
        found.next().map(|(position, mark)| (position, mark.at)).ok_or(TxnError::NoSavepoint)
    }
}
