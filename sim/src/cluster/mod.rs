//! Clusters in a simulated world, and what can be seen in their memory.
//!
//! ```text
//! shape      how many nodes of which size
//! nodes      the cluster: memory nodes, compute nodes, an observer
//! memory     the memory nodes, in one process or many
//! plane      a control plane that stands still, answers late or not
//! at_rest    latch words and leased lines, when nothing is under way
//! splits     the splits of coded pages, looked at from outside
//! ```

mod at_rest;
mod memory;
mod nodes;
mod plane;
mod shape;
mod splits;

pub(crate) use memory::SimMemory;
pub use nodes::{RUN_BOUND, SimCluster};
pub(crate) use plane::SimPlane;
pub(crate) use shape::LEASE;
pub use shape::SimShape;
pub(crate) use splits::{decay, is_as_written, look_at_splits, writer_of};
