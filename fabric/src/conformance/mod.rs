//! The contract on the front page of the crate as a list of named checks for any fabric.
//!
//! A test of a backend or a decorator calls [`run_all`] with a function that makes a fresh
//! [`Subject`] for each check. The checks use only the public traits. Their tasks race, so the
//! environment of the subject should have several worker threads.
//!
//! ```
//! use selkie_fabric::conformance::{Subject, run_all};
//! use selkie_fabric::{MemFabric, RealRuntime};
//!
//! let report = run_all(&|| {
//!     let fabric = MemFabric::new();
//!     let killer = fabric.clone();
//!     let runtime = RealRuntime::new(4).expect("threads");
//!     Subject::real(runtime, move |_env| (fabric, Box::new(move |peer| killer.kill(peer))))
//! });
//! report.assert_passed();
//! ```
//! Contents: `check` (subjects, one check), `runner` (all checks, reports), `testbed` (two
//! connected nodes), and the checks by theme: `verbs`, `order`, `errors`, `concurrency`,
//! `doorbells`, `death`.

mod check;
mod concurrency;
mod death;
mod doorbells;
mod errors;
mod order;
mod runner;
mod testbed;
mod verbs;

pub use check::{Check, CheckFailure, CheckResult, Kill, Subject};
pub use runner::{Report, checks, run_all};
