//! Checkers: what a history of operations or transactions must look like.
//!
//! [`linear`] judges the operations on one register, [`serial`] transactions over many objects.
//! Both are pure functions of a history, use no clock and no randomness, and name what is wrong in
//! words.

pub mod linear;
pub mod serial;

#[cfg(test)]
mod tests;
