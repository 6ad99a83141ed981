//! PREPARE and EXECUTE.

use std::sync::Arc;

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{DataType, Ident, Statement};

use super::parsed::ParsedStatement;
use super::planning::plan_anew;
use super::prepared::Prepared;
use super::run::{Run, random};
use super::{Ran, Session, Work};
use crate::bind::{fold, name_parts, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::{Row, build};
use crate::plan::Plan;
use crate::types::{Datum, SqlType};

/// The name of the statement that EXECUTE runs.
pub(super) fn executed_name(statement: &Statement) -> SqlResult<String> {
    let Statement::Execute { name, immediate, into, using, output, default, .. } = statement else {
        return Err(SqlError::internal("a statement that is no EXECUTE"));
    };
    let is_odd = *immediate || !into.is_empty() || !using.is_empty() || *output || *default;
    refuse(is_odd, "this form of EXECUTE")?;
    let parts = name.as_ref().map(name_parts).transpose()?.unwrap_or_default();
    let [name] = &*parts else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "EXECUTE takes one name"));
    };
    Ok(name.clone())
}

impl Session {
    /// PREPARE.
    pub(super) async fn prepare_as(
        &mut self,
        parsed: &Arc<ParsedStatement>,
        (name, types): (&Ident, &[DataType]),
        statement: &Statement,
    ) -> SqlResult<()> {
        let can_be = matches!(
            statement,
            Statement::Query(_)
                | Statement::Insert(_)
                | Statement::Update(_)
                | Statement::Delete(_)
        );
        if !can_be {
            let text = statement.to_string();
            let word = text.split_whitespace().next().unwrap_or_default();
            let message = format!("syntax error at or near \"{}\"", word.to_lowercase());
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message)
                .detail("What is prepared is a SELECT, VALUES, INSERT, UPDATE or DELETE."));
        }
        let types = types.iter().map(|ty| {
            let ty = SqlType::parse(ty)?.plain();
            Ok((ty != SqlType::UNKNOWN).then_some(ty))
        });
        let types: Vec<Option<SqlType>> = types.collect::<SqlResult<_>>()?;
        let inner = ParsedStatement::within(statement.clone(), &parsed.sql);
        let prepared = self.prepare_parsed(&Arc::new(inner), &types).await?;
        self.keep(&fold(name), prepared, &parsed.sql, true)
    }

    /// Keeps a prepared statement under a name.
    fn keep(
        &self,
        name: &str,
        prepared: Prepared,
        text: &Arc<str>,
        is_from_sql: bool,
    ) -> SqlResult<()> {
        self.kept.keep_statement(name, prepared, text, ((self.clock)(), is_from_sql))
    }

    /// An error if no statement can be prepared under a name.
    ///
    /// # Errors
    /// 42P05 if there is one; 54000 if there are too many.
    pub fn check_new_prepared(&self, name: &str) -> SqlResult<()> {
        self.kept.check_new_statement(name)
    }

    /// Keeps a prepared statement under a name, as PREPARE does, so that EXECUTE runs it and
    /// DEALLOCATE forgets it.
    ///
    /// # Errors
    /// As [`check_new_prepared`](Self::check_new_prepared).
    pub fn keep_prepared(&self, name: &str, prepared: Prepared) -> SqlResult<()> {
        let text = prepared.text();
        self.keep(name, prepared, &text, false)
    }

    /// The statement that was prepared under a name; `None` if there is none.
    #[must_use]
    pub fn prepared(&self, name: &str) -> Option<Prepared> {
        self.kept.statement(name).ok()
    }

    /// Counts a run of the statement that was prepared under a name.
    pub fn note_prepared_run(&self, name: &str) {
        self.kept.note_run(name);
    }

    /// Forgets the statement that was prepared under a name. Nothing if there is none.
    pub fn forget_prepared(&self, name: &str) {
        // That there is none is no error to who forgets it.
        let _ = self.kept.forget_statement(Some(name));
    }
}

