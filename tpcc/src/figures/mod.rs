//! The part of a report that all benchmarks have, as JSON and as tables.

mod interval;
mod shape;
mod tables;
pub mod units;

pub(crate) use interval::columns;
pub(crate) use tables::{object, plain};
