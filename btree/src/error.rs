//! What can go wrong in a tree operation.

use selkie_engine::{EngineError, GAddr};

use crate::page::Damage;

/// Error of a tree operation.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The engine could not serve a page.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A page is damaged. Nothing was changed.
    #[error("page {addr} is damaged: {what}")]
    Corrupt {
        /// The page; [`GAddr::NULL`] where only its bytes were known (see [`TreeError::at`]).
        addr: GAddr,
        /// What is wrong with it.
        what: &'static str,
    },
    /// `verify` found pages that are sound one by one but do not form a tree.
    #[error("the tree is broken at page {addr}: {what}")]
    Broken {
        /// The page.
        addr: GAddr,
        /// The invariant that does not hold.
        what: &'static str,
    },
    /// `insert` found a row with the same key.
    #[error("the key is already in the tree")]
    Duplicate,
    /// A row of a bulk load has a key that is not above that of the row before.
    #[error(
        "row {position} of the load, counted from 0, is out of order, or has the key before it"
    )]
    OutOfOrder {
        /// How many rows came before it.
        position: u64,
    },
    /// A tree that is to be loaded has rows, or others change it.
    #[error("the tree is not empty")]
    NotEmpty,
    /// The value exceeds [`max_value`](crate::max_value).
    #[error("value of {bytes} bytes, at most {max} fit a page with a key of {key_bytes} bytes")]
    ValueTooLong {
        /// Length of the value.
        bytes: usize,
        /// The longest allowed with a key of this length.
        max: usize,
        /// Length of the key.
        key_bytes: usize,
    },
    /// The key exceeds [`max_key`](crate::max_key).
    #[error("key of {bytes} bytes, at most {max} fit a page")]
    KeyTooLong {
        /// Length of the key.
        bytes: usize,
        /// The longest allowed.
        max: usize,
    },
    /// Others kept changing the tree under the operation, which gave up after a bounded number of
    /// attempts. Nothing was changed.
    #[error("gave up after {attempts} attempts: the pages on the way kept changing")]
    Contended {
        /// How many.
        attempts: u32,
    },
}

impl TreeError {
    /// Whether the same operation may succeed later without anything being repaired.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_retryable(),
            Self::Contended { .. } => true,
            _ => false,
        }
    }

    /// Names the page of a [`TreeError::Corrupt`] that came from bytes alone.
    #[must_use]
    pub fn at(self, page: GAddr) -> Self {
        match self {
            Self::Corrupt { addr, what } if addr.is_null() => Self::Corrupt { addr: page, what },
            other => other,
        }
    }

    /// The error for a damaged page at `addr`.
    pub(crate) fn damaged(addr: GAddr) -> impl FnOnce(Damage) -> Self {
        move |Damage(what)| Self::Corrupt { addr, what }
    }
}

impl From<Damage> for TreeError {
    fn from(Damage(what): Damage) -> Self {
        Self::Corrupt { addr: GAddr::NULL, what }
    }
}

/// The leaf has no room for the row: split it ([`Tree::split_leaf`](crate::Tree::split_leaf)) and
/// try again on the side the key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the leaf has no room for the row")]
pub struct NoRoom;
