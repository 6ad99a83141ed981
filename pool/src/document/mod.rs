//! The document on which the nodes of a pool agree, as types and as questions to it.
//!
//! A [control plane](crate::control) keeps it, as text: names of fields and variants are part of
//! that format. What changes the document as a whole is beside this module: `placement`,
//! `migration`, `rebuild`, `reclaim`, `deaths`. Nothing here knows them.

mod compute_nodes;
mod limits;
mod memory_nodes;
pub(crate) mod peer_number;
mod pool_state;
mod ranges;
mod slab_set;
mod tasks;
mod timing;

pub use compute_nodes::{Card, Lost, Mailbox, Member};
pub(crate) use limits::FORMAT;
pub use limits::{MAX_LOST_PAGES, MAX_RANGES};
pub use memory_nodes::{MemoryMember, MemoryNodeDescriptor, Reclaim, Residency};
pub use pool_state::{Identity, PoolState};
pub use ranges::{RangePlace, SecondPlace, Slab};
pub use slab_set::SlabSet;
pub use tasks::{HeaderMove, Migration, MigrationStage, Rebuild, Regeneration, SnapshotBarrier};
pub(crate) use timing::UNREACHABLE_LEASES;
pub use timing::{Timing, lateness};
