//! Latch operations of coded pages. A page that lies whole on a memory node needs one chain for an
//! operation; a coded page needs several.
//!
//! ```text
//! write back:  [parity splits] -> [dirty data splits] --.          (the order of `torn_write`)
//!                                                        v
//! home:                                      [WRITE versions? | atomic | READ header?]
//! read:                                      [READ k + Δ splits]   in the same round trip
//! then, if the latch is granted:             [READ other splits]? -> reconstruct
//! ```
//! A read that finds the latch free takes one round trip. The splits are read while the latch is
//! taken. Those that have the right checksum, and the versions of the header, which was read under
//! the latch, belong to the page. The others were read during a write-back. No node writes under
//! the latch, so they are read again.
//!
//! To the coherence machine all of it is one operation. It takes what it needs of the frame at its
//! start, under the shard's lock: copies of the splits that it writes, and leases of the buffers
//! that it reads into.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use super::coded::CodingState;
use super::header_versions::unknown_versions;
use super::late_binding::MovedFrame;
use super::operation::{CodedOperation, FinishedOperation};
use super::tag::Tag;
use crate::cache::frame::FrameId;
use crate::coherence::chains::NOTHING_FOUND;
use crate::coherence::machine::{Event, LatchOperation, LocalUse, Phase, WordAccess};
use crate::coherence::open_line::OpenLine;
use crate::core::Core;
use crate::telemetry::stats::Counters;
use crate::{EngineError, GAddr};
use selkie_wal::Dirty;

/// At most one in this many of a node's frames waits for late reads.
const LATE_FRAMES: usize = 8;

