//! Opens a line for a step, and settles it afterwards.
//!
//! A line at rest has no state beside its frame's latch word. A step takes the line's shard lock,
//! builds an [`OpenLine`] from latch word and residual bit (or takes it out of the shard's map),
//! and seals the latch. Afterwards the latch publishes what the state allows; a line that is not
//! at rest, or has waiters, stays in the map.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use selkie_pool::ComputeIndex;

use super::machine::{Event, Line, LocalUse, Phase};
use super::open_line::{OpenLine, StepEffects};
use super::word::{ComputeId, NodeSet};
use crate::GAddr;
use crate::cache::latch::Permissions;
use crate::cache::residual_readers::ResidualReader;
use crate::core::Core;

/// Name under which a panic in a step is reported: it may be in any task, or in a caller.
const STEP: &str = "step of a line";

impl Core {
    /// Takes a step of a line, under its shard's lock and with its latch sealed. A panic of the
    /// step ends the node before the lock is released: the line may be half changed. From then on
    /// no line changes any more, and all latches stay sealed.
    pub(crate) fn with_line<T>(&self, addr: GAddr, step: impl FnOnce(&mut OpenLine) -> T) -> T {
        self.with_line_unless(addr, || None, step)
    }

    /// As [`Core::with_line`], unless there is a result already when the lock is taken.
    pub(crate) fn with_line_unless<T>(
        &self,
        addr: GAddr,
        unless: impl FnOnce() -> Option<T>,
        step: impl FnOnce(&mut OpenLine) -> T,
    ) -> T {
        let mut map = self.cache.shard(addr).lock();
        if let Some(result) = unless() {
            return result;
        }
        let mut open = map.remove(&addr.to_u64()).unwrap_or_else(|| self.line_at_rest(addr));
        let taken = catch_unwind(AssertUnwindSafe(|| {
            self.seal(&mut open);
            self.panic_if_planted(STEP);
            let outcome = step(&mut open);
            (outcome, self.settle(addr, &mut open))
        }));
        match taken {
            Ok((outcome, stays_open)) => {
                if stays_open {
                    map.insert(addr.to_u64(), open);
                }
                outcome
            }
            Err(panic) => {
                self.end_by_panic(STEP, &*panic);
                // Its waiters are told with those of all other lines.
                map.insert(addr.to_u64(), open);
                resume_unwind(panic)
            }
        }
    }

    /// The state of a line that is at rest, by its frame's latch and its residual bit.
    fn line_at_rest(&self, addr: GAddr) -> OpenLine {
        let frame = self.cache.frame_of(addr);
        let residual = match frame {
            Some(_) => ResidualReader::None,
            None => self.cache.residual.get(addr),
        };
        let residual_now = match residual {
            // A node that leaves the pool takes every bit handed to it out of the words first; a
            // node that dies does not.
            ResidualReader::BitHandedTo(to) if self.has_left(to) => ResidualReader::None,
            residual => residual,
        };
        let permissions = frame.map(|f| self.cache.frames.get(f).latch.permissions());
        let phase = match (permissions, residual_now) {
            (Some((true, true)), _) => Phase::Modified,
            (Some((true, false)), _) => Phase::Shared,
            (_, ResidualReader::Bit) => Phase::Lapsed,
            (_, ResidualReader::BitHandedTo(to)) => Phase::Ceded { to },
            (_, ResidualReader::None) => Phase::Invalid,
        };
        let mut line = Line::resting(phase);
        line.carried = frame.map_or(NodeSet::EMPTY, |f| self.cache.frames.get(f).carried());
        OpenLine::resting(line, frame, residual)
    }

    /// Seals the latch of a line for a step.
    fn seal(&self, open: &mut OpenLine) {
        let keeps = open.line.phase == Phase::WriteBack;
        open.hold.allowed = (open.line.readable(), keeps || open.line.writable());
        open.effects = StepEffects::default();
        open.seen = open.frame.map_or(LocalUse::Idle, |f| self.cache.frames.get(f).latch.seal());
    }

    /// Whether a node is in the pool no more, and did not die.
    pub(super) fn has_left(&self, node: ComputeId) -> bool {
        let index = ComputeIndex::new(node.index() as u16);
        !self.pool.is_member(index) && !self.pool.is_dead(index)
    }

