//! `selkie top`: what a pool does, live or once.
//!
//! Contents: `snapshot` (what is seen, without I/O), `draw` (it on a terminal), `screen` (the
//! terminal), `plain` (it as a table), `units` (figures in words).

mod command;
mod draw;
pub(crate) mod plain;
mod screen;
pub(crate) mod snapshot;
mod units;

pub(crate) use command::{Arguments, check, run};
