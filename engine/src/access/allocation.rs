//! Pages and counters from the pool, and back to it.

use selkie_fabric::BoxFuture;

use super::acquire::Access;
use super::waiters::WaitPolicy;
use crate::access::guard::ExclusiveGuard;
use crate::core::Core;
use crate::{Engine, EngineError, GAddr};

impl Engine {
    /// A new page, zero, latched exclusively. Does not wait for room in the log: the caller may
    /// have latched pages for whose sake the log is kept, and then waits for itself.
    ///
    /// # Errors
    /// `PoolFull`, `FreedInUse`; else as [`Engine::shared`]. On an error or a dropped future
    /// nothing is leaked.
    pub fn allocate(&self) -> BoxFuture<'_, Result<ExclusiveGuard<'_>, EngineError>> {
        Box::pin(async move {
            self.0.config.check_writes()?;
            loop {
                let grant = Taken { core: &self.0, grant: Some(self.0.grant(false).await?) };
                let (addr, reused) = grant.parts();
                let mut guard = match self.latch_allocated(addr).await {
                    // A line that cannot be latched for good is leaked: each node has finitely
                    // many.
                    Err(EngineError::PageLost { .. } | EngineError::PageDamaged { .. }) => {
                        grant.used();
                        continue;
                    }
                    guard => guard?,
                };
                if reused {
                    let bytes = guard.len();
                    guard.bytes_mut(0..bytes).fill(0);
                } else {
                    // The page of a line in use never has the number of the line's mark.
                    guard.mark_changed();
                }
                grant.used();
                return Ok(guard);
            }
        })
    }

    /// After [`EngineError::FreedInUse`], waits until a page can be allocated again, or until that
    /// no longer depends on pages in use; no longer than
    /// [`request_timeout`](crate::EngineConfig::request_timeout). The caller has given up its
    /// latches and pins: other operations, which hold pins, may wait for them.
    pub async fn until_freed_is_released(&self) {
        self.0.until_freed_is_released().await;
    }

    async fn latch_allocated(&self, addr: GAddr) -> Result<ExclusiveGuard<'_>, EngineError> {
        if let Some(guard) = self.exclusive_hit(addr) {
            return Ok(guard);
        }
        let frame = self.0.latch(addr, Access::Exclusive, WaitPolicy::AllHolders).await?;
        Ok(ExclusiveGuard::new(&self.0, frame))
    }

    /// Returns the page to the pool. It keeps its bytes for readers with old pointers, and
    /// is reused once every pin held now, at any node, is gone. Does not wait.
    pub fn free(&self, page: ExclusiveGuard<'_>) {
        self.0.hold_freed(page);
    }

    /// A new 8-byte counter, zero, on a line of its own that must never be latched as a page.
    ///
    /// # Errors
    /// `PoolFull`, `ReadsOnly`, `Fabric`.
    pub fn allocate_counter(&self) -> BoxFuture<'_, Result<GAddr, EngineError>> {
        Box::pin(async move {
            self.0.config.check_writes()?;
            // Only a line that no cache has ever held: a late write-back would overwrite the
            // counter.
            let counter = Taken { core: &self.0, grant: Some(self.0.grant(true).await?) };
            let (addr, _) = counter.parts();
            // From here on the line is no page, whatever becomes of it.
            counter.used();
            self.0.mark_as_counter(addr).await?;
            if self.0.memory.coded.is_some() {
                self.0.mark_counter(addr).await?;
            }
            Ok(addr)
        })
    }
}

/// A line taken from the allocator, put back unless it is used.
struct Taken<'e> {
    core: &'e Core,
    grant: Option<crate::addressing::allocator::Grant>,
}

impl Taken<'_> {
    fn parts(&self) -> (GAddr, bool) {
        self.grant.as_ref().map_or((GAddr::NULL, false), |g| (g.addr, g.psn.is_some()))
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
