//! A node's own decision whether it still is in the pool, by its own clock.
//!
//! A node that cannot show that it lives is declared dead at the end of its lease, and then other
//! nodes change pages of which it has copies. So from three quarters of the lease on it serves
//! nothing from its cache:
//!
//! ```text
//!       silent for 3/4 of a lease, and the plane is
//!       not known to be away from all memory nodes
//!   On ----------------------------------------------> Suspended --> Expelled
//!      <----------------------------------------------
//!       a beat, and after that a change of the pool's
//!       state, both within the lease; or the plane is away
//! ```
//! *Suspended.* Callers that want a page wait, at most for the request timeout: a machine that
//! paused briefly has not lost its nodes. Requests of other nodes are answered, before local
//! callers. A guard that a caller has stays valid.
//!
//! *Why it may resume.* A node that declares this one dead has read the state, then the beats, and
//! replaces exactly that state (`selkie_pool`). When this node has changed the state after a
//! beat of its own, every node with older beats has an older state and fails. The others see the
//! new beat, which is valid for a lease. An answer that comes after that counts for nothing. A node
//! that was silent for too long is noticed when its next beat is through
//! ([`selkie_pool::SignsOfLife`]), also by a node that paused itself.
//!
//! *Expelled.* The node finds that it is out of the pool, or has no answer until long after the
//! others must have missed it.
//!
//! *The plane is away.* Then no node can be declared dead, and all resume. Before a death has an
//! effect, every memory node must have reported that it knows of it. Each memory node counts in its
//! control page how often it has read the plane. As long as all memory nodes execute this node's
//! reads, and their counts are the same as when the lease still lasted, none of them knows of its
//! death, and the node serves. All of them must, because a silent memory node may be declared dead
//! itself, and is asked no more. A memory node that reaches the plane again counts first, and
//! reports a quarter of a lease later what it has read. Probes come twice as often, and their
//! results are valid for three sixteenths of a lease. A node that was silent for too long before,
//! and has not renewed since, does not resume for that reason.
//!
//! *Acknowledgements.* Hits do not read the clock: a process that pauses while it serves continues
//! to serve for one tick after it wakes up. So a transaction is acknowledged only when it is known
//! that the node was in the pool after its last access ([`Core::until_member`]): by the clock, and
//! by a time that only this task moves on.
//!
//! Not done: a virtual machine that its host pauses, or moves to another, sees no clock go on. It
//! serves and acknowledges for one tick after it wakes up.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::{Buf, Chain, Verb};
use selkie_pool::{SignsOfLife, layout};

use crate::addressing::executed::word_at;
use crate::core::Core;
use crate::log::LogWatch;
use crate::{EngineError, GAddr};

/// How often one memory node has read the plane, as far as this node knows.
#[derive(Clone, Copy, Default)]
struct PlaneReads {
    /// The count, and when it was first seen so.
    since: Option<(u64, Duration)>,
    /// The latest time at which the count had not changed for longer than it does while the plane
    /// is reachable.
    still_at: Option<Duration>,
}

impl PlaneReads {
    /// Notes a count that was read by a verb posted at `asked`.
    fn note(&mut self, count: u64, asked: Duration, now: Duration, pause: Duration) {
        match self.since {
            Some((before, since)) if before == count => {
                if asked.saturating_sub(since) >= pause {
                    self.still_at = Some(asked);
                }
            }
            _ => *self = Self { since: Some((count, now)), still_at: None },
        }
    }

    /// Whether the count has not changed since the time `at`, by a probe `within` this duration.
    fn stand_still(&self, at: Duration, now: Duration, within: Duration) -> bool {
        let was_so = self.since.is_some_and(|(_, since)| since <= at);
        was_so && self.still_at.is_some_and(|still_at| now.saturating_sub(still_at) <= within)
    }
}

type PlaneWatch = Arc<Mutex<Vec<PlaneReads>>>;

/// Leases for which a suspended node waits for an answer whether it is in the pool.
const SUSPENDED_LEASES: u32 = 2;

/// Whether the cache is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServiceState {
    /// It is. `silences` is how often the node had been silent for too long when it was last sure
    /// that it is in the pool.
    On { silences: u64 },
    /// It is not, since the time `at`; `silences` as above.
    Suspended { at: Duration, silences: u64 },
}

/// What a node knows of its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeaseKnowledge {
    /// The lease lasts. `silences` is how often the node had been silent for too long before.
    Lasts { silences: u64 },
    /// The plane has been away from all memory nodes, which would have to know of its death, since
    /// the lease lasted; `silences` as above.
    PlaneIsAway { silences: u64 },
    /// The lease may be over.
    Nothing,
}

