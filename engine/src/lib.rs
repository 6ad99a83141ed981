//! Address space, buffer manager and SELCC coherence over a pool of memory nodes.
//!
//! An [`Engine`] is one compute node. It caches pages (global cache lines) of the pool and keeps
//! them coherent with the other nodes' caches; guards are latches that hold in the whole cluster.

mod absent;
mod acquire;
mod activity;
mod addr;
mod alloc;
pub mod backup;
mod baseline;
mod buffer;
mod claimed;
pub mod coding;
pub mod coherence;
mod config;
mod core;
mod engine;
mod epoch;
mod error;
mod evict;
mod guard;
mod guess;
mod hottest;
mod lease;
mod left;
mod line;
pub mod log;
mod message;
mod placement;
mod recovery;
mod roster;
mod service;
mod stats;
mod waiters;
mod ways;

#[cfg(feature = "planted")]
pub use config::Planted;

pub use addr::GAddr;
pub use baseline::{DirectoryConfig, start_directories};
pub use coherence::word::{ComputeId, MAX_COMPUTE_NODES};
pub use config::{Coherence, EngineConfig, MAX_MAIL_TASKS};
pub use engine::Engine;
pub use epoch::EpochPin;
pub use error::EngineError;
pub use guard::{ExclusiveGuard, PSN_BYTES, SharedGuard, change_together};
pub use hottest::HotLine;
pub use roster::{Entered, NodeCounters, Operations, Roster};
pub use stats::EngineStats;
