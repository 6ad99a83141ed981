//! Transactions on small clusters in one process.

mod cancel;
mod catalogue;
mod common;
mod optimistic;
mod rollback;
mod serializable;
mod upkeep;
