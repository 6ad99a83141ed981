//! Entries of this node in the words at the new homes: for its modified pages and shared copies. A
//! copy that a dead node has granted may be newer than the page at home: its word names that node
//! again, as the lost word did, and so this node inquires, and writes the page home.

use std::collections::{BTreeMap, BTreeSet};

use selkie_fabric::{Chain, RemoteAddr, Verb};
use selkie_pool::Rebuild;

use crate::coherence::machine::Phase;
use crate::coherence::word::{ComputeId, LatchDelta};
use crate::core::Core;
use crate::{EngineError, GAddr};
use selkie_wal::Dirty;

/// Words that are changed by one chain.
const WORDS_A_CHAIN: usize = 256;

impl Core {
    /// Enters this node in the new words of all lines that it has.
    pub(super) async fn enter_lines(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let (number, memory) = (rebuild.number, rebuild.memory);
        let tables = self.memory.quiesced.tables_of(number);
        // The state may be known before the placement follows it.
        let follows = || {
            let state = self.pool.state();
            tables.iter().all(|(range, _)| {
                let place = state.ranges.get(*range);
                place.is_none_or(|place| self.memory.placement.has_homes(*range, &place.homes))
            })
        };
        self.wait_until(follows).await?;
        // A grant of a node that died counts as well.
        let lost = self.pool.lost().into_iter().map(|(node, _)| node);
        let peers = self.pool.members().into_iter().chain(lost);
        for peer in peers.filter(|peer| *peer != self.index()) {
            let mailbox = self.messenger.mailbox_for(peer.as_usize());
            self.wait_until(|| !mailbox.has_mail_from(peer.as_usize())).await?;
        }
        self.memory.quiesced.entered.write().insert(number);
        if !self.memory.quiesced.in_words.lock().contains(&number) {
            let entered = self.enter_in_words(memory, number, &tables).await;
            // The words may have this node or not: the others must take its lines for lost.
            entered.inspect_err(|error| self.end_with(error.clone()))?;
        }
        self.pool.note_entered(number, self.index()).await?;
        Ok(())
    }

    async fn enter_in_words(
        &self,
        memory: u16,
        number: u64,
        tables: &BTreeSet<(usize, usize)>,
    ) -> Result<(), EngineError> {
        let mut words: BTreeMap<usize, Vec<(RemoteAddr, LatchDelta)>> = BTreeMap::new();
        let mut granted: Vec<(usize, RemoteAddr, ComputeId)> = Vec::new();
        let lost = self.pool.lost().into_iter();
        let lost = lost.filter_map(|(node, _)| ComputeId::new(node.as_usize())).collect();
        for addr in self.lines_in(tables) {
            self.with_line(addr, |open_line| {
                open_line.line = open_line.line.without_home(lost);
                open_line.quiesced = false;
                if let (true, Phase::Modified, Some(frame)) =
                    (self.rules.home_first, open_line.line.phase, open_line.frame)
                {
                    // The grantor may not have written the whole page to its splits.
                    self.cache.frames.get(frame).set_dirty(Dirty::ALL);
                }
                open_line.forget_deaths();
                let delta = match open_line.line.phase {
                    Phase::Modified => Some(LatchDelta::add_holder(self.me)),
                    Phase::Shared => Some(LatchDelta::add_reader(self.me)),
                    _ => None,
                };
                if let (Some(delta), Some(home)) = (delta, self.memory.placement.home(addr)) {
                    words.entry(home.node).or_default().push((home.latch, delta));
                    if let (Phase::Shared, Some(dead)) =
                        (open_line.line.phase, open_line.line.grantor)
                    {
                        granted.push((home.node, home.latch, dead));
                    }
                }
            });
        }
        let mut entered = 0;
        for (node, words) in words {
            for words in words.chunks(WORDS_A_CHAIN) {
                let mut chain = Chain::new();
                for (at, delta) in words {
                    chain.push(Verb::fetch_and_add(*at, delta.bits()));
                }
                match self.memory.queue_pair(node).post(chain).await {
                    Ok(_) => entered += words.len(),
                    // That memory node is lost as well: its rebuild makes the words anew.
                    Err(failed) => self.until_memory_is_dead(failed.error).await?,
                }
            }
        }
        for (node, at, dead) in granted {
            if let Err(error) = self.name_holder(node, at, dead, true).await {
                self.until_memory_is_dead(error).await?;
            }
        }
        self.memory.quiesced.in_words.lock().insert(number);
        tracing::info!(node = %self.endpoint.id(), memory, entered, "rebuild: entered");
        Ok(())
    }

    /// All lines of these tables that this node has in its cache or notes.
    fn lines_in(&self, tables: &BTreeSet<(usize, usize)>) -> BTreeSet<GAddr> {
        let mut lines = BTreeSet::new();
        for shard in self.cache.all_shards() {
            lines.extend(shard.lock().keys().map(|addr| GAddr::from_u64(*addr)));
        }
        let addr_of = |id| self.cache.frames.get(id).addr();
        lines.extend(self.cache.frames.ids().map(addr_of));
        // Last: pages move from the cache beyond it.
        lines.extend(self.cache.frames.ids_beyond_cache().map(addr_of));
        lines.extend(self.cache.residual.all());
        lines.retain(|addr| !addr.is_null() && self.is_in(*addr, tables));
        lines
    }
}
