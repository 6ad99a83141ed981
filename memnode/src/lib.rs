//! What a memory node runs, and nothing more.
//!
//! A memory node lends one region of memory and runs nothing on the data path: compute nodes latch,
//! read and write its pages with one-sided verbs, and it never reads a latch word or a page.
//!
//! - [`MemoryNode`] is the region with its control page. After the start it runs nothing.
//! - [`MemoryServer`] is the process of a memory node in a shared pool. It follows the membership
//!   of the pool, and takes memory back if the host needs it ([`monitor`]).
//! - [`EmbeddedPool`] is a whole pool within one process: for tests, simulations and embedding.
//!
//! What all nodes of a pool share is in [`selkie_pool`].

#![forbid(unsafe_code)]

mod capacity;
mod embedded;
pub mod monitor;
mod node;
mod pool_watch;
mod server;

pub use capacity::{Capacity, PopulationWatcher};
pub use embedded::EmbeddedPool;
pub use node::MemoryNode;
pub use server::{MemoryServer, ServerEnd};
