//! Page tests: edits, splits, damage.

mod common;
mod damage;
mod edits;
mod merging;
mod sizes;
mod splits;
