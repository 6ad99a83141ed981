//! Sessions: a client's statements, one after the other.

mod abandon;
mod activity;
mod analyze;
mod build_index;
mod cancel;
mod constraints;
mod control;
mod copy_out;
mod cursor;
mod define;
mod execute;
mod explain;
mod kept;
mod memory;
mod motion;
mod parameters;
mod parsed;
mod path;
mod planning;
mod prepared;
mod role;
mod run;
mod savepoint;
mod settings;
mod show;
mod tables;
mod transaction;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_txn::{Database, Isolation, SessionLimits, TxnError};
use sqlparser::ast::Statement;

use self::kept::Kept;
use self::parsed::{ParsedStatement, Planned};
use self::path::PathMemory;
use self::savepoint::SetSavepoint;
use self::settings::Settings;
use self::transaction::Modes;
use crate::client::{Client, Collected, Outcome};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{DeferredReferences, SequenceMemory, SessionLocks, TempFiles, from_txn};
use crate::functions::ToSet;
use crate::memory_budget::MemoryBudget;
use crate::roles::{ProvenRole, Standing};
use crate::session_list::{Listed, SessionList};
use crate::types::{Datum, FormatSettings, SqlType};

use build_index::NewIndexBuild;
pub use cancel::CancelHandle;
pub use parsed::PlanCache;
pub use prepared::Prepared;

/// How a statement has run.
enum Ran {
    /// As its tag says.
    Done(String),
    /// An index is to be built, in transactions of its own.
    BuildIndex(NewIndexBuild),
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

/// A statement with all that is given for it.
#[derive(Clone)]
pub(crate) struct Work {
    parsed: Arc<ParsedStatement>,
    parameters: Arc<[Datum]>,
    /// Types of parameters, as far as they are known.
    types: Arc<[Option<SqlType>]>,
    /// The plan whose parameters and columns its client was told of.
    told: Option<Arc<Planned>>,
}

impl Work {
    fn of(parsed: &Arc<ParsedStatement>) -> Self {
        let parsed = Arc::clone(parsed);
        Self { parsed, parameters: Arc::default(), types: Arc::default(), told: None }
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
    /// As they were when the session began.
    initial: Arc<Settings>,
    /// As they were when the transaction began.
    before: Option<Arc<Settings>>,
    /// As they are to be when it has committed, if that is something else.
    lasting: Option<Arc<Settings>>,
    /// How often parameters were set.
    changes: u64,
    /// How the transaction is.
    modes_now: Modes,
    /// Whether the transaction is one of several statements without BEGIN.
    is_implicit: bool,
    /// Whether a statement has run in the transaction: it keeps its isolation then.
    has_run: bool,
    /// The innermost last.
    savepoints: Vec<SetSavepoint>,
    /// How many savepoints were ever set.
    savepoints_set: u64,
    /// The least number of those that were returned to, until it is asked for.
    returned_to: Option<u64>,
    /// What constraints have put off to the commit.
    deferred: Arc<Mutex<DeferredReferences>>,
    /// When the transaction began, in microseconds since 2000-01-01.
    transaction_start: i64,
    clock: Clock,
    user: Arc<str>,
    standing: Standing,
    plans: Arc<PlanCache>,
    sequences: Arc<SequenceMemory>,
    path: Arc<PathMemory>,
    /// What a statement that runs has set by calls.
    to_set: Arc<ToSet>,
    /// Prepared statements and cursors.
    kept: Arc<Kept>,
    locks: Arc<SessionLocks>,
    cancel: CancelHandle,
    /// Gives what waits for the thread to another.
    hand_over: Option<fn()>,
    /// What statements draw their memory from.
    memory: Arc<MemoryBudget>,
    /// Their temporary files.
    files: Arc<TempFiles>,
    listed: Listed,
}

impl Session {
    /// A session of a user in a database whose tables may change. `clock` tells it the time. No
    /// role is asked for: it may do everything.
    ///
    /// # Errors
    /// If it is a database of another protocol than [`selkie_txn::Protocol::Snapshot`].
    pub fn new(database: &Database, user: impl Into<Arc<str>>, clock: Clock) -> SqlResult<Self> {
        let txn = database.session().map_err(|error| from_txn(error, None))?;
        let (user, cancel) = (user.into(), CancelHandle::default());
        let list = Arc::new(SessionList::default());
        let activity = activity::idle(1, &user, None, clock(), &cancel);
        let settings: Arc<Settings> = Arc::default();
        Ok(Self {
            listed: Listed::enter(&list, activity),
            txn,
            state: TransactionState::Idle,
            settings: Arc::clone(&settings),
            initial: settings,
            before: None,
            lasting: None,
            changes: 0,
            modes_now: Modes::default(),
            is_implicit: false,
            has_run: false,
            savepoints: Vec::new(),
            savepoints_set: 0,
            returned_to: None,
            deferred: Arc::default(),
            transaction_start: 0,
            clock,
            user,
            standing: Standing::Trusted,
            plans: Arc::default(),
            sequences: Arc::default(),
            path: Arc::default(),
            to_set: Arc::default(),
            kept: Arc::default(),
            locks: Arc::default(),
            cancel,
            hand_over: None,
            memory: Arc::default(),
            files: Arc::default(),
        })
    }

