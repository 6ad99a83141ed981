//! Logs in an object store: each append is an object of its own, named after the place where it
//! begins, as objects cannot be added to.
//!
//! ```text
//! PREFIX/<pool>/<node>-<incarnation>/<LSN>.slog      a header, as of a file of a log, and the records of an append
//! PREFIX/<pool>/<node>-<incarnation>/kept-<LSN>      a header: the log is kept from there on; the last such counts
//! PREFIX/<pool>/<node>-<incarnation>/archived-<LSN>  the same of what it was cut off, once that is not all
//! PREFIX/<pool>/<node>-<incarnation>/removed-<LSN>   a header: the log was removed
//! PREFIX/<pool>/<node>-<incarnation>/ended           a header: where the log of one who was taken for dead ends
//! PREFIX/<pool>/labels.json                          the pool's labels
//! ```
//! No name is used for two things: a request that failed may have been carried out, or be so later,
//! and it does not matter when. What is tried again are the very same bytes. So an append is one
//! request, and needs to know nothing of what is there.
//!
//! Objects that were cut off stay for whoever makes another pool of all logs, until the archive is
//! made short. They are deleted after `archived` has said so, many at a time, in whatever order the
//! store likes: what is left of them is not read. An object that is missing is seen, but for the
//! last ones: the first one begins where `kept` or `archived` says, and each other where the one
//! before ends. What has no `kept` is no log, nor is what has `removed`, which stays for what comes
//! late.
//!
//! Contents: `url` (which store), `network` (where its client runs, and that each request has a
//! bound), `names` (of objects, and what a listing says), `store` (a place as a store of logs),
//! `sink` (a log that is being written).
//!
//! A node that was taken for dead may still be writing. Who reads its log to make its pages again
//! says first where it ended, which is said once: the store has to know conditional requests
//! (`If-None-Match` of S3).

mod names;
mod network;
mod sink;
mod store;
#[cfg(test)]
mod tests;
mod url;

pub use store::LogObjects;
