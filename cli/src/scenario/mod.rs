//! `selkie scenario`: pools of real processes under load, with faults, and a judgement of what came
//! of it.
//!
//! ```text
//! file --> plan --> run: memory nodes, load, drivers, faults --> observed --> verdict --> report
//!          pure          processes, namespaces                             pure (series)
//! ```
//! What is run is this program itself: the processes are those that people start by hand.
//!
//! Contents: `command` (the arguments), `file` (what a file says), `plan` (what it means), `ends`
//! (how each process must end), `planning` (makes the plan of a file), `fit` (whether the pool and
//! the drivers can be so), `options` (how processes are started), `runner` (the run), `processes`,
//! `namespaces`, `observed` (what the run saw), `series` (throughput), `verdict`, `report`,
//! `draw` (files drawn at random), `random` (rounds of them), `error`.

mod command;
mod draw;
mod ends;
pub(crate) mod error;
mod file;
mod fit;
mod namespaces;
mod observed;
pub(crate) mod options;
mod plan;
mod planning;
pub(crate) mod processes;
mod random;
mod report;
mod runner;
mod series;
mod verdict;

pub(crate) use command::{Arguments, run};
