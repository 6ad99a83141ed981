//! One compute node's engine: start, access, allocate, close.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_channels::{Mailbox, MailboxConfig};
use selkie_fabric::env::Env;
use selkie_fabric::{
    Buf, Chain, Doorbell, Endpoint, Fabric, FabricError, PeerId, RemoteAddr, Verb,
};
use selkie_memnode::{ComputeIndex, Pool, PoolError, layout};

use crate::acquire::Access;
use crate::activity::run_activity;
use crate::alloc::Allocator;
use crate::buffer::frames::{Frame, Frames};
use crate::buffer::table::AddressTable;
use crate::claimed::Claimed;
use crate::coding::{Coded, CounterChange, Halted, Repairs, run_regeneration};
use crate::coherence::machine::Event;
use crate::coherence::word::{ComputeId, MAX_COMPUTE_NODES, NodeSet};
use crate::config::EngineConfig;
use crate::core::{Core, Shard, Suspended};
use crate::epoch::{EpochPin, Epochs};
use crate::evict::run_evictor;
use crate::guess::Guesses;
use crate::hottest::{HotLine, Hottest};
use crate::lease::run_lease;
use crate::left::LeftLines;
use crate::log::{Log, LogTo, Lsn, run_archive, run_checkpoints, run_log};
use crate::placement::{Counter, PlacementMap};
use crate::recovery::run_recovery;
use crate::service::{epoch_node, run_housekeeping};
use crate::stats::{Counters, EngineStats};
use crate::ways::Ways;
use crate::{Coherence, EngineError, ExclusiveGuard, GAddr, PSN_BYTES, SharedGuard};

/// Share of the frames kept free: the evictor starts below the first, stops at the second.
const LOW_WATER: usize = 64;
const HIGH_WATER: usize = 32;
/// How often a node that comes in looks whether the epochs are where they belong.
const EPOCHS_LOOK: Duration = Duration::from_millis(1);
/// How exactly it is known when an eviction is over.
const EVICTED_WITHIN: Duration = Duration::from_nanos(20);
/// Messages a peer's full ring may hold up here before sending fails: each line has at most one
/// request and one answer a peer under way, so a few thousand are far beyond any load.
const OUTBOX_LIMIT: usize = 1 << 16;
/// Lines without a copy that a round of closing takes out of their words: bounds the messages under
/// way.
const LEAVES_A_ROUND: usize = 1024;

/// One compute node of a pool: a coherent cache of its pages. A cheap handle.
///
/// Accesses are futures that complete at once on a hit. A miss costs one round trip when no other
/// node holds the page; else the holder is asked (SELCC §4). Every wait ends within
/// [`EngineConfig::request_timeout`].
#[derive(Clone)]
pub struct Engine(Arc<Core>);

