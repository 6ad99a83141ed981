//! SQL on a Selkie database for programs in C: `capi/include/selkie.h`.
//!
//! The functions are those of [`selkie::sql`], which wait until they are done.
//! `capi/examples/bank.c` shows them.
//!
//! # Handles
//! A database, a connection and a statement are numbers in the shape of pointers. They are looked
//! up in a registry (`registry`) and never followed, so that a handle that is null, closed, of
//! another kind or garbage is an error, not a crash. Texts and places for results are followed:
//! they are checked as far as that is possible (null, alignment, UTF-8), and have to be valid.
//!
//! # Errors
//! Functions give a status. What went wrong is kept for the thread, with its SQLSTATE, until its
//! next failure (`selkie_error`). No panic leaves a function: it is an error with the code XX000.
//!
//! # Threads
//! All functions may be called by any thread. A connection and its statements do one thing at a
//! time: a second thread gets 55006, and so does a second statement while rows of the first are
//! left unread (until `selkie_step` gives `SELKIE_DONE`, `selkie_reset` or `selkie_finalize`).
//! `selkie_cancel` is for another thread. What `selkie_column_text` and `selkie_column_blob` point
//! to is valid until the next step, reset or finalize of the same statement. After a `fork` the
//! child may call nothing here.
//!
//! Contents: `registry` (handles), `call` (statuses, panics), `error` (the error of a thread),
//! `pointer` (texts and places: all that is unsafe is there), and the functions: `database`,
//! `connection`, `statement`, `bind`, `column`.

#[doc(hidden)]
pub mod bind;
#[doc(hidden)]
pub mod call;
#[doc(hidden)]
pub mod column;
#[doc(hidden)]
pub mod connection;
#[doc(hidden)]
pub mod database;
#[doc(hidden)]
pub mod error;
mod lent;
mod pointer;
mod registry;
#[doc(hidden)]
pub mod statement;
