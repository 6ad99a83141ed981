//! Access: what a caller's access to a page does.

pub(crate) mod acquire;
mod allocation;
mod anew;
pub(crate) mod close;
pub(crate) mod engine;
pub(crate) mod guard;
mod prefetch;
pub(crate) mod start;
pub(crate) mod waiters;
