//! Running a statement.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;
use selkie_txn::{Database, LOCK_TIMEOUT, Txn, TxnError};

use super::cancel::CancelHandle;
use super::kept::Kept;
use super::memory::Bounds;
use super::parsed::{PlanCache, Planned, Verb};
use super::path::PathMemory;
use super::planning::plan_of;
use super::transaction::{Modes, check_writes};
use super::{Clock, Ran, Session, Settings, Work};
use crate::catalogue::TableDef;
use crate::client::Client;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{
    AdvisoryContext, CopiedRows, Counts, DeferredReferences, ExecContext, MemoryLimits,
    PendingReferences, RelationCache, SequenceMemory, SessionLocks, SharedRows, build, check_rows,
    fill_table, from_txn, settle_deferred,
};
use crate::explain::Counted;
use crate::functions::{CallContext, ToSet};
use crate::plan::Plan;
use crate::roles::{Authority, Needed, Standing};
use crate::schemas::SearchPath;
use crate::session_list::SessionList;
use crate::system::{SessionFacts, SystemSnapshot};
use crate::types::object_names::Names;

/// How often a statement alone is run when others make it fail.
const ATTEMPTS: u32 = 20;

/// All that a statement needs of its session.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) work: Work,
    pub(super) client: Arc<dyn Client>,
    pub(super) settings: Arc<Settings>,
    /// How its transaction is.
    pub(super) modes: Modes,
    pub(super) env: Env,
    pub(super) database: Database,
    /// The role that it runs as, once that is known.
    authority: Option<Arc<Authority>>,
    pub(super) standing: Standing,
    pub(super) plans: Arc<PlanCache>,
    pub(super) known_path: Arc<PathMemory>,
    to_set: Arc<ToSet>,
    pub(super) kept: Arc<Kept>,
    locks: Arc<SessionLocks>,
    /// Where a statement that changes tables looks for names.
    pub(super) path: Arc<SearchPath>,
    sequences: Arc<SequenceMemory>,
    relations: Arc<RelationCache>,
    pub(super) deferred: Arc<Mutex<DeferredReferences>>,
    cancel: CancelHandle,
    bounds: Arc<Bounds>,
    limits: MemoryLimits,
    sessions: Arc<SessionList>,
    session_number: i32,
    pub(super) is_alone: bool,
    transaction_start: i64,
    pub(super) clock: Clock,
    /// As whom the session began.
    pub(super) user: Arc<str>,
}

impl Session {
    /// Runs a statement as a transaction of its own, again if others make it fail. What it says in
    /// the end.
    pub(super) async fn alone(
        &mut self,
        work: &Work,
        client: &Arc<dyn Client>,
    ) -> SqlResult<String> {
        // All attempts are one statement, for those who cancel it and for its timeout.
        let (_running, end) = (self.cancel.running(), self.statement_end());
        let mut attempt = 0;
        loop {
            self.begin_until(end, self.settings.modes)?;
            self.locks.begin_run();
            let ran = match self.run(work, client, true).await {
                Ok(Ran::Done(tag)) => self.commit_until(end).await.map(|()| tag),
                Ok(Ran::BuildIndex(build)) => {
                    Box::pin(self.end_failed()).await?;
                    Box::pin(self.build_index(build, end, client)).await
                }
                Err(error) => {
                    Box::pin(self.end_failed()).await?;
                    Err(error)
                }
            };
            match ran {
                Err(error)
                    if error.is_retryable()
                        && attempt < ATTEMPTS
                        && !client.is_final()
                        && !self.locks.keeps_from_another_run() =>
                {
                    let pause = Duration::from_micros(100 << attempt.min(8));
                    self.txn.database().engine().env().sleep(pause).await;
                    attempt += 1;
                }
                ran => return ran,
            }
        }
    }

    /// Runs a statement in the transaction.
    pub(super) async fn within(
        &mut self,
        work: &Work,
        client: &Arc<dyn Client>,
    ) -> SqlResult<String> {
        self.limit(None);
        match self.run(work, client, false).await? {
            Ran::Done(tag) => Ok(tag),
            Ran::BuildIndex(_) => {
                Err(SqlError::internal("an index that is built outside of its transaction"))
            }
        }
    }

