//! Lines that nothing leads to: neither in use nor free, for all or for a node. A node that is
//! alone in its pool finds them, if it is told which lines are in use, and makes them free.
//!
//! That a line is free stands in its header, and what this node has freed itself stands there some
//! time later. So the node first waits until all of that is marked: a line that looked leaked
//! meanwhile would be freed twice, and then be two pages of the same address.

use std::collections::{BTreeSet, HashSet};

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_pool::layout::{FREE_MARK_AT, FreeMark, HEADER_BYTES, LATCH_AT};

use super::adoption::Piece;
use super::executed::{found_at, into_read};
use super::locations::Counter;
use crate::access::acquire::Access;
use crate::access::guard::{ExclusiveGuard, SharedGuard};
use crate::access::waiters::WaitPolicy;
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord};
use crate::core::Core;
use crate::{EngineError, GAddr};

/// What a pool's lines are, as [`crate::Engine::repair_lines`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCensus {
    /// Lines of leased extents.
    pub leased: u64,
    /// Of those, in use: pages that something leads to, and counters.
    pub in_use: u64,
    /// Free: any node may have them, or this one.
    pub free: u64,
    /// Neither. They are free now, unless this was only to be told.
    pub leaked: u64,
    /// Of those, pages that were lost with a node that died, and to which nothing leads any more.
    pub lost: u64,
}

impl Core {
    /// Counts the pool's lines, and makes those free that are leaked, unless `is_dry`. `used` are
    /// the pages in use. This node must be alone in the pool.
    pub(crate) async fn census(
        &self,
        used: &HashSet<GAddr>,
        is_dry: bool,
    ) -> Result<LineCensus, EngineError> {
        self.until_freed_is_marked().await?;
        let leased = self.leased_extents().await?;
        let least = 2 * self.cache.gcl_bytes() as u64;
        let is_leased = |addr: &GAddr| {
            // The first two lines are the null address and the superblock.
            addr.to_u64() >= least && leased.contains(&(addr.to_u64() / self.extent_bytes()))
        };
        let mut census = LineCensus::default();
        let (mut lost_for_good, before) = (BTreeSet::new(), self.pool.state().rebuilds_begun);
        for piece in self.pieces() {
            let headers = self.headers_of(&piece).await?;
            let marked = self.marked_of(&piece, &headers, |_| true);
            let free = self.unused_of(&piece.table, marked, false).await?;
            let free: HashSet<GAddr> = free.into_iter().map(|(addr, _)| addr).collect();
            for (header, word, mark) in headers {
                let addr = self.memory.placement.addr_of(&piece.table, header);
                let Some(addr) = addr.filter(is_leased) else { continue };
                census.leased += 1;
                let is_lost = word.holder() == Ok(Some(ComputeId::LOST));
                if is_lost {
                    lost_for_good.insert(addr.to_u64());
                }
                if used.contains(&addr) || FreeMark::is_counter(mark) {
                    census.in_use += 1;
                } else if free.contains(&addr) || self.is_free_here(addr, word, mark).await? {
                    census.free += 1;
                } else {
                    census.leaked += 1;
                    census.lost += u64::from(is_lost);
                    if !is_dry {
                        self.free_leaked(addr, is_lost).await?;
                        lost_for_good.remove(&addr.to_u64());
                    }
                }
            }
            // Not all of them in the lists of this node: most are for all.
            self.mark_freed().await?;
        }
        if !self.pool.state().abandoned_ranges.is_empty() {
            self.pool.remember_abandoned(&lost_for_good, before).await?;
        }
        Ok(census)
    }

