//! Columns of a statement and of its present row, by their index from 0.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use selkie::sql::{ColumnError, Datum, FromSql, OutputColumn, QueryError, Row, SqlState, SqlType};

use crate::call::{Failure, SELKIE_OK, call};
use crate::pointer::Place;
use crate::registry;
use crate::statement::{Running, State, Statement};

fn column(running: &Running, index: usize) -> Result<&OutputColumn, Failure> {
    let columns = running.statement.columns();
    let missing = ColumnError::NoIndex { index, count: columns.len() };
    columns.get(index).ok_or_else(|| QueryError::from(missing).into())
}

fn row(state: &State) -> Result<&Row, Failure> {
    let message = "the statement is at no row: selkie_step has to give SELKIE_ROW before";
    state.row.as_ref().ok_or_else(|| Failure::new(SqlState::OBJECT_NOT_READY, message))
}

/// The value of a column of the present row.
fn value<T: FromSql>(statement: *mut Statement, index: usize) -> Result<T, Failure> {
    let running: Arc<Running> = registry::find(statement)?;
    let state = running.state()?;
    Ok(row(&state)?.get(index).map_err(QueryError::from)?)
}

/// How many columns the rows of a statement have; 0 if it gives no rows.
///
/// # Safety
/// `count` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_count(statement: *mut Statement, count: *mut usize) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(count, "count", 0) }?;
        let running: Arc<Running> = registry::find(statement)?;
        place.put(running.statement.columns().len());
        Ok(SELKIE_OK)
    })
}

/// The name of a column. It is valid until the statement is finalized.
///
/// # Safety
/// `name` is NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_name(
    statement: *mut Statement,
    index: usize,
    name: *mut *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(name, "name", ptr::null()) }?;
        let running: Arc<Running> = registry::find(statement)?;
        column(&running, index)?;
        place.put(running.names.get(index).map_or(ptr::null(), |own| own.as_ptr()));
        Ok(SELKIE_OK)
    })
}

/// The type of a column, by PostgreSQL's number: 16 boolean, 20 bigint, 21 smallint, 23 integer, 25
/// text, 17 bytea, 701 double precision, 1700 numeric, and so on.
///
/// # Safety
/// `oid` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_type(
    statement: *mut Statement,
    index: usize,
    oid: *mut u32,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(oid, "oid", 0) }?;
        let running: Arc<Running> = registry::find(statement)?;
        place.put(column(&running, index)?.ty.oid());
        Ok(SELKIE_OK)
    })
}

/// Whether a value is NULL: 1 or 0.
///
/// # Safety
/// `is_null` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_is_null(
    statement: *mut Statement,
    index: usize,
    is_null: *mut i32,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(is_null, "is_null", 0) }?;
        place.put(value::<Datum>(statement, index)?.is_null().into());
        Ok(SELKIE_OK)
    })
}

/// A value of type boolean: 1 or 0. NULL is an error.
///
/// # Safety
/// `value` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_bool(
    statement: *mut Statement,
    index: usize,
    value: *mut i32,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(value, "value", 0) }?;
        place.put(self::value::<bool>(statement, index)?.into());
        Ok(SELKIE_OK)
    })
}

/// A value of type smallint, integer or bigint. NULL is an error.
///
/// # Safety
/// `value` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_int64(
    statement: *mut Statement,
    index: usize,
    value: *mut i64,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(value, "value", 0) }?;
        place.put(self::value::<i64>(statement, index)?);
        Ok(SELKIE_OK)
    })
}

/// A value of type real or double precision. NULL is an error.
///
/// # Safety
/// `value` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_double(
    statement: *mut Statement,
    index: usize,
    value: *mut f64,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(value, "value", 0.0) }?;
        place.put(self::value::<f64>(statement, index)?);
        Ok(SELKIE_OK)
    })
}

/// A value of any type as text in UTF-8, with a 0 behind it; NULL if it is NULL. `length`, if it is
/// not NULL, gets its bytes. The text is valid until the next step, reset or finalize of the
/// statement.
///
/// # Safety
/// `text` is NULL or a place for a pointer, `length` NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_text(
    statement: *mut Statement,
    index: usize,
    text: *mut *const c_char,
    length: *mut usize,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(text, "text", ptr::null()) }?;
        // SAFETY: the caller says so.
        let bytes = unsafe { Place::optional(length, "length", 0) }?;
        let running: Arc<Running> = registry::find(statement)?;
        let mut state = running.state()?;
        let found = row(&state)?.text(index).map_err(QueryError::from)?;
        if let Some(found) = found {
            place.put(state.text(index, &found)?.as_ptr());
            bytes.put(found.len());
        }
        Ok(SELKIE_OK)
    })
}

/// A value of type bytea; NULL if it is NULL. It is valid until the next step, reset or finalize of
/// the statement.
///
/// # Safety
/// `bytes` is NULL or a place for a pointer, `length` NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_column_blob(
    statement: *mut Statement,
    index: usize,
    bytes: *mut *const u8,
    length: *mut usize,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let place = unsafe { Place::new(bytes, "bytes", ptr::null()) }?;
        // SAFETY: the caller says so.
        let count = unsafe { Place::new(length, "length", 0) }?;
        let running: Arc<Running> = registry::find(statement)?;
        let state = running.state()?;
        let found = row(&state)?;
        let own = column(&running, index)?;
        if own.ty != SqlType::BYTEA {
            let (column, wanted) = (own.name.clone(), "bytes");
            return Err(
                QueryError::from(ColumnError::Type { column, found: own.ty, wanted }).into()
            );
        }
        // The row has the bytes, and stays until the next step.
        if let Some(Datum::Bytes(found)) = found.values().get(index) {
            count.put(found.len());
            place.put(found.as_ptr());
        }
        Ok(SELKIE_OK)
    })
}
