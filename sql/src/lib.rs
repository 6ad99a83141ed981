//! SQL over the tables of a shared pool.
#![forbid(unsafe_code)]

pub mod error;
pub mod functions;
pub mod types;

pub use error::{SqlError, SqlResult, SqlState};
pub use types::{Array, Datum, Scalar, SqlType};
