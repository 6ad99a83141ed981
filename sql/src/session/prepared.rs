//! Prepared statements.

use std::sync::Arc;

use selkie_txn::{Txn, TxnError};

use super::{Outcome, Session, TransactionState, Work, control};
use crate::bind::{Binder, OutputColumn};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::parse::parse;
use crate::types::{Datum, SqlType};

/// A statement that was parsed, with the types of what it takes and gives.
#[derive(Clone)]
pub struct Prepared {
    /// `None` if the text has no statement.
    work: Option<Work>,
    parameters: Vec<SqlType>,
    columns: Vec<OutputColumn>,
}

impl Prepared {
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

    /// Whether it is no statement at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.work.is_none()
    }
}

impl Session {
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
        let mut statements = parse(sql)?;
        if statements.len() > 1 {
            let message = "cannot insert multiple commands into a prepared statement";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let Some(statement) = statements.pop() else {
            return Ok(Prepared { work: None, parameters: Vec::new(), columns: Vec::new() });
        };
        let work = Work { types: types.into(), ..Work::of(statement, &sql.into()) };
        self.check_not_failed(&work.statement)?;
        if !control::has_tables(&work.statement) {
            let columns = self.control_columns(&work.statement)?;
            return Ok(Prepared { work: Some(work), parameters: Vec::new(), columns });
        }
        let is_alone = self.state == TransactionState::Idle;
        if is_alone {
            self.begin(self.settings.isolation, true)?;
        }
        let (own, settings) = (work.clone(), Arc::clone(&self.settings));
        let described = self
            .txn
            .run(move |txn| Box::pin(async move { describe(txn, &own, &settings.format).await }));
        let described = described.await;
        if is_alone {
            self.end_failed().await?;
        }
        let (parameters, columns) = described.map_err(|error| from_txn(error, None))??;
        let types: Arc<[Option<SqlType>]> = parameters.iter().copied().map(Some).collect();
        Ok(Prepared { work: Some(Work { types, ..work }), parameters, columns })
    }

    /// Runs a prepared statement with values for its parameters, which are of its types.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub async fn run_prepared(
        &mut self,
        prepared: &Prepared,
        parameters: Vec<Datum>,
    ) -> SqlResult<Outcome> {
        let Some(work) = &prepared.work else { return Ok(Outcome::done("")) };
        self.statement(&Work { parameters: parameters.into(), ..work.clone() }).await
    }
}

/// The types of the parameters and columns of a statement.
type Described = (Vec<SqlType>, Vec<OutputColumn>);

async fn describe(
    txn: &mut Txn<'_>,
    work: &Work,
    format: &crate::types::FormatSettings,
) -> Result<SqlResult<Described>, TxnError> {
    txn.begin_statement()?;
    let tables = super::tables::load_tables(txn, &work.statement).await;
    txn.end_statement();
    let tables = match tables? {
        Ok(tables) => tables,
        Err(error) => return Ok(Err(error)),
    };
    let mut binder = Binder::new(&work.sql, &tables, format, &work.types);
    if super::define::is_definition(&work.statement) {
        return Ok(Ok((Vec::new(), Vec::new())));
    }
    Ok(super::run::bind(&mut binder, &work.statement).and_then(|bound| {
        let known = binder.parameters.iter().enumerate().map(|(at, ty)| {
            ty.ok_or_else(|| {
                let message = format!("could not determine data type of parameter ${}", at + 1);
                SqlError::new(SqlState::INDETERMINATE_TYPE, message)
            })
        });
        Ok((known.collect::<SqlResult<_>>()?, bound.columns))
    }))
}
