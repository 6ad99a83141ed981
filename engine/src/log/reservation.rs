//! Room in a log for changes that are made in latched pages and not recorded yet.
//!
//! Pages go home, and the log is truncated behind them, once what was recorded of them is durable.
//! So recorded changes that do not fit the log would wait for room that they prevent themselves.
//! A transaction reserves room before it changes pages, and is refused while it can still roll
//! back.
//!
//! *Turns.* Large transactions that run at a time may all be refused, each for the room that the
//! others hold; tried again at a time, all would be refused again. So those that were refused wait
//! in a queue, without room and without latches. The first goes when the log has the room that it
//! needs. For [`TURN`](super::turns::TURN) that room counts as taken, as the caller has yet to ask
//! for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use selkie_fabric::BoxFuture;
use selkie_fabric::env::Env;

use super::state::Log;
use crate::GAddr;
use crate::access::acquire::Access;
use crate::access::engine::Engine;
use crate::access::guard::ExclusiveGuard;
use crate::access::waiters::WaitPolicy;
use crate::core::Core;
use crate::error::EngineError;
use crate::lifecycle::Lifecycle;

/// Lines whose changes are the least room asked for at once.
const STEP_LINES: u64 = 8;
/// Eighths of a log's capacity that changes made together may take. Checkpoints keep as much of the
/// log at rest, so that these fit, if no others are as large.
const LARGEST_CHANGE: u64 = 3;
/// Eighths of a log's capacity up to which room is reserved; the rest is for changes that reserve
/// none, such as separators and freed pages.
const RESERVED: u64 = 7;
/// The same for reservations of more than [`STEP_LINES`], so that small ones have room beside them.
const RESERVED_BY_LARGE: u64 = 6;
/// A place in the queue.
struct TurnPlace<'l> {
    log: &'l Log,
    number: u64,
}

impl Drop for TurnPlace<'_> {
    fn drop(&mut self) {
        self.log.turns.lock().waiting.retain(|number| *number != self.number);
        self.log.moved.ring();
    }
}

/// Reserved room, given back on drop.
#[derive(Default)]
pub struct LogReservation {
    log: Option<Arc<Log>>,
    bytes: u64,
    /// Reservations up to here are small.
    step: u64,
}

impl LogReservation {
    /// Bytes reserved; without a log as many as ever.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives the room back: the changes are recorded, or undone.
    pub fn release(&mut self) {
        if let Some(log) = self.log.take() {
            log.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
            if self.bytes > self.step && log.turns.lock().is_waited_for() {
                log.moved.ring();
            }
        }
        self.bytes = 0;
    }
}

impl Drop for LogReservation {
    fn drop(&mut self) {
        self.release();
    }
}

impl fmt::Debug for LogReservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogReservation({} bytes)", self.bytes)
    }
}

impl Engine {
    /// Makes sure that a reservation has at least `need` bytes. Does not wait, no round trip.
    ///
    /// # Errors
    /// [`EngineError::ChangeTooLarge`] if changes of this size cannot be recorded together in this
    /// node's log; `LogFull` if there is no room now. The reservation is as it was.
    pub fn reserve_log(&self, room: &mut LogReservation, need: u64) -> Result<(), EngineError> {
        if need <= room.bytes {
            return Ok(());
        }
        let Some(log) = &self.core().log else {
            room.bytes = u64::MAX;
            return Ok(());
        };
        let limit = log.largest_change();
        if need > limit {
            return Err(EngineError::ChangeTooLarge { need, limit });
        }
        let step = self.core().log_step();
        // Half as much more, so that a large transaction asks seldom.
        let wished = need.max(room.bytes.saturating_mul(3) / 2).max(step).min(limit);
        let has_room = |bytes: &u64| log.reserve(room.bytes, *bytes, step);
        let taken = [wished, need].into_iter().find(has_room);
        room.bytes = taken.ok_or(EngineError::LogFull)?;
        room.step = step;
        room.log.get_or_insert_with(|| Arc::clone(log));
        Ok(())
    }

    /// Most bytes of changes that are recorded together in this node's log; without a log as many
    /// as ever.
    #[must_use]
    pub fn largest_change(&self) -> u64 {
        self.core().log.as_ref().map_or(u64::MAX, |log| log.largest_change())
    }

