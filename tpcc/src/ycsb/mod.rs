//! YCSB: the core workloads of the Yahoo! Cloud Serving Benchmark.
//!
//! After Cooper, Silberstein, Tam, Ramakrishnan and Sears, "Benchmarking Cloud Serving Systems with
//! YCSB" (SoCC 2010), and version 0.17 of their program. Records have a key and ten fields.
//! Workloads a to f read, update, insert, scan, and read and then write them.
//!
//! ```text
//! config         workload, records, sizes, distribution, nodes
//! workload       the six mixes of five operations
//! distribution   which records requests go to; `zipfian`: ranks, and how they are scattered;
//!                `acknowledged`: which records are known to be there
//! record, rules  keys and fields, and what makes a record whole
//! schema         the table; `statement`: its SQL
//! store          the operations, on the tree, on the table, in SQL
//! client         a worker
//! load, check    what is loaded, and the rules after the run
//! ```
//!
//! Where a choice was open:
//! * Keys are 64-bit numbers, a permutation of the order in which records are inserted. YCSB has
//!   strings with a hash of that number, which is the same for a tree but for their length.
//! * A record has a version of 8 bytes beside its fields, which updates count, so that a lost
//!   update is seen. The bytes of a record that is read are checked whenever it is read.
//! * An update writes one field, and reads and inserts have all of them, as YCSB has it unless told
//!   otherwise.
//! * A read-modify-write is one transaction; in the tree it is one change of a leaf. YCSB has a
//!   read and an update.
//! * Requests to inserted records, scans and their lengths are as YCSB has them unless told
//!   otherwise: workload d reads the latest, e scans from scattered records on, 1 to 100 of them,
//!   each length as often as any other.
//!
//! After the run every record that was loaded or inserted is there and no other is, its version is
//! the number of its committed updates, and each field is a whole value of this field of this
//! record.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use selkie_tpcc::{Setup, Silent, benchmark, ycsb};
//!
//! let setup = Setup { duration: Duration::from_millis(200), ..Setup::default() };
//! let config = ycsb::Config { records: 1_000, setup, ..Default::default() };
//! let progress: Arc<dyn selkie_tpcc::Progress> = Arc::new(Silent);
//! let report = ycsb::run(&benchmark::Valid::new(config)?, &progress)?;
//! assert!(report.holds());
//! # Ok::<(), selkie_tpcc::TpccError>(())
//! ```

mod acknowledged;
mod benchmark;
mod check;
mod client;
mod config;
mod distribution;
mod ledger;
mod load;
mod record;
mod rules;
mod run;
mod schema;
mod statement;
mod store;
mod workload;
mod zipfian;

pub use config::{Config, LoadMethod, MAX_RECORDS};
pub use distribution::{Distribution, UnknownDistribution};
pub use ledger::RecordLedger;
pub use record::FIELDS;
pub use run::run;
pub use schema::Tables;
pub use store::Via;
pub use workload::{Operation, UnknownWorkload, Workload};
