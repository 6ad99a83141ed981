//! The slow path of an access: miss, wait, refusal.
//!
//! An attempt under the shard's lock either latches the frame, or sets the coherence machine going
//! and queues the caller. A queued caller keeps its place until it has the latch or goes away;
//! going away at any await point leaves nothing behind but, at most, a cached page.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use selkie_fabric::env::yield_now;

use crate::access::waiters::{Signal, Ticket};
use crate::cache::frames::FrameId;
use crate::coherence::machine::{Event, LocalUse, Phase};
use crate::coherence::open_line::OpenLine;
use crate::core::Core;
use crate::telemetry::stats::Counters;
use crate::{EngineError, GAddr};

/// How long a caller that finds no frame, or a node that is suspended, pauses before it looks
/// again.
const FRAME_PAUSE: Duration = Duration::from_millis(1);

/// What a caller wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Shared,
    Exclusive,
    /// Exclusive, by a caller that holds the shared latch.
    Upgrade,
}

/// What an attempt came to.
enum Outcome {
    Latched(FrameId),
    Busy,
    NoFrame,
    /// The node does not know whether it is in the pool.
    Suspended,
    /// Wait to be told.
    Queued(Ticket),
    /// In the queue, but to look again soon: what it has set going is over, and was in vain (the
    /// readers changed under an upgrade, a try for a latch without a cache met another); nobody
    /// will tell.
    Again(Ticket),
}

/// A place in a line's queue, given up on drop.
struct Place<'e> {
    core: &'e Core,
    addr: GAddr,
    ticket: Option<Ticket>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut map = self.core.cache.shard(self.addr).lock();
        let mut active = self.core.open(&mut map, self.addr);
        active.waiters.remove(ticket);
        // Whatever this waiter was told, or held up, is now for the others.
        active.waiters.signal_all(false);
        self.core.close(&mut map, self.addr, active);
    }
}

/// Waits until the queued caller is told something.
struct Told<'p, 'e> {
    place: &'p Place<'e>,
    ticket: Ticket,
}

impl Future for Told<'_, '_> {
    type Output = Signal;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Signal> {
        let mut map = self.place.core.cache.shard(self.place.addr).lock();
        let Some(active) = map.get_mut(&self.place.addr.to_u64()) else {
            return Poll::Ready(Signal::Retry);
        };
        match active.waiters.poll(self.ticket, cx.waker()) {
            Signal::None => Poll::Pending,
            signal => Poll::Ready(signal),
        }
    }
}

impl Core {
    /// Latches the line, fetching it or the right to it if need be. With `nowait` a latch met here
    /// or elsewhere ends in Busy; bounded by the request timeout in any case.
    pub(crate) async fn acquire(
        &self,
        addr: GAddr,
        access: Access,
        nowait: bool,
    ) -> Result<FrameId, EngineError> {
        self.lifecycle.check_alive()?;
        if access != Access::Shared {
            self.config.check_writes()?;
            if let Some(log) = self.log.as_ref().filter(|log| log.is_full()) {
                if nowait {
                    // Pages that the caller may hold cannot go home, for which the log would have
                    // room again.
                    return Err(EngineError::LogFull);
                }
                log.until_room(&self.env, self.config.request_timeout).await?;
            }
        }
        if self.memory.placement.home(addr).is_none() {
            return Err(EngineError::BadAddress { addr });
        }
        let mut place = Place { core: self, addr, ticket: None };
        let mut missed = false;
        let (started, mut paused) = (self.env.now(), Duration::ZERO);
        loop {
            let ticket = match self.attempt(addr, access, nowait, place.ticket, &mut missed)? {
                Outcome::Latched(id) => {
                    // The attempt has taken the place out of the queue.
                    place.ticket = None;
                    return Ok(id);
                }
                Outcome::Busy => {
                    Counters::add(&self.telemetry.counters.busy);
                    return Err(EngineError::Busy { addr });
                }
                Outcome::NoFrame => {
                    if !self.make_room() {
                        if paused >= self.config.request_timeout {
                            return Err(EngineError::CacheFull {
                                frames: self.cache.frames.count(),
                            });
                        }
                        self.env.sleep(FRAME_PAUSE).await;
                        paused += FRAME_PAUSE;
                    }
                    continue;
                }
                Outcome::Suspended => {
                    let waited = self.env.now() - started;
                    if waited >= self.config.request_timeout {
                        return Err(EngineError::Timeout { addr, waited });
                    }
                    self.env.sleep(FRAME_PAUSE).await;
                    self.lifecycle.check_alive()?;
                    continue;
                }
                Outcome::Again(ticket) => {
                    place.ticket = Some(ticket);
                    yield_now().await;
                    continue;
                }
                Outcome::Queued(ticket) => ticket,
            };
            place.ticket = Some(ticket);
            match (Told { place: &place, ticket }).await {
                Signal::None | Signal::Retry => {}
                Signal::Failed(error) => return Err(error),
                Signal::Refused => {
                    Counters::add(&self.telemetry.counters.busy);
                    return Err(EngineError::Busy { addr });
                }
            }
            self.lifecycle.check_alive()?;
        }
    }

