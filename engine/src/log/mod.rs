//! The redo log of a compute node: what it has changed, durable before anybody can rely on it
//! (DESIGN §9).
//!
//! ```text
//! guards let go --> record, at the end of the log in memory --> sink, many at once --> durable
//!                                                                                       |
//!                     until then the page stays here: nobody is granted it,             |
//!                     it does not go home, and who commits waits                      <-+
//! ```
//! There are no undo records: a page that is being changed is latched, and one that was changed
//! does not leave before its record is durable. So whatever others have of a page, or home has, is
//! in somebody's log, and the records of a page in all logs are in the order of its sequence
//! numbers.
//!
//! A sink that fails is tried again with the same bytes. Until it succeeds nobody gets a page to
//! change, and who has committed is told that it is not known whether that lasts.
//!
//! A page that is handed over dirty goes home at the same time ([`home_first`]), so of each page
//! home has all but what its holder has changed, which is in that one's log: from the oldest of
//! these changes on the log is kept, and pages whose changes are old are written home so that it
//! need not be (`checkpoint`).
//!
//! Contents: `record` (the bytes), `store` (where they go, and how they are read again), `files` (a
//! directory as such), `objects` (an object store as such), `memory` (memory nodes as such), `scan`
//! (what is a log's end, and what damage), `moment` (up to where logs are one state), `checkpoint`
//! (how far a log is kept), `archive` (what was cut off, for whoever makes another pool), `redo`
//! (what a dead node has left), `changes` (that, put together), `merge` (what several logs make of
//! pages), `restore` (putting these into a new pool).
//!
//! [`home_first`]: crate::coherence::machine::Rules::home_first

mod archive;
mod changes;
mod checkpoint;
mod files;
mod memory;
mod merge;
mod moment;
mod objects;
mod record;
mod recording;
mod redo;
mod restore;
mod scan;
mod store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::Doorbell;
use selkie_fabric::env::Env;

pub(crate) use archive::run_archive;
pub(crate) use checkpoint::run_checkpoints;
pub use files::LogFiles;
use memory::MemoryLogs;
pub use merge::{Discord, MergeError, Pages, Read, merge};
use moment::Marked;
pub use objects::LogObjects;
pub(crate) use record::{Change, encode_as};
pub use record::{Format, Lsn, NoRecord, Record, Redo};
pub(crate) use recording::ChangedPage;
pub use scan::{LogDamage, LogEnd, scan};
pub use store::{
    FIRST_LSN, Joined, Labels, LogError, LogOwner, LogStore, LogTo, Part, Piece, ReadError, Sink,
    Written, read_log,
};

use crate::core::Core;
use crate::join::either;
use crate::{EngineError, GAddr};

/// Bytes that may wait to become durable before whoever wants to change pages waits, too.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// After which time a sink that has failed is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Of what a log can keep, the part from which on whoever wants to change pages waits: what those
/// change who have pages already, needs room as well.
const FULL: u64 = 2;

/// The log of a node while it runs.
pub(crate) struct Log {
    /// From when the node is in the pool; nothing is changed before.
    sink: OnceLock<Arc<dyn Sink>>,
    /// Of the records.
    salt: OnceLock<u32>,
    /// From where it is kept.
    start: AtomicU64,
    tail: Mutex<Tail>,
    /// All before it is durable.
    durable: AtomicU64,
    /// Somebody writes to the sink.
    is_writing: AtomicBool,
    /// An empty buffer, for the tail.
    spare: Mutex<Vec<u8>>,
    /// More than enough waits to become durable.
    is_full: AtomicBool,
    /// Rung when there is something to become durable that somebody waits for.
    wanted: Arc<Doorbell>,
    /// Rung when more is durable, or the sink has failed.
    moved: Doorbell,
    /// Lines that cannot leave before the log is durable up to a place.
    lines: Mutex<BTreeMap<Lsn, Vec<GAddr>>>,
    /// Why the sink failed when it was tried last.
    trouble: Mutex<Option<LogError>>,
    /// The last moment that it marks.
    marked: Mutex<Marked>,
    /// What was recorded from there on stays on this node.
    stays_from: AtomicU64,
}

