//! A server that speaks the PostgreSQL wire protocol, version 3, over the database of a shared
//! pool. Any number of servers on one pool show one database.
//!
//! | file | duty |
//! |---|---|
//! | `frontend.rs`, `frames.rs` | what clients send, and its bounds |
//! | `output.rs` | what is sent to a client, many messages in one write |
//! | `transport.rs`, `tls.rs`, `startup.rs` | the beginning of a connection |
//! | `newcomers.rs`, `login.rs`, `scram.rs` | who is let in |
//! | `connection.rs`, `extended.rs` | a client's messages, one after the other |
//! | `columns.rs`, `result_rows.rs`, `portal_rows.rs` | rows and their columns |
//! | `error_response.rs` | errors and notices |
//! | `memory_limit.rs`, `registry.rs`, `server.rs` | all connections |
//! | `stats.rs` | what they have done |
#![forbid(unsafe_code)]

mod columns;
mod connection;
mod error_response;
mod extended;
mod frames;
mod frontend;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod fuzz;
mod login;
mod memory_limit;
mod newcomers;
mod output;
mod portal_rows;
mod registry;
mod result_rows;
mod scram;
mod server;
mod startup;
mod stats;
mod tls;
mod transport;

pub use server::{Clear, Server, ServerConfig, ServerError};
pub use stats::{ServerCounters, ServerCounts};
pub use tls::{Tls, TlsError, tls_server_end_point};
