//! Peers to which a queue pair of this node has ended, though the others may still reach them.
//!
//! The death of a peer is the affair of the pool: it is declared, and recovered from. But a link
//! may end and its peer live, if the network between the two is cut for longer than any death takes
//! to be noticed. Then messages are lost that the peer waits for, or pages do not get home. No part
//! of the protocol makes up for that but a recovery. So this node waits for as long as the others
//! may take to miss the peer, and if the peer still lives it gives its own membership up: the
//! others recover from it, and redo its log.
//!
//! ```text
//! silent since     + 3 leases                + 4 leases                  + 5 leases
//! |----------------|-------------------------|---------------------------|
//! links wait, and  the others miss the peer  links end: this node, or    the lower of two compute
//! go on if it is   at the latest, if it is   the higher of two compute   nodes gives up, if the
//! there again      dead                      nodes, gives up             higher one did not
//! ```
//! The silence in which a link has ended counts ([`selkie_fabric::Endpoint::silence_of`]), so over
//! TCP nothing is waited for then. A link that has ended for another reason leaves all of the wait.
//! The cut may have healed when the link ends: it does not go on all the same, as its chains have
//! failed. So this node must not wait on then, because others may wait for it.
//!
//! Of two compute nodes that do not reach each other one has to go. It is the one with the higher
//! index; the other waits a lease longer, in which it hears of that.
//!
//! Meanwhile the node serves. Its words and copies are right, because nothing that was lost counts
//! as done. In a plain pool a page that did not get home is gone from here. Its changes are in the
//! log alone, so the log is not cut short while a memory node is in doubt.

use std::time::Duration;

use selkie_fabric::{FabricError, PeerId};
use selkie_pool::ComputeIndex;

use crate::EngineError;
use crate::coherence::word::MAX_COMPUTE_NODES;
use crate::core::Core;

/// What follows from a doubt.
enum DoubtOutcome {
    Wait {
        until: Option<Duration>,
    },
    Over,
    /// The peer lives, and this node does not reach it.
    End,
}

impl Core {
    /// Notes that a verb found a memory node dead, which may be dead for this node alone.
    pub(crate) fn doubt_memory(&self, peer: PeerId) {
        if self.memory.coded.is_some() {
            self.memory.quiesced.suspect(usize::from(peer.index()));
        } else {
            self.recovery.doubts.add(peer);
        }
    }

    /// As [`Core::doubt_memory`], if that is what an error says: a task that tries again for ever
    /// would find the same.
    pub(crate) fn doubt_after(&self, error: &EngineError) {
        if let EngineError::Fabric(FabricError::PeerDead { peer }) = error
            && peer.is_memory()
        {
            self.doubt_memory(*peer);
        }
    }

    /// Looks for peers that this node does not reach. Ends the node if one of them lives.
    pub(crate) fn settle_doubts(&self) {
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::UndoubtedLinks {
            self.recovery.doubts.clear();
            return;
        }
        for index in (0..MAX_COMPUTE_NODES).filter(|index| *index != self.me.index()) {
            let peer = PeerId::compute(index as u16);
            if self.messenger.mailbox_for(index).has_lost(index) && self.is_in_pool(peer) {
                self.recovery.doubts.add(peer);
            }
        }
        for (peer, until) in self.recovery.doubts.all() {
            match self.outcome_of(peer, until) {
                DoubtOutcome::Wait { until } => self.recovery.doubts.keep(peer, until),
                DoubtOutcome::Over => self.recovery.doubts.end(peer),
                DoubtOutcome::End => return self.end_unreachable(peer),
            }
        }
    }

    /// Waits until it is known of each memory node whether it lives.
    ///
    /// # Errors
    /// The error of the engine, if it ends as one of them lives.
    pub(crate) async fn until_doubts_are_settled(&self) -> Result<(), EngineError> {
        let is_settled = || {
            self.settle_doubts();
            !self.recovery.doubts.has_memory()
        };
        while !is_settled() {
            self.lifecycle.check_failed()?;
            self.env.sleep(self.config.tick).await;
        }
        Ok(())
    }

    fn outcome_of(&self, peer: PeerId, until: Option<Duration>) -> DoubtOutcome {
        let now = self.env.now();
        if !self.is_in_pool(peer) {
            return DoubtOutcome::Over;
        }
        match until {
            Some(until) => {
                // A node that does not know that it is in the pool itself, as after its machine was
                // suspended, may not have heard of the death yet.
                let until = self.news_by(until, self.lifecycle.was_member_at(now));
                if now < until {
                    DoubtOutcome::Wait { until: Some(until) }
                } else {
                    DoubtOutcome::End
                }
            }
            None => {
                let missed = self.pool.peer_missed_within(peer);
                // Not every fabric can tell: the others miss the peer if it is dead.
                let Some(first) = self.missed_from_now(peer, missed) else {
                    return DoubtOutcome::Over;
                };
                let goes_first = peer.is_memory() || peer.index() < self.index().get();
                let more =
                    if goes_first || missed.is_none() { Duration::ZERO } else { self.lease() };
                DoubtOutcome::Wait { until: Some(now + first + more) }
            }
        }
    }

    fn lease(&self) -> Duration {
        self.pool.state().timing.lease
    }

    /// When the news of a death is here that is due `by` a time: while none can come, a lease from
    /// now on, and so a lease after the last time at which none could.
    pub(crate) fn news_by(&self, by: Duration, can_come: bool) -> Duration {
        if can_come { by } else { by.max(self.env.now() + self.lease()) }
    }

    /// How long a peer that others miss within `missed` of its death may not be missed from now on,
    /// if it is dead. The silence in which a queue pair to it has ended counts. `None` if the
    /// fabric knows that the peer is dead. Any other error of a new queue pair says nothing of the
    /// peer, and no later one would have to.
    pub(crate) fn missed_from_now(
        &self,
        peer: PeerId,
        missed: Option<Duration>,
    ) -> Option<Duration> {
        let is_dead = |error| matches!(error, FabricError::PeerDead { peer: dead } if dead == peer);
        if self.endpoint.connect(peer).is_err_and(is_dead) {
            return None;
        }
        let silent = self.endpoint.silence_of(peer);
        Some(missed.map_or(Duration::ZERO, |missed| missed.saturating_sub(silent)))
    }

    /// Whether a peer is in the pool and lives, as far as this process knows.
    fn is_in_pool(&self, peer: PeerId) -> bool {
        if peer.is_memory() {
            return !self.pool.is_memory_dead(usize::from(peer.index()));
        }
        let known = self.messenger.known_incarnation(usize::from(peer.index()));
        known.is_some_and(|known| self.pool.is_incarnation(ComputeIndex::new(peer.index()), known))
    }

    /// Gives the membership up, as a peer that lives cannot be reached.
    pub(crate) fn end_unreachable(&self, peer: PeerId) {
        if !self.lifecycle.has_failed() {
            self.end_with(EngineError::Unreachable { peer });
            self.give_up_soon();
        }
    }
}
