//! Statements about transactions and settings.

use std::sync::Arc;

use selkie_txn::Isolation;
use sqlparser::ast::{
    self, CloseCursor, DiscardObject, Expr, Statement, TransactionAccessMode,
    TransactionIsolationLevel, TransactionMode, Value,
};

use super::{Session, TransactionState};
use crate::bind::{OutputColumn, fold};
use crate::client::Client;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::schemas::text_of_list;
use crate::types::{Datum, SqlType};

/// Whether a statement is about the transaction, and not in it.
pub(super) fn is_control(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::StartTransaction { .. } | Statement::Commit { .. } | Statement::Rollback { .. }
    )
}

/// Whether a statement is about tables, and not about the session.
pub(super) fn has_tables(statement: &Statement) -> bool {
    !is_control(statement)
        && !matches!(
            statement,
            Statement::Savepoint { .. }
                | Statement::ReleaseSavepoint { .. }
                | Statement::Set(_)
                | Statement::Close { .. }
                | Statement::Deallocate { .. }
                | Statement::Discard { .. }
                | Statement::UNLISTEN { .. }
                | Statement::Reset(_)
                | Statement::ShowVariable { .. }
                | Statement::Vacuum(_)
                | Statement::Analyze(_)
        )
}

/// Whether a statement may follow an error in a transaction.
pub(super) fn ends_failure(statement: &Statement) -> bool {
    matches!(statement, Statement::Commit { .. } | Statement::Rollback { .. })
}

impl Session {
    /// Does a statement about transactions or settings. What it says in the end.
    pub(super) async fn control(
        &mut self,
        statement: &Statement,
        client: &Arc<dyn Client>,
    ) -> SqlResult<String> {
        client.begin(&self.control_columns(statement)?.into(), &self.settings.format);
        let tag = match statement {
            Statement::StartTransaction { modes, statements, exception, modifier, .. } => {
                let is_odd = !statements.is_empty() || exception.is_some() || modifier.is_some();
                crate::bind::refuse(is_odd, "this form of BEGIN")?;
                self.start(modes).await?
            }
            Statement::Commit { chain, end: _, modifier } => {
                crate::bind::refuse(*chain || modifier.is_some(), "this form of COMMIT")?;
                match self.state {
                    TransactionState::Idle => "COMMIT",
                    TransactionState::InTransaction => {
                        self.commit().await?;
                        "COMMIT"
                    }
                    TransactionState::Failed => {
                        self.end_failed().await?;
                        "ROLLBACK"
                    }
                }
            }
            Statement::Rollback { chain, savepoint: None } => {
                crate::bind::refuse(*chain, "AND CHAIN")?;
                self.end_failed().await?;
                "ROLLBACK"
            }
            Statement::Rollback { savepoint: Some(name), .. } => {
                self.rollback_to(&fold(name)).await?
            }
            Statement::Savepoint { name } => self.savepoint(fold(name)).await?,
            Statement::ReleaseSavepoint { name } => self.release(&fold(name)).await?,
            Statement::Set(ast::Set::SingleAssignment { hivevar: true, values, .. }) => {
                self.set_constraints(values).await?
            }
            Statement::Set(ast::Set::SetRole { context_modifier, role_name }) => {
                self.set_role_to(context_modifier.as_ref(), role_name.as_ref()).await?
            }
            Statement::Set(ast::Set::SetTransaction { modes, snapshot, session: false }) => {
                crate::bind::refuse(snapshot.is_some(), "SET TRANSACTION SNAPSHOT")?;
                self.in_transaction("SET TRANSACTION")?;
                self.set_modes(modes).await?;
                "SET"
            }
            Statement::Set(set) => self.set(set)?,
            Statement::Reset(reset) => self.reset(&reset.reset).await?,
            Statement::Deallocate { name, prepare: _ } => deallocate(name, client)?,
            Statement::Discard { object_type } => self.discard(object_type, client).await?,
            Statement::Close { cursor: CloseCursor::All } => "CLOSE CURSOR ALL",
            Statement::Close { cursor: CloseCursor::Specific { name } } => {
                return Err(no_cursor(&fold(name)));
            }
            // Nothing can be listened to.
            Statement::UNLISTEN { .. } => "UNLISTEN",
            Statement::ShowVariable { variable } => {
                let name: Vec<String> = variable.iter().map(fold).collect();
                let value = self.shown(&name.join(" "))?;
                client.rows(vec![vec![Datum::text(value)]]).await?;
                "SHOW"
            }
            // Space is given back as rows are deleted.
            Statement::Vacuum(_) => "VACUUM",
            Statement::Analyze(analyze) => self.analyze(analyze).await?,
            other => return Err(SqlError::unsupported(other)),
        };
        Ok(tag.to_owned())
    }

