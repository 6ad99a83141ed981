//! Places in a transaction that it can go back to without ending.
//!
//! A savepoint is how long the undo log was. Going back takes back what was logged since, in place: every leaf that
//! was changed is held exclusively. What was latched since stays latched, as two-phase locking asks for: what was read
//! since may have decided what the transaction does next.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::TxnError;
use crate::rollback::undo_to;
use crate::transaction::Txn;

/// Numbers for the savepoints of all transactions of this process, so that none is taken for another's.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A place in one transaction, made by [`Txn::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Savepoint(u64);

/// The savepoints of a transaction that can be gone back to, and how long the undo log was, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Savepoints(Vec<(Savepoint, usize)>);

impl Savepoints {
    fn add(&mut self, undo: usize) -> Savepoint {
        // Relaxed: only that no number is given twice.
        let savepoint = Savepoint(NEXT.fetch_add(1, Ordering::Relaxed));
        self.0.push((savepoint, undo));
        savepoint
    }

    fn position(&self, savepoint: Savepoint) -> Result<usize, TxnError> {
        self.0.iter().rposition(|(own, _)| *own == savepoint).ok_or(TxnError::NoSavepoint)
    }
}

impl Txn<'_> {
    /// Marks this place in the transaction, to be gone back to by [`rollback_to`](Self::rollback_to). No round trip, no
    /// waiting.
    ///
    /// # Errors
    /// [`TxnError::RolledBack`] if an earlier error rolled the transaction back, or an operation was dropped half-way.
    pub fn savepoint(&mut self) -> Result<Savepoint, TxnError> {
        self.open_read()?;
        let undo = self.work.undo.len();
        Ok(self.savepoints.add(undo))
    }

    /// Takes back every change since the savepoint, which stays; those made after it are gone. Latches stay, also those
    /// taken since. No round trip, no waiting.
    ///
    /// # Errors
    /// [`TxnError::NoSavepoint`] if it is another transaction's, was released, or an earlier one was gone back to;
    /// nothing is changed then. [`TxnError::RolledBack`] as for [`savepoint`](Self::savepoint).
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        self.open_read()?;
        let at = self.savepoints.position(savepoint)?;
        self.savepoints.0.truncate(at + 1);
        if let Some((_, undo)) = self.savepoints.0.get(at) {
            undo_to(&mut self.work, *undo);
        }
        Ok(())
    }

    /// Forgets a savepoint and those made after it; what was changed since stays changed.
    ///
    /// # Errors
    /// As [`rollback_to`](Self::rollback_to).
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        self.open_read()?;
        let at = self.savepoints.position(savepoint)?;
        self.savepoints.0.truncate(at);
        Ok(())
    }
}
