//! Turns at a line: which of the local waiters and the requests of other nodes goes next.
//!
//! Local waiters that the present state can serve go first, until γ accesses have been served since
//! another node asked (SELCC §5.3). A right that has just come is held for a while, and a page does
//! not leave before the log is durable that covers it.

use std::time::Duration;

use super::machine::{Event, LocalUse, Message, Phase};
use super::open_line::OpenLine;
use crate::cache::frame::FrameId;
use crate::core::Core;
use crate::telemetry::stats::Counters;
use crate::{Coherence, GAddr};

impl Core {
    /// Whether pages outlive the latches for which they were fetched.
    pub(crate) fn caches(&self) -> bool {
        self.config.coherence != Coherence::Sel
    }

    /// Whether an idle page is to be given up at once: it has served a caller, or none wants it.
    pub(super) fn gives_up(&self, open: &OpenLine) -> bool {
        !self.caches()
            && !self.waits_for_log(open)
            && matches!(open.line.phase, Phase::Shared | Phase::Modified)
            && (open.accesses > 0 || open.waiters.is_empty() || self.lifecycle.is_suspended())
    }

    /// Whether the line was taken over from a dead node, and a recovery waits for it to be home.
    pub(super) fn is_claimed(&self, addr: GAddr) -> bool {
        self.log.is_some() && self.recovery.claimed.contains(addr)
    }

    /// Has the evictor write an idle page home that is beyond the cache. One that waits for the log
    /// is looked at again when it may leave.
    pub(super) fn goes_back(&self, addr: GAddr, open: &OpenLine, frame: FrameId) {
        let beyond = self.cache.frames.is_beyond_cache(frame);
        if beyond && !self.waits_for_log(open) && !self.is_quiesced(addr, open) {
            self.cache.frames.send_home(addr);
            self.cache.evict_bell().ring();
        }
    }

    /// Whether an idle page is to be given up as a recovery waits for that, before a caller latches
    /// it again that may itself wait for the recovery.
    pub(super) fn goes_home(&self, addr: GAddr, open: &OpenLine) -> bool {
        open.line.phase == Phase::Modified
            && open.line.grantor.is_none()
            // The node that asked for it gets it by way of its home.
            && open.line.deferred.is_empty()
            && open.waiters.next_is_writer().is_none()
            && !self.waits_for_log(open)
            && self.is_claimed(addr)
    }

    /// Whether the deferred requests of an idle line have their turn: local waiters that the
    /// present state can serve go first, until γ accesses have been served since another node
    /// asked (SELCC §5.3).
    pub(super) fn must_answer(&self, open: &OpenLine) -> bool {
        let line = &open.line;
        let settled = line.phase.at_rest() && line.grantor.is_none()
            // A directory may take the copy from a node that has asked it for more.
            || self.config.coherence == Coherence::Rpc;
        if line.deferred.is_empty() || !settled || self.waits_for_log(open) {
            return false;
        }
        if self.gamma_used_up(open) {
            Counters::add(&self.telemetry.counters.gamma_hand_overs);
            return true;
        }
        match self.next_is_writer(open) {
            None => !self.is_held(open),
            Some(writer) => !(if writer { line.writable() } else { line.readable() }),
        }
    }

    /// What the next waiter wants, whether to write; there is none while the node is suspended.
    fn next_is_writer(&self, open: &OpenLine) -> Option<bool> {
        if self.lifecycle.is_suspended() { None } else { open.waiters.next_is_writer() }
    }

    /// Whether local accesses have to make way for a deferred request.
    pub(crate) fn gamma_used_up(&self, open: &OpenLine) -> bool {
        !open.line.deferred.is_empty()
            && open.accesses >= u64::from(self.config.gamma) * u64::from(self.config.threads)
    }

    /// Looks who is in the frame, and says who uses the local copy or is next to.
    pub(crate) fn refresh_use(&self, open: &mut OpenLine) -> LocalUse {
        if let Some(frame) = open.frame {
            open.seen = self.cache.frames.get(frame).latch.in_use();
        }
        self.local_use(open)
    }

