//! Databases.

use std::ffi::c_char;
use std::ptr;

use selkie::sql::SqlState;
use selkie::{SqlDatabase, block_on};

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
/// `tcp:HOST:PORT,...` (pools that processes share). The handle has to be closed.
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
        let failed = |error| Failure::new(SqlState::CONNECTION_EXCEPTION, format!("{error}"));
        let opened = block_on(SqlDatabase::open(url)).map_err(failed)?;
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
        let failed = |error| Failure::new(SqlState::CONNECTION_EXCEPTION, format!("{error}"));
        block_on(open.close()).map_err(failed)?;
        Ok(SELKIE_OK)
    })
}