    /// A session of a role, which may do what that may ([`log_in`](crate::log_in)).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_role(database: &Database, role: &ProvenRole, clock: Clock) -> SqlResult<Self> {
        let standing = role.standing();
        let settings = Settings { is_superuser: role.is_superuser(), ..Settings::default() };
        let settings = Arc::new(settings);
        let initial = Arc::clone(&settings);
        Ok(Self { standing, settings, initial, ..Self::new(database, role.user(), clock)? })
    }

    /// The session, with parsed statements and plans that it shares with others of its database.
    #[must_use]
    pub fn with_plans(self, plans: &Arc<PlanCache>) -> Self {
        Self { plans: Arc::clone(plans), ..self }
    }

    /// What ends a statement of this session from outside.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Whether a transaction is in progress.
    #[must_use]
    pub fn state(&self) -> TransactionState {
        self.state
    }

    /// How many savepoints were ever set: the number of the last. What is made now is undone by a
    /// return to that or to one before it, unless its transaction is over.
    #[must_use]
    pub fn savepoints_set(&self) -> u64 {
        self.savepoints_set
    }

    /// The least number of savepoints that were returned to since this was asked last; 0 if a
    /// transaction has ended, be another begun by its end.
    pub fn take_returned_to(&mut self) -> Option<u64> {
        self.returned_to.take()
    }

    /// How values are written as text, and read.
    #[must_use]
    pub fn format(&self) -> &FormatSettings {
        if self.state == TransactionState::Idle {
            // What is read now is for a transaction that is about to begin.
            self.settings.format.now.set((self.clock)());
        }
        &self.settings.format
    }

    /// Runs the statements of a text, as [`execute_into`](Self::execute_into), and gives what they
    /// gave.
    ///
    /// # Errors
    /// As [`execute_into`](Self::execute_into); 54000 if a statement gives more than 1 GiB.
    pub async fn execute(&mut self, sql: &str) -> SqlResult<Vec<Outcome>> {
        let collected = Arc::new(Collected::default());
        let client: Arc<dyn Client> = Arc::clone(&collected) as _;
        self.execute_into(sql, &client).await?;
        Ok(collected.take())
    }