    async fn start(&mut self, modes: &[TransactionMode]) -> SqlResult<&'static str> {
        if self.is_implicit {
            // What was done since then is part of it.
            self.set_modes(modes).await?;
            self.is_implicit = false;
        } else if self.state == TransactionState::Idle {
            let default = (self.settings.isolation, self.settings.read_only);
            let (isolation, read_only) = with_modes(default, modes)?;
            self.begin(isolation, read_only)?;
        } else {
            let message = "there is already a transaction in progress";
            return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
        }
        Ok("BEGIN")
    }

    async fn set_role_to(
        &mut self,
        scope: Option<&ast::ContextModifier>,
        name: Option<&ast::Ident>,
    ) -> SqlResult<&'static str> {
        let is_local = matches!(scope, Some(ast::ContextModifier::Local));
        self.set_role(name.map(fold), is_local).await?;
        Ok("SET")
    }

    async fn reset(&mut self, what: &ast::Reset) -> SqlResult<&'static str> {
        match what {
            ast::Reset::ConfigurationParameter(name)
                if name.to_string().eq_ignore_ascii_case("role") =>
            {
                self.set_role(None, false).await?;
                Ok("RESET")
            }
            ast::Reset::ConfigurationParameter(name) => {
                self.reset_parameter(&crate::bind::name_parts(name)?.join("."), false)?;
                Ok("RESET")
            }
            ast::Reset::ALL => {
                self.reset_all()?;
                Ok("RESET")
            }
            ast::Reset::SessionAuthorization => {
                Err(SqlError::unsupported("RESET SESSION AUTHORIZATION"))
            }
        }
    }

    /// Forgets what earlier statements of the session have left.
    async fn discard(
        &mut self,
        what: &DiscardObject,
        client: &Arc<dyn Client>,
    ) -> SqlResult<&'static str> {
        Ok(match what {
            DiscardObject::ALL => {
                if self.state != TransactionState::Idle {
                    let message = "DISCARD ALL cannot run inside a transaction block";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
                }
                client.deallocate(None)?;
                self.set_role(None, false).await?;
                self.reset_all()?;
                self.sequences = Arc::default();
                "DISCARD ALL"
            }
            DiscardObject::SEQUENCES => {
                self.sequences = Arc::default();
                "DISCARD SEQUENCES"
            }
            // Plans are right for the state that a statement sees; nothing is temporary.
            DiscardObject::PLANS => "DISCARD PLANS",
            DiscardObject::TEMP => "DISCARD TEMP",
        })
    }

    /// Gives the transaction that has begun other modes. No statement may have run in it, but for
    /// modes that it has already.
    async fn set_modes(&mut self, modes: &[TransactionMode]) -> SqlResult<()> {
        let (isolation, read_only) = with_modes(self.modes_now, modes)?;
        if (isolation, read_only) == self.modes_now {
            return Ok(());
        }
        if self.has_run || !self.savepoints.is_empty() {
            let message = match (isolation != self.modes_now.0, read_only) {
                (true, _) => "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                (false, true) => "transaction read-only mode must be set before any query",
                (false, false) => "transaction read-write mode must be set before any query",
            };
            return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
        }
        // It has done nothing: another takes its place, with what was set in it.
        let (began, before) = (self.transaction_start, self.before.take());
        let ended = self.txn.rollback().await;
        ended.map_err(|error| from_txn(error, None))?;
        self.begin(isolation, read_only)?;
        (self.transaction_start, self.before) = (began, before);
        Ok(())
    }

    fn in_transaction(&self, what: &str) -> SqlResult<()> {
        if self.state != TransactionState::Idle {
            return Ok(());
        }
        let message = format!("{what} can only be used in transaction blocks");
        Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message))
    }

    async fn savepoint(&mut self, name: String) -> SqlResult<&'static str> {
        self.in_transaction("SAVEPOINT")?;
        let made = self.txn.run(|txn| Box::pin(async move { txn.savepoint() })).await;
        let made = made.map_err(|error| from_txn(error, None))?;
        let mark = self.deferred.lock().mark();
        self.savepoints_set += 1;
        self.savepoints.push((name, made, mark, self.savepoints_set));
        Ok("SAVEPOINT")
    }

    fn find_savepoint(&self, name: &str) -> SqlResult<usize> {
        self.savepoints.iter().rposition(|(own, ..)| own == name).ok_or_else(|| {
            let message = format!("savepoint \"{name}\" does not exist");
            SqlError::new(SqlState::INVALID_SAVEPOINT, message)
        })
    }

    async fn rollback_to(&mut self, name: &str) -> SqlResult<&'static str> {
        self.in_transaction("ROLLBACK TO SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        let Some((_, savepoint, mark, number)) = self.savepoints.get(at).cloned() else {
            return Err(SqlError::internal("a savepoint is gone"));
        };
        let gone =
            self.txn.run(move |txn| Box::pin(async move { txn.rollback_to(savepoint) })).await;
        gone.map_err(|error| from_txn(error, None))?;
        self.deferred.lock().return_to(&mark);
        self.savepoints.truncate(at + 1);
        self.returned_to = Some(self.returned_to.map_or(number, |own| own.min(number)));
        self.state = TransactionState::InTransaction;
        Ok("ROLLBACK")
    }

    async fn release(&mut self, name: &str) -> SqlResult<&'static str> {
        self.in_transaction("RELEASE SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        let Some((_, savepoint, ..)) = self.savepoints.get(at) else {
            return Err(SqlError::internal("a savepoint is gone"));
        };
        let savepoint = *savepoint;
        let gone = self.txn.run(move |txn| Box::pin(async move { txn.release(savepoint) })).await;
        gone.map_err(|error| from_txn(error, None))?;
        self.savepoints.truncate(at);
        Ok("RELEASE")
    }

    fn set(&mut self, set: &ast::Set) -> SqlResult<&'static str> {
        match set {
            ast::Set::SingleAssignment { scope, hivevar, variable, values } => {
                crate::bind::refuse(*hivevar, "HIVEVAR")?;
                let is_local = matches!(scope, Some(ast::ContextModifier::Local));
                let name = crate::bind::name_parts(variable)?.join(".");
                if let [value] = &**values
                    && is_default(value)
                {
                    self.reset_parameter(&name, is_local)?;
                    return Ok("SET");
                }
                let text: Vec<String> =
                    values.iter().map(setting_text).collect::<SqlResult<_>>()?;
                // Each value is a name, whatever is in it.
                let text = match name.eq_ignore_ascii_case("search_path") {
                    true => vec![text_of_list(&text)],
                    false => text,
                };
                self.set_values(&name, &text, is_local)?;
            }
            ast::Set::SetTimeZone { local, value } if is_default(value) => {
                self.reset_parameter("timezone", *local)?;
            }
            ast::Set::SetTimeZone { local, value } => {
                self.set_values("timezone", &[setting_text(value)?], *local)?;
            }
            ast::Set::SetTransaction { modes, snapshot, session } => {
                let is_odd = snapshot.is_some() || !session;
                crate::bind::refuse(is_odd, "this form of SET SESSION CHARACTERISTICS")?;
                let default = (self.settings.isolation, self.settings.read_only);
                let (isolation, read_only) = with_modes(default, modes)?;
                self.change(false, |settings| {
                    (settings.isolation, settings.read_only) = (isolation, read_only);
                    Ok(())
                })?;
            }
            ast::Set::SetNames { charset_name, collation_name } => {
                crate::bind::refuse(collation_name.is_some(), "SET NAMES with COLLATE")?;
                self.set_values(
                    "client_encoding",
                    std::slice::from_ref(&charset_name.value),
                    false,
                )?;
            }
            other => return Err(SqlError::unsupported(other)),
        }
        Ok("SET")
    }

    /// The columns of a statement about the session.
    pub(super) fn control_columns(&self, statement: &Statement) -> SqlResult<Vec<OutputColumn>> {
        let Statement::ShowVariable { variable } = statement else { return Ok(Vec::new()) };
        let name: Vec<String> = variable.iter().map(fold).collect();
        let name = name.join(" ");
        self.shown(&name)?;
        Ok(vec![OutputColumn { name, ty: SqlType::TEXT }])
    }
}

