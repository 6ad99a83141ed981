//! Benchmarks over a Selkie pool: TPC-C, [`smallbank`], [`tatp`], [`ycsb`], and a micro-benchmark
//! of the coherence protocols ([`micro`]). Each benchmark loads its data, runs its mix on all
//! compute nodes, checks the result, and reports.
//!
//! TPC-C follows revision 5.11 of the specification: nine tables at their cardinalities, all five
//! transactions in full, the mix 45/43/4/4/4, NURand, and the consistency conditions 1 to 12 after
//! the run. Every module cites the clause that it follows, and says where it had a choice.
//!
//! | folder | duty |
//! |---|---|
//! | `tpcc/` | TPC-C: schema, load, inputs, transactions, checks; `partitioned/` on partitions |
//! | [`smallbank`], [`tatp`], [`ycsb`] | the other benchmarks; [`benchmark`] has what they share |
//! | [`micro`] | the micro-benchmark of the coherence protocols |
//! | [`cluster`] | shape and network of a pool and its compute nodes, in this process |
//! | `run/` | workers, retries, the measured interval, progress |
//! | `connection` | SQL that a benchmark runs, and what runs it |
//! | `workload/` | random values, texts, decks of transaction types |
//! | `figures/` | tables and units of reports |
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use selkie_tpcc::{Config, Scale, Silent, run};
//!
//! let config = Config {
//!     warehouses: 1,
//!     compute_nodes: 2,
//!     duration: Duration::from_millis(200),
//!     scale: Scale::divided_by(100),
//!     ..Config::default()
//! };
//! let progress: Arc<dyn selkie_tpcc::Progress> = Arc::new(Silent);
//! let report = run(&config, &progress)?;
//! assert!(report.is_consistent());
//! println!("{report}");
//! # Ok::<(), selkie_tpcc::TpccError>(())
//! ```
#![forbid(unsafe_code)]

pub mod benchmark;
pub mod cluster;
mod connection;
mod error;
mod figures;
pub mod micro;
mod run;
pub mod smallbank;
pub mod tatp;
mod tpcc;
mod workload;
pub mod ycsb;

pub use cluster::{
    ClusterShape, Durability, MAX_DURATION, MAX_MEMORY_NODES, MAX_THREADS, MAX_VIRTUAL_DURATION,
    MAX_WORKERS, Network, Setup, TableSet,
};
pub use connection::{SqlConnection, SqlConnector, SqlRow, SqlValue, StatementText};
pub use error::TpccError;
pub use figures::units;
pub use run::{
    Interval, Latency, LoadReport, Measurements, Progress, Silent, Terminal, TransactionOutcome,
    TransactionStats,
};
pub use tpcc::{
    Affinity, CommitRecords, Config, CustomerBy, DISTRICTS, DeliveryInput, Driver, DriverRole,
    InputSource, LineInput, Lines, LoadPolicy, MAX_COMMIT_RECORDS, MAX_LINES, MAX_WAREHOUSES,
    MIN_LINES, NewOrderInput, NuConstants, ORIGINAL, OrderStatusInput, PaymentInput, Purpose,
    Report, Scale, Session, SqlStatement, StockLevelInput, TpccCluster, TpccInterval, TpccNode,
    TransactionType, UNUSED_ITEM, Via, check, columns, last_name, load, measure, run, run_on,
    run_shared, schema, transactions, warehouses_in,
};
pub use workload::{Deck, Mix, Random, Text};
