//! New homes for the headers of a memory node that was lost, or of a slab that is to leave one:
//! this node's part in it (DESIGN §7).
//!
//! ```text
//! memory node declared dead, or headers to leave
//!    --> come to a stop with its lines, wait for what is under way        [quiet]
//!    --> [all quiet] one moves the header tables: versions from the splits' tags, words free   [moved]
//!    --> hear the mail that others had sent, enter what this node has in the words             [entered]
//!    --> [all entered] go on
//! ```
//! What a line is to the coherence machine while it stands still, and what it is afterwards, is
//! `machine::home`, and model checked. Pages are read and written here all the while, where they
//! are in the cache with the right to do so; who needs another right waits.
//!
//! Where the memory node lives the versions come from the headers that are there, which nobody
//! changes any more; and they tell what those had who died before they could enter it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use selkie_fabric::{Buf, Chain, Completion, FabricError, PeerId, RemoteAddr, Verb};
use selkie_memnode::layout::{EXTENT_GCLS, HEADER_BYTES, Header, LATCH_AT};
use selkie_memnode::{ComputeIndex, Move, Rebuild};

use super::counter::Adds;
use super::placed::placed;
use super::tag::{Tag, Version, Versions};
use crate::addressing::placement::{Counter, HeaderTable};
use crate::cache::dirty::Dirty;
use crate::coherence::machine::{Deferred, Event, Message, Phase};
use crate::coherence::open_line::OpenLine;
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord};
use crate::core::Core;
use crate::{EngineError, GAddr};

/// GCLs whose tags are read at once.
const GCLS_AT_ONCE: u64 = 128;
/// Words that are changed by one chain.
const WORDS_A_CHAIN: usize = 256;

/// The lines with which a node has come to a stop.
#[derive(Default)]
pub(crate) struct Halted {
    /// There are some: looked at first, as there are none mostly.
    any: AtomicBool,
    /// The header tables, (range, position), of each rebuild under way, by its number.
    tables: RwLock<BTreeMap<u64, BTreeSet<(usize, usize)>>>,
    /// The rebuilds among these for which this node takes requests again.
    entered: RwLock<BTreeSet<u64>>,
    /// Those among them whose words have what this node has: that is done once.
    in_words: Mutex<BTreeSet<u64>>,
    /// Memory nodes that verbs found dead, and by when they will be missed, once it was looked
    /// where they are.
    suspects: Mutex<BTreeMap<usize, Option<Duration>>>,
    pub(crate) adds: Adds,
}

impl Halted {
    fn contains(&self, table: (usize, usize)) -> bool {
        self.tables.read().values().any(|tables| tables.contains(&table))
    }

    /// Whether this node has entered what it has of a table, and waits for others to do so, or has
    /// just gone on with it.
    fn has_entered(&self, table: (usize, usize)) -> bool {
        // In the order in which `end` takes them away.
        let tables = self.tables.read();
        let mut own = tables.iter().filter(|(_, tables)| tables.contains(&table));
        let entered = self.entered.read();
        own.all(|(number, _)| entered.contains(number))
    }

    /// A rebuild is over; the tables it was of, if this node stood still for it.
    fn end(&self, number: u64) -> Option<BTreeSet<(usize, usize)>> {
        let mut all = self.tables.write();
        let tables = all.remove(&number)?;
        self.any.store(!all.is_empty(), Ordering::Release);
        self.entered.write().remove(&number);
        self.in_words.lock().remove(&number);
        Some(tables)
    }

    /// A verb found a memory node dead.
    pub(crate) fn suspect(&self, memory: usize) {
        self.suspects.lock().entry(memory).or_default();
    }

    /// Whether verbs found memory nodes dead that are not known to be.
    pub(crate) fn has_suspects(&self) -> bool {
        !self.suspects.lock().is_empty()
    }

    pub(crate) fn rebuilds(&self) -> Vec<u64> {
        self.tables.read().keys().copied().collect()
    }
}

impl Core {
    /// Whether this node stands still with a line, as its home is lost.
    pub(crate) fn halts(&self, addr: GAddr, active: &OpenLine) -> bool {
        active.halted || self.halts_at(addr)
    }

