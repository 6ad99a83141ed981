//! Savepoints: what a transaction goes back to, with the settings that the session had there.

use std::sync::Arc;

use selkie_txn::Savepoint;

use super::settings::Settings;
use super::transaction::Modes;
use super::{Session, TransactionState};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{DeferredMark, from_txn};

/// A savepoint that was set.
#[derive(Clone)]
pub(super) struct SetSavepoint {
    name: String,
    savepoint: Savepoint,
    deferred: DeferredMark,
    /// Counted over all that the session has set.
    number: u64,
    settings: Arc<Settings>,
    /// What they are to be when the transaction has committed, if that is something else.
    lasting: Option<Arc<Settings>>,
    modes: Modes,
}

impl Session {
    pub(super) async fn savepoint(&mut self, name: String) -> SqlResult<&'static str> {
        self.in_transaction("SAVEPOINT")?;
        let made = self.txn.run(|txn| Box::pin(async move { txn.savepoint() })).await;
        let savepoint = made.map_err(|error| from_txn(error, None))?;
        let deferred = self.deferred.lock().mark();
        self.savepoints_set += 1;
        self.kept.note_savepoint(self.savepoints_set);
        self.locks.note_savepoint(self.savepoints_set);
        self.savepoints.push(SetSavepoint {
            name,
            savepoint,
            deferred,
            number: self.savepoints_set,
            settings: Arc::clone(&self.settings),
            lasting: self.lasting.clone(),
            modes: self.modes_now,
        });
        Ok("SAVEPOINT")
    }

    fn find_savepoint(&self, name: &str) -> SqlResult<usize> {
        self.savepoints.iter().rposition(|own| own.name == name).ok_or_else(|| {
            let message = format!("savepoint \"{name}\" does not exist");
            SqlError::new(SqlState::INVALID_SAVEPOINT, message)
        })
    }

    pub(super) async fn rollback_to(&mut self, name: &str) -> SqlResult<&'static str> {
        self.in_transaction("ROLLBACK TO SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        let Some(own) = self.savepoints.get(at).cloned() else {
            return Err(SqlError::internal("a savepoint is gone"));
        };
        let savepoint = own.savepoint;
        let gone =
            self.txn.run(move |txn| Box::pin(async move { txn.rollback_to(savepoint) })).await;
        gone.map_err(|error| from_txn(error, None))?;
        self.deferred.lock().return_to(&own.deferred);
        self.savepoints.truncate(at + 1);
        self.kept.return_to(own.number);
        self.locks.return_to(own.number).await;
        self.returned_to = Some(self.returned_to.map_or(own.number, |least| least.min(own.number)));
        self.modes_now = own.modes;
        self.set_back(&own.settings, own.lasting);
        self.state = TransactionState::InTransaction;
        Ok("ROLLBACK")
    }

    pub(super) async fn release(&mut self, name: &str) -> SqlResult<&'static str> {
        self.in_transaction("RELEASE SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        let Some(own) = self.savepoints.get(at) else {
            return Err(SqlError::internal("a savepoint is gone"));
        };
        let savepoint = own.savepoint;
        let gone = self.txn.run(move |txn| Box::pin(async move { txn.release(savepoint) })).await;
        gone.map_err(|error| from_txn(error, None))?;
        self.savepoints.truncate(at);
        Ok("RELEASE")
    }
}
