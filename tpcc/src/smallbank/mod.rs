//! SmallBank: customers of a bank with a savings and a checking account each.
//!
//! After Alomari, Cahill, Fekete and Röhm, "The Cost of Serializability on Platforms That Use
//! Snapshot Isolation" (ICDE 2008), with SendPayment, which H-Store and its successors added. All
//! transactions are short, most of them change something, and most of them go to few accounts.
//!
//! ```text
//! config        accounts, hot accounts, nodes
//! transaction_type, input   the six types 15/15/15/15/15/25, and what is entered into them
//! schema        three tables
//! transactions  what is done with it
//! rows          what is loaded
//! check         the rules after the run
//! ```
//!
//! Where a choice was open:
//! * There are 100,000 accounts, of which 4 % are hot, and nine in ten transactions go to them, as
//!   in the evaluations of FaSST and DrTM.
//! * Hot accounts are spread evenly over all, as a page is the unit of locking here and neighbours
//!   would be one hot page.
//! * Whether a transaction goes to hot accounts is decided once: both customers of an Amalgamate or
//!   a SendPayment are hot, or neither is.
//! * Balances are 10,000 to 50,000 dollars when loaded, as H-Store has them, and whole cents, so
//!   that sums are exact.
//! * Amounts are uniform from a cent to 100 dollars, where H-Store's client has one amount for each
//!   type; half of the TransactSavings take money out.
//! * By a check that the two accounts together do not cover, the balance falls by a dollar more
//!   than the amount, and Amalgamate moves both accounts of a customer, as the paper has it. Some
//!   published code takes the dollar off the amount, or adds the savings of one customer and the
//!   checking account of the other.
//! * A withdrawal that the account does not cover is rolled back and counts as failed. There is
//!   none when a run begins, and there are the more the longer it lasts, as Amalgamate empties
//!   accounts: runs are to be compared with such as last as long.
//!
//! After the run each balance is what was loaded and what committed transactions have added to it;
//! no savings account is overdrawn; the sum of all is the sum of those loaded and of what came in
//! and went out; and every row is there once.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use selkie_tpcc::{Setup, Silent, benchmark, smallbank};
//!
//! let setup = Setup { duration: Duration::from_millis(200), ..Setup::default() };
//! let (accounts, hot_accounts) = (1_000, 10);
//! let config = smallbank::Config { accounts, hot_accounts, setup, ..Default::default() };
//! let progress: Arc<dyn selkie_tpcc::Progress> = Arc::new(Silent);
//! let report = smallbank::run(&benchmark::Valid::new(config)?, &progress)?;
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

pub use config::{Config, MAX_ACCOUNTS};
pub use ledger::BalanceLedger;
pub use run::run;
pub use schema::{BALANCE, Tables};
pub use transaction_type::TransactionType;