    /// Runs the statements of a text, one after the other, up to the first that fails, and gives
    /// their rows to a client as they come. If there are several, those outside of a transaction
    /// are one transaction. Whether there is a statement at all.
    ///
    /// # Errors
    /// Those of the statement that fails; what those before it have done in a transaction of their
    /// own is rolled back.
    pub async fn execute_into(&mut self, sql: &str, client: &Arc<dyn Client>) -> SqlResult<bool> {
        let statements = self.statements(sql)?;
        let is_block = statements.len() > 1;
        for notice in statements.iter().flat_map(|parsed| &parsed.notices) {
            self.tell(client, notice);
        }
        for (at, parsed) in statements.iter().enumerate() {
            if is_block && !control::is_control(&parsed.statement) {
                self.begin_block()?;
            }
            let ran = self.ran(&Work::of(parsed), client).await;
            // The last has done what it says when what all have done is committed.
            let ended = match ran.is_err() || at + 1 == statements.len() {
                true => self.end_block().await,
                false => Ok(()),
            };
            // What has failed first is what a client is to know.
            let tag = ran?;
            ended?;
            client.end(&tag);
        }
        Ok(!statements.is_empty())
    }

    /// Begins a transaction for all statements up to [`end_block`](Self::end_block), unless one is
    /// in progress.
    ///
    /// # Errors
    /// What beginning a transaction reports.
    pub fn begin_block(&mut self) -> SqlResult<()> {
        if self.state == TransactionState::Idle {
            self.begin(self.settings.modes)?;
            self.is_implicit = true;
        }
        Ok(())
    }

    /// Ends the transaction of [`begin_block`](Self::begin_block), if it is still that one: it is
    /// rolled back if a statement has failed.
    ///
    /// # Errors
    /// Those of a commit.
    pub async fn end_block(&mut self) -> SqlResult<()> {
        let ended = match (self.is_implicit, self.state) {
            (true, TransactionState::InTransaction) => self.commit().await,
            (true, TransactionState::Failed) => Box::pin(self.end_failed()).await,
            _ => return Ok(()),
        };
        self.note_end();
        ended.map_err(|error| self.named(error))
    }

    /// That something has failed which the session has not done itself: a transaction in progress
    /// takes nothing but its end from now on, as after a statement that fails.
    pub fn fail(&mut self) {
        if self.state == TransactionState::InTransaction {
            self.state = TransactionState::Failed;
        }
    }

    /// The statements of a text.
    fn statements(&mut self, sql: &str) -> SqlResult<Arc<[Arc<ParsedStatement>]>> {
        let statements = self.plans.statements(sql);
        if statements.is_err() && self.state == TransactionState::InTransaction {
            self.state = TransactionState::Failed;
        }
        statements
    }

