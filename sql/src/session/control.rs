//! Statements about transactions and settings.

use std::sync::Arc;
use std::time::Duration;

use selkie_txn::Isolation;
use sqlparser::ast::{
    self, Expr, Statement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode, Value,
};

use super::{Outcome, Session, Settings, TransactionState};
use crate::bind::{OutputColumn, fold};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
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
                | Statement::ShowVariable { .. }
                | Statement::Vacuum(_)
        )
}

/// Whether a statement may follow an error in a transaction.
pub(super) fn ends_failure(statement: &Statement) -> bool {
    matches!(statement, Statement::Commit { .. } | Statement::Rollback { .. })
}

impl Session {
    /// Does a statement about transactions or settings; `None` if it is none.
    pub(super) async fn control(&mut self, statement: &Statement) -> SqlResult<Option<Outcome>> {
        Ok(Some(match statement {
            Statement::StartTransaction { modes, statements, exception, modifier, .. } => {
                let is_odd = !statements.is_empty() || exception.is_some() || modifier.is_some();
                crate::bind::refuse(is_odd, "this form of BEGIN")?;
                if self.state != TransactionState::Idle {
                    let message = "there is already a transaction in progress";
                    return Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message));
                }
                let (isolation, read_only) = self.modes(modes)?;
                self.begin(isolation, read_only)?;
                Outcome::done("BEGIN")
            }
            Statement::Commit { chain, end: _, modifier } => {
                crate::bind::refuse(*chain || modifier.is_some(), "this form of COMMIT")?;
                match self.state {
                    TransactionState::Idle => Outcome::done("COMMIT"),
                    TransactionState::InTransaction => {
                        self.commit().await?;
                        Outcome::done("COMMIT")
                    }
                    TransactionState::Failed => {
                        self.end_failed().await?;
                        Outcome::done("ROLLBACK")
                    }
                }
            }
            Statement::Rollback { chain, savepoint: None } => {
                crate::bind::refuse(*chain, "AND CHAIN")?;
                self.end_failed().await?;
                Outcome::done("ROLLBACK")
            }
            Statement::Rollback { savepoint: Some(name), .. } => {
                self.rollback_to(&fold(name)).await?
            }
            Statement::Savepoint { name } => self.savepoint(fold(name)).await?,
            Statement::ReleaseSavepoint { name } => self.release(&fold(name)).await?,
            Statement::Set(set) => self.set(set)?,
            Statement::ShowVariable { variable } => {
                let name: Vec<String> = variable.iter().map(fold).collect();
                self.show(&name.join("."))?
            }
            Statement::Vacuum(_) => Outcome::done("VACUUM"),
            _ => return Ok(None),
        }))
    }

    fn modes(&self, modes: &[TransactionMode]) -> SqlResult<(Isolation, bool)> {
        let (mut isolation, mut read_only) = (self.settings.isolation, self.settings.read_only);
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

    fn in_transaction(&self, what: &str) -> SqlResult<()> {
        if self.state != TransactionState::Idle {
            return Ok(());
        }
        let message = format!("{what} can only be used in transaction blocks");
        Err(SqlError::new(SqlState::NO_ACTIVE_TRANSACTION, message))
    }

    async fn savepoint(&mut self, name: String) -> SqlResult<Outcome> {
        self.in_transaction("SAVEPOINT")?;
        let made = self.txn.run(|txn| Box::pin(async move { txn.savepoint() })).await;
        let made = made.map_err(|error| from_txn(error, None))?;
        self.savepoints.push((name, made));
        Ok(Outcome::done("SAVEPOINT"))
    }

    fn find_savepoint(&self, name: &str) -> SqlResult<usize> {
        self.savepoints.iter().rposition(|(own, _)| own == name).ok_or_else(|| {
            let message = format!("savepoint \"{name}\" does not exist");
            SqlError::new(SqlState::INVALID_SAVEPOINT, message)
        })
    }

    async fn rollback_to(&mut self, name: &str) -> SqlResult<Outcome> {
        self.in_transaction("ROLLBACK TO SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        let Some((_, savepoint)) = self.savepoints.get(at) else {
            return Err(SqlError::internal("a savepoint is gone"));
        };
        let savepoint = *savepoint;
        let gone =
            self.txn.run(move |txn| Box::pin(async move { txn.rollback_to(savepoint) })).await;
        gone.map_err(|error| from_txn(error, None))?;
        self.savepoints.truncate(at + 1);
        self.state = TransactionState::InTransaction;
        Ok(Outcome::done("ROLLBACK"))
    }

    async fn release(&mut self, name: &str) -> SqlResult<Outcome> {
        self.in_transaction("RELEASE SAVEPOINT")?;
        let at = self.find_savepoint(name)?;
        let Some((_, savepoint)) = self.savepoints.get(at) else {
            return Err(SqlError::internal("a savepoint is gone"));
        };
        let savepoint = *savepoint;
        let gone = self.txn.run(move |txn| Box::pin(async move { txn.release(savepoint) })).await;
        gone.map_err(|error| from_txn(error, None))?;
        self.savepoints.truncate(at);
        Ok(Outcome::done("RELEASE"))
    }

    fn set(&mut self, set: &ast::Set) -> SqlResult<Outcome> {
        match set {
            ast::Set::SingleAssignment { scope, hivevar, variable, values } => {
                let is_local = matches!(scope, Some(ast::ContextModifier::Local));
                crate::bind::refuse(is_local || *hivevar, "SET LOCAL")?;
                let name = crate::bind::name_parts(variable)?.join(".");
                let text: Vec<String> =
                    values.iter().map(setting_text).collect::<SqlResult<_>>()?;
                let mut settings = Settings::clone(&self.settings);
                settings.set(&name, &text)?;
                self.settings = Arc::new(settings);
            }
            ast::Set::SetTransaction { modes, snapshot, session } => {
                crate::bind::refuse(snapshot.is_some(), "SET TRANSACTION SNAPSHOT")?;
                crate::bind::refuse(!session, "SET TRANSACTION behind BEGIN")?;
                let (isolation, read_only) = self.modes(modes)?;
                let mut settings = Settings::clone(&self.settings);
                (settings.isolation, settings.read_only) = (isolation, read_only);
                self.settings = Arc::new(settings);
            }
            ast::Set::SetNames { .. } => {}
            other => return Err(SqlError::unsupported(other)),
        }
        Ok(Outcome::done("SET"))
    }

    /// The columns of a statement about the session.
    pub(super) fn control_columns(&self, statement: &Statement) -> SqlResult<Vec<OutputColumn>> {
        let Statement::ShowVariable { variable } = statement else { return Ok(Vec::new()) };
        let name: Vec<String> = variable.iter().map(fold).collect();
        Ok(self.show(&name.join("."))?.columns)
    }

    fn show(&self, name: &str) -> SqlResult<Outcome> {
        let value = self.settings.get(name)?;
        let columns = vec![OutputColumn { name: name.to_owned(), ty: SqlType::TEXT }];
        Ok(Outcome { columns, rows: vec![vec![Datum::text(value)]], tag: "SHOW".to_owned() })
    }
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

impl Settings {
    fn set(&mut self, name: &str, values: &[String]) -> SqlResult<()> {
        let value = values.join(", ");
        let invalid = |allowed: &str| {
            let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
            SqlError::new(SqlState::INVALID_PARAMETER, message)
                .hint(format!("Available values: {allowed}."))
        };
        match name {
            "statement_timeout" => {
                self.statement_timeout = timeout(&value).ok_or_else(|| invalid(TIMES))?;
            }
            "lock_timeout" => self.lock_timeout = timeout(&value).ok_or_else(|| invalid(TIMES))?,
            "idle_in_transaction_session_timeout" => {
                self.idle_timeout = timeout(&value).ok_or_else(|| invalid(TIMES))?;
            }
            "application_name" => self.application_name = value,
            "search_path" => {
                let is_known = |name: &String| {
                    matches!(&**name, "public" | "pg_catalog" | "$user" | "\"$user\"" | "")
                };
                crate::bind::refuse(!values.iter().all(is_known), "a schema other than public")?;
                self.search_path = values.to_vec();
            }
            "default_transaction_isolation" | "transaction_isolation" => {
                self.isolation = match &*value.to_lowercase() {
                    "read committed" | "read uncommitted" => Isolation::ReadCommitted,
                    "repeatable read" => Isolation::RepeatableRead,
                    "serializable" => Isolation::Serializable,
                    _ => {
                        return Err(invalid("serializable, repeatable read, read committed"));
                    }
                };
            }
            "default_transaction_read_only" => {
                self.read_only = match &*value.to_lowercase() {
                    "on" | "true" | "yes" | "1" => true,
                    "off" | "false" | "no" | "0" => false,
                    _ => return Err(invalid("on, off")),
                };
            }
            "client_encoding" => {
                let is_utf8 = matches!(&*value.to_lowercase(), "utf8" | "utf-8" | "unicode");
                crate::bind::refuse(!is_utf8, "an encoding other than UTF8")?;
            }
            "extra_float_digits" => {
                let digits = value.parse().ok().filter(|digits| (-15..=3).contains(digits));
                self.format.extra_float_digits = digits.ok_or_else(|| invalid("-15 to 3"))?;
            }
            "standard_conforming_strings" => {
                crate::bind::refuse(value != "on", "a backslash as an escape in every literal")?;
            }
            _ => {
                let message = format!("unrecognized configuration parameter \"{name}\"");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
        }
        Ok(())
    }

    fn get(&self, name: &str) -> SqlResult<String> {
        let time = |limit: Option<Duration>| match limit {
            None => "0".to_owned(),
            Some(limit) => format!("{}ms", limit.as_millis()),
        };
        Ok(match name {
            "statement_timeout" => time(self.statement_timeout),
            "lock_timeout" => time(self.lock_timeout),
            "idle_in_transaction_session_timeout" => time(self.idle_timeout),
            "application_name" => self.application_name.clone(),
            "search_path" => self.search_path.join(", "),
            "transaction_isolation" | "default_transaction_isolation" => match self.isolation {
                Isolation::Serializable => "serializable",
                Isolation::RepeatableRead => "repeatable read",
                Isolation::ReadCommitted => "read committed",
            }
            .to_owned(),
            "default_transaction_read_only" => if self.read_only { "on" } else { "off" }.to_owned(),
            "client_encoding" | "server_encoding" => "UTF8".to_owned(),
            "server_version" => "15.0".to_owned(),
            "standard_conforming_strings" => "on".to_owned(),
            "timezone" => "UTC".to_owned(),
            _ => {
                let message = format!("unrecognized configuration parameter \"{name}\"");
                return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
            }
        })
    }
}

const TIMES: &str = "0 for none, milliseconds, or a number with ms, s or min";

/// A limit of time; 0 is none.
fn timeout(text: &str) -> Option<Option<Duration>> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let millis = match unit.trim() {
        "" | "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "min" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        _ => return None,
    };
    Some((millis > 0).then(|| Duration::from_millis(millis)))
}
