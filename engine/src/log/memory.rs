//! Logs in memory of memory nodes: for each compute node that may register a ring at each of them,
//! of which those of r + 1 are used, so that a log is lost when the pages are.
//!
//! ```text
//!  0   u64  MAGIC
//!  8   u64  the pool's name for itself
//! 16   u32  the compute node
//! 20   u32  its incarnation
//! 24   u32  bytes of a line
//! 28   u32  CRC-32C of what comes before and after
//! 32   u64  start: from where the log is kept (LSN)
//! 40   u64  from where it was begun anew, as all copies had been lost, until what comes before is home; 0: it was not
//! 64   the same once more: they are written in turn, so that one of them is whole
//! 4096 ring: what lies at an LSN lies that many bytes on, going round
//! ```
//! Little-endian throughout; each log is as long as the pool says. An append writes to all the
//! rings at once and is over when it is in place at each: two round trips where the log goes round,
//! else one. What is overwritten was given up before, and the headers said so first.
//!
//! A memory node that died is replaced by another, which gets what is kept from one that is left;
//! until it has, there is a copy less. If none is left the log begins anew, and says so: until all
//! that was changed before is home, nothing is made again from it.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use selkie_fabric::{BoxFuture, Buf, Chain, Verb};
use selkie_pool::control::PoolState;

use super::MAX_WAITING_BYTES;
use super::record::{HEADER_BYTES, Lsn, NoRecord, Record};
use super::scan::{LogDamage, LogEnd, scan};
use super::store::{
    FIRST_LSN, LogError, LogOwner, LogStore, Part, Piece, ReadError, Sink, Written,
};
use crate::EngineError;
use crate::coding::placed::placed;
use crate::core::Core;
use crate::join::all_of;
use selkie_pool::checksum;

const MAGIC: u64 = u64::from_le_bytes(*b"SELKIEm\x01");
/// Request timeouts for which a node waits for recoveries to be over before it begins its log.
const RECOVERIES: u32 = 6;
/// Bytes before the ring.
const HEAD_BYTES: u64 = 4096;
/// Bytes of a head, and from one to the other.
const SAID_BYTES: usize = 48;
const HEAD_STRIDE: usize = 64;
/// Bytes that are read from a ring, or copied to another, at a time.
const AT_ONCE: u64 = 1 << 20;
/// The same where records are looked at as they come: what was read is still in the processor's
/// cache then.
const SCANNED_AT_ONCE: u64 = 64 << 10;
/// A log that is shorter is read in one go.
const LEAST_CUT: u64 = 64 << 10;
/// So far a record is looked for where one should be.
const LOOKED_FOR: u64 = 256 << 10;
/// Whether a log goes on behind something that is no record shows within so many bytes: what is
/// made when this was durable comes behind what was written with it, and what waited meanwhile, and
/// who has pages already may go beyond that bound.
const WITNESSED: u64 = 3 * MAX_WAITING_BYTES as u64;

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

/// From where a log is kept, and from where it was begun anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    start: Lsn,
    anew: Lsn,
}

