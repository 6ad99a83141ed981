//! Address space, buffer manager and SELCC coherence over a pool of memory nodes.
//!
//! An [`Engine`] is one compute node. It caches pages (global cache lines) of the pool and keeps
//! them coherent with the other nodes' caches; guards are latches that hold in the whole cluster.

mod access;
mod addressing;
pub mod backup;
mod baseline;
mod cache;
pub mod coding;
pub mod coherence;
mod config;
mod core;
mod error;
mod housekeeping;
mod join;
mod lifecycle;
pub mod log;
mod recovery;
mod tasks;
mod telemetry;

#[cfg(feature = "planted")]
pub use config::Planted;

pub use access::engine::Engine;
pub use access::guard::{ExclusiveGuard, SharedGuard, change_together};
pub use addressing::epochs::EpochPin;
pub use baseline::{DirectoryConfig, DirectoryHost, start_directories};
pub use coherence::word::{ComputeId, MAX_COMPUTE_NODES};
pub use config::{Coherence, EngineConfig, MAX_MAIL_TASKS};
pub use error::EngineError;
pub use selkie_pool::GAddr;
pub use selkie_wal::PSN_BYTES;
pub use telemetry::hottest::HotLine;
pub use telemetry::roster::{Entered, NodeCounters, Operations, Roster};
pub use telemetry::stats::EngineStats;