/// What was recorded and not given to the sink yet.
struct Tail {
    end: Lsn,
    bytes: Vec<u8>,
    /// There are records other than marks.
    has_changes: bool,
}

impl Log {
    /// A log that has no sink yet.
    pub(crate) fn new() -> Self {
        Self {
            sink: OnceLock::new(),
            salt: OnceLock::new(),
            start: AtomicU64::new(FIRST_LSN),
            tail: Mutex::new(Tail { end: FIRST_LSN, bytes: Vec::new(), has_changes: false }),
            durable: AtomicU64::new(FIRST_LSN),
            is_writing: AtomicBool::new(false),
            spare: Mutex::default(),
            is_full: AtomicBool::new(false),
            wanted: Arc::default(),
            moved: Doorbell::default(),
            lines: Mutex::default(),
            trouble: Mutex::default(),
            marked: Mutex::default(),
            stays_from: AtomicU64::new(Lsn::MAX),
        }
    }

    /// What is recorded goes there.
    pub(crate) fn open(&self, sink: Arc<dyn Sink>, format: Format) {
        let _ = self.sink.set(sink);
        // Last: from then on there may be records.
        let _ = self.salt.set(format.salt);
    }

    /// Where it ends. Whoever adds a record after this call adds it there or later.
    pub(crate) fn end(&self) -> Lsn {
        self.tail.lock().end
    }

    /// Whether anything was ever changed.
    pub(crate) fn has_changes(&self) -> bool {
        self.tail.lock().has_changes
    }

    /// From where it is kept.
    pub(crate) fn start(&self) -> Lsn {
        // Relaxed: a bound, on which nothing hangs.
        self.start.load(Ordering::Relaxed)
    }

    /// Bytes from where it is kept to its end, of how many.
    pub(crate) fn kept(&self) -> (u64, u64) {
        let capacity = self.capacity();
        (self.end().saturating_sub(self.start()), capacity)
    }

    /// Nothing before `lsn` is needed for this node's pages any more; from where the log is kept
    /// then.
    pub(crate) async fn truncate(&self, lsn: Lsn) -> Result<Lsn, LogError> {
        let Some(sink) = self.sink.get() else { return Ok(lsn) };
        let start = sink.truncate(lsn).await?;
        self.start.fetch_max(start, Ordering::Relaxed);
        let waiting = self.tail.lock().bytes.len();
        self.look_for_room(waiting);
        self.moved.ring();
        Ok(start)
    }

    /// Sees to it that what is durable is kept where it should be, unless somebody writes.
    pub(crate) async fn tend(&self) -> Result<(), LogError> {
        let (Some(sink), Some(turn)) = (self.sink.get(), self.turn()) else { return Ok(()) };
        let done = sink.tend(self.durable()).await;
        drop(turn);
        self.moved.ring();
        done
    }

    /// Whether there is room for more, with so many bytes that wait.
    fn look_for_room(&self, waiting: usize) {
        let (kept, capacity) = self.kept();
        let is_full = waiting > MAX_WAITING_BYTES || kept > capacity / FULL;
        if self.trouble.lock().is_none() && self.is_full.swap(is_full, Ordering::Relaxed) != is_full
        {
            let (kept, capacity, waiting) = (kept >> 20, capacity >> 20, waiting >> 20);
            if is_full {
                tracing::warn!(
                    kept_mib = kept,
                    capacity_mib = capacity,
                    waiting_mib = waiting,
                    "the log is full: writers wait"
                );
            } else {
                tracing::info!("the log has room again");
            }
        }
    }