fn head(owner: LogOwner, kept: Kept) -> [u8; SAID_BYTES] {
    let LogOwner { pool, node, incarnation, line_bytes } = owner;
    let mut bytes = [0; SAID_BYTES];
    let words =
        [MAGIC, pool, u64::from(node) | u64::from(incarnation) << 32, u64::from(line_bytes)];
    for (to, word) in
        bytes.chunks_exact_mut(8).zip(words.into_iter().chain([kept.start, kept.anew]))
    {
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
fn kept_of(owner: LogOwner, bytes: &[u8]) -> Option<Kept> {
    let said = bytes.get(..SAID_BYTES)?;
    let word = |at: usize| Some(Lsn::from_le_bytes(*said.get(at..)?.first_chunk()?));
    let kept = Kept { start: word(32)?, anew: word(40)? };
    (said == head(owner, kept)).then_some(kept)
}

impl Core {
    /// Bytes of the ring of a log.
    fn ring_bytes(&self) -> u64 {
        self.pool.descriptor().geometry().log_bytes().saturating_sub(HEAD_BYTES)
    }

    /// Memory nodes whose memory is there.
    fn living_memory(&self) -> Vec<usize> {
        (0..self.memory.node_count()).filter(|node| !self.pool.is_memory_dead(*node)).collect()
    }

    /// Those that are to stay.
    fn staying_memory(&self) -> Vec<usize> {
        let state = self.pool.state();
        let stays = |node: &usize| u16::try_from(*node).is_ok_and(|node| state.stays(node));
        self.living_memory().into_iter().filter(stays).collect()
    }

    async fn read_head(&self, owner: LogOwner, memory: usize) -> Result<Option<Kept>, EngineError> {
        let offset = self.pool.descriptor().geometry().log_offset(usize::from(owner.node));
        let read = Verb::read(self.memory.at(memory, offset)?, Buf::zeroed(2 * HEAD_STRIDE));
        match self.memory.queue_pair(memory).post(Chain::from(read)).await {
            Ok(chain) => {
                let heads = chain.buf(0).map(|heads| heads.chunks(HEAD_STRIDE));
                let kept = heads.into_iter().flatten().filter_map(|head| kept_of(owner, head));
                Ok(kept.max())
            }
            Err(error) => self.gone(error.error).await.map(|()| None),
        }
    }

    async fn write_head(
        &self,
        owner: LogOwner,
        memory: usize,
        (kept, number): (Kept, u64),
    ) -> Result<(), EngineError> {
        let offset = self.pool.descriptor().geometry().log_offset(usize::from(owner.node));
        let at = self.memory.at(memory, offset + number % 2 * HEAD_STRIDE as u64)?;
        let write = placed(at, Buf::copy_of(&head(owner, kept)));
        self.memory
            .queue_pair(memory)
            .post(write)
            .await
            .map(drop)
            .map_err(|error| error.error.into())
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
            let write = placed(self.memory.at(memory, offset)?, Buf::copy_of(bytes));
            self.memory.queue_pair(memory).post(write).await.map_err(|error| error.error)?;
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
        let mut bytes = Vec::with_capacity(length as usize);
        self.read_on(owner, memory, (at, at + length), &mut bytes, &mut None).await?;
        Ok(bytes)
    }

    /// Appends the bytes of the ring between two places to others. What they are read into is left
    /// for the next time.
    async fn read_on(
        &self,
        owner: LogOwner,
        memory: usize,
        (mut at, end): (Lsn, Lsn),
        bytes: &mut Vec<u8>,
        spare: &mut Option<Buf>,
    ) -> Result<(), EngineError> {
        let own =
            self.pool.descriptor().geometry().log_offset(usize::from(owner.node)) + HEAD_BYTES;
        let ring = self.ring_bytes();
        while at < end {
            let from = at % ring;
            let some = AT_ONCE.min(ring - from).min(end - at);
            let into = spare.take().filter(|buf| buf.len() == some as usize);
            let into = into.unwrap_or_else(|| Buf::zeroed(some as usize));
            let read = Verb::read(self.memory.at(memory, own + from)?, into);
            let posted = self.memory.queue_pair(memory).post(Chain::from(read)).await;
            let done = posted.map_err(|error| error.error)?;
            *spare = done.verbs.into_iter().find_map(Verb::into_buf);
            bytes.extend_from_slice(spare.as_deref().unwrap_or_default());
            at += some;
        }
        Ok(())
    }
}

impl Core {
    /// Shows `visit` all records from `start` on, perhaps only up to where another begins, and
    /// reads no more than they take and what tells that no more follow: a copy to its end, and on
    /// with another that has more. Copies differ in what was written last, and one that is damaged,
    /// or whose memory node dies, is as good as others up to there.
    async fn read_copies(
        &self,
        owner: LogOwner,
        copies: &[(usize, Kept)],
        (start, to): (Lsn, Option<Lsn>),
        visit: &mut (dyn FnMut(Record<'_>) + Send),
    ) -> Result<LogEnd, ReadError> {
        let mut at = start;
        let mut copies: Vec<usize> = copies.iter().map(|(memory, _)| *memory).collect();
        // What those have behind it that have no more.
        let mut ends: Vec<(usize, _)> = Vec::new();
        let is_left =
            |memory: &usize, ends: &[(usize, _)]| ends.iter().all(|(ended, _)| ended != memory);
        while let Some(memory) = copies.iter().copied().find(|memory| is_left(memory, &ends)) {
            let (before, to) = (at, to.unwrap_or(start + self.ring_bytes()));
            let end = self.follow(owner, memory, (&mut at, to), visit).await;
            if at > before {
                ends.clear();
            }
            match end {
                Ok(end) => ends.push((memory, end)),
                Err(error) => {
                    let failed = |error| failed("read", place_of(owner, memory), error);
                    let EngineError::Fabric(lost) = error else { return Err(failed(error).into()) };
                    // One that cannot be reached, and is not dead, may have more.
                    self.gone(lost).await.map_err(failed)?;
                    copies.retain(|own| *own != memory);
                }
            }
        }
        let mut last = None;
        for (memory, end) in ends {
            // Where one has what was made later, others lack it.
            let at = HEAD_BYTES + at % self.ring_bytes();
            let damaged =
                |damage| ReadError::Damaged { place: place_of(owner, memory), at, damage };
            last = Some(end.map_err(damaged)?);
        }
        Ok(last.ok_or_else(|| failed("find", place_of(owner, 0), "no copy is left"))?)
    }

    /// Finds where records begin that cut what a ring has into parts of about the same length.
    async fn cut_ring(
        &self,
        ring: (LogOwner, usize),
        start: Lsn,
        parts: u64,
    ) -> Result<Vec<Lsn>, EngineError> {
        // Records say where they are, so what has one is before the log's end.
        let (mut there, mut beyond) = (start, start + self.ring_bytes());
        while beyond - there > SCANNED_AT_ONCE {
            let middle = there + (beyond - there) / 2;
            match self.record_from(ring, middle).await? {
                Some(found) => there = found,
                None => beyond = middle,
            }
        }
        let mut cuts = Vec::new();
        if there - start >= LEAST_CUT {
            for part in 1..parts {
                cuts.extend(self.record_from(ring, start + (there - start) * part / parts).await?);
            }
        }
        cuts.dedup();
        Ok(cuts)
    }

    /// The first record of a ring that begins soon after a place.
    async fn record_from(
        &self,
        (owner, memory): (LogOwner, usize),
        from: Lsn,
    ) -> Result<Option<Lsn>, EngineError> {
        let from = from.next_multiple_of(8);
        let bytes = self.read_ring(owner, memory, from, LOOKED_FOR).await?;
        let format = owner.format();
        let mut places = (0..bytes.len()).step_by(8);
        Ok(places.find_map(|at| {
            let (rest, lsn) = (bytes.get(at..)?, from + at as u64);
            Record::decode(rest, lsn, format).ok().map(|_| lsn)
        }))
    }

    /// Shows `visit` the records of a copy from `at` on, and no further than `to`; how they end.
    /// `at` is moved behind those that were shown, also if the rest cannot be read.
    async fn follow(
        &self,
        owner: LogOwner,
        memory: usize,
        (at, to): (&mut Lsn, Lsn),
        visit: &mut (dyn FnMut(Record<'_>) + Send),
    ) -> Result<Result<LogEnd, LogDamage>, EngineError> {
        let (mut bytes, mut spare, format) = (Vec::new(), None, owner.format());
        loop {
            let mut used = 0;
            let why = loop {
                let rest = bytes.get(used..).unwrap_or_default();
                match Record::decode(rest, *at + used as u64, format) {
                    Ok(record) => {
                        used += record.bytes().len();
                        visit(record);
                    }
                    Err(why) => break why,
                }
            };
            bytes.drain(..used);
            *at += used as u64;
            let read_to = *at + bytes.len() as u64;
            // What is cut off is read to its end.
            let goes_on = matches!(why, NoRecord::End | NoRecord::CutOff);
            let more = to.saturating_sub(read_to).min(SCANNED_AT_ONCE);
            if !goes_on || more == 0 {
                let lsn = *at;
                let until = to.min(lsn + WITNESSED);
                let witness = self.witness(owner, memory, (lsn, until)).await?;
                return Ok(witness.map_or(Ok(LogEnd { lsn, then: why }), |(witness, durable)| {
                    Err(LogDamage { lsn, why, witness, durable })
                }));
            }
            self.read_on(owner, memory, (read_to, read_to + more), &mut bytes, &mut spare).await?;
        }
    }

    /// A whole record of a copy between two places, made when more was durable than comes before
    /// the first of them; where it is, and up to where that was.
    async fn witness(
        &self,
        owner: LogOwner,
        memory: usize,
        (from, until): (Lsn, Lsn),
    ) -> Result<Option<(Lsn, Lsn)>, EngineError> {
        let (mut at, mut bytes, mut spare) = (from, Vec::new(), None);
        let format = owner.format();
        while at < until {
            // As much more as tells whether one begins at the end of that.
            let end = (at + SCANNED_AT_ONCE + HEADER_BYTES as u64).min(until);
            bytes.clear();
            self.read_on(owner, memory, (at, end), &mut bytes, &mut spare).await?;
            for place in (0..bytes.len()).step_by(8) {
                let (rest, lsn) = (bytes.get(place..).unwrap_or_default(), at + place as u64);
                let Some(length) = Record::length_at(rest, lsn) else { continue };
                let length = length.min(until - lsn);
                let whole;
                let rest = if length as usize > rest.len() {
                    whole = self.read_ring(owner, memory, lsn, length).await?;
                    &whole
                } else {
                    rest
                };
                let record = Record::decode(rest, lsn, format).ok();
                if let Some(record) = record.filter(|record| record.durable() > from) {
                    return Ok(Some((lsn, record.durable())));
                }
            }
            at += SCANNED_AT_ONCE;
        }
        Ok(None)
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
            let (started, bound) = (core.env.now(), RECOVERIES * core.config.request_timeout);
            let is_over = || core.pool.lost().is_empty() || core.env.now() - started > bound;
            core.until(is_over).await.map_err(|error| failed("begin", place(), error))?;
            if !core.pool.lost().is_empty() {
                let why = format!("recoveries are not over after {bound:?}");
                return Err(failed("begin", place(), why));
            }
            let sink = MemorySink {
                core: Weak::clone(&self.0),
                owner,
                ring_bytes: core.ring_bytes(),
                start: AtomicU64::new(FIRST_LSN),
                anew: AtomicU64::new(0),
                heads: AtomicU64::new(0),
                copies: Mutex::default(),
                gone: Mutex::default(),
                settled: Mutex::default(),
            };
            sink.complete(&core, FIRST_LSN).await?;
            Ok(Arc::new(sink) as Arc<dyn Sink>)
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            let copies = copies_of(&*self.core()?, owner).await?;
            Ok(kept_by(owner, &copies)?.into_iter().collect())
        })
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let copies = copies_of(&core, owner).await?;
            let mut bytes = Vec::new();
            let mut keep = |record: Record<'_>| bytes.extend_from_slice(record.bytes());
            let _ = core.read_copies(owner, &copies, (start, None), &mut keep).await?;
            let place = place_of(owner, copies.first().map_or(0, |(memory, _)| *memory));
            Ok(Piece { place, offset: HEAD_BYTES + start % core.ring_bytes(), bytes })
        })
    }

    fn read<'a>(
        &'a self,
        owner: LogOwner,
        part: Part,
        visit: &'a mut (dyn FnMut(Record<'_>) + Send),
    ) -> BoxFuture<'a, Result<Option<LogEnd>, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let copies = copies_of(&core, owner).await?;
            let Some(start) = kept_by(owner, &copies)? else { return Ok(None) };
            let part = (part.from.unwrap_or(start), part.to);
            core.read_copies(owner, &copies, part, visit).await.map(Some)
        })
    }

    fn cuts(&self, owner: LogOwner, parts: usize) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let copies = copies_of(&core, owner).await?;
            let (Some(start), Some((memory, _))) = (kept_by(owner, &copies)?, copies.first())
            else {
                return Ok(Vec::new());
            };
            // One that cannot be read, or is damaged, is cut in no parts.
            Ok(core.cut_ring((owner, *memory), start, parts as u64).await.unwrap_or_default())
        })
    }

    fn stretch(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> BoxFuture<'_, Result<Piece, ReadError>> {
        Box::pin(async move {
            let core = self.core()?;
            let length = length.min(core.ring_bytes());
            let (mut best, mut trouble) = (None, None);
            for (memory, _) in copies_of(&core, owner).await? {
                let place = place_of(owner, memory);
                let bytes = match core.read_ring(owner, memory, from, length).await {
                    Ok(bytes) => bytes,
                    Err(error) => {
                        trouble = Some(failed("read", &place, error));
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
            let none = || failed("find", place_of(owner, 0), "no copy is left");
            best.map(|(_, piece)| piece).ok_or_else(|| trouble.unwrap_or_else(none).into())
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

/// From where a log is kept; `None` if it is nowhere.
fn kept_by(owner: LogOwner, copies: &[(usize, Kept)]) -> Result<Option<Lsn>, ReadError> {
    let Some((memory, kept)) = copies.iter().max_by_key(|(_, kept)| *kept) else { return Ok(None) };
    if kept.anew > 0 {
        let what = format!("all its copies were lost, and it was begun anew at {}", kept.anew);
        return Err(ReadError::Place { place: place_of(owner, *memory), what });
    }
    Ok(Some(kept.start))
}

/// Refuses to read a log from where it is not kept any more, or was lost.
fn check_kept(owner: LogOwner, from: Lsn, copies: &[(usize, Kept)]) -> Result<(), ReadError> {
    let kept = copies.iter().map(|(_, kept)| kept.start.max(kept.anew)).max();
    if kept.is_some_and(|kept| kept <= from) {
        return Ok(());
    }
    let place = format!("the log of compute node {} in memory", owner.node).into();
    Err(ReadError::Cut { place, from, kept })
}

/// The memory nodes that have a log, each with what is kept there.
async fn copies_of(core: &Core, owner: LogOwner) -> Result<Vec<(usize, Kept)>, LogError> {
    let mut copies = Vec::new();
    for memory in core.living_memory() {
        let read = core.read_head(owner, memory).await;
        let kept = read.map_err(|error| failed("read", place_of(owner, memory), error))?;
        copies.extend(kept.map(|kept| (memory, kept)));
    }
    Ok(copies)
}

/// A log that is being written.
struct MemorySink {
    core: Weak<Core>,
    owner: LogOwner,
    ring_bytes: u64,
    start: AtomicU64,
    /// From where it was begun anew.
    anew: AtomicU64,
    /// Heads that were written.
    heads: AtomicU64,
    /// The memory nodes that have it, all of it.
    copies: Mutex<Vec<usize>>,
    /// Those that died while they had it.
    gone: Mutex<Vec<usize>>,
    /// The pool's state when the copies were where they should be: while that is so they are.
    settled: Mutex<Option<Arc<PoolState>>>,
}

impl MemorySink {
    fn kept(&self) -> Kept {
        let (start, anew) = (&self.start, &self.anew);
        Kept { start: start.load(Ordering::Relaxed), anew: anew.load(Ordering::Relaxed) }
    }

    /// Sees to it that r + 1 memory nodes that are to stay have the log up to `end`, or as many as
    /// there are.
    async fn complete(&self, core: &Core, end: Lsn) -> Result<(), LogError> {
        let state = core.pool.state();
        let is_settled = |settled: &Arc<PoolState>| Arc::ptr_eq(settled, &state);
        if self.settled.lock().as_ref().is_some_and(is_settled) {
            return Ok(());
        }
        let wanted = core.pool.descriptor().coding.parity() + 1;
        let (mut living, gone) = (core.living_memory(), self.gone.lock().clone());
        living.retain(|node| !gone.contains(node));
        let mut staying = core.staying_memory();
        staying.retain(|node| !gone.contains(node));
        let copies: Vec<usize> = {
            let mut copies = self.copies.lock();
            copies.retain(|node| living.contains(node));
            copies.clone()
        };
        let good = copies.iter().filter(|node| staying.contains(node)).count();
        if good >= wanted.min(staying.len()) && !copies.is_empty() {
            self.copies.lock().retain(|node| good == 0 || staying.contains(node));
            *self.settled.lock() = Some(state);
            return Ok(());
        }
        if copies.is_empty() && end > FIRST_LSN {
            tracing::error!(end, "no copy of the log is left: it begins anew");
            self.start.fetch_max(end, Ordering::Relaxed);
            self.anew.store(end, Ordering::Relaxed);
        }
        let first = usize::from(self.owner.node) % staying.len().max(1);
        let others = staying.iter().cycle().skip(first).take(staying.len());
        let others = others.filter(|node| !copies.contains(node)).take(wanted - good);
        for memory in others {
            let failed = |error| failed("begin", place_of(self.owner, *memory), error);
            if let Some(from) = copies.first() {
                self.copy(core, (*from, *memory), end).await.map_err(failed)?;
            }
            for number in 0..2 {
                let head = (self.kept(), number);
                core.write_head(self.owner, *memory, head).await.map_err(failed)?;
            }
            self.copies.lock().push(*memory);
        }
        Ok(())
    }

    /// Copies what is kept from one ring to another.
    async fn copy(
        &self,
        core: &Core,
        (from, to): (usize, usize),
        end: Lsn,
    ) -> Result<(), EngineError> {
        let mut at = self.start.load(Ordering::Relaxed);
        while at < end {
            let some = AT_ONCE.min(end - at);
            let bytes = core.read_ring(self.owner, from, at, some).await?;
            core.write_ring(self.owner, to, at, &bytes).await?;
            at += some;
        }
        Ok(())
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
            *self.settled.lock() = None;
        }
        if self.copies.lock().is_empty() {
            return Err(failed(what, place_of(self.owner, 0), "no copy is left"));
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
            let before = self.kept();
            // All that was changed before it was begun anew is home.
            let anew = if lsn >= before.anew { 0 } else { before.anew };
            let kept = Kept { start: lsn.max(before.start), anew };
            let say = |memory| core.write_head(self.owner, memory, (kept, number));
            self.at_all(core, "cut", say).await?;
            self.start.fetch_max(kept.start, Ordering::Relaxed);
            let _ =
                self.anew.compare_exchange(before.anew, anew, Ordering::Relaxed, Ordering::Relaxed);
            Ok(kept.start)
        })
    }

    fn tend(&self, end: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            match self.core.upgrade() {
                Some(core) => self.complete(&core, end).await,
                None => Ok(()),
            }
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
    fn a_log_is_read_only_from_where_it_is_kept() {
        let owner = LogOwner { pool: 77, node: 3, incarnation: 2, line_bytes: 2048 };
        let kept = |start, anew| Kept { start, anew };
        let copies = [(1, kept(100, 0)), (2, kept(200, 0))];
        let cut = |from, copies: &[_]| match check_kept(owner, from, copies) {
            Err(ReadError::Cut { kept, .. }) => Some(kept),
            other => other.map(|()| None).unwrap(),
        };
        // The heads are written one after the other.
        assert_eq!(cut(199, &copies), Some(Some(200)));
        assert_eq!(cut(200, &copies), None);
        assert_eq!(cut(250, &[(1, kept(100, 300))]), Some(Some(300)), "what was before is lost");
        assert_eq!(cut(200, &[]), Some(None));
    }

    #[test]
    fn a_head_is_of_one_log() {
        let owner = LogOwner { pool: 77, node: 3, incarnation: 2, line_bytes: 2048 };
        let kept = Kept { start: 4711, anew: 17 };
        let bytes = head(owner, kept);
        assert_eq!(kept_of(owner, &bytes), Some(kept));
        for other in [
            LogOwner { pool: 78, ..owner },
            LogOwner { node: 4, ..owner },
            LogOwner { incarnation: 3, ..owner },
            LogOwner { line_bytes: 4096, ..owner },
        ] {
            assert_eq!(kept_of(other, &bytes), None);
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[at] ^= 4;
            assert_eq!(kept_of(owner, &flipped), None, "byte {at}");
        }
        assert_eq!(kept_of(owner, &[0; SAID_BYTES]), None);
        assert_eq!(kept_of(owner, &bytes[..20]), None);
    }
}
