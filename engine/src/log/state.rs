//! The log of a node while it runs: what was recorded, what of it is durable, who waits for that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::Doorbell;
use selkie_fabric::env::Env;
use selkie_wal::{Change, FIRST_LSN, Format, LogError, Lsn, Sink, encode_as, encode_mark};

use crate::GAddr;
use crate::error::EngineError;
use crate::join::either;

/// Bytes that may wait to become durable before whoever wants to change pages waits, too.
pub(super) const MAX_WAITING_BYTES: usize = 16 << 20;

/// Of what a log can keep, the part from which on whoever wants to change pages waits: what those
/// change who have pages already, needs room as well.
pub(super) const FULL: u64 = 2;

/// The last moment that was marked.
#[derive(Debug, Default)]
pub(super) struct Marked {
    pub(super) number: u64,
    /// Since when what is changed stays; `None` when that is over.
    pub(super) since: Option<Duration>,
}

/// The log of a node while it runs.
pub(crate) struct Log {
    /// From when the node is in the pool; nothing is changed before.
    pub(super) sink: OnceLock<Arc<dyn Sink>>,
    /// Of the records.
    salt: OnceLock<u32>,
    /// From where it is kept.
    start: AtomicU64,
    tail: Mutex<Tail>,
    /// All before it is durable.
    durable: AtomicU64,
    /// Somebody writes to the sink.
    is_flushing: AtomicBool,
    /// An empty buffer, for the tail.
    pub(super) spare: Mutex<Vec<u8>>,
    /// More than enough waits to become durable.
    is_full: AtomicBool,
    /// Rung when there is something to become durable that somebody waits for.
    pub(super) wanted: Arc<Doorbell>,
    /// Rung when more is durable, or the sink has failed.
    pub(super) moved: Doorbell,
    /// Lines that cannot leave before the log is durable up to a place.
    lines: Mutex<BTreeMap<Lsn, Vec<GAddr>>>,
    /// Why the sink failed when it was tried last.
    last_error: Mutex<Option<LogError>>,
    /// The last moment that it marks.
    marked: Mutex<Marked>,
    /// What was recorded from there on stays on this node.
    withheld_from: AtomicU64,
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
            is_flushing: AtomicBool::new(false),
            spare: Mutex::default(),
            is_full: AtomicBool::new(false),
            wanted: Arc::default(),
            moved: Doorbell::default(),
            lines: Mutex::default(),
            last_error: Mutex::default(),
            marked: Mutex::default(),
            withheld_from: AtomicU64::new(Lsn::MAX),
        }
    }

    /// Opens the log: its records go to this sink.
    ///
    /// # Panics
    /// If the log is open.
    pub(crate) fn open(&self, sink: Arc<dyn Sink>, format: Format) {
        assert!(self.sink.set(sink).is_ok(), "a log is opened once");
        // Last, because records may be added from here on.
        assert!(self.salt.set(format.salt).is_ok(), "a log is opened once");
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
    pub(crate) async fn maintain(&self) -> Result<(), LogError> {
        let (Some(sink), Some(turn)) = (self.sink.get(), self.turn()) else { return Ok(()) };
        let done = sink.maintain(self.durable()).await;
        drop(turn);
        self.moved.ring();
        done
    }

    /// Whether there is room for more, with so many bytes that wait.
    fn look_for_room(&self, waiting: usize) {
        let (kept, capacity) = self.kept();
        let is_full = waiting > MAX_WAITING_BYTES || kept > capacity / FULL;
        if self.last_error.lock().is_none()
            && self.is_full.swap(is_full, Ordering::Relaxed) != is_full
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
    pub(crate) fn append_full_page_images(&self, changes: &[Change<'_>]) -> Lsn {
        self.append_as(changes, true)
    }

    fn append_as(&self, changes: &[Change<'_>], begins: bool) -> Lsn {
        #[expect(clippy::expect_used, reason = "no page is changed before the log is open")]
        let salt = *self.salt.get().expect("a record for a log that is not open");
        let (waiting, end) = {
            let mut tail = self.tail.lock();
            let (before, start) = (tail.bytes.len(), tail.end);
            encode_as(&mut tail.bytes, salt, (start, self.durable()), (changes, begins));
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
    pub(crate) fn is_releasable(&self, lsn: Lsn) -> bool {
        // Acquire pairs with `withheld_from`'s Release.
        lsn <= self.durable() && lsn <= self.withheld_from.load(Ordering::Acquire)
    }

    pub(super) fn withheld_from(&self, lsn: Lsn) {
        // Release: whoever has a record behind a mark sees that it stays, as the tail's lock was
        // taken in between; what waits is looked at after the bound is gone.
        self.withheld_from.store(lsn, Ordering::Release);
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
    pub(crate) fn notify_when_releasable(&self, addr: GAddr, lsn: Lsn) {
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

    pub(super) async fn wait_past(
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
        self.last_error.lock().clone().map_or(Ok(()), |error| Err(EngineError::Log(error)))
    }

    /// Whether something waits to become durable.
    pub(super) fn has_more(&self) -> bool {
        !self.tail.lock().bytes.is_empty()
    }

    /// The right to write to the sink, unless another has it.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        // Acquire pairs with the end of the last turn. A turn is made only for who has it: the end
        // of one gives it back.
        (!self.is_flushing.swap(true, Ordering::Acquire)).then(|| Turn(self))
    }

    /// Takes what waits, with the place where it begins.
    pub(super) fn take(&self) -> (Lsn, Vec<u8>) {
        let empty = std::mem::take(&mut *self.spare.lock());
        let mut tail = self.tail.lock();
        let bytes = std::mem::replace(&mut tail.bytes, empty);
        (tail.end - bytes.len() as u64, bytes)
    }

    /// What waits is durable up to `lsn`, and the turn over; the lines that waited for it.
    pub(super) fn advance(&self, lsn: Lsn, turn: Turn<'_>) -> Vec<GAddr> {
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
    pub(super) fn take_lines(&self, lsn: Lsn) -> Vec<GAddr> {
        let mut lines = self.lines.lock();
        let later = lines.split_off(&(lsn + 1));
        std::mem::replace(&mut *lines, later).into_values().flatten().collect()
    }

    pub(super) fn fail(&self, error: LogError) {
        let before = self.last_error.lock().replace(error.clone());
        if before.is_none() {
            tracing::warn!(%error, "the log cannot be written: nothing is changed until it can");
        }
        self.is_full.store(true, Ordering::Relaxed);
        self.moved.ring();
    }

    pub(super) fn recover(&self) {
        if self.last_error.lock().take().is_some() {
            tracing::info!("the log can be written again");
        }
    }

    /// Marks a moment at the end of the log, unless it or a later one was; what is recorded from
    /// now on stays.
    pub(super) fn mark(&self, number: u64, now: Duration) {
        let Some(salt) = self.salt.get().copied() else { return };
        let mut marked = self.marked.lock();
        if number <= marked.number {
            return;
        }
        *marked = Marked { number, since: Some(now) };
        {
            let mut tail = self.tail.lock();
            let (before, start) = (tail.bytes.len(), tail.end);
            self.withheld_from(start);
            encode_mark(&mut tail.bytes, salt, (start, self.durable()), number);
            tail.end += (tail.bytes.len() - before) as u64;
        }
        drop(marked);
        self.wanted.ring();
    }

    /// Lets go what stayed; the lines that waited for that.
    pub(super) fn release(&self, is_over: impl Fn(&Marked) -> bool) -> Vec<GAddr> {
        let mut marked = self.marked.lock();
        if marked.since.is_none() || !is_over(&marked) {
            return Vec::new();
        }
        marked.since = None;
        self.withheld_from(Lsn::MAX);
        drop(marked);
        self.take_lines(self.durable())
    }
}

/// Who writes to the sink: one at a time.
pub(super) struct Turn<'l>(pub(super) &'l Log);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Release pairs with `Log::turn`: the next one finds the tail as this one has left it.
        self.0.is_flushing.store(false, Ordering::Release);
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
