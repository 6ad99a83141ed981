//! The side of a node that serves its memory.
//!
//! Contents: `host` (accepts connections), `newcomers` (connections that have not been let in),
//! `admissions` (which peers may connect), `session` (executes the chains of one connection),
//! `port_mux` (other protocols on the same port).

pub(super) mod admissions;
pub(super) mod host;
mod newcomers;
pub(super) mod port_mux;
mod session;
