//! Regeneration: the splits in a slab of a lost memory node are made again on another memory node,
//! page by page (docs/design.md, Coded pages).
//!
//! ```text
//! claim: range, position --> its slab gets a place on another memory node, and all nodes know it
//!    --> a few pages at a time: shared latch, write of the position's split --> end
//! ```
//! One compute node regenerates one slab of the pool at a time. If the node dies, another begins
//! the slab anew. No caller waits for it: until a split is written, its tag differs from the
//! header, and the page is read without it. Writers write to the new place from the beginning.

use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_pool::PoolError;
use selkie_pool::control::Slab;
use selkie_pool::layout::{EXTENT_GCLS, LATCH_AT, SPLIT_VERSION_AT};

use super::header_versions::versions_bytes;
use super::placed::placed;
use super::repair_torn::RepairedPage;
use super::tag::{SplitSet, Tag, Version, set_version, version_of};
use super::unlatched::UnlatchedAccess;
use super::write_back::read_versions;
use crate::access::acquire::Access;
use crate::access::waiters::WaitPolicy;
use crate::addressing::executed::word_at;
use crate::addressing::locations::Counter;
use crate::coherence::machine::Event;
use crate::core::Core;
use crate::join::all_of;
use crate::telemetry::stats::Counters;
use crate::{EngineError, GAddr, SharedGuard};

/// Pages whose splits are made at the same time, because round trips take most of the time.
const PAGES_AT_ONCE: usize = 4;
/// Pages after which the task pauses.
const PAGES_A_TURN: usize = 16;
/// The length of a pause, in multiples of the time before it.
const PAUSE_TURNS: u32 = 1;
/// The shortest pause.
const LEAST_PAUSE: Duration = Duration::from_micros(50);
/// The size of a write that clears memory, in bytes.
const CLEARED_AT_ONCE: usize = 64 << 10;

/// How often a page that is in use is tried before its slab is begun anew.
const TRIES: usize = 10;
/// Tries after which a page that keeps changing is left for later.
const LOOKS: usize = 100;

