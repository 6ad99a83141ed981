//! Why a pool or a database cannot be opened.

use std::io;

use super::data_directory::DataDirectoryError;
use crate::engine::EngineError;
use crate::engine::backup::BackupError;
use crate::engine::log::LogError;
use crate::fabric::tcp::SecurityError;
use crate::pool::PoolError;
use crate::shared::{SharedPoolError, UrlError};
use crate::txn::TxnError;

/// Why a pool or a database cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A part of the URL is wrong.
    #[error("pool URL `{url}`: {source}")]
    Url {
        /// The URL.
        url: String,
        /// The part, and what is allowed there.
        source: UrlError,
    },
    /// An option has no meaning for the pool, or a value out of range.
    #[error("option {option} for pool `{url}`: {allowed}")]
    Option {
        /// The option.
        option: &'static str,
        /// The URL.
        url: String,
        /// What is allowed.
        allowed: String,
    },
    /// The system refuses threads.
    #[error("worker threads: {0}")]
    Threads(#[source] io::Error),
    /// The certificates of this node cannot be used.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The shared pool cannot be used.
    #[error(transparent)]
    Shared(#[from] SharedPoolError),
    /// The pool refused.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The log cannot be written where it should be.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The directory of an embedded pool cannot be used.
    #[error(transparent)]
    Directory(#[from] DataDirectoryError),
    /// The backup cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The compute node cannot start.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The database cannot be created or opened.
    #[error(transparent)]
    Database(#[from] TxnError),
}

impl OpenError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Pool(error) => error.is_retryable(),
            Self::Engine(error) => error.is_retryable(),
            Self::Database(error) => error.is_retryable(),
            Self::Shared(error) => error.is_retryable(),
            Self::Backup(error) => error.is_retryable(),
            Self::Log(_) | Self::Directory(DataDirectoryError::InUse { .. }) => true,
            Self::Directory(_) => false,
            Self::Url { .. } | Self::Option { .. } | Self::Threads(_) | Self::Security(_) => false,
        }
    }
}