impl Run {
    /// Runs EXECUTE or LOCK TABLE, which have no plan; `None` if the statement is neither.
    pub(super) async fn other_than_planned(
        &self,
        txn: &mut Txn<'_>,
    ) -> Result<Option<SqlResult<Ran>>, TxnError> {
        Ok(Some(match &self.work.parsed.statement {
            Statement::Execute { .. } => Box::pin(self.execute_named(txn)).await?,
            Statement::Lock(lock) => Box::pin(self.lock_tables(txn, lock)).await?,
            _ => return Ok(None),
        }))
    }

    /// EXECUTE.
    async fn execute_named(&self, txn: &mut Txn<'_>) -> Result<SqlResult<Ran>, TxnError> {
        let parsed = &self.work.parsed;
        let work = match self.named_work(txn, &parsed.statement).await? {
            Ok(work) => work,
            Err(error) => return Ok(Err(error)),
        };
        let mut run = self.clone();
        run.work = work;
        Box::pin(run.in_statement(txn)).await
    }

    /// The statement that EXECUTE names, with the values that it gives.
    pub(super) async fn named_work(
        &self,
        txn: &mut Txn<'_>,
        statement: &Statement,
    ) -> Result<SqlResult<Work>, TxnError> {
        let found =
            executed_name(statement).and_then(|name| Ok((self.kept.statement(&name)?, name)));
        let (prepared, name) = match found {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let Some(work) = prepared.work() else {
            return Ok(Err(SqlError::unsupported("EXECUTE of a text without a statement")));
        };
        if matches!(work.parsed.statement, Statement::Execute { .. } | Statement::Explain { .. }) {
            let what = "EXECUTE of a statement that is EXECUTE or EXPLAIN itself";
            return Ok(Err(SqlError::unsupported(what)));
        }
        let wanted = prepared.parameters();
        let values = self.given_values(txn, statement, wanted).await?;
        Ok(values.map(|parameters| {
            self.kept.note_run(&name);
            Work { parameters: parameters.into(), ..work.clone() }
        }))
    }

    /// The values that EXECUTE gives, of these types.
    async fn given_values(
        &self,
        txn: &mut Txn<'_>,
        statement: &Statement,
        wanted: &[SqlType],
    ) -> Result<SqlResult<Vec<Datum>>, TxnError> {
        if let Statement::Execute { parameters, .. } = statement
            && parameters.is_empty()
            && wanted.is_empty()
        {
            return Ok(Ok(Vec::new()));
        }
        let types: Arc<[Option<SqlType>]> = wanted.iter().map(|ty| Some(*ty)).collect();
        let (sql, source) = (&self.work.parsed.sql, self.path_source());
        let planned = plan_anew(txn, statement, sql, &types, &source, None);
        let planned = match Box::pin(planned).await? {
            Ok(planned) => planned,
            Err(error) => return Ok(Err(error)),
        };
        let allowed = match self.allowed(txn, &planned).await? {
            Ok(run) => run,
            Err(error) => return Ok(Err(error)),
        };
        let run = allowed.unwrap_or_else(|| self.clone());
        let run = match planned.uses_catalogue {
            true => match run.with_catalogue(txn, &planned.path).await? {
                Ok(run) => run,
                Err(error) => return Ok(Err(error)),
            },
            false => run,
        };
        let missing = || SqlError::internal("values of EXECUTE are no row");
        Ok(run.first_row(txn, &planned.plan).await.and_then(|row| row.ok_or_else(missing)))
    }

    /// The first row of what a plan gives.
    pub(super) async fn first_row(&self, txn: &mut Txn<'_>, plan: &Plan) -> SqlResult<Option<Row>> {
        let random = || random(self.clock);
        let mut context = self.context(txn, &random, &self.path);
        let batch = build(plan).next(&mut context).await?;
        Ok(batch.and_then(|batch| batch.into_iter().next()))
    }
}
