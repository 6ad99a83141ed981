//! Sessions: a client's statements, one after the other.

mod control;
mod define;
mod prepared;
mod run;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use selkie_txn::{Database, Isolation, NewIndex, Savepoint, SessionLimits, TxnError};
use sqlparser::ast::Statement;

use crate::bind::OutputColumn;
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{Row, from_txn};
use crate::parse::parse;
use crate::types::{Datum, FormatSettings, SqlType};

pub use prepared::Prepared;

/// What a statement gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The columns of its rows; none if it gives no rows.
    pub columns: Vec<OutputColumn>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What was done, as PostgreSQL says it: `INSERT 0 1`.
    pub tag: String,
}

impl Outcome {
    fn done(tag: impl Into<String>) -> Self {
        Self { columns: Vec::new(), rows: Vec::new(), tag: tag.into() }
    }
}

/// How a statement has run.
enum Ran {
    Done(Outcome),
    /// An index is to be built, in transactions of its own.
    BuildIndex {
        table: Arc<TableDef>,
        index: NewIndex,
    },
}

/// Whether a transaction is in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    /// None is.
    Idle,
    /// One is.
    InTransaction,
    /// One is that has failed, and takes nothing but its end.
    Failed,
}

/// What a session is set to.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) format: FormatSettings,
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    pub(crate) statement_timeout: Option<Duration>,
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) search_path: Vec<String>,
    pub(crate) application_name: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: FormatSettings::default(),
            isolation: Isolation::ReadCommitted,
            read_only: false,
            statement_timeout: None,
            lock_timeout: None,
            idle_timeout: None,
            search_path: vec![crate::bind::PUBLIC.to_owned()],
            application_name: String::new(),
        }
    }
}

/// A statement with all that is given for it.
#[derive(Clone)]
pub(crate) struct Work {
    statement: Arc<Statement>,
    /// The text that it is in.
    sql: Arc<str>,
    parameters: Arc<[Datum]>,
    /// Types of parameters, as far as they are known.
    types: Arc<[Option<SqlType>]>,
}

impl Work {
    fn of(statement: Statement, sql: &Arc<str>) -> Self {
        let (statement, sql) = (Arc::new(statement), Arc::clone(sql));
        Self { statement, sql, parameters: Arc::default(), types: Arc::default() }
    }
}

/// What tells the time: microseconds since 2000-01-01 00:00 UTC.
pub type Clock = fn() -> i64;

/// A client's statements, one after the other. It owns all it needs.
///
/// A statement outside of a transaction is one of its own, and is run again when others have made
/// it fail. One that fails within a transaction leaves that failed: it takes nothing but its end,
/// or the return to a savepoint.
pub struct Session {
    txn: selkie_txn::Session,
    state: TransactionState,
    settings: Arc<Settings>,
    /// Names of savepoints, the innermost last.
    savepoints: Vec<(String, Savepoint)>,
    /// When the transaction began, in microseconds since 2000-01-01.
    transaction_start: i64,
    clock: Clock,
    user: String,
}

impl Session {
    /// A session of a user in a database whose tables may change. `clock` tells it the time.
    ///
    /// # Errors
    /// If it is a database of another protocol than [`selkie_txn::Protocol::Snapshot`].
    pub fn new(database: &Database, user: impl Into<String>, clock: Clock) -> SqlResult<Self> {
        let txn = database.session().map_err(|error| from_txn(error, None))?;
        Ok(Self {
            txn,
            state: TransactionState::Idle,
            settings: Arc::default(),
            savepoints: Vec::new(),
            transaction_start: 0,
            clock,
            user: user.into(),
        })
    }

    /// Whether a transaction is in progress.
    #[must_use]
    pub fn state(&self) -> TransactionState {
        self.state
    }

    /// How values are written as text.
    #[must_use]
    pub fn format(&self) -> &FormatSettings {
        &self.settings.format
    }

