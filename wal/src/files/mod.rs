//! Logs in directories: for each a directory of its own, with files of a fixed length, one after
//! the other, each named after the place where it begins.
//!
//! ```text
//! ROOT/<pool>/<node>-<incarnation>/<LSN>.slog           records that redo may need
//! ROOT/<pool>/<node>-<incarnation>/archive/<LSN>.slog   truncated records
//! ROOT/<pool>/<node>-<incarnation>/ended                a header: the end of a dead node's log
//! ROOT/<pool>/labels.json                               the pool's labels
//! ```
//! The archive and the labels are kept to rebuild a pool from all logs. A thread writes a log, as
//! writes of files block. A file is allocated with all of its length, so that an `fdatasync` writes
//! the new bytes only. A record lies in one file.
//!
//! Contents: `names` (of files), `store` (the directories as a store of logs), `sink` (a log that
//! is being written), `completion` (results of other threads).

mod completion;
mod names;
mod sink;
mod store;
#[cfg(test)]
mod tests;

pub use store::LogFiles;
