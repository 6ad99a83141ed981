//! Why a control plane did not do what it was asked for.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Why a control plane did not do what it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no pool here.
    #[error("{place} has no pool")]
    NoPool {
        /// The plane.
        place: String,
    },
    /// There is a pool here already.
    #[error("{place} has a pool already")]
    PoolExists {
        /// The plane.
        place: String,
    },
    /// What is stored cannot be understood: damaged, or of another version of this software.
    #[error("{place}: {what}")]
    Damaged {
        /// File or key.
        place: String,
        /// What is wrong with it.
        what: String,
    },
    /// The plane keeps another pool than the one that is meant.
    #[error("{place} has {found}, not {expected}")]
    OtherPool {
        /// The plane.
        place: String,
        /// The pool that is meant.
        expected: String,
        /// The pool it has.
        found: String,
    },
    /// The plane does not do this.
    #[error("{place}: refused: {what}")]
    Refused {
        /// The plane.
        place: String,
        /// What it does not do.
        what: String,
    },
    /// The caller may not do this: it is not let in, or its role does not allow it.
    #[error("{place}: not allowed: {what}")]
    Denied {
        /// The plane.
        place: String,
        /// Why, and how to be allowed.
        what: String,
    },
    /// The plane cannot be reached or used.
    #[error("{place}: {what}")]
    Unavailable {
        /// The plane.
        place: String,
        /// What it said.
        what: String,
    },
}

impl ControlError {
    /// Whether the same call may succeed later without anything else being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    pub(super) fn place_mut(&mut self) -> &mut String {
        match self {
            Self::NoPool { place }
            | Self::PoolExists { place }
            | Self::Damaged { place, .. }
            | Self::OtherPool { place, .. }
            | Self::Refused { place, .. }
            | Self::Denied { place, .. }
            | Self::Unavailable { place, .. } => place,
        }
    }
}

/// The error of a plane behind an address.
pub(super) fn unavailable_at(place: &str, what: &(impl ToString + ?Sized)) -> ControlError {
    ControlError::Unavailable { place: place.to_owned(), what: what.to_string() }
}

pub(super) fn unavailable(place: &Path, error: &io::Error) -> ControlError {
    ControlError::Unavailable { place: place.display().to_string(), what: error.to_string() }
}
