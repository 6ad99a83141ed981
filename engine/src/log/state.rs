//! The log of a node while it runs: the recorded bytes, how far they are durable, and the lines
//! that wait for that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::{Doorbell, env::Env};
use selkie_pool::WaitNotice;
use selkie_wal::{Change, FIRST_LSN, Format, LogError, Lsn, Sink, encode_as, encode_mark};

use crate::GAddr;
use crate::error::EngineError;
use crate::join::either;
use crate::lifecycle::Lifecycle;
use crate::log::room_waits::{Fillings, RoomWait, RoomWaits};
use crate::log::turns::{TURN, Turns};

/// Bytes that may wait to become durable before writers wait.
pub(super) const MAX_WAITING_BYTES: usize = 16 << 20;

/// Writers wait when a log has more than its capacity divided by this: changes of pages that are
/// latched already need the rest.
pub(super) const FULL: u64 = 2;

/// What helps where a log cannot be written.
const MENDS: &str =
    "it is tried again all the time: make room where the log is kept, or bring that back";

/// The last snapshot barrier that was marked.
#[derive(Debug, Default)]
pub(super) struct Marked {
    pub(super) number: u64,
    /// When the barrier was marked; `None` when its changes are released.
    pub(super) since: Option<Duration>,
}

/// The log of a node while it runs.
pub(crate) struct Log {
    /// Set when the node is in the pool; no page changes before.
    pub(super) sink: OnceLock<Arc<dyn Sink>>,
    /// The salt of the records.
    salt: OnceLock<u32>,
    /// The log is kept from here.
    start: AtomicU64,
    tail: Mutex<Tail>,
    /// The end of the tail, to be read without its lock.
    recorded: AtomicU64,
    /// All records before it are durable.
    durable: AtomicU64,
    /// A caller writes to the sink.
    is_flushing: AtomicBool,
    /// Records were taken that never became durable: the caller that took them keeps its turn for
    /// ever.
    is_broken: AtomicBool,
    /// An empty buffer for the tail.
    pub(super) spare: Mutex<Vec<u8>>,
    /// Writers must wait: the log is full or its sink has failed.
    is_full: AtomicBool,
    pub(super) fillings: Fillings,
    /// Held by a caller that finds out whether the log is full.
    looking: Mutex<()>,
    /// Rung when a caller waits for records to become durable.
    pub(super) wanted: Arc<Doorbell>,
    /// Rung when more is durable, or the sink has failed.
    pub(super) moved: Doorbell,
    /// Lines that cannot leave before the log is durable up to an LSN.
    lines: Mutex<BTreeMap<Lsn, Vec<GAddr>>>,
    /// The error of the last write, if it failed, and when that is told of again.
    failing: Mutex<Option<(LogError, WaitNotice)>>,
    /// The last snapshot barrier in the log.
    marked: Mutex<Marked>,
    /// Changes recorded from there on stay on this node.
    withheld_from: AtomicU64,
    /// Bytes of changes that are made and not recorded yet.
    pub(super) reserved: AtomicU64,
    /// Those that wait for room for large changes.
    pub(super) turns: Mutex<Turns>,
    /// All that wait for room.
    pub(super) room_waits: RoomWaits,
}

/// Records that were not given to the sink yet.
struct Tail {
    end: Lsn,
    bytes: Vec<u8>,
    /// There are records other than marks.
    has_changes: bool,
}

