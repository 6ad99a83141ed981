//! Logs in memory of memory nodes: for each compute node that may register a ring at each of them, of which those of r + 1
//! are used, so that a log is lost when the pages are.
//!
//! ```text
//!  0   u64  MAGIC
//!  8   u64  the pool's name for itself
//! 16   u32  the compute node
//! 20   u32  its incarnation
//! 24   u32  bytes of a line
//! 28   u32  CRC-32C of what comes before and of the start
//! 32   u64  start: from where the log is kept (LSN)
//! 64   the same once more: they are written in turn, so that one of them is whole
//! 4096 ring: what lies at an LSN lies that many bytes on, going round
//! ```
//! Little-endian throughout; each log is as long as the pool says. An append writes to all the rings at once and is over when
//! it is in place at each: two round trips where the log goes round, else one. What is overwritten was given up before, and
//! the headers said so first.
//!
//! A memory node that died is replaced by another, which gets what is kept from one that is left; until it has, there is a
//! copy less. If none is left the pages are lost as well, but for those of a pool without redundancy that lie elsewhere:
//! the log begins anew then, and what was in it only is made again from no log.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use selkie_fabric::{BoxFuture, Buf, Chain, Verb};

use super::record::Lsn;
use super::scan::scan;
use super::store::{FIRST_LSN, LogError, LogOwner, LogStore, Piece, ReadError, Sink, Written};
use crate::EngineError;
use crate::coding::checksum;
use crate::coding::placed::placed;
use crate::core::Core;
use crate::service::all_of;

const MAGIC: u64 = u64::from_le_bytes(*b"SELKIEm\x01");
/// Bytes before the ring.
const HEAD_BYTES: u64 = 4096;
/// Bytes of a head, and from one to the other.
const SAID_BYTES: usize = 40;
const HEAD_STRIDE: usize = 64;
/// Bytes that are read from a ring, or copied to another, at a time.
const AT_ONCE: u64 = 1 << 20;

/// The logs of a pool, as one of its nodes sees them.
#[derive(Debug)]
pub(super) struct MemoryLogs(Weak<Core>);

impl MemoryLogs {
    pub(super) fn new(core: Weak<Core>) -> Self {
        Self(core)
    }

    fn core(&self) -> Result<Arc<Core>, LogError> {
        self.0.upgrade().ok_or_else(|| failed("use", "the pool's logs", EngineError::Closed))
    }
}

fn failed(what: &'static str, place: impl Into<PathBuf>, error: impl ToString) -> LogError {
    LogError::new(what, place, io::Error::other(error.to_string()))
}

fn place_of(owner: LogOwner, memory: usize) -> PathBuf {
    format!("the log of compute node {} at memory node {memory}", owner.node).into()
}

fn head(owner: LogOwner, start: Lsn) -> [u8; SAID_BYTES] {
    let LogOwner { pool, node, incarnation, line_bytes } = owner;
    let mut bytes = [0; SAID_BYTES];
    let words =
        [MAGIC, pool, u64::from(node) | u64::from(incarnation) << 32, u64::from(line_bytes)];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words.into_iter().chain([start])) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    // With its own place taken as zero.
    let sum = checksum(&bytes);
    if let Some(place) = bytes.get_mut(28..32) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// From where a log is kept, if this is the head of its ring.
fn start_of(owner: LogOwner, bytes: &[u8]) -> Option<Lsn> {
    let start = Lsn::from_le_bytes(*bytes.get(32..SAID_BYTES)?.first_chunk()?);
    (bytes.get(..SAID_BYTES)? == head(owner, start)).then_some(start)
}

impl Core {
    /// Bytes of the ring of a log.
    fn ring_bytes(&self) -> u64 {
        self.pool.descriptor().geometry().log_bytes().saturating_sub(HEAD_BYTES)
    }

    /// Memory nodes whose memory is there.
    fn living_memory(&self) -> Vec<usize> {
        (0..self.memory_nodes()).filter(|node| !self.pool.is_memory_dead(*node)).collect()
    }

    async fn read_head(&self, owner: LogOwner, memory: usize) -> Result<Option<Lsn>, EngineError> {
        let offset = self.pool.descriptor().geometry().log_offset(usize::from(owner.node));
        let read = Verb::read(self.memory_at(memory, offset)?, Buf::zeroed(2 * HEAD_STRIDE));
        match self.queue_pair(memory).post(Chain::from(read)).await {
            Ok(chain) => {
                let heads = chain.buf(0).map(|heads| heads.chunks(HEAD_STRIDE));
                let starts = heads.into_iter().flatten().filter_map(|head| start_of(owner, head));
                Ok(starts.max())
            }
            Err(error) => self.gone(error.error).await.map(|()| None),
        }
    }

