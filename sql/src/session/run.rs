//! Running a statement.

use std::sync::Arc;
use std::time::Duration;

use selkie_txn::{NewIndex, SchemaError, Txn, TxnError};
use sqlparser::ast::Statement;

use super::cancel::CancelHandle;
use super::parsed::Planned;
use super::row_sink::RowSink;
use super::{Clock, Ran, Session, Settings, Work};
use crate::bind::{Binder, Bound};
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{ExecContext, MemoryLimits, SharedRows, build, from_txn};
use crate::functions::CallContext;
use crate::plan::{Plan, optimize};

/// How often a statement alone is run when others make it fail.
const ATTEMPTS: u32 = 20;

/// All that a statement needs of its session.
#[derive(Clone)]
struct Run {
    work: Work,
    sink: Arc<dyn RowSink>,
    settings: Arc<Settings>,
    cancel: CancelHandle,
    transaction_start: i64,
    clock: Clock,
    user: Arc<str>,
}

impl Session {
    /// Runs a statement as a transaction of its own, again if others make it fail. What it says in
    /// the end.
    pub(super) async fn alone(
        &mut self,
        work: &Work,
        sink: &Arc<dyn RowSink>,
    ) -> SqlResult<String> {
        let mut attempt = 0;
        loop {
            self.begin(self.settings.isolation, self.settings.read_only)?;
            let ran = match self.run(work, sink).await {
                Ok(Ran::Done(tag)) => self.commit().await.map(|()| tag),
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
                Err(error) if error.is_retryable() && attempt < ATTEMPTS && !sink.is_final() => {
                    let pause = Duration::from_micros(100 << attempt.min(8));
                    self.txn.database().engine().env().sleep(pause).await;
                    attempt += 1;
                }
                ran => return ran,
            }
        }
    }

    async fn build_index(&self, table: &TableDef, index: NewIndex) -> SqlResult<String> {
        let database = self.txn.database().clone();
        let built = database.create_index(table.table, index).await;
        built.map_err(|error| from_txn(error, Some(table)))?;
        Ok("CREATE INDEX".to_owned())
    }

    /// Runs a statement in the transaction.
    pub(super) async fn within(
        &mut self,
        work: &Work,
        sink: &Arc<dyn RowSink>,
    ) -> SqlResult<String> {
        match self.run(work, sink).await? {
            Ran::Done(tag) => Ok(tag),
            Ran::BuildIndex { .. } => {
                let message = "CREATE INDEX cannot run inside a transaction block";
                Err(SqlError::new(SqlState::ACTIVE_TRANSACTION, message))
            }
        }
    }

    async fn run(&mut self, work: &Work, sink: &Arc<dyn RowSink>) -> SqlResult<Ran> {
        let run = Run {
            work: work.clone(),
            sink: Arc::clone(sink),
            settings: Arc::clone(&self.settings),
            cancel: self.cancel.clone(),
            transaction_start: self.transaction_start,
            clock: self.clock,
            user: Arc::clone(&self.user),
        };
        let ran = self.txn.run(move |txn| Box::pin(async move { run.go(txn).await })).await;
        ran.map_err(|error| from_txn(error, None))?
    }
}

impl Run {
    async fn go(&self, txn: &mut Txn<'_>) -> Result<SqlResult<Ran>, TxnError> {
        txn.begin_statement()?;
        // An error of the transaction is one within: the inner result is that of SQL.
        let ran = self.cancel.guard(async { Ok(self.in_statement(txn).await) }).await;
        txn.end_statement();
        ran.unwrap_or_else(|cancelled| Ok(Err(cancelled)))
    }

    async fn in_statement(&self, txn: &mut Txn<'_>) -> Result<SqlResult<Ran>, TxnError> {
        let Work { parsed, parameters, types, columns } = &self.work;
        if super::define::is_definition(&parsed.statement) {
            self.sink.begin(&Arc::default(), &self.settings.format);
            return super::define::define(txn, &self.work, &self.settings.format).await;
        }
        let planned = match plan_of(txn, parsed, types, &self.settings.format).await? {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        let (wanted, given) = (planned.parameters.len(), parameters.len());
        if wanted > given {
            let message =
                format!("the statement has {wanted} parameters, and {given} values are given");
            return Ok(Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, message)));
        }
        if let Some(columns) = columns
            && **columns != *planned.columns
        {
            let message = "cached plan must not change result type";
            return Ok(Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)));
        }
        Ok(self.execute(txn, &planned).await.map(Ran::Done))
    }

    /// Runs a plan. What it says in the end.
    async fn execute(&self, txn: &mut Txn<'_>, planned: &Planned) -> SqlResult<String> {
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
        let mut operator = build(&planned.plan);
        self.sink.begin(&planned.columns, &settings.format);
        let mut given = 0;
        while let Some(batch) = operator.next(&mut context).await? {
            given += batch.len();
            if !planned.columns.is_empty() || is_query(&planned.plan) {
                self.sink.rows(batch).await?;
            }
        }
        let affected = context.affected;
        Ok(match &planned.plan {
            Plan::Insert(_) => format!("INSERT 0 {affected}"),
            Plan::Modify(modify) if modify.assignments.is_some() => format!("UPDATE {affected}"),
            Plan::Modify(_) => format!("DELETE {affected}"),
            _ => format!("SELECT {given}"),
        })
    }
}

/// Whether a plan is that of a query: one without columns gives rows, too.
fn is_query(plan: &Plan) -> bool {
    !matches!(plan, Plan::Insert(_) | Plan::Modify(_))
}

/// The plan of a statement, in the state of its tables that the transaction sees: the one that was
/// made last if it is right for that, else a new one.
pub(super) async fn plan_of(
    txn: &mut Txn<'_>,
    parsed: &super::parsed::ParsedStatement,
    types: &Arc<[Option<crate::types::SqlType>]>,
    format: &crate::types::FormatSettings,
) -> Result<SqlResult<Arc<Planned>>, TxnError> {
    if let Some(planned) = parsed.planned(types, format)
        && is_right(txn, &planned).await?
    {
        return Ok(Ok(planned));
    }
    let tables = match super::tables::load_tables(txn, &parsed.statement).await? {
        Ok(tables) => tables,
        Err(error) => return Ok(Err(error)),
    };
    let mut used = Vec::with_capacity(tables.len());
    for table in tables.values() {
        used.push((table.table, txn.definition_id(table.table).await?));
    }
    let mut binder = Binder::new(&parsed.sql, &tables, format, types);
    Ok(bind(&mut binder, &parsed.statement).map(|Bound { plan, columns }| {
        let planned = Arc::new(Planned {
            types: Arc::clone(types),
            format: format.clone(),
            tables: used,
            parameters: binder.parameters,
            columns: columns.into(),
            plan: optimize(plan),
        });
        parsed.keep(&planned);
        planned
    }))
}

/// Whether the tables of a plan are what they were when it was made.
async fn is_right(txn: &mut Txn<'_>, planned: &Planned) -> Result<bool, TxnError> {
    for (table, definition) in &planned.tables {
        match txn.definition_id(*table).await {
            Ok(found) if found == *definition => {}
            Ok(_) | Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn bind(binder: &mut Binder<'_>, statement: &Statement) -> SqlResult<Bound> {
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
