//! Why a scenario could not be run to its end.

use std::process::ExitCode;

use crate::support::exit;
use crate::support::signals::Interrupted;

/// Why a scenario could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScenarioError {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A process did something else than it was started for.
    #[error("{name}: {what}")]
    Process {
        /// The process.
        name: String,
        /// What it did.
        what: String,
    },
    /// The network could not be made or changed.
    #[error("{what}")]
    Network {
        /// What was tried, and why it failed.
        what: String,
    },
    /// It was told to stop.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl ScenarioError {
    /// Says on stderr why a scenario could not be run, or that a signal has ended it.
    pub(crate) fn fail(&self) -> ExitCode {
        match self {
            Self::Interrupted(interrupted) => interrupted.end(),
            error => exit::fail(error),
        }
    }

    pub(crate) fn io(what: impl std::fmt::Display, source: std::io::Error) -> Self {
        Self::Io { what: what.to_string(), source }
    }
}