    /// Waits until the headers of all lines that were freed here say so. Pins are not waited for:
    /// they keep lines from being used again, and not from being marked.
    ///
    /// # Errors
    /// `FreedUnmarked` after the request timeout; those of a log that cannot be written.
    async fn until_freed_is_marked(&self) -> Result<(), EngineError> {
        if let Some(log) = &self.log {
            // Nothing leads to them once this is durable.
            self.until_durable(log, log.end()).await?;
        }
        let started = self.env.now();
        loop {
            match self.mark_freed().await {
                // Headers are being made anew.
                Ok(()) | Err(EngineError::Busy { .. }) => {}
                failed => return failed,
            }
            let lines = self.allocator.unmarked();
            if lines == 0 {
                return Ok(());
            }
            let waited = self.env.now() - started;
            let left = self.config.request_timeout.saturating_sub(waited);
            if left.is_zero() {
                let rebuilt = self.pool.state().rebuilds.first().map(|rebuild| rebuild.memory);
                return Err(EngineError::FreedUnmarked { lines, rebuilt, waited });
            }
            self.env.sleep(self.config.tick.min(left)).await;
            self.lifecycle.check_alive()?;
        }
    }

    /// Whether a line is marked as free whose page this node has still, or is writing home.
    async fn is_free_here(
        &self,
        addr: GAddr,
        word: LatchWord,
        mark: u64,
    ) -> Result<bool, EngineError> {
        let Some(mark) = FreeMark::from_word(mark) else { return Ok(false) };
        if word.holder() != Ok(Some(self.me)) {
            return Ok(false);
        }
        let frame = self.acquire(addr, Access::Shared, WaitPolicy::AllHolders).await?;
        Ok(SharedGuard::new(self, frame).psn() == mark.psn)
    }

    /// The numbers of all leased extents, in the order of addresses.
    async fn leased_extents(&self) -> Result<HashSet<u64>, EngineError> {
        let mut extents = HashSet::new();
        for unit in 0..self.memory.placement.units() {
            let leased = self.add_to_copies(Counter::Leased(unit), 0).await?;
            let own = 0..leased.min(self.memory.placement.extents_of(unit));
            let first = own.filter_map(|extent| self.memory.placement.extent(unit, extent));
            extents.extend(first.map(|addr| addr.to_u64() / self.extent_bytes()));
        }
        Ok(extents)
    }

    /// The headers of a piece: number, latch word and mark.
    pub(super) async fn headers_of(
        &self,
        piece: &Piece,
    ) -> Result<Vec<(u64, LatchWord, u64)>, EngineError> {
        let Piece { table, first, count } = piece;
        let at = RemoteAddr::new(table.at.region, table.at.offset + first * HEADER_BYTES);
        let read = Verb::read(at, Buf::zeroed((count * HEADER_BYTES) as usize));
        let read = self.memory.queue_pair(table.node).post(Chain::from(read)).await;
        let headers = into_read(read.map_err(|failed| failed.error)?);
        let words = headers.words().chunks((HEADER_BYTES / 8) as usize);
        let word = |words: &[u64], at: u64| {
            words.get((at / 8) as usize).map_or(0, |word| u64::from_le(*word))
        };
        Ok((*first..)
            .zip(words)
            .map(|(header, words)| {
                let latch = LatchWord::from_bits(word(words, LATCH_AT));
                (header, latch, word(words, FREE_MARK_AT))
            })
            .collect())
    }

    /// Makes a line this node's, as if it had freed it.
    async fn free_leaked(&self, addr: GAddr, is_lost: bool) -> Result<(), EngineError> {
        if is_lost {
            self.renew_lost(addr).await?;
        }
        let frame = self.acquire(addr, Access::Exclusive, WaitPolicy::AllHolders).await?;
        let mut page = ExclusiveGuard::new(self, frame);
        page.mark_changed();
        self.hold_freed(page);
        Ok(())
    }

