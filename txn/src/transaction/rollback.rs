//! Rolling a transaction back, all of it or to a savepoint.

use selkie_fabric::env::yield_now;

use crate::error::{AbortCause, TxnError};
use crate::transaction::savepoint::{Savepoint, SavepointPosition};
use crate::transaction::txn::Txn;

/// Changes that are taken back before other tasks run.
const UNDONE_AT_ONCE: usize = 64;

impl Txn<'_> {
    /// Takes every change back, releases every latch, then maintains trees as
    /// [`commit`](Self::commit) does. After an error that has rolled the transaction back already,
    /// only the maintenance.
    pub async fn rollback(self) {
        let cause = self.rollback_cause();
        self.rollback_for(cause).await;
    }

    /// As [`rollback`](Self::rollback), for this cause.
    pub(super) async fn rollback_for(mut self, cause: AbortCause) {
        self.undo_in_turns(0).await;
        let row_locks = self.row_locks.take();
        self.abort(cause);
        if !row_locks.is_empty() {
            Box::pin(row_locks.released()).await;
        }
        self.maintain().await;
    }

    /// Takes back the latest changes of a transaction that is in progress, until about so many are
    /// left, and lets other tasks run now and then. What follows takes back the rest; if this
    /// future is dropped, the whole transaction is rolled back.
    pub(super) async fn undo_in_turns(&mut self, mark: usize) {
        if !self.is_active() {
            return;
        }
        // Undo gives back what it would need.
        self.log_need = self.log_need.max(self.log_need());
        while self.work.undo.len() > mark + UNDONE_AT_ONCE {
            let (before, left) = (self.open_critical(), self.work.undo.len() - UNDONE_AT_ONCE);
            self.work.undo_to(&self.db.engine, left);
            yield_now().await;
            self.close_critical(before);
        }
    }

    /// Marks this point in the transaction, to be rolled back to by
    /// [`rollback_to`](Self::rollback_to). No round trip, no waiting.
    ///
    /// # Errors
    /// [`TxnError::RolledBack`] if an earlier error rolled the transaction back, or an operation
    /// was dropped half-way.
    pub fn savepoint(&mut self) -> Result<Savepoint, TxnError> {
        self.open_read()?;
        let at = SavepointPosition { changes: self.mark(), cursors: self.cursors.mark() };
        Ok(self.savepoints.add(self.db.unique_number(), at))
    }

    /// Takes back every change since the savepoint, which stays; those made after it are gone.
    /// Latches stay, also those taken since. [Cursors](crate::Cursor) that were opened since have
    /// ended. No round trip, no waiting.
    ///
    /// # Errors
    /// [`TxnError::NoSavepoint`] if it is another transaction's, was released, or the transaction
    /// was rolled back to an earlier one; nothing is changed then. [`TxnError::RolledBack`] as for
    /// [`savepoint`](Self::savepoint).
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        self.open_read()?;
        let at = self.savepoints.truncate_after(savepoint)?;
        self.take_back(at.changes);
        self.changes_begun += 1;
        self.cursors.roll_back_to(at.cursors);
        Ok(())
    }

    /// Forgets a savepoint and those made after it; what was changed since stays changed.
    ///
    /// # Errors
    /// As [`rollback_to`](Self::rollback_to).
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), TxnError> {
        self.open_read()?;
        self.savepoints.release(savepoint)
    }
}
