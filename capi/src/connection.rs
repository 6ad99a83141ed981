//! Connections.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use selkie::sql::TransactionState;
use selkie::{SqlDatabase, block_on};

use crate::call::{SELKIE_OK, call};
use crate::database::Database;
use crate::lent;
use crate::pointer::{Place, text};
use crate::registry::{self, Object};

/// A connection: statements, one after the other.
#[derive(Debug)]
pub struct Connection {
    _private: (),
}

/// `selkie_transaction_state`: no transaction is in progress.
pub const SELKIE_IDLE: i32 = 0;
/// `selkie_transaction_state`: one is in progress.
pub const SELKIE_IN_TRANSACTION: i32 = 1;
/// `selkie_transaction_state`: one is in progress that has failed, and has to be rolled back.
pub const SELKIE_FAILED: i32 = 2;

/// Connects to a database. The connection has to be closed.
///
/// # Safety
/// `connection` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_connect(
    database: *mut Database,
    connection: *mut *mut Connection,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(connection, "connection", ptr::null_mut()) }?;
        let database: SqlDatabase = registry::find(database)?;
        let connected = lent::Place::new(database.connect()?);
        place.put(registry::enter(Object::Connection(connected)));
        Ok(SELKIE_OK)
    })
}

/// Closes a connection. Its transaction is rolled back. Statements of it have to be finalized all
/// the same; one whose rows are being read may be read on.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_disconnect(connection: *mut Connection) -> i32 {
    call(|| {
        let place: Arc<lent::Place> = registry::remove(connection)?;
        place.close();
        Ok(SELKIE_OK)
    })
}

/// Runs all statements of a text, which have no parameters and whose rows are not wanted. Unless
/// they begin a transaction themselves, they are one. `affected`, if it is not NULL, gets how many
/// rows they have changed and given. `commit` in it gives `SELKIE_OK` also when a statement of the
/// transaction has failed and it rolls back: `selkie_commit` does not.
///
/// # Safety
/// `sql` is NULL or a text; `affected` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_execute(
    connection: *mut Connection,
    sql: *const c_char,
    affected: *mut u64,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::optional(affected, "affected", 0) }?;
        // SAFETY: the caller says so.
        let sql = unsafe { text(sql, "sql") }?;
        let found: Arc<lent::Place> = registry::find(connection)?;
        let mut lent = found.lend()?;
        place.put(block_on(lent.batch(sql))?);
        Ok(SELKIE_OK)
    })
}

/// Commits the transaction in progress. It fails, and nothing is committed, with 25P02 if a
/// statement of it has failed, with 25P01 if none is in progress, and with 40001 if it has to be
/// run again. With 08007 it is not known whether it will last. With 55006 another statement uses
/// the connection, and the transaction goes on. After other errors a `rollback` does no harm.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_commit(connection: *mut Connection) -> i32 {
    call(|| {
        let found: Arc<lent::Place> = registry::find(connection)?;
        block_on(found.lend()?.commit())?;
        Ok(SELKIE_OK)
    })
}

/// Ends the statement that the connection runs in another thread: it fails with 57014 at its next
/// wait. Nothing happens if none runs, or if it commits already.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_cancel(connection: *mut Connection) -> i32 {
    call(|| {
        let place: Arc<lent::Place> = registry::find(connection)?;
        place.cancel.cancel();
        Ok(SELKIE_OK)
    })
}

/// Whether a transaction is in progress: `SELKIE_IDLE`, `SELKIE_IN_TRANSACTION` or `SELKIE_FAILED`.
///
/// # Safety
/// `state` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_transaction_state(
    connection: *mut Connection,
    state: *mut i32,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(state, "state", SELKIE_IDLE) }?;
        let found: Arc<lent::Place> = registry::find(connection)?;
        place.put(match found.lend()?.state() {
            TransactionState::Idle => SELKIE_IDLE,
            TransactionState::InTransaction => SELKIE_IN_TRANSACTION,
            TransactionState::Failed => SELKIE_FAILED,
        });
        Ok(SELKIE_OK)
    })
}
