//! Recovery from the death of another compute node: this node's part in it (docs/design.md,
//! Membership and recovery, F1 to F5).
//!
//! ```text
//! pool: node is lost --> fence it --> [fenced] --> handle all its mail --> Lost to every line -->
//!    wait for outstanding operations and inquiries --> acknowledge --> [all have] --> one sweeps --> [over]
//! ```
//! The state of the pool has the progress of the recovery. Every step may be repeated, so that the
//! others continue when a node dies in one. The sweep reads the header tables of all memory nodes.
//! A word that names the dead node while a survivor reads the line is a grant that did not reach
//! the word, or an intent: the sweep takes the node out. If the word names the node and has no
//! other reader, the dead node had the only copy. That page is redone from the logs of the dead
//! nodes (`log/redo.rs`), if they had logs and the sweeping node reaches them. Otherwise the page
//! is lost until a node comes that reaches the logs; callers get [`crate::EngineError::PageLost`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_fabric::{Buf, Chain, FabricError, PeerId, RemoteAddr, Verb};
use selkie_pool::control::PoolState;
use selkie_pool::{ComputeIndex, Observer, layout};

use crate::addressing::executed::{found_at, read_at};
use crate::addressing::reclamation::epoch_node;
use crate::cache::residual_readers::ResidualReader;
use crate::coding::journal::share::JournalImage;
use crate::coding::repair_torn::RepairedPage;
use crate::coherence::machine::Event;
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord, NodeSet};
use crate::core::Core;
use crate::join::all_of;
use crate::{Coherence, EngineError, GAddr};
use selkie_wal::Dirty;

/// The interval at which a waiting recovery looks again.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Pages that are repaired at the same time.
const REPAIRED_AT_ONCE: usize = 64;
/// Headers that the sweep reads at once.
const SWEEP_HEADERS: u64 = 1024;

/// Takes part in recoveries until the engine is gone.
pub(crate) async fn run_recovery(core: Weak<Core>, tick: Duration) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    loop {
        env.sleep(tick).await;
        let Some(core) = core.upgrade() else { return };
        if core.lifecycle.has_failed() {
            return;
        }
        if core.lifecycle.is_leaving() && !core.is_member_itself() {
            continue;
        }
        let Some(_step) = core.recovery.repairs.begin() else { continue };
        if let Err(error) = core.advance_rebuilds().await {
            tracing::debug!(%error, "rebuild: a step failed");
        }
        // Words that are being made anew do not name dead nodes yet.
        let is_quiet = core.rebuilds_are_over();
        let all_lost = core.pool.lost();
        if is_quiet {
            core.wake_backed_off(!all_lost.is_empty());
        }
        if let Err(error) = core.recover_again().await {
            tracing::debug!(%error, "recovery: a step failed");
        }
        for (node, lost) in all_lost {
            let Some(dead) = ComputeId::new(node.as_usize()) else { continue };
            // A step that fails is tried again with the next tick.
            let step = if !lost.fenced {
                core.fence(node).await
            } else if !is_quiet {
                Ok(())
            } else if !lost.acknowledged.contains(&core.index().get()) {
                core.acknowledge_death(dead).await
            } else {
                core.sweep_if_due(dead).await
            };
            if let Err(error) = step {
                tracing::debug!(dead = %peer(node), %error, "recovery: a step failed");
            }
        }
    }
}

/// The lines that a sweep decided about.
#[derive(Default)]
struct SweptLines {
    /// Lines of which the dead node had the only copy.
    lost: Vec<u64>,
    /// Lines that the state of the pool calls lost, and whose words are free: they were redone.
    found: Vec<u64>,
}

impl Observer for Core {
    fn changed(&self, state: &PoolState) -> bool {
        // First, because a node that takes part in a recovery must have marked.
        self.mark_moment(state);
        // No verb of a fenced node executes any more.
        let is_fenced = self.is_fenced_in(state);
        if !is_fenced && !self.memory.links.follow(state) {
            return false;
        }
        self.memory.placement.update(state) || is_fenced
    }

