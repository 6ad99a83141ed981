//! Coherence: the latch word, the state machine of a line, and its model check.
//!
//! Everything here is pure; [`crate::line`] drives it.

pub mod machine;
pub mod word;

#[cfg(test)]
mod model;
