//! Pointers that a program in C gives: texts, bytes, and places for results.

use std::ffi::{CStr, c_char};
use std::slice;

use selkie::sql::SqlState;

use crate::call::Failure;

/// A wrong pointer, by the name of the parameter.
fn wrong(name: &str, what: &str) -> Failure {
    Failure::new(SqlState::INVALID_PARAMETER, format!("`{name}` {what}"))
}

/// A text.
///
/// # Safety
/// It is null, or points to bytes with a zero behind them, which do not change during `'t`.
pub(crate) unsafe fn text<'t>(pointer: *const c_char, name: &str) -> Result<&'t str, Failure> {
    if pointer.is_null() {
        return Err(wrong(name, "is NULL"));
    }
    // SAFETY: the caller says that there is a text.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| {
        Failure::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, format!("`{name}` is not UTF-8"))
    })
}

/// An array of so many elements; null is one of none.
///
/// # Safety
/// Unless `count` is 0, it is null or points to so many elements, which do not change during `'t`.
pub(crate) unsafe fn array<'t, T>(
    pointer: *const T,
    count: usize,
    name: &str,
) -> Result<&'t [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(wrong(name, "is NULL"));
    }
    if !pointer.is_aligned() {
        return Err(wrong(name, "is not aligned"));
    }
    if count.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(wrong(name, "is longer than memory"));
    }
    // SAFETY: the caller says that they are there; a slice may be of that size.
    Ok(unsafe { slice::from_raw_parts(pointer, count) })
}

/// A place for a result.
pub(crate) struct Place<T>(*mut T);

impl<T> Place<T> {
    /// A place that has to be there; it is set to a first value.
    ///
    /// # Safety
    /// It is null, or may be written as long as the place is used.
    pub(crate) unsafe fn new(pointer: *mut T, name: &str, first: T) -> Result<Self, Failure> {
        if pointer.is_null() {
            return Err(wrong(name, "is NULL"));
        }
        // SAFETY: as the caller says.
        unsafe { Self::optional(pointer, name, first) }
    }

    /// A place that may be null: then the result is not wanted.
    ///
    /// # Safety
    /// As [`new`](Self::new).
    pub(crate) unsafe fn optional(pointer: *mut T, name: &str, first: T) -> Result<Self, Failure> {
        if !pointer.is_aligned() {
            return Err(wrong(name, "is not aligned"));
        }
        let place = Self(pointer);
        place.put(first);
        Ok(place)
    }

    pub(crate) fn put(&self, value: T) {
        if !self.0.is_null() {
            // SAFETY: it is aligned; who made the place says that it may be written.
            unsafe { self.0.write(value) }
        }
    }
}
