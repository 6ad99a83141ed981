//! Allocation: lines from extents leased of the least loaded memory node, or range of a coded pool,
//! freed lines through an epoch.
//!
//! An extent is [`EXTENT_GCLS`] lines of one of them, leased by one fetch-and-add on its bump
//! counter, and marked as this node's by another round trip (`free_marks.rs`), so 63 of 64
//! allocations need none. Freed lines stay with the node that freed them, after the epoch has
//! passed, but for those that are more than it may keep, which are for all. A node that can lease
//! no extent looks for such lines (`adoption.rs`), and asks the others for more.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::{BoxFuture, Buf, Chain, FabricError, Verb};
use selkie_pool::PoolError;
use selkie_pool::layout::EXTENT_GCLS;

use super::allocator::{FreeLine, Grant};
use super::executed::word_at;
use super::locations::Counter;
use crate::access::engine::Engine;
use crate::access::guard::ExclusiveGuard;
use crate::core::Core;
use crate::{EngineError, GAddr};

/// The wait for the epoch of freed lines to pass: a multiple of the ticks that this takes.
const RIPENS_WITHIN: Duration = Duration::from_millis(250);
/// As much longer, if the others were asked for lines: they answer with their next ticks.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);
/// Each takes at most such a part of the request timeout: others wait for the latches of the
/// caller, one caller of this node after the other, and hold the pins that it waits for.
const WAITS_PER_TIMEOUT: u32 = 16;

