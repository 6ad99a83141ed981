//! The statements that a client has prepared.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_sql::{Prepared, SqlError, SqlResult, SqlState};

/// They, by their names: DEALLOCATE, which is a statement itself, forgets some.
pub(crate) type SharedStatements = Arc<Mutex<HashMap<String, Prepared>>>;

/// That no statement has such a name.
pub(crate) fn no_statement(name: &str) -> SqlError {
    let message = match name {
        "" => "unnamed prepared statement does not exist".to_owned(),
        name => format!("prepared statement \"{name}\" does not exist"),
    };
    SqlError::new(SqlState::INVALID_STATEMENT_NAME, message)
}

/// Forgets a statement, or all.
pub(crate) fn forget(statements: &SharedStatements, name: Option<&str>) -> SqlResult<()> {
    let mut statements = statements.lock();
    match name {
        None => statements.clear(),
        Some(name) => drop(statements.remove(name).ok_or_else(|| no_statement(name))?),
    }
    Ok(())
}
