//! Transactions as statements begin, change and end them.

use std::sync::Arc;
use std::time::Duration;

use selkie_txn::Isolation;
use sqlparser::ast::{
    Statement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
    TransactionModifier, Value, ValueWithSpan,
};

use super::parameters::switch;
use super::parsed::Verb;
use super::settings::{invalid, level, level_of};
use super::{Session, TransactionState};
use crate::client::Client;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{from_txn, read_only_error};
use crate::notice::Notice;

/// How a transaction is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    /// That it may wait for a state in which it can neither fail nor make others fail. One that
    /// only reads is always so: it reads a snapshot, so nothing is waited for.
    pub(crate) deferrable: bool,
}

impl Default for Modes {
    fn default() -> Self {
        Self { isolation: Isolation::ReadCommitted, read_only: false, deferrable: false }
    }
}

impl Modes {
    /// The same, but for those that are given.
    fn with(self, modes: &[TransactionMode], deferrable: Option<bool>) -> Self {
        let deferrable = deferrable.unwrap_or(self.deferrable);
        modes.iter().fold(Self { deferrable, ..self }, |own, mode| match mode {
            TransactionMode::AccessMode(mode) => {
                Self { read_only: *mode == TransactionAccessMode::ReadOnly, ..own }
            }
            TransactionMode::IsolationLevel(level) => Self { isolation: isolation(*level), ..own },
        })
    }

    /// What a parameter says of the present transaction; `None` if it says nothing of it.
    pub(super) fn parameter(self, name: &str) -> Option<String> {
        let word = |is_on| if is_on { "on" } else { "off" };
        let value = match &*name.to_ascii_lowercase() {
            "transaction_isolation" | "transaction isolation level" => level(self.isolation),
            "transaction_read_only" => word(self.read_only),
            "transaction_deferrable" => word(self.deferrable),
            _ => return None,
        };
        Some(value.to_owned())
    }

    /// The same with the value of such a parameter, or that of `defaults`; `None` if it is none.
    fn with_parameter(
        self,
        name: &str,
        value: Option<&str>,
        defaults: Self,
    ) -> SqlResult<Option<Self>> {
        let folded = name.to_ascii_lowercase();
        let is_on = |default: bool| match value {
            None => Ok(default),
            Some(value) => switch(name, value),
        };
        Ok(Some(match &*folded {
            "transaction_isolation" => {
                let isolation = match value {
                    None => Some(defaults.isolation),
                    Some(value) => level_of(value),
                };
                let allowed = "serializable, repeatable read, read committed, read uncommitted";
                let wrong = || invalid(name, value.unwrap_or_default(), allowed);
                Self { isolation: isolation.ok_or_else(wrong)?, ..self }
            }
            "transaction_read_only" => Self { read_only: is_on(defaults.read_only)?, ..self },
            "transaction_deferrable" => Self { deferrable: is_on(defaults.deferrable)?, ..self },
            _ => return Ok(None),
        }))
    }
}

/// An error of a statement that changes something, in a transaction that only reads.
pub(super) fn check_writes(modes: Modes, statement: &Statement, verb: &Verb) -> SqlResult<()> {
    let command = match verb {
        _ if !modes.read_only => return Ok(()),
        _ if super::define::is_definition(statement) => super::define::command(statement),
        Verb::Insert => "INSERT".to_owned(),
        Verb::Update => "UPDATE".to_owned(),
        Verb::Delete => "DELETE".to_owned(),
        Verb::CopyIn => "COPY FROM".to_owned(),
        Verb::Select | Verb::CopyOut(_) | Verb::Declare(_) => return Ok(()),
    };
    Err(read_only_error(&command))
}

fn isolation(level: TransactionIsolationLevel) -> Isolation {
    match level {
        // As PostgreSQL does: what asks for less gets more.
        TransactionIsolationLevel::ReadUncommitted | TransactionIsolationLevel::ReadCommitted => {
            Isolation::ReadCommitted
        }
        TransactionIsolationLevel::RepeatableRead | TransactionIsolationLevel::Snapshot => {
            Isolation::RepeatableRead
        }
        TransactionIsolationLevel::Serializable => Isolation::Serializable,
    }
}