impl Log {
    /// A log without a sink.
    pub(crate) fn new() -> Self {
        Self {
            sink: OnceLock::new(),
            salt: OnceLock::new(),
            start: AtomicU64::new(FIRST_LSN),
            tail: Mutex::new(Tail { end: FIRST_LSN, bytes: Vec::new(), has_changes: false }),
            recorded: AtomicU64::new(FIRST_LSN),
            durable: AtomicU64::new(FIRST_LSN),
            is_flushing: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            spare: Mutex::default(),
            is_full: AtomicBool::new(false),
            fillings: Fillings::default(),
            looking: Mutex::default(),
            wanted: Arc::default(),
            moved: Doorbell::default(),
            lines: Mutex::default(),
            failing: Mutex::default(),
            marked: Mutex::default(),
            withheld_from: AtomicU64::new(Lsn::MAX),
            reserved: AtomicU64::new(0),
            turns: Mutex::default(),
            room_waits: RoomWaits::default(),
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

    /// Whether the log is open.
    pub(crate) fn is_open(&self) -> bool {
        self.salt.get().is_some()
    }

    /// The end of the log. Records added after this call begin there or later.
    pub(crate) fn end(&self) -> Lsn {
        self.tail.lock().end
    }

    /// Whether the log has records of changes.
    pub(crate) fn has_changes(&self) -> bool {
        self.tail.lock().has_changes
    }

    /// The log is kept from here.
    pub(crate) fn start(&self) -> Lsn {
        // Relaxed: a bound that no other data depends on.
        self.start.load(Ordering::Relaxed)
    }

    /// Bytes that are kept, and the capacity.
    pub(crate) fn kept(&self) -> (u64, u64) {
        let capacity = self.capacity();
        // Relaxed: a bound that no other data depends on.
        (self.recorded.load(Ordering::Relaxed).saturating_sub(self.start()), capacity)
    }

    /// Truncates the log: no record before `lsn` is needed for this node's pages. Returns from
    /// where the log is kept then.
    pub(crate) async fn truncate(&self, lsn: Lsn) -> Result<Lsn, LogError> {
        let Some(sink) = self.sink.get() else { return Ok(lsn) };
        let start = sink.truncate(lsn).await?;
        self.start.fetch_max(start, Ordering::Relaxed);
        self.look_for_room();
        self.moved.ring();
        Ok(start)
    }

    /// Restores the copies of the durable part where some are missing, unless a caller writes.
    pub(crate) async fn maintain(&self) -> Result<(), LogError> {
        let (Some(sink), Some(turn)) = (self.sink.get(), self.turn()) else { return Ok(()) };
        let done = sink.maintain(self.durable()).await;
        drop(turn);
        self.moved.ring();
        done
    }

    /// Updates whether writers must wait.
    fn look_for_room(&self) {
        // Of two that look at once, the one that stores last has looked last: else a log that was
        // cut short in between would stay full, and no other looks while all writers wait.
        let _turn = self.looking.lock();
        let waiting = self.tail.lock().bytes.len();
        let (kept, capacity) = self.kept();
        let is_full = waiting > MAX_WAITING_BYTES || kept > capacity / FULL;
        if self.failing.lock().is_none() && self.is_full.swap(is_full, Ordering::Relaxed) != is_full
        {
            self.fillings.note(is_full);
            tracing::debug!(is_full, kept, capacity, waiting, "writers wait while the log is full");
        }
    }

    /// Adds a record of changes that are atomic together. The log must be durable up to the
    /// returned LSN before another node sees them. The caller holds the pages latched exclusively.
    /// Does not wait.
    pub(crate) fn append(&self, changes: &[Change<'_>]) -> Lsn {
        self.append_as(changes, false)
    }

    /// As [`Log::append`], for images of whole pages: redo needs no earlier record of them.
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
            self.recorded.store(tail.end, Ordering::Relaxed);
            (tail.bytes.len(), tail.end)
        };
        // Relaxed: a bound that no other data depends on.
        let kept = end.saturating_sub(self.start.load(Ordering::Relaxed));
        let is_much = waiting > MAX_WAITING_BYTES || kept > self.capacity() / FULL;
        if is_much && !self.is_full() {
            self.look_for_room();
        }
        end
    }

    /// The capacity in bytes.
    pub(super) fn capacity(&self) -> u64 {
        self.sink.get().map_or(u64::MAX, |sink| sink.capacity())
    }

    /// The log is durable up to here.
    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        // Acquire pairs with the Release in `advance`: the bytes are in the sink.
        self.durable.load(Ordering::Acquire)
    }

    /// Whether changes recorded before `lsn` may leave the node: they are durable, and not behind
    /// the mark of a snapshot barrier that some node has not marked.
    #[inline]
    pub(crate) fn is_releasable(&self, lsn: Lsn) -> bool {
        // Acquire pairs with `withheld_from`'s Release.
        lsn <= self.durable() && lsn <= self.withheld_from.load(Ordering::Acquire)
    }

    pub(super) fn withheld_from(&self, lsn: Lsn) {
        // Release: a caller with a record behind a mark sees the bound, because the tail's lock was
        // taken in between. Waiting lines are notified after the bound is removed.
        self.withheld_from.store(lsn, Ordering::Release);
    }

