//! Transactions on small clusters in one process.

mod cancel;
mod catalogue;
mod common;
mod logged;
mod optimistic;
mod partition;
mod reading;
mod rollback;
mod serializable;
mod timestamp;
mod upkeep;
