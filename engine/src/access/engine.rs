//! One compute node's engine: start, access, allocate, close.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::Env;
use selkie_fabric::{BoxFuture, Endpoint};
use selkie_wal::PSN_BYTES;

use super::acquire::Access;
use super::guard::{ExclusiveGuard, SharedGuard};
use super::waiters::WaitPolicy;
use selkie_pool::ComputeIndex;

use crate::addressing::epochs::EpochPin;
use crate::addressing::leaked::LineCensus;
use crate::addressing::locations::Counter;
use crate::coding::counter::CounterChange;
use crate::coherence::word::ComputeId;
use crate::core::Core;
use crate::log::Lsn;
use crate::telemetry::hottest::HotLine;
use crate::telemetry::stats::EngineStats;
use crate::{EngineError, GAddr};

/// How exactly it is known when an eviction is over.
const EVICTED_WITHIN: Duration = Duration::from_nanos(20);
/// One compute node of a pool: a coherent cache of its pages. A cheap handle.
///
/// Accesses are futures that complete at once on a hit. A miss costs one round trip when no other
/// node holds the page; else the holder is asked (SELCC §4). Every wait ends within
/// [`EngineConfig::request_timeout`](crate::EngineConfig::request_timeout).
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Core>);

impl Engine {
    /// Which incarnation of its index this node is: no two nodes of a pool ever have both the same.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.0.own_incarnation()
    }

    /// Whether this incarnation of a node is in the pool, as far as this node knows.
    #[must_use]
    pub fn is_member(&self, node: ComputeId, incarnation: u32) -> bool {
        self.0.pool.is_incarnation(ComputeIndex::new(node.index() as u16), incarnation)
    }

    /// Size of a global cache line in bytes: a page and its sequence number.
    pub fn gcl_bytes(&self) -> usize {
        self.0.cache.gcl_bytes()
    }

    /// Size of a page in bytes.
    pub fn page_bytes(&self) -> usize {
        self.0.cache.gcl_bytes() - PSN_BYTES
    }

    /// Pages that the cache holds.
    #[must_use]
    pub fn cache_frames(&self) -> usize {
        self.0.cache.frames.count()
    }

    /// Most pages that may be [beyond the cache](ExclusiveGuard::leave_cache).
    #[must_use]
    pub fn most_beyond_cache(&self) -> usize {
        self.0.cache.frames.most_beyond_cache()
    }

    /// The well-known page that is zero when the pool starts and never allocated: for a catalogue.
    pub fn superblock(&self) -> GAddr {
        GAddr::from_u64(self.0.cache.gcl_bytes() as u64)
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
        core.snapshots.add_to(core.telemetry.snapshot(&core.cache.frames))
    }

    /// At most `most` of the lines that this node misses or has to give up most often, of the 64
    /// that are counted; first those with the most events that are certainly theirs. How exactly,
    /// [`HotLine`] says.
    pub fn hottest(&self, most: usize) -> Vec<HotLine> {
        let top = self.0.telemetry.hottest.top(most).into_iter();
        let home = |addr| self.0.memory.placement.home(addr).map(|home| home.node);
        top.filter_map(|(addr, count, error)| {
            Some(HotLine { addr, home: home(addr)?, count, error })
        })
        .collect()
    }

    /// Lines with something under way, in words for a person who looks for what is stuck.
    pub fn active_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for shard in self.0.cache.all_shards() {
            for (addr, active) in shard.lock().iter() {
                let addr = GAddr::from_u64(*addr);
                let latch = active.frame.map(|id| self.0.cache.frames.get(id).latch.in_use());
                let (line, waiters) = (&active.line, &active.waiters);
                lines.push(format!("{addr}: latched by {latch:?}, {line:?}, waiters {waiters:?}"));
            }
        }
        lines
    }

    /// Bytes of memory that the cache takes beside the page data itself.
    pub fn overhead_bytes(&self) -> usize {
        self.0.cache.overhead_bytes()
    }

    /// Lines this node has leased or freed and not allocated: (fresh, reusable, on hold).
    pub fn unused_lines(&self) -> (u64, u64, u64) {
        self.0.allocator.unused(self.0.cache.gcl_bytes())
    }

    /// Lines that are leased and that any node may allocate: of nodes that are gone, or given to
    /// all. Reads the headers of all lines.
    ///
    /// # Errors
    /// The node's error, if it has failed.
    pub fn lines_for_all(&self) -> BoxFuture<'_, Result<Vec<GAddr>, EngineError>> {
        Box::pin(self.0.lines_for_all())
    }

    /// Counts the pool's lines, and makes those free that are neither in use nor free, unless
    /// `is_dry`: nodes that died may have left some. `used` are all pages that something leads to.
    /// This node is alone in the pool from then on ([`selkie_pool::Pool::begin_repair`]). Reads the
    /// headers of all lines.
    ///
    /// # Errors
    /// `Pool` if other nodes are in the pool; what cannot be read.
    pub fn repair_lines<'a>(
        &'a self,
        used: &'a HashSet<GAddr>,
        is_dry: bool,
    ) -> BoxFuture<'a, Result<LineCensus, EngineError>> {
        Box::pin(async move {
            self.0.config.check_writes()?;
            self.0.pool.begin_repair(self.0.index()).await?;
            self.0.census(used, is_dry).await
        })
    }

    /// Waits until this node's log is durable up to an LSN, and until it is known that no node had
    /// declared this node dead before: what it has read since may be old. Without a log, and for a
    /// node that only reads, the second alone. Nothing is waited for while the node's lease lasts
    /// and the log is durable.
    ///
    /// # Errors
    /// After the request timeout: `LeaseUncertain`, `LogTimeout`, or `Log` if the log cannot be
    /// written. It may still become durable later. The node's error as soon as the node has failed.
    pub async fn until_durable(&self, lsn: Lsn) -> Result<(), EngineError> {
        let Some(log) = &self.0.log else {
            if self.0.lifecycle.was_member_at(self.0.env.now()) {
                return self.0.lifecycle.check_failed();
            }
            return Box::pin(self.0.until_member()).await;
        };
        #[cfg(feature = "planted")]
        if self.0.config.planted == crate::Planted::EarlyCommit {
            self.0.write_log(log);
            return Ok(());
        }
        // Not a part of the future of every transaction.
        Box::pin(self.0.until_durable(log, lsn)).await
    }

    /// Waits until it is the caller's turn to make changes of `need` bytes, for which this node's
    /// log had no room; callers have their turns in the order of their calls. The caller should
    /// hold no latch and no reservation: a latched page cannot be written home, which would free
    /// room.
    ///
    /// # Errors
    /// After the request timeout: `Log` if it cannot be written, `LogTimeout` if it is full. The
    /// node's error as soon as the node has failed.
    pub fn until_room(&self, need: u64) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            let core = &self.0;
            match &core.log {
                Some(log) => {
                    let bound = core.config.request_timeout;
                    let need = (need, core.log_step());
                    log.until_turn(need, &core.lifecycle, &core.env, bound).await
                }
                None => Ok(()),
            }
        })
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

    /// The page, if it is cached and no other holder conflicts: no waiting, no round trip. `None`
    /// also while the node is suspended.
    #[inline]
    pub fn shared_hit(&self, addr: GAddr) -> Option<SharedGuard<'_>> {
        let guard = self.shared_if_cached(addr)?;
        self.0.telemetry.counters.hit();
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
        if core.lifecycle.is_suspended() {
            return None;
        }
        let id = core.cache.table.lookup(&core.cache.frames, addr)?;
        let frame = core.cache.frames.get(id);
        if !frame.latch.try_shared_fast() {
            return None;
        }
        let guard = SharedGuard::new(core, id);
        // The frame may have been given to another line since the lookup.
        (frame.addr() == addr).then_some(guard)
    }

    /// Whether the node still serves. No waiting, and no look at the pool: a node that was declared
    /// dead learns that within a lease.
    ///
    /// # Errors
    /// Why it serves nothing more: those for which [`EngineError::ends_node`].
    pub fn check_alive(&self) -> Result<(), EngineError> {
        self.0.lifecycle.check_alive()
    }

    /// Has other nodes wait no longer for a page that was to be
    /// [held](crate::SharedGuard::hold_for), if it is here.
    pub fn end_hold(&self, addr: GAddr) {
        let core = &*self.0;
        if let Some(id) = core.cache.table.lookup(&core.cache.frames, addr) {
            core.cache.frames.get(id).set_right_since(Duration::ZERO);
            core.notify(addr);
        }
    }

    /// As [`Engine::shared_hit`], to write.
    #[inline]
    pub fn exclusive_hit(&self, addr: GAddr) -> Option<ExclusiveGuard<'_>> {
        let core = &*self.0;
        if core.lifecycle.is_suspended() || core.log.as_ref().is_some_and(|log| log.is_full()) {
            return None;
        }
        let id = core.cache.table.lookup(&core.cache.frames, addr)?;
        let frame = core.cache.frames.get(id);
        if !frame.latch.try_exclusive_fast() {
            return None;
        }
        let guard = ExclusiveGuard::new(core, id);
        if frame.addr() != addr {
            return None;
        }
        core.telemetry.counters.hit();
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
            None => self.shared_slow(addr, WaitPolicy::AllHolders).await,
        }
    }

    /// As [`Engine::shared`], for a caller that changes the page soon after: a page that is not
    /// here is fetched with the right to write. That saves the round trip of the upgrade.
    ///
    /// # Errors
    /// As [`Engine::exclusive`].
    pub async fn shared_before_change(&self, addr: GAddr) -> Result<SharedGuard<'_>, EngineError> {
        match self.shared_hit(addr) {
            Some(guard) => Ok(guard),
            None => Ok(self.exclusive_slow(addr, WaitPolicy::AllHolders).await?.downgrade()),
        }
    }

    /// Latches the page exclusively; waits as [`Engine::shared`].
    ///
    /// # Errors
    /// As [`Engine::shared`].
    pub async fn exclusive(&self, addr: GAddr) -> Result<ExclusiveGuard<'_>, EngineError> {
        match self.exclusive_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.exclusive_slow(addr, WaitPolicy::AllHolders).await,
        }
    }

    /// Latches the page shared without waiting for latches. Still waits while the node is
    /// suspended, at most for the request timeout, and keeps the caller's other latches: `Busy`
    /// means that another holder uses the page, and a retry would fail until the node resumes.
    ///
    /// # Errors
    /// `Busy` if the page is latched exclusively, here or elsewhere; else as [`Engine::shared`].
    pub async fn try_shared(&self, addr: GAddr) -> Result<SharedGuard<'_>, EngineError> {
        match self.shared_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.shared_slow(addr, WaitPolicy::NoWait).await,
        }
    }

    /// Latches the page exclusively without waiting for latches. Waits as [`Engine::try_shared`].
    ///
    /// # Errors
    /// `Busy` if the page is latched, here or elsewhere; else as [`Engine::shared`].
    pub async fn try_exclusive(&self, addr: GAddr) -> Result<ExclusiveGuard<'_>, EngineError> {
        match self.exclusive_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.exclusive_slow(addr, WaitPolicy::NoWait).await,
        }
    }

    /// As [`Engine::shared`], for a caller that holds other latches, all taken in one order. It
    /// waits for nodes that live, and not for the end of a recovery, which may need the pages that
    /// the caller holds.
    ///
    /// # Errors
    /// `Busy` if a recovery is in the way; then the caller lets its latches go before it tries
    /// again. Else as [`Engine::shared`].
    pub async fn shared_in_order(&self, addr: GAddr) -> Result<SharedGuard<'_>, EngineError> {
        match self.shared_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.shared_slow(addr, WaitPolicy::LivingHolders).await,
        }
    }

    /// As [`Engine::shared_in_order`], exclusively.
    ///
    /// # Errors
    /// As [`Engine::shared_in_order`]; `LogFull` if the log has no room now, for the same reason.
    pub async fn exclusive_in_order(&self, addr: GAddr) -> Result<ExclusiveGuard<'_>, EngineError> {
        match self.exclusive_hit(addr) {
            Some(guard) => Ok(guard),
            None => self.exclusive_slow(addr, WaitPolicy::LivingHolders).await,
        }
    }

    fn shared_slow(
        &self,
        addr: GAddr,
        policy: WaitPolicy,
    ) -> BoxFuture<'_, Result<SharedGuard<'_>, EngineError>> {
        Box::pin(async move {
            let frame = self.0.acquire(addr, Access::Shared, policy).await?;
            Ok(SharedGuard::new(&self.0, frame))
        })
    }

    pub(crate) fn exclusive_slow(
        &self,
        addr: GAddr,
        policy: WaitPolicy,
    ) -> BoxFuture<'_, Result<ExclusiveGuard<'_>, EngineError>> {
        Box::pin(async move {
            let frame = self.0.acquire(addr, Access::Exclusive, policy).await?;
            Ok(ExclusiveGuard::new(&self.0, frame))
        })
    }

    /// Evicts this node's copy of a page, as if its frame were needed. On return its changes are
    /// home. Does nothing to a page that a local caller uses or waits for.
    ///
    /// # Errors
    /// `Timeout` if it takes longer than accesses may wait.
    pub fn evict(&self, addr: GAddr) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
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
        })
    }

    /// Adds to a counter, and returns its value before. One round trip; in a coded pool one more
    /// for each parity split, and the counter must not wrap.
    ///
    /// # Errors
    /// `BadAddress`, `ReadsOnly`, `Fabric`.
    pub fn fetch_add(&self, counter: GAddr, delta: u64) -> BoxFuture<'_, Result<u64, EngineError>> {
        Box::pin(async move {
            self.0.config.check_writes()?;
            self.0.add_to_copies(Counter::Line(counter), delta).await
        })
    }

    /// Advances the pool's logical clock by so many steps, and returns its value before. A pool has
    /// one clock, zero at first, which orders events across nodes: a value returned later, at any
    /// node, is greater, and no other caller was given the steps in between. The clock outlives
    /// memory nodes as counters do, but not the pool; where pages are [restored](Engine::restore)
    /// it goes on behind them. One round trip; in a coded pool one more for each parity split.
    ///
    /// # Errors
    /// `ReadsOnly`, `Timeout`, `Fabric`.
    pub fn advance_clock(&self, steps: u64) -> BoxFuture<'_, Result<u64, EngineError>> {
        Box::pin(async move {
            self.0.config.check_writes()?;
            self.0.add_to_copies(Counter::Clock, steps).await
        })
    }

    /// Advances the pool's logical clock to `least`, unless it is there already. As many round
    /// trips as [`advance_clock`](Engine::advance_clock), and more if others move it meanwhile.
    ///
    /// # Errors
    /// As [`advance_clock`](Engine::advance_clock).
    pub fn raise_clock(&self, least: u64) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            self.0.config.check_writes()?;
            self.0.change_copies(Counter::Clock, CounterChange::Raise(least)).await.map(drop)
        })
    }
}
