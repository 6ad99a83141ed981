//! `selkie demo`: what this project is, to see: a pool of real processes, one of which is killed.
//!
//! ```text
//! pool --> memory nodes --> load --> drivers --> kill -9 --> another memory node
//!    --> rebuilt --> verdict
//! ```
//! The processes are those that people start by hand, and are started as those of scenarios are.
//! The command looks at the pool itself, as `selkie top` and `selkie pool status` do.
//!
//! Contents: `command` (the arguments, and how it ends), `stage` (the processes), `story` (what
//! happens when, and what is said of it), `view` (the pool as it is seen), `verdict` (what the
//! drivers' reports come to).

mod command;
mod stage;
mod story;
mod verdict;
mod view;

pub(crate) use command::{Arguments, check, run};