    async fn write_head(
        &self,
        owner: LogOwner,
        memory: usize,
        (start, number): (Lsn, u64),
    ) -> Result<(), EngineError> {
        let offset = self.pool.descriptor().geometry().log_offset(usize::from(owner.node));
        let at = self.memory_at(memory, offset + number % 2 * HEAD_STRIDE as u64)?;
        let write = placed(at, Buf::copy_of(&head(owner, start)));
        self.queue_pair(memory).post(write).await.map(drop).map_err(|error| error.error.into())
    }

    /// Writes records where they belong in the ring.
    async fn write_ring(
        &self,
        owner: LogOwner,
        memory: usize,
        at: Lsn,
        bytes: &[u8],
    ) -> Result<(), EngineError> {
        let own =
            self.pool.descriptor().geometry().log_offset(usize::from(owner.node)) + HEAD_BYTES;
        let from = at % self.ring_bytes();
        let before_end = bytes.len().min((self.ring_bytes() - from) as usize);
        let (first, rest) = bytes.split_at(before_end);
        let stretches = [(own + from, first), (own, rest)];
        for (offset, bytes) in stretches.into_iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let write = placed(self.memory_at(memory, offset)?, Buf::copy_of(bytes));
            self.queue_pair(memory).post(write).await.map_err(|error| error.error)?;
        }
        Ok(())
    }

    /// Reads so many bytes of the ring from where `at` lies.
    async fn read_ring(
        &self,
        owner: LogOwner,
        memory: usize,
        at: Lsn,
        length: u64,
    ) -> Result<Vec<u8>, EngineError> {
        let own =
            self.pool.descriptor().geometry().log_offset(usize::from(owner.node)) + HEAD_BYTES;
        let (ring, mut bytes) = (self.ring_bytes(), Vec::with_capacity(length as usize));
        while (bytes.len() as u64) < length {
            let from = (at + bytes.len() as u64) % ring;
            let some = AT_ONCE.min(ring - from).min(length - bytes.len() as u64);
            let read = Verb::read(self.memory_at(memory, own + from)?, Buf::zeroed(some as usize));
            let posted = self.queue_pair(memory).post(Chain::from(read)).await;
            let done = posted.map_err(|error| error.error)?;
            bytes.extend_from_slice(done.buf(0).map(|buf| &**buf).unwrap_or_default());
        }
        Ok(bytes)
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
            // Of one who died and had this node's name the log is needed until then.
            let over = core.until(|| core.pool.lost().is_empty()).await;
            over.map_err(|error| failed("begin", place(), error))?;
            let sink = MemorySink {
                core: Weak::clone(&self.0),
                owner,
                ring_bytes: core.ring_bytes(),
                start: AtomicU64::new(FIRST_LSN),
                heads: AtomicU64::new(0),
                copies: Mutex::default(),
                gone: Mutex::default(),
            };
            sink.complete(&core, FIRST_LSN).await?;
            Ok(Arc::new(sink) as Arc<dyn Sink>)
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let starts = copies_of(&core, owner).await?;
            Ok(starts.into_iter().map(|(_, start)| start).max().into_iter().collect())
        })
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let mut piece = None;
            for (memory, _) in copies_of(&core, owner).await? {
                let place = place_of(owner, memory);
                let read = core.read_ring(owner, memory, start, core.ring_bytes()).await;
                let bytes = read.map_err(|error| failed("read", &place, error))?;
                let offset = HEAD_BYTES + start % core.ring_bytes();
                // Another copy may be whole.
                let is_whole = scan(&bytes, start, owner.format(), |_| ()).is_ok();
                let own = Piece { place, offset, bytes };
                if is_whole {
                    return Ok(own);
                }
                piece.get_or_insert(own);
            }
            piece.ok_or_else(|| failed("find", place_of(owner, 0), "no copy is left").into())
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

/// The memory nodes that have a log, each with where it begins there.
async fn copies_of(core: &Core, owner: LogOwner) -> Result<Vec<(usize, Lsn)>, LogError> {
    let mut copies = Vec::new();
    for memory in core.living_memory() {
        let read = core.read_head(owner, memory).await;
        let start = read.map_err(|error| failed("read", place_of(owner, memory), error))?;
        copies.extend(start.map(|start| (memory, start)));
    }
    Ok(copies)
}

/// A log that is being written.
struct MemorySink {
    core: Weak<Core>,
    owner: LogOwner,
    ring_bytes: u64,
    start: AtomicU64,
    /// Heads that were written.
    heads: AtomicU64,
    /// The memory nodes that have it, all of it.
    copies: Mutex<Vec<usize>>,
    /// Those that died while they had it.
    gone: Mutex<Vec<usize>>,
}

