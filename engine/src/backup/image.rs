//! Reading every page in use, a bounded number at a time, into a log of full-page images.

use std::sync::atomic::{AtomicBool, Ordering};

use selkie_pool::layout::EXTENT_GCLS;
use selkie_wal::{Change, Dirty, FIRST_LSN, LogObjects, LogStore, Sink, encode_as, psn_of};

use super::append::append;
use super::error::BackupError;
use super::manifest::{Image, image_of};
use super::progress::Watch;
use crate::access::engine::Engine;
use crate::addressing::locations::Counter;
use crate::core::Core;
use crate::join::all_of;
use crate::{EngineError, GAddr};

/// Pages that are read at the same time.
const AT_ONCE: usize = 64;
/// Bytes of records from which on they are written as an object.
const OBJECT_BYTES: usize = 16 << 20;
/// Attempts to latch a page that another caller uses for long.
const TRIES: u32 = 3;

/// Lines that a compute node has leased.
struct Extent {
    first: GAddr,
    lines: u64,
}

/// A backup that is being made.
pub(super) struct BackupTask<'t> {
    pub(super) engine: &'t Engine,
    pub(super) to: &'t LogObjects,
    /// Nothing more is to be read, or it is of no use.
    pub(super) is_over: AtomicBool,
}

impl Core {
    /// All lines that may be pages. Those that are leased from now on are changed
    /// later.
    async fn extents_in_use(&self) -> Result<Vec<Extent>, EngineError> {
        let mut extents = Vec::new();
        for unit in 0..self.memory.placement.units() {
            let leased = self.add_to_copies(Counter::Leased(unit), 0).await?;
            let used = 0..leased.min(self.memory.placement.extents_of(unit));
            extents.extend(
                used.map_while(|extent| self.memory.placement.extent(unit, extent))
                    .map(|first| Extent { first, lines: EXTENT_GCLS }),
            );
        }
        Ok(extents)
    }
}

impl BackupTask<'_> {
    /// A line as all see it.
    async fn line_now(&self, addr: GAddr) -> Result<Vec<u8>, EngineError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.engine.shared(addr).await {
                Ok(page) => return Ok(page.line().to_vec()),
                Err(error) if error.is_retryable() && tries < TRIES => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Adds those lines to the records that were ever changed.
    async fn read_lines(
        &self,
        addrs: &[GAddr],
        (image, records): (&mut Image, &mut Vec<u8>),
        salt: u32,
    ) -> Result<(), EngineError> {
        let lines = all_of(addrs.iter().map(|addr| self.line_now(*addr))).await;
        for (addr, line) in addrs.iter().zip(lines) {
            let line = line?;
            let has = psn_of(&line);
            // To a log it is the change that made the page what it is.
            let Some(psn) = has.checked_sub(1) else { continue };
            let at = image.end + records.len() as u64;
            let change = Change { addr: *addr, psn, pieces: Dirty::ALL, line: &line };
            encode_as(records, salt, (at, image.end), (&[change], true));
            image.pages += 1;
        }
        Ok(())
    }

    /// Reads all pages; writes them as it goes.
    pub(super) async fn read_image(&self, watch: &dyn Watch) -> Result<Image, BackupError> {
        let core = self.engine.core();
        let owner = image_of(core.pool.state().id, core.cache.gcl_bytes());
        let sink = self.to.create(owner).await?;
        let extents = core.extents_in_use().await?;
        let (mut done, total) = (0, extents.iter().map(|extent| extent.lines).sum());
        let mut image = Image { pages: 0, bytes: 0, end: FIRST_LSN };
        let mut records = Vec::with_capacity(OBJECT_BYTES + OBJECT_BYTES / 8);
        for Extent { first, lines } in extents {
            let addrs: Vec<GAddr> = (0..lines)
                .map(|line| GAddr::from_u64(first.to_u64() + line * core.cache.gcl_bytes() as u64))
                .filter(|addr| !addr.is_null())
                .collect();
            for some in addrs.chunks(AT_ONCE) {
                if self.is_over.load(Ordering::Relaxed) {
                    return Ok(image);
                }
                self.read_lines(some, (&mut image, &mut records), owner.format().salt).await?;
            }
            if records.len() >= OBJECT_BYTES {
                records = self.write_records(&*sink, &mut image, records).await?;
            }
            done += lines;
            watch.at(done, total);
        }
        self.write_records(&*sink, &mut image, records).await?;
        Ok(image)
    }

    /// Writes what has gathered; the buffer, empty.
    async fn write_records(
        &self,
        sink: &dyn Sink,
        image: &mut Image,
        records: Vec<u8>,
    ) -> Result<Vec<u8>, BackupError> {
        let length = records.len() as u64;
        let mut records = append(self.engine.core(), sink, image.end, records).await?;
        (image.bytes, image.end) = (image.bytes + length, image.end + length);
        records.clear();
        Ok(records)
    }
}