    /// Whether the log is full or its sink has failed: writers wait or are refused.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        // Relaxed: a bound that no other data depends on.
        self.is_full.load(Ordering::Relaxed)
    }

    /// Requests that waiting records become durable now. Does not wait.
    pub(crate) fn want(&self) {
        if self.durable() < self.tail.lock().end {
            self.wanted.ring();
        }
    }

    /// Notifies the line when changes recorded before `lsn` may leave. A caller that finds them
    /// releasable in the meantime need not wait for that.
    pub(crate) fn notify_when_releasable(&self, addr: GAddr, lsn: Lsn) {
        self.lines.lock().entry(lsn).or_default().push(addr);
        self.wanted.ring();
    }

    /// Waits until the log has room and its sink works.
    ///
    /// # Errors
    /// After `bound`: [`EngineError::Log`] if the sink fails, `LogTimeout` if not. The node's error
    /// as soon as the node has failed.
    pub(crate) async fn until_room(
        &self,
        lifecycle: &Lifecycle,
        env: &Env,
        bound: Duration,
    ) -> Result<(), EngineError> {
        self.until(|log| !log.is_full(), lifecycle, env, bound).await
    }

    /// Waits until `has_room` says so, which is asked whenever the log has moved, and every
    /// [`TURN`] at least.
    pub(super) async fn until(
        &self,
        has_room: impl Fn(&Self) -> bool,
        lifecycle: &Lifecycle,
        env: &Env,
        bound: Duration,
    ) -> Result<(), EngineError> {
        let started = env.now();
        let mut wait = None;
        loop {
            let seen = self.moved.count();
            if has_room(self) {
                wait.into_iter().for_each(|wait: RoomWait<'_>| wait.end(env.now()));
                return Ok(());
            }
            wait.get_or_insert_with(|| self.room_waits.enter(started));
            lifecycle.check_failed()?;
            self.wanted.ring();
            let waited = env.now() - started;
            if waited >= bound {
                self.check()?;
                return Err(EngineError::LogTimeout { waited });
            }
            let moved = async {
                self.moved.wait_past(seen).await;
            };
            either(moved, env.sleep((bound - waited).min(TURN))).await;
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
            self.check()?;
            return Err(EngineError::LogTimeout { waited });
        }
        let moved = async {
            self.moved.wait_past(seen).await;
        };
        either(moved, env.sleep(left)).await;
        Ok(())
    }

    /// Wakes all that wait for the log, as the node has failed.
    pub(crate) fn wake_all(&self) {
        self.moved.ring();
    }

    /// # Errors
    /// [`EngineError::Log`] while the sink fails.
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        let failing = self.failing.lock();
        failing.as_ref().map_or(Ok(()), |(error, _)| Err(EngineError::Log(error.clone())))
    }

    /// Whether records wait to become durable.
    pub(super) fn has_more(&self) -> bool {
        !self.tail.lock().bytes.is_empty()
    }

    /// The right to write to the sink, unless another has it.
    pub(super) fn turn(&self) -> Option<Turn<'_>> {
        // Acquire pairs with the end of the last turn. A `Turn` is made only for the caller that
        // got the right, because its drop returns it.
        (!self.is_flushing.swap(true, Ordering::Acquire)).then(|| Turn::of(self))
    }

    /// Whether records were taken that never became durable: no caller gets a turn any more.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    fn take(&self) -> (Lsn, Vec<u8>) {
        let empty = std::mem::take(&mut *self.spare.lock());
        let mut tail = self.tail.lock();
        let bytes = std::mem::replace(&mut tail.bytes, empty);
        (tail.end - bytes.len() as u64, bytes)
    }

    /// Notes that the log is durable up to `lsn`, and ends the turn. Returns the lines that waited.
    pub(super) fn advance(&self, lsn: Lsn, mut turn: Turn<'_>) -> Vec<GAddr> {
        turn.has_taken = false;
        // Release pairs with `durable`.
        self.durable.fetch_max(lsn, Ordering::Release);
        // Before the bell: a waiter that finds the turn taken waits for the bell again.
        drop(turn);
        self.look_for_room();
        let due = self.take_lines(lsn);
        self.moved.ring();
        due
    }

    /// Takes the lines that waited for the log to be durable up to `lsn`.
    pub(super) fn take_lines(&self, lsn: Lsn) -> Vec<GAddr> {
        let mut lines = self.lines.lock();
        let later = lines.split_off(&(lsn + 1));
        std::mem::replace(&mut *lines, later).into_values().flatten().collect()
    }

    /// The sink has failed: what is to be written waits. `bound` is what each change waits at most.
    pub(super) fn fail(&self, error: LogError, now: Duration, bound: Duration) {
        let bound = bound.as_secs();
        let mut failing = self.failing.lock();
        let notice = match failing.take() {
            Some((_, mut notice)) => {
                if let Some(waited) = notice.due(now) {
                    let waited = waited.as_secs();
                    tracing::warn!(
                        %error,
                        "the log has not been written for {waited} s: all changes wait for that, for {bound} s each at most, \
                         and fail then; {MENDS}"
                    );
                }
                notice
            }
            None => {
                tracing::warn!(
                    %error,
                    "the log cannot be written: nothing is changed until it can, and a change fails that has waited for \
                     {bound} s; {MENDS}"
                );
                WaitNotice::new(now)
            }
        };
        *failing = Some((error, notice));
        drop(failing);
        self.is_full.store(true, Ordering::Relaxed);
        self.moved.ring();
    }

    /// For how long the log could not be written; zero if it can.
    pub(crate) fn failing_for(&self, now: Duration) -> Duration {
        self.failing.lock().as_ref().map_or(Duration::ZERO, |(_, notice)| notice.waited(now))
    }

    pub(super) fn recover(&self) {
        if self.failing.lock().take().is_some() {
            tracing::info!("the log can be written again");
        }
    }

    /// Marks a snapshot barrier at the end of the log, unless it or a later one is marked. Changes
    /// recorded from now on are withheld.
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
            self.recorded.store(tail.end, Ordering::Relaxed);
        }
        drop(marked);
        self.wanted.ring();
    }

    /// Releases withheld changes. Returns the lines that waited for that.
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

