//! Sequences: numbers that no two transactions get, on no two nodes.
//!
//! A sequence is two rows of the catalogue: its definition, found by its name, and how far it is,
//! found by its identity. A node takes a block of values at a time, in a transaction of its own
//! whose commit is durable, and gives them out from memory. So most values cost no round trip, a
//! rollback gives none back, and a block of a node that ends is left out.
//!
//! | table | key | row |
//! |---|---|---|
//! | `sequences` | name | identity, start, increment, bounds, size of a block |
//! | `sequence_values` | identity | the last value that was taken |
//!
//! A transaction that takes a value reads the definition only, so it conflicts with changes of the
//! definition and not with others that take values. A change gives the sequence another identity:
//! blocks of the earlier one are worth nothing from then on.

pub(crate) mod blocks;
pub(crate) mod definition;
pub(crate) mod error;
mod next_value;

pub use definition::SequenceSchema;
pub use error::{MAX_SEQUENCE_BLOCK, SequenceError};
