//! Marks of free lines in their headers, so that no free line is forgotten with the node that has
//! it. [`FreeMark`] says why a mark can be believed.
//!
//! A node marks the lines of an extent when it has leased it, and a line that it frees before it
//! uses the line again: after the log is durable up to where nothing leads to the line any more, so
//! that no redo brings a page back that points there. Both happen in batches, off the path of
//! callers. A node that leaves or dies leaves its lines to all others by being gone, and no other
//! node has to do anything for that.
//!
//! What is lost: the lines of an extent whose lease a death cuts short, lines that are freed within
//! a tick of a death, and marks in the headers of a memory node that is lost, except those of
//! living compute nodes, which mark their lines again. `selkie pool repair` finds them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_pool::layout::{FREE_MARK_AT, FreeMark, LATCH_AT, LINES_GIVEN_AT, LineOwner};

use super::allocator::{FreeLine, KEPT_LINES, KEPT_WHEN_SHORT};
use crate::coherence::machine::Event;
use crate::core::Core;
use crate::log::Lsn;
use crate::{EngineError, GAddr};

/// Headers that are marked by one chain.
const MARKS_A_CHAIN: usize = 256;
/// Lines that are marked in one turn.
const MARKED_AT_ONCE: usize = 1024;
/// Turns in a tick, which has other things to do.
const TURNS_A_TICK: usize = 8;

impl Core {
    /// This node, as the owner of lines.
    pub(crate) fn as_owner(&self) -> LineOwner {
        LineOwner::Node { node: self.index(), incarnation: self.own_incarnation() }
    }

    /// Writes marks. Those at a memory node that cannot be reached are left out: their lines are
    /// lost with it, or marked again when their headers are elsewhere.
    ///
    /// # Errors
    /// `Busy` while headers are being made anew: this does not wait.
    pub(crate) async fn mark_lines(
        &self,
        owner: LineOwner,
        lines: impl Iterator<Item = FreeLine>,
    ) -> Result<(), EngineError> {
        // Begun before the state is read: a rebuild that is not seen here waits for it.
        let _begun = self.memory.quiesced.unlatched.begin();
        if !self.pool.state().rebuilds.is_empty() {
            return Err(EngineError::Busy { addr: GAddr::NULL });
        }
        let marks = lines.map(|line| (line.addr, FreeMark { owner, psn: line.psn }.to_word()));
        self.write_marks(marks).await;
        Ok(())
    }

    /// Marks the lines of an extent that this node has leased.
    pub(super) async fn mark_extent(&self, lines: std::ops::Range<u64>) -> Result<(), EngineError> {
        let _begun = self.begin_unlatched().await?;
        let mark = FreeMark { owner: self.as_owner(), psn: 0 }.to_word();
        let lines = lines.step_by(self.cache.gcl_bytes()).map(GAddr::from_u64);
        self.write_marks(lines.map(|addr| (addr, mark))).await;
        Ok(())
    }

    /// Marks a line as a counter, which is never free.
    pub(crate) async fn mark_as_counter(&self, addr: GAddr) -> Result<(), EngineError> {
        let _begun = self.begin_unlatched().await?;
        self.write_marks(std::iter::once((addr, FreeMark::counter()))).await;
        Ok(())
    }

    async fn write_marks(&self, marks: impl Iterator<Item = (GAddr, u64)>) {
        // Headers stay where they are, and no slab is another's, before the writes are over.
        let _using = self.memory.placement.using();
        let mut chains: BTreeMap<usize, Vec<(RemoteAddr, u64)>> = BTreeMap::new();
        for (addr, word) in marks {
            let Some(home) = self.memory.placement.home(addr) else { continue };
            let at = home.latch.offset - LATCH_AT + FREE_MARK_AT;
            let at = RemoteAddr::new(home.latch.region, at);
            chains.entry(home.node).or_default().push((at, word));
        }
        for (node, marks) in chains {
            for marks in marks.chunks(MARKS_A_CHAIN) {
                let mut chain = Chain::new();
                for (at, word) in marks {
                    chain.push(Verb::write(*at, Buf::copy_of(&word.to_le_bytes())));
                }
                if let Err(failed) = self.memory.queue_pair(node).post(chain).await {
                    tracing::debug!(memory = node, error = %failed.error, "free lines are not marked");
                }
            }
        }
    }

