//! What every control plane does.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::{BoxFuture, PeerId};
use serde::{Deserialize, Serialize};

use super::error::ControlError;
use crate::document::PoolState;

/// Grows with every change of a pool's state.
pub type Version = u64;

/// A random number of one change of a pool's state, the same for all attempts. Planes keep the
/// number of the change that wrote the state, so that an attempt recognises the effect of an
/// earlier one whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Change(u64);

impl Change {
    /// The number of a new change.
    #[must_use]
    pub fn random() -> Self {
        // Fresh keys of the system, which hash nothing to a number.
        Self(RandomState::new().build_hasher().finish())
    }
}

/// A pool's state, and its version.
#[derive(Clone, Debug)]
pub struct Versioned {
    /// The version.
    pub version: Version,
    /// The state.
    pub state: Arc<PoolState>,
}

/// A sign of life of a node, and the version that it has acted upon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The node.
    #[serde(with = "crate::document::peer_number")]
    pub node: PeerId,
    /// The process that runs it: see [`crate::control::Member::host`].
    pub host: u64,
    /// The node works by this state of the pool, or a later one.
    pub seen: Version,
    /// Its report, for people who watch the pool; may be empty.
    pub report: String,
}

/// Keeps the state of one pool. Calls may be made from any process that uses the plane.
pub trait ControlPlane: Send + Sync {
    /// The state as it is.
    ///
    /// # Errors
    /// `NoPool`, `Damaged`, `Unavailable`.
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>>;

    /// Creates a pool where there is none.
    ///
    /// # Errors
    /// `PoolExists`, `Unavailable`, `Refused` by planes that do not make pools.
    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>>;

    /// Replaces the state of version `expected` by `state`; `None` if there is a later one.
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

    /// As [`ControlPlane::replace`], for callers that may have to ask again: if `change` itself
    /// wrote the present state, the answer is that state's version, as it was the first time.
    ///
    /// # Errors
    /// As [`ControlPlane::replace`].
    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>>;

    /// Stores a sign of life; the newest beat of a node counts.
    ///
    /// # Errors
    /// `Unavailable`.
    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>>;

    /// The newest beats, and how long ago they were.
    ///
    /// # Errors
    /// `Damaged`, `Unavailable`.
    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>>;

    /// Whether another process is asked for it, to which this one shows its own certificate.
    fn is_relayed(&self) -> bool {
        false
    }

    /// How often to look for changes.
    fn pace(&self) -> Duration;

    /// Removes the pool with all its beats. Processes that use it find that it is gone.
    ///
    /// # Errors
    /// `Unavailable`, `Refused` by planes that do not do that.
    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>>;
}
