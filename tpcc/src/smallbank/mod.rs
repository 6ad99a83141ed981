//! SmallBank: customers of a bank with a savings and a checking account each.
//!
//! After Alomari, Cahill, Fekete and Röhm, "The Cost of Serializability on Platforms That Use Snapshot Isolation"
//! (ICDE 2008), with SendPayment, which H-Store and its successors added. All transactions are short, most of them
//! change something, and most accesses go to few accounts.
//!
//! ```text
//! config        accounts, hot accounts, nodes
//! kind, input   the six types 15/15/15/25/15/15, and what is entered into them
//! schema        three tables
//! transactions  what is done with it
//! rows          what is loaded
//! check         the rules after the run
//! ```
//!
//! Where a choice was open: amounts are whole cents, so that sums are exact. Hot accounts are spread evenly over all, as
//! a page is the unit of locking here and neighbours would be one hot page. Whether a transaction goes to hot accounts is
//! decided once: both customers of an Amalgamate or a SendPayment are hot, or neither is. A withdrawal that the account
//! does not cover is rolled back and counts as failed.
//!
//! After the run each balance is what was loaded and what committed transactions have added to it; no savings account is
//! overdrawn; the sum of all is the sum of those loaded and of what came in and went out; and every row is there once.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use selkie_tpcc::{Setup, Silent, benchmark, smallbank};
//!
//! let setup = Setup { duration: Duration::from_millis(200), ..Setup::default() };
//! let config = smallbank::Config { accounts: 1_000, hot_accounts: 10, setup, ..Default::default() };
//! let progress: Arc<dyn selkie_tpcc::Progress> = Arc::new(Silent);
//! let report = benchmark::run(&benchmark::Valid::new(config)?, &progress)?;
//! assert!(report.holds());
//! # Ok::<(), selkie_tpcc::TpccError>(())
//! ```

mod check;
mod config;
mod input;
mod kind;
mod rows;
mod schema;
mod transactions;

pub use check::Ledger;
pub use config::{Config, MAX_ACCOUNTS};
pub use kind::Kind;
pub use schema::{BALANCE, Tables};
