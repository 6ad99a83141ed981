//! Memory nodes: slabs, registration and the pool directory; control plane only.
//!
//! A memory node lends one region and runs nothing afterwards: compute nodes latch, read and write
//! its pages with one-sided verbs, and it never reads a latch word. [`layout`] says where
//! everything lies. [`Pool`] starts the memory nodes of one process and is their control plane: it
//! tells compute nodes how to reach memory and each other, and passes on memory that leaving nodes
//! hand back.
//!
//! ```
//! use selkie_fabric::{Fabric, mem::MemFabric};
//! use selkie_memnode::{Coding, Pool, PoolConfig};
//! use std::sync::Arc;
//!
//! let fabric: Arc<dyn Fabric> = MemFabric::new();
//! let pool = Pool::start(
//!     &fabric,
//!     PoolConfig {
//!         memory_nodes: 3,
//!         bytes_per_node: 16 << 20,
//!         gcl_bytes: 2048,
//!         range_bytes: 1 << 20,
//!         max_compute_nodes: 2,
//!         coding: Coding::PLAIN,
//!         log_bytes: 0,
//!     },
//! )?;
//! let descriptor = pool.descriptor();
//! assert_eq!(descriptor.memory_nodes.len(), 3);
//! // The header of GCL 7 in range 2 of a memory node, and its data:
//! let geometry = descriptor.geometry();
//! assert_eq!(geometry.latch_offset(2, 7) % 64, 0);
//! assert!(geometry.data_offset(2, 7) > geometry.latch_offset(2, 7));
//! assert_eq!(pool.used_extents().bytes_leased, 0);
//! # Ok::<(), selkie_memnode::PoolError>(())
//! ```

#![forbid(unsafe_code)]

mod balance;
mod coding;
pub mod coding_sets;
mod config;
pub mod control;
mod domain;
mod error;
mod free_memory;
pub mod layout;
mod lend;
mod membership;
mod migration;
mod moment;
pub mod monitor;
mod node;
mod pool;
mod rebuild;
mod reclaim;
mod regeneration;
mod registry;
mod slab_set;
mod watch;

pub use coding::{Coding, Journal, Mode};
pub use config::{MAX_MEMORY_NODES, PoolConfig};
pub use domain::FailureDomain;
pub use error::PoolError;
pub use free_memory::{FreeMemory, HostMemory};
pub use lend::{Lent, LentEnd, Offer, create};
pub use membership::{Observer, SignsOfLife};
pub use migration::{Leaving, Migration, Moving, Stage, Stay, drain};
pub use node::{MemoryNode, MemoryNodeDescriptor};
pub use pool::{Pool, PoolDescriptor, PoolUsage};
pub use rebuild::{Move, Rebuild};
pub use reclaim::Reclaim;
pub use regeneration::Regeneration;
pub use registry::ComputeIndex;
pub use slab_set::SlabSet;
pub use watch::WatchConfig;
