//! Waits until other processes have seen a change.

use std::collections::BTreeMap;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::env::Env;

use super::process::Membership;
use crate::control::{Beat, Version};
use crate::document::{PoolState, UNREACHABLE_LEASES};
use crate::error::PoolError;

/// Leases for which the other processes are waited for to take note of a change.
const NOTICE_LEASES: u32 = 5;

/// Leases after which a dead node is missed. After one lease it is silent for too long. Then it is
/// watched, and the process that declares it dead may find the state changed. And a plane may tell
/// ages in whole seconds, rounded down.
const MISSED_LEASES: u32 = 3;

// A process that waits until a node is missed takes note of no change meanwhile, while others wait
// for it to do so.
const _: () = assert!(MISSED_LEASES < NOTICE_LEASES);
// A link to a dead node ends by the declaration of its death.
const _: () = assert!(MISSED_LEASES < UNREACHABLE_LEASES);

impl Membership {
    /// A node of another process that has not acted yet upon this version of the state.
    pub(super) async fn late(&self, version: Version) -> Result<Option<PeerId>, PoolError> {
        let state = self.state();
        let mut waited = watched(&state);
        waited.retain(|_, host| *host != self.host);
        if waited.is_empty() {
            return Ok(None);
        }
        let beats = self.plane.beats().await?;
        let knows = |node: PeerId, host: u64| {
            let own = |beat: &Beat| beat.node == node && beat.host == host;
            beats.iter().any(|(beat, _)| own(beat) && beat.seen >= version)
        };
        Ok(waited.iter().find(|(node, host)| !knows(**node, **host)).map(|(node, _)| *node))
    }

    /// Waits until all other processes have acted upon this version of the state or a later one.
    pub async fn until_noticed(&self, env: &Env, version: Version) -> Result<(), PoolError> {
        let started = env.now();
        loop {
            self.act()?;
            let here = self.acted.lock().upto >= version;
            if here {
                self.beat(env, None).await?;
            }
            let late = if here { self.late(version).await? } else { Some(self.some_node()) };
            let Some(node) = late else { return Ok(()) };
            let waited = env.now().saturating_sub(started);
            if waited > self.notice_bound() {
                return Err(PoolError::Unresponsive { node, waited });
            }
            env.sleep(self.plane.pace()).await;
            // A node that leaves meanwhile need not know.
            self.see(self.plane.load().await?);
        }
    }

    /// How long after its death a node of another process is missed, of the nodes that `is_meant`
    /// selects; `None` if the silence of none of them tells its death.
    pub fn missed_within(&self, is_meant: impl Fn(PeerId) -> bool) -> Option<Duration> {
        let state = self.state();
        let mut watched = watched(&state).into_iter();
        let is_watched = watched.any(|(node, host)| host != self.host && is_meant(node));
        is_watched.then_some(state.timing.lease * MISSED_LEASES)
    }

    /// How long others may take to take note of a change.
    pub fn notice_bound(&self) -> Duration {
        self.timing().lease * NOTICE_LEASES
    }

    /// One of this process's nodes, or of all, for a message.
    pub(super) fn some_node(&self) -> PeerId {
        let state = self.state();
        let own = self.own_nodes(&state).pop_first();
        own.or_else(|| watched(&state).into_keys().next()).unwrap_or(PeerId::memory(0))
    }
}

/// The nodes whose silence means their death, and their processes.
pub(super) fn watched(state: &PoolState) -> BTreeMap<PeerId, u64> {
    let compute = state.compute_nodes.iter();
    let compute = compute.map(|(index, member)| (PeerId::compute(*index), member.host));
    let cards = state.cards.iter().map(|(raw, card)| (PeerId::from_raw(*raw), card.host));
    compute.chain(cards).collect()
}
