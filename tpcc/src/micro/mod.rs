//! The micro-benchmark of SELCC §7.1: workers on every compute node read and write pages of the
//! pool, chosen by read ratio, sharing, locality and skew, under one of the coherence protocols.
//!
//! Every write adds one to a counter in its page. After the run the counters are added up: a
//! protocol that loses or doubles a write has no figures.
//!
//! Contents: `config` (what is run), `workload` (which page next), `run` (a pool, the workers, the
//! clock), `report` (what came out).

mod config;
mod report;
mod run;
mod workload;

pub use config::{Config, ProtocolFeature};
pub(crate) use report::name as coherence_name;
pub use report::{AdapterLoad, Report, ThroughputSample};
pub use run::run;
