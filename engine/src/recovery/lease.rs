//! A node's own judgement whether it still is in the pool, by its own clock.
//!
//! A node that cannot show that it lives is taken for dead at the end of its lease, and then others
//! change pages that it has copies of. So from three quarters of the lease on it serves nothing
//! that it has cached:
//!
//! ```text
//!            silent for 3/4 of a lease, and the plane is not known to be away from all memory nodes
//!        On --------------------------------------------------------------------------------> Suspended --> Expelled
//!          <--------------------------------------------------------------------------------
//!            a beat, and after that a change of the pool's state, both within the lease; or the plane is away
//! ```
//! *Suspended.* Whoever wants a page waits, at most for the request timeout: a machine that stood
//! still for a moment has not lost its nodes yet. Other nodes get what they ask for, also before
//! those who wait here. A guard that somebody has is not taken from them.
//!
//! *Why it may go on.* Who declares it dead has read the state, then the beats, and replaces
//! exactly that state (`selkie_memnode`). Once the node has changed the state after a beat of its
//! own, those who had older beats have an older state, and fail; and others see that beat, which is
//! good for a lease. An answer that comes when that is over counts for nothing. That it was silent
//! for too long is counted by when the next beat was through ([`selkie_memnode::SignsOfLife`]), so
//! that it is not missed by a node that stood still itself.
//!
//! *Expelled.* It finds that it is out, or has heard nothing until long after the others must have
//! missed it.
//!
//! *The plane is away.* Then nobody can be declared dead, and all go on. Before a death has an
//! effect every memory node must have said that it has heard of it, and each counts in its control
//! page how often it has looked at the plane. As long as all memory nodes execute this node's
//! reads, and their counts are what they were when the lease still lasted, none has heard of its
//! death, and the node goes on, or goes on again. All of them, as one that is silent may be
//! declared dead itself, and is asked no more. A memory node that gets the plane back counts first,
//! and says a quarter of a lease later what it has heard; probes come twice as often, and what they
//! told is good for three sixteenths. A node that has been silent for too long before, and has not
//! made sure since, does not go on for that.
//!
//! Not done: hits do not look at the clock. A process that stands still while it serves does so for
//! a tick after it has woken up; and one on a host whose clock stood still with it (a suspended
//! machine) until its next look at the plane.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::{Buf, Chain, Verb};
use selkie_memnode::{SignsOfLife, layout};

use crate::core::Core;
use crate::{EngineError, GAddr};

/// What is known of the looks of one memory node at the plane.
#[derive(Clone, Copy, Default)]
struct Looks {
    /// The count, and when it was first seen so.
    since: Option<(u64, Duration)>,
    /// The latest moment for which it is known that the count has stood still for longer than it
    /// does while the plane is there.
    still_at: Option<Duration>,
}

impl Looks {
    /// Takes note of a count that was read by a verb posted at `asked`.
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

    /// Whether the count stands still, as was asked lately, and was the same at a moment already.
    fn stand_still(&self, at: Duration, now: Duration, within: Duration) -> bool {
        let was_so = self.since.is_some_and(|(_, since)| since <= at);
        was_so && self.still_at.is_some_and(|still_at| now.saturating_sub(still_at) <= within)
    }
}

type Watch = Arc<Mutex<Vec<Looks>>>;

/// Leases for which a node waits to hear whether it is in the pool, beyond the moment from which it
/// is silent for too long.
const SUSPENDED_LEASES: u32 = 2;

/// Whether what is cached is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Service {
    /// It is; so often had the node been silent for too long when it was last sure that it is in
    /// the pool.
    On { silences: u64 },
    /// Not, from a moment on; and so it had been silent when it was last sure.
    Suspended { at: Duration, silences: u64 },
}

/// What a node in the pool knows of its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// It lasts; so often had the node been silent for too long before.
    Lasts { silences: u64 },
    /// The plane has been away from all memory nodes, which would have to hear of its death, since
    /// the lease lasted; as above.
    PlaneIsAway { silences: u64 },
    /// It may be over.
    Nothing,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// What is cached is served, or not.
    Be(Service),
    /// The node has to make sure that it is in the pool.
    Renew,
    /// It has waited for too long.
    End,
}

