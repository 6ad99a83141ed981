//! Rows and keys as bytes.
//!
//! A [`row_layout`] says where each column of a table is stored. [`row_builder`] writes a row,
//! [`row_ref`] reads one in place, [`row_mut`] changes one. A [`key`] encodes columns so that bytes
//! compare as the values do. Nothing here knows trees or transactions.

pub mod key;
pub(crate) mod row_builder;
mod row_bytes;
pub(crate) mod row_error;
pub(crate) mod row_layout;
pub(crate) mod row_mut;
pub(crate) mod row_ref;

pub use key::{KeyBuf, KeyPart, KeyRange};
pub use row_builder::RowBuilder;
pub use row_error::RowError;
pub use row_mut::RowMut;
pub use row_ref::{RowRef, Value};
