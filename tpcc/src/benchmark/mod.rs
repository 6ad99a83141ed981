//! What SmallBank, TATP and YCSB have in common: everything but their tables, inputs, transactions
//! and rules.
//!
//! A benchmark numbers its rows by keys from 1, as accounts or subscribers, and makes what it loads
//! for a key from seed and key alone. Workers on all compute nodes run its mix on the same data,
//! and note in its *ledger*, after each commit, what the transaction has changed. The check reads
//! every table once, after all writes, and compares it with what was loaded and what the
//! ledger says.
//!
//! ```text
//! load       keys in pieces, pieces in transactions of some keys; all nodes side by side
//! workers    run::Terminal, at as many seats as the setup says; Ledger after each commit
//! check      keys in pieces again: Findings, one rule after the other
//! ```
//!
//! A ledger adds up what is *added* to a value (see [`ChangeSums`]), so it does not matter in which
//! order workers note what they did: where transactions are serializable, the sum of all
//! differences leads from the first value of a row to the last. A transaction that worked on a
//! stale value, or whose change was lost, breaks the sum.

mod change_sums;
mod definition;
mod findings;
mod load_progress;
mod report;
mod runner;
mod scan;
mod sequence;

pub use change_sums::ChangeSums;
pub(crate) use definition::LOAD_STREAMS;
pub use definition::{Benchmark, Valid, WorkerContext};
pub use findings::{Findings, Violation};
pub use load_progress::LoadProgress;
pub use report::Report;
#[cfg(test)]
pub(crate) use runner::tests;
pub use runner::{BenchmarkRun, run};
pub(crate) use scan::{range_of, scan, scan_keys};
pub(crate) use sequence::Sequence;
