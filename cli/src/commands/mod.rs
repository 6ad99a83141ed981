//! Commands: one module each.

pub(crate) mod backup;
pub(crate) mod bench;
mod benchmark;
pub(crate) mod cert;
pub(crate) mod completions;
mod compute_wait;
pub(crate) mod config;
pub(crate) mod man;
pub(crate) mod memnode;
pub(crate) mod micro;
pub(crate) mod pool;
mod pool_names;
mod pool_repair;
mod pool_status;
pub(crate) mod pool_verdict;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod server;
pub(crate) mod sim;
pub(crate) mod smallbank;
pub(crate) mod sql;
mod sql_database;
pub(crate) mod tatp;
pub(crate) mod tpcc;
mod via;
pub(crate) mod ycsb;
