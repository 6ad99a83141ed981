//! Page tests: edits, splits, damage.

mod common;
mod damage;
mod edits;
mod splits;
