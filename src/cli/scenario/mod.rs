//! `selkie scenario`: pools of real processes under load, with faults, and a judgement of what came
//! of it.
//!
//! ```text
//! file ---> plan ---> stage: memory nodes, load, drivers, faults ---> outcome ---> verdict ---> report
//!           pure             processes, namespaces                    as seen      pure (series)
//! ```
//! What is run is this program itself: the processes are those that people start by hand.
//!
//! Contents: `command` (what people say), `file` (as it is written), `plan` (what it means), `fit`
//! (whether pool and drivers can be so), `options` (how processes are started), `stage` (while it
//! runs), `processes`, `namespaces`, `outcome` (what was seen), `series` (throughput), `verdict`,
//! `report`, `error`.

mod command;
mod error;
mod file;
mod fit;
mod namespaces;
mod options;
mod outcome;
mod plan;
mod processes;
mod report;
mod series;
mod stage;
mod verdict;

pub(crate) use command::{Arguments, run};