/// The next step of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeaseStep {
    /// Serve the cache, or do not.
    Be(ServiceState),
    /// Make sure that the node is in the pool.
    Renew,
    /// End: the node has waited for too long.
    End,
}

impl ServiceState {
    fn next(self, now: Duration, known: LeaseKnowledge, lease: Duration) -> LeaseStep {
        let (ServiceState::On { silences } | ServiceState::Suspended { silences, .. }) = self;
        match (self, known) {
            // Since the node was sure, no other node has found it silent for a lease.
            (ServiceState::On { .. }, LeaseKnowledge::Lasts { silences: now })
                if now == silences =>
            {
                LeaseStep::Be(self)
            }
            (_, LeaseKnowledge::PlaneIsAway { silences: now }) if now == silences => {
                LeaseStep::Be(ServiceState::On { silences })
            }
            (ServiceState::On { .. }, _) | (_, LeaseKnowledge::PlaneIsAway { .. }) => {
                LeaseStep::Be(ServiceState::Suspended { at: now, silences })
            }
            (ServiceState::Suspended { .. }, LeaseKnowledge::Lasts { .. }) => LeaseStep::Renew,
            (ServiceState::Suspended { at, .. }, LeaseKnowledge::Nothing)
                if now.saturating_sub(at) <= SUSPENDED_LEASES * lease =>
            {
                LeaseStep::Be(self)
            }
            (ServiceState::Suspended { .. }, LeaseKnowledge::Nothing) => LeaseStep::End,
        }
    }
}

/// Lets the node serve its cache as long as no node can have declared it dead, and ends it when one
/// has.
pub(crate) async fn run_lease(core: Weak<Core>, tick: Duration) {
    let Some((env, pool)) = core.upgrade().map(|core| (core.env.clone(), Arc::clone(&core.pool)))
    else {
        return;
    };
    let watch = PlaneWatch::default();
    let (mut probed, mut log_watch) = (Duration::ZERO, LogWatch::default());
    let mut service = ServiceState::On { silences: pool.signs_of_life(env.now()).silences };
    if let Some(core) = core.upgrade() {
        let now = env.now();
        core.note_membership(service, core.known(&watch, now), now);
    }
    drop(pool);
    loop {
        env.sleep(tick).await;
        let Some(core) = core.upgrade() else { return };
        core.panic_if_planted("lease");
        // First, because a successor may have the index of a node that has left.
        let is_member = core.is_member_itself();
        if core.lifecycle.is_leaving() && !is_member {
            continue;
        }
        if core.pool.is_gone() {
            // There is no control plane any more that could tell others, or be waited for.
            if !core.lifecycle.has_failed() {
                core.end_with(EngineError::PoolDestroyed);
            }
            return;
        }
        if core.lifecycle.has_failed() {
            // A failed node answers no requests, so the others must not wait for it. A call that
            // fails is repeated.
            let gave_up = core.pool.give_up(core.index(), core.own_incarnation()).await;
            match gave_up {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "cannot tell that this node has failed"),
            }
            continue;
        }
        if !is_member {
            core.end_with(core.expelled());
            continue;
        }
        // Here, as the steps of a recovery last for long.
        core.answer_for_left();
        core.tell_of_log_waits(&mut log_watch);
        let (now, timing) = (env.now(), core.pool.state().timing);
        // By earlier answers, and not by those that are requested now.
        let known = core.known(&watch, now);
        service = match service.next(now, known, timing.lease) {
            LeaseStep::Be(next) => core.serve(service, next),
            LeaseStep::Renew => core.renew(&watch, service, known).await,
            LeaseStep::End => {
                core.end_with(core.expelled());
                service
            }
        };
        core.note_membership(service, known, now);
        let silent_for = core.pool.signs_of_life(now).silent_for;
        if silent_for < timing.lease / 4 {
            watch.lock().clear();
        } else if now.saturating_sub(probed) >= timing.lease / 8 {
            probed = now;
            core.probe(&watch, timing.away_after());
        }
    }
}

impl Core {
    /// Ends service for ever. The lease task tells the others.
    pub(crate) fn end_with(&self, error: EngineError) {
        tracing::warn!(node = %self.endpoint.id(), %error, "serves nothing more");
        self.lifecycle.fail(error);
        // At once, and not frame by frame.
        self.lifecycle.set_suspended(true);
        self.fail_all_waits();
        if let Some(log) = &self.log {
            log.wake_all();
        }
        self.cache.seal_all();
    }

    fn tell_of_log_waits(&self, watch: &mut LogWatch) {
        let Some(log) = &self.log else { return };
        let told = watch.look(log, self.env.now(), self.config.request_timeout);
        if let Some(text) = told {
            tracing::warn!(node = %self.endpoint.id(), "{text}");
        }
    }

