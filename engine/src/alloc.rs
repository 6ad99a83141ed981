//! Allocation: lines from extents leased of the least loaded memory node, or range of a coded pool,
//! freed lines through an epoch.
//!
//! An extent is [`EXTENT_GCLS`] lines of one of them, leased by one fetch-and-add on its bump
//! counter, so 63 of 64 allocations need no round trip. Freed lines stay with the node that freed
//! them, after the epoch has passed, and go to the pool's list when the node leaves.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::FabricError;
use selkie_memnode::layout::EXTENT_GCLS;

use crate::core::Core;
use crate::placement::Counter;
use crate::{EngineError, GAddr};

/// How long it is waited for the epoch of freed lines to pass: a multiple of the ticks that takes.
const RIPENS_WITHIN: Duration = Duration::from_millis(250);
/// Freed lines taken over from the pool at once.
const ADOPT_LINES: usize = 64;

/// Lines of an extent that are not allocated yet.
struct Extent {
    next: u64,
    end: u64,
}

#[derive(Default)]
struct State {
    extents: Vec<Extent>,
    /// Freed lines that may be used again.
    free: Vec<GAddr>,
    /// Freed lines and the epoch they were freed in, oldest first.
    limbo: VecDeque<(GAddr, u64)>,
    /// Extents leased of each memory node, as last seen.
    leased: Vec<u64>,
}

/// A node's share of the pool's free lines.
pub(crate) struct Allocator(Mutex<State>);

/// A line to be allocated.
pub(crate) struct Grant {
    pub(crate) addr: GAddr,
    /// It was in use before, so its bytes are not zero.
    pub(crate) reused: bool,
}

impl Allocator {
    pub(crate) fn new(memory_nodes: usize) -> Allocator {
        Allocator(Mutex::new(State { leased: vec![0; memory_nodes], ..State::default() }))
    }

    /// Puts a freed line on hold until everybody who may still look at it has gone.
    pub(crate) fn hold(&self, addr: GAddr, epoch: u64) {
        self.0.lock().limbo.push_back((addr, epoch));
    }

    /// Puts back a line that was taken but not used.
    pub(crate) fn put_back(&self, grant: Grant) {
        let mut state = self.0.lock();
        if grant.reused {
            state.free.push(grant.addr);
        } else {
            state.extents.push(Extent { next: grant.addr.to_u64(), end: grant.addr.to_u64() + 1 });
        }
    }

    /// Takes lines over that nobody uses and nobody has used.
    pub(crate) fn adopt(&self, lines: impl Iterator<Item = GAddr>) {
        let line = |addr: GAddr| Extent { next: addr.to_u64(), end: addr.to_u64() + 1 };
        self.0.lock().extents.extend(lines.map(line));
    }

    pub(crate) fn has_limbo(&self) -> bool {
        !self.0.lock().limbo.is_empty()
    }

    /// Whether lines were freed here and not allocated again, ripe or not: looked at together, as
    /// they ripen at any time.
    fn has_freed(&self) -> bool {
        let state = self.0.lock();
        !(state.limbo.is_empty() && state.free.is_empty())
    }

    /// Releases the lines freed at least two epochs before `published`, the oldest of all nodes.
    pub(crate) fn ripen(&self, published: u64) {
        let mut state = self.0.lock();
        while let Some((addr, epoch)) = state.limbo.front().copied() {
            if epoch + 2 > published {
                break;
            }
            state.limbo.pop_front();
            state.free.push(addr);
        }
    }

    /// Lines this node has leased or freed and not allocated: (fresh, reusable, on hold).
    pub(crate) fn unused(&self, gcl_bytes: usize) -> (u64, u64, u64) {
        let state = self.0.lock();
        let fresh: u64 =
            state.extents.iter().map(|e| (e.end - e.next).div_ceil(gcl_bytes as u64)).sum();
        (fresh, state.free.len() as u64, state.limbo.len() as u64)
    }