    fn halts_at(&self, addr: GAddr) -> bool {
        // Acquire: pairs with `come_to_a_stop`, which takes every shard's lock afterwards.
        self.memory.halted.any.load(Ordering::Acquire)
            && self
                .memory
                .placement
                .table_of(addr)
                .is_some_and(|table| self.memory.halted.contains(table))
    }

    /// An event of a line that stands still. What operations found does not matter any more, and of
    /// messages only grants; but once this node has entered what it has, requests are of those that
    /// go on already.
    pub(crate) fn run_halted(&self, addr: GAddr, active: &mut OpenLine, event: Event) {
        match event {
            Event::Completed { .. } => active.halted = true,
            Event::Received { from, message: Message::Request(request) } => {
                let table = self.memory.placement.table_of(addr);
                // It may have gone on since it was found to stand still: then it gets to this line
                // when that is closed.
                if !active.halted
                    && table.is_some_and(|table| self.memory.halted.has_entered(table))
                {
                    active.line.deferred.push(Deferred { from, request });
                }
            }
            Event::Received { from, message } => active.line.received_at_rest(from, message),
            // Callers look again when the line goes on.
            Event::Want { .. }
            | Event::Evict
            | Event::WriteBack
            | Event::Leave
            | Event::LocalFree
            | Event::Lost { .. } => {}
        }
    }

    /// The line's home did not execute an operation: the line stands still until it has another.
    pub(crate) fn halt(&self, addr: GAddr, active: &mut OpenLine, error: &FabricError) -> bool {
        let FabricError::PeerDead { peer } = error else { return false };
        let home = self.memory.placement.home(addr).map(|home| home.node);
        let Some(memory) = home.filter(|_| peer.is_memory() && self.memory.coded.is_some()) else {
            return false;
        };
        let is_over = self.pool.is_memory_dead(memory)
            && !self.pool.rebuilds().iter().any(|rebuild| usize::from(rebuild.memory) == memory);
        // A home that was not moved has nowhere to go.
        if is_over && usize::from(peer.index()) == memory {
            return false;
        }
        active.halted = true;
        self.memory.halted.suspect(usize::from(peer.index()));
        true
    }

    /// One look at what there is to do; what fails is tried again with the next.
    pub(crate) async fn make_good(self: &Arc<Self>) -> Result<(), EngineError> {
        if self.memory.coded.is_none() {
            return Ok(());
        }
        self.declare_suspects().await?;
        let step = self.go_on_with_rebuilds().await;
        // Who is found dead by nothing but this would be so for ever.
        if let Err(EngineError::Fabric(FabricError::PeerDead { peer })) = &step
            && peer.is_memory()
        {
            self.memory.halted.suspect(usize::from(peer.index()));
        }
        step
    }

    async fn go_on_with_rebuilds(self: &Arc<Self>) -> Result<(), EngineError> {
        let rebuilds = self.pool.rebuilds();
        for number in self.memory.halted.rebuilds() {
            if !rebuilds.iter().any(|rebuild| rebuild.number == number) {
                self.go_on_without(number);
            }
        }
        if let Some(rebuild) = rebuilds.into_iter().next() {
            let (me, number) = (self.index().get(), rebuild.number);
            if !rebuild.quiet.contains(&me) || !self.memory.halted.rebuilds().contains(&number) {
                self.come_to_a_stop(&rebuild).await?;
            } else if !rebuild.moved {
                self.move_if_due(&rebuild).await?;
            } else if !rebuild.entered.contains(&me) {
                self.enter_all(&rebuild).await?;
            } else if rebuild.doubtful.is_empty() {
                self.pool.end_rebuild(number).await?;
            } else if self.pool.claim_doubts(number, self.index()).await? {
                self.doubt(&rebuild).await?;
            }
        }
        Ok(())
    }