    /// Makes room for a node that has the index of an earlier one. Nothing of the earlier node is
    /// left in the pool, but this node may have a connection to it and mail from it. Bits that this
    /// node notes as ceded to the earlier node are cleared, and the successor answers so.
    fn joined(&self, node: ComputeIndex, incarnation: u32) -> bool {
        let (index, id) = (node.as_usize(), ComputeId::new(node.as_usize()));
        let known = self.messenger.known_incarnation(index);
        let (Some(before), Some(id)) = (known, id) else { return true };
        if before == incarnation || id == self.me {
            return true;
        }
        let mailbox = self.messenger.mailbox_for(index);
        // The first node of this index may have sent already: its mail is new.
        if before != 0 {
            if mailbox.has_mail_from(index) && !self.lifecycle.has_failed() {
                return false;
            }
            if mailbox.renew(index).is_err() {
                return true;
            }
        }
        self.recovery.forget_dead(id);
        self.messenger.note_incarnation(index, incarnation);
        true
    }

    /// Disconnects from a node that died. A node that has left answers as long as its process
    /// lives.
    fn gone(&self, node: ComputeIndex) {
        let index = node.as_usize();
        let is_dead = |id| self.recovery.dead_nodes().contains(id);
        if index != self.me.index() && ComputeId::new(index).is_some_and(is_dead) {
            let _ = self.messenger.mailbox_for(index).disconnect(index);
        }
    }
}

impl Core {
    /// Whether this node was in the pool, and is out or fenced now.
    fn is_fenced_in(&self, state: &PoolState) -> bool {
        let (index, incarnation) = (self.index().get(), self.lifecycle.incarnation());
        let member = state.compute_nodes.get(&index);
        let is_in = member.is_some_and(|member| incarnation == Some(member.incarnation));
        let may_act = state.lost.get(&index).is_some_and(|lost| !lost.fenced);
        let has_left = self.lifecycle.is_leaving();
        incarnation.is_some() && !is_in && !may_act && !has_left
    }
}

fn peer(node: ComputeIndex) -> PeerId {
    PeerId::compute(node.get())
}

impl Core {
    /// Notes the nodes that died before this node joined: they sent it nothing, and it owes them
    /// nothing.
    pub(crate) fn hear_of_deaths(&self) {
        let (lost, dead) = (self.pool.lost(), self.pool.dead());
        let all = lost.iter().map(|(node, _)| *node).chain(dead);
        let all: NodeSet = all.filter_map(|node| ComputeId::new(node.as_usize())).collect();
        self.recovery.note_dead(all);
        self.recovery.set_recovering(!lost.is_empty());
    }

    /// Whether this node is a member, as it was before its tasks began.
    pub(crate) fn is_member_itself(&self) -> bool {
        self.pool.is_incarnation(self.index(), self.own_incarnation())
    }

    pub(crate) fn own_incarnation(&self) -> u32 {
        self.lifecycle.incarnation().unwrap_or_default()
    }

    /// Fences a dead node (F1).
    async fn fence(&self, node: ComputeIndex) -> Result<(), EngineError> {
        let started = self.env.now();
        if self.pool.fence(node).await? {
            let took = self.env.now() - started;
            tracing::info!(node = %self.endpoint.id(), dead = %peer(node), ?took, "recovery: fenced");
        }
        Ok(())
    }

    /// Handles the mail of a dead node, tells the lines, and acknowledges (F2 to F4).
    async fn acknowledge_death(self: &Arc<Self>, dead: ComputeId) -> Result<(), EngineError> {
        let started = self.env.now();
        let mailbox = self.messenger.mailbox_for(dead.index());
        self.until(|| !mailbox.has_mail_from(dead.index())).await?;
        self.recovery.note_dead(NodeSet::EMPTY.with(dead));
        self.recovery.set_recovering(true);
        let under_way = self.tell_lines(dead);
        for addr in &under_way {
            let interrupted = || self.memory.quiesced.has_suspects() || !self.rebuilds_are_over();
            self.until(|| !self.cache.is_under_way(*addr) || interrupted()).await?;
            if interrupted() {
                // The home of the line may be lost: then the line is quiesced until it is rebuilt.
                return Ok(());
            }
        }
        if !self.bring_claimed_home().await? {
            return Ok(());
        }
        let node = ComputeIndex::new(dead.index() as u16);
        self.pool.acknowledge(node, self.index()).await?;
        let (took, waited_for) = (self.env.now() - started, under_way.len());
        let me = self.endpoint.id();
        tracing::info!(node = %me, dead = %peer(node), ?took, waited_for, "recovery: acknowledged");
        Ok(())
    }

