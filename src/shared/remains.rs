//! What those who join a pool find of it: its memory may be gone, and so may the pool itself before
//! they are in.

use std::time::Duration;

use crate::fabric::{Env, PeerId};
use crate::pool::Residency;
use crate::pool::control::{ControlError, MemoryMember, PoolState};

use super::error::SharedPoolError;
use super::network::FabricKind;
use super::pool::SharedPool;

impl SharedPool {
    /// What came of a join that began in this state; that the pool was destroyed meanwhile says
    /// more than what was met because of it.
    pub(super) async fn unless_destroyed<T>(
        &self,
        state: &PoolState,
        joined: Result<T, SharedPoolError>,
    ) -> Result<T, SharedPoolError> {
        let Err(error) = joined else { return joined };
        // Only a plane that answers knows that there is no such pool.
        let is_destroyed = match self.plane.load().await {
            Ok(found) => found.state.id != state.id,
            Err(error) => matches!(error, ControlError::NoPool { .. }),
        };
        Err(if is_destroyed { SharedPoolError::Destroyed } else { error })
    }

    /// Refuses a pool none of whose memory nodes lives, though some have joined: nothing brings
    /// back what they held. Over a network they have a lease to show themselves: a sign of life
    /// from before the call is none, and one that is late says little.
    pub(super) async fn check_memory(
        &self,
        env: &Env,
        state: &PoolState,
    ) -> Result<(), SharedPoolError> {
        let has_left = |member: &&MemoryMember| member.stay == Residency::Left;
        let nodes = state.memory_nodes.iter().flatten().filter(|node| !has_left(node)).count();
        let silent_for = match self.kind_of(state)? {
            FabricKind::Shm => None,
            FabricKind::Tcp | FabricKind::Verbs => Some(state.timing.lease),
        };
        let started = env.now();
        while nodes > 0 && !self.shows_memory(silent_for.map(|_| env.now() - started)).await? {
            if env.now() - started >= silent_for.unwrap_or_default() {
                let place = self.place.to_string();
                return Err(SharedPoolError::AllMemoryGone { place, nodes, silent_for });
            }
            env.sleep(self.plane.pace()).await;
        }
        Ok(())
    }

    /// Whether a memory node lives, over a network by a beat within this time.
    async fn shows_memory(&self, within: Option<Duration>) -> Result<bool, SharedPoolError> {
        let Some(within) = within else {
            return Ok(self.living().await?.iter().any(|peer| peer.is_memory()));
        };
        let state = self.plane.load().await?.state;
        let lives = |peer: PeerId| peer.is_memory() && state.lives(peer.index());
        let beats = self.plane.beats().await?;
        Ok(beats.iter().any(|(beat, age)| *age < within && lives(beat.node)))
    }
}
