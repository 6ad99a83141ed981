//! Coherence: the latch word, the state machine of a line, and its model check.
//!
//! `machine`, `word` and `model` are pure; `line` drives them.

pub(crate) mod line;
pub mod machine;
pub(crate) mod mail;
pub(crate) mod message;
pub(crate) mod messenger;
pub(crate) mod open_line;
pub mod word;

#[cfg(test)]
mod model;
#[cfg(test)]
mod table;
