//! Places in a transaction that it can go back to without ending.
//!
//! A savepoint is how many changes there were. Going back takes back those that came since: in
//! place, where every leaf that was changed is held exclusively, or where they are kept aside. What
//! was latched or read since stays so: it may have decided what the transaction does next.

use crate::error::TxnError;
use crate::transaction::Txn;

/// A place in one transaction, made by [`Txn::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Savepoint(u64);

/// The savepoints of a transaction that can be gone back to, and how many changes there were,
/// oldest first.
#[derive(Debug, Default)]
pub(crate) struct Savepoints(Vec<(Savepoint, usize)>);

impl Savepoints {
    fn add(&mut self, number: u64, mark: usize) -> Savepoint {
        let savepoint = Savepoint(number);
        self.0.push((savepoint, mark));
        savepoint
    }

    fn position(&self, savepoint: Savepoint) -> Result<usize, TxnError> {
        self.0.iter().rposition(|(own, _)| *own == savepoint).ok_or(TxnError::NoSavepoint)
    }
}

impl Txn<'_> {
    /// Marks this place in the transaction, to be gone back to by
    /// [`rollback_to`](Self::rollback_to). No round trip, no waiting.
    ///
    /// # Errors
    /// [`TxnError::RolledBack`] if an earlier error rolled the transaction back, or an operation
    /// was dropped half-way.
    pub fn savepoint(&mut self) -> Result<Savepoint, TxnError> {
        self.open_read()?;
        let mark = self.mark();
        Ok(self.savepoints.add(self.db.savepoint_number(), mark))
    }

    /// Takes back every change since the savepoint, which stays; those made after it are gone.
    /// Latches stay, also those taken since. No round trip, no waiting.
    ///
    /// # Errors
    /// [`TxnError::NoSavepoint`] if it is another transaction's, was released, or an earlier one
    /// was gone back to; nothing is changed then. [`TxnError::RolledBack`] as for
    /// [`savepoint`](Self::savepoint).
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        self.open_read()?;
        let at = self.savepoints.position(savepoint)?;
        self.savepoints.0.truncate(at + 1);
        if let Some((_, mark)) = self.savepoints.0.get(at).copied() {
            self.take_back(mark);
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