    async fn run(
        &mut self,
        work: &Work,
        client: &Arc<dyn Client>,
        is_alone: bool,
    ) -> SqlResult<Ran> {
        let run = self.new_run(work, client, is_alone);
        let ran = self.txn.run(move |txn| Box::pin(async move { run.go(txn).await })).await;
        let to_set = self.to_set.take();
        self.locks.take_warnings().iter().for_each(|warning| self.tell(client, warning));
        let ran = ran.map_err(|error| from_txn(error, None))??;
        for (name, value, is_local) in to_set {
            match value {
                role if name.eq_ignore_ascii_case("role") => {
                    let role = role.filter(|own| own != "none");
                    Box::pin(self.set_role(role, is_local)).await?;
                }
                Some(value) => self.set_values(&name, &[value], is_local)?,
                None => self.reset_parameter(&name, is_local)?,
            }
        }
        Ok(ran)
    }

    /// What a statement needs.
    pub(super) fn new_run(&self, work: &Work, client: &Arc<dyn Client>, is_alone: bool) -> Run {
        Run {
            work: work.clone(),
            client: Arc::clone(client),
            settings: Arc::clone(&self.settings),
            modes: self.modes_now,
            env: self.txn.database().engine().env().clone(),
            database: self.txn.database().clone(),
            authority: None,
            standing: self.standing,
            plans: Arc::clone(&self.plans),
            known_path: Arc::clone(&self.path),
            to_set: Arc::clone(&self.to_set),
            kept: Arc::clone(&self.kept),
            locks: Arc::clone(&self.locks),
            path: self.path.plain(),
            sequences: Arc::clone(&self.sequences),
            relations: Arc::clone(self.plans.relations()),
            deferred: Arc::clone(&self.deferred),
            cancel: self.cancel.clone(),
            bounds: Arc::new(self.bounds()),
            limits: self.memory_limits(),
            sessions: Arc::clone(self.listed.list()),
            session_number: self.listed.number(),
            is_alone,
            transaction_start: self.transaction_start,
            clock: self.clock,
            user: Arc::clone(&self.user),
        }
    }
}

impl Run {
    /// The role that the statement runs as.
    pub(super) fn authority(&self) -> SqlResult<&Authority> {
        self.authority.as_deref().ok_or_else(|| SqlError::internal("a statement of no role"))
    }

    /// The same with the role that it runs as, in the state that the transaction sees.
    pub(super) async fn with_authority(
        &self,
        txn: &mut Txn<'_>,
    ) -> Result<SqlResult<Self>, TxnError> {
        let loaded = crate::roles::load(txn, &self.plans.roles).await?;
        let set = self.settings.role.as_ref().map(|own| own.oid);
        let authority =
            loaded.and_then(|roles| Authority::new(roles, self.standing, &self.user, set));
        Ok(authority.map(|own| Self { authority: Some(Arc::new(own)), ..self.clone() }))
    }

    async fn go(&self, txn: &mut Txn<'_>) -> Result<SqlResult<Ran>, TxnError> {
        // It may have been set, or set back, within the transaction.
        txn.set_lock_timeout(self.settings.lock_timeout.unwrap_or(LOCK_TIMEOUT));
        txn.begin_statement()?;
        let ran = self.cancel.guard(pin!(self.in_statement(txn))).await;
        txn.end_statement();
        // An error of the transaction is one within: the inner result is that of SQL.
        ran.unwrap_or_else(|cancelled| Ok(Err(cancelled)))
    }