/// The right to write to the sink: one caller at a time.
pub(super) struct Turn<'l> {
    log: &'l Log,
    /// Records were taken that are not known to be durable.
    has_taken: bool,
}

impl<'l> Turn<'l> {
    /// The turn of a caller that [`Log::turn`] has given the right.
    pub(super) fn of(log: &'l Log) -> Self {
        Self { log, has_taken: false }
    }

    /// Takes the waiting records, with the LSN of the first.
    pub(super) fn take(&mut self) -> (Lsn, Vec<u8>) {
        self.has_taken = true;
        self.log.take()
    }

    /// Ends the turn of a node that writes nothing more, so that no records come behind the hole.
    pub(super) fn give_back(mut self) {
        self.has_taken = false;
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // The records are gone, as with a panic: no caller may write behind them.
        if self.has_taken {
            self.log.is_broken.store(true, Ordering::Release);
            // Else the environment has ended the write, and all else.
            if std::thread::panicking() {
                self.log.moved.ring();
            }
            return;
        }
        // Release pairs with `Log::turn`: the next turn finds the tail as this one left it.
        self.log.is_flushing.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// A caller that is refused the turn does not end the turn of another.
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

    /// A checkpoint begins at once, and not at its next look, when writers begin to wait.
    #[test]
    fn the_bell_rings_when_the_log_becomes_full() {
        let log = Log::new();
        assert_eq!((log.is_full(), log.fillings.bell().count()), (false, 0));
        log.tail.lock().bytes = vec![0; MAX_WAITING_BYTES + 1];
        log.look_for_room();
        log.look_for_room();
        assert_eq!((log.is_full(), log.fillings.bell().count()), (true, 1));
        log.tail.lock().bytes.clear();
        log.look_for_room();
        assert_eq!((log.is_full(), log.fillings.bell().count()), (false, 1));
    }

    /// What a caller had taken when it panicked is gone: no caller writes behind the hole.
    #[test]
    fn a_turn_that_ends_with_records_in_hand_is_the_last() {
        let log = Log::new();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(log.turn()))).is_ok());
        let panics = || {
            let mut turn = log.turn().expect("the right was given back");
            turn.take();
            panic!("planted");
        };
        let ended: Result<(), _> = catch_unwind(AssertUnwindSafe(panics));
        assert!(ended.is_err());
        assert!(log.turn().is_none() && log.is_broken());
    }
}
