//! Points in a transaction to which it can roll back without ending.
//!
//! A savepoint records how many changes there were. Rolling back to it undoes the changes made
//! since: in place, where every changed leaf is held exclusively, or in the write set. What was
//! latched or read since stays so: it may have decided what the transaction does next.

use crate::error::TxnError;

/// A point in one transaction, made by [`Txn::savepoint`](crate::Txn::savepoint).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Savepoint(u64);

/// A savepoint, and how many changes there were when it was made.
#[derive(Debug)]
struct SavepointMark {
    savepoint: Savepoint,
    changes: usize,
}

/// The savepoints of a transaction that can be rolled back to, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Savepoints(Vec<SavepointMark>);

impl Savepoints {
    /// Makes the savepoint of that number, after so many changes.
    pub(crate) fn add(&mut self, number: u64, changes: usize) -> Savepoint {
        let savepoint = Savepoint(number);
        self.0.push(SavepointMark { savepoint, changes });
        savepoint
    }

    /// Forgets the savepoints made after this one; how many changes there were at it.
    pub(crate) fn truncate_after(&mut self, savepoint: Savepoint) -> Result<usize, TxnError> {
        let (position, changes) = self.find(savepoint)?;
        self.0.truncate(position + 1);
        Ok(changes)
    }

    /// Forgets this savepoint and those made after it.
    pub(crate) fn release(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        let (position, _) = self.find(savepoint)?;
        self.0.truncate(position);
        Ok(())
    }

    /// The position of a savepoint, and how many changes there were at it.
    fn find(&self, savepoint: Savepoint) -> Result<(usize, usize), TxnError> {
        let marks = self.0.iter().enumerate().rev();
        let mut found = marks.filter(|(_, mark)| mark.savepoint == savepoint);
        found.next().map(|(position, mark)| (position, mark.changes)).ok_or(TxnError::NoSavepoint)
    }
}
