//! Posts the latch operations of lines: chains of writes, an atomic and a read.
//!
//! Completions that are ready at once (`mem`, `shm`) are handled in place; others by a task of
//! their own, so that an operation belongs to the line and not to the caller that caused it.

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};

use super::chains::{Batch, push_word};
use super::machine::{Event, LatchOperation, LocalUse, Phase, WordAccess};
use super::open_line::OpenLine;
use crate::addressing::locations::Home;
use crate::cache::frame::FrameId;
use crate::core::Core;
use crate::telemetry::stats::Counters;
use crate::{EngineError, GAddr};
use selkie_wal::Dirty;

/// What was not changed between two changes is written with them unless it is as much as a verb
/// more costs.
const LEAST_GAP_BYTES: usize = 256;

impl Core {
    /// Posts a latch operation; its completion event if it is ready at once.
    pub(super) fn post(
        &self,
        addr: GAddr,
        open: &mut OpenLine,
        operation: LatchOperation,
    ) -> Option<Event> {
        if let Some(coded) = &self.memory.coded {
            return self.post_coded(coded, addr, open, operation);
        }
        let home = self.home_of(addr, open)?;
        let mut chain = Chain::new();
        self.build(&home, open, operation, &mut chain);
        let queue_pair = self.memory.queue_pair(home.node);
        let mut completion = queue_pair.post(chain);
        match completion.try_take() {
            Some(result) => self.completed(addr, open, operation.word, result),
            None => {
                let core = self.this.upgrade()?;
                drop(self.spawn_for_caller("latch operation", async move {
                    let result = completion.await;
                    core.with_line(addr, |open| {
                        if let Some(event) = core.completed(addr, open, operation.word, result) {
                            core.run(addr, open, event, None);
                        }
                    });
                }));
                None
            }
        }
    }

    /// Appends a latch operation to those gathered for its memory node.
    pub(super) fn gather(
        &self,
        addr: GAddr,
        open: &mut OpenLine,
        operation: LatchOperation,
        batch: &mut Vec<Batch>,
    ) {
        let Some(home) = self.home_of(addr, open) else { return };
        if batch.len() <= home.node {
            batch.resize_with(home.node + 1, Batch::default);
        }
        if let Some(batch) = batch.get_mut(home.node) {
            self.build(&home, open, operation, &mut batch.chain);
            batch.lines.push(addr);
        }
    }

    /// The home of a line; if it has none, its waits fail.
    pub(crate) fn home_of(&self, addr: GAddr, open: &mut OpenLine) -> Option<Home> {
        let home = self.memory.placement.home(addr);
        if home.is_none() {
            self.fail(open, EngineError::BadAddress { addr });
        }
        home
    }

    /// Appends `[write the dirty bytes]* [atomic]? [read the page]?`.
    fn build(
        &self,
        home: &Home,
        open: &mut OpenLine,
        operation: LatchOperation,
        chain: &mut Chain,
    ) {
        if let (Phase::Rejoin { .. }, Some(id)) = (open.line.phase, open.frame) {
            // What home has may be torn, all of it.
            self.cache.frames.get(id).set_dirty(Dirty::ALL);
        }
        if let Some(id) = open.frame.filter(|_| operation.write_back) {
            let dirty = self.dirty_of(id);
            if !dirty.is_empty() {
                Counters::add(&self.telemetry.counters.write_backs);
                open.going_home.oldest_change = self.cache.frames.get(id).unhomed();
                open.going_home.copied = open.line.phase.gives_page_away() && self.may_copy();
            }
            let mut last_word = None;
            for dirty in dirty.stretches(self.cache.gcl_bytes(), LEAST_GAP_BYTES) {
                let at = RemoteAddr::new(home.page.region, home.page.offset + dirty.start as u64);
                last_word = Some(home.page.offset + dirty.end as u64 - 8);
                let from = if open.going_home.copied {
                    // SAFETY: the line is being evicted: the latch is sealed and has no holder.
                    let page = unsafe { self.cache.page(id) };
                    #[expect(clippy::indexing_slicing, reason = "a stretch lies in the line")]
                    Buf::copy_of(&page[dirty])
                } else {
                    // SAFETY: the line's operation is outstanding, so no holder writes the frame,
                    // and it is not reused before the completion; readers may share it.
                    unsafe { self.cache.frames.lease(id, dirty) }
                };
                self.push_write_back(home.node, Verb::Write { at, from }, chain);
            }
            if let (Some(offset), WordAccess::Skip) = (last_word, operation.word) {
                // With no change of the word behind it, it is in place when it can be read.
                let at = RemoteAddr::new(home.page.region, offset);
                chain.push(Verb::read(at, Buf::zeroed(8)));
            }
        }
        push_word(chain, home.latch, operation.word);
        if let Some(id) = open.frame.filter(|_| operation.read) {
            // SAFETY: a line that fetches is not readable: no holder touches the frame until
            // the completion.
            let into = unsafe { self.cache.frames.lease(id, 0..self.cache.gcl_bytes()) };
            chain.push(Verb::Read { at: home.page, into });
        }
    }

    /// What of a page goes home.
    pub(crate) fn dirty_of(&self, id: FrameId) -> Dirty {
        match self.cache.frames.get(id).dirty() {
            dirty if dirty.is_empty() || self.config.dirty_bounds => dirty,
            _ => Dirty::ALL,
        }
    }

    /// Whether a dirty page that leaves may be copied: as many copies are under way as there may
    /// be.
    pub(crate) fn may_copy(&self) -> bool {
        self.config.send_ring && self.cache.begin_copy()
    }

    /// Frees the frame of a line that is on its way out and whose page this node no longer needs.
    pub(super) fn free_early(&self, addr: GAddr, open: &mut OpenLine) {
        if !self.config.send_ring || open.seen != LocalUse::Idle {
            return;
        }
        let free = match open.line.phase {
            Phase::HandOver { .. } if !self.rules.home_first => true,
            Phase::ReleaseShared => true,
            phase if phase.gives_page_away() => {
                open.going_home.copied
                    || open.frame.is_some_and(|id| self.cache.frames.get(id).dirty().is_empty())
            }
            _ => false,
        };
        if let Some(frame) = open.frame.take_if(|_| free) {
            self.cache.release_frame(addr, frame);
        }
    }

    /// The write-back goes before the atomic that gives the page up, on the same queue pair.
    #[cfg(not(feature = "planted"))]
    fn push_write_back(&self, _node: usize, write: Verb, chain: &mut Chain) {
        chain.push(write);
    }

    /// As above, unless a planted bug takes it elsewhere.
    #[cfg(feature = "planted")]
    fn push_write_back(&self, node: usize, write: Verb, chain: &mut Chain) {
        match (self.config.planted, &write, self.memory.links.loose(node)) {
            (crate::Planted::LooseWriteBack, Verb::Write { at, from }, Some(loose)) => {
                // A copy: the frame is only lent for as long as the latch operation lasts.
                let copy = Verb::write(*at, selkie_fabric::Buf::copy_of(from));
                drop(loose.post(Chain::from(copy)));
            }
            _ => chain.push(write),
        }
    }
}
