//! The sweep of a recovery: one node takes the dead node out of all latch words and decides which
//! lines are lost (docs/design.md, Membership and recovery, F5).
//!
//! A word that names the dead node while a survivor reads the line is a grant that did not reach
//! the word, or an intent: the sweep takes the node out. If the word names the node and has no
//! other reader, the dead node had the only copy. That page is redone from the logs of the dead
//! nodes (`log/redo.rs`), if they had logs and the sweeping node reaches them. Otherwise the page
//! is lost; callers get [`crate::EngineError::PageLost`]. If there is a log that a later node may
//! reach, the word keeps the name of the dead node. If there is none, or a person has given the
//! page up, the word says that the page is lost for good: then no word names the dead node, and its
//! index can be used again (F5).

use std::sync::Arc;

use selkie_fabric::env::yield_now;
use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_pool::{ComputeIndex, layout};

use crate::addressing::executed::{found_at, read_at};
use crate::addressing::locations::Home;
use crate::addressing::reclamation::epoch_node;
use crate::coding::journal::share::JournalImage;
use crate::coding::repair_torn::RepairedPage;
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord, NodeSet};
use crate::core::Core;
use crate::join::all_of;
use crate::{Coherence, EngineError, GAddr};

/// Pages that are repaired at the same time.
const REPAIRED_AT_ONCE: usize = 64;
/// Headers that the sweep reads at once.
const SWEEP_HEADERS: u64 = 1024;

/// The lines that a sweep decided about.
#[derive(Default)]
pub(super) struct SweptLines {
    /// Lines of which the dead node had the only copy.
    lost: Vec<u64>,
    /// Lines that the state of the pool calls lost, and whose words are free: they were redone.
    found: Vec<u64>,
}

impl Core {
    /// Redoes lost pages, as far as possible. Returns them with the pages that were found, and
    /// those that stay lost.
    pub(super) async fn redo_or_repair(
        &self,
        dead: ComputeId,
        SweptLines { lost, mut found }: SweptLines,
        images: Arc<[JournalImage]>,
    ) -> Result<(Vec<u64>, Vec<u64>), EngineError> {
        let still = self.redo(dead, lost.clone(), &images).await?;
        // A page that stays lost may be torn. It is repaired while the journal of its writer
        // exists.
        for some in still.chunks(REPAIRED_AT_ONCE) {
            let mended =
                some.iter().map(|addr| self.repair_torn_page(GAddr::from_u64(*addr), &images));
            for (addr, mended) in some.iter().zip(all_of(mended).await) {
                if matches!(mended?, RepairedPage::Lost) {
                    tracing::warn!(addr = %GAddr::from_u64(*addr), "too little is left of a page");
                }
            }
        }
        found.extend(lost);
        Ok((found, still))
    }

    /// Takes the dead node out of all latch words, and out of the epochs. Returns the decisions
    /// about lines, and the images in the journals of dead nodes.
    pub(super) async fn sweep(
        &self,
        dead: ComputeId,
    ) -> Result<(SweptLines, Vec<JournalImage>), EngineError> {
        let mut lines = SweptLines::default();
        let mut images = Vec::new();
        if self.memory.coded.is_some() {
            for node in self.journals_with(dead).iter() {
                images.append(&mut self.journal_images_of(node).await?);
            }
        }
        for memory in 0..self.memory.node_count() {
            let swept = self.sweep_memory(memory, dead, &mut lines).await;
            // Headers on a dead memory node are lost, or made anew by a rebuild.
            self.unless_memory_is_dead(memory, swept).await?;
        }
        // Without a memory node for epochs none is held back.
        if let Some(epochs) = epoch_node(&self.pool) {
            self.unless_memory_is_dead(epochs, self.publish_epoch_of(dead, 0).await).await?;
        }
        Ok((lines, images))
    }

    /// The nodes whose journals may have an image of a page that names this dead node. A node that
    /// died later may have been writing a page that this one had granted, and its own recovery may
    /// be over: then no word named it. Its journal is in place, as no other node gets the index of
    /// a node of a crash group.
    fn journals_with(&self, dead: ComputeId) -> NodeSet {
        let state = self.pool.state();
        let crashed = state.crashed_with(dead.index() as u16);
        let nodes = state.lost.keys().chain(crashed.keys());
        nodes.filter_map(|node| ComputeId::new(usize::from(*node))).collect()
    }

