//! TATP: the home location register of a mobile network.
//!
//! After the "TATP Benchmark Description", version 1.0 (Telecommunication Application Transaction
//! Processing): four tables around the subscribers, seven transactions, 80 % of which only read, on
//! subscribers of which some are asked for more often than others. Many transactions fail as the
//! description says: a row is not there, or is there already. They are completed and counted as
//! failed; the qualified throughput is that of the others.
//!
//! ```text
//! config        subscribers, nodes
//! transaction_type, input   the seven types 35/10/35/2/14/2/2, and what is entered into them
//! schema        four tables
//! rows          what is loaded: cardinalities and distributions
//! transactions  what is done with it
//! ledger, check the rules after the run
//! ```
//!
//! Where a choice was open:
//! * In each hundred transactions of a worker every type has exactly its share.
//! * The population decides how often GetNewDestination finds one, not the 23.9 % that the
//!   description expects: that does not follow from its population. A facility is there (5 of 8)
//!   and active (85 of 100), and what is loaded ends one to eight hours after it begins: 8177 of
//!   55296 succeed, 14.8 %. In a run the share rises towards 20.4 %, as rows that are inserted,
//!   which end at any hour from 1 to 24, take the place of those.
//!
//! After the run every table has the rows that were loaded, each once, call_forwarding those and
//! what was inserted and not deleted; the index leads from each number to its subscriber; each
//! call_forwarding has its special_facility, and that its subscriber; and what no transaction
//! changes is as it was loaded. What transactions overwrite, as a subscriber's location, is the
//! value that was committed last: a worker notes by how much the new value differs from the one it
//! found, and the sum of all these leads from the first to the last. To where a call_forwarding
//! leads is such a value too, which is zero where there is no row.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use selkie_tpcc::{Setup, Silent, benchmark, tatp};
//!
//! let setup = Setup { duration: Duration::from_millis(200), ..Setup::default() };
//! let config = tatp::Config { subscribers: 500, setup };
//! let progress: Arc<dyn selkie_tpcc::Progress> = Arc::new(Silent);
//! let report = tatp::run(&benchmark::Valid::new(config)?, &progress)?;
//! assert!(report.holds());
//! # Ok::<(), selkie_tpcc::TpccError>(())
//! ```

mod benchmark;
mod check;
mod config;
mod input;
mod ledger;
mod rows;
mod run;
mod schema;
mod transaction_type;
mod transactions;

pub use config::{Config, MAX_SUBSCRIBERS};
pub use ledger::SubscriberLedger;
pub use run::run;
pub use schema::{Tables, columns};
pub use transaction_type::TransactionType;
