//! Lines that no survivor has entered. A node that died before it could enter them may have held
//! them, so they are marked as its own, and lost, until a redo says otherwise.

use selkie_fabric::{Buf, Chain, FabricError, RemoteAddr, Verb};
use selkie_pool::Rebuild;
use selkie_pool::layout::{EXTENT_GCLS, HEADER_BYTES, LATCH_AT};

use super::headers::GCLS_AT_ONCE;
use crate::EngineError;
use crate::addressing::executed::{found_at, word_at};
use crate::addressing::locations::Counter;
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord};
use crate::core::Core;

impl Core {
    /// Marks every line that no survivor has entered as held by a node that died before it could
    /// enter its lines.
    pub(super) async fn mark_unclaimed(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let (memory, nodes) = (rebuild.memory, &rebuild.doubtful);
        if !rebuild.before.is_empty() {
            return self.mark_by_old_words(rebuild).await;
        }
        let lost = self.pool.state();
        let is_swept = |node: &&u16| lost.lost.contains_key(node);
        // A node that is still to be swept out of the words, if there is one.
        let holder = nodes.iter().find(is_swept).or(nodes.first()).copied();
        let Some(holder_index) = holder else { return Ok(()) };
        let is_swept = lost.lost.contains_key(&holder_index);
        let Some(holder) = ComputeId::new(usize::from(holder_index)) else { return Ok(()) };
        let number = rebuild.number;
        let mut doubted = Vec::new();
        for (range, position) in self.memory.quiesced.tables_of(number) {
            let named = self.name_holders((range, position), holder, is_swept).await?;
            doubted.extend(named.into_iter().map(|addr| (holder_index, addr)));
        }
        tracing::warn!(
            memory,
            ?nodes,
            lines = doubted.len(),
            "rebuild: no node knows which node had these lines"
        );
        self.pool.clear_doubts(number, nodes, &doubted).await?;
        Ok(())
    }

    /// Marks every line that no node has entered as lost for good, in ranges with so many lost
    /// pages that the pool does not remember which they are.
    pub(super) async fn mark_abandoned(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let mut lines = 0;
        for (range, position) in self.memory.quiesced.tables_of(rebuild.number) {
            if rebuild.abandoned.contains(&range) {
                let named = self.name_holders((range, position), ComputeId::LOST, false).await?;
                lines += named.len();
            }
        }
        let (memory, ranges) = (rebuild.memory, &rebuild.abandoned);
        tracing::warn!(
            memory,
            ?ranges,
            lines,
            "rebuild: it is not known which pages of these ranges were lost for good before"
        );
        Ok(self.pool.note_abandoned(rebuild.number).await?)
    }

    /// Makes the words of a table's lines name a node, as far as they name no holder. Returns the
    /// lines that no node has.
    async fn name_holders(
        &self,
        (range, position): (usize, usize),
        holder: ComputeId,
        is_swept: bool,
    ) -> Result<Vec<u64>, EngineError> {
        let mut named = Vec::new();
        let leased = self.leased_lines(range).await?;
        let table = self.memory.placement.table_in_use(range, position);
        // Lost as well: its own rebuild marks its lines.
        let Some(table) = table.filter(|table| !self.pool.is_memory_dead(table.node)) else {
            return Ok(named);
        };
        for header in 0..table.headers {
            let addr = self.memory.placement.addr_of(&table, header);
            // The null address has a header as well, and no page.
            let Some(addr) = addr.filter(|addr| !addr.is_null()) else { continue };
            if self.memory.placement.line_in_range(addr) >= leased {
                break;
            }
            let at = table.at.offset + header * HEADER_BYTES + LATCH_AT;
            let at = RemoteAddr::new(table.at.region, at);
            if self.name_holder(table.node, at, holder, is_swept).await? {
                named.push(addr.to_u64());
            }
        }
        Ok(named)
    }

    /// Makes a word name a dead node if it names no holder. Returns whether no node has the line.
    /// If the line has readers, the dead node may have granted their copies and died in its
    /// write-back: they inquire when they are told of its death, and the sweep takes it out of the
    /// word. A reader that knows its grantor has named it before, when it entered.
    pub(super) async fn name_holder(
        &self,
        node: usize,
        at: RemoteAddr,
        holder: ComputeId,
        is_swept: bool,
    ) -> Result<bool, FabricError> {
        let mut word = LatchWord::FREE;
        loop {
            let named = word.add(LatchDelta::add_holder(holder));
            let swap = Chain::from(Verb::compare_and_swap(at, word.bits(), named.bits()));
            let done =
                self.memory.queue_pair(node).post(swap).await.map_err(|error| error.error)?;
            let old = LatchWord::from_bits(found_at(&done, 0));
            if old == word {
                return Ok(word == LatchWord::FREE);
            }
            if old.holder() != Ok(None) || !is_swept {
                // The word may have been marked before, by a node that died before it reported
                // that.
                return Ok(old == LatchWord::held_by(holder));
            }
            word = old;
        }
    }

    /// As [`Core::mark_unclaimed`], by the old words, where they can still be read.
    async fn mark_by_old_words(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let mut doubted = Vec::new();
        let state = self.pool.state();
        for before in &rebuild.before {
            let now = self.memory.placement.table_in_use(before.range, before.position);
            let (Some(before), Some(now)) = (self.memory.placement.table_at(*before), now) else {
                continue;
            };
            if self.pool.is_memory_dead(now.node) {
                continue;
            }
            for first in (0..before.headers).step_by(GCLS_AT_ONCE as usize) {
                let count = GCLS_AT_ONCE.min(before.headers - first);
                let headers = self.read_headers(&before, first, count).await?;
                let words = headers.words().iter().step_by((HEADER_BYTES / 8) as usize);
                for (header, word) in (first..).zip(words) {
                    let held = LatchWord::from_bits(u64::from_le(*word)).holder().ok().flatten();
                    let is_doubtful =
                        |node: &ComputeId| rebuild.doubtful.contains(&(node.index() as u16));
                    let Some(holder) = held.filter(is_doubtful) else { continue };
                    let at = now.at.offset + header * HEADER_BYTES + LATCH_AT;
                    let at = RemoteAddr::new(now.at.region, at);
                    let is_swept = state.lost.contains_key(&(holder.index() as u16));
                    let is_doubted = self.name_holder(now.node, at, holder, is_swept).await?;
                    let addr = self.memory.placement.addr_of(&now, header);
                    if let (Some(addr), true) = (addr, is_doubted) {
                        doubted.push((holder.index() as u16, addr.to_u64()));
                    }
                }
            }
        }
        Ok(self.pool.clear_doubts(rebuild.number, &rebuild.doubtful, &doubted).await?)
    }

    /// The number of lines at the beginning of a range that have been leased to nodes.
    pub(crate) async fn leased_lines(&self, range: usize) -> Result<u64, EngineError> {
        let counters = self.memory.placement.copies(Counter::Leased(range));
        let counters = counters.map(|copies| copies.places).unwrap_or_default();
        let living = |(node, _): &&(usize, RemoteAddr)| !self.pool.is_memory_dead(*node);
        let Some((node, at)) = counters.iter().find(living) else { return Ok(u64::MAX) };
        let read = Chain::from(Verb::read(*at, Buf::zeroed(8)));
        let done = self.memory.queue_pair(*node).post(read).await.map_err(|error| error.error)?;
        Ok(word_at(&done, 0).saturating_mul(EXTENT_GCLS))
    }
}