    /// Adds a record of changes that took place together; the log has to be durable up to the place
    /// returned before anybody else sees them. The caller has the pages latched exclusively. Does
    /// not wait.
    pub(crate) fn append(&self, changes: &[Change<'_>]) -> Lsn {
        self.append_as(changes, false)
    }

    /// As [`Log::append`], of whole pages, for which nothing is needed that comes before.
    pub(crate) fn append_beginning(&self, changes: &[Change<'_>]) -> Lsn {
        self.append_as(changes, true)
    }

    fn append_as(&self, changes: &[Change<'_>], begins: bool) -> Lsn {
        let salt = self.salt.get().copied().unwrap_or_default();
        let (waiting, end) = {
            let mut tail = self.tail.lock();
            let (before, start) = (tail.bytes.len(), tail.end);
            record::encode_as(&mut tail.bytes, salt, (start, self.durable()), (changes, begins));
            tail.end += (tail.bytes.len() - before) as u64;
            tail.has_changes = true;
            (tail.bytes.len(), tail.end)
        };
        // Relaxed: a bound, on which nothing hangs.
        let kept = end.saturating_sub(self.start.load(Ordering::Relaxed));
        let is_much = waiting > MAX_WAITING_BYTES || kept > self.capacity() / FULL;
        if is_much && !self.is_full() {
            self.look_for_room(waiting);
        }
        end
    }

    /// Bytes that it can keep.
    fn capacity(&self) -> u64 {
        self.sink.get().map_or(u64::MAX, |sink| sink.capacity())
    }

    /// Up to where the log is durable.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        // Acquire pairs with the flusher's Release: the bytes are where they are to be.
        self.durable.load(Ordering::Acquire)
    }

    /// Whether what was recorded before `lsn` may leave the node: it is durable, and before a
    /// moment that not all have marked.
    #[inline]
    pub(crate) fn may_leave(&self, lsn: Lsn) -> bool {
        // Acquire pairs with `stays_from`'s Release.
        lsn <= self.durable() && lsn <= self.stays_from.load(Ordering::Acquire)
    }

    fn stays_from(&self, lsn: Lsn) {
        // Release: whoever has a record behind a mark sees that it stays, as the tail's lock was
        // taken in between; what waits is looked at after the bound is gone.
        self.stays_from.store(lsn, Ordering::Release);
    }

    /// Whether more waits than may, or the sink has failed: who wants to change pages has to wait,
    /// or is refused.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        // Relaxed: a bound, on which nothing hangs.
        self.is_full.load(Ordering::Relaxed)
    }

    /// What waits is to become durable now. Does not wait.
    pub(crate) fn want(&self) {
        if self.durable() < self.tail.lock().end {
            self.wanted.ring();
        }
    }

    /// A line is to be looked at again when what was recorded before `lsn` may leave. Who finds
    /// that it may by now need not wait for that.
    pub(crate) fn hold_back(&self, addr: GAddr, lsn: Lsn) {
        self.lines.lock().entry(lsn).or_default().push(addr);
        self.wanted.ring();
    }

    /// Waits until there is room for more, and the sink takes it.
    ///
    /// # Errors
    /// When that takes longer than `bound`: [`EngineError::Log`] if the sink fails, `LogTimeout` if
    /// not.
    pub(crate) async fn until_room(&self, env: &Env, bound: Duration) -> Result<(), EngineError> {
        let started = env.now();
        loop {
            let seen = self.moved.count();
            if !self.is_full() {
                return Ok(());
            }
            self.wanted.ring();
            if let Err(error) = self.wait_past(env, seen, started, bound).await {
                self.check()?;
                return Err(error);
            }
        }
    }

    async fn wait_past(
        &self,
        env: &Env,
        seen: u64,
        started: Duration,
        bound: Duration,
    ) -> Result<(), EngineError> {
        let waited = env.now() - started;
        let left = bound.saturating_sub(waited);
        if left.is_zero() {
            return Err(EngineError::LogTimeout { waited });
        }
        let moved = async {
            self.moved.wait_past(seen).await;
        };
        either(moved, env.sleep(left)).await;
        Ok(())
    }

    /// # Errors
    /// [`EngineError::Log`] while the sink fails.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        self.trouble.lock().clone().map_or(Ok(()), |error| Err(EngineError::Log(error)))
    }

    /// Whether something waits to become durable.
    fn has_more(&self) -> bool {
        !self.tail.lock().bytes.is_empty()
    }

