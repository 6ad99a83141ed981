//! Messages to a client that are no errors: notices and warnings.

use crate::error::{SqlError, SqlState};

/// How much a message that is no error matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoticeLevel {
    /// What a client may like to know.
    Notice,
    /// What is probably not what the client meant.
    Warning,
}

impl NoticeLevel {
    /// The word by which PostgreSQL calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Notice => "NOTICE",
            Self::Warning => "WARNING",
        }
    }
}

/// A message to a client that is no error. A statement goes on after it.
#[derive(Clone, Debug)]
pub struct Notice {
    level: NoticeLevel,
    parts: SqlError,
}

impl Notice {
    /// A notice.
    #[must_use]
    pub fn note(state: SqlState, message: impl Into<String>) -> Self {
        Self { level: NoticeLevel::Notice, parts: SqlError::new(state, message) }
    }

    /// A warning.
    #[must_use]
    pub fn warning(state: SqlState, message: impl Into<String>) -> Self {
        Self { level: NoticeLevel::Warning, parts: SqlError::new(state, message) }
    }

    /// That something which was to be dropped or changed IF EXISTS is not there: `what` is its kind
    /// and name, such as `table "t"`.
    pub(crate) fn missing(what: impl std::fmt::Display) -> Self {
        let message = format!("{what} does not exist, skipping");
        Self::note(SqlState::SUCCESSFUL_COMPLETION, message)
    }

    /// That something which was to be created IF NOT EXISTS is there already: `error` is what it
    /// would be without these words.
    pub(crate) fn skipped(error: &SqlError) -> Self {
        Self::note(error.state(), format!("{}, skipping", error.message()))
    }

    /// With more about it.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self { parts: self.parts.detail(detail), ..self }
    }

    /// How much it matters.
    #[must_use]
    pub fn level(&self) -> NoticeLevel {
        self.level
    }

    /// Its code, message and further parts, which are those of errors.
    #[must_use]
    pub fn parts(&self) -> &SqlError {
        &self.parts
    }
}
