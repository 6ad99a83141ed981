//! TPC-C against a whole pool in this process, on scaled-down databases.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed, and says where"
)]

mod benchmarks;
mod conditions;
mod deaths;
mod loading;
mod partitioned;
mod rollback;
mod runs;
mod setup;
mod transactions;
mod ycsb;
