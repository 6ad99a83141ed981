//! The figures: which points each has, what was published about it, and what is written of it.

pub(super) mod failures;
pub(super) mod latency;
mod memory;
pub(super) mod micro;
pub(super) mod sets;
pub(super) mod tpcc;
pub(super) mod two_phase;