    /// As [`Engine::exclusive_in_order`], for a change that has room in the log: it is not refused
    /// where that fills up.
    ///
    /// # Errors
    /// As [`Engine::shared_in_order`].
    pub fn exclusive_with_room<'e>(
        &'e self,
        addr: GAddr,
        room: &LogReservation,
    ) -> BoxFuture<'e, Result<ExclusiveGuard<'e>, EngineError>> {
        self.latch_with_room(addr, room, WaitPolicy::LivingHolders)
    }

    /// As [`Engine::exclusive_with_room`], without waiting for latches.
    ///
    /// # Errors
    /// `Busy` if the page is latched, here or elsewhere; else as [`Engine::shared`].
    pub fn try_exclusive_with_room<'e>(
        &'e self,
        addr: GAddr,
        room: &LogReservation,
    ) -> BoxFuture<'e, Result<ExclusiveGuard<'e>, EngineError>> {
        self.latch_with_room(addr, room, WaitPolicy::NoWait)
    }

    fn latch_with_room(
        &self,
        addr: GAddr,
        room: &LogReservation,
        policy: WaitPolicy,
    ) -> BoxFuture<'_, Result<ExclusiveGuard<'_>, EngineError>> {
        let has_room = room.bytes() > 0;
        Box::pin(async move {
            if let Some(guard) = self.exclusive_hit(addr) {
                return Ok(guard);
            }
            if !has_room {
                return self.exclusive_slow(addr, policy).await;
            }
            let core = self.core();
            core.lifecycle.check_alive()?;
            core.config.check_writes()?;
            let frame = core.latch(addr, Access::Exclusive, policy).await?;
            Ok(ExclusiveGuard::new(core, frame))
        })
    }
}

impl Core {
    /// Reservations of the log up to here are small.
    pub(crate) fn log_step(&self) -> u64 {
        STEP_LINES * self.cache.gcl_bytes() as u64
    }
}

impl Log {
    fn largest_change(&self) -> u64 {
        self.capacity() / 8 * LARGEST_CHANGE
    }

    /// Waits until it is the caller's turn, and there is room for `need` bytes of changes. Up to
    /// `step` bytes have their turn when there is room.
    ///
    /// # Errors
    /// As [`Log::until_room`].
    pub(crate) async fn until_turn(
        &self,
        (need, step): (u64, u64),
        lifecycle: &Lifecycle,
        env: &Env,
        bound: Duration,
    ) -> Result<(), EngineError> {
        let place = {
            let mut turns = self.turns.lock();
            let number = turns.next;
            turns.next += 1;
            turns.waiting.push_back(number);
            TurnPlace { log: self, number }
        };
        let has_turn = |log: &Self| {
            let (kept, capacity) = log.kept();
            let taken = kept.saturating_add(log.reserved.load(Ordering::Relaxed));
            let (mut turns, now) = (log.turns.lock(), env.now());
            let taken = taken.saturating_add(turns.given_bytes(now));
            // A small change needs not wait behind a large one.
            let is_small = need <= step && taken.saturating_add(need) <= capacity / 8 * RESERVED;
            // With nothing but what is kept at rest, even the largest change has its turn.
            let has_room = taken <= capacity / 8 * LARGEST_CHANGE
                || taken.saturating_add(need) <= capacity / 8 * RESERVED_BY_LARGE;
            let is_first = turns.waiting.front() == Some(&place.number);
            let goes = (is_small || is_first && has_room) && !log.is_full();
            if goes {
                turns.given.push_back((now, need));
            }
            goes
        };
        self.until(has_turn, lifecycle, env, bound).await
    }

    /// Makes a reservation of `held` bytes one of `bytes` if there is room.
    fn reserve(&self, held: u64, bytes: u64, step: u64) -> bool {
        let more = bytes - held;
        let before = self.reserved.fetch_add(more, Ordering::Relaxed);
        // After the addition: of two that ask at once, the later sees the other.
        let (kept, capacity) = self.kept();
        let is_large = bytes > step;
        if is_large {
            self.turns.lock().take(held, bytes);
        }
        let share = if is_large { RESERVED_BY_LARGE } else { RESERVED };
        let has_room = kept.saturating_add(before).saturating_add(more) <= capacity / 8 * share;
        if !has_room {
            self.reserved.fetch_sub(more, Ordering::Relaxed);
        }
        has_room
    }
}