    /// Runs one statement with values for its parameters `$1`, `$2` and so on.
    ///
    /// # Errors
    /// As [`execute`](Self::execute); 42601 if the text is not one statement.
    pub async fn query(&mut self, sql: &str, parameters: Vec<Datum>) -> SqlResult<Outcome> {
        let statements = self.statements(sql)?;
        let [parsed] = &*statements else {
            let message = "the text has to be one statement";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        self.collect(&Work { parameters: parameters.into(), ..Work::of(parsed) }).await
    }

    /// Runs a statement and keeps its rows.
    async fn collect(&mut self, work: &Work) -> SqlResult<Outcome> {
        let collected = Arc::new(Collected::default());
        let client: Arc<dyn Client> = Arc::clone(&collected) as _;
        self.statement(work, &client).await?;
        collected.take().pop().ok_or_else(|| SqlError::internal("a statement has not ended"))
    }

    /// Runs a statement, in the transaction or in one of its own.
    async fn statement(&mut self, work: &Work, client: &Arc<dyn Client>) -> SqlResult<()> {
        let tag = self.ran(work, client).await?;
        client.end(&tag);
        Ok(())
    }

    /// As [`statement`](Self::statement). What it says in the end.
    async fn ran(&mut self, work: &Work, client: &Arc<dyn Client>) -> SqlResult<String> {
        let statement = &work.parsed.statement;
        self.check_not_failed(statement)?;
        let begun = self.note_statement(&work.parsed.sql);
        let ran = match self.state {
            _ if !control::has_tables(statement) => {
                Box::pin(self.control(&work.parsed, client)).await
            }
            TransactionState::Idle => self.alone(work, client).await,
            _ => {
                self.has_run = true;
                self.within(work, client).await
            }
        };
        if ran.is_err() && self.state == TransactionState::InTransaction {
            self.state = TransactionState::Failed;
        }
        let took = self.note_end() - begun;
        let tag = ran.map_err(|error| self.named(error))?;
        work.parsed.stats.note(took, &tag);
        Ok(tag)
    }

    /// An error with the schema of the table that it is about.
    fn named(&self, mut error: SqlError) -> SqlError {
        error.name_table(|key| self.path.named(key));
        error
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

    fn begin(&mut self, modes: Modes) -> SqlResult<()> {
        self.begin_until(None, modes)
    }

    /// Begins a transaction that looks something up for the session.
    fn begin_to_look(&mut self) -> SqlResult<()> {
        self.begin(Modes {
            read_only: true,
            isolation: Isolation::Serializable,
            ..Modes::default()
        })
    }

    /// Has the next operation end at its limits, which may have been set within the transaction.
    pub(super) fn limit(&mut self, left: Option<Duration>) {
        self.txn.set_limits(SessionLimits {
            operation: left.or(self.settings.statement_timeout),
            transaction: None,
            idle: self.settings.idle_timeout,
            lock: self.settings.lock_timeout,
        });
    }

    /// Begins a transaction, of a statement that has to be over at a time.
    fn begin_until(&mut self, end: Option<Duration>, modes: Modes) -> SqlResult<()> {
        let now = self.txn.database().engine().env().now();
        self.limit(end.map(|end| end.saturating_sub(now)));
        let begun = match (modes.read_only, modes.isolation) {
            (false, isolation) => self.txn.begin(isolation),
            (true, Isolation::ReadCommitted) => self.txn.begin_to_read_committed(),
            (true, _) => self.txn.begin_to_read(),
        };
        begun.map_err(|error| from_txn(error, None))?;
        self.set_transaction_start((self.clock)());
        self.before = Some(Arc::clone(&self.settings));
        self.modes_now = modes;
        self.has_run = false;
        self.state = TransactionState::InTransaction;
        Ok(())
    }

    fn set_transaction_start(&mut self, moment_us: i64) {
        self.transaction_start = moment_us;
        self.settings.format.now.set(moment_us);
    }

    async fn commit(&mut self) -> SqlResult<()> {
        self.commit_until(self.statement_end()).await
    }

    /// Commits, as the end of a statement that has to be over at a time, or is cancelled: it waits
    /// for rows that others have locked no longer than that.
    async fn commit_until(&mut self, end: Option<Duration>) -> SqlResult<()> {
        // A cancel request that comes before there is something to wait for is not lost.
        let _running = self.cancel.running();
        if self.deferred.lock().has_waiting()
            && let Err(error) = Box::pin(self.settle_deferred()).await
        {
            Box::pin(self.end_failed()).await?;
            return Err(error);
        }
        self.over();
        let (ended, mut why) = (self.ended_at(end), None);
        let committed = self.txn.commit_until(async { why = Some(ended.await) }).await;
        self.end_settings(committed.is_err());
        self.kept.end_transaction(committed.is_err());
        self.locks.end_transaction().await;
        committed.map_err(|error| match (error, why) {
            (TxnError::CommitStopped, Some(why)) => why,
            (error, _) => from_txn(error, None),
        })
    }

    /// No transaction is in progress.
    fn over(&mut self) {
        self.state = TransactionState::Idle;
        self.is_implicit = false;
        self.savepoints.clear();
        *self.deferred.lock() = DeferredReferences::default();
    }

    /// Rolls back what has failed.
    async fn end_failed(&mut self) -> SqlResult<()> {
        self.over();
        self.end_settings(true);
        self.kept.end_transaction(true);
        let rolled_back = self.txn.rollback().await;
        self.locks.end_transaction().await;
        match rolled_back {
            Ok(()) | Err(TxnError::NoTransaction) => Ok(()),
            Err(error) => Err(from_txn(error, None)),
        }
    }
}
