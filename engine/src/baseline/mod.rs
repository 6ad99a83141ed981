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
//! MSI: a page is with one owner that may write, or with sharers, or with nobody. The directory
//! serves one question about a page at a time and keeps the others; it writes back what comes and
//! sends pages from its own memory. It shares frames, local latches, waiters, allocation and mail
//! with SELCC, so that a comparison compares protocols. Every message costs a core of the memory
//! node some time, which SELCC does not need: that is the point.
//!
//! Messages between a node and a directory keep their order both ways. So an Evict that crosses a
//! Recall comes before the NotHeld that answers it, and each Recall has exactly one answer.
//!
//! Contents: `message` (what is said), `directory` (pure: what the directory does), `client` (pure:
//! what a node does), `driver` (frames and waiters around it), `server` (cores, mail, memory).
//!
//! # Not done
//! Loss of a node or a directory, and requests that go to the owner directly.

pub(crate) mod client;
pub(crate) mod directory;
mod driver;
pub(crate) mod message;
mod server;

pub use server::{DirectoryConfig, start_directories};
