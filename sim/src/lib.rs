//! Whole clusters on one thread from one seed: scenarios, fault plans, checkers.

pub mod check;
