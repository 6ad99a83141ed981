//! Backend `mem`: all nodes in one process, memory shared by reference.
//!
//! Every verb executes inside `post`, on the thread of the caller, and its completion is ready: no
//! task switch, no lock, no allocation. A queue pair finds its nodes when it connects. A verb then
//! costs two checks of liveness, one lookup in the region table of the peer, and the copy.
//!
//! Contents: `fabric` (the nodes), `node` (the regions and the liveness of one node), `queue_pair`,
//! `execute` (verbs on memory), `words` (the memory).

pub(crate) mod execute;
mod fabric;
pub(crate) mod node;
mod queue_pair;
pub(crate) mod words;

pub use fabric::MemFabric;
pub use node::{MAX_REGION_BYTES, MAX_REGIONS};
