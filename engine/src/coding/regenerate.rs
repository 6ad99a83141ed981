//! What lay in a slab of a lost memory node is made again on another one, page by page (DESIGN §7).
//!
//! ```text
//! claim: range, position --> its slab moves to another memory node, all know it
//!    --> a few pages at a time: shared latch, the split of the position into its place --> over
//! ```
//! One slab of the pool at a time, by one compute node; if that dies, another begins the slab anew.
//! Nobody waits for it: until a split is there, its tag does not say what the header says, and the
//! page is read without it. Writers write to the new place from the beginning.

use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_memnode::PoolError;
use selkie_memnode::control::Slab;
use selkie_memnode::layout::{EXTENT_GCLS, LATCH_AT, SPLIT_VERSION_AT};

use super::header_versions::versions_bytes;
use super::placed::placed;
use super::repair_torn::RepairedPage;
use super::tag::{SplitSet, Tag, Version};
use super::unlatched::UnlatchedAccess;
use super::write_back::read_versions;
use crate::access::acquire::Access;
use crate::addressing::placement::Counter;
use crate::coherence::machine::Event;
use crate::core::Core;
use crate::join::all_of;
use crate::telemetry::stats::Counters;
use crate::{EngineError, GAddr, SharedGuard};

/// Pages whose splits are made at the same time: what takes long is the way to memory, and the way
/// back.
const PAGES_AT_ONCE: usize = 4;
/// Pages after which other tasks get a turn, and a pause.
const PAGES_A_TURN: usize = 16;
/// Of the time, what is left to others: a pause as long as so many turns.
const PAUSE_TURNS: u32 = 1;
/// The shortest pause.
const LEAST_PAUSE: Duration = Duration::from_micros(50);
/// Bytes that are cleared by one write.
const CLEARED_AT_ONCE: usize = 64 << 10;

/// How often a page is tried that others have in use, before its slab is begun anew.
const TRIES: usize = 10;
/// Looks after which a page that is changed all the time is left for later.
const LOOKS: usize = 100;

/// How often a node looks whether there is something to be made again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Makes lost slabs again until the engine is gone.
pub(crate) async fn run_regeneration(core: Weak<Core>) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    loop {
        env.sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        if core.memory.coded.is_none() || core.lifecycle.has_failed() {
            return;
        }
        if core.lifecycle.check_alive().is_err() || core.config.reads_only {
            continue;
        }
        let Some(_step) = core.recovery.repairs.begin() else { continue };
        // What fails is begun anew.
        if let Err(error) = core.repair(Duration::MAX).await {
            tracing::debug!(%error, "a repair failed");
        }
        if let Err(error) = core.drain_erring_nodes().await {
            tracing::debug!(%error, "cannot part with a memory node");
        }
        if let Err(error) = core.regenerate().await {
            tracing::debug!(%error, "a regeneration failed");
        }
        if let Err(error) = core.migrate().await {
            tracing::debug!(%error, "a migration failed");
        }
    }
}