    fn attempt(
        &self,
        addr: GAddr,
        access: Access,
        nowait: bool,
        ticket: Option<Ticket>,
        missed: &mut bool,
    ) -> Result<Outcome, EngineError> {
        let mut map = self.cache.shard(addr).lock();
        // Under the lock, which whoever seals the lines of a failed node takes afterwards.
        if let Some(error) = self.lifecycle.failure() {
            return Err(error.clone());
        }
        if self.lifecycle.is_suspended() {
            return Ok(Outcome::Suspended);
        }
        let mut active = self.open(&mut map, addr);
        let outcome = self.try_latch(addr, &mut active, access, nowait, ticket, missed);
        if let Some(lost) = active.lost.take() {
            // The caller's place gives the ticket back.
            self.close(&mut map, addr, active);
            return Err(lost);
        }
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => {
                let now = self.env.now();
                let exclusive = access != Access::Shared;
                let ticket = active.waiters.enqueue(ticket, exclusive, nowait, now);
                // It was told before it stood in the queue, if what it set going is over already.
                let again = active.woken && active.line.phase.at_rest();
                if let Some(error) = active.waiters.failure(ticket) {
                    // The caller's place gives the ticket back.
                    self.close(&mut map, addr, active);
                    return Err(error);
                }
                if again { Outcome::Again(ticket) } else { Outcome::Queued(ticket) }
            }
        };
        if let (Outcome::Latched(_), Some(ticket)) = (&outcome, ticket) {
            active.waiters.remove(ticket);
            // Others may share the latch, or look after what is left.
            active.waiters.signal_all(false);
        }
        if matches!(outcome, Outcome::Latched(_)) && !*missed {
            self.telemetry.counters.hit();
        }
        self.close(&mut map, addr, active);
        Ok(outcome)
    }

    /// One attempt on an open line; `None` when the caller has to wait.
    fn try_latch(
        &self,
        addr: GAddr,
        active: &mut OpenLine,
        access: Access,
        nowait: bool,
        ticket: Option<Ticket>,
        missed: &mut bool,
    ) -> Option<Outcome> {
        let exclusive = access != Access::Shared;
        if let Some(damaged) = &active.damaged {
            active.lost = Some(damaged.clone());
            return None;
        }
        loop {
            let allowed = if exclusive { active.line.writable() } else { active.line.readable() };
            if allowed {
                return self.try_latch_allowed(active, access, nowait, ticket);
            }
            if active.backs_off.is_some() {
                // Looked at again when the recovery that is in the way is over.
                return if nowait { Some(Outcome::Busy) } else { None };
            }
            if nowait && active.line.refuses_nowait() {
                return Some(Outcome::Busy);
            }
            if !nowait && active.waiters.goes_first(ticket, exclusive) {
                // The line is fetched for whoever is next: a right that nobody in turn can use
                // would only be taken away again.
                return None;
            }
            if active.line.phase.without_copy() && active.seen != LocalUse::Idle {
                // Who had the page when it was lost still looks at it: nothing is read over that.
                return if nowait { Some(Outcome::Busy) } else { None };
            }
            if !self.cache.ensure_frame(addr, active) {
                return Some(Outcome::NoFrame);
            }
            let crowded = |id| self.cache.frames.get(id).latch.is_crowded();
            if access == Access::Upgrade && active.frame.is_some_and(crowded) {
                return Some(Outcome::Busy);
            }
            if !*missed {
                *missed = true;
                let upgrade = active.line.phase == Phase::Shared;
                let counters = &self.telemetry.counters;
                Counters::add(if upgrade { &counters.upgrades } else { &counters.misses });
                if !upgrade {
                    self.telemetry.hottest.note(addr);
                }
            }
            let before = active.line.phase;
            let look = self.config.looks && self.telemetry.contention.in_the_way(exclusive, before);
            self.run(addr, active, Event::Want { exclusive, nowait, look }, None);
            if active.refused && nowait {
                return Some(Outcome::Busy);
            }
            if active.lost.is_some() {
                return None;
            }
            if nowait && active.backs_off.is_some() {
                return Some(Outcome::Busy);
            }
            if active.doubted.is_some() && active.line.phase.at_rest() {
                continue;
            }
            if active.line.phase == before || !active.line.phase.at_rest() {
                return None;
            }
        }
    }

    /// The line's state allows the access; the local latch and those who came before may not.
    fn try_latch_allowed(
        &self,
        active: &mut OpenLine,
        access: Access,
        nowait: bool,
        ticket: Option<Ticket>,
    ) -> Option<Outcome> {
        let id = active.frame?;
        let frame = self.cache.frames.get(id);
        if access == Access::Upgrade {
            let won = frame.latch.try_upgrade_sealed();
            return Some(if won { Outcome::Latched(id) } else { Outcome::Busy });
        }
        let exclusive = access == Access::Exclusive;
        let behind = !nowait && active.waiters.goes_first(ticket, exclusive);
        if !behind && !self.gamma_used_up(active) && Core::latch_sealed(frame, exclusive) {
            if !active.line.deferred.is_empty() || !self.caches() {
                active.accesses += if exclusive { u64::from(self.config.threads) } else { 1 };
            }
            active.seen = frame.latch.in_use();
            return Some(Outcome::Latched(id));
        }
        if nowait { Some(Outcome::Busy) } else { None }
    }

    /// A latch was let go while somebody waited for it.
    pub(crate) fn notify(&self, addr: GAddr) {
        let mut map = self.cache.shard(addr).lock();
        let mut active = self.open(&mut map, addr);
        active.waiters.signal_all(false);
        self.close(&mut map, addr, active);
    }
}
