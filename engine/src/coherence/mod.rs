//! Coherence: the latch word, the state machine of a line, and its model check.
//!
//! Everything here is pure; the engine's `line` module drives it.

pub mod machine;
pub mod word;

#[cfg(test)]
mod model;
#[cfg(test)]
mod table;