impl Engine {
    /// Joins the pool as compute node `node` and starts the background tasks.
    ///
    /// # Errors
    /// `Config` for values out of range, and a request timeout within which the loss of a memory
    /// node of a coded pool might not be noticed, `Pool` when the node is there already or beyond
    /// the pool's `max_compute_nodes`, when a coded pool has no room for a range, or is to be used
    /// by the rpc baseline, `Fabric` when a memory node cannot be reached.
    pub async fn start(
        pool: &Arc<Pool>,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        node: ComputeId,
        config: EngineConfig,
    ) -> Result<Engine, EngineError> {
        config.validate(pool.descriptor().gcl_bytes)?;
        let coding = pool.descriptor().coding;
        if config.coherence == Coherence::Rpc && !coding.is_plain() {
            let why =
                "directories of the rpc baseline keep pages whole: it needs a pool of coding plain";
            return Err(EngineError::Pool(format!("coding {coding} is not for rpc: {why}")));
        }
        // Until then what concerns a memory node that died stands still.
        let missed = pool.all_missed_within().filter(|_| !coding.is_plain());
        if let Some(missed) = missed.filter(|missed| *missed >= config.request_timeout) {
            return Err(EngineError::Config {
                key: "request_timeout",
                value: config.request_timeout.as_secs(),
                allowed: format!(
                    "more than the {missed:?} within which a lost memory node of this pool is missed"
                ),
            });
        }
        let endpoint = fabric.join(PeerId::compute(node.index() as u16))?;
        let mailboxes = Self::open_mailboxes(pool, &endpoint, node, &config)?;
        pool.announce(env, &*endpoint, config.reads_only).await?;
        if let Err(error) = pool.ensure_range(env).await {
            pool.retract(ComputeIndex::new(node.index() as u16)).await;
            return Err(error.into());
        }
        let core = match Self::connect(pool, env, node, config, endpoint, mailboxes).await {
            Ok(core) => core,
            Err(error) => {
                pool.retract(ComputeIndex::new(node.index() as u16)).await;
                return Err(error);
            }
        };
        let tick = core.config.tick;
        drop(env.spawn("evictor", run_evictor(Arc::downgrade(&core))));
        if let Some(log) = &core.log {
            drop(env.spawn("log", run_log(Arc::downgrade(&core), Arc::clone(log), env.clone())));
            drop(env.spawn("checkpoints", run_checkpoints(Arc::downgrade(&core))));
            if matches!(core.config.log, Some(LogTo::Store(_))) {
                drop(env.spawn("archive", run_archive(Arc::downgrade(&core))));
            }
        }
        drop(env.spawn("lease", run_lease(Arc::downgrade(&core), tick)));
        drop(env.spawn("recovery", run_recovery(Arc::downgrade(&core), tick)));
        drop(env.spawn("regeneration", run_regeneration(Arc::downgrade(&core))));
        drop(env.spawn("activity", run_activity(Arc::downgrade(&core))));
        drop(env.spawn("housekeeping", run_housekeeping(Arc::downgrade(&core), tick)));
        let engine = Engine(core);
        // It may have to wait for a recovery, of which this node may be the only one to do its
        // part.
        if let Err(error) = engine.0.open_log().await {
            // It has changed nothing.
            let _ = engine.close().await;
            return Err(error);
        }
        let core = &engine.0;
        tracing::info!(node = %core.endpoint.id(), frames = core.frames.count(), "started a compute node");
        Ok(engine)
    }

    /// From when the others let the node in to when it is in the pool.
    async fn connect(
        pool: &Arc<Pool>,
        env: &Env,
        node: ComputeId,
        config: EngineConfig,
        endpoint: Arc<dyn Endpoint>,
        mailboxes: Box<[Arc<Mailbox>]>,
    ) -> Result<Arc<Core>, EngineError> {
        let descriptor = pool.descriptor();
        let gcl_bytes = descriptor.gcl_bytes;
        Self::declare_the_gone(pool, &*endpoint).await?;
        let ways = Ways::open(pool, Arc::clone(&endpoint), config.reads_only)?;
        let frames = (config.cache_bytes / gcl_bytes as u64) as usize;
        let coded = Coded::of(descriptor, &config, frames)?;
        let table = AddressTable::new(frames, gcl_bytes);
        let first = epoch_node(pool);
        let epoch = Self::global_epoch(pool, env, first, &ways).await?;
        // The ranges of a coded pool come as they are needed.
        let units = if coded.is_none() { descriptor.memory_nodes.len() } else { 0 };
        let keeps_log = config.log.is_some() && !config.reads_only;
        let core = Arc::new_cyclic(|this| Core {
            this: this.clone(),
            me: node,
            rules: config.rules(),
            dead: AtomicU64::new(NodeSet::EMPTY.to_bits()),
            recovering: AtomicBool::new(false),
            config,
            env: env.clone(),
            gcl_bytes,
            shards: (0..table.shards()).map(|_| Shard::default()).collect(),
            frames: Frames::new(frames, gcl_bytes),
            table,
            placement: PlacementMap::new(descriptor),
            coded,
            halted: Halted::default(),
            repairs: Repairs::default(),
            late_frames: AtomicUsize::new(0),
            ways,
            endpoint,
            pool: Arc::clone(pool),
            mailboxes,
            known: (0..MAX_COMPUTE_NODES).map(|_| AtomicU32::new(0)).collect(),
            guesses: Guesses::default(),
            left: LeftLines::new(descriptor),
            allocator: Allocator::new(units),
            log: keeps_log.then(|| Arc::new(Log::new())),
            epochs: Epochs::new(epoch),
            counters: Counters::new(),
            hottest: Hottest::default(),
            copies_under_way: AtomicUsize::new(0),
            claimed: Claimed::default(),
            redone: Mutex::default(),
            evict_bell: Arc::new(Doorbell::new()),
            low_water: frames / LOW_WATER,
            high_water: frames / HIGH_WATER,
            failed: OnceLock::new(),
            suspended: Suspended::default(),
            incarnation: OnceLock::new(),
            closed: AtomicBool::new(false),
            leaves: AtomicBool::new(false),
            stop_bell: Arc::new(Doorbell::new()),
        });
        core.publish_epoch(epoch + 1).await?;
        core.enter().await?;
        Ok(core)
    }

