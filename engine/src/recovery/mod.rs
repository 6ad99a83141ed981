//! Membership and recovery: the node's own lease, and its part after the death of another node.

pub(crate) mod claimed;
mod doubts;
pub(crate) mod driver;
pub(crate) mod lease;
pub(crate) mod left;
mod memory_death;
mod recoverer;
pub(crate) mod state;
mod sweep;
pub(crate) mod unreachable;
