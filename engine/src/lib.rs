//! Addresses, buffer manager, coherence, log and recovery of one compute node, over a pool of
//! memory nodes.
//!
//! An [`Engine`] is one compute node. It caches pages (global cache lines) of the pool. The
//! coherence protocol SELCC keeps the caches of all nodes consistent: a latch word in remote memory
//! says which nodes hold a page, and nodes exchange pages and requests by messages. A guard is a
//! latch that holds in the whole cluster: [`SharedGuard`] to read, [`ExclusiveGuard`] to write. The
//! layers above need no other lock.
//!
//! | folder | duty |
//! |---|---|
//! | `access/` | start, reads, writes, pages fetched ahead, guards, waiters, close |
//! | `cache/` | frames, local latch, address table, eviction |
//! | [`coherence`] | latch word, state machine of a line, its driver, its model check |
//! | `addressing/` | places of lines, links to memory nodes, allocation, epochs |
//! | [`coding`] | coded pages: reads, write-backs, rebuilds |
//! | `recovery/` | the lease of this node, and its part after the death of another |
//! | `snapshots/` | snapshots, commit stamps, images of pages before a change |
//! | [`log`] | redo log, checkpoints, archives, redo |
//! | [`backup`] | backups of a pool in use, and pools made of them |
//! | `telemetry/` | counters, hottest lines, contention |
//! | `baseline/` | directories at memory nodes, to compare with |
//!
//! [`EngineConfig`] has the settings of a node, and [`EngineError`] has the errors of all
//! operations. An operation on a page belongs to its line, so a caller may drop a future at any
//! time, and a page may be fetched before a caller waits for it ([`Engine::prefetch`]).

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
mod snapshots;
mod sync;
mod tasks;
mod telemetry;

#[cfg(feature = "planted")]
pub use config::Planted;

pub use access::engine::Engine;
pub use access::guard::{ExclusiveGuard, SharedGuard, change_together};
pub use addressing::epochs::EpochPin;
pub use addressing::leaked::LineCensus;
pub use baseline::{DirectoryConfig, DirectoryHost, start_directories};
pub use coherence::word::{ComputeId, MAX_COMPUTE_NODES};
pub use config::{Coherence, EngineConfig, MAX_MAIL_TASKS};
pub use error::EngineError;
pub use selkie_pool::GAddr;
pub use selkie_wal::PSN_BYTES;
pub use snapshots::{ActiveSnapshots, ImageLink, Snapshot, Stamp};
pub use telemetry::account::WorkDone;
pub use telemetry::hottest::HotLine;
pub use telemetry::roster::{Entered, EnteredUser, NodeCounters, Roster, UserCounters, UserCounts};
pub use telemetry::stats::EngineStats;
