//! Backend `mem`: all nodes in one process, memory shared by reference.
//!
//! Every verb executes inside `post`, on the caller's thread, and its completion is ready: no task
//! switch, no lock, no allocation. What a queue pair needs is resolved when it is connected; per
//! verb there remain the liveness flags, one lookup in the peer's region table, and the copy.
//!
//! Contents: `fabric` (who is there), `node` (one node's regions and liveness), `queue_pair`
//! (executes verbs), `words` (the memory).

mod fabric;
pub(crate) mod node;
pub(crate) mod queue_pair;
pub(crate) mod words;

pub use fabric::MemFabric;
pub use node::{MAX_REGION_BYTES, MAX_REGIONS};
