//! Statements that are prepared, and values for their parameters.

use std::sync::Arc;

use selkie_sql::{
    Datum, OutputColumn, PlanCache, Prepared, SqlError, SqlResult, SqlState, SqlType,
};

use super::error::QueryError;
use super::to_sql::ToSql;

/// Values for the parameters `$1`, `$2` and so on.
pub type Params<'p> = &'p [&'p (dyn ToSql + Sync)];

/// A statement that was parsed once, to be run often. Clones are cheap, and any connection of the
/// [`SqlDatabase`](super::SqlDatabase), or a clone of it, can run it; others refuse it with 26000.
///
/// When a table was changed so that the statement would give other columns, it fails with 0A000,
/// and has to be prepared again.
#[derive(Clone)]
pub struct Statement {
    prepared: Arc<Prepared>,
    /// The plans of the database that it is of.
    plans: Arc<PlanCache>,
}

impl Statement {
    pub(super) fn new(prepared: Prepared, plans: &Arc<PlanCache>) -> Self {
        Self { prepared: Arc::new(prepared), plans: Arc::clone(plans) }
    }

    /// What was prepared, for a connection of a database. Its plan is right for no other: tables
    /// of two databases may have the same ids.
    pub(super) fn prepared(&self, plans: &Arc<PlanCache>) -> SqlResult<&Prepared> {
        if Arc::ptr_eq(plans, &self.plans) {
            return Ok(&self.prepared);
        }
        let message = "the statement was prepared by another handle of a database";
        Err(SqlError::new(SqlState::INVALID_STATEMENT_NAME, message))
    }

    /// The types of its parameters, `$1` first.
    #[must_use]
    pub fn parameters(&self) -> &[SqlType] {
        self.prepared.parameters()
    }

    /// The columns of its rows; none if it gives no rows.
    #[must_use]
    pub fn columns(&self) -> &[OutputColumn] {
        self.prepared.columns()
    }

    /// Values, of the types of the parameters.
    pub(super) fn bind(&self, params: Params<'_>) -> Result<Vec<Datum>, QueryError> {
        let types = self.parameters();
        if types.len() != params.len() {
            let (wanted, given) = (types.len(), params.len());
            return Err(QueryError::ParameterCount { wanted, given });
        }
        let values = params.iter().zip(types).enumerate().map(|(at, (value, ty))| {
            let value: SqlResult<Datum> = value.to_sql(*ty);
            value.map_err(|source| QueryError::Parameter { number: at + 1, source })
        });
        values.collect()
    }
}

impl std::fmt::Debug for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statement")
            .field("parameters", &self.parameters())
            .field("columns", &self.columns())
            .finish()
    }
}

/// What can be run: the text of a statement, or one that was [prepared](Statement).
pub trait Runnable: Sync {
    /// Which of both it is.
    fn source(&self) -> Source<'_>;
}

/// A text or a prepared statement.
#[derive(Clone, Copy, Debug)]
pub enum Source<'s> {
    /// A text of one statement. Its plan is kept by the database for the next time.
    Text(&'s str),
    /// A prepared statement.
    Prepared(&'s Statement),
}

impl Runnable for str {
    fn source(&self) -> Source<'_> {
        Source::Text(self)
    }
}

impl Runnable for String {
    fn source(&self) -> Source<'_> {
        Source::Text(self)
    }
}

impl Runnable for Statement {
    fn source(&self) -> Source<'_> {
        Source::Prepared(self)
    }
}

impl<R: Runnable + ?Sized> Runnable for &R {
    fn source(&self) -> Source<'_> {
        (**self).source()
    }
}
