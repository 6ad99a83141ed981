//! Values of parameters, by their number from 1. They stay until they are set anew.

use std::ffi::c_char;
use std::sync::Arc;

use selkie::sql::{SqlState, ToSql};

use crate::call::{Failure, SELKIE_OK, call};
use crate::pointer::{array, text};
use crate::registry;
use crate::statement::{Running, Statement};

fn bind(statement: *mut Statement, number: usize, value: &dyn ToSql) -> Result<i32, Failure> {
    let running: Arc<Running> = registry::find(statement)?;
    running.bind(number, value).map(|()| SELKIE_OK)
}

/// Sets a parameter to NULL.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_bind_null(statement: *mut Statement, number: usize) -> i32 {
    call(|| bind(statement, number, &None::<i64>))
}

/// Sets a parameter of type boolean: 0 is false, 1 is true.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_bind_bool(statement: *mut Statement, number: usize, value: i32) -> i32 {
    call(|| match value {
        0 | 1 => bind(statement, number, &(value == 1)),
        _ => {
            let message = format!("{value} is no boolean: 0 and 1 are");
            Err(Failure::new(SqlState::INVALID_PARAMETER, message))
        }
    })
}

/// Sets a parameter of type smallint, integer, bigint or numeric.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_bind_int64(statement: *mut Statement, number: usize, value: i64) -> i32 {
    call(|| bind(statement, number, &value))
}

/// Sets a parameter of type real or double precision.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_bind_double(statement: *mut Statement, number: usize, value: f64) -> i32 {
    call(|| bind(statement, number, &value))
}

/// Sets a parameter of any type, by its text in UTF-8; NULL is NULL.
///
/// # Safety
/// `value` is NULL or a text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_bind_text(
    statement: *mut Statement,
    number: usize,
    value: *const c_char,
) -> i32 {
    call(|| {
        let value = match value.is_null() {
            true => None,
            // SAFETY: the caller says so.
            false => Some(unsafe { text(value, "value") }?),
        };
        bind(statement, number, &value)
    })
}

/// Sets a parameter of type bytea.
///
/// # Safety
/// `value` points to `length` bytes, or is NULL if that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn selkie_bind_blob(
    statement: *mut Statement,
    number: usize,
    value: *const u8,
    length: usize,
) -> i32 {
    call(|| {
        // SAFETY: the caller says so.
        let value = unsafe { array(value, length, "value") }?;
        bind(statement, number, &value)
    })
}