impl Core {
    /// A line for the caller to use; a round trip when an extent has to be leased.
    pub(crate) async fn grant(&self, fresh_only: bool) -> Result<Grant, EngineError> {
        let gcl_bytes = self.cache.gcl_bytes() as u64;
        let started = self.env.now();
        let most = self.config.request_timeout / WAITS_PER_TIMEOUT;
        let (mut patience, mut has_asked) = (RIPENS_WITHIN.min(most), false);
        loop {
            // A node that leaves gives an extent back as soon as it has leased it.
            self.lifecycle.check_alive()?;
            if let Some(grant) = self.allocator.take(gcl_bytes, fresh_only) {
                return Ok(grant);
            }
            match self.lease_extent().await {
                Ok(()) => {}
                // Freed lines may only need their epoch to pass.
                Err(full @ EngineError::PoolFull { .. }) => {
                    // Mostly it does within some ticks. The caller's own pin may hold it back, and
                    // then it never does: its latches are not to be held for that.
                    let late = self.env.now() - started >= patience;
                    if fresh_only {
                        return Err(full);
                    }
                    if late {
                        let may_ripen = self.allocator.has_freed();
                        return Err(if may_ripen { EngineError::FreedInUse } else { full });
                    }
                    if !self.adopt_and_hold().await? && !has_asked {
                        if !self.ask_for_lines().await? {
                            return Err(full);
                        }
                        has_asked = true;
                        patience += ANSWERED_WITHIN.min(most);
                    }
                    // A node that closes moves no epochs; others wait for what the caller holds.
                    self.env.sleep(self.config.tick).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// After [`EngineError::FreedInUse`], waits until a freed line may be used again or none is
    /// left, for at most the request timeout. The caller holds no latch and no pin.
    pub(crate) async fn until_freed_is_released(&self) {
        let started = self.env.now();
        while self.allocator.waits_for_freed()
            && self.env.now() - started < self.config.request_timeout
            && self.lifecycle.check_alive().is_ok()
        {
            self.env.sleep(self.config.tick).await;
        }
    }

    /// Takes over lines that are for all. Whether a freed line can be had, now or once its epoch
    /// has passed.
    async fn adopt_and_hold(&self) -> Result<bool, EngineError> {
        let core = self.this.upgrade().ok_or(EngineError::Closed)?;
        self.in_a_task("adoption", async move {
            // What it has freed itself is there sooner.
            if !core.allocator.has_freed() {
                core.adopt_lines().await?;
            }
            Ok(core.allocator.has_freed())
        })
        .await
    }

    /// Leases an extent, in a task of its own: if the caller is dropped meanwhile, the next caller
    /// gets the extent.
    async fn lease_extent(&self) -> Result<(), EngineError> {
        let core = self.this.upgrade().ok_or(EngineError::Closed)?;
        self.in_a_task("extent lease", async move { core.lease_least_loaded().await }).await
    }

    /// Runs a task that gets lines for this node to its end, even if the caller is dropped. Lines
    /// that arrive after the node has closed are returned.
    async fn in_a_task<T: Clone + Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let core = self.this.upgrade().ok_or(EngineError::Closed)?;
        let outcome = Arc::new(Mutex::new(Err(EngineError::Closed)));
        let told = Arc::clone(&outcome);
        let task = self.spawn(name, async move {
            let done = task.await;
            let closed = core.lifecycle.is_closed();
            let given_back = if closed { core.leave_lines().await } else { Ok(()) };
            *told.lock() = given_back.and(done);
        });
        // A task that the environment ended leaves `Closed`; one that panicked has ended the node.
        let _ = task.join().await;
        self.lifecycle.check_panicked()?;
        outcome.lock().clone()
    }

    /// Leases the next extent of a unit. Its number may be beyond the last.
    async fn lease_from(&self, unit: usize) -> Result<u64, EngineError> {
        match self.add_to_copies(Counter::Leased(unit), 1).await {
            Ok(extent) => Ok(extent),
            // Its extents cannot be leased any more; other units have some.
            Err(EngineError::Fabric(FabricError::PeerDead { peer }))
                if peer != self.endpoint.id() =>
            {
                self.doubt_memory(peer);
                Ok(u64::MAX - 1)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes use of a range that a coded pool has got meanwhile, or has it get one; `false` if it
    /// can have no more.
    async fn grow(&self) -> Result<bool, EngineError> {
        let known = self.allocator.known_units();
        let started = self.env.now();
        // Not before all others know of it: they will meet its addresses. Nor more than all know
        // of, though another process may have added more.
        let noticed = loop {
            match self.pool.add_range(&self.env, known).await {
                Ok(Some(ranges)) => break ranges,
                Ok(None) => return Ok(false),
                // A control plane that is away for a while holds callers up and ends none.
                Err(PoolError::Control { source })
                    if source.is_retryable()
                        && self.env.now() - started < self.config.request_timeout =>
                {
                    self.env.sleep(self.config.tick).await;
                    self.lifecycle.check_alive()?;
                }
                Err(error) => return Err(error.into()),
            }
        };
        Ok(self.allocator.note_units(noticed) > known)
    }

    /// Has the pool have ranges up to that of an address.
    ///
    /// # Errors
    /// `PoolFull` if it can have no more.
    pub(crate) async fn grow_to(&self, addr: GAddr) -> Result<(), EngineError> {
        while self.memory.placement.home(addr).is_none() {
            if self.memory.coded.is_none() || !self.grow().await? {
                return Err(self.pool_full());
            }
        }
        Ok(())
    }

    /// Leases an extent of the unit with the fewest leased, as far as this node knows.
    async fn lease_least_loaded(&self) -> Result<(), EngineError> {
        loop {
            let extents_of = |unit| self.memory.placement.extents_of(unit);
            let candidate = self.allocator.least_leased(self.me.index(), extents_of);
            let Some(unit) = candidate else {
                if self.memory.coded.is_some() && self.grow().await? {
                    continue;
                }
                return Err(self.pool_full());
            };
            let extent = self.lease_from(unit).await?;
            let gcl_bytes = self.cache.gcl_bytes() as u64;
            let lines = self.memory.placement.extent(unit, extent).map(|first| {
                // The first two lines of the pool are the null address and the superblock.
                let next = first.to_u64().max(2 * gcl_bytes);
                next..first.to_u64() + EXTENT_GCLS * gcl_bytes
            });
            self.allocator.note_leased(unit, extent);
            if let Some(lines) = lines {
                self.mark_extent(lines.clone()).await?;
                self.allocator.take_over(lines);
                return Ok(());
            }
        }
    }

    /// Puts a page that is freed on hold, with its line.
    pub(crate) fn hold_freed(&self, mut page: ExclusiveGuard<'_>) {
        let line = FreeLine { addr: page.addr(), psn: page.psn_after() };
        drop(page);
        // The change that took away what led to the page is in the log by now.
        let lsn = self.log.as_ref().map_or(0, |log| log.end());
        self.allocator.hold(line, self.epochs.current(), lsn);
    }

    pub(super) fn extent_bytes(&self) -> u64 {
        EXTENT_GCLS * self.cache.gcl_bytes() as u64
    }

    fn pool_full(&self) -> EngineError {
        let extent = self.extent_bytes();
        let used = self.allocator.leased_extents(|unit| self.memory.placement.extents_of(unit));
        EngineError::PoolFull { used: used * extent, capacity: self.memory.placement.capacity() }
    }
}

impl Engine {
    /// Bytes of all extents of the pool that are leased to compute nodes, whether in use or not. A
    /// round trip to every memory node, or to one for each range of a coded pool, one after the
    /// other.
    ///
    /// # Errors
    /// `Fabric`.
    pub fn leased_bytes(&self) -> BoxFuture<'_, Result<u64, EngineError>> {
        Box::pin(async move {
            let core = self.core();
            let mut extents = 0;
            for unit in 0..core.memory.placement.units() {
                let counters = core.memory.placement.copies(Counter::Leased(unit));
                let counters = counters.map(|copies| copies.places).unwrap_or_default();
                let living = counters.iter().find(|(node, _)| !core.pool.is_memory_dead(*node));
                let Some((node, at)) = living.or(counters.first()) else { continue };
                let chain = Chain::from([Verb::read(*at, Buf::zeroed(8))]);
                let done = core.memory.queue_pair(*node).post(chain).await.map_err(|e| e.error)?;
                let leased = word_at(&done, 0);
                // The counter runs on when a unit is full.
                extents += leased.min(core.memory.placement.extents_of(unit));
            }
            Ok(extents * core.pool.descriptor().geometry().extent_bytes())
        })
    }
}