/// The word DEFAULT.
fn is_default(value: &Expr) -> bool {
    let Expr::Identifier(value) = value else { return false };
    value.quote_style.is_none() && value.value.eq_ignore_ascii_case("default")
}

fn deallocate(name: &ast::Ident, client: &Arc<dyn Client>) -> SqlResult<&'static str> {
    if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
        client.deallocate(None)?;
        return Ok("DEALLOCATE ALL");
    }
    client.deallocate(Some(&fold(name)))?;
    Ok("DEALLOCATE")
}

fn no_cursor(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR, format!("cursor \"{name}\" does not exist"))
}

/// Isolation, and whether a transaction only reads: as they were, but for those that are given.
fn with_modes(
    (mut isolation, mut read_only): (Isolation, bool),
    modes: &[TransactionMode],
) -> SqlResult<(Isolation, bool)> {
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(mode) => {
                read_only = *mode == TransactionAccessMode::ReadOnly;
            }
            TransactionMode::IsolationLevel(level) => isolation = isolation_of(*level)?,
        }
    }
    Ok((isolation, read_only))
}

fn isolation_of(level: TransactionIsolationLevel) -> SqlResult<Isolation> {
    Ok(match level {
        // As PostgreSQL does: what asks for less gets more.
        TransactionIsolationLevel::ReadUncommitted | TransactionIsolationLevel::ReadCommitted => {
            Isolation::ReadCommitted
        }
        TransactionIsolationLevel::RepeatableRead | TransactionIsolationLevel::Snapshot => {
            Isolation::RepeatableRead
        }
        TransactionIsolationLevel::Serializable => Isolation::Serializable,
    })
}

fn setting_text(value: &Expr) -> SqlResult<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::Number(text, _) => Ok(text.clone()),
            Value::Boolean(value) => Ok(value.to_string()),
            other => Err(SqlError::unsupported(format!("the setting {other}"))),
        },
        Expr::Identifier(name) => Ok(fold(name)),
        Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => {
            Ok(format!("-{}", setting_text(expr)?))
        }
        other => Err(SqlError::unsupported(format!("the setting {other}"))),
    }
}
