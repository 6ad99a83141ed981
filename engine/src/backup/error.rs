//! Why a backup cannot be made or used.

use std::path::PathBuf;
use std::time::Duration;

use selkie_pool::units;
use selkie_wal::{LogError, MergeError, ReadError};

use crate::error::EngineError;

/// Why a pool cannot be backed up, or a backup not be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The place has something.
    #[error("{}: something is there already: a backup takes a place of its own", place.display())]
    Occupied {
        /// The place.
        place: PathBuf,
    },
    /// A node changes pages, and what it changes is not recorded where that could be read.
    #[error(
        "compute node {node} has no log here: while it is in the pool, all nodes need logs that the backup can read \
         (--durability memory, or disk and the same --log-dir)"
    )]
    NoLog {
        /// The compute node.
        node: u16,
    },
    /// A log was cut off before it was read.
    #[error(
        "compute node {node} has given up a part of its log before it was read: {source}. Try again when less is written, or \
         with longer logs (--log-mb, `pool create --log-size`)"
    )]
    Cut {
        /// The compute node.
        node: u16,
        /// What was to be read.
        source: ReadError,
    },
    /// Pages were lost with nodes.
    #[error("{pages} pages of the pool are lost: a backup would lack them")]
    Lost {
        /// How many.
        pages: usize,
    },
    /// Nodes that died are not recovered from.
    #[error("compute nodes that died are not recovered from after {}", units::seconds(*waited))]
    Recovering {
        /// How long it was waited.
        waited: Duration,
    },
    /// The nodes did not mark a snapshot barrier, up to which their logs are one state.
    #[error(
        "{} after {}",
        node.map_or_else(
            || "compute nodes die or come, or another backup is made, and no snapshot barrier is marked in all logs".to_owned(),
            |node| format!("compute node {node} has marked no snapshot barrier in its log")
        ),
        units::seconds(*waited)
    )]
    NoSnapshotBarrier {
        /// A node that has marked none, if it is that.
        node: Option<u16>,
        /// How long it was tried.
        waited: Duration,
    },
    /// There is no backup.
    #[error("{}: there is no backup: it has no manifest", place.display())]
    None {
        /// Where it was looked for.
        place: PathBuf,
    },
    /// A part of the backup is not what it should be.
    #[error("{}: {what}", place.display())]
    Damaged {
        /// The object.
        place: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The pool does not fit.
    #[error(
        "the backup has pages of {backup} bytes, and the pool of {pool}: make one with --gcl {backup}"
    )]
    LineBytes {
        /// Bytes of a line in the backup.
        backup: usize,
        /// And in the pool.
        pool: usize,
    },
    /// The pool cannot be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The backup cannot be written or read.
    #[error(transparent)]
    Place(#[from] LogError),
    /// A log cannot be read, or an object of a backup.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Image and logs do not go together.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

impl BackupError {
    /// Whether the same may succeed later, at another place where something is written.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Cut { .. }
            | Self::Recovering { .. }
            | Self::NoSnapshotBarrier { .. }
            | Self::Place(_) => true,
            Self::Engine(error) => error.is_retryable(),
            _ => false,
        }
    }
}
