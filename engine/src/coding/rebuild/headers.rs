//! Header tables at their new places: from headers that live, or from the tags of the splits.

use std::collections::BTreeMap;

use selkie_fabric::{Buf, Chain, Completion, FabricError, RemoteAddr, Verb};
use selkie_pool::layout::{HEADER_BYTES, Header};
use selkie_pool::{HeaderMove, Rebuild};

use crate::addressing::executed::{into_read, word_at};
use crate::addressing::locations::HeaderTable;
use crate::coding::placed::placed;
use crate::coding::tag::{Tag, Version, Versions};
use crate::coherence::word::{ComputeId, LatchWord};
use crate::core::Core;
use crate::{EngineError, GAddr};

/// GCLs whose tags are read at the same time.
pub(super) const GCLS_AT_ONCE: u64 = 128;

/// The error of a step whose header table is on no memory node that this node knows. The step is
/// repeated.
fn unplaced(range: usize, position: usize) -> EngineError {
    EngineError::Unplaced { range, position }
}

impl Core {
    /// When all nodes have quiesced, one of them gives the tables new places.
    pub(super) async fn move_if_due(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        if self.config.reads_only || !self.pool.claim_rebuild(rebuild.number, self.index()).await? {
            return Ok(());
        }
        let started = self.env.now();
        let mut moved = Vec::new();
        for to in self.pool.state().moves_to_make(rebuild) {
            let made = match rebuild.leaving {
                Some(_) => self.copy_headers(to).await,
                None => self.write_headers(to).await,
            };
            match made {
                Ok(()) => moved.push(to),
                // That memory node is lost as well: the next call chooses another place.
                Err(EngineError::Fabric(FabricError::PeerDead { peer })) if peer.is_memory() => {
                    self.memory.quiesced.suspect(usize::from(peer.index()));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.pool.move_homes(rebuild.number, self.index(), &moved).await?;
        let (took, memory) = (self.env.now() - started, rebuild.memory);
        tracing::info!(node = %self.endpoint.id(), memory, tables = moved.len(), ?took, "rebuild: moved");
        Ok(())
    }

    /// Makes a header table anew, with free words and the versions in the tags of the splits.
    async fn write_headers(&self, to: HeaderMove) -> Result<(), EngineError> {
        let table = self.memory.placement.table_at(to);
        let table = table.ok_or_else(|| unplaced(to.range, to.position))?;
        // Pages that were lost with compute nodes stay lost, also if the words that said so are
        // lost.
        let state = self.pool.state();
        let lost = &state.lost_pages;
        let dead = state.dead.first().and_then(|node| ComputeId::new(usize::from(*node)));
        let holder = dead.map_or(LatchWord::FREE, LatchWord::held_by);
        let lost_for_good = LatchWord::held_by(ComputeId::LOST);
        let unmade = state.regeneration.filter(|task| task.begun && task.range == to.range);
        for first in (0..table.headers).step_by(GCLS_AT_ONCE as usize) {
            let count = GCLS_AT_ONCE.min(table.headers - first);
            let addrs: Vec<GAddr> = (first..first + count)
                .filter_map(|header| self.memory.placement.addr_of(&table, header))
                .collect();
            let tags = self.read_tags(&addrs).await?;
            let mut headers = Buf::zeroed((count * HEADER_BYTES) as usize);
            let places = headers.chunks_exact_mut(HEADER_BYTES as usize);
            for ((place, tags), addr) in places.zip(&tags).zip(&addrs) {
                let unmade =
                    unmade.and_then(|task| self.memory.placement.split_at(*addr, task.position));
                let versions = versions_of(self.splits(), tags, unmade);
                let latch = match addr.to_u64() {
                    addr if state.abandoned_pages.contains(&addr) => lost_for_good,
                    addr if lost.contains(&addr) => holder,
                    _ => LatchWord::FREE,
                };
                let split_version = versions.map(Version::to_bits);
                let header = Header { latch: latch.bits(), split_version, ..Header::default() };
                place.copy_from_slice(&header.to_bytes());
            }
            let at = RemoteAddr::new(table.at.region, table.at.offset + first * HEADER_BYTES);
            let write = placed(at, headers);
            self.memory.queue_pair(table.node).post(write).await.map_err(|error| error.error)?;
        }
        Ok(())
    }

    /// Makes a header table anew from its old place: with the versions that are there, and the
    /// words of pages that are lost with dead nodes.
    async fn copy_headers(&self, to: HeaderMove) -> Result<(), EngineError> {
        let from = self.memory.placement.table_in_use(to.range, to.position);
        let (Some(from), Some(to)) = (from, self.memory.placement.table_at(to)) else {
            return Err(unplaced(to.range, to.position));
        };
        let state = self.pool.state();
        for first in (0..from.headers).step_by(GCLS_AT_ONCE as usize) {
            let count = GCLS_AT_ONCE.min(from.headers - first);
            let mut headers = self.read_headers(&from, first, count).await?;
            for header in headers.chunks_exact_mut(HEADER_BYTES as usize) {
                let Some(word) = header.first_chunk_mut::<8>() else { continue };
                let holder =
                    LatchWord::from_bits(u64::from_le_bytes(*word)).holder().ok().flatten();
                let is_lost = |node: &ComputeId| {
                    *node == ComputeId::LOST || state.dead.contains(&(node.index() as u16))
                };
                let latch = holder.filter(is_lost).map_or(LatchWord::FREE, LatchWord::held_by);
                *word = latch.bits().to_le_bytes();
            }
            let at = RemoteAddr::new(to.at.region, to.at.offset + first * HEADER_BYTES);
            let write = placed(at, headers);
            self.memory.queue_pair(to.node).post(write).await.map_err(|error| error.error)?;
        }
        Ok(())
    }

    pub(super) async fn read_headers(
        &self,
        table: &HeaderTable,
        first: u64,
        count: u64,
    ) -> Result<Buf, EngineError> {
        let at = RemoteAddr::new(table.at.region, table.at.offset + first * HEADER_BYTES);
        let read = Chain::from(Verb::read(at, Buf::zeroed((count * HEADER_BYTES) as usize)));
        let done =
            self.memory.queue_pair(table.node).post(read).await.map_err(|error| error.error)?;
        Ok(into_read(done))
    }

    fn splits(&self) -> usize {
        self.pool.descriptor().coding.splits()
    }

    /// The tags of the splits of lines; `None` for those whose memory is lost.
    async fn read_tags(&self, addrs: &[GAddr]) -> Result<Vec<Vec<Option<Tag>>>, EngineError> {
        let mut tags = vec![vec![None; self.splits()]; addrs.len()];
        let mut chains: BTreeMap<usize, (Chain, Vec<(usize, usize)>)> = BTreeMap::new();
        for (line, addr) in addrs.iter().enumerate() {
            let Some(places) = self.memory.placement.splits(*addr) else { continue };
            for (split, place) in places.iter().flatten().enumerate() {
                let payload = self.pool.descriptor().geometry().payload_bytes() as u64;
                let at = RemoteAddr::new(place.at.region, place.at.offset + payload);
                let (chain, reads) = chains.entry(place.node).or_default();
                chain.push(Verb::read(at, Buf::zeroed(8)));
                reads.push((line, split));
            }
        }
        let posted: Vec<(Vec<(usize, usize)>, Completion)> = chains
            .into_iter()
            .map(|(node, (chain, reads))| (reads, self.memory.queue_pair(node).post(chain)))
            .collect();
        for (reads, completion) in posted {
            let chain = match completion.await {
                Ok(chain) => chain,
                Err(failed) => {
                    // The splits of a dead memory node are lost.
                    self.confirm_memory_death(failed.error).await?;
                    continue;
                }
            };
            for (index, (line, split)) in reads.into_iter().enumerate() {
                let Some(tag) = tags.get_mut(line).and_then(|tags| tags.get_mut(split)) else {
                    panic!("the tag of split {split} was read, which the page has not");
                };
                *tag = Some(Tag::from_word(word_at(&chain, index)));
            }
        }
        Ok(tags)
    }
}

/// The versions of a page, from the tags of its splits. No write-back is in progress, so the splits
/// are of one page, except the split `unmade`, whose regeneration may not have written it yet, and
/// except those of a page that a dead node was writing, which its repair sees
/// ([`before_half_done`]).
///
/// [`before_half_done`]: crate::coding::half_done::before_half_done
fn versions_of(splits: usize, tags: &[Option<Tag>], unmade: Option<usize>) -> Versions {
    let mut versions = Versions::default();
    let never = tags.iter().flatten().all(|tag| tag.version == Version::NEVER);
    for (split, (version, tag)) in versions.iter_mut().zip(tags).enumerate().take(splits) {
        let is_missing =
            |tag: &Tag| unmade == Some(split) && !never && tag.version == Version::NEVER;
        *version = match tag.filter(|tag| !is_missing(tag)) {
            Some(tag) => tag.version,
            None if never => Version::NEVER,
            None => Version::LOST,
        };
    }
    versions
}
