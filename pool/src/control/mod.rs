//! The control plane: where the nodes of a pool agree on what the pool is and who is in it.
//!
//! It is a small document, [`PoolState`], that is replaced as a whole under compare-and-swap, and a
//! beat of every node, which says how much of the document's history the node has seen, and how it
//! is. Nothing of it is on a data path: nodes work from the copy they have, and only changes of
//! membership wait for it.
//!
//! | plane | for |
//! | --- | --- |
//! | [`LocalPlane`] | a pool within one process |
//! | [`FilePlane`] | the processes of one host |
//! | `EtcdPlane` | hosts that share an etcd; needs the feature `etcd` |
//! | [`RemotePlane`] | processes that share neither with the pool: they ask a [`Relay`] to one of the planes above |

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(target_os = "linux")]
mod file;
mod local;
mod promise;
mod relay;
mod remote;
mod room;
mod serve;
mod state;
mod target;

#[cfg(feature = "etcd")]
pub use etcd::EtcdPlane;
#[cfg(target_os = "linux")]
pub use file::FilePlane;
pub use local::LocalPlane;
pub use relay::{RELAY_MAGIC, RelayError};
pub use remote::{Expectation, RemotePlane};
pub use room::MAX_RANGES;
pub use selkie_fabric::Stream;
pub use serve::Relay;
pub(crate) use state::SPARE_NODES;
pub use state::{
    Card, Identity, Lost, MAX_LOST_PAGES, Mailbox, Member, MemoryMember, Moment, PoolState,
    RangePlace, Slab, Timing,
};
pub use target::Connect;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::{BoxFuture, PeerId};
use serde::{Deserialize, Serialize};

/// Grows with every change of a pool's state.
pub type Version = u64;

/// Random: stands for one change of a pool's state, however often it is attempted. Planes keep that
/// of the change that wrote the state they have, so that an attempt knows the work of the one
/// before it, whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Change(u64);

impl Change {
    /// A change that is like no other.
    #[must_use]
    pub fn random() -> Self {
        // Fresh keys of the system, which hash nothing to a number.
        Self(RandomState::new().build_hasher().finish())
    }
}

/// A pool's state at some moment.
#[derive(Clone, Debug)]
pub struct Versioned {
    /// The moment.
    pub version: Version,
    /// The state.
    pub state: Arc<PoolState>,
}

/// Says that a node lives, and what it has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The node.
    #[serde(with = "state::peer")]
    pub node: PeerId,
    /// The process that runs it: see [`Member::host`].
    pub host: u64,
    /// The node works by this state of the pool, or a later one.
    pub seen: Version,
    /// What it has to say of itself, for people who look on; may be empty.
    pub report: String,
}

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

    fn place_mut(&mut self) -> &mut String {
        match self {
            Self::NoPool { place }
            | Self::PoolExists { place }
            | Self::Damaged { place, .. }
            | Self::OtherPool { place, .. }
            | Self::Refused { place, .. }
            | Self::Unavailable { place, .. } => place,
        }
    }
}

/// Keeps the state of one pool. Calls may be made from any process that uses the plane.
pub trait ControlPlane: Send + Sync {
    /// The state as it is.
    ///
    /// # Errors
    /// `NoPool`, `Damaged`, `Unavailable`.
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>>;

    /// Makes a pool where there is none.
    ///
    /// # Errors
    /// `PoolExists`, `Unavailable`, `Refused` by planes that do not make pools.
    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>>;

    /// Puts `state` in place of the one of version `expected`; `None` if there is a later one.
    ///
    /// # Errors
    /// As [`ControlPlane::load`]. After `Unavailable` it may have been done all the same.
    fn replace(
        &self,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        self.replace_as(Change::random(), expected, state)
    }

    /// As [`ControlPlane::replace`], for who may have to ask again: if `change` itself wrote the
    /// state that is there, the answer is that state's version, as it was the first time.
    ///
    /// # Errors
    /// As [`ControlPlane::replace`].
    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>>;

    /// Shows that a node lives; the newest beat of a node counts.
    ///
    /// # Errors
    /// `Unavailable`.
    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>>;

    /// The newest beats, and how long ago they were.
    ///
    /// # Errors
    /// `Damaged`, `Unavailable`.
    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>>;

    /// How often it pays to look for changes.
    fn pace(&self) -> Duration;

    /// Removes the pool and all that is known of it. Processes that use it find that it is not
    /// there.
    ///
    /// # Errors
    /// `Unavailable`, `Refused` by planes that do not do that.
    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>>;
}