    async fn sweep_memory(
        &self,
        memory: usize,
        dead: ComputeId,
        lines: &mut SweptLines,
    ) -> Result<(), EngineError> {
        for table in self.memory.placement.header_tables(memory) {
            for first in (0..table.headers).step_by(SWEEP_HEADERS as usize) {
                // The other nodes wait until this node has quiesced. The sweep is repeated later.
                if !self.pool.rebuilds().is_empty() {
                    return Err(EngineError::Busy { addr: GAddr::NULL });
                }
                let count = SWEEP_HEADERS.min(table.headers - first);
                let at = |header: u64| {
                    let offset = table.at.offset + header * layout::HEADER_BYTES;
                    RemoteAddr::new(table.at.region, offset + layout::LATCH_AT)
                };
                let bytes = (count * layout::HEADER_BYTES) as usize;
                let read = Verb::read(at(first), Buf::zeroed(bytes));
                let done = self.memory.queue_pair(memory).post(Chain::from(read)).await;
                let done = done.map_err(|error| error.error)?;
                let words = read_at(&done, 0).words();
                let header_words = (layout::HEADER_BYTES / 8) as usize;
                let state = self.pool.state();
                for (number, word) in (0..count).zip(words.iter().step_by(header_words)) {
                    let word = LatchWord::from_bits(u64::from_le(*word));
                    let addr = self.memory.placement.addr_of(&table, first + number);
                    let said = addr.is_some_and(|addr| state.lost_pages.contains(&addr.to_u64()));
                    let is_in = |node: &ComputeId| {
                        let node = ComputeIndex::new(node.index() as u16);
                        state.compute_nodes.contains_key(&node.get())
                    };
                    if said && word.holder().is_ok_and(|holder| holder.as_ref().is_none_or(is_in)) {
                        // A node redid the line and died before it reported that.
                        lines.found.extend(addr.map(GAddr::to_u64));
                    }
                    // A line that is lost already stays lost.
                    let known = said && word.holder() == Ok(Some(dead));
                    if known || self.sweep_word(memory, at(first + number), word, dead).await? {
                        lines.lost.extend(addr.map(GAddr::to_u64));
                    }
                }
                // Memory that is shared answers at once. The lease is renewed all the same, also on
                // the only thread of a process.
                yield_now().await;
            }
        }
        Ok(())
    }

    /// Takes the dead node out of a word, by a swap of the word that was read. Returns whether the
    /// line is lost.
    async fn sweep_word(
        &self,
        memory: usize,
        at: RemoteAddr,
        mut word: LatchWord,
        dead: ComputeId,
    ) -> Result<bool, EngineError> {
        loop {
            let holds = word.holder() == Ok(Some(dead));
            // Readers of the baseline add their bits also to words of lines that they do not have.
            let bits_tell = self.config.coherence == Coherence::Selcc;
            let is_lost = holds && !(bits_tell && self.is_read_by_members(word));
            let mut swept = word;
            if word.readers().contains(dead) {
                swept = swept.add(LatchDelta::remove_reader(dead));
            }
            if holds && !is_lost {
                swept = swept.add(LatchDelta::remove_holder(dead));
            }
            if swept == word {
                return Ok(is_lost);
            }
            let swap = Verb::compare_and_swap(at, word.bits(), swept.bits());
            let done = self.memory.queue_pair(memory).post(Chain::from(swap)).await;
            let old = found_at(&done.map_err(|error| error.error)?, 0);
            if old == word.bits() {
                return Ok(is_lost);
            }
            word = LatchWord::from_bits(old);
        }
    }

    /// Takes the dead node out of a word that names it as the holder. No other node does.
    pub(crate) async fn free_word(
        &self,
        memory: usize,
        at: RemoteAddr,
        dead: ComputeId,
    ) -> Result<(), EngineError> {
        let mut word = LatchWord::held_by(dead);
        while word.holder() == Ok(Some(dead)) {
            let free = word.add(LatchDelta::remove_holder(dead));
            let swap = Verb::compare_and_swap(at, word.bits(), free.bits());
            let done = self.memory.queue_pair(memory).post(Chain::from(swap)).await;
            let old = found_at(&done.map_err(|error| error.error)?, 0);
            if old == word.bits() {
                break;
            }
            word = LatchWord::from_bits(old);
        }
        Ok(())
    }

    /// Has words that name a dead node say that their pages are lost for good: no log can bring
    /// them back. Then nothing has the name of the node any more.
    pub(super) async fn abandon_words(
        &self,
        dead: ComputeId,
        pages: &[u64],
    ) -> Result<(), EngineError> {
        for page in pages {
            let Some(home) = self.memory.placement.home(GAddr::from_u64(*page)) else { continue };
            let done = self.abandon_word(&home, dead).await;
            self.unless_memory_is_dead(home.node, done).await?;
        }
        Ok(())
    }

    async fn abandon_word(&self, home: &Home, dead: ComputeId) -> Result<(), EngineError> {
        let mut word = LatchWord::held_by(dead);
        while word.holder() == Ok(Some(dead)) {
            let lost = word.add(LatchDelta::hand_over(dead, ComputeId::LOST));
            let swap = Verb::compare_and_swap(home.latch, word.bits(), lost.bits());
            let done = self.memory.queue_pair(home.node).post(Chain::from(swap)).await;
            let old = found_at(&done.map_err(|error| error.error)?, 0);
            if old == word.bits() {
                break;
            }
            word = LatchWord::from_bits(old);
        }
        Ok(())
    }

    /// Whether a member of the pool reads the line. Bits of dead nodes do not count.
    fn is_read_by_members(&self, word: LatchWord) -> bool {
        let is_member =
            |reader: ComputeId| self.pool.is_member(ComputeIndex::new(reader.index() as u16));
        word.readers().iter().any(is_member)
    }
}
