//! Running a statement.

use std::sync::Arc;
use std::time::Duration;

use selkie_txn::{NewIndex, Txn, TxnError};
use sqlparser::ast::Statement;

use super::{Clock, Outcome, Ran, Session, Settings, Work};
use crate::bind::{Binder, Bound};
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{ExecContext, MemoryLimits, Row, SharedRows, build, from_txn, row_bytes};
use crate::functions::CallContext;
use crate::plan::{Plan, optimize};

/// Most bytes of the rows that a statement gives: they are kept until the last is there.
const MAX_RESULT_BYTES: usize = 1 << 30;

/// How often a statement alone is run when others make it fail.
const ATTEMPTS: u32 = 20;

/// All that a statement needs of its session.
#[derive(Clone)]
struct Run {
    work: Work,
    settings: Arc<Settings>,
    transaction_start: i64,
    clock: Clock,
    user: String,
}

impl Session {
    /// Runs a statement as a transaction of its own, again if others make it fail.
    pub(super) async fn alone(&mut self, work: &Work) -> SqlResult<Outcome> {
        let mut attempt = 0;
        loop {
            self.begin(self.settings.isolation, self.settings.read_only)?;
            let ran = match self.run(work).await {
                Ok(Ran::Done(outcome)) => self.commit().await.map(|()| outcome),
                Ok(Ran::BuildIndex { table, index }) => {
                    self.end_failed().await?;
                    self.build_index(&table, index).await
                }
                Err(error) => {
                    self.end_failed().await?;
                    Err(error)
                }
            };
            match ran {
                Err(error) if error.is_retryable() && attempt < ATTEMPTS => {
                    let pause = Duration::from_micros(100 << attempt.min(8));
                    self.txn.database().engine().env().sleep(pause).await;
                    attempt += 1;
                }
                ran => return ran,
            }
        }
    }

    async fn build_index(&self, table: &TableDef, index: NewIndex) -> SqlResult<Outcome> {
        let database = self.txn.database().clone();
        let built = database.create_index(table.table, index).await;
        built.map_err(|error| from_txn(error, Some(table)))?;
        Ok(Outcome::done("CREATE INDEX"))
    }

    /// Runs a statement in the transaction.
    pub(super) async fn within(&mut self, work: &Work) -> SqlResult<Outcome> {
        match self.run(work).await? {
            Ran::Done(outcome) => Ok(outcome),
            Ran::BuildIndex { .. } => {
                let message = "CREATE INDEX cannot run inside a transaction block";
                Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message))
            }
        }
    }

    async fn run(&mut self, work: &Work) -> SqlResult<Ran> {
        let run = Run {
            work: work.clone(),
            settings: Arc::clone(&self.settings),
            transaction_start: self.transaction_start,
            clock: self.clock,
            user: self.user.clone(),
        };
        let ran = self.txn.run(move |txn| Box::pin(async move { run.go(txn).await })).await;
        ran.map_err(|error| from_txn(error, None))?
    }
}

impl Run {
    async fn go(&self, txn: &mut Txn<'_>) -> Result<SqlResult<Ran>, TxnError> {
        txn.begin_statement()?;
        let outcome = self.in_statement(txn).await;
        txn.end_statement();
        outcome
    }

    async fn in_statement(&self, txn: &mut Txn<'_>) -> Result<SqlResult<Ran>, TxnError> {
        let tables = match super::tables::load_tables(txn, &self.work.statement).await? {
            Ok(tables) => tables,
            Err(error) => return Ok(Err(error)),
        };
        let settings = &self.settings;
        let mut binder = Binder::new(&self.work.sql, &tables, &settings.format, &self.work.types);
        if let Some(defined) = super::define::define(txn, &mut binder, &self.work.statement).await?
        {
            return Ok(defined);
        }
        let bound = match bind(&mut binder, &self.work.statement) {
            Ok(bound) => bound,
            Err(error) => return Ok(Err(error)),
        };
        if binder.parameters.len() > self.work.parameters.len() {
            let message = format!(
                "the statement has {} parameters, and {} values are given",
                binder.parameters.len(),
                self.work.parameters.len()
            );
            return Ok(Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message)));
        }
        Ok(self.plan(txn, bound).await.map(Ran::Done))
    }

    async fn plan(&self, txn: &mut Txn<'_>, bound: Bound) -> SqlResult<Outcome> {
        let Bound { plan, columns } = bound;
        let plan = optimize(plan);
        let verb = verb(&plan);
        let settings = &self.settings;
        let start = (self.clock)();
        let random = || random(self.clock);
        let call = CallContext {
            settings: &settings.format,
            transaction_start: self.transaction_start,
            statement_start: start,
            now: start,
            user: &self.user,
            database: "selkie",
            search_path: &settings.search_path,
            random: &random,
        };
        let mut context = ExecContext {
            txn,
            call,
            parameters: &self.work.parameters,
            limits: MemoryLimits::default(),
            outer: Vec::new(),
            shared: SharedRows::default(),
            affected: 0,
            unbroken: 0,
        };
        let mut operator = build(&plan);
        let (mut rows, mut bytes) = (Vec::<Row>::new(), 0);
        while let Some(batch) = operator.next(&mut context).await? {
            bytes += batch.iter().map(|row| row_bytes(row)).sum::<usize>();
            if bytes > MAX_RESULT_BYTES {
                let message =
                    format!("the rows of the statement take more than {MAX_RESULT_BYTES} bytes");
                return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                    .hint("Ask for fewer rows at a time, with LIMIT and a condition on a key."));
            }
            rows.extend(batch);
        }
        let affected = context.affected;
        let tag = match verb {
            Verb::Select => format!("SELECT {}", rows.len()),
            Verb::Insert => format!("INSERT 0 {affected}"),
            Verb::Update => format!("UPDATE {affected}"),
            Verb::Delete => format!("DELETE {affected}"),
        };
        Ok(Outcome { columns, rows, tag })
    }
}

/// What kind of statement it is.
enum Verb {
    Select,
    Insert,
    Update,
    Delete,
}

fn verb(plan: &Plan) -> Verb {
    match plan {
        Plan::Insert(_) => Verb::Insert,
        Plan::Modify(modify) if modify.assignments.is_some() => Verb::Update,
        Plan::Modify(_) => Verb::Delete,
        _ => Verb::Select,
    }
}

pub(super) fn bind(binder: &mut Binder<'_>, statement: &Statement) -> SqlResult<Bound> {
    match statement {
        Statement::Query(query) => binder.statement(query),
        Statement::Insert(insert) => binder.insert(insert),
        Statement::Update(update) => binder.update(update),
        Statement::Delete(delete) => binder.delete(delete),
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            Err(SqlError::unsupported(words.join(" ").to_uppercase()))
        }
    }
}

/// A number from 0 to below 1.
fn random(clock: Clock) -> f64 {
    use std::hash::{BuildHasher, RandomState};
    // The state differs from one to the next.
    let bits = RandomState::new().hash_one(clock());
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}
