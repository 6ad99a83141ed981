//! Databases.

use std::error::Error;
use std::ffi::c_char;
use std::ptr;

use selkie::engine::EngineError;
use selkie::sql::SqlState;
use selkie::{DataDirectoryError, OpenError, SqlDatabase, block_on};

use crate::call::{Failure, SELKIE_OK, call};
use crate::pointer::{Place, text};
use crate::registry::{self, Object};

/// A database that is open.
#[derive(Debug)]
pub struct Database {
    _private: (),
}

/// Opens the database of a pool; a pool without a database gets one. `url` is `embedded:` (in this
/// process, and it ends with it), `embedded:DIR` (kept in a directory), `shm:NAME` or
/// `tcp:HOST:PORT,...` (pools that processes share). The handle has to be closed. It fails with
/// 22023 if the URL is wrong, 55006 if another process has the directory, 53100 if it has no room,
/// 58030 if files cannot be used, and 08000 if the pool is not reached or refuses.
///
/// # Safety
/// `url` is NULL or a text; `database` is NULL or a place for a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_open(url: *const c_char, database: *mut *mut Database) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(database, "database", ptr::null_mut()) }?;
        // SAFETY: the caller says so.
        let url = unsafe { text(url, "url") }?;
        let opened = block_on(SqlDatabase::open(url)).map_err(|error| not_open(&error))?;
        place.put(registry::enter(Object::Database(opened)));
        Ok(SELKIE_OK)
    })
}

/// Closes a database: writes what has changed home, and leaves the pool. Connections that are still
/// there get errors from now on, and have to be closed all the same. The handle is none any more,
/// also if this fails.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_close(database: *mut Database) -> i32 {
    call(|| {
        let open: SqlDatabase = registry::remove(database)?;
        let failed = |error: EngineError| failure(SqlState::CONNECTION_EXCEPTION, &error);
        block_on(open.close()).map_err(failed)?;
        Ok(SELKIE_OK)
    })
}

/// Why a database is not open.
fn not_open(error: &OpenError) -> Failure {
    let state = match error {
        OpenError::Url { .. } | OpenError::Option { .. } => SqlState::INVALID_PARAMETER,
        OpenError::Directory(DataDirectoryError::InUse { .. }) => SqlState::OBJECT_IN_USE,
        OpenError::Directory(DataDirectoryError::NoRoom { .. }) => SqlState::DISK_FULL,
        OpenError::Directory(_) | OpenError::Log(_) => SqlState::IO_ERROR,
        _ => SqlState::CONNECTION_EXCEPTION,
    };
    failure(state, error)
}

/// An error with what has caused it as its detail.
fn failure(state: SqlState, error: &dyn Error) -> Failure {
    let message = error.to_string();
    let sources = std::iter::successors(error.source(), |error| (*error).source());
    let mut causes: Vec<_> = sources.map(ToString::to_string).collect();
    // Some messages have that of their source already.
    causes.retain(|cause| !message.contains(cause.as_str()));
    let detail = (!causes.is_empty()).then(|| causes.join(": "));
    Failure { detail, ..Failure::new(state, message) }
}