    pub(super) async fn in_statement(&self, txn: &mut Txn<'_>) -> Result<SqlResult<Ran>, TxnError> {
        let Work { parsed, parameters, types, told } = &self.work;
        if super::define::is_definition(&parsed.statement) {
            let may_rename = super::define::changes_names(&parsed.statement);
            if may_rename && self.deferred.lock().has_waiting() {
                let message = "tables cannot be changed before deferred constraints are checked";
                return Ok(Err(SqlError::new(SqlState::OBJECT_IN_USE, message)));
            }
            self.client.begin(&Arc::default(), &self.settings.format);
            if let Err(error) = check_writes(self.modes, &parsed.statement, &Verb::Select) {
                return Ok(Err(error));
            }
            let run = match Box::pin(self.with_authority(txn)).await? {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            };
            return Ok(match Box::pin(run.with_path(txn)).await? {
                Ok(run) => Box::pin(super::define::define(&run, txn)).await,
                Err(error) => Err(error),
            });
        }
        if let Some(ran) = self.other_than_planned(txn).await? {
            return Ok(ran);
        }
        match super::explain::explained(&parsed.statement) {
            Ok(None) => {}
            Ok(Some(explain)) => return Box::pin(self.explain(txn, &explain)).await,
            Err(error) => return Ok(Err(error)),
        }
        let planned = match plan_of(txn, parsed, types, &self.path_source()).await? {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        let (wanted, given) = (planned.parameters.len(), parameters.len());
        if wanted > given {
            let message =
                format!("the statement has {wanted} parameters, and {given} values are given");
            return Ok(Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message)));
        }
        let is_as_told = told.as_ref().map_or(Ok(()), |told| planned.is_as(told));
        let may_run = check_writes(self.modes, &parsed.statement, &planned.verb);
        if let Err(error) = is_as_told.and(may_run) {
            return Ok(Err(error));
        }
        let run = match self.allowed(txn, &planned).await? {
            Ok(run) => run,
            Err(error) => return Ok(Err(error)),
        };
        let run = run.as_ref().unwrap_or(self);
        if planned.uses_catalogue {
            return Box::pin(run.execute_with_catalogue(txn, &planned)).await;
        }
        Ok(run.execute(txn, &planned).await.map(Ran::Done))
    }

    /// The same with the role that it runs as, which may run the plan. `None` if it is one that may
    /// run all.
    pub(super) async fn allowed(
        &self,
        txn: &mut Txn<'_>,
        planned: &Planned,
    ) -> Result<SqlResult<Option<Self>>, TxnError> {
        let may_all = self.standing == Standing::Trusted && self.settings.role.is_none();
        if may_all && planned.needed.iter().all(Needed::is_trivial) {
            return Ok(Ok(None));
        }
        Ok(Box::pin(self.with_authority(txn)).await?.and_then(|run| {
            let authority = run.authority()?;
            for own in &planned.needed {
                own.check(authority)?;
            }
            Ok(Some(run))
        }))
    }

    async fn execute_with_catalogue(
        &self,
        txn: &mut Txn<'_>,
        planned: &Planned,
    ) -> Result<SqlResult<Ran>, TxnError> {
        Ok(match self.with_catalogue(txn, &planned.path).await? {
            Ok(run) => run.execute(txn, planned).await.map(Ran::Done),
            Err(error) => Err(error),
        })
    }

    /// The same with the definitions of all tables, in the state that the transaction sees.
    pub(super) async fn with_catalogue(
        &self,
        txn: &mut Txn<'_>,
        path: &Arc<SearchPath>,
    ) -> Result<SqlResult<Self>, TxnError> {
        let run = match self.authority {
            Some(_) => self.clone(),
            None => match self.with_authority(txn).await? {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            },
        };
        let authority = match run.authority() {
            Ok(authority) => authority.clone(),
            Err(error) => return Ok(Err(error)),
        };
        let session = SessionFacts {
            user: Arc::clone(&self.user),
            database: "selkie",
            sessions: Arc::clone(&self.sessions),
            statements: Arc::clone(&self.plans.list),
            path: Arc::clone(path),
            settings: self.settings.all(self.modes),
            prepared: self.kept.shown_statements(),
            cursors: self.kept.shown_cursors(),
            transaction_start: self.transaction_start,
        };
        let loaded = SystemSnapshot::load(txn, session, authority).await?;
        Ok(loaded.map(|snapshot| {
            let mut settings = (*self.settings).clone();
            settings.format.names = Names::new(Arc::new(snapshot));
            Self { settings: Arc::new(settings), ..self.clone() }
        }))
    }

    /// Runs a plan. What it says in the end.
    async fn execute(&self, txn: &mut Txn<'_>, planned: &Planned) -> SqlResult<String> {
        let random = || random(self.clock);
        let mut context = self.context(txn, &random, &planned.path);
        context.advisory.may_see_later = planned.tables.is_empty() && !planned.uses_catalogue;
        let mut operator = build(&planned.plan);
        let client = &*self.client;
        let mut given = 0;
        match &planned.verb {
            Verb::CopyOut(format) => {
                client.begin(&Arc::default(), &self.settings.format);
                let copied = self.copy_out(&mut *operator, &mut context, planned, format);
                given = Box::pin(copied).await?;
            }
            Verb::Declare(new) => {
                client.begin(&Arc::default(), &self.settings.format);
                Box::pin(self.declare(&mut *operator, &mut context, planned, new)).await?;
            }
            // Its rows have no columns.
            Verb::Insert | Verb::Update | Verb::Delete if planned.columns.is_empty() => {
                client.begin(&planned.columns, &self.settings.format);
                while operator.next(&mut context).await?.is_some() {}
            }
            _ => {
                client.begin(&planned.columns, &self.settings.format);
                let may_stop = matches!(planned.verb, Verb::Select);
                while let Some(batch) = operator.next(&mut context).await? {
                    given += batch.len();
                    client.rows(batch).await?;
                    if may_stop && !client.wants_more() {
                        break;
                    }
                }
            }
        }
        let affected = context.affected;
        Ok(match planned.verb {
            Verb::Select => format!("SELECT {given}"),
            Verb::Insert => format!("INSERT 0 {affected}"),
            Verb::Update => format!("UPDATE {affected}"),
            Verb::Delete => format!("DELETE {affected}"),
            Verb::CopyIn => format!("COPY {affected}"),
            Verb::CopyOut(_) => format!("COPY {given}"),
            Verb::Declare(_) => "DECLARE CURSOR".to_owned(),
        })
    }

    /// What a plan runs in.
    pub(super) fn context<'x, 'db>(
        &'x self,
        txn: &'x mut Txn<'db>,
        random: &'x (dyn Fn() -> f64 + Sync),
        path: &'x SearchPath,
    ) -> ExecContext<'x, 'db> {
        let settings = &self.settings;
        let start = (self.clock)();
        let call = CallContext {
            settings: &settings.format,
            transaction_start: self.transaction_start,
            statement_start: start,
            now: start,
            user: self.settings.role.as_ref().map_or(&self.user, |own| &own.name),
            session_user: &self.user,
            is_superuser: (settings.role.as_ref())
                .map_or(settings.is_superuser, |own| own.is_superuser),
            session_number: self.session_number,
            sessions: &self.sessions,
            database: "selkie",
            search_path: path.names(),
            to_set: &self.to_set,
            random,
            interrupts: &self.bounds.interrupts,
            large_values: &self.bounds.large_values,
        };
        ExecContext {
            txn,
            call,
            parameters: &self.work.parameters,
            env: Some(&self.env),
            client: Some(&*self.client),
            is_alone: self.is_alone,
            read_only: self.modes.read_only,
            sequences: &self.sequences,
            path,
            relations: &self.relations,
            references: PendingReferences::default(),
            deferred: &self.deferred,
            advisory: AdvisoryContext {
                locks: &self.locks,
                database: Some(&self.database),
                timeout: self.settings.lock_timeout,
                may_see_later: false,
            },
            authority: self.authority.as_deref(),
            limits: &self.limits,
            outer: Vec::new(),
            shared: SharedRows::default(),
            affected: 0,
            counts: Counts::default(),
            copied: CopiedRows::default(),
            gathered: None,
            unbroken: 0,
        }
    }

    /// Runs a plan whose nodes are measured, and gives none of its rows.
    pub(super) async fn measure(
        &self,
        txn: &mut Txn<'_>,
        planned: &Planned,
    ) -> SqlResult<Vec<Counted>> {
        let random = || random(self.clock);
        let mut context = self.context(txn, &random, &planned.path);
        context.counts.env = Some(self.env.clone());
        let mut operator = build(&planned.plan);
        while operator.next(&mut context).await?.is_some() {}
        Ok(context.counts.nodes)
    }

    /// Runs a plan that gives nothing to the client. How many rows it gave, or changed.
    pub(super) async fn perform(&self, txn: &mut Txn<'_>, plan: &Plan) -> SqlResult<u64> {
        let random = || random(self.clock);
        let mut context = self.context(txn, &random, &self.path);
        let mut operator = build(plan);
        while operator.next(&mut context).await?.is_some() {}
        Ok(context.affected)
    }

    /// Gives a table that the transaction has created the rows of a plan, which come in the order
    /// of its primary key if `is_in_order` says so. How many there are.
    pub(super) async fn fill(
        &self,
        txn: &mut Txn<'_>,
        table: &TableDef,
        source: &Plan,
        is_in_order: bool,
    ) -> SqlResult<u64> {
        let random = || random(self.clock);
        let mut context = self.context(txn, &random, &self.path);
        fill_table(table, source, is_in_order, &mut context).await
    }

    /// Looks at what constraints have put off.
    pub(super) async fn settle_deferred(&self, txn: &mut Txn<'_>) -> SqlResult<()> {
        txn.begin_statement().map_err(|error| from_txn(error, None))?;
        let random = || random(self.clock);
        let settled = {
            let mut context = self.context(txn, &random, &self.path);
            self.cancel.guard(pin!(settle_deferred(&mut context))).await
        };
        txn.end_statement();
        settled?
    }

    /// An error if a row of a table does not fulfil a FOREIGN KEY constraint of it.
    pub(super) async fn check_references(
        &self,
        txn: &mut Txn<'_>,
        table: &TableDef,
        at: usize,
    ) -> SqlResult<()> {
        let random = || random(self.clock);
        let mut context = self.context(txn, &random, &self.path);
        check_rows(&Arc::new(table.clone()), at, &mut context).await
    }
}

/// A number from 0 to below 1.
pub(super) fn random(clock: Clock) -> f64 {
    use std::hash::{BuildHasher, RandomState};
    // The state differs from one to the next.
    let bits = RandomState::new().hash_one(clock());
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
