//! Rows and keys as bytes.
//!
//! A [`row_layout`] says where each column of a table is stored. [`row_builder`] writes a row,
//! [`row_ref`] reads one in place, [`row_mut`] changes one; [`moved_values`] are those that a row
//! has no room for. A [`key`] encodes columns so that bytes compare as the values do;
//! [`key_column`] has the order of a column and tells the parts of a key apart, and [`key_value`]
//! reads them back. A [`value`] is of any type; [`decimal`] and [`temporal`] have those that Rust
//! does not have. A [`named_row_error`] says what is wrong with a row. Nothing here knows trees or
//! transactions.

pub(crate) mod decimal;
pub mod key;
pub(crate) mod key_column;
pub(crate) mod key_range;
pub(crate) mod key_value;
pub(crate) mod moved_values;
pub(crate) mod named_row_error;
pub(crate) mod row_builder;
pub(crate) mod row_bytes;
pub(crate) mod row_error;
pub(crate) mod row_layout;
pub(crate) mod row_mut;
pub(crate) mod row_names;
pub(crate) mod row_ref;
pub(crate) mod shown_key;
pub(crate) mod shown_value;
pub(crate) mod temporal;
pub(crate) mod value;

pub use decimal::{Decimal, DecimalError, DecimalRef};
pub use key::{KeyBuf, KeyPart};
pub use key_range::KeyRange;
pub use named_row_error::NamedRowError;
pub use row_builder::RowBuilder;
pub use row_error::RowError;
pub use row_mut::RowMut;
pub use row_ref::RowRef;
pub use temporal::{Interval, MAX_TIME_US};
pub use value::Value;
