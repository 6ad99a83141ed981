//! A pool and the compute nodes of this process, and what decides their numbers and sizes.
//!
//! ```text
//! setup, bounds     nodes, workers and sizes that every benchmark can be configured with
//! network           real or simulated network, and which time is measured with it
//! durability        how long a commit lasts, and where logs are kept
//! shape             sizes of pool and caches, derived from a setup and the size of its data
//! table_set         the tables of a benchmark: schemas, and handles in an open database
//! page_fit          whether the rows of these tables fit the pages
//! population        the memory of such a pool, taken before the run
//! nodes             the running memory and compute nodes
//! ```

pub(crate) mod bounds;
mod durability;
mod network;
mod nodes;
pub(crate) mod page_fit;
mod population;
mod setup;
mod shape;
mod table_set;

pub use durability::Durability;
pub use network::Network;
pub(crate) use nodes::compute_index;
pub use nodes::{Cluster, Node};
pub(crate) use population::start_populated;
pub use setup::{
    MAX_DURATION, MAX_MEMORY_NODES, MAX_THREADS, MAX_VIRTUAL_DURATION, MAX_WORKERS, Setup,
};
pub use shape::ClusterShape;
pub use table_set::TableSet;