    /// The right to write to the sink, unless another has it.
    fn turn(&self) -> Option<Turn<'_>> {
        // Acquire pairs with the end of the last turn. A turn is made only for who has it: the end
        // of one gives it back.
        (!self.is_writing.swap(true, Ordering::Acquire)).then(|| Turn(self))
    }

    /// Takes what waits, with the place where it begins.
    fn take(&self) -> (Lsn, Vec<u8>) {
        let empty = std::mem::take(&mut *self.spare.lock());
        let mut tail = self.tail.lock();
        let bytes = std::mem::replace(&mut tail.bytes, empty);
        (tail.end - bytes.len() as u64, bytes)
    }

    /// What waits is durable up to `lsn`, and the turn over; the lines that waited for it.
    fn advance(&self, lsn: Lsn, turn: Turn<'_>) -> Vec<GAddr> {
        // Release pairs with `durable`.
        self.durable.fetch_max(lsn, Ordering::Release);
        // Before anybody is told: who finds it taken waits to be told again.
        drop(turn);
        let waiting = self.tail.lock().bytes.len();
        self.look_for_room(waiting);
        let due = self.take_lines(lsn);
        self.moved.ring();
        due
    }

    /// The lines that waited for what is durable up to `lsn`, and do not any more.
    fn take_lines(&self, lsn: Lsn) -> Vec<GAddr> {
        let mut lines = self.lines.lock();
        let later = lines.split_off(&(lsn + 1));
        std::mem::replace(&mut *lines, later).into_values().flatten().collect()
    }

    fn fail(&self, error: LogError) {
        let before = self.trouble.lock().replace(error.clone());
        if before.is_none() {
            tracing::warn!(%error, "the log cannot be written: nothing is changed until it can");
        }
        self.is_full.store(true, Ordering::Relaxed);
        self.moved.ring();
    }

    fn recover(&self) {
        if self.trouble.lock().take().is_some() {
            tracing::info!("the log can be written again");
        }
    }
}

/// Who writes to the sink: one at a time.
struct Turn<'l>(&'l Log);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release pairs with `Log::turn`: the next one finds the tail as this one has left it.
        self.0.is_writing.store(false, Ordering::Release);
    }
}

/// Makes durable what waits, at the caller's turn.
async fn write(core: &Weak<Core>, log: &Log, turn: Turn<'_>, env: &Env) {
    let (at, mut bytes) = log.take();
    let end = at + bytes.len() as u64;
    // Another may have taken it all.
    while !bytes.is_empty() {
        // Who has failed may be recovered from, and what it adds now would not be of that. One that
        // is gone has not failed.
        let lives = core.upgrade().is_none_or(|core| !core.lifecycle.has_failed());
        let Some(sink) = log.sink.get().filter(|_| lives) else { return };
        let written = sink.append(at, bytes).await;
        bytes = written.bytes;
        match written.result {
            Ok(()) => break,
            Err(error) => log.fail(error),
        }
        if at + bytes.len() as u64 != end {
            // A sink that has lost them: they cannot be made durable any more.
            let lost = std::io::Error::other("what was to be written is gone");
            let error = EngineError::Log(LogError::new("write", "the log", lost));
            return core.upgrade().map_or((), |core| core.end_with(error));
        }
        env.sleep(RETRY_AFTER).await;
    }
    log.recover();
    bytes.clear();
    *log.spare.lock() = bytes;
    let lines = log.advance(end, turn);
    if let Some(core) = core.upgrade() {
        lines.into_iter().for_each(|addr| core.notify(addr));
    }
}

/// Makes durable what nobody does who waits for it, until the engine is gone and nothing is left.
pub(crate) async fn run_log(core: Weak<Core>, log: Arc<Log>, env: Env) {
    let mut seen = 0;
    loop {
        let moved = log.moved.count();
        if log.has_more() {
            match log.turn() {
                Some(turn) => write(&core, &log, turn, &env).await,
                None => {
                    log.moved.wait_past(moved).await;
                }
            }
            continue;
        }
        // Of what nobody waited for there may be some when the last handle goes.
        let Some(last) = core.upgrade().map(|core| core.lifecycle.stop_bell().clone()) else {
            return;
        };
        let wanted = async {
            log.wanted.wait_past(seen).await;
        };
        let ends = async {
            last.wait_past(0).await;
        };
        either(wanted, ends).await;
        seen = log.wanted.count();
    }
}