/// The interval at which a node looks for work.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Repairs, regenerates and migrates until the engine is dropped.
pub(crate) async fn run_regeneration(core: Weak<Core>) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    loop {
        env.sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        if core.memory.coded.is_none() || core.lifecycle.has_failed() {
            return;
        }
        let begins = core.log.as_ref().is_some_and(|log| !log.is_open());
        if core.lifecycle.check_alive().is_err() || core.config.reads_only || begins {
            continue;
        }
        let Some(_step) = core.recovery.repairs.begin() else { continue };
        // Work that fails is begun anew.
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
    /// Drains memory nodes that err too often.
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

    /// Regenerates one slab, if one is lost and no other node regenerates it.
    pub(crate) async fn regenerate(self: &Arc<Self>) -> Result<(), EngineError> {
        if self.memory.coded.is_none() || self.config.reads_only {
            return Ok(());
        }
        let Some(task) = self.pool.claim_regeneration(self.index()).await? else { return Ok(()) };
        let started = self.env.now();
        if !task.begun {
            // No node uses the slab yet.
            self.clear_slab(task.to).await?;
            if !self.pool.begin_regeneration(self.index(), task).await? {
                return Ok(());
            }
        }
        // A split that is filled in before all nodes write to the new place could be an old one.
        self.pool.until_all_know(&self.env).await?;
        let pages = self.fill(task.range, task.position, usize::from(task.to.node)).await?;
        self.pool.end_regeneration(&self.env, self.index(), task).await?;
        let (took, me) = (self.env.now() - started, self.endpoint.id());
        tracing::info!(node = %me, ?task, pages, ?took, "regenerated a slab");
        Ok(())
    }

    /// Zeroes a slab.
    pub(crate) async fn clear_slab(&self, slab: Slab) -> Result<(), EngineError> {
        let geometry = self.pool.descriptor().geometry();
        let node = usize::from(slab.node);
        let (from, bytes) = (geometry.slab_offset(slab.slab), geometry.slab_bytes());
        for at in (0..bytes).step_by(CLEARED_AT_ONCE) {
            self.lifecycle.check_alive()?;
            let zeros = Buf::zeroed(CLEARED_AT_ONCE.min((bytes - at) as usize));
            let write = placed(self.memory.at(node, from + at)?, zeros);
            if let Err(failed) = self.memory.queue_pair(node).post(write).await {
                // No other node uses the slab yet, so none would find the memory node dead.
                self.confirm_memory_death(failed.error.clone()).await?;
                return Err(failed.error.into());
            }
        }
        Ok(())
    }

    /// Writes the splits of a position of a range to its place at a memory node. Returns the number
    /// of pages.
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
        // Lines that are leased from now on are written there from the beginning. The first extent
        // is never leased, and has lines.
        let leased = self.leased_lines(range).await?.max(EXTENT_GCLS);
        let is_leased = |addr: &GAddr| self.memory.placement.line_in_range(*addr) < leased;
        let mut todo: Vec<GAddr> =
            self.memory.placement.lines_of(range).take_while(is_leased).collect();
        let (mut pages, mut turned) = (0, 0);
        let mut turn = self.env.now();
        for round in 0..TRIES {
            // Pages that other nodes keep changing come again at the end.
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

    /// Raises the copy of a counter at a memory node to the value of the others. Concurrent adds
    /// raise it as well.
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
            most = most.max(word_at(&done, 0));
        }
        self.raise(memory, *own, most).await?;
        if let Counter::Line(_) = counter {
            self.tag_counter((memory, *own)).await?;
        }
        Ok(())
    }

    /// Repairs damaged splits, as many as can be begun within the time. A repair that fails is
    /// tried again later.
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
                        // Another call may have repaired it.
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

    /// As [`Core::regenerate_split`]; the splits that are left of a lost page are kept.
    async fn regenerate_split_or_keep(
        self: &Arc<Self>,
        addr: GAddr,
        split: usize,
        memory: usize,
    ) -> Result<(), EngineError> {
        match self.regenerate_split(addr, split, memory).await {
            // The dead node in the word keeps all others from the latch.
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

    /// The split of a page that is being regenerated, and may not be written yet.
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

    /// Writes a split of a page to its place at a memory node.
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
        let was_cached = self.cache.frame_of(addr).is_some();
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
        if version_of(&header, split) == Version::LOST {
            let next = Version::after(&header, coded.data(), SplitSet::EMPTY);
            set_version(&mut versions, split, next);
        }
        let version = version_of(&versions, split);
        let splits = coded.splits_of(guard.line())?;
        let Some(payload) = splits.get(split) else { panic!("a page has no split {split}") };
        let buf = Tag::append(version, payload);
        for place in places.places_of(split).filter(|place| place.node == memory) {
            let write = placed(place.at, Buf::copy_of(&buf));
            self.memory.queue_pair(place.node).post(write).await.map_err(|error| error.error)?;
        }
        if versions != header {
            // A node that is acquiring the page for writing may have read the header already. It
            // reads the header again before it writes the page back.
            let bytes = Buf::copy_of(&versions_bytes(&versions));
            let at = header_at.offset + SPLIT_VERSION_AT;
            let write = placed(RemoteAddr::new(header_at.region, at), bytes);
            self.memory.queue_pair(home.node).post(write).await.map_err(|error| error.error)?;
            // This node may hold the page unchanged: its versions are updated here.
            let _map = self.cache.shard(addr).lock();
            if let Some(frame) = self.cache.frame_of(addr) {
                coded.set_versions(frame, &versions);
            }
        }
        drop((guard, begun, using));
        if !was_cached {
            self.write_home(addr);
        }
        Ok(())
    }

    /// Latches a page shared when home has all its changes: those of this node, and those of the
    /// node that granted the page.
    async fn home_and_shared(
        &self,
        addr: GAddr,
    ) -> Result<(SharedGuard<'_>, UnlatchedAccess<'_>), EngineError> {
        for _ in 0..LOOKS {
            let guard = SharedGuard::new(
                self,
                self.acquire(addr, Access::Shared, WaitPolicy::AllHolders).await?,
            );
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

    /// Whether no operation is outstanding for a line, here or at the node that granted it.
    pub(crate) fn is_settled(&self, addr: GAddr) -> bool {
        let map = self.cache.shard(addr).lock();
        map.get(&addr.to_u64()).is_none_or(|open_line| {
            open_line.line.grantor.is_none() && !open_line.line.phase.operation_outstanding()
        })
    }

    /// Evicts a page if that is possible now. Returns whether it is.
    pub(crate) fn write_home(&self, addr: GAddr) -> bool {
        let mut batches = Vec::new();
        let begun = self.give_up(addr, Event::Evict, &mut batches);
        self.post_batches(batches);
        begun
    }
}
