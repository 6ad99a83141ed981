//! Clusters in a simulated world, and what can be seen in their memory.
//!
//! ```text
//! shape      how many nodes of which size
//! nodes      the cluster: memory nodes, compute nodes, an observer
//! at_rest    latch words and leased lines, when nothing is under way
//! splits     the splits of coded pages, looked at from outside
//! ```

mod at_rest;
mod nodes;
mod shape;
mod splits;

pub use nodes::{RUN_BOUND, SimCluster};
pub use shape::SimShape;
pub(crate) use splits::{decay, is_as_written, look_at_splits, writer_of};
