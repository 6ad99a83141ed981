//! What a future of a session leaves that was dropped before it was done.

use super::{Session, TransactionState};

impl Session {
    /// Brings the session in order after a future of it was dropped. `before` is the
    /// [`state`](Self::state) in which the session was when the future began. No waiting.
    ///
    /// What was begun since then is rolled back, unless its commit had begun: whether that has
    /// happened is not known. A transaction from before has [failed](TransactionState::Failed), as
    /// a part of the statement may have happened in it.
    ///
    /// [`TransactionState::Idle`] as `before` rolls back whatever is in progress.
    pub fn abandon(&mut self, before: TransactionState) {
        let is_over = self.state == TransactionState::Idle;
        if before == TransactionState::Idle || is_over {
            self.txn.abandon();
            self.over();
            self.end_settings(true);
            self.kept.end_transaction(true);
            self.locks.end_transaction_later();
        } else {
            self.state = TransactionState::Failed;
        }
        self.note_end();
    }
}
