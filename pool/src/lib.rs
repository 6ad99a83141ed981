//! What all nodes of a pool share.
//!
//! [`layout`] says where everything lies in the memory that memory nodes lend. A [`Pool`] is the
//! pool as one process sees it. The nodes agree on one document: the shape of the pool, its
//! members, and the places of the ranges of the address space. A [control plane](control) keeps the
//! document and replaces it by compare-and-swap. [`Membership`] gives signs of life, follows
//! changes and declares silent nodes dead. Nothing of this is on a data path: compute nodes reach
//! memory with one-sided verbs.
//!
//! ```
//! use selkie_pool::layout::SlabGeometry;
//!
//! // The header of GCL 7 in range 2 of a memory node, and its data:
//! let geometry = SlabGeometry::new(2048, 1 << 20);
//! assert_eq!(geometry.latch_offset(2, 7) % 64, 0);
//! assert!(geometry.data_offset(2, 7) > geometry.latch_offset(2, 7));
//! ```

#![forbid(unsafe_code)]

mod addr;
mod checksum;
mod coding;
mod compute_index;
mod config;
pub mod control;
mod deaths;
mod document;
mod error;
mod failure_domain;
mod forgiveness;
mod health;
mod joining;
pub mod layout;
mod line_hasher;
mod membership;
mod migration;
mod placement;
mod pool;
mod rebuild;
mod reclaim;
mod recoverers;
mod token;
pub mod units;
mod unreached;
mod wait_notice;

pub use addr::GAddr;
pub use checksum::checksum;
pub use coding::{Coding, Journal, Mode};
pub use compute_index::ComputeIndex;
pub use config::{MAX_MEMORY_NODES, PoolConfig, PoolPlan};
pub use document::{
    HeaderMove, MemoryNodeDescriptor, Migration, MigrationStage, Rebuild, Reclaim, Regeneration,
    Residency, SecondPlace, SlabSet,
};
pub use error::PoolError;
pub use failure_domain::FailureDomain;
pub use forgiveness::{Forgiveness, forgive};
pub use health::{Health, Verdict};
pub use joining::{create, create_with_token};
pub use line_hasher::LineHasher;
pub use membership::{ATTEMPTS, Membership, Observer, SignsOfLife, change_state};
pub use migration::{DrainProgress, drain};
pub use placement::coding_sets;
pub use pool::{Pool, PoolDescriptor, PoolUsage};
pub use reclaim::ReclaimStep;
pub use wait_notice::{NOTICE, WaitNotice};
