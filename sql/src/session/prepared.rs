//! Prepared statements.

use std::sync::Arc;

use sqlparser::ast::Statement;

use super::parsed::{ParsedStatement, Planned, Verb};
use super::{Session, TransactionState, Work, control};
use crate::bind::OutputColumn;
use crate::client::{Client, Outcome};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::types::{Datum, SqlType};

/// A statement that was parsed, with the types of what it takes and gives.
#[derive(Clone)]
pub struct Prepared {
    /// `None` if the text has no statement.
    work: Option<Work>,
    parameters: Vec<SqlType>,
    columns: Arc<[OutputColumn]>,
}

impl Prepared {
    fn of(work: Option<Work>) -> Self {
        Self { work, parameters: Vec::new(), columns: Arc::default() }
    }

    /// The types of its parameters, `$1` first.
    #[must_use]
    pub fn parameters(&self) -> &[SqlType] {
        &self.parameters
    }

    /// The columns of its rows; none if it gives no rows.
    #[must_use]
    pub fn columns(&self) -> &[OutputColumn] {
        &self.columns
    }

    /// What is to be said of its text, if its session wants that
    /// ([`wants`](Session::wants)).
    #[must_use]
    pub fn notices(&self) -> &[Notice] {
        self.work.as_ref().map_or(&[], |work| &work.parsed.notices)
    }

    /// Whether it is a COPY, whose data is not read in parts.
    #[must_use]
    pub fn is_copy(&self) -> bool {
        let statement = self.work.as_ref().map(|work| &work.parsed.statement);
        matches!(statement, Some(Statement::Copy { .. }))
    }

    /// What is run.
    pub(super) fn work(&self) -> Option<&Work> {
        self.work.as_ref()
    }

    /// The text that it is in.
    pub(super) fn text(&self) -> Arc<str> {
        self.work.as_ref().map_or_else(|| Arc::from(""), |work| Arc::clone(&work.parsed.sql))
    }

    /// Whether it is no statement at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.work.is_none()
    }
}

impl Session {
    /// Whether the client is to be told of messages of a level.
    #[must_use]
    pub fn wants(&self, notice: &Notice) -> bool {
        self.settings.wants(notice.level())
    }

    /// Parses a statement and finds the types of its parameters and columns, in the state of its
    /// tables that the transaction sees. `types` are those of parameters that are known.
    ///
    /// # Errors
    /// Those of the statement; 42601 if there are several; 42P18 if the type of a parameter cannot
    /// be told.
    pub async fn prepare(&mut self, sql: &str, types: &[Option<SqlType>]) -> SqlResult<Prepared> {
        let prepared = self.prepare_now(sql, types).await;
        if prepared.is_err() && self.state == TransactionState::InTransaction {
            self.state = TransactionState::Failed;
        }
        prepared
    }

    async fn prepare_now(&mut self, sql: &str, types: &[Option<SqlType>]) -> SqlResult<Prepared> {
        let statements = self.plans.statements(sql)?;
        let parsed = match &*statements {
            [] => return Ok(Prepared::of(None)),
            [parsed] => parsed,
            _ => {
                let message = "cannot insert multiple commands into a prepared statement";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        };
        self.prepare_parsed(parsed, types).await
    }

    /// As [`prepare`](Self::prepare), of a statement that was parsed.
    pub(super) async fn prepare_parsed(
        &mut self,
        parsed: &Arc<ParsedStatement>,
        types: &[Option<SqlType>],
    ) -> SqlResult<Prepared> {
        self.check_not_failed(&parsed.statement)?;
        if let Statement::Execute { .. } = &parsed.statement {
            // That there is none yet is for when it is run.
            let name = super::execute::executed_name(&parsed.statement)?;
            let named = self.kept.statement(&name);
            let columns = named.map_or_else(|_| Arc::default(), |own| own.columns);
            return Ok(Prepared { columns, ..Prepared::of(Some(Work::of(parsed))) });
        }
        if !control::has_tables(&parsed.statement) {
            let columns = self.control_columns(&parsed.statement)?.into();
            return Ok(Prepared { columns, ..Prepared::of(Some(Work::of(parsed))) });
        }
        let is_lock = matches!(parsed.statement, Statement::Lock(_));
        if is_lock || super::define::is_definition(&parsed.statement) {
            return Ok(Prepared::of(Some(Work::of(parsed))));
        }
        if super::explain::explained(&parsed.statement)?.is_some() {
            let columns = super::explain::columns();
            return Ok(Prepared { columns, ..Prepared::of(Some(Work::of(parsed))) });
        }
        let types: Arc<[Option<SqlType>]> = types.into();
        let planned = self.plan(parsed, &types).await?;
        let known = planned.parameters.iter().enumerate().map(|(at, ty)| {
            ty.ok_or_else(|| {
                let message = format!("could not determine data type of parameter ${}", at + 1);
                SqlError::new(SqlState::INDETERMINATE_TYPE, message)
            })
        });
        let parameters = known.collect::<SqlResult<_>>()?;
        // The rows of a COPY are data to its client.
        let no_columns = Arc::default();
        let columns = match planned.verb {
            // So are those of a cursor to who fetches them.
            Verb::CopyOut(_) | Verb::Declare(_) => &no_columns,
            _ => &planned.columns,
        };
        let columns = Arc::clone(columns);
        let work = Work { types, told: Some(planned), ..Work::of(parsed) };
        Ok(Prepared { work: Some(work), parameters, columns })
    }

    /// The plan of a statement, in the state of its tables that the transaction sees.
    async fn plan(
        &mut self,
        parsed: &Arc<ParsedStatement>,
        types: &Arc<[Option<SqlType>]>,
    ) -> SqlResult<Arc<Planned>> {
        let is_alone = self.state == TransactionState::Idle;
        if is_alone {
            self.begin_to_look()?;
        }
        let (parsed, types) = (Arc::clone(parsed), Arc::clone(types));
        let run = self.bare_run()?;
        let planned = self.txn.run(move |txn| {
            Box::pin(async move {
                txn.begin_statement()?;
                let planned =
                    super::planning::plan_of(txn, &parsed, &types, &run.path_source()).await;
                txn.end_statement();
                planned
            })
        });
        let planned = planned.await;
        if is_alone {
            self.end_failed().await?;
        }
        planned.map_err(|error| from_txn(error, None))?
    }

    /// Runs a prepared statement with values for its parameters, which are of its types, and gives
    /// its rows to a client as they come.
    ///
    /// # Errors
    /// As [`execute_into`](Self::execute_into); 0A000 if its tables have changed so that its rows
    /// or its parameters would not be of the types that they were of when it was prepared.
    pub async fn run_prepared_into(
        &mut self,
        prepared: &Prepared,
        parameters: Vec<Datum>,
        client: &Arc<dyn Client>,
    ) -> SqlResult<()> {
        let Some(work) = &prepared.work else { return Ok(()) };
        self.statement(&Work { parameters: parameters.into(), ..work.clone() }, client).await
    }

    /// The same, keeping its rows; `None` if there is no statement.
    ///
    /// # Errors
    /// As [`run_prepared_into`](Self::run_prepared_into); 54000 if it gives more than 1 GiB.
    pub async fn run_prepared(
        &mut self,
        prepared: &Prepared,
        parameters: Vec<Datum>,
    ) -> SqlResult<Option<Outcome>> {
        let Some(work) = &prepared.work else { return Ok(None) };
        self.collect(&Work { parameters: parameters.into(), ..work.clone() }).await.map(Some)
    }
}