    /// Marks lines that were freed here, as far as the log is durable.
    pub(crate) async fn mark_freed(&self) -> Result<(), EngineError> {
        let gives = self.allocator.search.gives(self.env.now());
        let keep = if gives { KEPT_WHEN_SHORT } else { KEPT_LINES };
        for _ in 0..TURNS_A_TICK {
            if !self.mark_some(keep).await? {
                break;
            }
        }
        Ok(())
    }

    /// Marks some of them. Returns whether there are more.
    async fn mark_some(&self, keep: usize) -> Result<bool, EngineError> {
        let marking = self.allocator.to_be_marked(self.unlinked_up_to(), MARKED_AT_ONCE, keep);
        if marking.is_empty() {
            return Ok(false);
        }
        let (kept, given) = marking.lines();
        self.send_home(kept.iter().chain(&given));
        self.mark_lines(self.as_owner(), kept.iter().copied()).await?;
        self.mark_lines(LineOwner::All, given.iter().copied()).await?;
        marking.done();
        if !given.is_empty() {
            self.tell_given().await?;
        }
        Ok(true)
    }

    /// Evicts freed pages: a page that only this node had would be lost with it, and its line too.
    /// Does not wait. What a late reader has latched stays here.
    fn send_home<'l>(&self, lines: impl Iterator<Item = &'l FreeLine>) {
        let (mut batches, mut gathered) = (Vec::new(), 0);
        for line in lines {
            gathered += usize::from(self.give_up(line.addr, Event::Evict, &mut batches));
            if gathered == self.config.eviction_batch {
                self.post_batches(std::mem::take(&mut batches));
                gathered = 0;
            }
        }
        self.post_batches(batches);
    }

    /// Up to where nothing leads to freed lines for good.
    fn unlinked_up_to(&self) -> Lsn {
        self.log.as_ref().map_or(Lsn::MAX, |log| log.durable())
    }

    /// Gives ripe lines to all, if another node has asked for them. Those that are freed later
    /// follow when they are marked.
    pub(super) async fn give_surplus(&self) -> Result<(), EngineError> {
        let mut has_given = false;
        loop {
            let lines = self.allocator.surplus(KEPT_WHEN_SHORT, MARKED_AT_ONCE);
            if lines.is_empty() {
                break;
            }
            if let Err(error) = self.mark_lines(LineOwner::All, lines.iter().copied()).await {
                self.allocator.take_back(lines);
                return Err(error);
            }
            has_given = true;
        }
        if has_given { self.tell_given().await } else { Ok(()) }
    }

    /// Tells the others that there are lines for all.
    async fn tell_given(&self) -> Result<(), EngineError> {
        let Some((node, at)) = self.epoch_word(LINES_GIVEN_AT) else { return Ok(()) };
        let add = Chain::from(Verb::fetch_and_add(at, 1));
        self.memory.queue_pair(node).post(add).await.map_err(|failed| failed.error)?;
        Ok(())
    }

    /// Marks all lines of this node anew: headers were made anew that had marks.
    pub(crate) async fn mark_again(&self) -> Result<(), EngineError> {
        if !self.allocator.search.marks_lost.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let lines = self.allocator.all(self.cache.gcl_bytes());
        let marked = self.mark_lines(self.as_owner(), lines.into_iter()).await;
        if marked.is_err() {
            self.allocator.search.marks_lost.store(true, Ordering::Release);
        }
        marked
    }

    /// Leaves every unused line to the others: this node allocates no more.
    pub(crate) async fn leave_lines(&self) -> Result<(), EngineError> {
        let marked = loop {
            match self.mark_some(0).await {
                Ok(true) => {}
                // It would be for this node to end it, which does no more of that.
                Ok(false) | Err(EngineError::Busy { .. }) => break Ok(()),
                failed => break failed.map(drop),
            }
        };
        self.allocator.forget();
        marked
    }
}
