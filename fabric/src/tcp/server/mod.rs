//! The side of a node that serves its memory.
//!
//! Contents: `host` (accepts connections), `newcomers` (connections that have not been let in),
//! `admissions` (which peers may connect), `session` (what a queue pair has done, over any number
//! of connections), `answers` (responses that are kept), `connection` (executes the chains of one),
//! `port_mux` (other protocols on the same port), `setup` (what another fabric sets up here).

pub(super) mod admissions;
mod answers;
mod connection;
pub(super) mod host;
mod newcomers;
pub(super) mod port_mux;
mod session;
pub(crate) mod setup;