    /// One for each task that takes messages in.
    fn open_mailboxes(
        pool: &Pool,
        endpoint: &Arc<dyn Endpoint>,
        node: ComputeId,
        config: &EngineConfig,
    ) -> Result<Box<[Arc<Mailbox>]>, EngineError> {
        let directories = config.coherence == Coherence::Rpc;
        let memory_nodes = 0..pool.descriptor().memory_nodes.len();
        if let Some(node) = memory_nodes.into_iter().find(|n| pool.directory_of(*n).is_none())
            && directories
        {
            return Err(EngineError::Pool(format!("memory node {node} has no directory running")));
        }
        let shape = MailboxConfig {
            peers: Self::mailbox_peers(pool, directories),
            ring_bytes: config.ring_bytes,
            outbox_limit: OUTBOX_LIMIT,
        };
        let failed = |source| EngineError::Message { to: node.index(), source };
        let open = |_| Mailbox::open(endpoint, node.index(), shape).map(Arc::new).map_err(failed);
        (0..config.mail_tasks).map(open).collect()
    }

    /// Compute nodes, and the memory nodes' directories if there are any.
    fn mailbox_peers(pool: &Pool, directories: bool) -> usize {
        let descriptor = pool.descriptor();
        let memory_nodes = if directories { descriptor.memory_nodes.len() } else { 0 };
        descriptor.max_compute_nodes + memory_nodes
    }

    /// Memory nodes of a coded pool that nobody has asked for anything since they died are declared
    /// dead.
    async fn declare_the_gone(pool: &Pool, endpoint: &dyn Endpoint) -> Result<(), EngineError> {
        if pool.descriptor().coding.is_plain() {
            return Ok(());
        }
        for memory in pool.state().memory_nodes.iter().flatten().filter(|memory| !memory.dead) {
            let peer = memory.descriptor.peer;
            let found = endpoint.connect(peer);
            if matches!(found, Err(FabricError::PeerDead { peer: dead }) if dead == peer) {
                pool.declare_memory_dead(peer.index()).await?;
            }
        }
        Ok(())
    }