    /// Memory nodes whose lines stand still are declared dead if nobody can find them.
    async fn declare_suspects(&self) -> Result<(), EngineError> {
        let suspects = self.memory.halted.suspects.lock().clone();
        for (memory, missed_by) in suspects {
            let (peer, now) = (PeerId::memory(memory as u16), self.env.now());
            match (self.pool.is_memory_dead(memory), missed_by) {
                (true, _) => {}
                (false, Some(missed_by)) if now < missed_by => continue,
                // Pages that others rely on cannot get home from here: who takes over from this
                // node has a way.
                (false, Some(_)) => self.end_with(EngineError::Unreachable { memory }),
                (false, None) => match self.endpoint.connect(peer) {
                    // Not every fabric can tell: others miss it if it is dead.
                    Ok(_) => {
                        let missed_by = now + self.pool.missed_within(memory).unwrap_or_default();
                        self.memory.halted.suspects.lock().insert(memory, Some(missed_by));
                        continue;
                    }
                    Err(FabricError::PeerDead { peer: dead }) if dead == peer => {
                        self.pool.declare_memory_dead(memory as u16).await?;
                    }
                    // That says nothing of it: the next look may.
                    Err(_) => continue,
                },
            }
            self.memory.halted.suspects.lock().remove(&memory);
        }
        Ok(())
    }

    /// Stands still with all lines whose headers are to move, and waits for what is under way.
    async fn come_to_a_stop(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let moves = self.pool.state().moves_of(rebuild);
        let tables: BTreeSet<_> = moves.iter().map(|(to, _)| (to.range, to.position)).collect();
        self.memory.halted.tables.write().insert(rebuild.number, tables.clone());
        self.memory.halted.any.store(true, Ordering::Release);
        self.until(|| !self.has_under_way(&tables) && self.memory.halted.adds.are_over()).await?;
        // What nobody takes in any more need not arrive.
        let takes_in = |to: usize| self.pool.is_member(ComputeIndex::new(to as u16));
        for mailbox in self.messenger.mailboxes() {
            let mark = mailbox.mark();
            self.until(|| mailbox.is_through(&mark, takes_in)).await?;
        }
        self.pool.note_quiet(rebuild.number, self.index()).await?;
        let memory = rebuild.memory;
        tracing::info!(node = %self.endpoint.id(), memory, tables = tables.len(), "rebuild: quiet");
        Ok(())
    }

    /// Whether an operation is under way on a line of these tables. Takes every shard's lock, so
    /// that whatever was begun before the node came to a stop is seen.
    fn has_under_way(&self, tables: &BTreeSet<(usize, usize)>) -> bool {
        let mut found = false;
        for shard in self.cache.all_shards() {
            found |= shard.lock().iter().any(|(addr, active)| {
                active.line.phase.operation_outstanding()
                    && !active.halted
                    && self.is_in(GAddr::from_u64(*addr), tables)
            });
        }
        found
    }

    fn is_in(&self, addr: GAddr, tables: &BTreeSet<(usize, usize)>) -> bool {
        self.memory.placement.table_of(addr).is_some_and(|table| tables.contains(&table))
    }