    /// The error of a node that the others took for dead, with what is known of the cause.
    fn expelled(&self) -> EngineError {
        let (silent_for, lease) = self.pool.lateness(self.env.now());
        EngineError::Expelled { silent_for, lease }
    }

    /// What the node knows of its lease at a time.
    fn known(&self, watch: &PlaneWatch, now: Duration) -> LeaseKnowledge {
        let SignsOfLife { silent_for, silences, .. } = self.pool.signs_of_life(now);
        let lease = self.pool.state().timing.lease;
        let lasted_at = now.saturating_sub(silent_for) + lease * 3 / 4;
        if silent_for <= lease * 3 / 4 {
            LeaseKnowledge::Lasts { silences }
        } else if self.plane_is_away(watch, lasted_at, now, lease * 3 / 16) {
            LeaseKnowledge::PlaneIsAway { silences }
        } else {
            LeaseKnowledge::Nothing
        }
    }

    /// Notes up to when no node can have declared this node dead, by what was known at `now`.
    fn note_membership(&self, service: ServiceState, known: LeaseKnowledge, now: Duration) {
        let until = match (service, known) {
            (ServiceState::On { silences: sure }, LeaseKnowledge::Lasts { silences })
                if sure == silences =>
            {
                // One look: a beat after a pause moves both, and then nothing is known.
                let SignsOfLife { silent_for, silences, .. } = self.pool.signs_of_life(now);
                if sure != silences {
                    return;
                }
                now.saturating_sub(silent_for) + self.pool.state().timing.lease * 3 / 4
            }
            (ServiceState::On { silences: sure }, LeaseKnowledge::PlaneIsAway { silences })
                if sure == silences =>
            {
                now
            }
            _ => return,
        };
        self.lifecycle.set_member_until(until);
    }

    /// Waits until it is known that no node had declared this node dead when the call began: what
    /// the caller has read or made durable before is valid then.
    ///
    /// # Errors
    /// `LeaseUncertain` after the request timeout; the node's error as soon as it has failed.
    pub(crate) async fn until_member(&self) -> Result<(), EngineError> {
        let started = self.env.now();
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::UnaskedLease {
            return Ok(());
        }
        loop {
            self.lifecycle.check_failed()?;
            if self.lifecycle.was_member_at(started) {
                return Ok(());
            }
            if self.lifecycle.is_leaving() && !self.is_member_itself() {
                // The lease task notes no more.
                return Err(EngineError::Closed);
            }
            let waited = self.env.now() - started;
            if waited > self.config.request_timeout {
                return Err(EngineError::LeaseUncertain { waited });
            }
            // The lease task judges again meanwhile.
            self.env.sleep(self.config.tick).await;
        }
    }

    /// Makes sure that the node is in the pool. Returns the new service state.
    async fn renew(
        &self,
        watch: &PlaneWatch,
        before: ServiceState,
        known: LeaseKnowledge,
    ) -> ServiceState {
        match self.pool.renew(self.index(), self.own_incarnation()).await {
            Ok(true) => match known {
                // A late answer counts for nothing if the lease ended meanwhile.
                LeaseKnowledge::Lasts { silences }
                    if self.known(watch, self.env.now()) == known =>
                {
                    self.serve(before, ServiceState::On { silences })
                }
                _ => before,
            },
            Ok(false) => {
                if !self.lifecycle.is_leaving() {
                    self.end_with(self.expelled());
                }
                before
            }
            Err(error) => {
                tracing::debug!(%error, "cannot make sure that this node is in the pool");
                before
            }
        }
    }

    /// Suspends or resumes hits. Returns the new service state.
    fn serve(&self, before: ServiceState, next: ServiceState) -> ServiceState {
        let is_on = |service| matches!(service, ServiceState::On { .. });
        let node = self.endpoint.id();
        match (is_on(before), is_on(next)) {
            (true, false) => {
                tracing::warn!(%node, "cannot show that it lives: serves nothing until it can");
                self.suspend();
            }
            (false, true) => {
                // As loud as what it takes back.
                tracing::warn!(%node, "is still in the pool, and goes on");
                self.lifecycle.set_suspended(false);
            }
            _ => {}
        }
        next
    }

    /// Lets hits wait. Callers that waited for a page before try again, and no longer delay
    /// requests of other nodes.
    fn suspend(&self) {
        self.lifecycle.set_suspended(true);
        for shard in self.cache.all_shards() {
            // A task that has not seen it has the lock, and leaves lines that are not at rest.
            let lines: Vec<u64> = shard.lock().keys().copied().collect();
            lines.into_iter().for_each(|addr| self.notify(GAddr::from_u64(addr)));
        }
    }

