//! Addresses: where lines lie, how their memory nodes are reached, how lines are allocated and
//! reclaimed.

pub(crate) mod adoption;
pub(crate) mod allocation;
pub(crate) mod allocator;
pub(crate) mod disconnected;
pub(crate) mod epochs;
pub(crate) mod executed;
pub(crate) mod free_marks;
pub(crate) mod leaked;
pub(crate) mod line_search;
pub(crate) mod locations;
pub(crate) mod memory_access;
pub(crate) mod memory_links;
pub(crate) mod placement;
pub(crate) mod reclamation;
pub(crate) mod versioned;