    fn fresh(state: &mut State, gcl_bytes: u64) -> Option<Grant> {
        let extent = state.extents.last_mut()?;
        let addr = GAddr::from_u64(extent.next);
        extent.next += gcl_bytes;
        if extent.next >= extent.end {
            state.extents.pop();
        }
        Some(Grant { addr, reused: false })
    }

    /// A freed line, else a fresh one, without a round trip.
    fn take(&self, gcl_bytes: u64, fresh_only: bool) -> Option<Grant> {
        let mut state = self.0.lock();
        if !fresh_only && let Some(addr) = state.free.pop() {
            return Some(Grant { addr, reused: true });
        }
        Self::fresh(&mut state, gcl_bytes)
    }

    /// Everything unused, when the node leaves.
    fn drain(&self, gcl_bytes: u64) -> Vec<u64> {
        let mut state = self.0.lock();
        let mut lines: Vec<u64> = state.free.drain(..).map(GAddr::to_u64).collect();
        lines.extend(state.limbo.drain(..).map(|(addr, _)| addr.to_u64()));
        while let Some(grant) = Self::fresh(&mut state, gcl_bytes) {
            lines.push(grant.addr.to_u64());
        }
        lines
    }
}

impl Core {
    /// A line for the caller to use; a round trip when an extent has to be leased.
    pub(crate) async fn grant(&self, fresh_only: bool) -> Result<Grant, EngineError> {
        let gcl_bytes = self.gcl_bytes as u64;
        let started = self.env.now();
        loop {
            if let Some(grant) = self.allocator.take(gcl_bytes, fresh_only) {
                return Ok(grant);
            }
            match self.lease_extent().await {
                Ok(()) => {}
                // Freed lines may only need their epoch to pass.
                Err(full @ EngineError::PoolFull { .. }) => {
                    // Mostly it does within some ticks. The caller's own pin may hold it back, and
                    // then it never does: its latches are not to be held for that.
                    let late = self.env.now() - started >= RIPENS_WITHIN;
                    if fresh_only || late || !self.adopt_and_hold().await? {
                        return Err(full);
                    }
                    self.env.sleep(self.config.tick).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes over lines that nodes gave back when they left, to be held for an epoch as they may
    /// have been freed just before. Whether a freed line can be had, now or once its epoch has
    /// passed.
    async fn adopt_and_hold(&self) -> Result<bool, EngineError> {
        let core = self.this.upgrade().ok_or(EngineError::Closed)?;
        self.in_a_task("adoption", async move {
            let lines = core.pool.adopt(ADOPT_LINES).await?;
            let epoch = core.epochs.current();
            for line in lines {
                core.allocator.hold(GAddr::from_u64(line), epoch);
            }
            Ok(core.allocator.has_freed())
        })
        .await
    }

    /// Leases an extent, in a task of its own: a caller that goes away meanwhile leaves the extent
    /// to the next one.
    async fn lease_extent(&self) -> Result<(), EngineError> {
        let core = self.this.upgrade().ok_or(EngineError::Closed)?;
        self.in_a_task("extent lease", async move { core.lease_least_loaded().await }).await
    }

    /// Runs to its end what gets lines for this node, even if the caller goes away. Lines that come
    /// when the node has closed go back.
    async fn in_a_task<T: Clone + Send + 'static>(
        &self,
        name: &'static str,
        task: impl Future<Output = Result<T, EngineError>> + Send + 'static,
    ) -> Result<T, EngineError> {
        let core = self.this.upgrade().ok_or(EngineError::Closed)?;
        let outcome = Arc::new(Mutex::new(Err(EngineError::Closed)));
        let told = Arc::clone(&outcome);
        let task = self.env.spawn(name, async move {
            let done = task.await;
            let closed = core.closed.load(Ordering::Relaxed);
            let given_back = if closed { core.give_lines_back().await } else { Ok(()) };
            *told.lock() = given_back.and(done);
        });
        // A task that the environment cut short leaves `Closed`.
        let _ = task.join().await;
        outcome.lock().clone()
    }

    /// Gives every unused line to the pool: this node allocates no more.
    pub(crate) async fn give_lines_back(&self) -> Result<(), EngineError> {
        let lines = self.allocator.drain(self.gcl_bytes as u64);
        let given = self.pool.donate(&lines).await;
        if given.is_err() {
            // They stay this node's, for whoever tries again.
            self.allocator.0.lock().free.extend(lines.into_iter().map(GAddr::from_u64));
        }
        Ok(given?)
    }

    /// Counts an extent of a unit as leased; which one, or one that there is not.
    async fn lease_from(&self, unit: usize) -> Result<u64, EngineError> {
        match self.add_to_copies(Counter::Leased(unit), 1).await {
            Ok(extent) => Ok(extent),
            // What it has is not to be had any more; the others have more.
            Err(EngineError::Fabric(FabricError::PeerDead { peer }))
                if peer != self.endpoint.id() =>
            {
                Ok(u64::MAX - 1)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes use of a range that a coded pool has got meanwhile, or has it get one; `false` if it
    /// can have no more.
    async fn grow(&self) -> Result<bool, EngineError> {
        let known = self.allocator.0.lock().leased.len();
        // Not before all others know of it: they will meet its addresses.
        if !self.pool.add_range(&self.env, known).await? {
            return Ok(false);
        }
        let mut state = self.allocator.0.lock();
        let units = self.placement.units().max(state.leased.len());
        state.leased.resize(units, 0);
        Ok(units > known)
    }

    /// Has the pool have ranges up to that of an address.
    ///
    /// # Errors
    /// `PoolFull` if it can have no more.
    pub(crate) async fn grow_to(&self, addr: GAddr) -> Result<(), EngineError> {
        while self.placement.home(addr).is_none() {
            if self.coded.is_none() || !self.grow().await? {
                return Err(self.pool_full());
            }
        }
        Ok(())
    }

    /// Leases an extent of the unit with the fewest leased, as far as this node knows.
    async fn lease_least_loaded(&self) -> Result<(), EngineError> {
        loop {
            let candidate = {
                let state = self.allocator.0.lock();
                let open =
                    |(node, leased): &(usize, &u64)| **leased < self.placement.extents_of(*node);
                // Ties are broken by the node's own number, so that nodes start on different ones.
                let nodes = state.leased.len();
                let turn = |node: usize| (node + nodes - self.me.index() % nodes) % nodes;
                let least = state.leased.iter().enumerate().filter(open);
                least.min_by_key(|(node, leased)| (**leased, turn(*node))).map(|(node, _)| node)
            };
            let Some(unit) = candidate else {
                if self.coded.is_some() && self.grow().await? {
                    continue;
                }
                return Err(self.pool_full());
            };
            let extent = self.lease_from(unit).await?;
            let mut state = self.allocator.0.lock();
            if let Some(leased) = state.leased.get_mut(unit) {
                *leased = extent.saturating_add(1);
            }
            if let Some(first) = self.placement.extent(unit, extent) {
                let end = first.to_u64() + EXTENT_GCLS * self.gcl_bytes as u64;
                // The first two lines of the pool are the null address and the superblock.
                let next = first.to_u64().max(2 * self.gcl_bytes as u64);
                state.extents.push(Extent { next, end });
                return Ok(());
            }
        }
    }

    fn pool_full(&self) -> EngineError {
        let extent = EXTENT_GCLS * self.gcl_bytes as u64;
        let state = self.allocator.0.lock();
        let leased = state.leased.iter().enumerate();
        let used: u64 = leased.map(|(node, l)| (*l).min(self.placement.extents_of(node))).sum();
        EngineError::PoolFull { used: used * extent, capacity: self.placement.capacity() }
    }
}