impl Service {
    fn next(self, now: Duration, known: Known, lease: Duration) -> Step {
        let (Service::On { silences } | Service::Suspended { silences, .. }) = self;
        match (self, known) {
            // Nobody can have found it silent for a lease since it was sure, and told that to all.
            (Service::On { .. }, Known::Lasts { silences: now }) if now == silences => {
                Step::Be(self)
            }
            (_, Known::PlaneIsAway { silences: now }) if now == silences => {
                Step::Be(Service::On { silences })
            }
            (Service::On { .. }, _) | (_, Known::PlaneIsAway { .. }) => {
                Step::Be(Service::Suspended { at: now, silences })
            }
            (Service::Suspended { .. }, Known::Lasts { .. }) => Step::Renew,
            (Service::Suspended { at, .. }, Known::Nothing)
                if now.saturating_sub(at) <= SUSPENDED_LEASES * lease =>
            {
                Step::Be(self)
            }
            (Service::Suspended { .. }, Known::Nothing) => Step::End,
        }
    }
}

/// Has the node serve what it has cached as long as nobody can have taken it for dead, and ends it
/// when it was.
pub(crate) async fn run_lease(core: Weak<Core>, tick: Duration) {
    let Some((env, pool)) = core.upgrade().map(|core| (core.env.clone(), Arc::clone(&core.pool)))
    else {
        return;
    };
    let watch = Watch::default();
    let mut probed = Duration::ZERO;
    let mut service = Service::On { silences: pool.signs_of_life(env.now()).silences };
    drop(pool);
    loop {
        env.sleep(tick).await;
        let Some(core) = core.upgrade() else { return };
        if core.lifecycle.has_failed() {
            // It answers nobody any more, so the others must not wait for it. What fails is tried
            // again.
            let gave_up = core.pool.give_up(core.index(), core.own_incarnation()).await;
            match gave_up {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "cannot tell that this node has failed"),
            }
            continue;
        }
        let is_member = core.is_member_itself();
        if core.lifecycle.is_leaving() && !is_member {
            continue;
        }
        if !is_member {
            core.end_with(EngineError::Expelled);
            continue;
        }
        let (now, timing) = (env.now(), core.pool.state().timing);
        // By what was heard before, and not by what is asked now.
        let known = core.known(&watch, now);
        service = match service.next(now, known, timing.lease) {
            Step::Be(next) => core.serve(service, next),
            Step::Renew => core.renew(&watch, service, known).await,
            Step::End => {
                core.end_with(EngineError::Expelled);
                service
            }
        };
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
    /// Serves nothing more, for ever; if the others do not know yet, they are told.
    pub(crate) fn end_with(&self, error: EngineError) {
        tracing::warn!(node = %self.endpoint.id(), %error, "serves nothing more");
        self.lifecycle.fail(error);
        // At once, and not frame by frame.
        self.lifecycle.set_suspended(true);
        self.fail_all_waits();
        self.cache.seal_all();
    }

    /// What the node knows of its lease at a moment.
    fn known(&self, watch: &Watch, now: Duration) -> Known {
        let SignsOfLife { silent_for, silences } = self.pool.signs_of_life(now);
        let lease = self.pool.state().timing.lease;
        let lasted_at = now.saturating_sub(silent_for) + lease * 3 / 4;
        if silent_for <= lease * 3 / 4 {
            Known::Lasts { silences }
        } else if self.plane_is_away(watch, lasted_at, now, lease * 3 / 16) {
            Known::PlaneIsAway { silences }
        } else {
            Known::Nothing
        }
    }

    /// Makes sure that the node is in the pool, of which it knew so much before; what is now.
    async fn renew(&self, watch: &Watch, before: Service, known: Known) -> Service {
        match self.pool.renew(self.index(), self.own_incarnation()).await {
            Ok(true) => match known {
                // The answer may have come late, and is worth nothing if the lease was over
                // meanwhile.
                Known::Lasts { silences } if self.known(watch, self.env.now()) == known => {
                    self.serve(before, Service::On { silences })
                }
                _ => before,
            },
            Ok(false) => {
                if !self.lifecycle.is_leaving() {
                    self.end_with(EngineError::Expelled);
                }
                before
            }
            Err(error) => {
                tracing::debug!(%error, "cannot make sure that this node is in the pool");
                before
            }
        }
    }

    /// Has hits wait, or go on; what is now.
    fn serve(&self, before: Service, next: Service) -> Service {
        let is_on = |service| matches!(service, Service::On { .. });
        let node = self.endpoint.id();
        match (is_on(before), is_on(next)) {
            (true, false) => {
                tracing::warn!(%node, "cannot show that it lives: serves nothing until it can");
                self.suspend();
            }
            (false, true) => {
                tracing::info!(%node, "is still in the pool, and goes on");
                self.lifecycle.set_suspended(false);
            }
            _ => {}
        }
        next
    }

    /// Lets hits wait. Whoever waited for a page before looks again, and does not hold up any more
    /// what other nodes ask for.
    fn suspend(&self) {
        self.lifecycle.set_suspended(true);
        for shard in self.cache.all_shards() {
            // Who has not seen it has the lock, and leaves behind whatever is not at rest.
            let lines: Vec<u64> = shard.lock().keys().copied().collect();
            lines.into_iter().for_each(|addr| self.notify(GAddr::from_u64(addr)));
        }
    }

    /// Whether all memory nodes that live, as far as is known, have been without the plane since
    /// some moment. Where memory outlives who lends it, a death has an effect before they hear of
    /// it.
    fn plane_is_away(
        &self,
        watch: &Watch,
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

    /// Asks all memory nodes how often they have looked at the plane. Does not wait.
    fn probe(&self, watch: &Watch, pause: Duration) {
        let memory_nodes = self.memory.node_count();
        watch.lock().resize(memory_nodes, Looks::default());
        for number in 0..memory_nodes {
            let Ok(at) = self.memory.at(number, layout::PLANE_LOOKS_AT) else { continue };
            let asked = self.env.now();
            let read =
                self.memory.queue_pair(number).post(Chain::from(Verb::read(at, Buf::zeroed(8))));
            let (watch, env) = (Arc::clone(watch), self.env.clone());
            drop(self.env.spawn("probe", async move {
                // One that does not answer tells nothing.
                let Ok(done) = read.await else { return };
                let Some(count) = done.buf(0).and_then(|buf| buf.words().first().copied()) else {
                    return;
                };
                if let Some(looks) = watch.lock().get_mut(number) {
                    looks.note(u64::from_le(count), asked, env.now(), pause);
                }
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_goes_on_once_it_has_made_sure_and_ends_after_a_while() {
        let ms = Duration::from_millis;
        let (on, lasts) = (Service::On { silences: 3 }, Known::Lasts { silences: 3 });
        let suspended = |at| Service::Suspended { at: ms(at), silences: 3 };
        let next = |service: Service, now, known| service.next(ms(now), known, ms(2_000));
        assert_eq!(next(on, 2_500, lasts), Step::Be(on));
        let again = Known::Lasts { silences: 4 };
        assert_eq!(next(on, 2_500, again), Step::Be(suspended(2_500)), "it was silent");
        let away = Known::PlaneIsAway { silences: 3 };
        assert_eq!(next(on, 9_000, away), Step::Be(on));
        assert_eq!(
            next(suspended(2_600), 9_000, away),
            Step::Be(on),
            "nobody has heard of its death"
        );
        assert_eq!(next(on, 2_600, Known::Nothing), Step::Be(suspended(2_600)));
        assert_eq!(next(suspended(2_600), 2_700, Known::Nothing), Step::Be(suspended(2_600)));
        assert_eq!(next(suspended(2_600), 2_800, lasts), Step::Renew);
        assert_eq!(next(suspended(2_600), 2_800, again), Step::Renew);
        assert_eq!(next(suspended(2_600), 6_600, Known::Nothing), Step::Be(suspended(2_600)));
        assert_eq!(next(suspended(2_600), 6_601, Known::Nothing), Step::End);
        let away = Known::PlaneIsAway { silences: 4 };
        for before in [on, suspended(2_600)] {
            let waits = "it has not made sure since it was silent";
            assert_eq!(next(before, 9_000, away), Step::Be(suspended(9_000)), "{waits}");
        }
    }

    #[test]
    fn a_count_stands_still_once_it_was_the_same_for_long_enough() {
        let ms = Duration::from_millis;
        let mut looks = Looks::default();
        let mut note = |count, asked| {
            looks.note(count, ms(asked), ms(asked + 1), ms(100));
            looks.stand_still(ms(asked), ms(asked + 1), ms(50))
        };
        assert!(!note(5, 0));
        assert!(!note(5, 100), "99 ms since it was seen");
        assert!(note(5, 101));
        assert!(!note(6, 150), "it goes on");
        assert!(!note(6, 200));
        assert!(note(6, 260));
        assert!(looks.stand_still(ms(151), ms(310), ms(50)));
        assert!(!looks.stand_still(ms(151), ms(311), ms(50)), "known too long ago");
        assert!(!looks.stand_still(ms(150), ms(310), ms(50)), "it went on after that moment");
    }
}