impl MemorySink {
    /// Sees to it that r + 1 memory nodes have the log up to `end`, or as many as there are.
    async fn complete(&self, core: &Core, end: Lsn) -> Result<(), LogError> {
        let wanted = core.pool.descriptor().coding.parity() + 1;
        let mut living = core.living_memory();
        living.retain(|node| !self.gone.lock().contains(node));
        let copies: Vec<usize> = {
            let mut copies = self.copies.lock();
            copies.retain(|node| living.contains(node));
            copies.clone()
        };
        if copies.len() >= wanted {
            return Ok(());
        }
        let first = usize::from(self.owner.node) % living.len().max(1);
        let others = living.iter().cycle().skip(first).take(living.len());
        let others = others.filter(|node| !copies.contains(node)).take(wanted - copies.len());
        for memory in others {
            let start = match copies.first() {
                Some(from) => self.copy(core, (*from, *memory), end).await,
                None => Ok(end),
            };
            let failed = |error| failed("begin", place_of(self.owner, *memory), error);
            let start = start.map_err(failed)?;
            for number in 0..2 {
                core.write_head(self.owner, *memory, (start, number)).await.map_err(failed)?;
            }
            if copies.is_empty() && end > FIRST_LSN {
                tracing::error!(end, "no copy of the log is left: it begins anew");
            }
            self.start.fetch_max(start, Ordering::Relaxed);
            self.copies.lock().push(*memory);
        }
        Ok(())
    }

    /// Copies what is kept from one ring to another; from where that is.
    async fn copy(
        &self,
        core: &Core,
        (from, to): (usize, usize),
        end: Lsn,
    ) -> Result<Lsn, EngineError> {
        let start = self.start.load(Ordering::Relaxed);
        let mut at = start;
        while at < end {
            let some = AT_ONCE.min(end - at);
            let bytes = core.read_ring(self.owner, from, at, some).await?;
            core.write_ring(self.owner, to, at, &bytes).await?;
            at += some;
        }
        Ok(start)
    }

    /// Does the same at all copies; those that died are copies no more.
    async fn at_all<F: Future<Output = Result<(), EngineError>>>(
        &self,
        core: &Core,
        what: &'static str,
        work: impl Fn(usize) -> F,
    ) -> Result<(), LogError> {
        let copies = self.copies.lock().clone();
        let all = all_of(copies.iter().map(|memory| work(*memory))).await;
        for (memory, done) in copies.into_iter().zip(all) {
            let Err(error) = done else { continue };
            let place = place_of(self.owner, memory);
            let EngineError::Fabric(lost) = error else { return Err(failed(what, place, error)) };
            // A copy that cannot be reached, and is not dead, would be an old one.
            core.gone(lost).await.map_err(|error| failed(what, place, error))?;
            self.copies.lock().retain(|own| *own != memory);
            self.gone.lock().push(memory);
        }
        Ok(())
    }

    async fn write(&self, at: Lsn, bytes: &[u8]) -> Result<(), LogError> {
        let gone = || failed("write", place_of(self.owner, 0), EngineError::Closed);
        let core = self.core.upgrade().ok_or_else(gone)?;
        let end = at + bytes.len() as u64;
        let kept = end - self.start.load(Ordering::Relaxed);
        if kept > self.ring_bytes {
            let what =
                format!("{kept} bytes are to be kept, and there is room for {}", self.ring_bytes);
            return Err(failed("write", place_of(self.owner, 0), what));
        }
        self.complete(&core, at).await?;
        let core = &*core;
        let write = |memory| core.write_ring(self.owner, memory, at, bytes);
        self.at_all(core, "write", write).await?;
        // Whoever replaces one that is gone gets these as well.
        self.complete(core, end).await
    }
}

impl Sink for MemorySink {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            let result = self.write(at, &bytes).await;
            Written { bytes, result }
        })
    }

    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        Box::pin(async move {
            let Some(core) = self.core.upgrade() else { return Ok(lsn) };
            let core = &*core;
            let number = self.heads.fetch_add(1, Ordering::Relaxed);
            let say = |memory| core.write_head(self.owner, memory, (lsn, number));
            self.at_all(core, "cut", say).await?;
            self.start.fetch_max(lsn, Ordering::Relaxed);
            Ok(lsn)
        })
    }

    fn capacity(&self) -> u64 {
        self.ring_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_of_one_log() {
        let owner = LogOwner { pool: 77, node: 3, incarnation: 2, line_bytes: 2048 };
        let bytes = head(owner, 4711);
        assert_eq!(start_of(owner, &bytes), Some(4711));
        for other in [
            LogOwner { pool: 78, ..owner },
            LogOwner { node: 4, ..owner },
            LogOwner { incarnation: 3, ..owner },
            LogOwner { line_bytes: 4096, ..owner },
        ] {
            assert_eq!(start_of(other, &bytes), None);
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[at] ^= 4;
            assert_eq!(start_of(owner, &flipped), None, "byte {at}");
        }
        assert_eq!(start_of(owner, &[0; SAID_BYTES]), None);
        assert_eq!(start_of(owner, &bytes[..20]), None);
    }
}
