//! Room in a log for changes that are made in latched pages and not recorded yet.
//!
//! Pages go home, and the log is truncated behind them, once what was recorded of them is durable.
//! So recorded changes that do not fit the log would wait for room that they prevent themselves.
//! A transaction reserves room before it changes pages, and is refused while it can still roll
//! back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::state::Log;
use crate::access::engine::Engine;
use crate::error::EngineError;

/// Least room asked for at once.
const STEP: u64 = 8 << 10;
/// Eighths of a log's capacity that changes made together may take. Checkpoints keep as much of the
/// log at rest, so that these fit, if no others are as large.
const LARGEST_CHANGE: u64 = 3;
/// Eighths of a log's capacity up to which room is reserved; the rest is for changes that reserve
/// none, such as separators and freed pages.
const RESERVED: u64 = 7;
/// The same for reservations of more than [`STEP`], so that small ones have room beside them.
const RESERVED_BY_LARGE: u64 = 6;

/// Reserved room, given back on drop.
#[derive(Default)]
pub struct LogReservation {
    log: Option<Arc<Log>>,
    bytes: u64,
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
            if self.bytes > STEP {
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
        // Doubled, so that a large transaction asks seldom.
        let wished = need.max(room.bytes.saturating_mul(2)).max(STEP).min(limit);
        let has_room = |bytes: &u64| log.reserve(room.bytes, *bytes);
        let taken = [wished, need].into_iter().find(has_room);
        room.bytes = taken.ok_or(EngineError::LogFull)?;
        room.log.get_or_insert_with(|| Arc::clone(log));
        Ok(())
    }

    /// Most bytes of changes that are recorded together in this node's log; without a log as many
    /// as ever.
    #[must_use]
    pub fn largest_change(&self) -> u64 {
        self.core().log.as_ref().map_or(u64::MAX, |log| log.largest_change())
    }
}

impl Log {
    fn largest_change(&self) -> u64 {
        self.capacity() / 8 * LARGEST_CHANGE
    }

    /// Whether large changes have to wait for others to be recorded or undone.
    pub(super) fn is_reserved(&self) -> bool {
        let (kept, capacity) = self.kept();
        let reserved = self.reserved.load(Ordering::Relaxed);
        kept.saturating_add(reserved) > capacity / 8 * RESERVED_BY_LARGE
    }

    /// Makes a reservation of `held` bytes one of `bytes` if there is room.
    fn reserve(&self, held: u64, bytes: u64) -> bool {
        let more = bytes - held;
        let before = self.reserved.fetch_add(more, Ordering::Relaxed);
        // After the addition: of two that ask at once, the later sees the other.
        let (kept, capacity) = self.kept();
        let share = if bytes > STEP { RESERVED_BY_LARGE } else { RESERVED };
        let has_room = kept.saturating_add(before).saturating_add(more) <= capacity / 8 * share;
        if !has_room {
            self.reserved.fetch_sub(more, Ordering::Relaxed);
        }
        has_room
    }
}