impl Core {
    /// What lies on memory nodes that err more often than is put up with is moved elsewhere.
    async fn drain_erring_nodes(&self) -> Result<(), EngineError> {
        let Some(coded) = &self.memory.coded else { return Ok(()) };
        for memory in coded.errors.take_beyond_limit() {
            if !self.pool.state().stays(memory as u16) {
                continue;
            }
            match self.pool.drain(memory as u16).await {
                Ok(_) => tracing::warn!(memory, "a memory node errs too often, and is drained"),
                Err(error @ PoolError::CannotLeave { .. }) => {
                    tracing::warn!(memory, %error, "a memory node errs too often");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Makes one slab again, if there is one to be made and nobody else does it.
    pub(crate) async fn regenerate(self: &Arc<Self>) -> Result<(), EngineError> {
        if self.memory.coded.is_none() || self.config.reads_only {
            return Ok(());
        }
        let Some(task) = self.pool.claim_regeneration(self.index()).await? else { return Ok(()) };
        let started = self.env.now();
        if !task.begun {
            // Nobody uses the slab yet.
            self.clear_slab(task.to).await?;
            if !self.pool.begin_regeneration(self.index(), task).await? {
                return Ok(());
            }
        }
        // Whoever filled in a split before all write there could be filling in an old one.
        self.pool.until_all_know(&self.env).await?;
        let pages = self.fill(task.range, task.position, usize::from(task.to.node)).await?;
        self.pool.end_regeneration(&self.env, self.index(), task).await?;
        let (took, me) = (self.env.now() - started, self.endpoint.id());
        tracing::info!(node = %me, ?task, pages, ?took, "regenerated a slab");
        Ok(())
    }

    /// Makes a slab zero.
    pub(crate) async fn clear_slab(&self, slab: Slab) -> Result<(), EngineError> {
        let geometry = self.pool.descriptor().geometry();
        let node = usize::from(slab.node);
        let (from, bytes) = (geometry.slab_offset(slab.slab), geometry.slab_bytes());
        for at in (0..bytes).step_by(CLEARED_AT_ONCE) {
            self.lifecycle.check_alive()?;
            let zeros = Buf::zeroed(CLEARED_AT_ONCE.min((bytes - at) as usize));
            let write = placed(self.memory.at(node, from + at)?, zeros);
            if let Err(failed) = self.memory.queue_pair(node).post(write).await {
                // Nobody else may use it yet, and find out.
                self.gone(failed.error.clone()).await?;
                return Err(failed.error.into());
            }
        }
        Ok(())
    }

    /// Puts what belongs to a position of a range where it is written at a memory node; how many
    /// pages that were.
    pub(crate) async fn fill(
        self: &Arc<Self>,
        range: usize,
        position: usize,
        memory: usize,
    ) -> Result<usize, EngineError> {
        self.raise_copy(Counter::Leased(range), memory).await?;
        if range == 0 {
            self.raise_copy(Counter::Clock, memory).await?;
        }
        // What is leased from now on is written there from the beginning. The first extent has
        // lines of its own.
        let leased = self.leased_lines(range).await?.max(EXTENT_GCLS);
        let is_leased = |addr: &GAddr| self.memory.placement.line_in_range(*addr) < leased;
        let mut todo: Vec<GAddr> =
            self.memory.placement.lines_of(range).take_while(is_leased).collect();
        let (mut pages, mut turned) = (0, 0);
        let mut turn = self.env.now();
        for round in 0..TRIES {
            // Those that others change all the time come again at the end.
            let mut again = Vec::new();
            for addrs in todo.chunks(PAGES_AT_ONCE) {
                let make = |addr: &GAddr| {
                    let (addr, split) = (*addr, self.memory.placement.split_at(*addr, position)?);
                    Some(
                        async move { (addr, self.regenerate_split_or_keep(addr, split, memory).await) },
                    )
                };
                for (addr, made) in all_of(addrs.iter().filter_map(make)).await {
                    match made {
                        Err(error) if error.is_retryable() && round + 1 < TRIES => again.push(addr),
                        made => made?,
                    }
                    pages += 1;
                }
                if pages - turned >= PAGES_A_TURN {
                    turned = pages;
                    self.lifecycle.check_alive()?;
                    let took = self.env.now() - turn;
                    self.env.pause((took * PAUSE_TURNS).max(LEAST_PAUSE)).await;
                    turn = self.env.now();
                }
            }
            todo = again;
            if todo.is_empty() {
                break;
            }
        }
        Ok(pages)
    }

    /// Raises the copy of a counter at a memory node to what the others have. Adds that come
    /// meanwhile raise it, too.
    async fn raise_copy(&self, counter: Counter, memory: usize) -> Result<(), EngineError> {
        let _begun = self.begin_unlatched().await?;
        let _using = self.memory.placement.using();
        let Some(copies) = self.memory.placement.copies(counter) else { return Ok(()) };
        let own = copies.places.iter().find(|(node, _)| *node == memory);
        let Some((_, own)) = own else { return Ok(()) };
        let mut most = 0;
        let living = |(node, _): &&(usize, RemoteAddr)| !self.pool.is_memory_dead(*node);
        for (node, at) in copies.places.iter().filter(living) {
            let read = Chain::from(Verb::read(*at, Buf::zeroed(8)));
            let done =
                self.memory.queue_pair(*node).post(read).await.map_err(|error| error.error)?;
            let word = done.buf(0).and_then(|buf| buf.words().first().copied());
            most = most.max(word.map_or(0, u64::from_le));
        }
        self.raise(memory, *own, most).await?;
        if let Counter::Line(_) = counter {
            self.tag_counter((memory, *own)).await?;
        }
        Ok(())
    }

    /// Writes splits again that were found to be damaged, as many as are begun within the time.
    /// Those with which that fails are tried again.
    pub(crate) async fn repair(self: &Arc<Self>, within: Duration) -> Result<(), EngineError> {
        let Some(coded) = &self.memory.coded else { return Ok(()) };
        let (started, mut repaired) = (self.env.now(), Ok(()));
        for (addr, splits) in coded.corrupt() {
            for split in splits.iter() {
                if self.env.now() - started > within {
                    return repaired;
                }
                let place =
                    self.memory.placement.splits(addr).and_then(|all| all.get(split).copied());
                let living = place.flatten().filter(|place| !self.pool.is_memory_dead(place.node));
                let made = match living {
                    Some(place) => {
                        self.regenerate_split(addr, split, place.node).await.map(|()| true)
                    }
                    None => Ok(false),
                };
                match made {
                    Ok(made) => {
                        // Not by another of these steps.
                        if coded.forget_corrupt(addr, split) && made {
                            Counters::add(&self.telemetry.counters.repairs);
                        }
                    }
                    Err(
                        error @ (EngineError::PageLost { .. }
                        | EngineError::PageDamaged { .. }
                        | EngineError::BadAddress { .. }),
                    ) => {
                        tracing::warn!(%addr, split, %error, "a damaged split cannot be written again");
                        coded.forget_corrupt(addr, split);
                    }
                    Err(error) => repaired = Err(error),
                }
            }
        }
        repaired
    }

    /// As [`Core::regenerate_split`]; of a page that is lost, what there is of it is kept.
    async fn regenerate_split_or_keep(
        self: &Arc<Self>,
        addr: GAddr,
        split: usize,
        memory: usize,
    ) -> Result<(), EngineError> {
        match self.regenerate_split(addr, split, memory).await {
            // Nobody has the latch, nor will.
            Err(EngineError::PageLost { .. }) => {
                let _begun = self.begin_unlatched().await?;
                if matches!(self.repair_torn_page(addr, &[]).await?, RepairedPage::Lost) {
                    tracing::warn!(%addr, "too little is left of a page");
                }
                Ok(())
            }
            Err(EngineError::PageDamaged { .. }) => {
                tracing::warn!(%addr, "a page is damaged, and left as it is");
                Ok(())
            }
            made => made,
        }
    }

    /// The split of a page that is being made again, and may not be there yet.
    pub(crate) fn split_to_come(&self, addr: GAddr) -> Option<usize> {
        let task = self.pool.state().regeneration.filter(|task| task.begun)?;
        let (range, _) = self.memory.placement.table_of(addr)?;
        let split = self.memory.placement.split_at(addr, task.position)?;
        (range == task.range).then_some(split)
    }

    async fn is_counter(&self, addr: GAddr) -> Result<bool, EngineError> {
        let _begun = self.begin_unlatched().await?;
        let home = self.memory.placement.home(addr).ok_or(EngineError::BadAddress { addr })?;
        let header = RemoteAddr::new(home.latch.region, home.latch.offset - LATCH_AT);
        Ok(read_versions(self, home.node, header).await?.contains(&Version::COUNTER))
    }

    /// Puts a split of a page into its place, at this memory node.
    async fn regenerate_split(
        self: &Arc<Self>,
        addr: GAddr,
        split: usize,
        memory: usize,
    ) -> Result<(), EngineError> {
        let Some(coded) = &self.memory.coded else { return Ok(()) };
        if self.is_counter(addr).await? {
            return self.raise_copy(Counter::Line(addr), memory).await;
        }
        let was_cached = self.cache.table.lookup(&self.cache.frames, addr).is_some();
        let (guard, begun) = self.home_and_shared(addr).await?;
        let using = self.memory.placement.using();
        let (Some(home), Some(places)) =
            (self.memory.placement.home(addr), self.memory.placement.written(addr))
        else {
            return Err(EngineError::BadAddress { addr });
        };
        let header_at = RemoteAddr::new(home.latch.region, home.latch.offset - LATCH_AT);
        let header = read_versions(self, home.node, header_at).await?;
        let mut versions = header;
        let Some(version) = versions.get_mut(split) else { return Ok(()) };
        if *version == Version::LOST {
            *version = Version::after(&header, coded.data(), SplitSet::EMPTY);
        }
        let version = *version;
        let splits = coded.splits_of(guard.line())?;
        let payload = splits.get(split).map(Vec::as_slice).unwrap_or_default();
        let buf = Tag::append(version, payload);
        for place in places.places_of(split).filter(|place| place.node == memory) {
            let write = placed(place.at, Buf::copy_of(&buf));
            self.memory.queue_pair(place.node).post(write).await.map_err(|error| error.error)?;
        }
        if versions != header {
            // Who waits for the right to change the page may have read the header already, and
            // reads it again before it writes the page back.
            let bytes = Buf::copy_of(&versions_bytes(&versions));
            let at = header_at.offset + SPLIT_VERSION_AT;
            let write = placed(RemoteAddr::new(header_at.region, at), bytes);
            self.memory.queue_pair(home.node).post(write).await.map_err(|error| error.error)?;
            // This node may have the right already, and have changed nothing yet: it is told here.
            let _map = self.cache.shard(addr).lock();
            if let Some(frame) = self.cache.table.lookup(&self.cache.frames, addr) {
                coded.set_versions(frame, &versions);
            }
        }
        drop((guard, begun, using));
        if !was_cached {
            self.write_home(addr);
        }
        Ok(())
    }

    /// Latches a page shared of which all that was changed is home: what this node has changed, and
    /// what the one has that granted the page.
    async fn home_and_shared(
        &self,
        addr: GAddr,
    ) -> Result<(SharedGuard<'_>, UnlatchedAccess<'_>), EngineError> {
        for _ in 0..LOOKS {
            let guard = SharedGuard::new(self, self.acquire(addr, Access::Shared, false).await?);
            let begun = self.memory.quiesced.unlatched.begin();
            let is_quiet = self.pool.state().rebuilds.is_empty();
            if guard.is_clean() && self.is_settled(addr) && is_quiet {
                return Ok((guard, begun));
            }
            drop((guard, begun));
            self.write_home(addr);
            self.env.pause(LEAST_PAUSE).await;
        }
        Err(EngineError::Busy { addr })
    }

    /// Whether nothing is under way for a line, here or at the node that granted it.
    pub(crate) fn is_settled(&self, addr: GAddr) -> bool {
        let map = self.cache.shard(addr).lock();
        map.get(&addr.to_u64()).is_none_or(|active| {
            active.line.grantor.is_none() && !active.line.phase.operation_outstanding()
        })
    }

    /// Gives a page up, if it can be given up now; whether it can.
    pub(crate) fn write_home(&self, addr: GAddr) -> bool {
        let mut batches = Vec::new();
        let begun = self.give_up(addr, Event::Evict, &mut batches);
        self.post_batches(batches);
        begun
    }
}
