//! The logs in memory of a pool, as a store.

use std::sync::{Arc, Weak};

use selkie_fabric::BoxFuture;
use selkie_wal::ring::{HEAD_BYTES, check_kept, kept_from, ring_place};
use selkie_wal::{
    LogEnd, LogError, LogOwner, LogRange, LogStore, Lsn, NoRecord, Piece, ReadError, Record, Sink,
    scan,
};

use super::rings::{copies_of, failed};
use super::sink::MemorySink;
use crate::core::Core;
use crate::error::EngineError;

/// Request timeouts for which a node waits for recoveries to be over before it begins its log.
const RECOVERIES: u32 = 6;

/// The logs of a pool, as one of its nodes sees them.
#[derive(Debug)]
pub(in crate::log) struct MemoryLogs(Weak<Core>);

impl MemoryLogs {
    pub(in crate::log) fn new(core: Weak<Core>) -> Self {
        Self(core)
    }

    fn core(&self) -> Result<Arc<Core>, LogError> {
        self.0.upgrade().ok_or_else(|| failed("use", "the pool's logs", EngineError::Closed))
    }
}

impl LogStore for MemoryLogs {
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        Box::pin(async move {
            let core = self.core()?;
            let place = || format!("compute node {}'s log", owner.node);
            if core.pool.descriptor().log_bytes == 0 {
                let why = "the pool was made without room for logs (log_bytes)";
                return Err(failed("keep", place(), why));
            }
            // Of a node that died and had this node's name the log is needed until then.
            let (started, bound) = (core.env.now(), RECOVERIES * core.config.request_timeout);
            let is_over = || core.pool.lost().is_empty() || core.env.now() - started > bound;
            core.wait_until(is_over).await.map_err(|error| failed("begin", place(), error))?;
            if !core.pool.lost().is_empty() {
                let why = format!("recoveries are not over after {bound:?}");
                return Err(failed("begin", place(), why));
            }
            let sink = MemorySink::begin(&core, owner).await?;
            Ok(Arc::new(sink) as Arc<dyn Sink>)
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            let copies = copies_of(&*self.core()?, owner).await?;
            Ok(kept_from(owner, &copies)?.into_iter().collect())
        })
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let copies = copies_of(&core, owner).await?;
            let mut bytes = Vec::new();
            let mut keep = |record: Record<'_>| bytes.extend_from_slice(record.bytes());
            let _ = core.read_copies(owner, &copies, (start, None), &mut keep).await?;
            let place = ring_place(owner, copies.first().map_or(0, |(memory, _)| *memory));
            Ok(Piece { place, offset: HEAD_BYTES + start % core.ring_bytes(), bytes })
        })
    }

    fn read<'a>(
        &'a self,
        owner: LogOwner,
        part: LogRange,
        visit: &'a mut (dyn FnMut(Record<'_>) + Send),
    ) -> BoxFuture<'a, Result<Option<LogEnd>, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let copies = copies_of(&core, owner).await?;
            let Some(start) = kept_from(owner, &copies)? else { return Ok(None) };
            let part = (part.from.unwrap_or(start), part.to);
            core.read_copies(owner, &copies, part, visit).await.map(Some)
        })
    }

    fn split_points(
        &self,
        owner: LogOwner,
        parts: usize,
    ) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let copies = copies_of(&core, owner).await?;
            let (Some(start), Some((memory, _))) = (kept_from(owner, &copies)?, copies.first())
            else {
                return Ok(Vec::new());
            };
            // One that cannot be read, or is damaged, is cut in no parts.
            Ok(core
                .split_points_of_ring((owner, *memory), start, parts as u64)
                .await
                .unwrap_or_default())
        })
    }

    fn read_range(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let length = length.min(core.ring_bytes());
            let (mut best, mut last_error) = (None, None);
            for (memory, _) in copies_of(&core, owner).await? {
                let place = ring_place(owner, memory);
                let bytes = match core.read_ring(owner, memory, from, length).await {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        last_error = Some(failed("read", &place, error));
                        continue;
                    }
                };
                // One that is a copy no more ends early.
                let end = match Record::decode(&bytes, from, owner.format()) {
                    Ok(_) => scan(&bytes, from, owner.format(), |_| ()).map_or(from + 1, |e| e.lsn),
                    // It begins here, and is longer.
                    Err(NoRecord::CutOff) => from + 1,
                    Err(_) => from,
                };
                if best.as_ref().is_none_or(|(most, _)| end > *most) {
                    let offset = HEAD_BYTES + from % core.ring_bytes();
                    best = Some((end, Piece { place, offset, bytes }));
                }
            }
            // What was given up is there until it is overwritten, and a record says itself where it
            // belongs. Where there is none the heads, which come before what overwrites, say
            // whether there was one.
            if best.as_ref().is_none_or(|(end, _)| *end == from) {
                check_kept(owner, from, &copies_of(&core, owner).await?)?;
            }
            let none = || failed("find", ring_place(owner, 0), "no copy is left");
            best.map(|(_, piece)| piece).ok_or_else(|| last_error.unwrap_or_else(none).into())
        })
    }

    fn remove(&self, _: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        // The next node of the name overwrites it.
        Box::pin(async { Ok(()) })
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