/// DEFERRABLE of BEGIN, as [`parse_transaction`](crate::parse_transaction) gives it.
fn deferrable_of(modifier: Option<TransactionModifier>) -> SqlResult<Option<bool>> {
    match modifier {
        None => Ok(None),
        Some(TransactionModifier::Deferred) => Ok(Some(true)),
        Some(TransactionModifier::Immediate) => Ok(Some(false)),
        Some(other) => Err(SqlError::unsupported(format!("BEGIN {other}"))),
    }
}

/// The same of SET TRANSACTION.
fn deferrable_in(snapshot: Option<&ValueWithSpan>) -> SqlResult<Option<bool>> {
    match snapshot.map(|own| &own.value) {
        None => Ok(None),
        Some(Value::Boolean(is_on)) => Ok(Some(*is_on)),
        Some(_) => Err(SqlError::unsupported("SET TRANSACTION SNAPSHOT")),
    }
}

impl Session {
    pub(super) async fn start(
        &mut self,
        modes: &[TransactionMode],
        modifier: Option<TransactionModifier>,
        client: &Arc<dyn Client>,
    ) -> SqlResult<&'static str> {
        let deferrable = deferrable_of(modifier)?;
        if self.state == TransactionState::Idle {
            self.begin(self.settings.modes.with(modes, deferrable))?;
            return Ok("BEGIN");
        }
        if !self.is_implicit {
            let message = "there is already a transaction in progress";
            self.tell(client, &Notice::warning(SqlState::ACTIVE_TRANSACTION, message));
        }
        // What was done since an implicit one began is part of it.
        self.set_modes(self.modes_now.with(modes, deferrable)).await?;
        self.is_implicit = false;
        Ok("BEGIN")
    }

    /// SET TRANSACTION, or SET SESSION CHARACTERISTICS AS TRANSACTION.
    pub(super) async fn set_transaction(
        &mut self,
        modes: &[TransactionMode],
        snapshot: Option<&ValueWithSpan>,
        of_session: bool,
        client: &Arc<dyn Client>,
    ) -> SqlResult<()> {
        let deferrable = deferrable_in(snapshot)?;
        if of_session {
            return self.change(false, |settings| {
                settings.modes = settings.modes.with(modes, deferrable);
                Ok(())
            });
        }
        if self.warn_outside("SET TRANSACTION", client) {
            return Ok(());
        }
        self.set_modes(self.modes_now.with(modes, deferrable)).await
    }

    /// Sets a parameter that says how the present transaction is to be: to the default of the
    /// session without a value. Whether it is such a parameter.
    pub(super) async fn set_mode(&mut self, name: &str, value: Option<&str>) -> SqlResult<bool> {
        let defaults = self.settings.modes;
        let Some(modes) = self.modes_now.with_parameter(name, value, defaults)? else {
            return Ok(false);
        };
        // Else it is over with this statement.
        if self.state != TransactionState::Idle {
            self.set_modes(modes).await?;
        }
        Ok(true)
    }

    /// As [`set_mode`](Self::set_mode), when a statement has run.
    pub(super) fn set_mode_late(&mut self, name: &str, value: Option<&str>) -> SqlResult<bool> {
        let (now, defaults) = (self.modes_now, self.settings.modes);
        let Some(modes) = now.with_parameter(name, value, defaults)? else { return Ok(false) };
        if self.state == TransactionState::Idle {
            return Ok(true);
        }
        if modes != now && modes != (Modes { read_only: true, ..now }) {
            return Err(self.too_late(modes));
        }
        self.modes_now = modes;
        Ok(true)
    }

    /// Gives the transaction that has begun other modes. No statement may have run in it, but for
    /// modes that it has already, and that it changes nothing from now on.
    async fn set_modes(&mut self, modes: Modes) -> SqlResult<()> {
        let has_run = self.has_run || !self.savepoints.is_empty();
        // Only that it changes nothing from now on is no matter of what it has done.
        let is_stricter = modes == Modes { read_only: true, ..self.modes_now };
        let is_same = modes == Modes { deferrable: modes.deferrable, ..self.modes_now };
        if modes == self.modes_now || has_run && is_stricter || !has_run && is_same {
            self.modes_now = modes;
            return Ok(());
        }
        if has_run {
            return Err(self.too_late(modes));
        }
        // It has done nothing: another takes its place, with what was set in it.
        let (began, before) = (self.transaction_start, self.before.take());
        let ended = self.txn.rollback().await;
        ended.map_err(|error| from_txn(error, None))?;
        self.begin(modes)?;
        self.set_transaction_start(began);
        self.before = before;
        Ok(())
    }

    /// The error of modes that come behind a statement.
    fn too_late(&self, modes: Modes) -> SqlError {
        let message = match modes.isolation == self.modes_now.isolation {
            false => "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            true if modes.read_only == self.modes_now.read_only => {
                "SET TRANSACTION [NOT] DEFERRABLE must be called before any query"
            }
            true => "transaction read-write mode must be set before any query",
        };
        SqlError::new(SqlState::ACTIVE_TRANSACTION, message)
    }

    /// COMMIT. What it says in the end.
    pub(super) async fn end_with_commit(
        &mut self,
        chain: bool,
        client: &Arc<dyn Client>,
    ) -> SqlResult<&'static str> {
        let modes = self.modes_now;
        self.check_end(chain.then_some("COMMIT AND CHAIN"), client)?;
        self.returned_to = Some(0);
        let tag = match self.state {
            TransactionState::Idle => "COMMIT",
            TransactionState::InTransaction => {
                self.commit().await?;
                "COMMIT"
            }
            TransactionState::Failed => {
                self.end_failed().await?;
                "ROLLBACK"
            }
        };
        if chain {
            self.begin(modes)?;
        }
        Ok(tag)
    }

    /// ROLLBACK. What it says in the end.
    pub(super) async fn end_with_rollback(
        &mut self,
        chain: bool,
        client: &Arc<dyn Client>,
    ) -> SqlResult<&'static str> {
        let modes = self.modes_now;
        self.check_end(chain.then_some("ROLLBACK AND CHAIN"), client)?;
        self.returned_to = Some(0);
        self.end_failed().await?;
        if chain {
            self.begin(modes)?;
        }
        Ok("ROLLBACK")
    }

    /// Warns of an end where no transaction was begun; that is an error of a chain.
    fn check_end(&self, chain: Option<&str>, client: &Arc<dyn Client>) -> SqlResult<()> {
        match chain {
            Some(what) => self.in_transaction(what),
            None => {
                if self.in_transaction("").is_err() {
                    let message = "there is no transaction in progress";
                    self.tell(client, &Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message));
                }
                Ok(())
            }
        }
    }

    /// An error unless a transaction was begun; several statements of a text have begun none.
    pub(super) fn in_transaction(&self, what: &str) -> SqlResult<()> {
        if self.state != TransactionState::Idle && !self.is_implicit {
            return Ok(());
        }
        let message = format!("{what} can only be used in transaction blocks");
        Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message))
    }

    /// Warns of what does nothing where the statement is alone in its transaction. Whether it is.
    pub(super) fn warn_outside(&self, what: &str, client: &Arc<dyn Client>) -> bool {
        let is_alone = self.state == TransactionState::Idle;
        if is_alone {
            let message = format!("{what} can only be used in transaction blocks");
            self.tell(client, &Notice::warning(SqlState::NO_ACTIVE_TRANSACTION, message));
        }
        is_alone
    }

    /// An error in a transaction, for what cannot be in one.
    pub(super) fn not_in_transaction(&self, what: &str) -> SqlResult<()> {
        if self.state == TransactionState::Idle {
            return Ok(());
        }
        let message = format!("{what} cannot run inside a transaction block");
        Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message))
    }

    /// How the transaction is, or the next is to be.
    pub(super) fn modes(&self) -> Modes {
        match self.state {
            TransactionState::Idle => self.settings.modes,
            _ => self.modes_now,
        }
    }

    /// How long the client may do nothing from now on, and the error with which its session ends
    /// then; `None` if that is for ever.
    #[must_use]
    pub fn idle_limit(&self) -> Option<(Duration, SqlError)> {
        let (limit, state, what) = match self.state {
            TransactionState::Idle => {
                let limit = self.settings.idle_session_timeout;
                (limit, SqlState::IDLE_SESSION_TIMEOUT, "idle-session")
            }
            _ => {
                let limit = self.settings.idle_timeout;
                (limit, SqlState::IDLE_IN_TRANSACTION_TIMEOUT, "idle-in-transaction")
            }
        };
        let message = format!("terminating connection due to {what} timeout");
        Some((limit?, SqlError::new(state, message)))
    }

    /// Tells a client of something that is no error, if the session wants that.
    pub(super) fn tell(&self, client: &Arc<dyn Client>, notice: &Notice) {
        if self.settings.wants(notice.level()) {
            client.notice(notice);
        }
    }
}