    /// Who uses the local copy or is next to: a waiter that was told to go on would find the line
    /// gone again if other nodes went first.
    fn local_use(&self, open: &OpenLine) -> LocalUse {
        if self.waits_for_log(open) {
            // As if it were still being changed.
            return LocalUse::Writer;
        }
        if open.seen != LocalUse::Idle || self.gamma_used_up(open) || !self.caches() {
            return open.seen;
        }
        match self.next_is_writer(open) {
            None if self.is_held(open) && open.line.writable() => LocalUse::WriterNext,
            None if self.is_held(open) => LocalUse::ReaderNext,
            None => LocalUse::Idle,
            Some(false) => LocalUse::ReaderNext,
            Some(true) => LocalUse::WriterNext,
        }
    }

    /// A caller that does not wait is not to be refused for a page that no holder uses; and the
    /// node itself may give up what it has only just got.
    pub(super) fn without_hold(&self, open: &OpenLine, event: Event, local: LocalUse) -> LocalUse {
        let is_at_once = match event {
            Event::Received { message: Message::Request(request), .. } => request.nowait,
            Event::Evict | Event::WriteBack | Event::Leave => true,
            _ => false,
        };
        let no_holder = open.seen == LocalUse::Idle
            && self.next_is_writer(open).is_none()
            && !self.waits_for_log(open);
        if is_at_once && no_holder { LocalUse::Idle } else { local }
    }

    /// Whether the line was changed and what was recorded of that may not leave yet.
    fn waits_for_log(&self, open: &OpenLine) -> bool {
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::UnloggedGrant {
            return false;
        }
        let (Some(log), Some(frame)) = (&self.log, open.frame) else { return false };
        !log.is_releasable(self.cache.frames.get(frame).lsn())
    }

    /// Sees to it that a line that would leave if it were not for the log is looked at when it may.
    pub(super) fn keep_for_log(&self, addr: GAddr, open: &OpenLine) {
        let is_kept = !open.frame.is_some_and(|id| self.cache.frames.is_beyond_cache(id));
        let may_stay = open.line.deferred.is_empty() && self.caches() && is_kept;
        if may_stay || !self.waits_for_log(open) {
            return;
        }
        if let (Some(log), Some(frame)) = (&self.log, open.frame) {
            log.notify_when_releasable(addr, self.cache.frames.get(frame).lsn());
        }
    }

    /// Whether the line has its right so lately that others have to wait
    /// ([`crate::EngineConfig::hold`]).
    fn is_held(&self, open: &OpenLine) -> bool {
        !self.config.hold.is_zero() && !self.hold_left(open).is_zero()
    }

    fn hold_left(&self, open: &OpenLine) -> Duration {
        let Some(frame) = open.frame.filter(|_| open.line.readable()) else {
            return Duration::ZERO;
        };
        let until = self.cache.frames.get(frame).right_since() + self.config.hold;
        until.saturating_sub(self.env.now())
    }

    /// Notes when a right came, and sees to it that a line whose time is not over is looked at
    /// then.
    pub(super) fn keep_time(&self, addr: GAddr, open: &mut OpenLine, frame: FrameId) {
        if self.config.hold.is_zero() {
            return;
        }
        let (readable, writable) = (open.line.readable(), open.line.writable());
        if readable && !open.hold.allowed.0 || writable && !open.hold.allowed.1 {
            self.cache.frames.get(frame).set_right_since(self.env.now());
        }
        open.hold.allowed = (readable, writable);
        if open.line.deferred.is_empty() || open.hold.timed {
            return;
        }
        let left = self.hold_left(open);
        if left.is_zero() {
            return;
        }
        let Some(core) = self.this.upgrade() else { return };
        open.hold.timed = true;
        drop(self.spawn("hold", async move {
            core.env.pause(left).await;
            core.with_line(addr, |open| open.hold.timed = false);
        }));
    }
}
