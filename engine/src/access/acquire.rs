//! The slow path of an access: miss, wait, refusal.
//!
//! An attempt under the shard's lock either latches the frame, or starts an operation of the
//! coherence machine and queues the caller. A queued caller keeps its place until it has the latch
//! or its future is dropped; that leaves nothing behind at any await point but, at most, a cached
//! page.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use selkie_fabric::env::yield_now;

use super::waiters::{Signal, Ticket, WaitPolicy};
use crate::cache::frame::FrameId;
use crate::coherence::machine::{Event, LocalUse, Phase};
use crate::coherence::open_line::OpenLine;
use crate::core::Core;
use crate::telemetry::account::{self, Item};
use crate::telemetry::stats::Counters;
use crate::{Coherence, EngineError, GAddr};

/// How long a caller that finds no frame, or a node that is suspended, pauses before it looks
/// again.
const FRAME_PAUSE: Duration = Duration::from_millis(1);

/// The pause before an upgrade is tried again that may be in vain: some round trips, in which a
/// cancelled intent leaves the word. It doubles up to [`FRAME_PAUSE`]: the node that is in the word
/// may have died before, and stays there until it has been recovered from.
const FIRST_UPGRADE_PAUSE: Duration = Duration::from_micros(16);

/// What a caller wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Shared,
    Exclusive,
    /// Exclusive, by a caller that holds the shared latch.
    Upgrade,
}

impl Access {
    fn is_exclusive(self) -> bool {
        self != Access::Shared
    }
}

/// Result of one attempt.
enum Attempt {
    Latched(FrameId),
    Busy,
    NoFrame,
    /// The node does not know whether it is in the pool.
    Suspended,
    /// An upgrade was in vain, and the next may be.
    InVain,
    /// The caller waits to be told.
    Queued(Ticket),
    /// In the queue, but to look again soon: the operation it has started is over, and was in vain
    /// (the readers changed under an upgrade, a try for a latch without a cache met another); no
    /// signal will come.
    Again(Ticket),
}

/// One access on the slow path. Dropping it gives its place in the line's queue up.
struct Acquisition<'e> {
    core: &'e Core,
    addr: GAddr,
    access: Access,
    /// Holders it does not wait for end the access in Busy.
    policy: WaitPolicy,
    /// Its place in the line's queue.
    ticket: Option<Ticket>,
    /// It was counted as a miss.
    missed: bool,
    /// The next pause before an upgrade that may be in vain; `None`: the first is to be tried.
    upgrade_pause: Option<Duration>,
    /// That pause is over.
    has_paused: bool,
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.core.with_line(self.addr, |open| {
            open.waiters.remove(ticket);
            // What this waiter was told, or held up, is for the others now.
            open.waiters.signal_all(false);
        });
    }
}

/// Waits until the queued caller is told something.
struct Told<'a, 'e> {
    acquisition: &'a Acquisition<'e>,
    ticket: Ticket,
}

impl Future for Told<'_, '_> {
    type Output = Signal;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Signal> {
        let Acquisition { core, addr, .. } = self.acquisition;
        let mut map = core.cache.shard(*addr).lock();
        let Some(open) = map.get_mut(&addr.to_u64()) else {
            return Poll::Ready(Signal::Retry);
        };
        match open.waiters.poll(self.ticket, cx.waker()) {
            Signal::None => Poll::Pending,
            signal => Poll::Ready(signal),
        }
    }
}

impl Core {
    /// Latches the line, fetching it or the right to it if need be. A holder that is not waited for
    /// ends it in Busy; bounded by the request timeout in any case.
    pub(crate) async fn acquire(
        &self,
        addr: GAddr,
        access: Access,
        policy: WaitPolicy,
    ) -> Result<FrameId, EngineError> {
        self.lifecycle.check_alive()?;
        if access.is_exclusive() {
            self.config.check_writes()?;
            self.until_log_takes(policy).await?;
        }
        self.latch(addr, access, policy).await
    }

    /// As [`Core::acquire`], whether the log has room or not.
    pub(crate) async fn latch(
        &self,
        addr: GAddr,
        access: Access,
        policy: WaitPolicy,
    ) -> Result<FrameId, EngineError> {
        if self.memory.placement.home(addr).is_none() {
            return Err(EngineError::BadAddress { addr });
        }
        let acquisition = Acquisition {
            core: self,
            addr,
            access,
            policy,
            ticket: None,
            missed: false,
            upgrade_pause: None,
            has_paused: false,
        };
        acquisition.run().await
    }

    /// Waits until the log takes changes. A caller that may hold latches is refused: pages under
    /// them cannot go home, for which the log would have room again.
    async fn until_log_takes(&self, policy: WaitPolicy) -> Result<(), EngineError> {
        match self.log.as_ref().filter(|log| log.is_full()) {
            None => Ok(()),
            Some(_) if policy != WaitPolicy::AllHolders => Err(EngineError::LogFull),
            Some(log) => {
                log.until_room(&self.lifecycle, &self.env, self.config.request_timeout).await
            }
        }
    }

