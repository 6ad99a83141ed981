//! Types of SQL and their values: formats, casts, order and arithmetic, as in PostgreSQL.

mod datum;
mod sql_type;

pub use datum::{Array, Datum};
pub use sql_type::{Scalar, SqlType};
