//! SQL over the tables of a shared pool.
#![forbid(unsafe_code)]

mod catalogue;
pub mod error;
mod exec;
pub mod functions;
mod plan;
pub mod types;

pub use error::{SqlError, SqlResult, SqlState};
pub use types::{Array, Datum, Scalar, SqlType};