    /// Gives the tables new places, at one of those who are quiet, when all are.
    async fn move_if_due(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
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
                // That node is lost as well: the next look finds another place.
                Err(EngineError::Fabric(FabricError::PeerDead { peer })) if peer.is_memory() => {
                    self.memory.halted.suspect(usize::from(peer.index()));
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

    /// Makes a header table anew: free words, and the versions that the splits' tags have.
    async fn write_headers(&self, to: Move) -> Result<(), EngineError> {
        let Some(table) = self.memory.placement.table_at(to) else { return Ok(()) };
        // Pages that were lost with compute nodes stay lost, whatever became of the words that said
        // so.
        let state = self.pool.state();
        let lost = &state.lost_pages;
        let dead = state.dead.first().and_then(|node| ComputeId::new(usize::from(*node)));
        let holder = dead.map_or(LatchWord::FREE, LatchWord::held_by);
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
                let latch = if lost.contains(&addr.to_u64()) { holder } else { LatchWord::FREE };
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

    /// Makes a header table anew from what it is where it was: the versions that are there, and the
    /// words of pages that are lost with nodes that are not in the pool any more.
    async fn copy_headers(&self, to: Move) -> Result<(), EngineError> {
        let from = self.memory.placement.table_in_use(to.range, to.position);
        let (Some(from), Some(to)) = (from, self.memory.placement.table_at(to)) else {
            return Ok(());
        };
        let state = self.pool.state();
        for first in (0..from.headers).step_by(GCLS_AT_ONCE as usize) {
            let count = GCLS_AT_ONCE.min(from.headers - first);
            let mut headers = self.read_headers(&from, first, count).await?;
            for header in headers.chunks_exact_mut(HEADER_BYTES as usize) {
                let Some(word) = header.first_chunk_mut::<8>() else { continue };
                let holder =
                    LatchWord::from_bits(u64::from_le_bytes(*word)).holder().ok().flatten();
                let is_lost = |node: &ComputeId| state.dead.contains(&(node.index() as u16));
                let latch = holder.filter(is_lost).map_or(LatchWord::FREE, LatchWord::held_by);
                *word = latch.bits().to_le_bytes();
            }
            let at = RemoteAddr::new(to.at.region, to.at.offset + first * HEADER_BYTES);
            let write = placed(at, headers);
            self.memory.queue_pair(to.node).post(write).await.map_err(|error| error.error)?;
        }
        Ok(())
    }

    async fn read_headers(
        &self,
        table: &HeaderTable,
        first: u64,
        count: u64,
    ) -> Result<Buf, EngineError> {
        let at = RemoteAddr::new(table.at.region, table.at.offset + first * HEADER_BYTES);
        let read = Chain::from(Verb::read(at, Buf::zeroed((count * HEADER_BYTES) as usize)));
        let done =
            self.memory.queue_pair(table.node).post(read).await.map_err(|error| error.error)?;
        let read = done.verbs.into_iter().next().and_then(Verb::into_buf);
        Ok(read.unwrap_or_else(|| Buf::zeroed(0)))
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
                    // Its splits are taken for lost for ever.
                    self.gone(failed.error).await?;
                    continue;
                }
            };
            for ((line, split), verb) in reads.into_iter().zip(&chain.verbs) {
                let word = verb.buf().and_then(|buf| buf.words().first().copied());
                let tag = tags.get_mut(line).and_then(|tags| tags.get_mut(split));
                if let (Some(tag), Some(word)) = (tag, word) {
                    *tag = Some(Tag::from_word(u64::from_le(word)));
                }
            }
        }
        Ok(tags)
    }

