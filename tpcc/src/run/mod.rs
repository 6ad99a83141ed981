//! What every run of a benchmark of transactions does: workers, measurement, and tasks that load or
//! check.
//!
//! ```text
//! terminal      a worker's loop: draw a transaction type, run it to its end, and again
//! interval      workers on all compute nodes, the clock that stops them, counters at both ends
//! statistics    what a worker measures, and the sum over all workers
//! load_report   what a load did
//! progress      the observer who is told of stages and their steps
//! pieces        work on a range of numbers, shared by tasks on all compute nodes
//! tasks         futures side by side
//! retries       how often a transaction that met a conflict is tried again
//! ```

mod interval;
mod load_report;
pub(crate) mod pieces;
mod progress;
pub(crate) mod retries;
mod statistics;
pub(crate) mod tasks;
mod terminal;

pub use interval::Interval;
pub(crate) use interval::{WorkerIdentity, measure};
pub use load_report::LoadReport;
pub(crate) use load_report::tell_load;
pub use progress::{Progress, Silent};
pub(crate) use progress::{advance, check_interrupted};
pub use statistics::{Latency, Measurements, TransactionStats};
pub use terminal::{Terminal, TransactionOutcome};
pub(crate) use terminal::{WORKER_STREAMS, work};
