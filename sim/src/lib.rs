//! Whole clusters on one thread from one seed: scenarios, fault plans, checkers.
//!
//! A run takes a [`Scenario`] and a seed. The seed decides everything: the size of the cluster,
//! what its clients do, what the network costs, the faults and their times ([`Plan`]), and the
//! order of tasks. So a failure is a seed, and two runs of one seed are equal to the last event.
//!
//! ```
//! use selkie_sim::{Case, Scenario, run};
//!
//! let case = Case::of(Scenario::Counter, 7);
//! let summary = run(case, None)?;
//! assert_eq!(summary.trace_hash, run(case, None)?.trace_hash);
//! # Ok::<(), Box<selkie_sim::Failure>>(())
//! ```
//!
//! Contents: `scenario` (what clients do and what must hold), `plan` (faults), `cluster` (nodes in
//! a simulated world, and their memory), `disk` (disks for their logs), [`check`] (checkers of
//! histories), `sweep` (runs of many seeds).
#![forbid(unsafe_code)]

pub mod check;
mod cluster;
mod disk;
mod envelope;
mod error;
mod failure;
mod plan;
mod scenario;
mod sweep;

pub use cluster::{RUN_BOUND, SimCluster, SimShape};
pub use disk::{AppendStage, DiskConfig, SimDisk};
pub use envelope::Envelope;
pub use error::SimError;
pub use failure::Failure;
pub use plan::{ClockGoesOn, Plan, Trouble, WayToPlane};
pub use scenario::{
    Case, RecordedHistory, Refused, RefusedProtocol, Scenario, Summary, Tune, UnknownScenario,
    history, run, run_with,
};
pub use sweep::{SweepSummary, sweep};
