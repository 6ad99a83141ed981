//! A client of PostgreSQL's wire protocol, version 3.0, for the SQL shell: of `selkie server`, and
//! of PostgreSQL itself.
//!
//! It is not `tokio-postgres`, which keeps from its user what a shell has to show: the tags of
//! statements, the types of the columns of a simple query, and whether a transaction is open.
//! Messages are written and read by `postgres-protocol`, which is below that.
//!
//! | file | duty |
//! |---|---|
//! | `address.rs` | which server: what is typed, and the variables of the environment |
//! | `password.rs` | the password: the file of the user, or a question |
//! | `secured.rs` | TLS, and whose certificate is believed |
//! | `link.rs` | a connection that looks around while it waits |
//! | `startup.rs` | the beginning of a connection: TLS, SCRAM, parameters |
//! | `client.rs` | sessions, cancel requests, and another connection for one that is lost |
//! | `talk.rs` | what comes of statements: rows, COPY, errors |
//! | `report.rs` | errors and notices |
//! | `testing.rs` | a server for tests |
//!
//! Nothing waits for good: sockets wake up every [`link::LOOK_EVERY`], and the one who asked says
//! whether it goes on waiting, has the statement cancelled, or leaves ([`Wish`]).

mod address;
mod client;
mod link;
mod password;
mod report;
mod secured;
mod startup;
mod talk;
#[cfg(test)]
mod testing;

pub(crate) use address::{Address, AddressError};
pub(crate) use client::{Client, NotRun, Receiver};
pub(crate) use link::{WireError, Wish};
pub(crate) use password::Passwords;
pub(crate) use report::Report;