    /// A latch was let go while a caller waited for it.
    pub(crate) fn notify(&self, addr: GAddr) {
        self.with_line(addr, |open| open.waiters.signal_all(false));
    }
}

impl Acquisition<'_> {
    /// Attempts until the line is latched, or cannot be.
    async fn run(mut self) -> Result<FrameId, EngineError> {
        let core = self.core;
        let (started, mut paused) = (core.env.now(), Duration::ZERO);
        loop {
            let ticket = match self.attempt()? {
                Attempt::Latched(id) => {
                    // The attempt has taken the place out of the queue.
                    self.ticket = None;
                    return Ok(id);
                }
                Attempt::Busy => return Err(self.busy()),
                Attempt::NoFrame => {
                    if !core.make_room() {
                        if paused >= core.config.request_timeout {
                            return Err(EngineError::CacheFull {
                                frames: core.cache.frames.count(),
                            });
                        }
                        core.env.sleep(FRAME_PAUSE).await;
                        paused += FRAME_PAUSE;
                    }
                    continue;
                }
                Attempt::Suspended => {
                    let waited = core.env.now() - started;
                    if waited >= core.config.request_timeout {
                        return Err(EngineError::Timeout { addr: self.addr, waited });
                    }
                    core.env.sleep(FRAME_PAUSE).await;
                    core.lifecycle.check_alive()?;
                    continue;
                }
                Attempt::InVain => {
                    core.env.sleep(self.upgrade_pause.unwrap_or(FRAME_PAUSE)).await;
                    self.has_paused = true;
                    core.lifecycle.check_alive()?;
                    continue;
                }
                Attempt::Again(ticket) => {
                    self.ticket = Some(ticket);
                    yield_now().await;
                    continue;
                }
                Attempt::Queued(ticket) => ticket,
            };
            self.ticket = Some(ticket);
            match (Told { acquisition: &self, ticket }).await {
                Signal::None | Signal::Retry => {}
                Signal::Failed(error) => return Err(error),
                Signal::Refused => return Err(self.busy()),
            }
            core.lifecycle.check_alive()?;
        }
    }

    fn busy(&self) -> EngineError {
        Counters::add(&self.core.telemetry.counters.busy);
        EngineError::Busy { addr: self.addr }
    }

    fn attempt(&mut self) -> Result<Attempt, EngineError> {
        let (core, addr) = (self.core, self.addr);
        let refused = || {
            // Under the lock, which the task that seals the lines of a failed node takes
            // afterwards, as a close does: a caller may have waited since it was let in.
            if let Err(error) = core.lifecycle.check_alive() {
                return Some(Err(error));
            }
            core.lifecycle.is_suspended().then_some(Ok(Attempt::Suspended))
        };
        core.with_line_unless(addr, refused, |open| self.attempt_on(open))
    }

    /// One attempt on the open line; queues the caller if it has to wait.
    fn attempt_on(&mut self, open: &mut OpenLine) -> Result<Attempt, EngineError> {
        let attempt = self.try_latch(open);
        if let Some(lost) = open.effects.lost.take() {
            return Err(lost);
        }
        let attempt = match attempt {
            Some(attempt) => attempt,
            None => {
                let now = self.core.env.now();
                let exclusive = self.access.is_exclusive();
                let ticket = open.waiters.enqueue(self.ticket, exclusive, self.policy, now);
                // The caller holds the place from now on, and gives it up if it fails.
                self.ticket = Some(ticket);
                // The waiters were told before the caller stood in the queue, if the operation it
                // has started is over already.
                let again = open.effects.woken && open.line.phase.at_rest();
                if let Some(error) = open.waiters.failure(ticket) {
                    return Err(error);
                }
                if again { Attempt::Again(ticket) } else { Attempt::Queued(ticket) }
            }
        };
        if let (Attempt::Latched(_), Some(ticket)) = (&attempt, self.ticket) {
            open.waiters.remove(ticket);
            // Others may share the latch, or look after what is left.
            open.waiters.signal_all(false);
        }
        if matches!(attempt, Attempt::Latched(_)) && !self.missed {
            self.core.telemetry.counters.hit();
        }
        Ok(attempt)
    }

    /// Latches the frame, or starts the operation for which the caller has to wait; `None` when it
    /// has to.
    fn try_latch(&mut self, open: &mut OpenLine) -> Option<Attempt> {
        if let Some(damaged) = &open.damaged {
            open.effects.lost = Some(damaged.clone());
            return None;
        }
        let (core, exclusive) = (self.core, self.access.is_exclusive());
        let nowait = self.policy.is_nowait();
        loop {
            let allowed = if exclusive { open.line.writable() } else { open.line.readable() };
            if allowed {
                return self.try_latch_allowed(open);
            }
            if let Some(refusal) = self.held_back(open) {
                return refusal;
            }
            if !core.cache.ensure_frame(self.addr, open) {
                return Some(Attempt::NoFrame);
            }
            let crowded = |id| core.cache.frames.get(id).latch.is_crowded();
            if self.access == Access::Upgrade && open.frame.is_some_and(crowded) {
                return Some(Attempt::Busy);
            }
            if open.line.upgrade_may_be_in_vain() && exclusive && !nowait && !self.may_upgrade() {
                return Some(Attempt::InVain);
            }
            self.count_miss(open.line.phase);
            let before = open.line.phase;
            let look = core.config.looks && core.telemetry.contention.in_the_way(exclusive, before);
            core.run(self.addr, open, Event::Want { exclusive, nowait, look }, None);
            if open.effects.refused && nowait {
                return Some(Attempt::Busy);
            }
            if open.effects.lost.is_some() {
                return None;
            }
            if !self.policy.outlasts_recovery() && open.deaths.backs_off.is_some() {
                return Some(Attempt::Busy);
            }
            if open.deaths.doubted.is_some() && open.line.phase.at_rest() {
                continue;
            }
            if open.line.phase == before || !open.line.phase.at_rest() {
                return None;
            }
        }
    }

    /// Whether an upgrade that may be in vain is tried now: the first one, and one after a pause.
    fn may_upgrade(&mut self) -> bool {
        let Some(pause) = self.upgrade_pause else {
            self.upgrade_pause = Some(FIRST_UPGRADE_PAUSE);
            return true;
        };
        let has_paused = std::mem::take(&mut self.has_paused);
        if has_paused {
            self.upgrade_pause = Some((2 * pause).min(FRAME_PAUSE));
        }
        has_paused
    }

    /// Whether the caller must not start an operation now: `Some` with the attempt's result, which
    /// is `None` to wait.
    fn held_back(&self, open: &OpenLine) -> Option<Option<Attempt>> {
        let (exclusive, nowait) = (self.access.is_exclusive(), self.policy.is_nowait());
        let busy_or_wait = || Some(nowait.then_some(Attempt::Busy));
        if open.deaths.backs_off.is_some() {
            // The line is looked at again when the recovery that is in the way is over.
            return Some((!self.policy.outlasts_recovery()).then_some(Attempt::Busy));
        }
        if nowait && open.line.refuses_nowait() {
            // Busy as soon as the line waits for another node. Where directories keep pages, the
            // wait for them is part of the acquisition.
            let asks = self.core.config.coherence == Coherence::Selcc;
            let is_fetched = asks && open.line.phase.acquires();
            return Some((!is_fetched).then_some(Attempt::Busy));
        }
        if !nowait && open.waiters.goes_first(self.ticket, exclusive) {
            // The line is fetched for the waiter that is next: a right that no waiter in turn can
            // use would only be taken away again.
            return Some(None);
        }
        if open.line.phase.without_copy() && open.seen != LocalUse::Idle {
            // A guard from before the page was lost still reads it: nothing is read over that.
            return busy_or_wait();
        }
        None
    }

    /// Counts the access once as a miss, or an upgrade.
    fn count_miss(&mut self, phase: Phase) {
        if std::mem::replace(&mut self.missed, true) {
            return;
        }
        let telemetry = &self.core.telemetry;
        if phase == Phase::Shared {
            Counters::add(&telemetry.counters.upgrades);
            account::note(Item::Upgrade);
        } else {
            Counters::add(&telemetry.counters.misses);
            account::note(Item::Miss);
            telemetry.hottest.note(self.addr);
        }
    }

    /// Latches the frame of a line whose state allows the access; the local latch and earlier
    /// waiters may not.
    fn try_latch_allowed(&self, open: &mut OpenLine) -> Option<Attempt> {
        let id = open.frame?;
        let core = self.core;
        let latch = &core.cache.frames.get(id).latch;
        if self.access == Access::Upgrade {
            let won = latch.try_upgrade_sealed();
            return Some(if won { Attempt::Latched(id) } else { Attempt::Busy });
        }
        let exclusive = self.access == Access::Exclusive;
        let behind = !self.policy.is_nowait() && open.waiters.goes_first(self.ticket, exclusive);
        if !behind && !core.gamma_used_up(open) && latch.try_sealed(exclusive) {
            if !open.line.deferred.is_empty() || !core.caches() {
                open.accesses += if exclusive { u64::from(core.config.threads) } else { 1 };
            }
            open.seen = latch.in_use();
            return Some(Attempt::Latched(id));
        }
        self.policy.is_nowait().then_some(Attempt::Busy)
    }
}
