//! Statements: several operations that see one state.

use crate::error::TxnError;
use crate::transaction::txn::Txn;

impl Txn<'_> {
    /// Begins a statement. Under [`ReadCommitted`](crate::Isolation::ReadCommitted) and
    /// [`Protocol::Snapshot`](crate::Protocol::Snapshot) all operations from here to the end of the
    /// statement, or to the next one, read the state of one snapshot, which the first of them
    /// begins; outside of a statement each operation has its own. Under other isolations all
    /// operations of the transaction see one state anyway, and nothing is changed. A session may
    /// idle in a statement. An operation that [locks rows](Self::get_locked) reads them in their
    /// newest state, and what follows it in the statement sees that state, too. No round trip, no
    /// waiting.
    ///
    /// ```
    /// # use selkie_txn::{Database, Isolation, Table, TxnError, key};
    /// # async fn example(db: &Database, table: Table) -> Result<(), TxnError> {
    /// let mut txn = db.begin_with(Isolation::ReadCommitted);
    /// txn.begin_statement()?;
    /// let one = txn.get(table, &key![1]).await?.map(|row| row.i64(2)).transpose()?;
    /// let two = txn.get(table, &key![2]).await?.map(|row| row.i64(2)).transpose()?;
    /// txn.end_statement();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TxnError::RolledBack`] if the transaction has ended.
    pub fn begin_statement(&mut self) -> Result<(), TxnError> {
        self.check_active()?;
        self.end_view();
        self.view.open_statement();
        Ok(())
    }

    /// Ends a statement. Does nothing if there is none.
    pub fn end_statement(&mut self) {
        self.end_view();
        self.view.close_statement();
    }

    /// What was read last is of the view that ends.
    fn end_view(&mut self) {
        self.work.last_read = None;
        if self.view.is_snapshot() && !self.view.is_of_transaction() {
            self.forget_definitions();
        }
    }
}