    /// Publishes what a line's state allows, and frees the frame of a line without a copy. Whether
    /// the line stays open.
    fn settle(&self, addr: GAddr, open: &mut OpenLine) -> bool {
        let (mut was_in_use, mut is_refused) = (false, false);
        loop {
            if self.lifecycle.has_panicked() {
                return true;
            }
            was_in_use |= open.seen != LocalUse::Idle;
            if open.damaged.is_some() {
                self.give_back_damaged(addr, open);
            }
            let whole = open.damaged.is_none();
            let plain = whole && open.line.is_plain() && open.waiters.is_empty();
            let gone = plain && open.line.phase.without_copy();
            if gone && open.seen == LocalUse::Idle {
                if let Some(frame) = open.frame {
                    self.cache.release_frame(addr, frame);
                }
                self.note_residual(addr, open);
                return false;
            }
            if open.line.deferred.is_empty() && self.caches() {
                open.accesses = 0;
            }
            let Some(frame) = open.frame else { return true };
            self.keep_time(addr, open, frame);
            // First: what is durable by then is seen to be below.
            self.keep_for_log(addr, open);
            let permissions = self.permissions_of(addr, open, whole, gone);
            let now = self.cache.frames.get(frame).latch.publish(permissions);
            let gives_up = self.gives_up(open) || self.goes_home(addr, open);
            if now == LocalUse::Idle && gives_up && !is_refused && !self.is_quiesced(addr, open) {
                open.seen = self.cache.frames.get(frame).latch.seal();
                open.accesses = 0;
                let before = open.line.phase;
                self.run(addr, open, Event::Evict, None);
                // What the machine refuses now it would refuse the next time, too.
                is_refused = open.line.phase == before;
                continue;
            }
            if plain && !gone {
                if now == LocalUse::Idle {
                    self.goes_back(addr, open, frame);
                }
                self.cache.frames.get(frame).set_carried(open.line.carried);
                self.note_residual(addr, open);
                return false;
            }
            if now != LocalUse::Idle {
                return true;
            }
            if self.must_answer(open) && !self.is_quiesced(addr, open) {
                open.seen = self.cache.frames.get(frame).latch.seal();
                self.run(addr, open, Event::LocalFree, None);
            } else {
                // A user that let go of the latch between seal and publish, in any of the rounds,
                // did not know of the waiters.
                if was_in_use {
                    open.waiters.signal_all(false);
                }
                return true;
            }
        }
    }

    /// What the latch allows while the line is `whole`, or `gone` but for local users.
    fn permissions_of(&self, addr: GAddr, open: &OpenLine, whole: bool, gone: bool) -> Permissions {
        // A node that has failed may be dead for the others: its copies are old.
        let serves = whole && !self.lifecycle.has_failed();
        Permissions {
            readable: serves && open.line.readable(),
            writable: serves && open.line.writable(),
            // A line that was lost (its memory is dead) under a local latch goes with the latch. So
            // does a page that is not kept.
            pending: !open.waiters.is_empty()
                || !open.line.deferred.is_empty()
                || gone
                || !self.caches()
                || open.frame.is_some_and(|id| self.cache.frames.is_beyond_cache(id))
                || self.is_claimed(addr),
        }
    }

    /// Gives back what the word says of a damaged page, if that can be done now; the next access
    /// reads the page again.
    fn give_back_damaged(&self, addr: GAddr, open: &mut OpenLine) {
        self.answer_not_held(addr, open);
        let rests = open.line.phase.at_rest() && open.line.grantor.is_none();
        if rests && open.seen == LocalUse::Idle && !self.is_quiesced(addr, open) {
            if !open.line.phase.without_copy() {
                self.run(addr, open, Event::Leave, None);
            }
            if open.line.phase.at_rest() && open.line.phase.without_copy() {
                open.damaged = None;
            }
        }
    }

    /// Notes the bit in the word of a line that comes to rest without a copy.
    fn note_residual(&self, addr: GAddr, open: &OpenLine) {
        let residual = match open.line.phase {
            Phase::Lapsed => ResidualReader::Bit,
            Phase::Ceded { to } => ResidualReader::BitHandedTo(to),
            _ => ResidualReader::None,
        };
        if residual != open.residual {
            self.cache.residual.set(addr, residual);
        }
    }
}