    /// Asks the memory node that has the epochs. The epoch to begin in. Where another memory node
    /// had the epochs before, those who are in have to bring them here: a node that began in an
    /// earlier epoch than theirs would take their pins for older than they are.
    async fn global_epoch(
        pool: &Pool,
        env: &Env,
        first: Option<usize>,
        ways: &Ways,
    ) -> Result<u64, EngineError> {
        let Some(node) = first else { return Ok(0) };
        let first = ways.to(pool, node);
        let peer = PeerId::memory(node as u16);
        let region = ways.region(node).ok_or(FabricError::UnknownPeer { peer })?;
        let at = RemoteAddr::new(region, layout::GLOBAL_EPOCH_AT);
        let nodes = pool.descriptor().max_compute_nodes;
        let bytes = (layout::NODE_EPOCHS_AT - layout::GLOBAL_EPOCH_AT) as usize + 8 * nodes;
        let started = env.now();
        loop {
            let chain = Chain::from([Verb::read(at, Buf::zeroed(bytes))]);
            let done = first.post(chain).await.map_err(|e| e.error)?;
            let words: Vec<u64> = done.buf(0).map(Buf::words).unwrap_or_default().to_vec();
            let published = |index: usize| words.get(1 + index).map_or(0, |w| u64::from_le(*w));
            let global = words.first().map_or(0, |w| u64::from_le(*w));
            let members = pool.members();
            let newest = members.iter().map(|node| published(node.as_usize())).max().unwrap_or(0);
            let all_published = members.iter().all(|node| published(node.as_usize()) > 0);
            let are_here = all_published && global + 1 >= newest;
            // One that hangs, or is about to leave, has no pins that anybody could wait for.
            let waited = env.now().saturating_sub(started);
            if are_here || pool.descriptor().coding.is_plain() || waited > pool.state().timing.lease
            {
                return Ok(global.max(newest.saturating_sub(1)));
            }
            env.sleep(EPOCHS_LOOK).await;
        }
    }

    /// Size of a global cache line in bytes: a page and its sequence number.
    pub fn gcl_bytes(&self) -> usize {
        self.0.gcl_bytes
    }

    /// Size of a page in bytes.
    pub fn page_bytes(&self) -> usize {
        self.0.gcl_bytes - PSN_BYTES
    }

    /// The well-known page that is zero when the pool starts and never allocated: for a catalogue.
    pub fn superblock(&self) -> GAddr {
        GAddr::from_u64(self.0.gcl_bytes as u64)
    }

    /// The environment the engine runs in.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// The node's end of the fabric, for messages beside the engine's own.
    pub fn endpoint(&self) -> &Arc<dyn Endpoint> {
        &self.0.endpoint
    }

    /// Which compute node this is.
    pub fn node(&self) -> ComputeId {
        self.0.me
    }

    /// What the engine has done so far.
    pub fn stats(&self) -> EngineStats {
        let core = &self.0;
        let stats = core.counters.snapshot(core.frames.count(), core.frames.free_count());
        EngineStats { hottest_skipped: core.hottest.skipped(), ..stats }
    }

    /// At most `most` of the lines that this node misses or has to give up most often, of the 64
    /// that are counted; first those with the most events that are certainly theirs. How exactly,
    /// [`HotLine`] says.
    pub fn hottest(&self, most: usize) -> Vec<HotLine> {
        let top = self.0.hottest.top(most).into_iter();
        let home = |addr| self.0.placement.home(addr).map(|home| home.node);
        top.filter_map(|(addr, count, error)| {
            Some(HotLine { addr, home: home(addr)?, count, error })
        })
        .collect()
    }

