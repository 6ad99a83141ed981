//! The contract of the crate's front page as a list of named checks that any fabric can be put to.
//!
//! A backend or a decorator passes a function that makes a fresh [`Subject`] for each check and
//! calls [`run_all`] in a test of its own. The checks use nothing but the public traits; races are
//! provoked by tasks, so the subject's environment should have several worker threads.
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
//! Contents: `runner` (subjects, reports), `stage` (two connected nodes), and the checks by theme:
//! `verbs`, `order`, `errors`, `concurrency`, `doorbells`, `death`.

mod concurrency;
mod death;
mod doorbells;
mod errors;
mod order;
mod runner;
mod stage;
mod verbs;

pub use runner::{Check, CheckResult, Failure, Kill, Report, Subject, checks, run_all};