    /// Runs the statements of a text, one after the other, up to the first that fails. If there
    /// are several, those outside of a transaction are one transaction.
    ///
    /// # Errors
    /// Those of the statement that fails; what those before it have done in a transaction of their
    /// own is rolled back.
    pub async fn execute(&mut self, sql: &str) -> SqlResult<Vec<Outcome>> {
        let statements = parse(sql)?;
        let mut outcomes = Vec::with_capacity(statements.len());
        let is_one = statements.len() == 1;
        let sql: Arc<str> = sql.into();
        let mut is_implicit = false;
        for statement in statements {
            let is_control = control::is_control(&statement);
            if !is_one && !is_control && self.state == TransactionState::Idle {
                self.begin(self.settings.isolation, self.settings.read_only)?;
                is_implicit = true;
            }
            let work = Work::of(statement, &sql);
            let ran = self.statement(&work).await;
            match ran {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    if is_implicit {
                        self.end_failed().await?;
                    }
                    return Err(error);
                }
            }
            if is_control {
                is_implicit = false;
            }
        }
        if is_implicit && self.state != TransactionState::Idle {
            self.commit().await?;
        }
        Ok(outcomes)
    }

    /// Runs one statement with values for its parameters `$1`, `$2` and so on.
    ///
    /// # Errors
    /// As [`execute`](Self::execute); 42601 if the text is not one statement.
    pub async fn query(&mut self, sql: &str, parameters: Vec<Datum>) -> SqlResult<Outcome> {
        let mut statements = parse(sql)?;
        let (Some(statement), true) = (statements.pop(), statements.is_empty()) else {
            let message = "the text has to be one statement";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        let work = Work { parameters: parameters.into(), ..Work::of(statement, &sql.into()) };
        self.statement(&work).await
    }

    /// Runs a statement, in the transaction or in one of its own.
    async fn statement(&mut self, work: &Work) -> SqlResult<Outcome> {
        self.check_not_failed(&work.statement)?;
        if let Some(outcome) = self.control(&work.statement).await? {
            return Ok(outcome);
        }
        let ran = match self.state {
            TransactionState::Idle => self.alone(work).await,
            _ => self.within(work).await,
        };
        if ran.is_err() && self.state == TransactionState::InTransaction {
            self.state = TransactionState::Failed;
        }
        ran
    }

    /// A transaction that has failed takes nothing but its end.
    fn check_not_failed(&self, statement: &Statement) -> SqlResult<()> {
        if self.state == TransactionState::Failed && !control::ends_failure(statement) {
            let message =
                "current transaction is aborted, commands ignored until end of transaction block";
            return Err(SqlError::new(SqlState::IN_FAILED_TRANSACTION, message));
        }
        Ok(())
    }

    fn begin(&mut self, isolation: Isolation, read_only: bool) -> SqlResult<()> {
        let limits = SessionLimits {
            operation: self.settings.statement_timeout,
            transaction: None,
            idle: self.settings.idle_timeout,
            lock: self.settings.lock_timeout,
        };
        self.txn.set_limits(limits);
        let begun = if read_only { self.txn.begin_to_read() } else { self.txn.begin(isolation) };
        begun.map_err(|error| from_txn(error, None))?;
        self.transaction_start = (self.clock)();
        self.state = TransactionState::InTransaction;
        Ok(())
    }

    async fn commit(&mut self) -> SqlResult<()> {
        self.state = TransactionState::Idle;
        self.savepoints.clear();
        self.txn.commit().await.map_err(|error| from_txn(error, None))
    }

    /// Rolls back what has failed.
    async fn end_failed(&mut self) -> SqlResult<()> {
        self.state = TransactionState::Idle;
        self.savepoints.clear();
        match self.txn.rollback().await {
            Ok(()) | Err(TxnError::NoTransaction) => Ok(()),
            Err(error) => Err(from_txn(error, None)),
        }
    }
}