impl Core {
    /// Waits until the log is durable up to `lsn`, and was so before anybody can have taken this
    /// node for dead, who then reads the log. Who waits first writes what there is.
    ///
    /// # Errors
    /// [`EngineError::Log`] if the sink fails, `LogTimeout` after the request timeout; it may
    /// become durable later. Why the node has failed, if it has.
    pub(crate) async fn until_durable(&self, log: &Arc<Log>, lsn: Lsn) -> Result<(), EngineError> {
        let started = self.env.now();
        loop {
            let seen = log.moved.count();
            if log.durable() >= lsn {
                return self.until_sure(started).await;
            }
            log.check()?;
            self.write_log(log);
            if log.durable() < lsn {
                log.wait_past(&self.env, seen, started, self.config.request_timeout).await?;
            }
        }
    }

    /// Waits until it is known that nobody has taken this node for dead as yet.
    async fn until_sure(&self, started: Duration) -> Result<(), EngineError> {
        loop {
            self.lifecycle.check_failed()?;
            let (now, lease) = (self.env.now(), self.pool.state().timing.lease);
            let is_known = self.pool.signs_of_life(now).silent_for <= lease * 3 / 4;
            if is_known && !self.lifecycle.is_suspended() {
                return Ok(());
            }
            let waited = now - started;
            if waited > self.config.request_timeout {
                return Err(EngineError::LogTimeout { waited });
            }
            // Until the node has judged anew: it may go on without the control plane.
            self.env.sleep(2 * self.config.tick).await;
            if !is_known && !self.lifecycle.is_suspended() {
                return self.lifecycle.check_failed();
            }
        }
    }

    /// Begins to make durable what waits, unless somebody is at it. Where the sink does not wait it
    /// is done then.
    pub(crate) fn write_log(&self, log: &Arc<Log>) {
        let Some(turn) = log.turn() else { return };
        std::mem::forget(turn);
        let (core, own, env) = (self.this.clone(), Arc::clone(log), self.env.clone());
        let mut run = Box::pin(async move {
            let turn = Turn(&own);
            write(&core, &own, turn, &env).await;
        });
        if run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            drop(self.env.spawn("log", run));
        }
    }

    /// Begins the log of this node, which is in the pool.
    pub(crate) async fn open_log(&self) -> Result<(), EngineError> {
        let (Some(log), Some(store)) = (&self.log, self.log_store()) else { return Ok(()) };
        let owner = self.log_of(self.index().get());
        let sink = store.create(owner).await.map_err(EngineError::Log)?;
        log.open(sink, owner.format());
        // Before anything is changed.
        self.mark_moment(&self.pool.state());
        Ok(())
    }

    /// Where this node keeps its log, and looks for those of others.
    pub(crate) fn log_store(&self) -> Option<Arc<dyn LogStore>> {
        match self.config.log.as_ref()? {
            LogTo::Store(store) => Some(Arc::clone(store)),
            LogTo::Memory => Some(Arc::new(MemoryLogs::new(self.this.clone()))),
        }
    }

    /// The log of the last node that has had an index.
    fn log_of(&self, node: u16) -> LogOwner {
        let state = self.pool.state();
        let incarnation = state.incarnations.get(&node).copied().unwrap_or_default();
        LogOwner { pool: state.id, node, incarnation, line_bytes: self.cache.gcl_bytes() as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who does not get the turn does not end that of another.
    #[test]
    fn one_has_the_turn_to_write_until_it_is_over() {
        let log = Log::new();
        let turn = log.turn();
        assert!(turn.is_some());
        for _ in 0..2 {
            assert!(log.turn().is_none());
        }
        drop(turn);
        assert!(log.turn().is_some());
    }
}