    /// Lines with something under way, in words for a person who looks for what is stuck.
    pub fn active_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for shard in self.0.all_shards() {
            for (addr, active) in shard.lock().iter() {
                let addr = GAddr::from_u64(*addr);
                let latch = active.frame.map(|id| self.0.frames.get(id).latch.in_use());
                let (line, waiters) = (&active.line, &active.waiters);
                lines.push(format!("{addr}: latched by {latch:?}, {line:?}, waiters {waiters:?}"));
            }
        }
        lines
    }

    /// Bytes of memory that the cache takes beside the page data itself.
    pub fn overhead_bytes(&self) -> usize {
        self.0.frames.count() * (size_of::<Frame>() + size_of::<u32>()) + self.0.table.bytes()
    }

    /// Lines this node has leased or freed and not allocated: (fresh, reusable, on hold).
    pub fn unused_lines(&self) -> (u64, u64, u64) {
        self.0.allocator.unused(self.0.gcl_bytes)
    }

    /// Bytes of all extents of the pool that are leased to compute nodes, whether in use or not. A
    /// round trip to every memory node, or to one for each range of a coded pool, one after the
    /// other.
    ///
    /// # Errors
    /// `Fabric`.
    pub async fn leased_bytes(&self) -> Result<u64, EngineError> {
        let core = &self.0;
        let mut extents = 0;
        for unit in 0..core.placement.units() {
            let counters = core.placement.copies(Counter::Leased(unit));
            let counters = counters.map(|copies| copies.places).unwrap_or_default();
            let living = counters.iter().find(|(node, _)| !core.pool.is_memory_dead(*node));
            let Some((node, at)) = living.or(counters.first()) else { continue };
            let chain = Chain::from([Verb::read(*at, Buf::zeroed(8))]);
            let done = core.queue_pair(*node).post(chain).await.map_err(|e| e.error)?;
            let words = done.buf(0).map(Buf::words).unwrap_or_default();
            let leased = words.first().map_or(0, |word| u64::from_le(*word));
            // The counter runs on when a unit is full.
            extents += leased.min(core.placement.extents_of(unit));
        }
        Ok(extents * core.pool.descriptor().geometry().extent_bytes())
    }

    /// Waits until this node's log is durable up to a place. Without a log nothing is ever durable,
    /// and nobody waits.
    ///
    /// # Errors
    /// `Log` if it cannot be written, `LogTimeout` after the request timeout. It may become durable
    /// later all the same.
    pub async fn until_durable(&self, lsn: Lsn) -> Result<(), EngineError> {
        let Some(log) = &self.0.log else { return Ok(()) };
        #[cfg(feature = "planted")]
        if self.0.config.planted == crate::Planted::EarlyCommit {
            self.0.write_log(log);
            return Ok(());
        }
        self.0.until_durable(log, lsn).await
    }

    /// Waits until this node's log has room for changes. Whoever waits should have no page latched,
    /// as those that are cannot go home, for which there would be room.
    ///
    /// # Errors
    /// After the request timeout: `Log` if it cannot be written, `LogTimeout` if it is full.
    pub async fn until_room(&self) -> Result<(), EngineError> {
        match &self.0.log {
            Some(log) => log.until_room(&self.0.env, self.0.config.request_timeout).await,
            None => Ok(()),
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0
    }

    /// The bug that this node was configured with, for layers above that have some of their own.
    #[cfg(feature = "planted")]
    pub fn planted(&self) -> crate::Planted {
        self.0.config.planted
    }

    /// Holds back the reuse of every line freed from now on, until the pin is dropped.
    #[inline]
    pub fn pin(&self) -> EpochPin<'_> {
        self.0.epochs.pin()
    }

    /// The page, if it is cached and nobody is in the way: no waiting, no round trip. `None` also
    /// while the node is suspended.
    #[inline]
    pub fn shared_hit(&self, addr: GAddr) -> Option<SharedGuard<'_>> {
        let guard = self.shared_if_cached(addr)?;
        self.0.counters.hit();
        Some(guard)
    }

    /// The sequence number of a page, under the same conditions; `None` else. Counts as no access.
    #[inline]
    pub fn psn_if_cached(&self, addr: GAddr) -> Option<u64> {
        self.shared_if_cached(addr).map(|page| page.psn())
    }

    #[inline]
    fn shared_if_cached(&self, addr: GAddr) -> Option<SharedGuard<'_>> {
        let core = &*self.0;
        if core.is_suspended() {
            return None;
        }
        let id = core.table.lookup(&core.frames, addr)?;
        let frame = core.frames.get(id);
        if !frame.latch.try_shared_fast() {
            return None;
        }
        let guard = SharedGuard::new(core, id);
        // The frame may have been given to another line since the lookup.
        (frame.addr() == addr).then_some(guard)
    }

    /// As [`Engine::shared_hit`], to write.
    #[inline]
    pub fn exclusive_hit(&self, addr: GAddr) -> Option<ExclusiveGuard<'_>> {
        let core = &*self.0;
        if core.is_suspended() || core.log.as_ref().is_some_and(|log| log.is_full()) {
            return None;
        }
        let id = core.table.lookup(&core.frames, addr)?;
        let frame = core.frames.get(id);
        if !frame.latch.try_exclusive_fast() {
            return None;
        }
        let guard = ExclusiveGuard::new(core, id);
        if frame.addr() != addr {
            return None;
        }
        core.counters.hit();
        Some(guard)
    }

    /// Latches the page shared; waits for latches here and elsewhere, and while the node is
    /// suspended: it cannot show the others that it lives, and does not know whether it is still in
    /// the pool. `Expelled` if it is not.
    ///
    /// # Errors
    /// `Timeout`, `CacheFull`, `BadAddress`, `Fabric`, `Protocol`, `Closed`, `Expelled`.
    pub async fn shared(&self, addr: GAddr) -> Result<SharedGuard<'_>, EngineError> {
        match self.shared_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.shared_slow(addr, false).await,
        }
    }

    /// Latches the page exclusively; waits as [`Engine::shared`].
    ///
    /// # Errors
    /// As [`Engine::shared`].
    pub async fn exclusive(&self, addr: GAddr) -> Result<ExclusiveGuard<'_>, EngineError> {
        match self.exclusive_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.exclusive_slow(addr, false).await,
        }
    }

    /// Latches the page shared without waiting for latches. Waits all the same while the node is
    /// suspended, at most for the request timeout, and keeps what the caller has latched before:
    /// `Busy` says that somebody else uses the page, and whoever tries again would do so in vain
    /// until the node goes on.
    ///
    /// # Errors
    /// `Busy` if the page is latched exclusively, here or elsewhere; else as [`Engine::shared`].
    pub async fn try_shared(&self, addr: GAddr) -> Result<SharedGuard<'_>, EngineError> {
        match self.shared_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.shared_slow(addr, true).await,
        }
    }

    /// Latches the page exclusively without waiting for latches. Waits as [`Engine::try_shared`].
    ///
    /// # Errors
    /// `Busy` if the page is latched, here or elsewhere; else as [`Engine::shared`].
    pub async fn try_exclusive(&self, addr: GAddr) -> Result<ExclusiveGuard<'_>, EngineError> {
        match self.exclusive_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.exclusive_slow(addr, true).await,
        }
    }

    async fn shared_slow(&self, addr: GAddr, nowait: bool) -> Result<SharedGuard<'_>, EngineError> {
        let frame = self.0.acquire(addr, Access::Shared, nowait).await?;
        Ok(SharedGuard::new(&self.0, frame))
    }

    async fn exclusive_slow(
        &self,
        addr: GAddr,
        nowait: bool,
    ) -> Result<ExclusiveGuard<'_>, EngineError> {
        let frame = self.0.acquire(addr, Access::Exclusive, nowait).await?;
        Ok(ExclusiveGuard::new(&self.0, frame))
    }

    /// Gives this node's copy of a page up, as if its frame were needed; when it returns, what was
    /// changed is home. Does nothing to a page that somebody here uses or waits for.
    ///
    /// # Errors
    /// `Timeout` if it takes longer than accesses may wait.
    pub async fn evict(&self, addr: GAddr) -> Result<(), EngineError> {
        let core = &self.0;
        let started = core.env.now();
        let mut begun = core.write_home(addr);
        loop {
            if core.is_settled(addr) {
                if begun {
                    return Ok(());
                }
                // It may have been on its way home for the log's sake, and have stayed.
                core.write_home(addr);
                begun = true;
                continue;
            }
            let waited = core.env.now() - started;
            if waited > core.config.request_timeout {
                return Err(EngineError::Timeout { addr, waited });
            }
            core.env.pause(EVICTED_WITHIN).await;
        }
    }

    /// A new page, zero, latched exclusively.
    ///
    /// # Errors
    /// `PoolFull`; else as [`Engine::shared`]. On an error or a dropped future nothing is leaked.
    pub async fn allocate(&self) -> Result<ExclusiveGuard<'_>, EngineError> {
        self.0.check_writes()?;
        loop {
            let grant = Taken { core: &self.0, grant: Some(self.0.grant(false).await?) };
            let (addr, reused) = grant.parts();
            let mut guard = match self.exclusive(addr).await {
                // A line that is not to be had for good is nobody's: each node has finitely many of
                // them.
                Err(EngineError::PageLost { .. } | EngineError::PageDamaged { .. }) => {
                    grant.used();
                    continue;
                }
                guard => guard?,
            };
            if reused {
                let bytes = guard.len();
                guard.bytes_mut(0..bytes).fill(0);
            }
            grant.used();
            return Ok(guard);
        }
    }

    /// Gives the page back to the pool. It keeps its bytes for those who come by old pointers, and
    /// is reused once every pin held now, at any node, is gone. Does not wait.
    pub fn free(&self, page: ExclusiveGuard<'_>) {
        let addr = page.addr();
        drop(page);
        self.0.allocator.hold(addr, self.0.epochs.current());
    }

    /// A new 8-byte counter, zero, on a line of its own that must never be latched as a page.
    ///
    /// # Errors
    /// `PoolFull`, `ReadsOnly`, `Fabric`.
    pub async fn allocate_counter(&self) -> Result<GAddr, EngineError> {
        self.0.check_writes()?;
        // Only a line that no cache has ever held: a late write-back would overwrite the counter.
        let counter = Taken { core: &self.0, grant: Some(self.0.grant(true).await?) };
        let (addr, _) = counter.parts();
        // From here on the line is no page, whatever becomes of it.
        counter.used();
        if self.0.coded.is_some() {
            self.0.mark_counter(addr).await?;
        }
        Ok(addr)
    }

    /// Adds to a counter, and returns its value before. One round trip; in a coded pool one more
    /// for each parity split, and the counter must not wrap.
    ///
    /// # Errors
    /// `BadAddress`, `ReadsOnly`, `Fabric`.
    pub async fn fetch_add(&self, counter: GAddr, delta: u64) -> Result<u64, EngineError> {
        self.0.check_writes()?;
        self.0.add_to_copies(Counter::Line(counter), delta).await
    }

    /// Moves the pool's logical clock on by so many steps, and returns what it was. A pool has one
    /// clock, zero at first, for whoever puts things in order across nodes: what was returned
    /// later, anywhere, is greater, and nobody else has been given the steps in between. It
    /// outlives memory nodes as counters do, but not the pool, also where pages are
    /// [restored](Engine::restore). One round trip; in a coded pool one more for each parity split.
    ///
    /// # Errors
    /// `ReadsOnly`, `Timeout`, `Fabric`.
    pub async fn advance_clock(&self, steps: u64) -> Result<u64, EngineError> {
        self.0.check_writes()?;
        self.0.add_to_copies(Counter::Clock, steps).await
    }

    /// Moves the pool's logical clock on to `least`, unless it is there already. As many round
    /// trips as [`advance_clock`](Engine::advance_clock), and more if others move it meanwhile.
    ///
    /// # Errors
    /// As [`advance_clock`](Engine::advance_clock).
    pub async fn raise_clock(&self, least: u64) -> Result<(), EngineError> {
        self.0.check_writes()?;
        self.0.change_copies(Counter::Clock, CounterChange::Raise(least)).await.map(drop)
    }

    /// Leaves the pool: writes damaged splits again that were found, refuses new accesses, writes
    /// everything back, gives unused lines back. Requests of other nodes are answered as long as a
    /// handle lives. A second call does nothing, or tries again what failed.
    ///
    /// # Errors
    /// `Timeout` naming a line that stayed latched, if nothing has moved for the request timeout;
    /// the others are written back all the same. The node of a coded pool is still in the pool
    /// then.
    pub async fn close(&self) -> Result<(), EngineError> {
        let core = &self.0;
        // Nobody else knows of the splits that it has found damaged. While headers are made anew
        // nobody knows when that is over.
        let can_repair = core.check_alive().is_ok()
            && !core.config.reads_only
            && core.pool.state().rebuilds.is_empty();
        if let Some(_step) = core.repairs.begin().filter(|_| can_repair)
            && let Err(error) = core.repair(core.config.request_timeout).await
        {
            tracing::warn!(node = %core.endpoint.id(), %error, "damaged splits are left as they are");
        }
        if core.closed.swap(true, Ordering::Relaxed) && core.leaves.load(Ordering::Acquire) {
            return Ok(());
        }
        let started = core.env.now();
        let node = core.endpoint.id();
        tracing::info!(%node, "closing a compute node");
        core.keep_labels().await;
        let (mut remain, mut last) = self.flush_round();
        let mut moved = started;
        while remain > 0 && core.env.now() - moved <= core.config.request_timeout {
            core.env.sleep(Duration::from_millis(1)).await;
            let (now, one) = self.flush_round();
            if now < remain {
                moved = core.env.now();
            }
            (remain, last) = (now, one);
        }
        if let Some(addr) = last.filter(|_| core.coded.is_some()) {
            // Who is not in the pool enters nothing in words that are made anew: what it has would
            // be lost silently.
            let waited = core.env.now() - started;
            let phase = core.shard(addr).lock().get(&addr.to_u64()).map(|active| active.line.phase);
            tracing::warn!(%node, lines = remain, %addr, ?phase, "cannot close: lines are not given up");
            return Err(EngineError::Timeout { addr, waited });
        }
        core.repairs.retire(core).await?;
        // Their splits come, or their memory nodes are dead.
        while core.late_frames.load(Ordering::Acquire) > 0
            && core.env.now() - moved <= core.config.request_timeout
        {
            core.env.sleep(Duration::from_millis(1)).await;
        }
        // Each of them, whatever became of the others: who cannot reach all memory has to leave all
        // the same.
        let absent = core.publish_epoch(0).await;
        let given_back = core.give_lines_back().await;
        core.leaves.store(true, Ordering::Release);
        let left = core.pool.leave(&core.env, ComputeIndex::new(core.me.index() as u16)).await;
        if left.as_ref().is_err_and(PoolError::is_retryable) {
            core.leaves.store(false, Ordering::Release);
            core.repairs.go_on();
        }
        let took = core.env.now() - started;
        match last {
            None => {
                let EngineStats { corruptions, repairs, .. } = self.stats();
                tracing::info!(%node, ?took, corruptions, repairs, "closed a compute node");
            }
            Some(_) => {
                tracing::warn!(%node, ?took, lines = remain, "closed with lines not given up")
            }
        }
        absent.and(given_back).and(left.map_err(EngineError::from))?;
        last.map_or(Ok(()), |addr| Err(EngineError::Timeout { addr, waited: took }))
    }

    /// Evicts all that can be evicted now; how many lines remain, and one of them.
    fn flush_round(&self) -> (usize, Option<GAddr>) {
        let core = &self.0;
        let (mut remain, mut last) = (0, None);
        for id in core.frames.ids() {
            let addr = core.frames.get(id).addr();
            if addr.is_null() {
                continue;
            }
            let mut batches = Vec::new();
            if core.give_up(addr, Event::Leave, &mut batches) {
                core.post_batches(batches);
            }
            if core.frames.get(id).addr() == addr {
                (remain, last) = (remain + 1, Some(addr));
            }
        }
        let (mut batches, mut gathered) = (Vec::new(), 0);
        for (number, addr) in core.left.all().enumerate() {
            (remain, last) = (remain + 1, Some(addr));
            if number >= LEAVES_A_ROUND {
                continue;
            }
            gathered += usize::from(core.give_up(addr, Event::Leave, &mut batches));
            if gathered == core.config.eviction_batch {
                core.post_batches(std::mem::take(&mut batches));
                gathered = 0;
            }
        }
        core.post_batches(batches);
        // Frames may be free before the word says so.
        let under_way = core.line_under_way();
        (remain + usize::from(under_way.is_some()), last.or(under_way))
    }
}

/// A line taken from the allocator, put back unless it is used.
struct Taken<'e> {
    core: &'e Core,
    grant: Option<crate::alloc::Grant>,
}

impl Taken<'_> {
    fn parts(&self) -> (GAddr, bool) {
        self.grant.as_ref().map_or((GAddr::NULL, false), |g| (g.addr, g.reused))
    }

    fn used(mut self) {
        self.grant = None;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            self.core.allocator.put_back(grant);
        }
    }
}
