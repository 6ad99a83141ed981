//! What a memory node runs, and no more.
//!
//! A memory node lends one region of memory and runs nothing on the data path: compute nodes latch,
//! read and write its pages with one-sided verbs, and it never reads a latch word or a page. Its
//! process follows the membership of the pool ([`MemoryServer`]), and, if asked to, takes memory
//! back when the host needs it ([`monitor`]). [`EmbeddedPool`] is a whole pool within one process.
//! What the nodes of a pool share is in [`selkie_pool`].

#![forbid(unsafe_code)]

mod capacity;
mod embedded;
pub mod monitor;
mod node;
mod server;

pub use capacity::Capacity;
pub use embedded::EmbeddedPool;
pub use node::MemoryNode;
pub use server::{MemoryServer, ServerEnd};
