//! Restore: pages are put into a new pool at their old addresses.

use std::collections::BTreeMap;

use selkie_fabric::BoxFuture;
use selkie_pool::layout::EXTENT_GCLS;
use selkie_wal::{Change, Dirty, PSN_BYTES, psn_of};

use crate::access::engine::Engine;
use crate::addressing::allocator::FreeLine;
use crate::addressing::locations::Counter;
use crate::join::all_of;
use crate::{EngineError, GAddr, Stamp};

/// Pages that are written at the same time.
const AT_ONCE: usize = 64;

impl Engine {
    /// Puts lines, as [`Pages::into_lines`](super::Pages::into_lines) returns them, into a pool in
    /// which no page is allocated. Lines between them are free afterwards. A few round trips for
    /// each batch of pages. If the node has a log, it records the pages, too. Pages name what nodes
    /// kept by their incarnations: before its first compute node the pool must have gone on
    /// counting those ([`Pool::count_on`](selkie_pool::Pool::count_on)). So do stamps: `written_at`
    /// says that of the last change of a page, by its bytes behind the sequence number, and the
    /// pool's clock goes on behind all of them.
    ///
    /// # Errors
    /// `PoolFull` if the pool has too few addresses, `Config` if lines have another size or the
    /// pool is in use; else as [`Engine::exclusive`]. After an error the pool cannot be used.
    pub fn restore<'a>(
        &'a self,
        lines: &'a BTreeMap<GAddr, Box<[u8]>>,
        written_at: fn(&[u8]) -> Stamp,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        Box::pin(async move {
            let Some((last, _)) = lines.last_key_value() else { return Ok(()) };
            let core = self.core();
            if let Some(line) = lines.values().find(|line| line.len() != core.cache.gcl_bytes()) {
                let allowed = format!("the {} bytes of a line of the pool", core.cache.gcl_bytes());
                return Err(EngineError::Config { key: "line", value: line.len() as u64, allowed });
            }
            core.grow_to(*last).await?;
            let line_bytes = core.cache.gcl_bytes() as u64;
            for unit in 0..core.memory.placement.units() {
                let extents = (0..core.memory.placement.extents_of(unit)).map_while(|extent| {
                    let first = core.memory.placement.extent(unit, extent)?;
                    Some((extent, first, first.to_u64() + EXTENT_GCLS * line_bytes))
                });
                let used = |(_, first, end): &(u64, GAddr, u64)| {
                    lines.range(*first..GAddr::from_u64(*end)).next().is_some()
                };
                let all: Vec<_> = extents.collect();
                let Some(beyond) = all.iter().rposition(used).map(|last| last + 1) else {
                    continue;
                };
                let leased = core.add_to_copies(Counter::Leased(unit), beyond as u64).await?;
                if leased > 0 {
                    let allowed =
                        "none: pages are put back into a pool that no compute node has used"
                            .to_owned();
                    return Err(EngineError::Config {
                        key: "extents in use",
                        value: leased,
                        allowed,
                    });
                }
                for (_, first, end) in all.iter().take(beyond) {
                    let free =
                        (first.to_u64()..*end).step_by(core.cache.gcl_bytes()).map(GAddr::from_u64);
                    // The first two lines of a pool are the null address and the superblock.
                    let free = free.filter(|addr| addr.to_u64() >= 2 * line_bytes);
                    let free: Vec<_> = free.filter(|addr| !lines.contains_key(addr)).collect();
                    let marked = free.iter().map(|addr| FreeLine { addr: *addr, psn: 0 });
                    core.mark_lines(core.as_owner(), marked).await?;
                    core.allocator.adopt(free.into_iter());
                }
            }
            // A snapshot that was taken before would see none of them.
            let pages = lines.values().filter_map(|line| line.get(PSN_BYTES..));
            let latest = pages.map(written_at).max().unwrap_or_default();
            self.raise_clock(latest.get()).await?;
            let lines: Vec<_> = lines.iter().map(|(addr, line)| (*addr, &**line)).collect();
            for some in lines.chunks(AT_ONCE) {
                // Written home at once, because they would be lost with this node.
                let all = all_of(some.iter().map(|(addr, line)| core.put_home(*addr, line)));
                all.await.into_iter().collect::<Result<(), _>>()?;
                self.log_full_page_images(some).await?;
            }
            match &core.log {
                Some(log) => core.until_durable(log, log.end()).await,
                None => Ok(()),
            }
        })
    }

    /// Records lines that were written home, for a restore of another pool from the logs.
    async fn log_full_page_images(&self, lines: &[(GAddr, &[u8])]) -> Result<(), EngineError> {
        let core = self.core();
        let Some(log) = &core.log else { return Ok(()) };
        for (addr, line) in lines {
            let has = psn_of(line);
            // In the log the image is the change that led to this sequence number.
            let Some(psn) = has.checked_sub(1) else { continue };
            log.append_full_page_images(&[Change { addr: *addr, psn, pieces: Dirty::ALL, line }]);
        }
        log.until_room(&core.lifecycle, &core.env, core.config.request_timeout).await
    }
}
