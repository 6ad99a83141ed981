//! What all nodes of a pool share.
//!
//! [`layout`] says where everything lies in the memory that memory nodes lend. A [`Pool`] is the
//! pool as one process sees it: the document on which the nodes agree (kept by a
//! [control plane](control)), the members, and where the ranges of the address space lie. Nothing
//! of this is on a data path: compute nodes reach memory with one-sided verbs.
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
mod balance;
mod checksum;
mod coding;
pub mod coding_sets;
mod config;
pub mod control;
mod descriptor;
mod domain;
mod error;
mod joining;
pub mod layout;
mod membership;
mod migration;
mod moment;
mod pool;
mod rebuild;
mod reclaim;
mod regeneration;
mod registry;
mod slab_set;

pub use addr::GAddr;
pub use checksum::checksum;
pub use coding::{Coding, Journal, Mode};
pub use config::{MAX_MEMORY_NODES, PoolConfig, PoolPlan};
pub use descriptor::MemoryNodeDescriptor;
pub use domain::FailureDomain;
pub use error::PoolError;
pub use joining::create;
pub use membership::{ATTEMPTS, Membership, Observer, SignsOfLife, change_state, declare_dead};
pub use migration::{Leaving, Migration, Moving, Stage, Stay, drain};
pub use pool::{Pool, PoolDescriptor, PoolUsage};
pub use rebuild::{Move, Rebuild};
pub use reclaim::{Reclaim, ReclaimStep};
pub use regeneration::Regeneration;
pub use registry::ComputeIndex;
pub use slab_set::SlabSet;
