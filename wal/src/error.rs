//! Errors of writing and reading logs.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::lsn::Lsn;
use crate::scan::LogDamage;

/// Why a log cannot be written or read.
#[derive(Clone, Debug)]
pub struct LogError {
    /// The operation that failed.
    pub what: &'static str,
    /// The file or object.
    pub place: PathBuf,
    /// The cause.
    pub source: Arc<std::io::Error>,
}

impl LogError {
    /// An error of this operation at this place, with its cause.
    pub fn new(what: &'static str, place: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self { what, place: place.into(), source: Arc::new(source) }
    }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.what, self.place.display(), self.source)
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// Why a log, or a part of it, cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The store cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A part of the log is malformed.
    #[error("{}: {what}", place.display())]
    Place {
        /// The file or object.
        place: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Durable records are missing.
    #[error("{}, from byte {at}: {damage}", place.display())]
    Damaged {
        /// The file or object.
        place: PathBuf,
        /// The byte in it.
        at: u64,
        /// The missing records.
        damage: LogDamage,
    },
    /// The requested part was truncated, as the node no longer needs it.
    #[error(
        "{}: it is cut off up to {}, and {from} was asked for",
        place.display(),
        kept.map_or_else(|| "its end".to_owned(), |kept| kept.to_string())
    )]
    Cut {
        /// The file or object.
        place: PathBuf,
        /// From where the caller wanted to read.
        from: Lsn,
        /// From where the log is kept, if at all.
        kept: Option<Lsn>,
    },
}
