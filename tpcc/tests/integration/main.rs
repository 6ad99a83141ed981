//! TPC-C against a whole pool in this process, on scaled-down databases.

mod conditions;
mod loading;
mod rollback;
mod runs;
mod setup;
mod transactions;