    /// Makes a line usable again that was lost for good: its bytes are any that it had before.
    pub(crate) async fn renew_lost(&self, addr: GAddr) -> Result<(), EngineError> {
        let Some(home) = self.memory.placement.home(addr) else { return Ok(()) };
        let mut word = LatchWord::held_by(ComputeId::LOST);
        while word.holder() == Ok(Some(ComputeId::LOST)) {
            let free = word.add(LatchDelta::remove_holder(ComputeId::LOST));
            let swap = Verb::compare_and_swap(home.latch, word.bits(), free.bits());
            let done = self.memory.queue_pair(home.node).post(Chain::from(swap)).await;
            let old = found_at(&done.map_err(|failed| failed.error)?, 0);
            if old == word.bits() {
                break;
            }
            word = LatchWord::from_bits(old);
        }
        Ok(self.pool.forget_abandoned(&[addr.to_u64()]).await?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that meets something else has failed")]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use selkie_fabric::env::RealRuntime;
    use selkie_fabric::mem::MemFabric;
    use selkie_fabric::{Fabric, PeerId};
    use selkie_memnode::EmbeddedPool;
    use selkie_pool::PoolConfig;

    use crate::log::Lsn;
    use crate::{ComputeId, Engine, EngineConfig, EngineError};

    const GCL: usize = 512;
    const PATIENCE: Duration = Duration::from_millis(300);

    /// What is waited for in vain, for the one line that was freed.
    fn refused(found: Result<(), EngineError>) -> (Option<u16>, String) {
        let error = found.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        let EngineError::FreedUnmarked { lines: 1, rebuilt, waited } = error else {
            panic!("{error:?}")
        };
        assert!(waited >= PATIENCE && waited < 100 * PATIENCE, "{waited:?}");
        (rebuilt, error.to_string())
    }

    #[test]
    fn what_keeps_freed_lines_from_being_marked_is_named() {
        let (runtime, mem) = (RealRuntime::new(2).unwrap(), MemFabric::new());
        let fabric: Arc<dyn Fabric> = Arc::clone(&mem) as Arc<dyn Fabric>;
        let config = PoolConfig {
            memory_nodes: 4,
            bytes_per_node: 8 << 20,
            gcl_bytes: GCL,
            range_bytes: 256 << 10,
            max_compute_nodes: 2,
            coding: "2+1".parse().unwrap(),
            log_bytes: 0,
        };
        let memory = EmbeddedPool::start(&fabric, config).unwrap();
        runtime.block_on(async {
            let (pool, node) = (memory.pool(), ComputeId::new(0).unwrap());
            let config = EngineConfig {
                cache_bytes: EngineConfig::min_cache_bytes(GCL),
                request_timeout: PATIENCE,
                tick: Duration::from_millis(1),
                ..EngineConfig::default()
            };
            let engine = Engine::start(pool, &fabric, &runtime.env(), node, config).await.unwrap();
            let core = engine.core();

            // One who follows addresses is no reason to wait.
            let pin = engine.pin();
            engine.free(engine.allocate().await.unwrap());
            core.until_freed_is_marked().await.unwrap();
            drop(pin);

            // Another task writes the mark, and does not get on.
            let page = engine.allocate().await.unwrap();
            let marking = {
                engine.free(page);
                core.allocator.to_be_marked(Lsn::MAX, 1, 0)
            };
            let (rebuilt, said) = refused(core.until_freed_is_marked().await);
            assert!(rebuilt.is_none() && said.contains("are slow"), "{said}");
            drop(marking);
            core.until_freed_is_marked().await.unwrap();

            // Headers are made anew, which waits for who has begun to use them.
            let page = engine.allocate().await.unwrap();
            let using = core.memory.quiesced.unlatched.begin();
            mem.kill(PeerId::memory(2));
            pool.declare_memory_dead(2).await.unwrap();
            engine.free(page);
            let (rebuilt, said) = refused(core.until_freed_is_marked().await);
            assert_eq!(rebuilt, Some(2));
            assert!(said.contains("the headers of mem2 are being made anew"), "{said}");
            drop(using);
            let until = runtime.env().now() + 200 * PATIENCE;
            while core.until_freed_is_marked().await.is_err() {
                assert!(runtime.env().now() < until, "{:?}", pool.rebuilds());
            }
            engine.close().await.unwrap();
        });
    }
}