impl Core {
    /// Posts a latch operation of a coded line. Returns its completion event if it completes at
    /// once.
    pub(crate) fn post_coded(
        &self,
        coded: &CodingState,
        addr: GAddr,
        open_line: &mut OpenLine,
        operation: LatchOperation,
    ) -> Option<Event> {
        let using = self.memory.placement.using();
        let home = self.home_of(addr, open_line)?;
        let places = self.memory.placement.written(addr)?;
        let job =
            match self.job(coded, open_line, CodedOperation::new(addr, home, places, operation)) {
                Ok(job) => job,
                Err(error) => {
                    self.fail_line(addr, open_line, &error);
                    return None;
                }
            };
        if let (true, Some((range, _))) =
            (job.into.is_some() || job.write.is_some(), self.memory.placement.table_of(addr))
        {
            coded.activity.note(range);
        }
        let core = self.this.upgrade()?;
        let mut run = Box::pin(async move {
            let outcome = job.run(&core).await;
            drop((core, using));
            outcome
        });
        // Fabrics that complete at once have completed by now.
        if let Poll::Ready(outcome) = run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            let (event, late) = self.completed_coded(addr, open_line, outcome);
            if let Some(late) = late {
                drop(self.spawn("late splits", late));
            }
            return event;
        }
        let core = self.this.upgrade()?;
        drop(self.spawn_for_caller("latch operation", async move {
            let outcome = run.await;
            let late = core.with_line(addr, |open_line| {
                let (event, late) = core.completed_coded(addr, open_line, outcome);
                if let Some(event) = event {
                    core.run(addr, open_line, event, None);
                }
                late
            });
            if let Some(late) = late {
                late.await;
            }
        }));
        None
    }

    /// Takes what the operation needs from the frame.
    fn job(
        &self,
        coded: &CodingState,
        open_line: &mut OpenLine,
        mut job: CodedOperation,
    ) -> Result<CodedOperation, EngineError> {
        let Some(id) = open_line.frame else { return Ok(job) };
        let frame = self.cache.frames.get(id);
        let rejoins = matches!(open_line.line.phase, Phase::Rejoin { .. });
        if rejoins {
            // Every split at home may be torn.
            frame.set_dirty(Dirty::ALL);
        }
        let dirty = self.dirty_of(id);
        if job.operation.write_back && !dirty.is_empty() {
            Counters::add(&self.telemetry.counters.write_backs);
            open_line.going_home.oldest_change = frame.unhomed();
            open_line.going_home.copied = open_line.line.phase.gives_page_away() && self.may_copy();
            // SAFETY: an operation is outstanding from here on, so no local writer has the frame,
            // and the shard's lock is held: the frame does not change while it is encoded.
            let page = unsafe { self.cache.page(id) };
            let before = (!rejoins).then(|| coded.versions_of(id));
            job.write = Some(coded.encode(page, coded.dirty_set(dirty), before)?);
            // Otherwise the copy stays, and is still to go home.
            job.must_be_home = open_line.line.phase == Phase::WriteBack;
        }
        if job.operation.read {
            let lease = |split| {
                // SAFETY: a line that fetches is not readable: no other task accesses the frame
                // until the completion. The splits do not overlap.
                let payload = unsafe { self.cache.frames.lease(id, coded.payload_of(split)) };
                (split, payload)
            };
            job.into = Some((0..coded.coding().data()).map(lease).collect());
        }
        // A write-back that does not change the word is read back, so that it is in place when it
        // completes.
        let alone = job.write.is_some() && job.operation.word == WordAccess::Skip;
        job.header |= job.operation.read || open_line.line.phase.upgrades() || alone;
        Ok(job)
    }

    /// As [`Core::completed`], for a coded line. Also returns a future to await after it, if reads
    /// are late.
    fn completed_coded(
        &self,
        addr: GAddr,
        open_line: &mut OpenLine,
        outcome: FinishedOperation,
    ) -> (Option<Event>, Option<impl Future<Output = ()> + use<>>) {
        self.write_done(open_line);
        let FinishedOperation { done, moved } = outcome;
        let late = moved.and_then(|moved| self.move_frame(addr, open_line, moved));
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                let writes_back = open_line.line.phase == Phase::WriteBack;
                if let (true, Some(coded), Some(id)) =
                    (writes_back, &self.memory.coded, open_line.frame)
                {
                    // Some of its splits may have new versions.
                    coded.set_versions(id, &unknown_versions());
                }
                if matches!(&error, EngineError::Fabric(lost) if self.quiesce_line(addr, open_line, lost))
                {
                    return (None, late);
                }
                if writes_back {
                    // The copy here is the only one: it is still to go home.
                    tracing::debug!(%addr, %error, "a page did not get home");
                    return (Some(NOTHING_FOUND), late);
                }
                self.fail_line(addr, open_line, &error);
                return (None, late);
            }
        };
        if let (Some(coded), Some(id), Some(versions)) =
            (&self.memory.coded, open_line.frame, &done.versions)
        {
            coded.set_versions(id, versions);
        }
        if done.damaged {
            let error = EngineError::PageDamaged { addr };
            open_line.lose(&error);
            open_line.damaged = Some(error);
        }
        if let (Some(coded), false) = (&self.memory.coded, done.corrupt.is_empty()) {
            let places = self.memory.placement.splits(addr);
            for _ in 0..coded.note_corrupt(addr, done.corrupt, places.as_ref()) {
                Counters::add(&self.telemetry.counters.corruptions);
            }
        }
        self.note_looks(open_line, done.old);
        (Some(self.completed_with(open_line, done.old)), late)
    }

    /// Whether the payload of a split is intact, by its tag.
    #[cfg(not(feature = "planted"))]
    #[expect(clippy::unused_self, reason = "a planted bug is this node's")]
    pub(super) fn is_as_written(&self, tag: Tag, payload: &[u8]) -> bool {
        tag.is_of(payload)
    }

    /// As above, unless a planted bug does not look.
    #[cfg(feature = "planted")]
    pub(super) fn is_as_written(&self, tag: Tag, payload: &[u8]) -> bool {
        self.config.planted == crate::Planted::UncheckedSplits || tag.is_of(payload)
    }

    /// A free frame to replace one into which reads are outstanding, unless late reads have enough
    /// frames already.
    pub(super) fn frame_for_late(&self) -> Option<FrameId> {
        let most = self.cache.frames.count() / LATE_FRAMES;
        // Relaxed: a bound on memory; no other access depends on its order.
        let is_free = self.cache.late_frames.load(Ordering::Relaxed) < most;
        is_free.then(|| self.cache.frames.take_free()).flatten()
    }

    /// Replaces a frame into which reads are outstanding. The old frame is free when they have
    /// completed.
    fn move_frame(
        &self,
        addr: GAddr,
        open_line: &mut OpenLine,
        moved: MovedFrame,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let MovedFrame { to, late } = moved;
        debug_assert!(open_line.seen == LocalUse::Idle, "a page is fetched while it is in use");
        let core = self.this.upgrade()?;
        let from = open_line.frame.replace(to);
        if let Some(from) = from {
            self.cache.vacate(addr, from);
        }
        open_line.seen = self.cache.occupy(addr, to);
        Counters::add(&self.telemetry.counters.late_reads);
        self.cache.late_frames.fetch_add(1, Ordering::Relaxed);
        Some(async move {
            for split in late {
                // The result does not matter: the page is in the other frame.
                let _ = split.await;
            }
            if let Some(from) = from {
                core.cache.frames.give_back(from);
            }
            // Release: a reader that sees no late frames sees the frames free.
            core.cache.late_frames.fetch_sub(1, Ordering::Release);
        })
    }

    /// Writes a whole line of a coded pool home. No other node reads or writes it meanwhile.
    pub(crate) async fn put_coded(&self, addr: GAddr, line: &[u8]) -> Result<(), EngineError> {
        let Some(coded) = &self.memory.coded else { return Err(EngineError::Closed) };
        let _using = self.memory.placement.using();
        let home = self.memory.placement.home(addr).ok_or(EngineError::BadAddress { addr })?;
        let places = self.memory.placement.written(addr).ok_or(EngineError::BadAddress { addr })?;
        let operation = LatchOperation { write_back: true, word: WordAccess::Skip, read: false };
        let mut job = CodedOperation::new(addr, home, places, operation);
        job.write = Some(coded.encode(line, coded.dirty_set(Dirty::ALL), None)?);
        job.run(self).await.done.map(drop)
    }
}
