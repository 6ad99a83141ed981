//! Drivers over a Selkie pool: TPC-C, [`smallbank`], [`tatp`], and a micro-benchmark of the
//! coherence protocols ([`micro`]). Each loads its data, runs its mix from all compute nodes,
//! checks what came of it, and reports.
//!
//! TPC-C goes by the specification's revision 5.11: nine tables at their cardinalities, all five
//! transactions in full, the mix 45/43/4/4/4, NURand, and the consistency conditions 1 to 12 after
//! the run. Every module cites the clause it follows and says where a choice was open.
//!
//! ```text
//! setup, network, cluster           nodes, workers and sizes; a pool and its nodes here
//! mix, random, progress             decks of transaction types, random values, who looks on
//! run, report                       workers, the measurement, and what is said about it
//! scale, schema, columns, random    what there is: cardinalities, tables, the specified random values
//! load, shared                      the initial database, drivers elsewhere
//! input, kind, transactions         what terminals enter, in which mix, and what is done with it
//! partitioned                       the baseline: warehouses that belong to nodes, and two-phase commit
//! check, journal                    the consistency conditions, and a look at what was committed
//! benchmark, smallbank, tatp        the drivers in a pool of their own: what they share, and each
//! micro                             the micro-benchmark of the coherence protocols
//! ```
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
pub mod check;
mod cluster;
pub mod columns;
mod config;
mod durability;
mod error;
mod input;
mod journal;
mod kind;
mod load;
pub mod micro;
mod mix;
mod network;
mod partitioned;
mod pieces;
mod progress;
mod random;
mod report;
mod run;
mod scale;
pub mod schema;
mod setup;
mod shared;
pub mod smallbank;
mod tasks;
pub mod tatp;
pub mod transactions;
pub mod units;

pub use cluster::{Cluster, Node, TableSet};
pub use config::{Affinity, Config, MAX_WAREHOUSES};
pub use durability::{Durability, logs_at};
pub use error::TpccError;
pub use input::{
    CustomerBy, DeliveryInput, InputSource, LineInput, Lines, NewOrderInput, OrderStatusInput,
    PaymentInput, StockLevelInput, UNUSED_ITEM,
};
pub use journal::{JOURNAL_ENTRIES, Journal};
pub use kind::Kind;
pub use load::{LoadReport, load};
pub use mix::{Deck, Mix};
pub use network::Network;
pub use progress::{Progress, Silent};
pub use random::{NuConstants, ORIGINAL, Random, Text, last_name};
pub use report::Report;
pub use run::{
    Interval, KindStats, Latency, Measurements, Outcome, Purpose, Terminal, measure, run, run_on,
    run_shared,
};
pub use scale::{DISTRICTS, MAX_LINES, MIN_LINES, Scale};
pub use setup::{
    MAX_DURATION, MAX_MEMORY_NODES, MAX_THREADS, MAX_VIRTUAL_DURATION, MAX_WORKERS, Setup, Shape,
};
pub use shared::{Driver, Loading, Role};
pub use transactions::Session;
