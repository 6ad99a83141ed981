//! Commands: one module each.

pub(crate) mod backup;
mod benchmark;
pub(crate) mod cert;
pub(crate) mod config;
pub(crate) mod memnode;
pub(crate) mod micro;
pub(crate) mod pool;
mod pool_repair;
pub(crate) mod recover;
pub(crate) mod restore;
pub(crate) mod sim;
pub(crate) mod smallbank;
pub(crate) mod tatp;
pub(crate) mod tpcc;