    /// Enters in the new words what this node has.
    async fn enter_all(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let (number, memory) = (rebuild.number, rebuild.memory);
        let tables = self.memory.halted.tables.read().get(&number).cloned().unwrap_or_default();
        // The state may be known before the placement follows it.
        let follows = || {
            let state = self.pool.state();
            tables.iter().all(|(range, _)| {
                let place = state.ranges.get(*range);
                place.is_none_or(|place| self.memory.placement.has_homes(*range, &place.homes))
            })
        };
        self.until(follows).await?;
        // A grant of one that died counts as well.
        let lost = self.pool.lost().into_iter().map(|(node, _)| node);
        let peers = self.pool.members().into_iter().chain(lost);
        for peer in peers.filter(|peer| *peer != self.index()) {
            let mailbox = self.messenger.mailbox_for(peer.as_usize());
            self.until(|| !mailbox.has_mail_from(peer.as_usize())).await?;
        }
        self.memory.halted.entered.write().insert(number);
        if !self.memory.halted.in_words.lock().contains(&number) {
            let entered = self.enter_in_words(memory, number, &tables).await;
            // Nobody knows what is in the words: others have to take this node's lines for lost.
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
        let lost = self.pool.lost().into_iter();
        let lost = lost.filter_map(|(node, _)| ComputeId::new(node.as_usize())).collect();
        for addr in self.lines_in(tables) {
            let mut map = self.cache.shard(addr).lock();
            let mut active = self.open(&mut map, addr);
            active.line = active.line.without_home(lost);
            active.halted = false;
            if let (true, Phase::Modified, Some(frame)) =
                (self.rules.home_first, active.line.phase, active.frame)
            {
                // Who has granted it may not have got all of it to its splits.
                self.cache.frames.get(frame).set_dirty(Dirty::ALL);
            }
            active.forget_deaths();
            let delta = match active.line.phase {
                Phase::Modified => Some(LatchDelta::add_holder(self.me)),
                Phase::Shared => Some(LatchDelta::add_reader(self.me)),
                _ => None,
            };
            if let (Some(delta), Some(home)) = (delta, self.memory.placement.home(addr)) {
                words.entry(home.node).or_default().push((home.latch, delta));
            }
            self.close(&mut map, addr, active);
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
                    // Lost as well: its own rebuild makes the words anew.
                    Err(failed) => self.gone(failed.error).await?,
                }
            }
        }
        self.memory.halted.in_words.lock().insert(number);
        tracing::info!(node = %self.endpoint.id(), memory, entered, "rebuild: entered");
        Ok(())
    }

    /// All lines of these tables of which this node knows anything.
    fn lines_in(&self, tables: &BTreeSet<(usize, usize)>) -> BTreeSet<GAddr> {
        let mut lines = BTreeSet::new();
        for shard in self.cache.all_shards() {
            lines.extend(shard.lock().keys().map(|addr| GAddr::from_u64(*addr)));
        }
        lines.extend(self.cache.frames.ids().map(|id| self.cache.frames.get(id).addr()));
        lines.extend(self.cache.residual.all());
        lines.retain(|addr| !addr.is_null() && self.is_in(*addr, tables));
        lines
    }

    /// What nobody has entered, one of those may have held who died before they could: until it is
    /// redone, it is theirs, and lost.
    async fn doubt(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let (memory, nodes) = (rebuild.memory, &rebuild.doubtful);
        if !rebuild.before.is_empty() {
            return self.doubt_what_they_held(rebuild).await;
        }
        let lost = self.pool.state();
        let is_swept = |node: &&u16| lost.lost.contains_key(node);
        // One that is still to be swept out of the words, if there is one.
        let holder = nodes.iter().find(is_swept).or(nodes.first()).copied();
        let Some(holder_index) = holder else { return Ok(()) };
        let is_swept = lost.lost.contains_key(&holder_index);
        let Some(holder) = ComputeId::new(usize::from(holder_index)) else { return Ok(()) };
        let number = rebuild.number;
        let tables = self.memory.halted.tables.read().get(&number).cloned().unwrap_or_default();
        let mut doubted = Vec::new();
        for (range, position) in tables {
            let leased = self.leased_lines(range).await?;
            let Some(table) = self.memory.placement.table_in_use(range, position) else { continue };
            // Lost as well: its own rebuild has the same doubts.
            if self.pool.is_memory_dead(table.node) {
                continue;
            }
            for header in 0..table.headers {
                let addr = self.memory.placement.addr_of(&table, header);
                // Nobody has had the null address, which has a header as well.
                let Some(addr) = addr.filter(|addr| !addr.is_null()) else { continue };
                if self.memory.placement.line_in_range(addr) >= leased {
                    break;
                }
                // Nobody can have that.
                if addr.is_null() {
                    continue;
                }
                let at = table.at.offset + header * HEADER_BYTES + LATCH_AT;
                let at = RemoteAddr::new(table.at.region, at);
                if self.name_holder(table.node, at, holder, is_swept).await? {
                    doubted.push((holder_index, addr.to_u64()));
                }
            }
        }
        tracing::warn!(
            memory,
            ?nodes,
            lines = doubted.len(),
            "rebuild: nobody knows who had these lines"
        );
        self.pool.clear_doubts(number, nodes, &doubted).await?;
        Ok(())
    }

    /// Has a word name a dead node if it names nobody; whether nobody has the line. Of lines that
    /// have readers it may have granted the copies and died in its write-back: they look again when
    /// they hear of its death, and the sweep takes it out of the word.
    async fn name_holder(
        &self,
        node: usize,
        at: RemoteAddr,
        holder: ComputeId,
        is_swept: bool,
    ) -> Result<bool, EngineError> {
        let mut word = LatchWord::FREE;
        loop {
            let named = word.add(LatchDelta::add_holder(holder));
            let swap = Chain::from(Verb::compare_and_swap(at, word.bits(), named.bits()));
            let done =
                self.memory.queue_pair(node).post(swap).await.map_err(|error| error.error)?;
            let old = LatchWord::from_bits(done.old(0).unwrap_or_default());
            if old == word {
                return Ok(word == LatchWord::FREE);
            }
            if old.holder() != Ok(None) || !is_swept {
                // Also what somebody marked who died before it could say so.
                return Ok(old == LatchWord::held_by(holder));
            }
            word = old;
        }
    }

    /// As [`Core::doubt`], where the words can still be read that say what they held.
    async fn doubt_what_they_held(&self, rebuild: &Rebuild) -> Result<(), EngineError> {
        let mut doubted = Vec::new();
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
                    // Unless another has got it, or has a copy.
                    let (free, held) = (LatchWord::FREE.bits(), LatchWord::held_by(holder).bits());
                    let swap = Chain::from(Verb::compare_and_swap(at, free, held));
                    let done = self.memory.queue_pair(now.node).post(swap).await;
                    let old = done.map_err(|error| error.error)?.old(0);
                    let addr = self.memory.placement.addr_of(&now, header);
                    if let (Some(addr), true) = (addr, old == Some(free) || old == Some(held)) {
                        doubted.push((holder.index() as u16, addr.to_u64()));
                    }
                }
            }
        }
        Ok(self.pool.clear_doubts(rebuild.number, &rebuild.doubtful, &doubted).await?)
    }

    /// Lines of a range that have been leased to nodes, from its beginning.
    pub(crate) async fn leased_lines(&self, range: usize) -> Result<u64, EngineError> {
        let counters = self.memory.placement.copies(Counter::Leased(range));
        let counters = counters.map(|copies| copies.places).unwrap_or_default();
        let living = |(node, _): &&(usize, RemoteAddr)| !self.pool.is_memory_dead(*node);
        let Some((node, at)) = counters.iter().find(living) else { return Ok(u64::MAX) };
        let read = Chain::from(Verb::read(*at, Buf::zeroed(8)));
        let done = self.memory.queue_pair(*node).post(read).await.map_err(|error| error.error)?;
        let leased = done.buf(0).and_then(|buf| buf.words().first().copied());
        Ok(leased.map_or(0, u64::from_le).saturating_mul(EXTENT_GCLS))
    }

    fn go_on_without(&self, number: u64) {
        let Some(tables) = self.memory.halted.end(number) else { return };
        let mut lines: Vec<GAddr> = Vec::new();
        for shard in self.cache.all_shards() {
            lines.extend(shard.lock().keys().map(|addr| GAddr::from_u64(*addr)));
        }
        for addr in lines.into_iter().filter(|addr| self.is_in(*addr, &tables)) {
            let mut map = self.cache.shard(addr).lock();
            let mut active = self.open(&mut map, addr);
            // Others may have asked already.
            self.run(addr, &mut active, Event::LocalFree, None);
            active.waiters.signal_all(false);
            self.close(&mut map, addr, active);
        }
        tracing::info!(node = %self.endpoint.id(), number, "rebuild: over");
    }
}

/// The versions of a page, by the tags of its splits. No write-back is under way: what there is
/// belongs together, but for the split that is being made again, `unmade`, which may not be there
/// yet.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_comes_as_the_node_goes_on_is_not_of_before() {
        let (halted, table) = (Halted::default(), (2, 1));
        halted.tables.write().insert(7, BTreeSet::from([table]));
        halted.tables.write().insert(8, BTreeSet::from([(0, 0)]));
        halted.any.store(true, Ordering::Release);
        assert!(!halted.has_entered(table), "whoever asks will ask again");
        halted.entered.write().insert(7);
        assert!(halted.has_entered(table));
        assert_eq!(halted.end(7), Some(BTreeSet::from([table])));
        // Who looked just before that still takes the line for one that stands still.
        assert!(halted.has_entered(table));
        assert!(!halted.has_entered((0, 0)) && halted.any.load(Ordering::Acquire));
        assert_eq!(halted.end(7), None);
        halted.end(8);
        assert!(!halted.any.load(Ordering::Acquire));
    }
}