    /// Writes home the lines that this node has taken over from dead nodes. Home must have the
    /// changes of the dead nodes before their logs are dropped. Returns `false` if that must wait.
    async fn bring_claimed_home(&self) -> Result<bool, EngineError> {
        loop {
            let Some(addr) = self.recovery.claimed.last() else { return Ok(true) };
            let frame = self.cache.table.lookup(&self.cache.frames, addr);
            let is_here = frame.is_some_and(|id| self.cache.frames.get(id).dirty() == Dirty::ALL);
            if !is_here && !self.cache.is_under_way(addr) {
                self.recovery.claimed.remove(addr);
                continue;
            }
            if self.memory.quiesced.has_suspects() || !self.rebuilds_are_over() {
                return Ok(false);
            }
            if let Some(error) = self.lifecycle.failure() {
                return Err(error.clone());
            }
            self.write_home(addr);
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    /// Whether no rebuild is in progress, and no line of this node is quiesced: such lines are not
    /// told of deaths.
    fn rebuilds_are_over(&self) -> bool {
        self.pool.rebuilds().is_empty() && self.memory.quiesced.rebuilds().is_empty()
    }

    /// Waits until outstanding operations and messages make a condition true.
    ///
    /// # Errors
    /// The error of the engine, if it fails meanwhile.
    pub(crate) async fn until(&self, over: impl Fn() -> bool) -> Result<(), EngineError> {
        while !over() {
            if let Some(error) = self.lifecycle.failure() {
                return Err(error.clone());
            }
            self.env.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Feeds `Lost` to every line that may involve the dead node. Returns the lines with an
    /// operation outstanding then.
    fn tell_lines(&self, dead: ComputeId) -> Vec<GAddr> {
        let mut lines: Vec<GAddr> = Vec::new();
        for shard in self.cache.all_shards() {
            lines.extend(shard.lock().keys().map(|addr| GAddr::from_u64(*addr)));
        }
        // Lines at rest: copies that carry a bit of the dead node, and bits that it was to clear.
        for id in self.cache.frames.ids() {
            let frame = self.cache.frames.get(id);
            if frame.carried().contains(dead) && !frame.addr().is_null() {
                lines.push(frame.addr());
            }
        }
        lines.extend(
            self.cache
                .residual
                .all()
                .filter(|addr| self.cache.residual.get(*addr) == ResidualReader::BitHandedTo(dead)),
        );
        let mut under_way = Vec::new();
        for addr in lines {
            self.with_line(addr, |open| {
                self.run(addr, open, Event::Lost { node: dead }, None);
                if open.line.phase.operation_outstanding() {
                    under_way.push(addr);
                }
            });
        }
        under_way
    }

    /// Sweeps the latch words (F5), at one node, when all have acknowledged.
    async fn sweep_if_due(&self, dead: ComputeId) -> Result<(), EngineError> {
        let node = ComputeIndex::new(dead.index() as u16);
        if !self.pool.claim_sweep(node, self.index()).await? {
            return Ok(());
        }
        let started = self.env.now();
        let lost = match self.sweep(dead).await {
            Ok((swept, images)) => self.redo_or_repair(dead, swept, images.into()).await,
            Err(error) => Err(error),
        };
        let (lost, still) = match lost {
            Ok(both) => both,
            Err(error) => {
                // Another node may reach what this node does not.
                self.pool.leave_sweep(node, self.index()).await?;
                return Err(error);
            }
        };
        self.pool.finish_recovery(node, self.index(), &lost, &still).await?;
        let (took, me) = (self.env.now() - started, self.endpoint.id());
        tracing::info!(node = %me, dead = %peer(node), ?took, "recovery: swept the latch words, over");
        if !still.is_empty() {
            tracing::warn!(dead = %peer(node), pages = still.len(), "pages are lost with the dead node");
        }
        Ok(())
    }

    /// Redoes lost pages, as far as possible. Returns them with the pages that were found, and
    /// those that stay lost.
    async fn redo_or_repair(
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
    async fn sweep(&self, dead: ComputeId) -> Result<(SweptLines, Vec<JournalImage>), EngineError> {
        let mut lines = SweptLines::default();
        let mut images = Vec::new();
        if self.memory.coded.is_some() {
            // A node that died later may have been writing a page that this one had granted.
            let lost = self.pool.lost().into_iter();
            for node in lost.filter_map(|(node, _)| ComputeId::new(node.as_usize())) {
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

    /// Ignores the error of a verb to a memory node that is dead for all nodes. If only this node
    /// does not reach it, the error stays.
    async fn unless_memory_is_dead(
        &self,
        memory: usize,
        done: Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let peer = match &done {
            Err(EngineError::Fabric(FabricError::PeerDead { peer })) => *peer,
            _ => return done,
        };
        // An error of another memory node says nothing of this one.
        if peer != PeerId::memory(memory as u16) || !self.is_dead_for_all(memory).await? {
            return done;
        }
        // Before the recovery ends: its rebuild marks the lines that the dead compute node held.
        if self.memory.coded.is_some() {
            self.pool.declare_memory_dead(peer.index()).await?;
        }
        Ok(())
    }

    /// Whether a memory node is dead, and not only disconnected from this node: it was declared
    /// dead, or does not exist any more. Where the fabric cannot tell, waits until others miss it.
    async fn is_dead_for_all(&self, memory: usize) -> Result<bool, EngineError> {
        let peer = PeerId::memory(memory as u16);
        if self.pool.is_memory_dead(memory) {
            return Ok(true);
        }
        let found = self.endpoint.connect(peer);
        if let Err(error) = found {
            return Ok(matches!(error, FabricError::PeerDead { peer: dead } if dead == peer));
        }
        let Some(missed_within) = self.pool.missed_within(memory) else { return Ok(false) };
        let until = self.env.now() + missed_within;
        self.until(|| self.pool.is_memory_dead(memory) || self.env.now() > until).await?;
        Ok(self.pool.is_memory_dead(memory))
    }

    /// Declares a memory node dead that a verb found dead, if it is dead for all nodes. Waits until
    /// that is known.
    ///
    /// # Errors
    /// The verb's error, if it is another one, or if only this node does not reach the memory node.
    pub(crate) async fn confirm_memory_death(&self, error: FabricError) -> Result<(), EngineError> {
        let FabricError::PeerDead { peer } = error else { return Err(error.into()) };
        let memory = usize::from(peer.index());
        if !peer.is_memory() || !self.is_dead_for_all(memory).await? {
            return Err(error.into());
        }
        if self.memory.coded.is_some() && !self.pool.is_memory_dead(memory) {
            self.pool.declare_memory_dead(peer.index()).await?;
        }
        Ok(())
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

    /// Whether a member of the pool reads the line. Bits of dead nodes do not count.
    fn is_read_by_members(&self, word: LatchWord) -> bool {
        let is_member =
            |reader: ComputeId| self.pool.is_member(ComputeIndex::new(reader.index() as u16));
        word.readers().iter().any(is_member)
    }

    /// Wakes callers that backed off from dead nodes whose recovery is over.
    fn wake_backed_off(&self, recovering: bool) {
        if !recovering && self.recovery.end_recovery() {
            for shard in self.cache.all_shards() {
                for open in shard.lock().values_mut() {
                    if open.deaths.backs_off.take().is_some() {
                        open.waiters.signal_all(false);
                    }
                }
            }
        }
    }

    /// Whether the recovery from a node's death is in progress.
    pub(crate) fn recovers_from(&self, dead: ComputeId) -> bool {
        let node = ComputeIndex::new(dead.index() as u16);
        self.pool.is_dead(node) && !self.pool.dead().contains(&node)
    }
}
