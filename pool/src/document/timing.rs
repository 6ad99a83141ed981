//! When a node's silence means its death, and what follows from that.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::PoolError;

/// When a node's silence means its death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// A node that has not shown for so long that it lives is dead.
    pub lease: Duration,
    /// How often a node shows that it lives.
    pub heartbeat: Duration,
}

impl Timing {
    /// A memory node whose looks at the plane are further apart was away from it.
    #[must_use]
    pub fn away_after(self) -> Duration {
        self.heartbeat * 3 / 2
    }

    /// For how long a memory node that was away counts its looks before it says that it has acted
    /// upon what it has found. A node that relies on its absence has to look more often.
    #[must_use]
    pub fn acts_after(self) -> Duration {
        self.lease / 4
    }

    /// For how long at most a change after a snapshot barrier stays on its node
    /// ([`crate::Pool::begin_barrier`]).
    #[must_use]
    pub fn barrier_bound(self) -> Duration {
        self.lease / 4
    }

    /// A node that another one has not reached for so long is given up by it, whether or not it
    /// lives: the last resort, if its death is not declared.
    #[must_use]
    pub fn unreachable_after(self) -> Duration {
        self.lease * UNREACHABLE_LEASES
    }

    /// Checks that a node which lives is not taken for dead because one or two of its beats are
    /// late.
    ///
    /// # Errors
    /// [`PoolError::Config`].
    pub fn validate(self) -> Result<(), PoolError> {
        let refused = |key, value: Duration, allowed| {
            Err(PoolError::Config { key, value: format!("{value:?}"), allowed })
        };
        let Self { lease, heartbeat } = self;
        if !(MIN_HEARTBEAT..=MAX_LEASE).contains(&heartbeat) {
            return refused("heartbeat", heartbeat, format!("{MIN_HEARTBEAT:?} to {MAX_LEASE:?}"));
        }
        let least = heartbeat * BEATS_A_LEASE;
        if !(least..=MAX_LEASE).contains(&lease) {
            let allowed = format!("{least:?} ({BEATS_A_LEASE} heartbeats) to {MAX_LEASE:?}");
            return refused("lease", lease, allowed);
        }
        Ok(())
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self { lease: Duration::from_secs(2), heartbeat: Duration::from_millis(250) }
    }
}

/// Why the others took a node for dead, if it was late itself, and what helps: to be put behind
/// that it is dead. Nothing if the node was silent for less than others mind.
#[must_use]
pub fn lateness(silent_for: Duration, lease: Duration) -> String {
    if silent_for < lease * 3 / 4 {
        return String::new();
    }
    format!(
        ": for {:.1} s it could not show that it lives, and the lease of the pool is {} s; on a host with much load, or \
         a slow network, make the pool with a longer one (`selkie pool create --lease`)",
        silent_for.as_secs_f64(),
        lease.as_secs_f64()
    )
}

/// As [`Timing::unreachable_after`], in leases. Longer than others take to miss a dead node.
pub(crate) const UNREACHABLE_LEASES: u32 = 4;

const MIN_HEARTBEAT: Duration = Duration::from_millis(10);

const MAX_LEASE: Duration = Duration::from_secs(600);

/// The least a lease is longer than a heartbeat.
const BEATS_A_LEASE: u32 = 4;
