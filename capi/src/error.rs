//! The error of the last function of a thread that has failed.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

use crate::call::Failure;

/// Why a function has failed.
#[repr(C)]
#[derive(Debug)]
pub struct ErrorInfo {
    /// PostgreSQL's SQLSTATE, of five characters; "00000" if nothing has failed in this thread.
    pub state: *const c_char,
    /// What happened, in a line.
    pub message: *const c_char,
    /// More about that, or NULL.
    pub detail: *const c_char,
    /// What would help, or NULL.
    pub hint: *const c_char,
    /// The first character of the statement that it is about, counted from 1; 0 for none.
    pub position: size_t,
    /// 1 if the same transaction may succeed when it is run again (40001, 40P01), else 0.
    pub is_retryable: i32,
}

/// What `usize` is called in C.
#[expect(non_camel_case_types, reason = "the name is that of C")]
type size_t = usize;

/// The error, and the texts that it points to.
struct Kept {
    info: ErrorInfo,
    _texts: [Option<CString>; 4],
}

impl Kept {
    fn of(state: &str, failure: Option<&Failure>) -> Self {
        let text = |text: &str| CString::new(text.replace('\0', " ")).ok();
        let texts = [
            text(state),
            text(failure.map_or("", |own| &own.message)),
            failure.and_then(|own| text(own.detail.as_deref()?)),
            failure.and_then(|own| text(own.hint.as_deref()?)),
        ];
        let place = |text: &Option<CString>| text.as_deref().map_or(ptr::null(), CStr::as_ptr);
        let [state, message, detail, hint] = &texts;
        let info = ErrorInfo {
            state: place(state),
            message: place(message),
            detail: place(detail),
            hint: place(hint),
            position: failure.map_or(0, |own| own.position),
            is_retryable: failure.is_some_and(|own| own.is_retryable).into(),
        };
        Self { info, _texts: texts }
    }
}

thread_local! {
    static LAST: RefCell<Box<Kept>> = RefCell::new(Box::new(Kept::of("00000", None)));
}

/// Keeps an error for the thread.
pub(crate) fn keep(failure: Failure) {
    let kept = Box::new(Kept::of(failure.state.code(), Some(&failure)));
    // A thread that ends asks for no error.
    let _ = LAST.try_with(|last| *last.borrow_mut() = kept);
}

/// Why the last function of this thread has failed that gave `SELKIE_ERROR`. Never NULL, but in a
/// thread that ends. It is valid until the next failure in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn selkie_error() -> *const ErrorInfo {
    LAST.try_with(|last| &raw const last.borrow().info).unwrap_or(ptr::null())
}
