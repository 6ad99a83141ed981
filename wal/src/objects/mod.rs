//! Logs in an object store: each append is an object of its own, named after the place where it
//! begins, as objects cannot be added to.
//!
//! ```text
//! PREFIX/<pool>/<node>-<incarnation>/<LSN>.slog      a header and the records of an append
//! PREFIX/<pool>/<node>-<incarnation>/kept-<LSN>      a header: the log is kept from there on
//! PREFIX/<pool>/<node>-<incarnation>/archived-<LSN>  a header: the archive is kept from there on
//! PREFIX/<pool>/<node>-<incarnation>/removed-<LSN>   a header: the log was removed
//! PREFIX/<pool>/<node>-<incarnation>/ended           a header: the end of a dead node's log
//! PREFIX/<pool>/labels.json                          the pool's labels
//! ```
//! Headers are those of files of a log. Of several `kept` or `archived` the last one counts. An
//! archive without `archived` is complete.
//!
//! A name always has the same content: a request that failed may have been executed, or may be
//! executed later, and a retry sends the same bytes. So an append is one request, and need not know
//! what is there.
//!
//! Truncated objects stay as an archive, to rebuild a pool from all logs, until the archive is
//! shortened. They are deleted after `archived` was written, many with one request, in any order:
//! the rest of them is not read. Readers detect a missing object, unless it is one of the last: the
//! first one begins where `kept` or `archived` says, and each other where the previous one ends. A
//! log without `kept`, or with `removed`, does not exist. `removed` stays, as a late append may
//! still arrive.
//!
//! Contents: `url` (which store), `network` (where its client runs, and that each request has a
//! bound), `names` (of objects, and what a listing says), `store` (a place as a store of logs),
//! `sink` (a log that is being written).
//!
//! A node that was declared dead may still be writing. Recovery writes the end of its log before it
//! redoes the log. The end is written once: the store must support conditional requests
//! (`If-None-Match` of S3).

mod names;
mod network;
mod sink;
mod store;
#[cfg(test)]
mod tests;
mod url;

pub use store::LogObjects;
