//! Why a scenario could not be run to its end.

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
    #[error("interrupted")]
    Interrupted,
}

impl ScenarioError {
    pub(crate) fn io(what: impl std::fmt::Display, source: std::io::Error) -> Self {
        Self::Io { what: what.to_string(), source }
    }
}
