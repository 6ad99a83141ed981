//! What all functions have in common: a status, an error that is kept, and no panic.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use selkie::sql::{QueryError, SqlError, SqlState};

use crate::error;

/// The function has done what it is for.
pub const SELKIE_OK: i32 = 0;
/// `selkie_step`: there is a row.
pub const SELKIE_ROW: i32 = 1;
/// `selkie_step`: the statement is over, and there are no more rows.
pub const SELKIE_DONE: i32 = 2;
/// The function has failed: `selkie_error` says why.
pub const SELKIE_ERROR: i32 = -1;

/// Why a function fails. Public for tests, as [`call`].
#[derive(Debug)]
pub struct Failure {
    pub(crate) state: SqlState,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) position: usize,
    pub(crate) is_retryable: bool,
}

impl Failure {
    pub(crate) fn new(state: SqlState, message: impl Into<String>) -> Self {
        let (message, detail, hint) = (message.into(), None, None);
        Self { state, message, detail, hint, position: 0, is_retryable: false }
    }

    /// The thread is not alone with a connection or statement.
    pub(crate) fn in_use(message: &str) -> Self {
        Self::new(SqlState::OBJECT_IN_USE, message)
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let sql = error.sql();
        Self {
            detail: sql.and_then(SqlError::detail_text).map(str::to_owned),
            hint: sql.and_then(SqlError::hint_text).map(str::to_owned),
            position: sql.and_then(SqlError::position).unwrap_or(0),
            is_retryable: error.is_retryable(),
            ..Self::new(error.state(), error.to_string())
        }
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        QueryError::from(error).into()
    }
}

/// Runs a function: its status, or `SELKIE_ERROR` with the error kept for the thread.
pub fn call(function: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    // What a panic has left half done is in a handle, whose further use is an error or a panic that
    // is caught, too.
    let ran = catch_unwind(AssertUnwindSafe(function));
    let ran = ran.unwrap_or_else(|panic| {
        let message = format!("the library has failed: {}", text(&*panic));
        Err(Failure::new(SqlState::INTERNAL_ERROR, message))
    });
    match ran {
        Ok(status) => status,
        Err(failure) => {
            error::keep(failure);
            SELKIE_ERROR
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}
