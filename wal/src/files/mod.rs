//! Logs in directories: for each a directory of its own, with files of a fixed length, one after
//! the other, each named after the place where it begins.
//!
//! ```text
//! ROOT/<pool>/<node>-<incarnation>/<LSN>.slog           what may have to be redone
//! ROOT/<pool>/<node>-<incarnation>/archive/<LSN>.slog   what is home, for whoever makes another pool of all logs
//! ROOT/<pool>/<node>-<incarnation>/ended                a header: where the log of one who was taken for dead ends
//! ROOT/<pool>/labels.json                               the pool's labels, for the same
//! ```
//! A thread writes a log, as no file can be written without waiting. A file gets all of its length
//! when it is made, so that making bytes in it durable takes no more than these bytes
//! (`fdatasync`). Records do not go across files.
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
