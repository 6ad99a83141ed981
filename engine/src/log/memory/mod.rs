//! Logs in memory of memory nodes: for each compute node that may register a ring at each of them,
//! of which those of r + 1 are used, so that a log is lost when the pages are. [`selkie_wal::ring`]
//! has their bytes; each log is as long as the pool says. An append writes to all the rings at once
//! and is over when it is in place at each: two round trips where the log goes round, else one.
//! What is overwritten was given up before, and the headers said so first.
//!
//! A memory node that died is replaced by another, which gets what is kept from one that is left;
//! until it has, there is a copy less. If none is left the log begins anew, and says so: until all
//! that was changed before is home, nothing is redone from it.
//!
//! Contents: `rings` (verbs), `reading` (of copies that may differ), `store`, `sink`.

mod reading;
mod rings;
mod sink;
mod store;

pub(super) use store::MemoryLogs;
