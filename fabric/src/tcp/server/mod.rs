//! The side of a node that serves its memory.
//!
//! Contents: `host` (accepts connections), `admissions` (which peers may connect), `session`
//! (executes the chains of one connection), `port_mux` (other protocols on the same port).

pub(super) mod admissions;
pub(super) mod host;
pub(super) mod port_mux;
mod session;
