//! Why a log cannot be written, read, or relied on.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::lsn::Lsn;
use crate::scan::LogDamage;

/// Why a log cannot be written or read.
#[derive(Clone, Debug)]
pub struct LogError {
    /// What was tried.
    pub what: &'static str,
    /// With which file or place.
    pub place: PathBuf,
    /// What was met.
    pub source: Arc<std::io::Error>,
}

impl LogError {
    /// What was tried, where, and what was met.
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

/// Why a log cannot be relied on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A part of it is not what it should be.
    #[error("{}: {what}", place.display())]
    Place {
        /// The file or place.
        place: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Records are missing that were durable.
    #[error("{}, from byte {at}: {damage}", place.display())]
    Damaged {
        /// The file or place.
        place: PathBuf,
        /// Where in it.
        at: u64,
        /// What is missing.
        damage: LogDamage,
    },
    /// What was asked for was given up, as the node does not need it any more.
    #[error(
        "{}: it is cut off up to {}, and {from} was asked for",
        place.display(),
        kept.map_or_else(|| "its end".to_owned(), |kept| kept.to_string())
    )]
    Cut {
        /// The file or place.
        place: PathBuf,
        /// From where it was to be read.
        from: Lsn,
        /// From where it is kept, if at all.
        kept: Option<Lsn>,
    },
}
