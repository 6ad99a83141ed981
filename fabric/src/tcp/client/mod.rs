//! The side of a node that posts chains.
//!
//! Contents: `queue_pair` (queue pairs and completions), `link` (a connection), `link_state` (what
//! its lock guards), `link_failure` (why it ends), `reconnect` (one connection after the other),
//! `outcome` (where an outcome waits), `driver` (the thread), `silence` (peers that do not answer),
//! `reactor` (readiness of sockets).

pub(super) mod driver;
pub(crate) mod link;
mod link_failure;
mod link_state;
pub(crate) mod outcome;
pub(crate) mod queue_pair;
mod reactor;
mod reconnect;
mod silence;