    /// Whether all living memory nodes have been without the plane since a time. Without cards a
    /// death has an effect before memory nodes know of it, so the answer is no.
    fn plane_is_away(
        &self,
        watch: &PlaneWatch,
        since: Duration,
        now: Duration,
        within: Duration,
    ) -> bool {
        let (state, watch) = (self.pool.state(), watch.lock());
        let living = |number: &usize| !self.pool.is_memory_dead(*number);
        let mut living = (0..self.memory.node_count()).filter(living).peekable();
        let stand_still = |number: usize| {
            watch.get(number).is_some_and(|looks| looks.stand_still(since, now, within))
        };
        !state.cards.is_empty() && living.peek().is_some() && living.all(stand_still)
    }

    /// Reads the counts of all memory nodes. Does not wait.
    fn probe(&self, watch: &PlaneWatch, pause: Duration) {
        let memory_nodes = self.memory.node_count();
        watch.lock().resize(memory_nodes, PlaneReads::default());
        for number in 0..memory_nodes {
            let Ok(at) = self.memory.at(number, layout::PLANE_LOOKS_AT) else { continue };
            let asked = self.env.now();
            let read =
                self.memory.queue_pair(number).post(Chain::from(Verb::read(at, Buf::zeroed(8))));
            let (watch, env) = (Arc::clone(watch), self.env.clone());
            drop(self.spawn("probe", async move {
                // A memory node that does not answer says nothing.
                let Ok(done) = read.await else { return };
                let count = word_at(&done, 0);
                // The watch is empty again once a beat was through.
                if let Some(reads) = watch.lock().get_mut(number) {
                    reads.note(count, asked, env.now(), pause);
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_resumes_once_it_has_made_sure_and_ends_after_a_while() {
        let ms = Duration::from_millis;
        let (on, lasts) = (ServiceState::On { silences: 3 }, LeaseKnowledge::Lasts { silences: 3 });
        let suspended = |at| ServiceState::Suspended { at: ms(at), silences: 3 };
        let next = |service: ServiceState, now, known| service.next(ms(now), known, ms(2_000));
        assert_eq!(next(on, 2_500, lasts), LeaseStep::Be(on));
        let again = LeaseKnowledge::Lasts { silences: 4 };
        assert_eq!(next(on, 2_500, again), LeaseStep::Be(suspended(2_500)), "it was silent");
        let away = LeaseKnowledge::PlaneIsAway { silences: 3 };
        assert_eq!(next(on, 9_000, away), LeaseStep::Be(on));
        assert_eq!(
            next(suspended(2_600), 9_000, away),
            LeaseStep::Be(on),
            "no memory node knows of its death"
        );
        assert_eq!(next(on, 2_600, LeaseKnowledge::Nothing), LeaseStep::Be(suspended(2_600)));
        assert_eq!(
            next(suspended(2_600), 2_700, LeaseKnowledge::Nothing),
            LeaseStep::Be(suspended(2_600))
        );
        assert_eq!(next(suspended(2_600), 2_800, lasts), LeaseStep::Renew);
        assert_eq!(next(suspended(2_600), 2_800, again), LeaseStep::Renew);
        assert_eq!(
            next(suspended(2_600), 6_600, LeaseKnowledge::Nothing),
            LeaseStep::Be(suspended(2_600))
        );
        assert_eq!(next(suspended(2_600), 6_601, LeaseKnowledge::Nothing), LeaseStep::End);
        let away = LeaseKnowledge::PlaneIsAway { silences: 4 };
        for before in [on, suspended(2_600)] {
            let waits = "it has not made sure since it was silent";
            assert_eq!(next(before, 9_000, away), LeaseStep::Be(suspended(9_000)), "{waits}");
        }
    }

    #[test]
    fn a_count_stands_still_once_it_was_the_same_for_long_enough() {
        let ms = Duration::from_millis;
        let mut looks = PlaneReads::default();
        let mut note = |count, asked| {
            looks.note(count, ms(asked), ms(asked + 1), ms(100));
            looks.stand_still(ms(asked), ms(asked + 1), ms(50))
        };
        assert!(!note(5, 0));
        assert!(!note(5, 100), "99 ms since it was seen");
        assert!(note(5, 101));
        assert!(!note(6, 150), "the count changed");
        assert!(!note(6, 200));
        assert!(note(6, 260));
        assert!(looks.stand_still(ms(151), ms(310), ms(50)));
        assert!(!looks.stand_still(ms(151), ms(311), ms(50)), "known too long ago");
        assert!(!looks.stand_still(ms(150), ms(310), ms(50)), "the count changed after that time");
    }
}
