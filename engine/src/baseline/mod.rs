//! Baseline `rpc`: a directory at each memory node's processor, in the manner of GAM and
//! ScaleStore.
//!
//! ```text
//! node                    directory of the page                 owner, or sharers
//!  Ask{exclusive} ------------->|  Recall{keep} ------------------------>|
//!                               |<--------------- Kept | Gave | NotHeld | Busy
//!  <----- Grant{exclusive}, page|
//!  Evict, dirty page ---------->|
//! ```
//! MSI: a page has one owner that may write, or sharers, or neither. The directory serves one
//! request for a page at a time and queues the others. It writes pages that come into its memory
//! and sends pages from there. The baseline shares frames, local latches, waiters, allocation and
//! mail with SELCC, so that a comparison compares protocols. Every message costs time of a core of
//! the memory node, which SELCC does not need: that is what the comparison measures.
//!
//! Messages between a node and a directory keep their order both ways. So an Evict that crosses a
//! Recall comes before the NotHeld that answers it, and each Recall has exactly one answer.
//!
//! Contents: `message` (the format), `directory` (pure: what the directory does), `client` (pure:
//! what a node does), `driver` (frames and waiters of a node), `server` (cores, mail and memory of
//! a memory node).
//!
//! # Not done
//! Loss of a node or a directory, and requests that go to the owner directly.

pub(crate) mod client;
pub(crate) mod directory;
mod driver;
pub(crate) mod message;
mod server;

pub use server::{DirectoryConfig, DirectoryHost, start_directories};
